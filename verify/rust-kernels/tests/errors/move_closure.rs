//! Fails to compile: move closure.

#[elinvar::kernel]
fn k(y: &mut [f32], a: f32, #[thread_position_in_grid] i: usize) {
    let f = move |x: f32| x * a;
    y[i] = f(y[i]);
}

fn main() {}
