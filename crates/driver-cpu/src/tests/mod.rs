//! The execution contract, shown on the whole driver with kernels written as the compiler's output.

#[cfg(target_arch = "x86_64")]
mod conversions;
mod dispatch;
mod events;
mod jobs;
mod queue;
mod stop;
mod transfer;
