//! `cargo xtask coverage`: line coverage of the shipped crates by the tests, measured with `cargo-llvm-cov`.
//!
//! The tests are built with LLVM's instrumentation and run; arguments after `coverage` are passed to `cargo nextest run`. LLVM's
//! tools must read the profiles of this rustc: `LLVM_COV` and `LLVM_PROFDATA` are used if set, then `llvm-cov-NN` of rustc's own
//! LLVM or a later one, then those of rustup. Child processes (of the command line's tests, `elinvar test`) are counted too,
//! since they inherit the profile's path.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Coverage goal: percent of the lines of all shipped crates.
const GOAL: f64 = 85.0;

/// The shipped folders.
const SHIPPED: [&str; 14] = [
    "crates/cache",
    "crates/cli",
    "crates/code",
    "crates/driver",
    "crates/driver-cpu",
    "crates/driver-isolated",
    "crates/ir",
    "crates/kernel",
    "crates/msl",
    "crates/native",
    "crates/ptx",
    "crates/runtime",
    "crates/rust-to-msl",
    "crates/spmd",
];

/// Reason for crates that `elinvar test` builds for tests of other crates.
const STAND_IN: &str = "its tests are the Metal driver's in `make apple`, for which `elinvar test` builds it without the \
    RUSTFLAGS that instrument; its own unit tests are counted here";

/// Shipped crates that are excluded from the goal, with the reason.
const APART: [(&str, &str); 4] = [
    ("crates/driver-cuda", "runs where there is an NVIDIA GPU: `make test-cuda`"),
    (
        "crates/driver-metal",
        "is compiled for Apple's systems and their stand-in only, but for what looks at sources: `make apple`",
    ),
    ("apple/metal", STAND_IN),
    ("apple/objc", STAND_IN),
];

/// Measures coverage, prints a table, and fails below the goal.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let [cov, profdata] = tools()?;
    let output = root.join("target/coverage.json");
    let cargo = |words: &[&str]| -> Result<()> {
        let mut command = Command::new("cargo");
        command.current_dir(root).arg("llvm-cov").args(words);
        if let (Some(cov), Some(profdata)) = (&cov, &profdata) {
            command.env("LLVM_COV", cov).env("LLVM_PROFDATA", profdata);
        }
        let status = command.status().context("cargo llvm-cov (`scripts/setup.sh coverage`)")?;
        ensure!(status.success(), "cargo llvm-cov {}: {status}", words.join(" "));
        Ok(())
    };
    let selected = if words.is_empty() { &["--workspace"] } else { words };
    // Delete profiles of earlier runs.
    cargo(&["clean", "--workspace", "--profraw-only"])?;
    cargo(&[&["nextest", "--no-report", "--no-fail-fast"], selected].concat())?;
    // A process that a test kills leaves a truncated profile, which `llvm-profdata` must ignore.
    cargo(&[
        "report",
        "--failure-mode",
        "all",
        "--json",
        "--summary-only",
        "--output-path",
        &output.to_string_lossy(),
    ])?;
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&output)?)?;
    let lines = by_crate(root, &report)?;
    let share = print(&lines);
    ensure!(share >= GOAL, "{share:.1} % of the lines that ship are run by tests, {GOAL} % is the goal");
    Ok(())
}

/// `llvm-cov` and `llvm-profdata`; `None` to use cargo-llvm-cov's default, those of rustup.
fn tools() -> Result<[Option<String>; 2]> {
    let names = [("LLVM_COV", "llvm-cov"), ("LLVM_PROFDATA", "llvm-profdata")];
    if names.iter().all(|(variable, _)| std::env::var_os(variable).is_some()) {
        return Ok([None, None]);
    }
    let version = Command::new("rustc").arg("-vV").output().context("rustc")?;
    let text = String::from_utf8(version.stdout)?;
    let own =
        text.lines().find_map(|line| line.strip_prefix("LLVM version: ")?.split('.').next()?.parse().ok());
    let own: u32 = own.context("`rustc -vV` has no LLVM version")?;
    let runs =
        |name: &str| Command::new(name).arg("--version").output().is_ok_and(|out| out.status.success());
    for version in own..own + 5 {
        let [cov, profdata] = names.map(|(_, name)| format!("{name}-{version}"));
        if runs(&cov) && runs(&profdata) {
            return Ok([Some(cov), Some(profdata)]);
        }
    }
    Ok([None, None])
}

/// Covered lines and all lines, by crate.
fn by_crate(root: &Path, report: &Value) -> Result<BTreeMap<String, [u64; 2]>> {
    let files = report["data"][0]["files"].as_array().context("the report has `files`")?;
    let mut crates: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for file in files {
        let name = file["filename"].as_str().context("a file has a name")?;
        let Ok(path) = Path::new(name).strip_prefix(root) else { continue };
        let path = path.to_string_lossy().replace('\\', "/");
        let folders = SHIPPED.iter().copied().chain(APART.iter().map(|(folder, _)| *folder));
        let Some(folder) = folders.into_iter().find(|folder| path.starts_with(&format!("{folder}/src/")))
        else {
            continue;
        };
        let lines = &file["summary"]["lines"];
        let [covered, count] = crates.entry(folder.to_owned()).or_default();
        *covered += lines["covered"].as_u64().context("lines are counted")?;
        *count += lines["count"].as_u64().context("lines are counted")?;
    }
    Ok(crates)
}

fn percent([covered, count]: [u64; 2]) -> f64 {
    100.0 * covered as f64 / count.max(1) as f64
}

/// Prints the table, and returns the coverage of all shipped crates.
fn print(crates: &BTreeMap<String, [u64; 2]>) -> f64 {
    println!("| crate | lines | run by tests | |\n|---|---|---|---|");
    let mut sum = [0, 0];
    for folder in SHIPPED {
        let lines = crates.get(folder).copied().unwrap_or_default();
        println!("| `{folder}` | {} | {:.1} % | |", lines[1], percent(lines));
        sum = [sum[0] + lines[0], sum[1] + lines[1]];
    }
    println!("| all | {} | {:.1} % | |", sum[1], percent(sum));
    for (folder, reason) in APART {
        let lines = crates.get(folder).copied().unwrap_or_default();
        println!("| `{folder}` | {} | {:.1} % | apart: {reason} |", lines[1], percent(lines));
    }
    percent(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_by_crate_and_what_does_not_ship_is_left_out() {
        let file = |name: &str, covered: u64| serde_json::json!({ "filename": name, "summary": { "lines": { "covered": covered, "count": 10 } } });
        let files = [
            file("/w/crates/cache/src/a.rs", 10),
            file("/w/crates/cache/src/b/c.rs", 7),
            file("/w/crates/cache/tests/t.rs", 1),
            file("/w/verify/conformance/src/lib.rs", 1),
            file("/w/crates/driver-cuda/src/lib.rs", 2),
            file("/elsewhere/crates/cache/src/a.rs", 1),
        ];
        let report = serde_json::json!({ "data": [{ "files": files }] });
        let crates = by_crate(Path::new("/w"), &report).unwrap();
        let expected = [("crates/cache".to_owned(), [17, 20]), ("crates/driver-cuda".to_owned(), [2, 10])];
        assert_eq!(crates, expected.into());
        assert_eq!(print(&crates), 85.0);
    }
}
