//! Fails to compile: f64 parameter.

#[elinvar::kernel]
fn k(x: &mut [f32], a: f64, #[thread_position_in_grid] i: usize) {
    x[i] = a as f32;
}

fn main() {}
