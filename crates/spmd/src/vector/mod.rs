//! The CPU back end: SPMD vectorization of one thread's code to a function over threadgroups.

pub(crate) mod barrier_context;
mod early_cse;
pub(crate) mod early_exit;
pub(crate) mod emit;
pub(crate) mod full_size;
pub(crate) mod gather_scatter;
pub(crate) mod iterations;
pub(crate) mod linearize;
pub(crate) mod matrix_product;
pub(crate) mod output;
pub(crate) mod pipeline;
pub(crate) mod private_counters;
pub(crate) mod prologue;
pub(crate) mod safepoints;
pub(crate) mod soa_private_arrays;
pub(crate) mod unroll_and_jam;
pub(crate) mod versions;
pub(crate) mod workgroup;
pub(crate) mod workgroup_tiling;
