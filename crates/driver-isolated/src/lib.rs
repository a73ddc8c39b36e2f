//! Devices in worker processes of their own.
//!
//! [`device`] gives a device of the driver contract whose kernels run in another process. That process, the *worker*, owns the inner
//! device (here the CPU driver's), its threads and the machine code of kernels; this process, the *host*, compiles, keeps the
//! memory and the queues, and sends commands. A kernel that crashes, hangs or corrupts memory harms the worker alone: what was in
//! flight ends in `DeviceLost` with the cause, and the next submission has a new worker.
//!
//! | | where | how it is shared |
//! |---|---|---|
//! | memory of buffers | one file of the system's memory (`arena`) | mapped in both; kernels work in place |
//! | commands, completions | two rings (`pipe`) with futex wake-ups | serialized (`wire`), with numbers for memory, kernels, queues |
//! | machine code | compiled by the host, loaded by the worker | a bundle for each kernel and threadgroup size |
//! | events, waits, signals | the host (`queue`) | not at all: a submission is sent up to its next wait |
//!
//! # The worker program
//!
//! The program that becomes the worker is, in this order: [`Options::program`]; `$ELINVAR_WORKER`; the running program itself, if it has called
//! [`serve_if_asked`] at the start of `main`; `elinvar-worker` or `elinvar` beside the running program or in `$PATH`. It has to be of the same
//! version.
//!
//! # Trust
//!
//! The worker is not trusted: what it sends is checked, the files that it shares cannot be shortened, and nothing of the host but
//! the device's own buffers is mapped in it. It is confined (`confine`) before it takes any work. Linux only; elsewhere [`device`] is `Unsupported`.
#![warn(missing_docs)]

mod options;

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod confine;
#[cfg(target_os = "linux")]
mod device;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod free;
#[cfg(target_os = "linux")]
mod head;
#[cfg(target_os = "linux")]
mod inner;
#[cfg(target_os = "linux")]
mod library;
#[cfg(target_os = "linux")]
mod link;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod pipe;
#[cfg(target_os = "linux")]
mod process;
#[cfg(target_os = "linux")]
mod queue;
#[cfg(target_os = "linux")]
mod sync;
#[cfg(target_os = "linux")]
mod wire;
#[cfg(target_os = "linux")]
mod worker;

pub use options::Options;

#[cfg(target_os = "linux")]
pub use device::{Isolated, device};
#[cfg(target_os = "linux")]
pub use process::serve_if_asked;

#[cfg(not(target_os = "linux"))]
mod elsewhere {
    use std::sync::Arc;

    use elinvar_driver::{Device, Error, Result};

    use crate::Options;

    /// The processor as an isolated device.
    ///
    /// # Errors
    /// `Unsupported`: memory is shared as Linux does it.
    pub fn device(_options: &Options) -> Result<Arc<dyn Device>> {
        Err(Error::unsupported("isolated devices are supported on Linux only"))
    }

    /// Serves as a worker process, if this program was started as one: never, here.
    pub fn serve_if_asked() {}
}
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{device, serve_if_asked};
