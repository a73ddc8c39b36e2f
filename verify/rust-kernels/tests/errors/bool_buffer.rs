//! Fails to compile: bool buffer.

#[elinvar::kernel]
fn k(x: &mut [bool], #[thread_position_in_grid] i: usize) {
    x[i] = true;
}

fn main() {}
