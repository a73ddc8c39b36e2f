//! Captures the launches of a program into a file, and replays them on any device.
//!
//! A [`CapturingDevice`] wraps a driver's device. Each launch that is submitted to it is written to a [`CaptureFile`]: the source and options of its kernel, its
//! sizes and arguments, and the contents of its memory before and after it ran. [`Capture`] reads the file and replays each launch from the contents before it,
//! so that a difference is found at the launch that makes it, and does not spread to those behind.
#![warn(missing_docs)]

mod addresses;
mod compare;
mod device;
mod format;
mod includes;
mod queue;
mod read;
mod replay;
mod write;

pub use compare::Difference;
pub use device::CapturingDevice;
pub use read::{Capture, Captured, NotCaptured};
pub use replay::{Outcome, Replay};
pub use write::CaptureFile;
