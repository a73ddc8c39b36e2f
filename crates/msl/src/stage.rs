//! How long the stages of a compilation take.
//!
//! Each stage that has ended is a `tracing` event of the target [`TARGET`] with the fields `stage` (its
//! name) and `ns`; one that is part of another comes before it. What came from the cache has the stages that it took to get it from there.

use std::time::Instant;

/// The target of the events.
pub const TARGET: &str = "elinvar::compile";

/// Run a stage and say how long it took.
pub fn timed<T>(stage: &'static str, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    tracing::debug!(target: TARGET, stage, ns);
    result
}
