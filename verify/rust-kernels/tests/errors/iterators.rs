//! Fails to compile: iterators.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    let mut sum = 0.0f32;
    for v in x.iter() {
        sum += *v;
    }
    y[i] = sum;
}

fn main() {}
