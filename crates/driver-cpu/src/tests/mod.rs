//! The execution contract, tested on the whole driver with kernels in the form of compiler output.

mod batch;
#[cfg(target_arch = "x86_64")]
mod conversions;
mod dispatch;
mod events;
mod jobs;
mod queue;
mod stop;
mod transfer;
