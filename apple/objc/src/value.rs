//! C values: conversion to Rust arguments and from Rust results, and their type encodings.
//!
//! The types are those of Apple's [type encodings](https://developer.apple.com/library/archive/documentation/Cocoa/Conceptual/ObjCRuntimeGuide/Articles/ocrtTypeEncodings.html),
//! which objc2 compares with the types of the messages it sends.

use std::ffi::{c_char, c_void};

use crate::class::Class;
use crate::declare::Declared;
use crate::object::Id;
use crate::reference::{Object, Ref};
use crate::selector::Selector;
use crate::watch::fatal;

/// A value as C code passes it.
///
/// # Safety
/// The type has the layout of its encoding.
pub unsafe trait Encoded: Copy {
    /// Its type encoding.
    const ENCODING: &'static str;
}

macro_rules! encoded {
    ($($type:ty => $encoding:literal),* $(,)?) => {
        $(
            // SAFETY: the layouts are those of x86-64.
            unsafe impl Encoded for $type {
                const ENCODING: &'static str = $encoding;
            }
        )*
    };
}

encoded! {
    () => "v", i8 => "c", u8 => "C", i16 => "s", u16 => "S", i32 => "i", u32 => "I", i64 => "q", u64 => "Q",
    isize => "q", usize => "Q", f32 => "f", f64 => "d", Id => "@", *mut Id => "^@", *const Id => "^@",
    *const c_char => "*", *mut c_void => "^v", *const c_void => "^v", *const usize => "^Q", *const u64 => "^Q",
    *mut usize => "^Q", *mut u64 => "^Q", *const Class => "#", NsRange => "{_NSRange=QQ}", *const NsRange => "^{_NSRange=QQ}",
}

/// `NSRange`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct NsRange {
    /// Start.
    pub location: usize,
    /// Length.
    pub length: usize,
}

impl NsRange {
    /// The end, if it does not overflow.
    pub fn end(self) -> Option<usize> {
        self.location.checked_add(self.length)
    }
}

/// The bytes at an address with a length, as C code passes them.
///
/// # Safety
/// That many bytes are valid and unchanged for `'a`.
pub unsafe fn bytes_of<'a>(address: *const c_void, length: usize) -> &'a [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(address.cast(), length) }
}

/// Argument types of methods written in Rust.
pub trait Argument: Sized {
    /// The C type.
    type Raw: Encoded;

    /// # Safety
    /// `raw` is valid for its encoding.
    unsafe fn from_raw(raw: Self::Raw) -> Self;
}

/// Result types of methods written in Rust.
pub trait Return: Sized {
    /// The C type.
    type Raw: Encoded;

    /// Converts the result for a method with that name, which determines the ownership.
    fn into_raw(self, selector: Selector) -> Self::Raw;
}

#[doc(hidden)]
#[macro_export]
macro_rules! itself {
    ($($type:ty),* $(,)?) => {
        $(
            impl $crate::Argument for $type {
                type Raw = Self;

                unsafe fn from_raw(raw: Self) -> Self {
                    raw
                }
            }
            impl $crate::Return for $type {
                type Raw = Self;

                fn into_raw(self, _selector: $crate::Selector) -> Self {
                    self
                }
            }
        )*
    };
}

/// Types that methods written in Rust take and return in their C representation, each with its encoding, which matches the layout
/// of `#[repr(C)]` or `#[repr(transparent)]`.
#[macro_export]
macro_rules! structures {
    ($($type:ty => $encoding:literal),* $(,)?) => {
        $(
            // SAFETY: the type has the layout of the encoding beside it.
            unsafe impl $crate::Encoded for $type {
                const ENCODING: &'static str = $encoding;
            }
            $crate::itself!($type);
        )*
    };
}

itself!(
    u8,
    i32,
    u32,
    u64,
    isize,
    usize,
    f32,
    f64,
    i64,
    *const c_char,
    *mut c_void,
    *const c_void,
    *const usize,
    *const u64,
    *mut usize,
    *mut u64,
    *const Id,
    *mut Id,
    NsRange,
    *const NsRange,
    Selector,
    *const Class
);

impl Return for () {
    type Raw = ();

    fn into_raw(self, _selector: Selector) {}
}

/// `BOOL` is a signed character on x86-64.
impl Argument for bool {
    type Raw = i8;

    unsafe fn from_raw(raw: i8) -> Self {
        raw != 0
    }
}

impl Return for bool {
    type Raw = i8;

    fn into_raw(self, _selector: Selector) -> i8 {
        i8::from(self)
    }
}

impl Argument for Option<Object> {
    type Raw = Id;

    unsafe fn from_raw(raw: Id) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Object::from_lent(raw) }
    }
}

impl Argument for Object {
    type Raw = Id;

    unsafe fn from_raw(raw: Id) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::from_lent(raw) }
            .unwrap_or_else(|| fatal(format_args!("nil was passed where an object is required")))
    }
}

impl<T: Declared> Argument for Option<Ref<T>> {
    type Raw = Id;

    unsafe fn from_raw(raw: Id) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Object::from_lent(raw) }.map(|object| typed(&object))
    }
}

impl<T: Declared> Argument for Ref<T> {
    type Raw = Id;

    unsafe fn from_raw(raw: Id) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Option::<Self>::from_raw(raw) }.unwrap_or_else(|| {
            fatal(format_args!("nil was passed where a {} is required", T::NAME.to_string_lossy()))
        })
    }
}

fn typed<T: Declared>(object: &Object) -> Ref<T> {
    object.downcast().unwrap_or_else(|| {
        let found = object.class().name().to_string_lossy();
        fatal(format_args!("a {found} was passed where a {} is required", T::NAME.to_string_lossy()))
    })
}

impl Return for Option<Object> {
    type Raw = Id;

    fn into_raw(self, selector: Selector) -> Id {
        match self {
            None => std::ptr::null_mut(),
            Some(object) if selector.hands_over() => object.into_owned(),
            Some(object) => object.into_lent(),
        }
    }
}

impl Return for Object {
    type Raw = Id;

    fn into_raw(self, selector: Selector) -> Id {
        Some(self).into_raw(selector)
    }
}

impl<T: Declared> Return for Option<Ref<T>> {
    type Raw = Id;

    fn into_raw(self, selector: Selector) -> Id {
        self.map(Ref::into_object).into_raw(selector)
    }
}

impl<T: Declared> Return for Ref<T> {
    type Raw = Id;

    fn into_raw(self, selector: Selector) -> Id {
        self.into_object().into_raw(selector)
    }
}

/// Out parameter of a method, such as `NSError **`; may be null.
#[derive(Clone, Copy)]
pub struct Out(*mut Id);

impl Argument for Out {
    type Raw = *mut Id;

    unsafe fn from_raw(raw: *mut Id) -> Self {
        Self(raw)
    }
}

impl Out {
    /// Stores an autoreleased object, if the caller wants one.
    pub fn lend<T: Declared>(self, object: Ref<T>) {
        if !self.0.is_null() {
            // SAFETY: who passes a pointer here passes one to an object variable.
            unsafe { *self.0 = object.into_object().into_lent() };
        }
    }

    /// The result; or `None`, after storing the error.
    pub fn catch<T, E: Declared>(self, result: Result<T, Ref<E>>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.lend(error);
                None
            }
        }
    }
}
