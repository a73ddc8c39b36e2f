//! Fails to compile: vec macro.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    let v = vec![0.0f32; 4];
    x[i] = v[0];
}

fn main() {}
