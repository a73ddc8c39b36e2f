//! Kernels of tract: whole families, one kernel for each operation and type.

mod arrays;
mod binary;
mod layers;
mod unary;

use super::case::Case;

pub(super) use binary::for_types;

pub fn cases() -> Vec<Case> {
    [arrays::cases(), binary::cases(), layers::cases(), unary::cases()].into_iter().flatten().collect()
}
