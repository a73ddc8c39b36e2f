//! Fails to compile: reserved name.

#[elinvar::kernel]
fn half(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    x[i] = 1.0;
}

fn main() {}
