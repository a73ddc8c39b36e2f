//! The primitives that the front end's headers call, by name.
//!
//! They are the whole interface between MSL's library and the compilers behind it: what a thread can
//! ask about its place, and how it meets other threads.

/// What a thread can ask for: its position, a size, a part of its launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Position {
    /// `thread_position_in_threadgroup`.
    Thread,
    /// `threadgroup_position_in_grid`.
    Group,
    /// `threads_per_threadgroup`: smaller in the groups at the grid's far edges.
    GroupSize,
    /// `dispatch_threads_per_threadgroup`: the size of a full group.
    FullGroupSize,
    /// `threads_per_grid`.
    Grid,
    /// `threadgroups_per_grid`.
    Groups,
    /// Size in bytes of an argument's memory, an i64; the dimension is the argument's position. Only
    /// bounds checks ask for it.
    ArgumentBytes,
    /// Address of the launch's fault record. Only bounds checks ask for it.
    FaultRecord,
}

impl Position {
    pub(crate) const ARGUMENT_BYTES: &str = "__elinvar_argument_bytes";
    pub(crate) const FAULT_RECORD: &str = "__elinvar_fault_record";

    /// The primitive of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "__elinvar_thread_position_in_threadgroup" => Self::Thread,
            "__elinvar_threadgroup_position_in_grid" => Self::Group,
            "__elinvar_threads_per_threadgroup" => Self::GroupSize,
            "__elinvar_dispatch_threads_per_threadgroup" => Self::FullGroupSize,
            "__elinvar_threads_per_grid" => Self::Grid,
            "__elinvar_threadgroups_per_grid" => Self::Groups,
            Self::ARGUMENT_BYTES => Self::ArgumentBytes,
            Self::FAULT_RECORD => Self::FaultRecord,
            _ => return None,
        })
    }
}

/// `void (uint mem_flags)`: all threads of the threadgroup wait for one another.
pub const THREADGROUP_BARRIER: &str = "__elinvar_threadgroup_barrier";

/// `void (uint mem_flags)`: the threads of a simdgroup wait for one another.
pub const SIMDGROUP_BARRIER: &str = "__elinvar_simdgroup_barrier";

/// What the names of functions across a simdgroup or quadgroup begin with; the rest is the function and, where it
/// has one, the type: `__elinvar_simd_sum_f32`, `__elinvar_quad_broadcast_u16`, `__elinvar_simd_ballot`.
const EXCHANGE_PREFIXES: [&str; 2] = ["__elinvar_simd_", "__elinvar_quad_"];

/// The types that end such a name.
const TYPES: [&str; 12] = ["i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f16", "bf16", "f32", "b8"];

/// The MSL name of a function across a simdgroup or quadgroup: `simd_sum` for `__elinvar_simd_sum_f32`.
pub fn exchange(name: &str) -> Option<&str> {
    EXCHANGE_PREFIXES.iter().find(|p| name.starts_with(*p))?;
    let msl = name.strip_prefix(PREFIX)?;
    Some(match msl.rsplit_once('_') {
        Some((function, ty)) if TYPES.contains(&ty) => function,
        _ => msl,
    })
}

/// Threads of a simdgroup.
pub const SIMDGROUP: u32 = 32;

/// What every primitive's name begins with.
pub const PREFIX: &str = "__elinvar_";

/// Bits of `mem_flags` that order memory beyond the threadgroup's own: device and texture.
pub const DEVICE_FLAGS: u128 = 1 | 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exchanges_are_named_as_in_msl() {
        assert_eq!(exchange("__elinvar_simd_sum_f32"), Some("simd_sum"));
        assert_eq!(exchange("__elinvar_quad_prefix_inclusive_sum_bf16"), Some("quad_prefix_inclusive_sum"));
        assert_eq!(exchange("__elinvar_simd_is_first"), Some("simd_is_first"));
        assert_eq!(exchange("__elinvar_simdgroup_barrier"), None);
    }
}
