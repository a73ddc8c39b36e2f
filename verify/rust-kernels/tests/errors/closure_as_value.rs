//! Fails to compile: closure as value.

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    let f = |x: f32| x + 1.0;
    let g = f;
    y[i] = g(y[i]);
}

fn main() {}
