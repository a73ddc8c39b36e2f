//! Kernels on which the CPU and the interpreter once differed, or that are worth a look of their own. The
//! first line of each file says how it is launched.

use elinvar_differential::{Outcome, check_text};

#[test]
fn what_once_differed_is_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let mut ran = 0;
    let mut different = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder of regressions") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        let outcomes = check_text(&text).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
        let wrong = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Same);
        different
            .extend(wrong.map(|(lanes, what)| format!("{} with {lanes} lanes: {what:?}", path.display())));
        ran += 1;
    }
    assert!(ran > 0, "there is a kernel in {folder}");
    assert!(different.is_empty(), "{different:#?}");
}
