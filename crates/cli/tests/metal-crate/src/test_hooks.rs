//! The stand-in's own functions: live objects, mistakes, faults. A crate that also runs on a Mac would not use them.

use std::ffi::{CStr, c_char};

use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;

unsafe extern "C" {
    fn elinvar_apple_live(name: *const c_char) -> usize;
    fn elinvar_apple_live_blocks() -> usize;
    fn elinvar_apple_without_pool() -> usize;
    fn elinvar_apple_settle(milliseconds: u64) -> bool;
    fn elinvar_apple_record_mistakes(record: bool);
    fn elinvar_apple_take_mistakes(text: *mut c_char, length: usize) -> usize;
    fn elinvar_apple_device(profile: *const c_char) -> *mut ProtocolObject<dyn MTLDevice>;
    fn elinvar_apple_inject(
        device: *const ProtocolObject<dyn MTLDevice>,
        site: u32,
        nth: u64,
        code: isize,
        encoder: isize,
    );
}

/// Number of live objects of a class or protocol, after all queues have become idle.
pub fn live(name: &CStr) -> usize {
    unsafe {
        assert!(elinvar_apple_settle(60_000));
        elinvar_apple_live(name.as_ptr())
    }
}

pub fn live_blocks() -> usize {
    unsafe {
        assert!(elinvar_apple_settle(60_000));
        elinvar_apple_live_blocks()
    }
}

pub fn without_pool() -> usize {
    unsafe { elinvar_apple_without_pool() }
}

/// Messages about the mistakes that `f` makes.
pub fn mistakes(f: impl FnOnce()) -> String {
    unsafe { elinvar_apple_record_mistakes(true) };
    f();
    let mut text = vec![0_u8; 4096];
    let length = unsafe { elinvar_apple_take_mistakes(text.as_mut_ptr().cast(), text.len()) };
    unsafe { elinvar_apple_record_mistakes(false) };
    String::from_utf8(text[..length].to_vec()).unwrap()
}

/// A separate device with this profile.
pub fn device_of(profile: &CStr) -> Retained<ProtocolObject<dyn MTLDevice>> {
    unsafe { Retained::from_raw(elinvar_apple_device(profile.as_ptr())) }.unwrap()
}

/// Sites of faults, in the order of the stand-in's.
#[derive(Clone, Copy)]
pub enum Site {
    Allocation,
    Library,
    Pipeline,
    Queue,
    CommandBuffer,
    Encoder,
    Object,
    Execution,
}

/// Makes the `nth` operation from now at this site fail.
pub fn inject(device: &ProtocolObject<dyn MTLDevice>, site: Site, nth: u64, code: isize, encoder: isize) {
    unsafe { elinvar_apple_inject(device, site as u32, nth, code, encoder) };
}
