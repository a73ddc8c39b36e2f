//! Timing of compilation stages.
//!
//! Each finished stage is a `tracing` event with target [`TARGET`] and the fields `stage` (one of [`NAMES`]) and `ns`
//! (nanoseconds). A stage may occur several times; a cache hit has the stage `cache` only.

use std::time::Instant;

/// Target of the events.
pub const TARGET: &str = "elinvar::compile";

/// All stages in order. `header` (the precompiled header of the declarations is loaded or built) runs concurrently with `preprocess`;
/// `select` (which of several kernel templates of one name an instantiation selects) is there if names are ambiguous; `precompile` is part
/// of the second kernel of a source.
pub const NAMES: [&str; 16] = [
    "cache",
    "preprocess",
    "header",
    "rewrite",
    "select",
    "check",
    "spaces",
    "precompile",
    "entry",
    "define",
    "optimize",
    "parse",
    "passes",
    "codegen",
    "link",
    "load",
];

/// Run two functions concurrently; `there` runs on its own thread, with the events of this one's subscriber.
pub(crate) fn join<A, B: Send>(here: impl FnOnce() -> A, there: impl FnOnce() -> B + Send) -> (A, B) {
    let told = tracing::dispatcher::get_default(Clone::clone);
    std::thread::scope(|scope| {
        let there = scope.spawn(move || tracing::dispatcher::with_default(&told, there));
        let here = here();
        (here, there.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// Run a stage and report its time.
pub fn timed<T>(stage: &'static str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    tracing::debug!(target: TARGET, stage, ns);
    result
}
