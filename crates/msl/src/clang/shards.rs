//! Checks a source that instantiates many kernels in several processes.
//!
//! Template instantiation dominates the time of such a check, and instantiations are independent. Each process gets the same
//! text, of the same length, with a part of the instantiations. When a shard has an error, the whole text is checked in one
//! process, so that diagnostics are those of one compiler.

use std::ffi::OsString;

use elinvar_driver::MathMode;

use crate::Result;
use crate::clang::pch;
use crate::clang::toolchain::Toolchain;
use crate::clang::{self, Output};
use crate::rewrite::glue::{GLUE_MARKER, INSTANTIATE};

/// Instantiations that pay for parsing the text once more.
const MIN_INSTANTIATIONS: usize = 64;

/// Most shards; more gain little, see [`shard_of`].
const MAX_SHARDS: usize = 4;

/// [`clang::compile_with_declarations`], sharded if that pays.
pub(crate) fn check(toolchain: &Toolchain, flags: &[OsString], math: MathMode, text: &str) -> Result<Output> {
    let run = |text: &str| clang::compile_with_declarations(toolchain, flags, math, text);
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let shards = split(text, processors.min(MAX_SHARDS));
    if shards.len() < 2 {
        return run(text);
    }
    // Built once, before the shards need it.
    pch::header(toolchain, math)?;
    let outputs: Vec<Result<Output>> = std::thread::scope(|scope| {
        let started: Vec<_> = shards.iter().map(|shard| scope.spawn(|| run(shard))).collect();
        let joined = started.into_iter().map(|shard| shard.join());
        joined.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut outputs = outputs.into_iter().collect::<Result<Vec<_>>>()?.into_iter();
    match outputs.next() {
        Some(first) if first.success => outputs.try_fold(first, |mut all, shard| {
            all.stderr.push_str(&shard.stderr);
            if shard.success { Ok(all) } else { run(text) }
        }),
        _ => run(text),
    }
}

/// Where explicit instantiations of kernels begin, in text that begins with [`ALL_KERNELS`](crate::rewrite::glue::ALL_KERNELS).
pub(crate) fn instantiations(text: &str) -> impl Iterator<Item = usize> {
    let is_word = |at: &usize| text[*at + INSTANTIATE.len()..].starts_with(|c: char| c.is_whitespace());
    // The first is its definition.
    text.match_indices(INSTANTIATE).map(|(at, _)| at).filter(is_word).skip(1)
}

/// The texts of at most `most` shards. The first has the tables.
fn split(text: &str, most: usize) -> Vec<String> {
    let body = text.find(GLUE_MARKER).unwrap_or(text.len());
    let places: Vec<usize> = instantiations(&text[..body]).collect();
    let count = most.min(places.len() / MIN_INSTANTIATIONS + 1);
    let shard = |number: usize| {
        let mut shard = text[..if number == 0 { text.len() } else { body }].to_owned();
        for (i, at) in places.iter().enumerate() {
            let word = if shard_of(i, count) == number { "template" } else { "extern template" };
            shard.replace_range(*at..*at + INSTANTIATE.len(), &format!("{word:0$}", INSTANTIATE.len()));
        }
        shard
    };
    (0..count).map(shard).collect()
}

/// The shard of instantiation `i`. The tables take about as long as a quarter of all instantiations, so shard 0 gets `5 - count`
/// of each `4 * count` and the others 5.
fn shard_of(i: usize, count: usize) -> usize {
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
        let text = format!("{ALL_KERNELS}{}{GLUE_MARKER}tables", (0..200).map(line).collect::<String>());
        let shards = split(&text, MAX_SHARDS);
        assert_eq!(shards.len(), 200 / MIN_INSTANTIATIONS + 1);
        assert!(shards[0].ends_with("tables") && shards[0].len() == text.len());
        for (number, shard) in shards.iter().enumerate().skip(1) {
            assert_eq!(shard.len(), text.find(GLUE_MARKER).unwrap(), "shard {number}");
        }
        for i in 0..200 {
            let has = |shard: &&String| shard.contains(&format!("\ntemplate            void f<{i}>();"));
            assert_eq!(shards.iter().filter(has).count(), 1, "{i}");
        }
        assert!(shards.iter().all(|shard| !shard[ALL_KERNELS.len()..].contains(INSTANTIATE)));
        assert_eq!(split(&text, 1).len(), 1);
        for (count, first) in [(1, 16), (2, 6), (3, 4), (4, 1)] {
            let of = |shard| (0..16).filter(|i| shard_of(*i, count) == shard).count();
            assert_eq!(of(0), first);
            assert_eq!((0..count).map(of).sum::<usize>(), 16);
        }
    }
}
