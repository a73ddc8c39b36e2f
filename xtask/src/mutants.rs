//! `cargo xtask mutants`: whether the tests notice faults put into the code, by `cargo-mutants` on a sample.
//!
//! All mutants would take days. From those of each crate below a fixed number is drawn, by a hash of seed and name, so that a
//! sample stays the same while other code changes. A mutant is run against the tests of its crate; one that these miss is
//! run against the tests of other packages that concern the crate. Results are added to a file in `results` beside this one after
//! every few mutants, which is committed: a later run, on whatever machine, goes on from there. `--shard K/N` takes every Nth
//! mutant, with a file of its own; the summary is over all files of the seed.
//!
//! What a mutant costs is an incremental build of the changed crate and of the test programs that are run, and these until the
//! first failure. The sources are a copy that stays, with a target folder of its own, without debug information. The tests
//! without a mutant run once for each crate, which also gives the time that they may take with one.
//!
//! A mutant that no test catches must be in `survivors.txt`, with the reason why it changes nothing that a test could see.

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

/// Mutants between two writings of the file, each of which costs a look through the sources.
const AT_ONCE: usize = 8;

/// Times that the tests may take with a mutant what they take without, and at least so many seconds.
const PATIENCE: f64 = 5.0;
const LEAST_PATIENCE: f64 = 30.0;

/// How the sample is drawn unless `--seed` says otherwise.
const SEED: u64 = 15;

struct Options {
    seed: u64,
    shard: [usize; 2],
    packages: Vec<String>,
    /// Run those that were not caught again, from the tests of their crate on.
    again: bool,
    /// Do not run the tests of other packages.
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

/// Where results are kept.
const RESULTS: &str = "xtask/src/mutants/results";

/// Run what has no result yet, or only print what is known: `summary`.
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

/// The mutants of one crate under way.
struct Run<'a> {
    folder: &'a Path,
    results: &'a Path,
    tree: PathBuf,
    options: &'a Options,
    subject: &'a Subject,
}

impl<'a> Run<'a> {
    /// Cargo-mutants changes a copy of the sources, which keeps what was built from one run to the next.
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

    /// This shard's mutants of which `is_open` holds for what is known, by file, see [`Stage::run`].
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

    /// Runs mutants against some tests. One that these do not catch is `not_caught`, or has no result yet.
    fn stage(&self, what: &str, tests: Tests<'_>, not_caught: Option<&str>, open: &[&Mutant]) -> Result<()> {
        println!("{}: {} to run against {what}", self.subject.package, open.len());
        if open.is_empty() {
            return Ok(());
        }
        let output = self.folder.join(format!("out-{}", self.options.shard[0]));
        let mut stage =
            Stage { tree: &self.tree, output, package: self.subject.package, tests, patience: None };
        // A build that is killed may leave a state from which incremental ones make a wrong program.
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
    /// Seconds that the tests may take, once they have run without a mutant.
    patience: Option<f64>,
}

impl Stage<'_> {
    /// Sets how long tests of other packages may take with a mutant. cargo-mutants looks for their programs in the mutated
    /// package when it runs them without one.
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

    /// What becomes of some mutants, by name.
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
        // Fields that are left out of a struct are mutants that cargo-mutants 27 makes whatever `--re` says, but not outside of a diff.
        let diff = self.output.with_extension("diff");
        std::fs::write(&diff, sample::touched(self.tree, part)?)?;
        command.arg("--in-diff").arg(&diff);
        command.args(["--", "--no-tests=pass", "-E", self.tests.filter]);
        let status = command.status().context("cargo mutants (`scripts/setup.sh mutants`)")?;
        // 2 and 3: some were missed or took too long.
        ensure!(matches!(status.code(), Some(0 | 2 | 3)), "cargo mutants: {status}");
        let outcomes = std::fs::read_to_string(self.output.join("mutants.out/outcomes.json"))?;
        let outcomes = serde_json::from_str(&outcomes)?;
        let baseline = sample::baseline(&outcomes).map(|seconds| (PATIENCE * seconds).max(LEAST_PATIENCE));
        self.patience = self.patience.or(baseline);
        sample::outcomes(&outcomes)
    }
}

/// Without debug information there is less to build and to link; the crate is built again for each mutant.
fn build_options(command: &mut Command) {
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "1").env_remove("CARGO_TARGET_DIR");
}
