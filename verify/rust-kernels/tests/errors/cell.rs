//! Fails to compile: cell.

use std::cell::Cell;

#[elinvar::kernel]
fn k(x: &mut [u32], #[thread_position_in_grid] i: usize) {
    let c: Cell<u32> = Cell::new(1);
    x[i] = c.get();
}

fn main() {}
