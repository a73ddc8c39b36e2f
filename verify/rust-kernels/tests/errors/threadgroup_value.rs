//! Fails to compile: threadgroup value.

#[elinvar::kernel]
fn k(x: &mut [f32], #[threadgroup] tile: [f32; 4], #[thread_position_in_grid] i: usize) {
    x[i] = tile[0];
}

fn main() {}
