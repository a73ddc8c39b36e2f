//! [`Fate`]: injected faults and state changes of the simulated device, as seen by its queues, libraries and memory.

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Result};

/// An operation into which a fault can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// [`Device::allocate`].
    Allocate,
    /// [`Device::compile`].
    Compile,
    /// [`Device::queue`].
    Queue,
    /// [`Queue::submit`], which then returns the error.
    Submit,
    /// Execution of a submission, which then ends in the error.
    Execute,
    /// [`Library::pipeline`].
    Pipeline,
    /// [`Memory::read`].
    Read,
    /// [`Device::reset`].
    Reset,
    /// [`Device::use_units`].
    Units,
}

/// Hook that a test runs within an operation.
type Interruption = Box<dyn FnOnce() + Send>;

/// Injected faults and state of the device.
#[derive(Default)]
pub(super) struct Fate {
    /// Queue of outcomes for each kind of operation: an error, or success.
    failures: Mutex<Vec<(Op, Option<Error>)>>,
    interruptions: Mutex<Vec<(Op, Interruption)>>,
    lost: Mutex<Option<Error>>,
}

impl Fate {
    /// Lets the next `count` operations succeed.
    pub(super) fn pass(&self, op: Op, count: usize) {
        self.failures.lock().extend(std::iter::repeat_n((op, None), count));
    }

    pub(super) fn fail(&self, op: Op, error: Error) {
        self.failures.lock().push((op, Some(error)));
    }

    pub(super) fn within_next(&self, op: Op, then: Interruption) {
        self.interruptions.lock().push((op, then));
    }

    pub(super) fn lose(&self, cause: &Error) {
        *self.lost.lock() = Some(cause.clone());
    }

    pub(super) fn restore(&self) {
        *self.lost.lock() = None;
    }

    /// The injected error of this operation, consumed by the call; or the loss of the device.
    pub(super) fn of(&self, op: Op) -> Result<()> {
        self.expect_present()?;
        self.injected(op)
    }

    /// As [`Fate::of`], but ignores the loss of the device.
    pub(super) fn injected(&self, op: Op) -> Result<()> {
        if op != Op::Reset {
            self.interrupt(op);
        }
        let mut failures = self.failures.lock();
        let next = failures.iter().position(|(failing, _)| *failing == op);
        next.and_then(|at| failures.remove(at).1).map_or(Ok(()), Err)
    }

    /// Runs the hook of this operation.
    pub(super) fn interrupt(&self, op: Op) {
        let mut interruptions = self.interruptions.lock();
        let next = interruptions.iter().position(|(within, _)| *within == op);
        let then = next.map(|at| interruptions.remove(at).1);
        drop(interruptions);
        if let Some(then) = then {
            then();
        }
    }

    pub(super) fn expect_present(&self) -> Result<()> {
        self.lost.lock().clone().map_or(Ok(()), Err)
    }
}
