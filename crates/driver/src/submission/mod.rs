//! The submission core: order, waits, failure, cancellation and the end of submissions, once for all drivers.
//!
//! A queue issues commands in order and retires submissions in order, as a processor does with instructions. In between, any number of
//! operations may be in flight on the device. A driver implements [`Backend`]: how a run of commands is begun, and how its end is
//! noticed. Everything else the execution contract says of a queue is done here:
//!
//! - [`Command::Wait`](crate::Command::Wait): issue blocks until the event has reached its value, unless the device can wait for it itself.
//! - [`Command::Signal`](crate::Command::Signal) and [`Command::Timestamp`](crate::Command::Timestamp): take effect once everything issued
//!   before them has completed, or where the device says.
//! - Failure: a submission that fails poisons all behind it, and those that are submitted until [`Queue::acknowledge`](crate::Queue::acknowledge).
//! - Cancel and stop of what has not begun; what runs is the backend's.
//! - `done` is called once, in order (cancelled submissions apart), without a lock held, on a thread of the backend.
//!
//! | file | owns |
//! |---|---|
//! | `backend.rs` | [`Backend`], and what it is given and answers |
//! | `state.rs`, `state/` | the state machine: no locks, no waits; tested by itself in `tests/submission.rs` |
//! | `queue.rs` | [`SubmissionQueue`]: the lock around it and the two roles, issue and retire; model-checked |
//! | `handle.rs` | [`QueueHandle`]: [`Queue`](crate::Queue) over a [`SubmissionQueue`] |

mod backend;
mod handle;
mod queue;
mod state;

pub use backend::{Backend, Completed, Deferred, Issue, Issued, Suspended, last_signals};
pub use handle::QueueHandle;
pub use queue::{SubmissionQueue, Turn};
