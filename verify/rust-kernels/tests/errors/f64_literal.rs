//! Fails to compile: f64 literal.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    let a = 2.0;
    if a > 1.0 {
        x[i] = 1.0;
    }
}

fn main() {}
