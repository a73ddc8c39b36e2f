//! [`Hold`]: a device whose command buffers stop before an encoder, until a test lets them go on; so what happens meanwhile
//! does not depend on luck. And how many command buffers there were.

use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_objc::{Argument, Id, Ref};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;

/// Where the command buffers of a device stop.
#[derive(Default)]
pub struct Hold {
    /// Before the encoder of this number, from 0.
    before: Mutex<Option<isize>>,
    changed: Condvar,
    committed: AtomicU64,
}

impl Hold {
    /// A command buffer is committed.
    pub fn count(&self) {
        self.committed.fetch_add(1, Ordering::Relaxed);
    }

    /// A command buffer comes to its encoder of this number.
    pub fn pass(&self, encoder: isize) {
        let mut before = self.before.lock();
        while *before == Some(encoder) {
            self.changed.wait(&mut before);
        }
    }

    fn set(&self, before: Option<isize>) {
        *self.before.lock() = before;
        self.changed.notify_all();
    }
}

/// Let the command buffers of a device stop before their encoder of this number, from 0, until this is called with another;
/// with one below 0 they do not stop.
///
/// # Safety
/// `device` is a device.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_hold(device: Id, encoder: isize) {
    // SAFETY: the caller's promise.
    unsafe { Ref::<Device>::from_raw(device) }.hold.set((encoder >= 0).then_some(encoder));
}

/// How many command buffers of a device were committed so far.
///
/// # Safety
/// `device` is a device.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_committed(device: Id) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { Ref::<Device>::from_raw(device) }.hold.committed.load(Ordering::Relaxed)
}
