//! [`Tasks`]: a device's thread, for what may be done neither where a program submits nor in a callback of an event.
//!
//! It runs its tasks one after the other and ends with its device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};

use elinvar_driver::{Error, Result};
use objc2::rc::autoreleasepool;

type Task = Box<dyn FnOnce() + Send>;

pub(super) struct Tasks {
    sender: Sender<Task>,
}

impl Tasks {
    pub(super) fn start() -> Result<Self> {
        let (sender, tasks) = channel::<Task>();
        let run = move || {
            for task in tasks {
                // A panic has been reported by the hook, and nobody is left to tell.
                let _panic = catch_unwind(AssertUnwindSafe(|| autoreleasepool(|_| task())));
            }
        };
        let thread = std::thread::Builder::new().name("elinvar-metal".into()).spawn(run);
        thread
            .map_err(|error| Error::Environment(format!("starting the thread of a Metal device: {error}")))?;
        Ok(Self { sender })
    }

    pub(super) fn push(&self, task: impl FnOnce() + Send + 'static) {
        // The thread has the other end until all senders are gone.
        let _sent = self.sender.send(Box::new(task));
    }
}
