//! ggml's kernels: layers of models, maps, moves of elements, and quantized blocks.

pub mod layers;
pub mod maps;
pub mod moves;
pub mod quants;

use super::case::Case;

pub fn cases() -> Vec<Case> {
    [layers::cases(), maps::cases(), moves::cases(), quants::cases()].into_iter().flatten().collect()
}
