//! Fails to compile: prints.

#[elinvar::kernel]
fn k(x: &mut [f32], #[thread_position_in_grid] i: usize) {
    println!("{}", x[i]);
}

fn main() {}
