//! Fails to compile: usize buffer.

#[elinvar::kernel]
fn k(x: &mut [usize], #[thread_position_in_grid] i: usize) {
    x[i] = 1;
}

fn main() {}
