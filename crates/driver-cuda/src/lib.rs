//! Metal kernels on NVIDIA GPUs, through the CUDA driver API.
//!
//! A kernel is compiled to PTX (`elinvar-ptx`), which the driver compiles for its GPU on load. The CUDA toolkit is needed neither for building
//! nor for running: the driver library is loaded at run time, and a machine without it has no such device.
//!
//! Path of a launch: [`Queue::submit`](elinvar_driver::Queue::submit) passes commands to a stream, ahead of their execution where possible
//! (`queue`). Each command is appended to the stream (`encode`), a launch with its packed parameters (`function`). The poller thread
//! (`poller`) follows the stream's progress by events (`context`), and the submission core ends completed submissions.
//!
//! | memory | location |
//! |---|---|
//! | device memory, private and managed | the device's (`memory`) |
//! | shared memory, and the host's copy of managed memory | pinned pages |
//! | threadgroup memory | CUDA's shared memory, static and dynamic |
//! | `constant T&` bound to bytes | kernel parameters |
//! | other arguments bound to bytes | copied ahead of the launch (`staging`) |
//!
//! # Kernel errors
//!
//! An invalid memory access destroys the context: from then on, every call in this process returns the same error. All work in
//! flight ends in an error, the faulting kernel's submission in a [`Fault`](elinvar_driver::Fault) that names it, and the device accepts no
//! more work. [`Device::reset`](elinvar_driver::Device::reset) returns an error, because only a new process can use the device again. A
//! kernel with bounds checks records a fault instead, and only its queue fails.
//!
//! Not done by this crate: validation of launches against the kernel's signature (done by the runtime), and stopping running kernels.
#![warn(missing_docs)]

#[cfg(target_os = "linux")]
mod apart;
mod api;
mod caps;
mod clock;
mod commands;
mod context;
mod cooperative;
mod device;
mod encode;
mod failure;
mod function;
mod libraries;
mod library;
mod log;
mod memory;
mod nvml;
mod nvtx;
mod peers;
mod pipeline;
mod poller;
mod queue;
mod replay;
mod shared;
mod staging;
mod transfer;

#[cfg(target_os = "linux")]
pub use apart::{DeviceBlock, Gpu, import, reserve};
pub use device::{CudaDriver, driver};
pub use pipeline::expect_group;
