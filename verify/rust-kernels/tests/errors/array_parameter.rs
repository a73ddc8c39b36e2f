//! Fails to compile: array parameter.

#[elinvar::kernel]
fn k(x: &mut [f32], a: [f32; 4], #[thread_position_in_grid] i: usize) {
    x[i] = a[0];
}

fn main() {}
