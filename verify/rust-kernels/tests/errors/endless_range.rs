//! Fails to compile: endless range.

#[elinvar::kernel]
fn k(y: &mut [u32], #[thread_position_in_grid] i: usize) {
    for k in 0.. {
        if k > 5 {
            break;
        }
        y[i] += k;
    }
}

fn main() {}
