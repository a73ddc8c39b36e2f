//! Fails to compile: function constant usize.

#[elinvar::kernel]
fn k(x: &mut [f32], #[function_constant] n: usize, #[thread_position_in_grid] i: usize) {
    x[i] = n as f32;
}

fn main() {}
