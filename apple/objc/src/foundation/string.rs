//! `NSString`: text in UTF-8.

use std::ffi::{CStr, c_char, c_void};

use crate::declare::Declaration;
use crate::reference::Ref;
use crate::value::bytes_of;

/// `NSUTF8StringEncoding`.
const UTF8: usize = 4;

/// A text. It ends with a zero for `UTF8String`, and may have zeroes within.
#[derive(Clone)]
pub struct NsString(Vec<u8>);

crate::object!(NsString, c"NSString");

impl NsString {
    /// A new string object.
    pub fn new(text: &str) -> Ref<Self> {
        Ref::new(Self::of(text.as_bytes()))
    }

    fn of(bytes: &[u8]) -> Self {
        Self([bytes, &[0]].concat())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0[..self.0.len() - 1]).expect("checked when it was made")
    }

    /// `nil` for bytes that are not text of the encoding; only UTF-8 and ASCII are known.
    fn from_bytes(bytes: *const c_void, length: usize, encoding: usize) -> Option<Self> {
        // SAFETY: the caller passes so many bytes.
        let bytes = unsafe { bytes_of(bytes, length) };
        (matches!(encoding, 1 | UTF8) && std::str::from_utf8(bytes).is_ok()).then(|| Self::of(bytes))
    }

    fn from_c(text: *const c_char) -> Option<Self> {
        // SAFETY: the caller passes a string that ends with a zero.
        Self::from_bytes(text.cast(), unsafe { CStr::from_ptr(text) }.count_bytes(), UTF8)
    }
}

pub(super) fn register() {
    Declaration::<NsString>::new()
        .init("init", || Some(NsString::of(b"")))
        .init("initWithBytes:length:encoding:", NsString::from_bytes)
        .init("initWithUTF8String:", NsString::from_c)
        .class_method("stringWithUTF8String:", |text: *const c_char| NsString::from_c(text).map(Ref::new))
        .class_method("string", || NsString::new(""))
        .method("UTF8String", |this: &Ref<NsString>| this.0.as_ptr().cast::<c_char>())
        .method("length", |this: &Ref<NsString>| this.as_str().encode_utf16().count())
        .method("lengthOfBytesUsingEncoding:", |this: &Ref<NsString>, encoding: usize| {
            if matches!(encoding, 1 | UTF8) { this.0.len() - 1 } else { 0 }
        })
        .method("isEqualToString:", |this: &Ref<NsString>, other: Ref<NsString>| this.0 == other.0)
        .method("isEqual:", |this: &Ref<NsString>, other: Option<crate::Object>| {
            other.and_then(|other| other.downcast::<NsString>()).is_some_and(|other| this.0 == other.0)
        })
        .method("hash", |this: &Ref<NsString>| {
            this.0.iter().fold(5381_usize, |hash, byte| hash.wrapping_mul(33) ^ usize::from(*byte))
        })
        .method("hasPrefix:", |this: &Ref<NsString>, start: Ref<NsString>| {
            this.as_str().starts_with(start.as_str())
        })
        .method("description", Ref::<NsString>::clone)
        .method("copyWithZone:", |this: &Ref<NsString>, _: *mut c_void| this.clone())
        .register();
}

/// Constants of Apple's libraries that hold a string object, by the name of the C symbol.
#[macro_export]
macro_rules! string_constants {
    ($($name:ident = $text:literal),* $(,)?) => {
        $(
            /// A string constant of that name.
            #[unsafe(no_mangle)]
            #[allow(non_upper_case_globals)] // the name of the C symbol
            pub static $name: ::std::sync::atomic::AtomicPtr<$crate::Raw> =
                ::std::sync::atomic::AtomicPtr::new(::std::ptr::null_mut());
        )*

        /// Make the constants' objects.
        fn register_constants() {
            $(
                let text = $crate::foundation::NsString::new($text);
                $name.store(text.into_object().into_owned(), ::std::sync::atomic::Ordering::Release);
            )*
        }
    };
}
