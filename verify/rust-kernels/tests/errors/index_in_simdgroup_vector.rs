//! Fails to compile: index in simdgroup vector.

use elinvar::kernel::Vec2;

#[elinvar::kernel]
fn k(x: &mut [u32], #[thread_index_in_simdgroup] i: Vec2<u32>) {
    x[0] = i.x;
}

fn main() {}
