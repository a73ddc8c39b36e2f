//! Fails to compile: unknown attribute.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position] i: usize) {
    x[i] = 1.0;
}

fn main() {}
