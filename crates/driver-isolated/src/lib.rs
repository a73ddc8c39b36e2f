//! Devices in separate worker processes.
//!
//! [`device`] returns a device of the driver contract whose kernels run in another process. That process, the *worker*, owns the inner device
//! (of the CPU or the CUDA driver), its threads and the kernels' machine code. This process, the *host*, compiles, owns the memory and the
//! queues, and sends commands. A kernel that crashes, hangs or corrupts memory affects only the worker: work in flight ends in `DeviceLost`
//! with the cause, and the next submission starts a new worker.
//!
//! | | location | sharing |
//! |---|---|---|
//! | buffer memory | one memory file (`arena`) | mapped in both processes; kernels work in place |
//! | commands, completions | two rings (`pipe`) with futex wake-ups | serialized (`wire`), with numbers for memory, kernels, queues |
//! | machine code | compiled by the host, loaded by the worker | a bundle for each kernel and threadgroup size |
//! | events, waits, signals | the host (`queue`) | not shared: a submission is sent up to its next wait |
//!
//! # The worker program
//!
//! The worker program is the first of: [`Options::program`]; `$ELINVAR_WORKER`; the running program, if it has called [`serve_if_asked`] at the
//! start of `main`; `elinvar-worker` or `elinvar` in the folder of the running program or in `$PATH`. It must have the same version as the host.
//!
//! # Trust
//!
//! The worker is not trusted: its messages are validated, shared files cannot be truncated, and of the host's memory only the device's
//! buffers are mapped in it. It is confined (`confine`) before it accepts work. Linux only; on other systems [`device`] is `Unsupported`.
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

    /// The CPU as an isolated device.
    ///
    /// # Errors
    /// `Unsupported`: isolated devices require Linux.
    pub fn device(_options: &Options) -> Result<Arc<dyn Device>> {
        Err(Error::unsupported("isolated devices are supported on Linux only"))
    }

    /// Serves as a worker process, if this program was started as one, which does not happen on this system.
    pub fn serve_if_asked() {}
}
#[cfg(not(target_os = "linux"))]
pub use elsewhere::{device, serve_if_asked};
