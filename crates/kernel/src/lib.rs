//! What kernels written in Rust use, with its meaning on the host: vectors, Metal's functions, barriers, simdgroup functions.
//!
//! `#[elinvar::kernel]` translates calls of these to Metal Shading Language; the same function, compiled for the host, calls what is here.
//! [`host`] runs all threads of a grid: one after another, or, for kernels that wait for other threads, as one thread of the operating
//! system each, of which one at a time runs.
#![allow(unsafe_code)] // layouts for `Pod`, and memory that threads of a threadgroup share

mod constant;
mod exchange;
mod functions;
pub mod host;
mod number;
mod position;
mod shared;
mod vectors;

pub use constant::Constant;
pub use exchange::{
    simd_all, simd_and, simd_any, simd_broadcast, simd_broadcast_first, simd_max, simd_min, simd_or,
    simd_prefix_exclusive_sum, simd_prefix_inclusive_sum, simd_product, simd_shuffle, simd_shuffle_down,
    simd_shuffle_up, simd_shuffle_xor, simd_sum, simd_xor, simdgroup_barrier, threadgroup_barrier,
};
pub use functions::{cross, distance, dot, length, mix, mulhi, normalize, rsqrt, saturate, smoothstep, step};
pub use number::{KernelType, Number};
pub use position::Position;
#[doc(hidden)]
pub use shared::Owned;
pub use shared::Shared;
pub use vectors::{Lane, Vec2, Vec3, Vec4};

pub use bytemuck;
pub use half::f16;
pub use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// Prints a line: on devices to Metal's log, on the host to standard output.
///
/// The format is Rust's with `{}`, `{name}`, `{:x}`, `{:X}` and `{:.N}`. Values are numbers.
#[macro_export]
macro_rules! printf {
    ($($format:tt)*) => {
        ::std::println!($($format)*)
    };
}

/// Which memory a barrier orders, as in Metal.
#[allow(non_upper_case_globals)] // Metal's names
pub mod mem_flags {
    /// Flags of a barrier.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MemFlags(());

    /// No memory.
    pub const mem_none: MemFlags = MemFlags(());
    /// Buffers.
    pub const mem_device: MemFlags = MemFlags(());
    /// Threadgroup memory.
    pub const mem_threadgroup: MemFlags = MemFlags(());
}
