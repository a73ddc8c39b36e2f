//! [`Tasks`]: a device's serial dispatch queue, for what may be done neither where a program submits nor in a callback of an
//! event.
//!
//! It runs its tasks one after the other. What is on it when the device goes is still run.

use std::panic::{AssertUnwindSafe, catch_unwind};

use dispatch2::{DispatchQueue, DispatchQueueAttr, DispatchRetained};
use objc2::rc::autoreleasepool;

pub(super) struct Tasks(DispatchRetained<DispatchQueue>);

impl Tasks {
    pub(super) fn new() -> Self {
        Self(DispatchQueue::new("elinvar-metal", DispatchQueueAttr::SERIAL))
    }

    pub(super) fn push(&self, task: impl FnOnce() + Send + 'static) {
        self.0.exec_async(|| {
            // A panic has been reported by the hook, and nobody is left to tell. What unwinds from here would end the process.
            let _panic = catch_unwind(AssertUnwindSafe(|| autoreleasepool(|_| task())));
        });
    }
}
