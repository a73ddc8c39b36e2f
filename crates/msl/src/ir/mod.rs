//! Passes and checks over the unoptimized LLVM IR text of a kernel.

pub(crate) mod dynamic_initializers;
pub(crate) mod legalize;
pub(crate) mod recursion;
