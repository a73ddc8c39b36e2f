//! Passes and checks over the LLVM IR text of kernels.

pub(crate) mod address_spaces;
pub(crate) mod dynamic_initializers;
pub(crate) mod entries;
pub(crate) mod function_pointers;
pub(crate) mod inlining;
pub mod items;
pub(crate) mod legalize;
pub(crate) mod recursion;
