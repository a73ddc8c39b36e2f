//! Fails to compile: asserts.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    assert!(x[i] > 0.0);
}

fn main() {}
