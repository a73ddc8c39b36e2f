//! Helpers shared by analyses, transformations and both back ends: building instructions, address arithmetic, classification of
//! calls, names.

pub(crate) mod builder;
pub(crate) mod calls;
pub(crate) mod constants;
pub(crate) mod declarations;
pub(crate) mod demangle;
pub(crate) mod gep;
pub(crate) mod ir;
pub(crate) mod vector_intrinsics;
