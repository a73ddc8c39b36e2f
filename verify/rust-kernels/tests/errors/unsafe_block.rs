//! Fails to compile: unsafe block.

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    unsafe {
        *y.get_unchecked_mut(i) = 1.0;
    }
}

fn main() {}
