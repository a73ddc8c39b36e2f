//! Fails to compile: vec.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    let v: Vec<f32> = vec![0.0; 4];
    x[i] = v[0];
}

fn main() {}
