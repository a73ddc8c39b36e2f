//! Fails to compile: panics.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    if x[i] < 0.0 {
        panic!("negative");
    }
}

fn main() {}
