//! Strings, arrays, classes defined by the program.
#![cfg(target_os = "macos")]

use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::NSObject;
use objc2::{AnyThread, DefinedClass, define_class, msg_send};
use objc2_foundation::{NSArray, NSDictionary, NSError, NSNumber, NSObjectProtocol, NSString};

#[test]
fn strings_and_arrays() {
    let (a, b) = (NSString::from_str("µ-one"), NSString::from_str("two"));
    assert_eq!((a.to_string().as_str(), a.len(), a.length()), ("µ-one", 6, 5));
    assert!(a == NSString::from_str("µ-one") && a != b);
    let array = NSArray::from_retained_slice(&[a, b]);
    let texts: Vec<String> = array.iter().map(|text| text.to_string()).collect();
    assert_eq!(texts, ["µ-one", "two"]);
    assert_eq!(array.to_vec(), [array.objectAtIndex(0), array.objectAtIndex(1)]);
    let dictionary = NSDictionary::from_slices(&[&*array.objectAtIndex(1)], &[&*NSNumber::new_i32(-3)]);
    let (keys, values) = dictionary.to_vecs();
    assert_eq!((keys[0].to_string().as_str(), values[0].as_i64(), dictionary.len()), ("two", -3, 1));
    assert_eq!(dictionary.keys().map(|key| key.to_string()).collect::<Vec<_>>(), ["two"]);
    assert_eq!(NSNumber::new_f32(2.5).as_f64(), 2.5);
    let error = autoreleasepool(|_| NSError::new(7, &NSString::from_str("domain")));
    assert_eq!((error.code(), error.domain().to_string()), (7, "domain".to_owned()));
}

struct Ivars {
    factor: usize,
}

define_class!(
    // SAFETY: `NSObject` has no requirements for subclasses.
    #[unsafe(super(NSObject))]
    #[ivars = Ivars]
    struct Scaler;

    unsafe impl NSObjectProtocol for Scaler {}

    impl Scaler {
        #[unsafe(method(scale:by:))]
        fn scale(&self, value: f64, by: usize) -> f64 {
            value * (self.ivars().factor * by) as f64
        }
    }
);

#[test]
fn classes_of_the_program() {
    let scaler = Scaler::alloc().set_ivars(Ivars { factor: 3 });
    let scaler: Retained<Scaler> = unsafe { msg_send![super(scaler), init] };
    let scaled: f64 = unsafe { msg_send![&scaler, scale: 1.5_f64, by: 2_usize] };
    assert_eq!(scaled, 9.0);
    assert!(scaler.isKindOfClass(objc2::class!(NSObject)));
    assert!(scaler.respondsToSelector(objc2::sel!(scale:by:)));
    assert!(!scaler.respondsToSelector(objc2::sel!(length)));
    assert_eq!(scaler.retainCount(), 1);
}
