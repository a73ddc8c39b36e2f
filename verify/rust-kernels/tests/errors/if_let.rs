//! Fails to compile: if let.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    if let Some(v) = x.get(i) {
        y[i] = *v;
    }
}

fn main() {}
