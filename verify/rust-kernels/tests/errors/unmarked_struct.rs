//! Fails to compile: unmarked struct.

#[derive(Clone, Copy)]
struct P {
    a: f32,
}

#[elinvar::kernel]
fn k(x: &[P], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    y[i] = x[i].a;
}

fn main() {}
