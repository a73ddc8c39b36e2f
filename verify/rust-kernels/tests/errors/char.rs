//! Fails to compile: char.

#[elinvar::kernel]
fn k(x: &mut [u32], #[thread_position_in_grid] i: usize) {
    x[i] = 'a' as u32;
}

fn main() {}
