//! Fails to compile: power.

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = y[i].exp_m1();
}

fn main() {}
