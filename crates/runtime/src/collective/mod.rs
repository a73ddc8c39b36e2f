//! Collectives: operations in which several devices take part, in one process or in several.
//!
//! Each member of a [`Communicator`] has a thread, which runs its operations one after the other with an engine
//! ([`Member`](elinvar_driver::Member)). On the stream, an operation is a signal and a wait: it begins when the stream's preceding work has ended, and
//! the stream goes on when the operation has. So operations need no command of the drivers, and work with every device. An engine with a queue on the
//! device is given operations ahead: the signal and the end are promised, so that the device waits for both, and neither the thread nor the stream's host
//! side does. The operation is entered into the usage records of its buffers like work of a stream of its own.

mod communicator;
mod in_graph;
mod operation;
mod thread;
#[cfg(test)]
mod thread_tests;

pub use communicator::{Communicator, Transport};
pub(crate) use in_graph::{GraphCollective, PlannedCollective};
pub use operation::Operation;
