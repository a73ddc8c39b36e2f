//! Collectives: operations in which several devices take part, in one process or in several.
//!
//! Each member of a [`Communicator`] has a thread, which runs its operations one after the other with an engine
//! ([`Member`](elinvar_driver::Member)). On the stream, an operation is a signal and a wait: the thread begins when the stream's preceding work has ended, and
//! the stream goes on when the operation has. So operations need no command of the drivers, and work with every device. The operation is entered into the
//! usage records of its buffers like work of a stream of its own.

mod communicator;
mod in_graph;
mod operation;
mod thread;

pub use communicator::{Communicator, Transport};
pub(crate) use in_graph::{GraphCollective, PlannedCollective};
pub use operation::Operation;
