//! The runtime through its C functions: messages with arguments in registers and in memory, classes that are made while the
//! program runs, pools.
#![allow(unused_unsafe)] // `send!` is used within unsafe blocks and outside

use std::ffi::{CStr, c_void};
use std::sync::Once;

use crate::abi::{
    class_addIvar, class_addMethod, class_getInstanceVariable, class_replaceMethod, ivar_getOffset,
    objc_alloc, objc_allocateClassPair, objc_autorelease, objc_autoreleasePoolPop, objc_autoreleasePoolPush,
    objc_getClass, objc_release, objc_retain,
};
use crate::foundation::{NsArray, NsString};
use crate::send::{objc_msgSend, objc_msgSend_stret, objc_msgSendSuper};
use crate::watch::elinvar_apple_live;
use crate::{Class, Declaration, Encoded, Id, Ref, Return, Selector};

/// A structure that is returned through memory.
#[derive(Clone, Copy, Debug, PartialEq)]
#[repr(C)]
struct Large([u64; 4]);

// SAFETY: four numbers.
unsafe impl Encoded for Large {
    const ENCODING: &'static str = "{Large=[4Q]}";
}

impl Return for Large {
    type Raw = Self;

    fn into_raw(self, _selector: Selector) -> Self {
        self
    }
}

struct Sample(u64);

crate::object!(Sample, c"Sample");

fn begin() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        crate::foundation::register();
        Declaration::<Sample>::new()
            .init("initWithNumber:", |number: u64| Some(Sample(number)))
            .method(
                "mix:b:c:d:e:f:g:",
                |this: &Ref<Sample>, a: u64, b: f64, c: u64, d: f32, e: u64, f: u64, g: u64| {
                    this.0 as f64 + a as f64 * 10.0 + b + f64::from(d) + (c + e + f + g) as f64
                },
            )
            .method("large:", |this: &Ref<Sample>, first: u64| Large([first, this.0, 2, 3]))
            .method("number", |this: &Ref<Sample>| this.0)
            .register();
    });
}

fn live(name: &CStr) -> usize {
    // SAFETY: it ends with a zero.
    unsafe { elinvar_apple_live(name.as_ptr()) }
}

/// `objc_msgSend` as a function of the method's own type.
macro_rules! send {
    ($object:expr, $name:literal $(, $arg:expr => $type:ty)* => $result:ty) => {{
        let send: unsafe extern "C" fn(Id, Selector $(, $type)*) -> $result =
            // SAFETY: the method has these types.
            unsafe { std::mem::transmute(objc_msgSend as *const ()) };
        // SAFETY: as above.
        unsafe { send($object, Selector::of($name) $(, $arg)*) }
    }};
}

#[test]
fn arguments_and_results_pass_through() {
    begin();
    let sample = Ref::new(Sample(5));
    for _ in 0..3 {
        let mixed = send!(sample.id(), c"mix:b:c:d:e:f:g:", 2 => u64, 0.5 => f64, 100 => u64, 0.25 => f32, 200 => u64,
            300 => u64, 400 => u64 => f64);
        assert_eq!(mixed, 5.0 + 20.0 + 0.75 + 1000.0);
    }
    let send: unsafe extern "C" fn(Id, Selector, u64) -> Large =
        // SAFETY: the method has this type.
        unsafe { std::mem::transmute(objc_msgSend_stret as *const ()) };
    // SAFETY: as above.
    let large = [0, 1].map(|_| unsafe { send(sample.id(), Selector::of(c"large:"), 9) });
    assert_eq!(large, [Large([9, 5, 2, 3]); 2]);
}

#[test]
fn nil_answers_zero() {
    begin();
    assert_eq!(send!(std::ptr::null_mut(), c"number" => u64), 0);
    assert_eq!(send!(std::ptr::null_mut(), c"description" => Id), std::ptr::null_mut());
}

extern "C" fn doubled(this: Id, selector: Selector) -> u64 {
    #[repr(C)]
    struct Super(Id, *const Class);
    // SAFETY: `objc_super`, and the method has this type.
    unsafe {
        let above = Super(this, objc_getClass(c"Sample".as_ptr()));
        let send: unsafe extern "C" fn(*const Super, Selector) -> u64 =
            std::mem::transmute(objc_msgSendSuper as *const ());
        2 * send(&raw const above, selector)
    }
}

extern "C" fn thousand(_: Id, _: Selector) -> u64 {
    1000
}

#[test]
fn a_class_below_has_methods_and_variables_of_its_own() {
    begin();
    // SAFETY: names end with zeroes, and methods have the types given.
    unsafe {
        let above = objc_getClass(c"Sample".as_ptr());
        let class = objc_allocateClassPair(above, c"Below".as_ptr(), 0);
        assert!(objc_allocateClassPair(above, c"Below".as_ptr(), 0).is_null(), "there is one");
        assert_eq!(class_addIvar(class, c"extra".as_ptr(), 16, 4, c"Q".as_ptr()), 1);
        let offset = ivar_getOffset(class_getInstanceVariable(class, c"extra".as_ptr()));
        assert_eq!(offset % 16, 0);
        let object = send!(objc_alloc(class), c"initWithNumber:", 21 => u64 => Id);
        object.cast::<u8>().offset(offset).cast::<[u64; 2]>().write([7, 8]);
        assert_eq!(send!(object, c"number" => u64), 21);
        let number = Selector::of(c"number");
        assert_eq!(class_addMethod(class, number, doubled as *const c_void, c"Q@:".as_ptr()), 1);
        assert_eq!(send!(object, c"number" => u64), 42, "what was looked up before is forgotten");
        class_replaceMethod(class, number, thousand as *const c_void, c"Q@:".as_ptr());
        assert_eq!(send!(object, c"number" => u64), 1000);
        assert_eq!(object.cast::<u8>().offset(offset).cast::<[u64; 2]>().read(), [7, 8]);
        assert_eq!(live(c"Below"), 1);
        objc_release(object);
        assert_eq!(live(c"Below"), 0);
    }
}

#[test]
fn pools_release_what_they_were_left() {
    begin();
    struct Kept;
    crate::object!(Kept, c"Kept");
    Declaration::<Kept>::new().register();
    // SAFETY: references are owned where they are let go of.
    unsafe {
        let outer = objc_autoreleasePoolPush();
        objc_autorelease(Ref::new(Kept).into_object().into_owned());
        let inner = objc_autoreleasePoolPush();
        let object =
            objc_autorelease(objc_retain(objc_autorelease(Ref::new(Kept).into_object().into_owned())));
        assert!(!object.is_null());
        assert_eq!(live(c"Kept"), 2);
        objc_autoreleasePoolPop(inner);
        assert_eq!(live(c"Kept"), 1);
        objc_autoreleasePoolPop(outer);
        assert_eq!(live(c"Kept"), 0);
    }
}

#[test]
fn methods_of_some_families_hand_over() {
    begin();
    crate::with_pool(|| {
        let array = NsArray::new([NsString::new("a").into_object()]);
        let lent = send!(array.id(), c"objectAtIndex:", 0 => usize => Id);
        assert_eq!(send!(lent, c"retainCount" => usize), 2, "the array's and the pool's");
        let copied = send!(array.id(), c"copy" => Id);
        assert_eq!((copied, send!(array.id(), c"retainCount" => usize)), (array.id(), 2));
        // SAFETY: handed over.
        unsafe { objc_release(copied) };
    });
}
