//! Runs Metal kernels on NVIDIA GPUs, through the CUDA driver API.
//!
//! A kernel becomes PTX (`elinvar-ptx`), which the driver compiles for its GPU when it is loaded. Neither building nor running
//! needs CUDA's toolkit: the driver's library is looked for at run time, and a machine without it has no such device.
//!
//! The way of a launch: [`Queue::submit`](elinvar_driver::Queue::submit) gives the commands to a stream, ahead of their turn
//! as far as they may be (`queue`); each is put at its end (`encode`), a launch with its parameters packed (`function`); a
//! thread of the device (`poller`) looks how far the stream has come, by events in it (`context`), and the submission core ends what has
//! ended.
//!
//! | memory | where it is |
//! |---|---|
//! | device memory, private and managed | the device's (`memory`) |
//! | shared memory, and what the host sees of managed memory | pinned pages |
//! | threadgroup memory | CUDA's shared memory, static and dynamic |
//! | `constant T&` bound to bytes | the launch's parameters |
//! | other arguments bound to bytes | copied ahead of the launch (`staging`) |
//!
//! # When a kernel goes wrong
//!
//! A kernel that reaches an address outside of all memory ends the context: the driver answers the same error to everything
//! from then on, in this process. All work in flight ends in an error, the submission of the kernel in a
//! [`Fault`](elinvar_driver::Fault) that names it, and the device takes no more; [`Device::reset`](elinvar_driver::Device::reset)
//! says that only a new process helps. A kernel with bounds checks notes a fault in a record instead, and only its queue fails.
//!
//! What this crate does not do: check a launch against the kernel's signature (the runtime does), stop a kernel that runs.
#![warn(missing_docs)]

#[cfg(target_os = "linux")]
mod apart;
mod api;
mod caps;
mod clock;
mod context;
mod device;
mod encode;
mod failure;
mod function;
mod library;
mod memory;
mod peers;
mod pipeline;
mod poller;
mod queue;
mod replay;
mod shared;
mod staging;
mod temperature;
mod transfer;

#[cfg(target_os = "linux")]
pub use apart::{DeviceBlock, Gpu, import, reserve};
pub use device::{CudaDriver, driver};
pub use pipeline::expect_group;
