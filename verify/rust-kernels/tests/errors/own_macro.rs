//! Fails to compile: own macro.

macro_rules! double {
    ($x:expr) => {
        $x * 2.0
    };
}

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    x[i] = double!(x[i]);
}

fn main() {}
