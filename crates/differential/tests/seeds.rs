//! A fixed set of random kernels, the same on the CPU and in the reference interpreter.

use elinvar::Device;
use elinvar_differential::{Kernel, Outcome, check};

#[test]
fn the_first_kernels_are_the_same() {
    let device = Device::cpu().expect("a CPU");
    let kernels: Vec<Kernel> = (1..=20).map(Kernel::random).collect();
    for batch in kernels.chunks(10) {
        let outcomes = check(&device, batch).expect("the kernels compile");
        for (kernel, outcome) in batch.iter().zip(outcomes) {
            assert!(!matches!(outcome, Outcome::Different(_)), "{outcome:?}\n{}", kernel.source());
        }
    }
}
