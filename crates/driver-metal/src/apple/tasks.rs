//! [`Tasks`]: a device's serial dispatch queue, for work that may run neither on a submitting thread nor in an event's callback.
//!
//! Tasks run one after the other. Pending tasks still run after the device was dropped.

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
            // The panic hook has reported a panic, and there is no caller. Unwinding from here would abort the process.
            let _panic = catch_unwind(AssertUnwindSafe(|| autoreleasepool(|_| task())));
        });
    }
}
