//! Fails to compile: two attributes.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] #[threads_per_grid] i: usize) {
    x[i] = 1.0;
}

fn main() {}
