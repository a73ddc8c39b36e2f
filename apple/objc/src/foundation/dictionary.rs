//! `NSDictionary`. Strings are equal as keys if their texts are, other objects if they are the same.

use std::ffi::c_void;

use crate::declare::Declaration;
use crate::foundation::array::{EnumerationPointer, copy_to, enumerate};
use crate::foundation::{NsArray, NsString};
use crate::object::Id;
use crate::reference::{Object, Ref};
use crate::value::Argument;

/// Objects by name.
#[derive(Clone, Default)]
pub struct NsDictionary(Vec<(Object, Object)>);

crate::object!(NsDictionary, c"NSDictionary");

impl NsDictionary {
    /// A new dictionary object.
    pub fn new(entries: impl IntoIterator<Item = (Ref<NsString>, Object)>) -> Ref<Self> {
        Ref::new(Self(entries.into_iter().map(|(key, value)| (key.into_object(), value)).collect()))
    }

    /// Keys that are strings, and their values, in no order that means anything.
    pub fn entries(&self) -> impl Iterator<Item = (String, &Object)> {
        self.0
            .iter()
            .filter_map(|(key, value)| Some((key.downcast::<NsString>()?.as_str().to_owned(), value)))
    }

    /// Keys and values, in no order that means anything.
    pub fn pairs(&self) -> &[(Object, Object)] {
        &self.0
    }

    fn from_c(values: *const Id, keys: *const Id, count: usize) -> Option<Self> {
        let entry = |at| {
            // SAFETY: the caller passes so many of each.
            unsafe { (Object::from_raw(*keys.add(at)), Object::from_raw(*values.add(at))) }
        };
        Some(Self((0..count).map(entry).collect()))
    }

    fn keys(&self) -> Vec<Object> {
        self.0.iter().map(|(key, _)| key.clone()).collect()
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
            copy_to(this.0.iter().map(|(key, _)| key).take(count), keys);
        }
    }

    fn get(this: &Ref<Self>, key: Object) -> Option<Object> {
        let text = key.downcast::<NsString>();
        let is_it = |own: &Object| match (&text, own.downcast::<NsString>()) {
            (Some(text), Some(own)) => text.as_str() == own.as_str(),
            _ => own.id() == key.id(),
        };
        this.0.iter().find(|(own, _)| is_it(own)).map(|(_, value)| value.clone())
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
