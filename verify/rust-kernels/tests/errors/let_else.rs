//! Fails to compile: let else.

#[elinvar::kernel]
fn k(x: &[f32], y: &mut [f32], #[thread_position_in_grid] i: usize) {
    let Some(v) = x.get(i) else { return };
    y[i] = *v;
}

fn main() {}
