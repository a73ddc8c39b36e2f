//! Shared by the back ends for CPUs (`elinvar-native`) and NVIDIA GPUs (`elinvar-ptx`): parsing and describing a kernel's code,
//! errors and faults with source locations, and bundles.
//!
//! It compiles nothing and is independent of devices.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bounds;
mod bundle;
mod group;
mod logs;
mod origin;
mod program;

pub use bounds::Bounds;
pub use bundle::{Bundle, Variant, canonical, expect_kernel, kernel_key};
pub use elinvar_msl::Declared;
pub use group::{MAX_THREADS_PER_THREADGROUP, check_group, max_threads};
pub use logs::log_sites;
pub use origin::{Origin, given, is_invariant, least_bytes};
pub use program::{Accepted, Program, Rejected, Thread, Verdict, check_sizes};

use elinvar_cache::Cache;
use elinvar_driver::PerProcess;

/// Version of caches for compiled kernels: identifies this build of the compilers.
pub const COMPILER: &str = env!("ELINVAR_COMPILER");

/// The user's cache, opened on first use.
pub fn user_cache() -> &'static Cache {
    static CACHE: PerProcess<Cache> = PerProcess::new(|| Cache::user(COMPILER));
    CACHE.get()
}
