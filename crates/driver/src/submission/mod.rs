//! The submission core: ordering, waits, failure, cancellation and completion of submissions, shared by all drivers.
//!
//! A queue issues commands in order and retires submissions in order, as a processor does with instructions. Between issue and
//! retirement, any number of operations may be in flight on the device. A driver implements [`Backend`]: how to begin a run of commands,
//! and how to detect its completion. The rest of the execution contract for queues is implemented here:
//!
//! - [`Command::Wait`](crate::Command::Wait): issue blocks until the event has reached its value, unless the device can wait for it itself.
//! - [`Command::Signal`](crate::Command::Signal) and [`Command::Timestamp`](crate::Command::Timestamp): take effect when everything issued
//!   before them has completed, or at the point that the device reports.
//! - Failure: a failed submission poisons all later ones, including new ones until [`Queue::acknowledge`](crate::Queue::acknowledge).
//! - Cancellation and stopping of submissions that have not begun. The backend handles those that are running.
//! - `done` is called exactly once, in order except for cancelled submissions, without a lock held, on a thread of the backend.
//!
//! | file | owns |
//! |---|---|
//! | `backend.rs` | [`Backend`], and the types of its arguments and results |
//! | `state.rs`, `state/` | the state machine: no locks, never blocks; unit-tested in `tests/submission/main.rs` |
//! | `queue.rs` | [`SubmissionQueue`]: the lock around it and the two roles, issue and retire; model-checked |
//! | `handle.rs` | [`QueueHandle`]: [`Queue`](crate::Queue) over a [`SubmissionQueue`] |

mod backend;
mod handle;
mod queue;
mod state;

pub use backend::{Backend, Completed, Deferred, Issue, Issued, Suspended, Waiting, last_signals};
pub use handle::QueueHandle;
pub use queue::{SubmissionQueue, Turn};
