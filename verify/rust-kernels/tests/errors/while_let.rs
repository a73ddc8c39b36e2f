//! Fails to compile: while let.

#[elinvar::kernel]
fn k(y: &mut [u32], #[thread_position_in_grid] i: usize) {
    let mut n = 5u32;
    while let 1.. = n {
        n -= 1;
    }
    y[i] = n;
}

fn main() {}
