//! What streams wait for one another for, so that a circle is refused before it stands still.
//!
//! The table has the waits and signals of all submissions in flight, by stream, in order ([`table`]). A submission that has
//! any enters when it is recorded. A wait for a value to which no recorded signal raises the event may be for the
//! host or for what is yet to be recorded, and passes. If a stream would get stuck all the same, the submission is refused
//! with the circle. The table knows no memory and runs nothing.

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

/// Waits of a circle that a message names.
const NAMED: usize = 8;

/// A wait or signal of a submission.
#[derive(Clone)]
pub(crate) struct Step {
    pub(crate) event: Arc<dyn Event>,
    /// The event as messages name it.
    pub(crate) id: u64,
    /// The event's own value, and what the program calls it.
    pub(crate) value: u64,
    pub(crate) shown: u64,
    pub(crate) signals: bool,
}

/// A submission in the table; dropping it takes it out.
pub(crate) struct Entered(u64);

impl Drop for Entered {
    fn drop(&mut self) {
        let held = TABLE.get().lock().remove(self.0);
        drop(held); // events are dropped without the lock
    }
}

/// Enter a submission behind those that its stream has.
///
/// # Errors
/// `InvalidArgument` with the circle that it would close.
pub(crate) fn enter(stream: u64, steps: Vec<Step>) -> Result<Entered> {
    let submission = NEXT.fetch_add(1, Ordering::Relaxed);
    let entered = TABLE.get().lock().enter(submission, stream, steps);
    match entered {
        Ok(()) => Ok(Entered(submission)),
        Err((circle, _held)) => Err(Error::invalid(circle)),
    }
}

/// A circle of waits, each of a stream for a signal behind the next wait, in words.
fn words<'s>(circle: impl ExactSizeIterator<Item = (u64, &'s Step)>) -> String {
    let more = circle.len().saturating_sub(NAMED);
    let links: Vec<String> = circle
        .take(NAMED)
        .map(|(stream, wait)| format!("stream {stream} waits for event {} to reach {}", wait.id, wait.shown))
        .collect();
    let others = match more {
        0 => String::new(),
        more => format!(", which is raised after {more} more waits of this kind"),
    };
    format!(
        "streams would wait for one another: {}{others}, which is raised behind that wait",
        links.join(", which is raised after ")
    )
}

impl Step {
    /// The event and the value.
    fn point(&self) -> (u64, u64) {
        (self.id, self.value)
    }
}
