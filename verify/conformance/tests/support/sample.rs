//! Which cases of a suite run. `ELINVAR_TESTS=quick` is a sample, which `make test` runs, and `long` the rest, which `make test-long` runs.
//! Without the variable, all do.

use std::collections::HashMap;

use libtest_mimic::Trial;

/// Ignores the cases that are not asked for. Of each chapter, one in `of` is quick, the first among them.
pub fn sample(trials: Vec<Trial>, of: usize) -> Vec<Trial> {
    let is_quick = match std::env::var("ELINVAR_TESTS").as_deref() {
        Ok("quick") => true,
        Ok("long") => false,
        Ok(other) => panic!("ELINVAR_TESTS is `quick` or `long`, not `{other}`"),
        Err(_) => return trials,
    };
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut left_out = 0;
    let trials = trials.into_iter().map(|trial| {
        if trial.has_ignored_flag() {
            return trial;
        }
        let name = trial.name().trim_end_matches("::is_unsupported");
        let chapter = name.rsplit_once("::").map_or("", |(chapter, _)| chapter);
        let number = numbers.entry(chapter.to_owned()).or_default();
        let runs = number.is_multiple_of(of) == is_quick;
        *number += 1;
        left_out += usize::from(!runs);
        trial.with_ignored_flag(!runs)
    });
    let trials = trials.collect();
    let other = if is_quick { "`make test-long`" } else { "`make test`" };
    eprintln!("{left_out} cases are ignored, as {other} runs them");
    trials
}
