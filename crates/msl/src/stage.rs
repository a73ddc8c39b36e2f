//! How long the stages of a compilation take.
//!
//! Each stage that has ended is a `tracing` event of the target [`TARGET`] with the fields `stage` (its
//! name, one of [`NAMES`]) and `ns`. A stage may occur several times in a compilation, and what came from the
//! cache has the stage `cache` only.

use std::time::Instant;

/// The target of the events.
pub const TARGET: &str = "elinvar::compile";

/// All stages, in the order of a compilation. `header` (the precompiled header is read or made) runs beside
/// `preprocess`; all others follow each other.
pub const NAMES: [&str; 14] = [
    "cache",
    "preprocess",
    "header",
    "rewrite",
    "check",
    "spaces",
    "entry",
    "define",
    "optimize",
    "parse",
    "passes",
    "codegen",
    "link",
    "load",
];

/// Run the second one beside the first, in a thread of its own; its stages are told as if it ran here.
pub(crate) fn join<A, B: Send>(here: impl FnOnce() -> A, there: impl FnOnce() -> B + Send) -> (A, B) {
    let told = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        let there = scope.spawn(move || tracing::dispatcher::with_default(&told, there));
        let here = here();
        (here, there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Run a stage and say how long it took.
pub fn timed<T>(stage: &'static str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    tracing::debug!(target: TARGET, stage, ns);
    result
}
