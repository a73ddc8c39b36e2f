//! Fails to compile: unmarked function.

fn helper(x: f32) -> f32 {
    x + 1.0
}

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = helper(y[i]);
}

fn main() {}
