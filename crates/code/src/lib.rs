//! What the compilers behind the front end share, for CPUs (`elinvar-native`) and for NVIDIA GPUs (`elinvar-ptx`): a kernel's code read
//! and described, errors and faults in the user's words, and bundles of what was compiled ahead.
//!
//! It compiles nothing and knows no device.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bounds;
mod bundle;
mod group;
mod origin;
mod program;

pub use bounds::Bounds;
pub use bundle::{Bundle, kernel_key};
pub use elinvar_msl::Declared;
pub use group::{MAX_THREADS_PER_THREADGROUP, check_group, max_threads};
pub use origin::{Origin, given, is_invariant, least_bytes};
pub use program::{Program, Thread};

use elinvar_cache::Cache;
use elinvar_driver::PerProcess;

/// The version that a cache for compiled kernels is opened with: that of this build of the compilers.
pub const COMPILER: &str = env!("ELINVAR_COMPILER");

/// The user's cache, opened when it is first asked for.
pub fn user_cache() -> &'static Cache {
    static CACHE: PerProcess<Cache> = PerProcess::new(|| Cache::user(COMPILER));
    CACHE.get()
}
