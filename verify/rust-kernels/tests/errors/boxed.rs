//! Fails to compile: boxed.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    let b: Box<f32> = Box::new(1.0);
    x[i] = *b;
}

fn main() {}
