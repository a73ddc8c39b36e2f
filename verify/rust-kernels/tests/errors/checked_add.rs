//! Fails to compile: checked add.

#[elinvar::kernel]
fn k(y: &mut [u32], #[thread_position_in_grid] i: usize) {
    y[i] = y[i].checked_add(1).unwrap_or(0);
}

fn main() {}
