//! Fails to compile: unmarked constant.

const LIMIT: f32 = 2.0;

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = LIMIT;
}

fn main() {}
