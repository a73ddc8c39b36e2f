//! Fails to compile: i128.

#[elinvar::kernel]
fn k(x: &mut [u32], #[thread_position_in_grid] i: usize) {
    let a: u128 = 5;
    x[i] = a as u32;
}

fn main() {}
