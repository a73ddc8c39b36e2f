//! Fails to compile: usize value.

#[elinvar::kernel]
fn k(x: &mut [f32], n: usize, #[thread_position_in_grid] i: usize) {
    x[i] = n as f32;
}

fn main() {}
