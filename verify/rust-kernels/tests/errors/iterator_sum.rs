//! Fails to compile: iterator sum.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = x.iter().sum();
}

fn main() {}
