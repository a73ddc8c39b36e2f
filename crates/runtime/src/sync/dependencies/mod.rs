//! Deadlock detection: rejects waits that would deadlock, before they block.
//!
//! The table has the waits and signals of all pending submissions, by stream, in order ([`table`]). A submission with waits or
//! signals is entered when it is submitted. A wait for a value that no recorded signal reaches may be for the host or for later
//! work, and is accepted. If a stream would block forever, the submission is rejected with the cycle. The table is independent of
//! memory and runs nothing.

mod order;
mod play;
mod search;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Error, Event, PerProcess, Result};
use table::Table;

static TABLE: PerProcess<Mutex<Table>> = PerProcess::new(|| Mutex::new(Table::new()));
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Maximum number of waits of a cycle that a message names.
const NAMED: usize = 8;

/// A wait or signal of a submission.
#[derive(Clone)]
pub(crate) struct EventOp {
    pub(crate) event: Arc<dyn Event>,
    /// Number of the event in messages.
    pub(crate) id: u64,
    /// Value of the driver's event, and value in messages.
    pub(crate) value: u64,
    pub(crate) shown: u64,
    pub(crate) signals: bool,
}

/// A submission in the table; dropping it removes it.
pub(crate) struct Entered(u64);

impl Drop for Entered {
    fn drop(&mut self) {
        let held = TABLE.get().lock().remove(self.0);
        drop(held); // events are dropped without the lock
    }
}

/// Enters a submission behind those of its stream.
///
/// # Errors
/// `InvalidArgument` with the cycle that it would close.
pub(crate) fn enter(stream: u64, ops: Vec<EventOp>) -> Result<Entered> {
    let submission = NEXT.fetch_add(1, Ordering::Relaxed);
    let entered = TABLE.get().lock().enter(submission, stream, ops);
    match entered {
        Ok(()) => Ok(Entered(submission)),
        Err((cycle, _held)) => Err(Error::invalid(cycle)),
    }
}

/// Message of a cycle of waits, each of a stream for a signal behind the next wait.
fn words<'s>(cycle: impl ExactSizeIterator<Item = (u64, &'s EventOp)>) -> String {
    let more = cycle.len().saturating_sub(NAMED);
    let links: Vec<String> = cycle
        .take(NAMED)
        .map(|(stream, wait)| format!("stream {stream} waits for event {} to reach {}", wait.id, wait.shown))
        .collect();
    let others = match more {
        0 => String::new(),
        more => format!(", which is signaled after {more} more waits of this kind"),
    };
    format!(
        "streams would deadlock: {}{others}, which is signaled after that wait",
        links.join(", which is signaled after ")
    )
}

impl EventOp {
    /// The event and the value.
    fn point(&self) -> (u64, u64) {
        (self.id, self.value)
    }
}
