//! Fails to compile: a math mode that there is not.

#[elinvar::kernel(math = "precise")]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    x[i] = 1.0;
}

fn main() {}
