//! Fails to compile: name of parameter.

#[elinvar::kernel]
fn scan(scan: &mut [f32], #[thread_position_in_grid] i: usize) {
    scan[i] = 1.0;
}

fn main() {}
