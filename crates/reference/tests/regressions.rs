//! Kernels on which the CPU and the interpreter once differed, or that are worth a look of their own. The
//! first line of each file says how it is launched.

use elinvar::Device;
use elinvar_differential::{Outcome, check_text};

/// Those that still differ, with the reason. One that no longer does has to be taken out here.
const OPEN: [(&str, &str); 2] = [
    (
        "division-known-nonzero.metal",
        "clang takes what is divided by for not zero before the division is guarded",
    ),
    ("vector-division.metal", "clang makes a vector's quotient poison where one divisor is a constant zero"),
];

#[test]
fn what_once_differed_is_the_same() {
    let device = Device::cpu().expect("a CPU");
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let mut ran = 0;
    let mut different = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of regressions") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let outcome = check_text(&device, &text).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
        let open = OPEN.iter().any(|(name, _)| path.ends_with(name));
        if (outcome == Outcome::Same) == open {
            different.push(format!("{}, expected to differ: {open}: {outcome:?}", path.display()));
        }
        ran += 1;
    }
    assert!(ran > 0, "there is a kernel in {folder}");
    assert!(different.is_empty(), "{different:#?}");
}
