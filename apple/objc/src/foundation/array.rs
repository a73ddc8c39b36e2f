//! `NSArray`, with fast enumeration. Mutable arrays are not there.

use std::ffi::c_void;

use crate::declare::Declaration;
use crate::object::Id;
use crate::reference::{Object, Ref};
use crate::value::{Argument, NsRange};
use crate::watch::fatal;

/// Objects in order.
#[derive(Clone, Default)]
pub struct NsArray(Vec<Object>);

crate::object!(NsArray, c"NSArray");

impl NsArray {
    /// A new array object.
    pub fn new(objects: impl IntoIterator<Item = Object>) -> Ref<Self> {
        Ref::new(Self(objects.into_iter().collect()))
    }

    /// Its objects.
    pub fn objects(&self) -> &[Object] {
        &self.0
    }

    fn from_c(objects: *const Id, count: usize) -> Option<Self> {
        // SAFETY: the caller passes so many objects.
        Some(Self((0..count).map(|at| unsafe { Object::from_raw(*objects.add(at)) }).collect()))
    }

    fn copy_range(this: &Ref<Self>, to: *mut Id, range: NsRange) {
        let Some(objects) = range.end().and_then(|end| this.0.get(range.location..end)) else {
            fatal(format_args!("-[NSArray getObjects:range:]: {range:?} of {}", this.0.len()));
        };
        copy_to(objects.iter(), to);
    }

    fn at(this: &Ref<Self>, index: usize) -> Object {
        let count = this.0.len();
        let outside = || fatal(format_args!("-[NSArray objectAtIndex:]: index {index} of {count}"));
        this.0.get(index).cloned().unwrap_or_else(outside)
    }
}

/// `NSFastEnumerationState`.
#[repr(C)]
pub(super) struct Enumeration {
    state: usize,
    items: *mut Id,
    mutations: *const usize,
    extra: [usize; 5],
}

/// A pointer to one.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct EnumerationPointer(*mut Enumeration);

crate::structures! { EnumerationPointer => "^{?=Q^@^Q[5Q]}" }

/// Hand out the next objects, as many as there is room for.
pub(super) fn enumerate(objects: &[Object], state: EnumerationPointer, room: *mut Id, count: usize) -> usize {
    static UNCHANGED: usize = 0;
    // SAFETY: the caller passes its state and room for so many objects.
    unsafe {
        let state = &mut *state.0;
        let next = objects.iter().skip(state.state).take(count);
        let mut given = 0;
        for object in next {
            room.add(given).write(object.id());
            given += 1;
        }
        (state.items, state.mutations) = (room, &raw const UNCHANGED);
        state.state += given;
        given
    }
}

/// Write objects to memory of the caller's, which does not own them.
pub(super) fn copy_to<'a>(objects: impl Iterator<Item = &'a Object>, to: *mut Id) {
    for (at, object) in objects.enumerate() {
        // SAFETY: the caller passes room for all.
        unsafe { to.add(at).write(object.id()) };
    }
}

pub(super) fn register() {
    Declaration::<NsArray>::new()
        .makes_default()
        .init("initWithObjects:count:", NsArray::from_c)
        .class_method("array", || NsArray::new([]))
        .class_method("arrayWithObject:", |object: Object| NsArray::new([object]))
        .class_method("arrayWithObjects:count:", |objects: *const Id, count: usize| {
            NsArray::from_c(objects, count).map(Ref::new)
        })
        .method("count", |this: &Ref<NsArray>| this.0.len())
        .method("objectAtIndex:", NsArray::at)
        .method("objectAtIndexedSubscript:", NsArray::at)
        .method("getObjects:range:", NsArray::copy_range)
        .method("getObjects:", |this: &Ref<NsArray>, to: *mut Id| copy_to(this.0.iter(), to))
        .method("firstObject", |this: &Ref<NsArray>| this.0.first().cloned())
        .method("lastObject", |this: &Ref<NsArray>| this.0.last().cloned())
        .method("countByEnumeratingWithState:objects:count:", enumerate_array)
        .method("copyWithZone:", |this: &Ref<NsArray>, _: *mut c_void| this.clone())
        .register();
}

fn enumerate_array(this: &Ref<NsArray>, state: EnumerationPointer, room: *mut Id, count: usize) -> usize {
    enumerate(&this.0, state, room, count)
}
