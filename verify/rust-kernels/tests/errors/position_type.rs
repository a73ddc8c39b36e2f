//! Fails to compile: position type.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: f32) {
    x[0] = i;
}

fn main() {}
