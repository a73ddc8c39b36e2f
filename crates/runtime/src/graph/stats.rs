//! [`GraphStats`]: statistics of a plan and its runs.

use std::time::Duration;

use crate::Route;

/// Statistics of a [`crate::Plan`] and its runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStats {
    /// Number of nodes of the graph.
    pub nodes: usize,
    /// Names of removed dead nodes.
    pub removed: Vec<String>,
    /// Names of removed duplicate launches, each with the launch that has the same result.
    pub merged: Vec<(String, String)>,
    /// Number of commands of a run.
    pub commands: usize,
    /// Number of submissions of a run.
    pub submissions: usize,
    /// Number of streams of a run.
    pub streams: usize,
    /// Number of waits between streams of a run.
    pub waits: usize,
    /// Total size of live transients in bytes.
    pub transient_bytes: u64,
    /// Size of the memory that they share in bytes.
    pub arena_bytes: u64,
    /// Copies between devices in a run.
    pub transfers: Vec<Transfer>,
    /// Duration of planning.
    pub plan_time: Duration,
    /// Number of runs so far.
    pub runs: u64,
    /// Total duration of the calls of [`crate::Plan::run`].
    pub submit_time: Duration,
    /// Duration of the last run, on the clock of the first stream's device: from the begin of the first submission there to the end
    /// of the last. `None` until it has succeeded.
    pub run_time: Option<Duration>,
}

/// A copy between devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Name of the node.
    pub name: String,
    /// Number of bytes.
    pub bytes: u64,
    /// Path of the copy.
    pub route: Route,
}
