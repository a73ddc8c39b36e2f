//! Fails to compile: some.

#[elinvar::kernel]
fn k(x: &mut [u32], #[thread_position_in_grid] i: usize) {
    let v = Some(3u32);
    x[i] = v.unwrap_or(1);
}

fn main() {}
