//! Fails to compile: string.

#[elinvar::kernel]
fn k(x: &mut [u32], #[thread_position_in_grid] i: usize) {
    let s = "text";
    x[i] = s.len() as u32;
}

fn main() {}
