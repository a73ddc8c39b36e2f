//! `cargo xtask mutants`: mutation testing with `cargo-mutants` on a sample.
//!
//! All mutants would take days. A fixed number of mutants per crate is drawn by a hash of seed and name, so that the sample is stable while
//! other code changes. A mutant is run against its crate's tests; a survivor is run against the tests of other packages that concern the
//! crate. Results are appended to a file in `results` beside this file after every few mutants, and committed: a later run, on any
//! machine, continues from there. `--shard K/N` takes every Nth mutant, with a separate file; the summary covers all files of the
//! seed.
//!
//! The cost of a mutant is an incremental build of the changed crate and of the test programs, and running these until the first failure. The
//! sources are a persistent copy with a separate target folder, without debug information. The tests without a mutant run once per
//! crate, which also determines the timeout.
//!
//! A mutant that no test catches must be listed in `survivors.txt`, with the reason why no test can observe it.

mod sample;
mod subjects;
mod summary;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use sample::Mutant;
use subjects::{SUBJECTS, Subject, Tests};

/// Number of mutants between writes of the file, each of which scans the sources.
const AT_ONCE: usize = 8;

/// Timeout of the tests, as a multiple of their duration without a mutant, and its minimum in seconds.
const PATIENCE: f64 = 5.0;
const LEAST_PATIENCE: f64 = 30.0;

/// Default seed.
const SEED: u64 = 15;

struct Options {
    seed: u64,
    shard: [usize; 2],
    packages: Vec<String>,
    /// Rerun the mutants that were not caught, starting with the tests of their crate.
    again: bool,
    /// Skip the tests of other packages.
    own_tests_only: bool,
}

impl Options {
    fn parse(words: &[&str]) -> Result<Self> {
        let mut options =
            Self { seed: SEED, shard: [0, 1], packages: Vec::new(), again: false, own_tests_only: false };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "--seed" => options.seed = words.next().context("--seed takes a number")?.parse()?,
                "--shard" => {
                    let parts = words.next().and_then(|text| text.split_once('/'));
                    let (at, of) = parts.context("--shard takes K/N, with K from 0 to N - 1")?;
                    options.shard = [at.parse()?, of.parse()?];
                    ensure!(options.shard[0] < options.shard[1], "--shard {at}/{of}: K is from 0 to N - 1");
                }
                "--again" => options.again = true,
                "--own-tests-only" => options.own_tests_only = true,
                name if SUBJECTS.iter().any(|subject| subject.package == name) => {
                    options.packages.push(name.to_owned());
                }
                other => {
                    let names = SUBJECTS.map(|subject| subject.package).join(", ");
                    bail!("`{other}` is neither an option nor one of {names}");
                }
            }
        }
        Ok(options)
    }

    fn has(&self, subject: &Subject) -> bool {
        self.packages.is_empty() || self.packages.iter().any(|name| name == subject.package)
    }
}

/// Folder of results.
const RESULTS: &str = "xtask/src/mutants/results";

/// Runs mutants without a result; with `summary`, only prints results.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let folder = root.join("target/mutants");
    let results = root.join(RESULTS);
    let (list, words) = match words {
        ["summary", rest @ ..] => (true, rest),
        _ => (false, words),
    };
    let options = Options::parse(words)?;
    std::fs::create_dir_all(&folder)?;
    std::fs::create_dir_all(&results)?;
    let mut all = Vec::new();
    for subject in SUBJECTS.iter().filter(|subject| options.has(subject)) {
        let sample = sample::draw(root, subject.package, subject.count, options.seed)?;
        if !list {
            Run::new(root, &folder, &results, &options, subject)?.all(&sample)?;
        }
        all.push((subject.package, sample));
    }
    summary::print(root, &all, &sample::results(&results, options.seed)?)
}

/// The mutants of one crate.
struct Run<'a> {
    folder: &'a Path,
    results: &'a Path,
    tree: PathBuf,
    options: &'a Options,
    subject: &'a Subject,
}

impl<'a> Run<'a> {
    /// cargo-mutants changes a copy of the sources, which keeps its build output between runs.
    fn new(
        root: &Path,
        folder: &'a Path,
        results: &'a Path,
        options: &'a Options,
        subject: &'a Subject,
    ) -> Result<Self> {
        let tree = folder.join(format!("tree-{}", options.shard[0]));
        sample::copy_tree(root, &tree)?;
        Ok(Self { folder, results, tree, options, subject })
    }

    fn all(&self, sample: &[Mutant]) -> Result<()> {
        let again = self.options.again;
        let unknown = |known: Option<&str>| match known {
            None => true,
            Some(sample::MISSED | sample::UNCAUGHT) => again,
            Some(_) => false,
        };
        for (at, programs) in self.subject.own.iter().enumerate() {
            let packages = std::slice::from_ref(&self.subject.package);
            let own = Tests { packages, programs, filter: "all()" };
            let is_last = at + 1 == self.subject.own.len();
            let what = format!("its own tests, {}", programs.join(" "));
            self.stage(&what, own, is_last.then_some(sample::UNCAUGHT), &self.open(sample, unknown)?)?;
        }
        if self.options.own_tests_only {
            return Ok(());
        }
        let uncaught = |known: Option<&str>| known == Some(sample::UNCAUGHT);
        for (at, (files, tests)) in self.subject.others.iter().enumerate() {
            let mut open = self.open(sample, uncaught)?;
            open.retain(|mutant| files.iter().any(|file| mutant.key.starts_with(file)));
            let is_last = at + 1 == self.subject.others.len();
            let what = format!("others' tests, {}", tests.programs.join(" "));
            let not_caught = if is_last { sample::MISSED } else { sample::UNCAUGHT };
            self.stage(&what, *tests, Some(not_caught), &open)?;
        }
        Ok(())
    }

    /// This shard's mutants for whose result `is_open` holds, by file; see [`Stage::run`].
    fn open<'m>(
        &self,
        sample: &'m [Mutant],
        is_open: impl Fn(Option<&str>) -> bool,
    ) -> Result<Vec<&'m Mutant>> {
        let [at, of] = self.options.shard;
        let known = sample::results(self.results, self.options.seed)?;
        let mine = sample.iter().skip(at).step_by(of);
        let mut open: Vec<&Mutant> =
            mine.filter(|mutant| is_open(known.get(&mutant.key).map(String::as_str))).collect();
        open.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(open)
    }

    /// Runs mutants against some tests. A mutant that they do not catch gets the result `not_caught`, or stays without one.
    fn stage(&self, what: &str, tests: Tests<'_>, not_caught: Option<&str>, open: &[&Mutant]) -> Result<()> {
        println!("{}: {} to run against {what}", self.subject.package, open.len());
        if open.is_empty() {
            return Ok(());
        }
        let output = self.folder.join(format!("out-{}", self.options.shard[0]));
        let mut stage =
            Stage { tree: &self.tree, output, package: self.subject.package, tests, patience: None };
        // A killed build may leave incremental state that leads to miscompiled programs.
        let building = self.folder.join(format!("building-{}", self.options.shard[0]));
        if building.exists() {
            let _absent = std::fs::remove_dir_all(self.tree.join("target/debug/incremental"));
        }
        for part in open.chunks(AT_ONCE) {
            std::fs::write(&building, "")?;
            let results = stage.run(part)?;
            std::fs::remove_file(&building)?;
            self.keep(part, &results, not_caught)?;
        }
        Ok(())
    }

    fn keep(
        &self,
        part: &[&Mutant],
        results: &BTreeMap<String, String>,
        not_caught: Option<&str>,
    ) -> Result<()> {
        let [at, of] = self.options.shard;
        let path = self.results.join(format!("{}-{at}-of-{of}.jsonl", self.options.seed));
        let row = |mutant: &&Mutant| -> Option<Value> {
            let result = results.get(&mutant.name)?;
            let result = if result == sample::MISSED { not_caught? } else { result };
            Some(json!({ "mutant": mutant.key, "package": self.subject.package, "result": result }))
        };
        let rows: String = part.iter().filter_map(row).map(|row| format!("{row}\n")).collect();
        let mut text = std::fs::read_to_string(&path).unwrap_or_default();
        text.push_str(&rows);
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

/// Mutants of a package against some tests.
struct Stage<'a> {
    tree: &'a Path,
    output: PathBuf,
    package: &'static str,
    tests: Tests<'a>,
    /// Timeout of the tests in seconds, once they have run without a mutant.
    patience: Option<f64>,
}

impl Stage<'_> {
    /// Determines the timeout for tests of other packages. cargo-mutants looks for their programs in the mutated package when it runs them
    /// without a mutant.
    fn time_others(&mut self) -> Result<()> {
        if self.patience.is_some() || self.tests.packages == [self.package] {
            return Ok(());
        }
        let nextest = |last: &[&str]| -> Result<f64> {
            let mut command = Command::new("cargo");
            build_options(command.current_dir(self.tree).args(["nextest", "run"]));
            command.args(self.tests.packages.iter().flat_map(|package| ["--package", package]));
            let start = std::time::Instant::now();
            let status = command.args(self.tests.programs).args(last).status().context("cargo nextest")?;
            ensure!(status.success(), "{} without a mutant: {status}", self.tests.programs.join(" "));
            Ok(start.elapsed().as_secs_f64())
        };
        nextest(&["--no-run"])?;
        let seconds = nextest(&["--no-tests=pass", "-E", self.tests.filter])?;
        self.patience = Some((PATIENCE * seconds).max(LEAST_PATIENCE));
        Ok(())
    }

    /// The results of some mutants, by name.
    fn run(&mut self, part: &[&Mutant]) -> Result<BTreeMap<String, String>> {
        self.time_others()?;
        let mut command = Command::new("cargo");
        command.current_dir(self.tree).args(["mutants", "--in-place", "--no-shuffle", "--test-tool=nextest"]);
        command.args(["--package", self.package, "--colors=never", "--cap-lints=true"]);
        match self.patience {
            None => {
                command.arg(format!("--timeout-multiplier={PATIENCE}"));
                command.arg(format!("--minimum-test-timeout={LEAST_PATIENCE}"))
            }
            Some(seconds) => command.arg("--baseline=skip").arg(format!("--timeout={}", seconds.ceil())),
        };
        command.arg("--output").arg(&self.output);
        build_options(&mut command);
        for package in self.tests.packages {
            command.args(["--test-package", package]);
        }
        for program in self.tests.programs {
            command.arg(format!("--cargo-arg={program}"));
        }
        let names: Vec<String> = part.iter().map(|mutant| sample::escaped(&mutant.name)).collect();
        command.arg("--re").arg(format!("^({})$", names.join("|")));
        // cargo-mutants 27 generates mutants that omit struct fields regardless of `--re`, but not outside of a diff.
        let diff = self.output.with_extension("diff");
        std::fs::write(&diff, sample::touched(self.tree, part)?)?;
        command.arg("--in-diff").arg(&diff);
        command.args(["--", "--no-tests=pass", "-E", self.tests.filter]);
        let status = command.status().context("cargo mutants (`scripts/setup.sh mutants`)")?;
        // 2 and 3: some mutants were missed or timed out.
        ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants: {status}");
        let outcomes = std::fs::read_to_string(self.output.join("mutants.out/outcomes.json"))?;
        let outcomes = serde_json::from_str(&outcomes)?;
        let baseline = sample::baseline(&outcomes).map(|seconds| (PATIENCE * seconds).max(LEAST_PATIENCE));
        self.patience = self.patience.or(baseline);
        sample::outcomes(&outcomes)
    }
}

/// Incremental, since the crate is rebuilt for each mutant.
fn build_options(command: &mut Command) {
    command.env("CARGO_INCREMENTAL", "1").env_remove("CARGO_TARGET_DIR");
}
