//! Passes and checks over the LLVM IR text that clang writes for a kernel, before it is optimized.

pub(crate) mod dynamic_initializers;
pub(crate) mod legalize;
pub(crate) mod recursion;
