//! `NSNumber`.

use std::ffi::c_void;

use crate::declare::Declaration;
use crate::foundation::NsString;
use crate::reference::Ref;

/// A number: an integer, or one with a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NsNumber {
    /// A whole one.
    Integer(i64),
    /// Any.
    Real(f64),
}

crate::object!(NsNumber, c"NSNumber");

impl NsNumber {
    /// Its value without what is behind the point.
    #[allow(clippy::cast_possible_truncation)] // as the documentation has it, the conversion is C's
    pub fn integer(self) -> i64 {
        match self {
            Self::Integer(value) => value,
            Self::Real(value) => value as i64,
        }
    }

    #[allow(clippy::cast_precision_loss)] // as above
    fn real(self) -> f64 {
        match self {
            Self::Integer(value) => value as f64,
            Self::Real(value) => value,
        }
    }

    /// As a preprocessor macro has it.
    pub fn text(self) -> String {
        match self {
            Self::Integer(value) => value.to_string(),
            Self::Real(value) => value.to_string(),
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, clippy::cast_sign_loss)] // conversions are C's
pub(super) fn register() {
    let number = Declaration::<NsNumber>::new()
        .init("initWithInteger:", |value: isize| Some(NsNumber::Integer(value as i64)))
        .init("initWithUnsignedInteger:", |value: usize| Some(NsNumber::Integer(value as i64)))
        .init("initWithDouble:", |value: f64| Some(NsNumber::Real(value)))
        .class_method("numberWithBool:", |value: bool| Ref::new(NsNumber::Integer(i64::from(value))))
        .class_method("numberWithInt:", |value: i32| Ref::new(NsNumber::Integer(i64::from(value))))
        .class_method("numberWithUnsignedInt:", |value: u32| Ref::new(NsNumber::Integer(i64::from(value))))
        .class_method("numberWithInteger:", |value: isize| Ref::new(NsNumber::Integer(value as i64)))
        .class_method("numberWithUnsignedInteger:", |value: usize| Ref::new(NsNumber::Integer(value as i64)))
        .class_method("numberWithLongLong:", |value: i64| Ref::new(NsNumber::Integer(value)))
        .class_method("numberWithUnsignedLongLong:", |value: u64| Ref::new(NsNumber::Integer(value as i64)))
        .class_method("numberWithFloat:", |value: f32| Ref::new(NsNumber::Real(f64::from(value))))
        .class_method("numberWithDouble:", |value: f64| Ref::new(NsNumber::Real(value)));
    number
        .method("boolValue", |this: &Ref<NsNumber>| this.real() != 0.0)
        .method("intValue", |this: &Ref<NsNumber>| this.integer() as i32)
        .method("unsignedIntValue", |this: &Ref<NsNumber>| this.integer() as u32)
        .method("integerValue", |this: &Ref<NsNumber>| this.integer() as isize)
        .method("unsignedIntegerValue", |this: &Ref<NsNumber>| this.integer() as usize)
        .method("longLongValue", |this: &Ref<NsNumber>| this.integer())
        .method("unsignedLongLongValue", |this: &Ref<NsNumber>| this.integer() as u64)
        .method("floatValue", |this: &Ref<NsNumber>| this.real() as f32)
        .method("doubleValue", |this: &Ref<NsNumber>| this.real())
        .method("stringValue", |this: &Ref<NsNumber>| NsString::new(&this.text()))
        .method("description", |this: &Ref<NsNumber>| NsString::new(&this.text()))
        .method("copyWithZone:", |this: &Ref<NsNumber>, _: *mut c_void| this.clone())
        .register();
}
