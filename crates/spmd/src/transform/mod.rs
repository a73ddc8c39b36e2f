//! Target-independent transformations of one thread's code.

pub(crate) mod bfloat_as_i16;
pub mod bounds;
pub(crate) mod converge_barriers;
pub(crate) mod fix_irreducible;
pub(crate) mod hoist_invariant_loads;
pub(crate) mod if_convert;
pub(crate) mod legalize_division;
pub(crate) mod lower_bfloat;
pub(crate) mod lower_disjoint;
pub(crate) mod lower_fast_math;
pub(crate) mod lower_half;
pub(crate) mod lower_intrinsics;
pub(crate) mod lower_logging;
pub(crate) mod lower_scale;
pub(crate) mod mem2reg;
pub(crate) mod promote_copies;
pub(crate) mod scalarize;
mod slot_values;
