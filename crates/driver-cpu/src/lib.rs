//! Runs Metal kernels on the processor.
//!
//! A kernel becomes a function that runs whole threadgroups, specialized for the threadgroup's size:
//! MSL → LLVM IR of one thread → LLVM IR of a threadgroup → machine code → shared object, loaded into
//! the process. `elinvar-native` makes the object; this crate loads it (`loader`) and runs it on a pool of worker threads.
//!
//! The way of a launch: [`Queue::submit`](elinvar_driver::Queue::submit) puts the commands in the queue's list
//! (`queue`); a worker takes the queue's turn (`pool`) and encodes each command (`encode`); a
//! dispatch's threadgroups run on that worker (`job`) and, if there is enough to do, on others that take or steal
//! ranges of them (`ranges`); each calls the compiled function (`loader`).
//!
//! | memory | where it is |
//! |---|---|
//! | device memory, every storage mode | pages of the process (`memory`) |
//! | threadgroup memory, values kept across barriers | the worker's own (`scratch`), or its stack |
//!
//! [`Code`] calls threadgroup functions from elsewhere, such as those of the differential fuzzer.
//!
//! Linux and macOS. What this crate does not do: check a launch against the kernel's signature (the
//! runtime does), stop a threadgroup that has begun but in its loops, or keep a kernel's wild writes from the process. A
//! kernel that crashes the process is named before (`crash`).
#![warn(missing_docs)]

mod crash;
mod device;
mod encode;
mod float_state;
mod guest;
mod host;
#[cfg(target_os = "linux")]
mod image;
mod job;
mod kernel;
mod library;
mod limits;
mod loader;
mod memory;
mod pool;
mod queue;
mod ranges;
mod scratch;
mod stop;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use device::{CpuDriver, available_memory, caps, driver};
pub use guest::{Guest, ToRun};
pub use loader::{Code, Launch, load_without_files};
