//! Kernels of provers: arithmetic in finite fields, transforms over them, and hashes.

mod field;
mod ministark;
mod rescue;
mod risc0;

use super::case::Case;

pub fn cases() -> Vec<Case> {
    [ministark::cases(), rescue::cases(), risc0::cases()].into_iter().flatten().collect()
}
