//! [`PersistentKernel`]: a kernel that stays on the device and takes items from a ring; [`Ticket`], the completion of an item; and
//! [`MessageQueue`], through which resident kernels pass messages.
//!
//! A resident kernel is one long launch on a queue of its own ([`elinvar_driver::Device::resident_queue`]). The host and the kernel share a
//! [ring](ring) of slots. All of the host's side is behind one lock, except the words through which it sees completions.

mod message_queue;
mod persistent_kernel;
mod ring;
mod ticket;
mod watch;

pub use message_queue::MessageQueue;
pub use persistent_kernel::{PersistentKernel, Residency};
pub use ticket::Ticket;
