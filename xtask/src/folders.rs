//! The rule for folders: none holds more than [`LIMIT`] Rust source files. A crate with more is divided by subject.

use std::collections::BTreeMap;

/// Maximum number of `.rs` files in a folder, without subfolders.
const LIMIT: usize = 30;

/// Folders that are lists of independent files: the chapters of the conformance suite, the kernels of the bench, and the kernels in Rust
/// that do not compile.
const EXEMPT: [&str; 3] =
    ["verify/conformance/src/suite", "crates/cli/src/bench/kernels", "verify/rust-kernels/tests/errors"];

/// Lists folders with too many files. `sources` are paths of `.rs` files relative to the root, with `/` between parts.
pub fn check(sources: &[String]) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for name in sources {
        *counts.entry(name.rsplit_once('/').map_or("", |(folder, _)| folder)).or_default() += 1;
    }
    let crowded = counts.into_iter().filter(|(folder, count)| *count > LIMIT && !is_exempt(folder));
    crowded
        .map(|(folder, count)| format!("{folder}: {count} Rust files, {LIMIT} at most; divide it by subject"))
        .collect()
}

/// Whether a folder may hold any number of files. Each file in a crate's `tests` folder is a separate program.
fn is_exempt(folder: &str) -> bool {
    EXEMPT.contains(&folder) || folder.rsplit('/').next() == Some("tests")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(folder: &str, count: usize) -> Vec<String> {
        check(&(0..count).map(|i| format!("{folder}/f{i}.rs")).collect::<Vec<_>>())
    }

    #[test]
    fn one_file_too_many_is_a_breach() {
        assert_eq!(breaches("crates/x/src", LIMIT), [""; 0]);
        assert_eq!(
            breaches("crates/x/src", LIMIT + 1),
            ["crates/x/src: 31 Rust files, 30 at most; divide it by subject"]
        );
    }

    #[test]
    fn files_of_subfolders_do_not_count() {
        let mut files: Vec<String> = (0..LIMIT).map(|i| format!("crates/x/src/f{i}.rs")).collect();
        files.extend((0..LIMIT).map(|i| format!("crates/x/src/sub/f{i}.rs")));
        assert_eq!(check(&files), [""; 0]);
    }

    #[test]
    fn lists_of_independent_files_are_exempt() {
        for folder in ["verify/conformance/src/suite", "crates/cli/src/bench/kernels", "crates/x/tests"] {
            assert_eq!(breaches(folder, 100), [""; 0], "{folder}");
        }
        assert_eq!(breaches("crates/x/src/tests_of", 100).len(), 1);
        assert_eq!(breaches("crates/x/tests/common", 100).len(), 1);
    }
}
