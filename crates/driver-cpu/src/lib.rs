//! Metal kernels on the CPU.
//!
//! A kernel becomes a function that runs whole threadgroups, specialized for the threadgroup size:
//! MSL → LLVM IR of one thread → LLVM IR of a threadgroup → machine code → shared object. `elinvar-native` builds the object; this crate loads
//! it (`loader`) and runs it on a pool of worker threads.
//!
//! Path of a launch: [`Queue::submit`](elinvar_driver::Queue::submit) appends the commands to the queue (`queue`). A worker takes the
//! queue's turn (`pool`) and executes each command (`encode`). The threadgroups of a dispatch run on that worker (`job`); if there are
//! enough, other workers claim or steal ranges of them (`ranges`). Each worker calls the compiled function (`loader`).
//!
//! | memory | location |
//! |---|---|
//! | device memory, every storage mode | pages of the process (`memory`) |
//! | threadgroup memory, values that live across barriers | per-worker scratch memory (`scratch`), or the worker's stack; with grid barriers a block for each threadgroup (`cooperative`) |
//!
//! [`Code`] can also be used to call threadgroup functions directly, as the differential fuzzer does.
//!
//! Linux and macOS. Not done by this crate: validation of launches against the kernel's signature (done by the runtime), stopping a started
//! threadgroup outside of loops, and isolation of the process from a kernel's wild writes. A kernel that crashes the process is
//! reported (`crash`).
#![warn(missing_docs)]

mod batch;
mod commands;
mod cooperative;
mod cores;
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
mod places;
mod pool;
mod product;
mod queue;
mod ranges;
mod resident;
mod scratch;
mod sensors;
mod stop;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use elinvar_native::SizeBound;

pub use device::{CpuDriver, available_memory, caps, driver};
pub use guest::{Guest, ToRun};
pub use loader::{Code, Launch, load_without_files};
pub use sensors::HostSensors;
