//! Fails to compile: returns.

#[elinvar::kernel]
fn k(x: &[f32], #[thread_position_in_grid] i: usize) -> f32 {
    x[i]
}

fn main() {}
