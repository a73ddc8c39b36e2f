//! Kernels on which the CPU and the interpreter once differed, or that are worth a look of their own. The
//! first line of each file says how it is launched. With `ELINVAR_TESTS=quick`, one of 24 is run.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use elinvar_differential::{Outcome, check_text};

#[test]
fn what_once_differed_is_the_same() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let entries = std::fs::read_dir(folder).expect("the folder of regressions");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    let is_quick = std::env::var("ELINVAR_TESTS").is_ok_and(|tests| tests == "quick");
    let paths: Vec<PathBuf> = paths.into_iter().step_by(if is_quick { 24 } else { 1 }).collect();
    assert!(!paths.is_empty(), "there is a kernel in {folder}");
    let different = Mutex::new(Vec::new());
    let next = Mutex::new(paths.iter());
    let work = || {
        let next = || next.lock().expect("no thread has failed").next();
        while let Some(path) = next() {
            let wrong = differences(path);
            different.lock().expect("no thread has failed").extend(wrong);
        }
    };
    std::thread::scope(|scope| {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        (0..threads).for_each(|_| drop(scope.spawn(work)));
    });
    let different = different.into_inner().expect("no thread has failed");
    assert!(different.is_empty(), "{different:#?}");
}

fn differences(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).expect("a text");
    let outcomes = check_text(&text).unwrap_or_else(|e| panic!("{}: {e:#}", path.display()));
    let wrong = outcomes.iter().filter(|(_, outcome)| *outcome != Outcome::Same);
    wrong.map(|(lanes, what)| format!("{} with {lanes} lanes: {what:?}", path.display())).collect()
}
