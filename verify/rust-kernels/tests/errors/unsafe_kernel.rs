//! Fails to compile: unsafe kernel.

#[elinvar::kernel]
unsafe fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    x[i] = 1.0;
}

fn main() {}
