//! Fails to compile: for over slice.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    for v in x {
        y[i] += *v;
    }
}

fn main() {}
