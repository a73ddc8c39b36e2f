//! [`GraphStats`]: what became of a graph's nodes and what its runs cost.

use std::time::Duration;

/// What a [`crate::Plan`] made of its graph, and its runs so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GraphStats {
    /// Nodes of the graph.
    pub nodes: usize,
    /// Names of the nodes that were left out because nobody reads what they write.
    pub removed: Vec<String>,
    /// Names of the launches that were left out because another has the same result, and of that one.
    pub merged: Vec<(String, String)>,
    /// Commands of a run.
    pub commands: usize,
    /// Submissions of a run.
    pub submissions: usize,
    /// Streams of a run.
    pub streams: usize,
    /// Waits of a run, of streams for one another.
    pub waits: usize,
    /// Bytes of the transients that are used.
    pub transient_bytes: u64,
    /// Bytes of the memory that they share.
    pub arena_bytes: u64,
    /// Copies between devices.
    pub transfers: Vec<Transfer>,
    /// How long planning took.
    pub plan_time: Duration,
    /// Runs so far.
    pub runs: u64,
    /// What they took of the time of the threads that submitted them, all together.
    pub submit_time: Duration,
    /// By the clock of the first stream's device: from the begin of the last run's first submission there to the end of its
    /// last; `None` before it has ended well.
    pub run_time: Option<Duration>,
}

/// A copy between devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// The node's name.
    pub name: String,
    /// How many bytes.
    pub bytes: u64,
    /// The way they take.
    pub route: Route,
}

/// A way between devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// The source's device copies to memory that the host sees, the host to such memory of the other device, and that one
    /// to the target.
    Host,
    /// The source's device copies to memory of the host, which the other device uses in place.
    HostInPlace,
    /// The source's device copies to the other's memory, over the link or the bus between them.
    Peer,
    /// One copy of the source's device, which its driver takes through memory of the host.
    Driver,
}
