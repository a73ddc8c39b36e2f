//! Fails to compile: reference in variable.

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    let place = &mut y[i];
    *place = 1.0;
}

fn main() {}
