//! The sample of mutants, the copy of the sources to which they are applied, and their results.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Result of a mutant that no test catches.
pub const MISSED: &str = "missed";

/// Result of a mutant that its crate's tests do not catch, before the tests of other packages have run.
pub const UNCAUGHT: &str = "uncaught";

/// A mutant of cargo-mutants.
pub struct Mutant {
    /// Name given by cargo-mutants, with line and column.
    pub name: String,
    /// The name without line and column, and a number if it is not the first with that name. It does not change when code above does.
    pub key: String,
}

/// `count` mutants of a crate, or all if there are fewer.
pub fn draw(root: &Path, package: &str, count: usize, seed: u64) -> Result<Vec<Mutant>> {
    let listed = Command::new("cargo")
        .current_dir(root)
        .args(["mutants", "--list", "--json", "--package", package])
        // Compiled only for a sanitizer.
        .args(["--exclude", "**/sync/instrumented.rs"])
        .output()
        .context("cargo mutants (`scripts/setup.sh mutants`)")?;
    ensure!(listed.status.success(), "cargo mutants: {}", String::from_utf8_lossy(&listed.stderr));
    let all: Value = serde_json::from_slice(&listed.stdout)?;
    let names = all.as_array().context("a list of mutants")?.iter().filter_map(|one| one["name"].as_str());
    let mut mutants = keyed(names);
    mutants.sort_by_key(|mutant| hash(seed, &mutant.key));
    mutants.truncate(count);
    Ok(mutants)
}

fn keyed<'a>(names: impl Iterator<Item = &'a str>) -> Vec<Mutant> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mutant = |name: &str| {
        let place = name.split(": ").next().unwrap_or(name);
        let file = place.split(':').next().unwrap_or(place);
        let key = format!("{file}{}", &name[place.len()..]);
        let number = seen.entry(key.clone()).or_default();
        *number += 1;
        let key = if *number == 1 { key } else { format!("{key} #{number}") };
        Mutant { name: name.to_owned(), key }
    };
    names.map(mutant).collect()
}

/// A diff that touches exactly the lines of some mutants.
pub fn touched(root: &Path, mutants: &[&Mutant]) -> Result<String> {
    let mut lines: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
    for mutant in mutants {
        let mut place = mutant.name.split(':');
        let file = place.next().unwrap_or_default();
        let line = place.next().and_then(|line| line.parse().ok());
        lines.entry(file).or_default().insert(line.with_context(|| format!("no line in `{}`", mutant.name))?);
    }
    let mut diff = String::new();
    for (file, lines) in lines {
        let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
        diff += &format!("--- a/{file}\n+++ b/{file}\n");
        for line in lines {
            let content = text.lines().nth(line - 1).with_context(|| format!("{file} has no line {line}"))?;
            diff += &format!("@@ -{},0 +{line},1 @@\n+{content}\n", line - 1);
        }
    }
    Ok(diff)
}

/// FNV-1a, which is the same on every machine and in every version.
fn hash(seed: u64, text: &str) -> u64 {
    let bytes = seed.to_le_bytes();
    let start = 0xcbf2_9ce4_8422_2325;
    bytes
        .iter()
        .chain(text.as_bytes())
        .fold(start, |hash: u64, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// A regular expression that matches exactly this text. Not every character may be escaped: `\\<` is the start of a word.
pub fn escaped(text: &str) -> String {
    let meant = |c: char| r"\.+*?()|[]{}^$#&-~".contains(c);
    text.chars().flat_map(|c| meant(c).then_some('\\').into_iter().chain([c])).collect()
}

/// Makes `tree` contain the files that git knows of in `root`. Equal files are not touched, so that little is rebuilt.
pub fn copy_tree(root: &Path, tree: &Path) -> Result<()> {
    let git = |path: &Path, words: &[&str]| -> Result<Vec<String>> {
        let output = Command::new("git").current_dir(path).args(words).output()?;
        ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.split_terminator('\0').map(str::to_owned).collect())
    };
    let files = git(root, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
    for file in &files {
        let (from, to) = (root.join(file), tree.join(file));
        let Ok(content) = std::fs::read(&from) else { continue };
        if std::fs::read(&to).is_ok_and(|there| there == content) {
            continue;
        }
        std::fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        std::fs::copy(&from, &to).with_context(|| file.clone())?;
    }
    let list = tree.join(".files");
    let before = std::fs::read_to_string(&list).unwrap_or_default();
    for gone in before.lines().filter(|line| !files.iter().any(|file| file == line)) {
        let _absent = std::fs::remove_file(tree.join(gone));
    }
    Ok(std::fs::write(list, files.join("\n"))?)
}

/// Result of each mutant, by name, from cargo-mutants' own file.
pub fn outcomes(file: &Value) -> Result<BTreeMap<String, String>> {
    let all = file["outcomes"].as_array().context("outcomes.json has `outcomes`")?;
    let outcome = |one: &Value| {
        let name = one["scenario"]["Mutant"]["name"].as_str()?;
        let result = match one["summary"].as_str()? {
            "CaughtMutant" => "caught",
            "MissedMutant" => MISSED,
            "Timeout" => "timeout",
            _ => "unviable",
        };
        Some((name.to_owned(), result.to_owned()))
    };
    Ok(all.iter().filter_map(outcome).collect())
}

/// Duration of the tests without a mutant in seconds, if they were run without one.
pub fn baseline(file: &Value) -> Option<f64> {
    let all = file["outcomes"].as_array()?;
    let unchanged = all.iter().find(|one| one["scenario"].as_str() == Some("Baseline"))?;
    let tests = unchanged["phase_results"].as_array()?.iter().find(|phase| phase["phase"] == "Test")?;
    tests["duration"].as_f64()
}

/// The last result of each mutant by key, over all files of a seed.
pub fn results(folder: &Path, seed: u64) -> Result<BTreeMap<String, String>> {
    let mut results = BTreeMap::new();
    let mut files: Vec<_> = std::fs::read_dir(folder)?.collect::<Result<_, _>>()?;
    files.sort_by_key(std::fs::DirEntry::file_name);
    for file in files {
        let name = file.file_name().to_string_lossy().into_owned();
        if !name.starts_with(&format!("{seed}-")) || !name.ends_with(".jsonl") {
            continue;
        }
        for line in std::fs::read_to_string(file.path())?.lines() {
            let row: Value = serde_json::from_str(line).with_context(|| name.clone())?;
            let text =
                |key: &str| row[key].as_str().map(str::to_owned).context("a row has `mutant` and `result`");
            results.insert(text("mutant")?, text("result")?);
        }
    }
    Ok(results)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_do_not_move_with_lines_and_tell_repetitions_apart() {
        let name = |line: u32| format!("crates/a/src/b.rs:{line}:9: replace == with != in S::f");
        let names = [name(3), name(7), "crates/a/src/c.rs:1:1: replace g -> bool with true".into()];
        let keys: Vec<String> = keyed(names.iter().map(String::as_str)).into_iter().map(|m| m.key).collect();
        let first = "crates/a/src/b.rs: replace == with != in S::f";
        assert_eq!(keys, [first, &format!("{first} #2"), "crates/a/src/c.rs: replace g -> bool with true"]);
    }

    #[test]
    fn only_what_means_something_is_escaped() {
        assert_eq!(
            escaped("a.rs: replace f -> Option<&[u8]> with None"),
            r"a\.rs: replace f \-> Option<\&\[u8\]> with None"
        );
    }

    #[test]
    fn a_diff_touches_the_lines_of_mutants_in_their_order() {
        let root = tempfile::tempdir().unwrap();
        std::fs::write(root.path().join("a.rs"), "one\ntwo\nthree\n").unwrap();
        let mutant = |place: &str| Mutant {
            name: format!("{place}:5: replace g -> bool with true"),
            key: String::new(),
        };
        let mutants = ["a.rs:3", "a.rs:2", "a.rs:3"].map(mutant);
        let diff = touched(root.path(), &mutants.each_ref()).unwrap();
        assert_eq!(diff, "--- a/a.rs\n+++ b/a.rs\n@@ -1,0 +2,1 @@\n+two\n@@ -2,0 +3,1 @@\n+three\n");
        assert!(touched(root.path(), &[&mutant("a.rs:4")]).is_err());
    }

    #[test]
    fn the_sample_is_the_seed_s() {
        assert_eq!(hash(15, "a"), hash(15, "a"));
        assert_ne!(hash(15, "a"), hash(16, "a"));
        // From the published FNV-1a test vectors, after eight zero bytes.
        assert_eq!(
            hash(0, ""),
            [0u8; 8].iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, _| h.wrapping_mul(0x100_0000_01b3))
        );
    }

    #[test]
    fn the_time_of_the_tests_is_that_without_a_mutant() {
        let phases = |build: f64, test: f64| serde_json::json!([{ "phase": "Build", "duration": build }, { "phase": "Test", "duration": test }]);
        let mutant = serde_json::json!({ "scenario": { "Mutant": { "name": "m" } }, "summary": "CaughtMutant", "phase_results": phases(3.0, 4.0) });
        let unchanged = serde_json::json!({ "scenario": "Baseline", "summary": "Success", "phase_results": phases(1.0, 2.5) });
        let with = serde_json::json!({ "outcomes": [unchanged, mutant] });
        assert_eq!(baseline(&with), Some(2.5));
        assert_eq!(outcomes(&with).unwrap(), [("m".to_owned(), "caught".to_owned())].into());
        assert_eq!(baseline(&serde_json::json!({ "outcomes": [mutant] })), None);
    }

    #[test]
    fn only_new_content_is_copied_and_what_is_gone_is_removed() {
        let [root, tree] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let git = |words: &[&str]| {
            assert!(Command::new("git").current_dir(root.path()).args(words).status().unwrap().success());
        };
        git(&["init", "--quiet"]);
        std::fs::write(root.path().join("a"), "1").unwrap();
        std::fs::write(root.path().join("b"), "2").unwrap();
        git(&["add", "a"]);
        copy_tree(root.path(), tree.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(tree.path().join(name)).ok();
        assert_eq!((read("a"), read("b")), (Some("1".into()), Some("2".into())));
        std::fs::write(tree.path().join("a"), "a mutant that was left").unwrap();
        std::fs::remove_file(root.path().join("b")).unwrap();
        copy_tree(root.path(), tree.path()).unwrap();
        assert_eq!((read("a"), read("b")), (Some("1".into()), None));
    }
}
