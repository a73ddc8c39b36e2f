//! What the compilers behind the front end share, for the CPU and for NVIDIA GPUs: a kernel's code read and described, errors and
//! faults in the user's words, and bundles of what was compiled ahead.
//!
//! It compiles nothing and knows no device.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod bounds;
mod bundle;
mod kept;
mod origin;

pub use bounds::Bounds;
pub use bundle::{Bundle, Declared, kernel_key, source_key};
pub use kept::{read_checks, write_checks};
pub use origin::{Origin, given, least_bytes};

use elinvar_cache::Cache;
use elinvar_driver::PerProcess;

/// The version that a cache for compiled kernels is opened with: that of this build of the compilers.
pub const COMPILER: &str = env!("ELINVAR_COMPILER");

/// The user's cache, opened when it is first asked for.
pub fn user_cache() -> &'static Cache {
    static CACHE: PerProcess<Cache> = PerProcess::new(|| Cache::user(COMPILER));
    CACHE.get()
}
