//! Fails to compile: reference to value.

#[elinvar::kernel]
fn k(x: &mut [f32], a: &f32, #[thread_position_in_grid] i: usize) {
    x[i] = *a;
}

fn main() {}
