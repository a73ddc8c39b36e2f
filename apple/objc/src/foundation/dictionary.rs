//! `NSDictionary` with strings as keys.

use std::ffi::c_void;

use crate::declare::Declaration;
use crate::foundation::array::{EnumerationPointer, copy_to, enumerate};
use crate::foundation::{NsArray, NsString};
use crate::object::Id;
use crate::reference::{Object, Ref};
use crate::value::Argument;
use crate::watch::fatal;

/// Objects by name.
#[derive(Clone, Default)]
pub struct NsDictionary(Vec<(Ref<NsString>, Object)>);

crate::object!(NsDictionary, c"NSDictionary");

impl NsDictionary {
    /// A new dictionary object.
    pub fn new(entries: impl IntoIterator<Item = (Ref<NsString>, Object)>) -> Ref<Self> {
        Ref::new(Self(entries.into_iter().collect()))
    }

    /// Keys and values, in no order that means anything.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Object)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value))
    }

    fn from_c(values: *const Id, keys: *const Id, count: usize) -> Option<Self> {
        let entry = |at| {
            // SAFETY: the caller passes so many of each.
            let (key, value) =
                unsafe { (Object::from_raw(*keys.add(at)), Object::from_raw(*values.add(at))) };
            let no_text = || fatal(format_args!("a dictionary's key is not an NSString"));
            (key.downcast().unwrap_or_else(no_text), value)
        };
        Some(Self((0..count).map(entry).collect()))
    }

    fn keys(&self) -> Vec<Object> {
        self.0.iter().map(|(key, _)| key.object().clone()).collect()
    }

    /// Its keys, one after the other.
    fn enumerate(this: &Ref<Self>, state: EnumerationPointer, room: *mut Id, count: usize) -> usize {
        enumerate(&this.keys(), state, room, count)
    }

    fn copy(this: &Ref<Self>, values: *mut Id, keys: *mut Id) {
        Self::copy_some(this, values, keys, this.0.len());
    }

    fn copy_some(this: &Ref<Self>, values: *mut Id, keys: *mut Id, count: usize) {
        if !values.is_null() {
            copy_to(this.0.iter().map(|(_, value)| value).take(count), values);
        }
        if !keys.is_null() {
            copy_to(this.0.iter().map(|(key, _)| key.object()).take(count), keys);
        }
    }

    fn get(this: &Ref<Self>, key: Object) -> Option<Object> {
        let key = key.downcast::<NsString>()?;
        this.0.iter().find(|(own, _)| own.as_str() == key.as_str()).map(|(_, value)| value.clone())
    }
}

pub(super) fn register() {
    Declaration::<NsDictionary>::new()
        .makes_default()
        .init("initWithObjects:forKeys:count:", NsDictionary::from_c)
        .class_method("dictionary", || NsDictionary::new([]))
        .class_method(
            "dictionaryWithObjects:forKeys:count:",
            |values: *const Id, keys: *const Id, count: usize| {
                NsDictionary::from_c(values, keys, count).map(Ref::new)
            },
        )
        .method("count", |this: &Ref<NsDictionary>| this.0.len())
        .method("objectForKey:", NsDictionary::get)
        .method("objectForKeyedSubscript:", NsDictionary::get)
        .method("countByEnumeratingWithState:objects:count:", NsDictionary::enumerate)
        .method("getObjects:andKeys:", NsDictionary::copy)
        .method("getObjects:andKeys:count:", NsDictionary::copy_some)
        .method("allKeys", |this: &Ref<NsDictionary>| NsArray::new(this.keys()))
        .method("allValues", |this: &Ref<NsDictionary>| NsArray::new(this.0.iter().map(|e| e.1.clone())))
        .method("copyWithZone:", |this: &Ref<NsDictionary>, _: *mut c_void| this.clone())
        .register();
}
