//! Summary: the number of caught mutants, and whether each survivor is explained.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, ensure};

use super::sample::{MISSED, Mutant, UNCAUGHT};

/// Minimum percentage of viable mutants that must be caught.
const GOAL: f64 = 85.0;

/// Explained survivors: a mutant's key, followed by an indented reason why no test can observe it.
const SURVIVORS: &str = "xtask/src/mutants/survivors.txt";

/// Prints a table by crate, and the survivors. Fails if a survivor is not explained, or too few mutants are caught.
pub fn print(root: &Path, all: &[(&str, Vec<Mutant>)], results: &BTreeMap<String, String>) -> Result<()> {
    let explained = explained(&std::fs::read_to_string(root.join(SURVIVORS))?);
    println!(
        "| crate | sample | run | caught | timeout | missed | missed by its own tests, others not run | unviable | caught of viable |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let (mut sum, mut open, mut most) = (Counts::default(), Vec::new(), 0);
    for (package, sample) in all {
        let counts = Counts::of(sample, results);
        println!("{}", counts.row(package, sample.len()));
        sum = sum.plus(&counts);
        most += sample.len();
        let is_missed = |result: &String| [MISSED, UNCAUGHT].contains(&result.as_str());
        let missed = sample.iter().filter(|mutant| results.get(&mutant.key).is_some_and(is_missed));
        open.extend(missed.filter(|mutant| !explained.contains_key(&mutant.key)));
    }
    println!("{}", sum.row("all", most));
    for mutant in &open {
        println!("missed, not explained: {}", mutant.name);
    }
    ensure!(open.is_empty(), "{} survivors are neither killed nor explained in {SURVIVORS}", open.len());
    let share = sum.share();
    ensure!(share >= GOAL, "{share:.1} % of the viable mutants are caught, {GOAL} % is the goal");
    Ok(())
}

#[derive(Default)]
struct Counts {
    caught: usize,
    timeout: usize,
    missed: usize,
    uncaught: usize,
    unviable: usize,
}

impl Counts {
    fn of(sample: &[Mutant], results: &BTreeMap<String, String>) -> Self {
        let count =
            |result: &str| sample.iter().filter(|m| results.get(&m.key).is_some_and(|r| r == result)).count();
        Self {
            caught: count("caught"),
            timeout: count("timeout"),
            missed: count(MISSED),
            uncaught: count(UNCAUGHT),
            unviable: count("unviable"),
        }
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            caught: self.caught + other.caught,
            timeout: self.timeout + other.timeout,
            missed: self.missed + other.missed,
            uncaught: self.uncaught + other.uncaught,
            unviable: self.unviable + other.unviable,
        }
    }

    /// Percentage of viable mutants that tests catch; a timeout counts as caught.
    fn share(&self) -> f64 {
        let caught = self.caught + self.timeout;
        100.0 * caught as f64 / ((caught + self.missed + self.uncaught) as f64).max(1.0)
    }

    fn row(&self, name: &str, sample: usize) -> String {
        let Self { caught, timeout, missed, uncaught, unviable } = self;
        let run = caught + timeout + missed + uncaught + unviable;
        let share = self.share();
        format!(
            "| {name} | {sample} | {run} | {caught} | {timeout} | {missed} | {uncaught} | {unviable} | {share:.1} % |"
        )
    }
}

fn explained(text: &str) -> BTreeMap<String, String> {
    let mut all: BTreeMap<String, String> = BTreeMap::new();
    let mut key = String::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        match line.strip_prefix("    ") {
            Some(reason) => all.entry(key.clone()).or_default().push_str(reason),
            None => key = line.trim_end().to_owned(),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_survivor_needs_a_reason() {
        let known = explained("# a comment\n\na.rs: replace x\n    it is only a hint\nb.rs: replace y\n");
        assert_eq!(known.len(), 1);
        assert_eq!(known["a.rs: replace x"], "it is only a hint");
    }

    #[test]
    fn what_does_not_end_is_caught_and_what_does_not_compile_is_not_counted() {
        let counts = Counts { caught: 5, timeout: 1, missed: 1, uncaught: 1, unviable: 9 };
        assert_eq!(counts.row("c", 20), "| c | 20 | 17 | 5 | 1 | 1 | 1 | 9 | 75.0 % |");
    }
}
