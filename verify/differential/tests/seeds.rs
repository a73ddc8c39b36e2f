//! A fixed set of random kernels, the same compiled and in the reference interpreter. With `ELINVAR_TESTS=quick`, an eighth of them.

use elinvar_differential::{BATCH, Kernel, Outcome, check};

#[test]
fn the_first_kernels_are_the_same() {
    expect_same(Kernel::random);
}

#[test]
fn indices_are_exact() {
    expect_same(Kernel::indexed);
}

#[test]
fn barriers_in_divergent_control_flow() {
    expect_same(Kernel::divergent);
}

/// The same kernels with grid barriers, at which the compiled function returns and is resumed.
#[test]
fn suspended_threadgroups_keep_their_values() {
    let suspending = |kernel: fn(u64) -> Kernel| {
        move |seed| {
            let mut kernel = kernel(seed);
            kernel.setting.grid = true;
            kernel
        }
    };
    expect_same(suspending(Kernel::random));
    expect_same(suspending(Kernel::divergent));
}

#[test]
fn log_lines_are_the_same() {
    expect_same(Kernel::logging);
}

/// LLVM 19 compiled the first without optimization to accesses outside its memory (AVX-512); the next two did not end; the others loaded one
/// lane's element for all, stored to an array of a thread as if it were aligned, ran what lanes store before they return behind a barrier,
/// waited on warps for lanes that never came, and summed over the lanes of one iteration of a loop that they had left.
#[test]
fn kernels_that_once_failed() {
    let random = [720_140_288, 700_100_010, 9_500_204].map(Kernel::random);
    let indexed = [700_150_226, 22_500_441, 97_500_057].map(Kernel::indexed);
    let divergent = [99_400_107, 68_800_060].map(Kernel::divergent);
    for kernel in random.into_iter().chain(indexed).chain(divergent) {
        let outcomes = check(std::slice::from_ref(&kernel));
        assert_eq!(outcomes, [Outcome::Same], "{}", kernel.source());
    }
}

#[track_caller]
fn expect_same(kernel: impl Fn(u64) -> Kernel) {
    let is_quick = std::env::var("ELINVAR_TESTS").is_ok_and(|tests| tests == "quick");
    let batches: &[u64] = if is_quick { &[0] } else { &[0, 1, 3] };
    let count = if is_quick { 3 } else { 8 };
    for &batch in batches {
        let kernels: Vec<Kernel> = (batch * BATCH..batch * BATCH + count).map(&kernel).collect();
        for (kernel, outcome) in kernels.iter().zip(check(&kernels)) {
            assert!(!matches!(outcome, Outcome::Different(_)), "{outcome:?}\n{}", kernel.source());
        }
    }
}

#[test]
fn checked_kernels_stay_in_their_memory() {
    // Two batches, one of them optimized.
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_fuzz-checked"));
    let output = command.args(["--seed", "46", "--count", "4", "--launches", "24"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().last().unwrap_or_default();
    let numbers: Vec<u64> =
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect();
    let [kernels, 46, refused, launches, same, faults, 0] = numbers[..] else { panic!("{said}") };
    assert_eq!((kernels, launches), (4, (4 - refused) * 24), "{said}");
    assert!(refused < 2 && same > launches / 8 && faults > launches / 8, "{said}");
}
