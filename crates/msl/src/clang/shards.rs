//! Checking a source with many instantiated kernels in several processes at once.
//!
//! What such a check costs is the instantiations, and they do not depend on each other. The text is the same
//! in each process, byte for byte as long, but instantiates only a part of the kernels. When a process finds
//! an error, the whole is checked in one, so that what is said about it is what one compiler says.

use std::ffi::OsString;

use elinvar_driver::MathMode;

use crate::Result;
use crate::clang::pch;
use crate::clang::toolchain::Toolchain;
use crate::clang::{self, Output};
use crate::rewrite::glue::{INSTANTIATE, OURS};

/// A further process has to parse all the text: it is worth that for this many instantiations.
const WORTH: usize = 64;

/// More processes than this gain little. See [`part_of`].
const MOST: usize = 4;

/// [`clang::run_declared`] of a text with tables behind it.
pub(crate) fn check(toolchain: &Toolchain, flags: &[OsString], math: MathMode, text: &str) -> Result<Output> {
    let run = |text: &str| clang::run_declared(toolchain, flags, math, text);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let parts = split(text, processors.min(MOST));
    if parts.len() < 2 {
        return run(text);
    }
    // Here and not in each of them.
    pch::header(toolchain, math)?;
    let outputs: Vec<Result<Output>> = std::thread::scope(|scope| {
        let started: Vec<_> = parts.iter().map(|part| scope.spawn(|| run(part))).collect();
        let joined = started.into_iter().map(|part| part.join());
        joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut outputs = outputs.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
    match outputs.next() {
        Some(first) if first.success => outputs.try_fold(first, |mut all, part| {
            all.stderr.push_str(&part.stderr);
            if part.success { Ok(all) } else { run(text) }
        }),
        _ => run(text),
    }
}

/// The texts to check instead of `text`, at most `most`. The first has all of the tables, the others none.
fn split(text: &str, most: usize) -> Vec<String> {
    let body = text.find(OURS).unwrap_or(text.len());
    let places: Vec<usize> = text[..body]
        .match_indices(INSTANTIATE)
        .map(|(at, _)| at)
        .filter(|at| text[*at + INSTANTIATE.len()..].starts_with(|c: char| c.is_whitespace()))
        .skip(1) // its definition
        .collect();
    let count = most.min(places.len() / WORTH + 1);
    let part = |number: usize| {
        let mut part = text[..if number == 0 { text.len() } else { body }].to_owned();
        for (i, at) in places.iter().enumerate() {
            let word = if part_of(i, count) == number { "template" } else { "extern template" };
            part.replace_range(*at..*at + INSTANTIATE.len(), &format!("{word:0$}", INSTANTIATE.len()));
        }
        part
    };
    (0..count).map(part).collect()
}

/// Which of `count` parts has instantiation number `i`. The tables take about as long as a quarter of all
/// instantiations, so that part 0 has fewer of them: `5 - count` of each `4 * count`, the other parts 5.
fn part_of(i: usize, count: usize) -> usize {
    match i % (4 * count) {
        _ if count < 2 => 0,
        slot if slot < 5 - count => 0,
        slot => 1 + slot % (count - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::glue::ALL_KERNELS;

    #[test]
    fn each_instantiation_is_in_one_part() {
        let line = |i: usize| format!("{INSTANTIATE} void f<{i}>();\n");
        let text = format!("{ALL_KERNELS}{}{OURS}tables", (0..200).map(line).collect::<String>());
        let parts = split(&text, MOST);
        assert_eq!(parts.len(), 200 / WORTH + 1);
        assert!(parts[0].ends_with("tables") && parts[0].len() == text.len());
        for (number, part) in parts.iter().enumerate().skip(1) {
            assert_eq!(part.len(), text.find(OURS).unwrap(), "part {number}");
        }
        for i in 0..200 {
            let has = |part: &&String| part.contains(&format!("\ntemplate            void f<{i}>();"));
            assert_eq!(parts.iter().filter(has).count(), 1, "{i}");
        }
        assert!(parts.iter().all(|part| !part[ALL_KERNELS.len()..].contains(INSTANTIATE)));
        assert_eq!(split(&text, 1).len(), 1);
        for (count, first) in [(1, 16), (2, 6), (3, 4), (4, 1)] {
            let of = |part| (0..16).filter(|i| part_of(*i, count) == part).count();
            assert_eq!(of(0), first);
            assert_eq!((0..count).map(of).sum::<usize>(), 16);
        }
    }
}
