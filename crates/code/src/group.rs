//! Maximum threadgroup size of a kernel, shared by the back ends.

use elinvar_driver::{Dim3, Error, Result, Signature};

/// Maximum number of threads of a threadgroup: Metal's limit (Metal Feature Set Tables), and CUDA's for every compute capability (CUDA C++
/// Programming Guide, compute capabilities).
pub const MAX_THREADS_PER_THREADGROUP: u32 = 1024;

/// Maximum number of threads of the kernel's threadgroups, at least 1.
pub fn max_threads(signature: &Signature) -> u32 {
    let own_limit = signature.max_threads_per_threadgroup.unwrap_or(u32::MAX);
    own_limit.min(MAX_THREADS_PER_THREADGROUP)
}

/// Rejects a threadgroup that is empty or larger than [`max_threads`].
///
/// # Errors
/// `InvalidArgument` with the kernel's name, the size and the limit.
pub fn check_group(signature: &Signature, group: Dim3) -> Result<()> {
    let (Dim3 { x, y, z }, max) = (group, max_threads(signature));
    if (1..=u128::from(max)).contains(&group.volume()) {
        return Ok(());
    }
    let name = &signature.name;
    Err(Error::invalid(format!(
        "kernel `{name}` cannot have threadgroups of {x}x{y}x{z}: 1 to {max} threads are allowed"
    )))
}
