//! Fails to compile: closure return.

#[elinvar::kernel]
fn k(y: &mut [f32], #[thread_position_in_grid] i: usize) {
    let f = |x: f32| {
        if x < 0.0 {
            return 0.0;
        }
        x
    };
    y[i] = f(y[i]);
}

fn main() {}
