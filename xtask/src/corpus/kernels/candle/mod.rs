//! candle's kernels: element-wise operations, indexing, convolution and random numbers.

mod binary;
mod conv;
mod index;
mod random;
pub mod unary;

use super::case::Case;

pub fn cases() -> Vec<Case> {
    [binary::cases(), conv::cases(), index::cases(), random::cases(), unary::cases()]
        .into_iter()
        .flatten()
        .collect()
}
