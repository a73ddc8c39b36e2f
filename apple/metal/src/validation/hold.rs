//! [`Hold`]: blocks the command buffers of a device before an encoder until a test releases them, which makes interleavings deterministic. Also
//! counts command buffers.

use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_objc::{Argument, Id, Ref};
use parking_lot::{Condvar, Mutex};

use crate::device::Device;

/// The point at which a device's command buffers block.
#[derive(Default)]
pub struct Hold {
    /// Before the encoder with this index, from 0.
    before: Mutex<Option<isize>>,
    changed: Condvar,
    committed: AtomicU64,
}

impl Hold {
    /// A command buffer is committed.
    pub fn count(&self) {
        self.committed.fetch_add(1, Ordering::Relaxed);
    }

    /// A command buffer has reached its encoder with this index.
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

/// Makes the command buffers of a device block before their encoder with this index, from 0, until the next call; a negative index
/// releases them.
///
/// # Safety
/// `device` is a device.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_hold(device: Id, encoder: isize) {
    // SAFETY: the caller's promise.
    unsafe { Ref::<Device>::from_raw(device) }.hold.set((encoder >= 0).then_some(encoder));
}

/// The number of command buffers of a device that have been committed.
///
/// # Safety
/// `device` is a device.
#[unsafe(no_mangle)]
unsafe extern "C" fn elinvar_apple_committed(device: Id) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { Ref::<Device>::from_raw(device) }.hold.committed.load(Ordering::Relaxed)
}
