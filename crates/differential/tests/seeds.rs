//! A fixed set of random kernels, the same compiled and in the reference interpreter.

use elinvar_differential::{BATCH, Kernel, Outcome, check};

#[test]
fn the_first_kernels_are_the_same() {
    for batch in [0, 1, 3] {
        let kernels: Vec<Kernel> = (batch * BATCH..batch * BATCH + 8).map(Kernel::random).collect();
        for (kernel, outcome) in kernels.iter().zip(check(&kernels)) {
            assert!(!matches!(outcome, Outcome::Different(_)), "{outcome:?}\n{}", kernel.source());
        }
    }
}
