//! Fails to compile: part of slice.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    let row = &x[i * 4..i * 4 + 4];
    y[i] = row[0];
}

fn main() {}
