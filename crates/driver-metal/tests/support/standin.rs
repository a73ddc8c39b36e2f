//! Control of the stand-ins for Apple's libraries, and a kernel with memory for it.
#![allow(dead_code)] // each test uses some of it
#![allow(unsafe_code)] // calls the stand-in's C functions

use std::ffi::c_char;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elinvar_driver::{Binding, Command, Device, Dispatch, Label, Memory, Pipeline, Storage};
use objc2::rc::Retained;
use objc2::runtime::{AnyObject, ProtocolObject};
use objc2_metal::{MTLCommandBufferError, MTLCopyAllDevices, MTLDevice};

use super::{devices, dispatch, memory, pipeline, whole};

pub const ALLOCATION: u32 = 0;
pub const LIBRARY: u32 = 1;
pub const PIPELINE: u32 = 2;
pub const QUEUE: u32 = 3;
pub const COMMAND_BUFFER: u32 = 4;
pub const ENCODER: u32 = 5;
pub const OBJECT: u32 = 6;
pub const EXECUTION: u32 = 7;
pub const SAMPLE: u32 = 8;

unsafe extern "C" {
    fn elinvar_apple_inject(device: *const AnyObject, site: u32, nth: u64, code: isize, encoder: isize);
    fn elinvar_apple_hold(device: *const AnyObject, encoder: isize);
    fn elinvar_apple_committed(device: *const AnyObject) -> u64;
    fn elinvar_apple_live(name: *const c_char) -> usize;
    fn elinvar_apple_live_blocks() -> usize;
    fn elinvar_apple_settle(milliseconds: u64) -> bool;
    fn elinvar_apple_without_pool() -> usize;
}

/// The system's devices, and the faults injected into them, are global to the process.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The device with this index, in the order of [`devices`].
fn system(number: usize) -> Retained<ProtocolObject<dyn MTLDevice>> {
    MTLCopyAllDevices().iter().nth(number).expect("a device")
}

fn address(device: &ProtocolObject<dyn MTLDevice>) -> *const AnyObject {
    (&raw const *device).cast()
}

pub fn has_counters(number: usize) -> bool {
    system(number).counterSets().is_some()
}

/// Makes the `nth` operation from now at this site of a device fail.
pub fn inject_on(number: usize, site: u32, nth: u64, code: MTLCommandBufferError, encoder: isize) {
    // SAFETY: the address is that of a live device.
    unsafe { elinvar_apple_inject(address(&system(number)), site, nth, code.0 as isize, encoder) };
}

/// Makes the `nth` operation from now at this site of the first device fail.
pub fn inject(site: u32, nth: u64, code: MTLCommandBufferError, encoder: isize) {
    inject_on(0, site, nth, code, encoder);
}

pub fn fail(site: u32) {
    inject(site, 1, MTLCommandBufferError::Internal, -1);
}

/// Number of command buffers committed on a device.
pub fn committed(number: usize) -> u64 {
    // SAFETY: the address is that of a live device.
    unsafe { elinvar_apple_committed(address(&system(number))) }
}

/// Holds the command buffers of a device before an encoder until it is dropped.
pub struct Held(usize);

impl Held {
    pub fn before(number: usize, encoder: isize) -> Self {
        // SAFETY: the address is that of a live device.
        unsafe { elinvar_apple_hold(address(&system(number)), encoder) };
        Self(number)
    }

    /// Releases the command buffers, and holds them before another encoder.
    pub fn go_on_to(&mut self, encoder: isize) {
        // SAFETY: the address is that of a live device.
        unsafe { elinvar_apple_hold(address(&system(self.0)), encoder) };
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the address is that of a live device.
        unsafe { elinvar_apple_hold(address(&system(self.0)), -1) };
    }
}

/// Number of live Metal objects by type, and of live blocks.
pub fn live() -> [usize; 7] {
    // SAFETY: the function takes an integer and has no preconditions.
    assert!(unsafe { elinvar_apple_settle(600_000) }, "the stand-in's threads go on");
    let count = |name: &std::ffi::CStr| {
        // SAFETY: the name ends with a zero byte.
        unsafe { elinvar_apple_live(name.as_ptr()) }
    };
    // SAFETY: the function has no preconditions.
    let blocks = unsafe { elinvar_apple_live_blocks() };
    let names = [
        c"MTLBuffer",
        c"MTLCommandBuffer",
        c"MTLCommandEncoder",
        c"MTLCommandQueue",
        c"MTLComputePipelineState",
        c"MTLEvent",
    ];
    let [a, b, c, d, e, f] = names.map(count);
    [a, b, c, d, e, f, blocks]
}

/// Number of objects that were autoreleased without a pool.
pub fn without_pool() -> usize {
    // SAFETY: the function has no preconditions.
    unsafe { elinvar_apple_without_pool() }
}

const ADD: &str = "kernel void add_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
    uint i [[thread_position_in_grid]]) { x[i] += k; }";

/// A device, a kernel that adds, and 100 numbers for it.
pub struct Fixture {
    pub device: Arc<dyn Device>,
    pub add: Arc<dyn Pipeline>,
    pub x: Arc<dyn Memory>,
}

impl Fixture {
    /// On the first device.
    pub fn new() -> Self {
        Self::on(devices().swap_remove(0))
    }

    /// One fixture per device, with the device's index.
    pub fn all() -> impl Iterator<Item = (usize, Self)> {
        devices().into_iter().map(Self::on).enumerate()
    }

    fn on(device: Arc<dyn Device>) -> Self {
        let (add, x) = (pipeline(&*device, ADD, "add_k"), memory(&*device, 400, Storage::Shared));
        Self { device, add, x }
    }

    pub const SOURCE: &str = ADD;

    /// Adds `k` to each number of `x`.
    pub fn add(&self, k: u32) -> Command {
        self.add_to(&self.x, k)
    }

    /// Adds `k` to each of 100 numbers.
    pub fn add_to(&self, x: &Arc<dyn Memory>, k: u32) -> Command {
        let bindings = vec![Binding::Memory(whole(x)), Binding::bytes(&k.to_ne_bytes())];
        dispatch(&self.add, bindings, 100, 25)
    }

    pub fn labeled(&self, k: u32, name: &str) -> Command {
        let Command::Dispatch(plain) = self.add(k) else { unreachable!("a dispatch") };
        let label = Some(Arc::new(Label { name: name.into(), id: 7 }));
        Command::Dispatch(Dispatch { label, ..plain })
    }

    pub fn copy(&self) -> Command {
        Command::Copy { source: super::slice(&self.x, 0, 4), target: super::slice(&self.x, 8, 4) }
    }
}
