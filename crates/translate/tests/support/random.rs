//! Contents of the cases' memory.

/// Integers without a pattern.
pub fn words(count: usize, seed: u32) -> Vec<u32> {
    let mut state = u64::from(seed) * 0x9e37_79b9 + 12345;
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        })
        .collect()
}
