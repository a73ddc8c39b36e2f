//! [`Graph::plan`]: compiles a graph to the submissions of a run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::{Error, Result};

use super::layout::Layout;
use super::merge::merge;
use super::node::{MemoryAccess, Mode, NodeData, Work};
use super::parameters::{Named, Subject};
use super::prune::{Wanted, dead};
use super::replace::Replaced;
use super::run::{Branch, History, HostCopy};
use super::{Graph, GraphStats, edges};
use crate::Device;
use crate::collective::PlannedCollective;
use crate::identity::identity;
use crate::launch::recording::Recording;
use crate::memory::usage::{Storage, Who};

/// Grouping of commands into submissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// One submission for each command.
    None,
    /// One submission for each chain of commands that depend on one another, unless the failure of a command would lose results of
    /// a preceding one.
    #[default]
    Chains,
    /// One submission for each stream, with waits in between. If a command fails, the results of the whole submission are lost.
    Streams,
}

/// Options of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether to remove dead and duplicate nodes, and to share memory between transients.
    pub optimize: bool,
    /// Grouping of commands into submissions.
    pub batching: Batching,
    /// Maximum number of streams of each device (0 counts as 1). `None` for [`crate::Limits::parallel_queues`].
    pub streams: Option<usize>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { optimize: true, batching: Batching::default(), streams: None }
    }
}

/// An executable [`Graph`], which can run any number of times; see [`Plan::run`].
pub struct Plan {
    pub(super) graph: u64,
    /// Name in metrics.
    pub(super) name: Option<String>,
    /// The device of the first branch; `None` for an empty graph.
    pub(super) main: Option<Device>,
    pub(super) branches: Vec<Branch>,
    pub(super) segments: Vec<Segment>,
    pub(super) joins: Vec<(usize, u32)>,
    pub(super) host_copies: Vec<HostCopy>,
    pub(super) collectives: Vec<PlannedCollective>,
    pub(super) parameters: Vec<Named>,
    /// Index of each node's command.
    pub(super) command_indices: HashMap<usize, CommandIndex>,
    /// Current buffers of parameters, by number.
    pub(super) replaced: HashMap<usize, Replaced>,
    pub(super) history: History,
    pub(super) stats: GraphStats,
}

/// A submission.
pub(super) struct Segment {
    pub(super) branch: usize,
    pub(super) parts: Vec<Part>,
}

pub(super) enum Part {
    /// Waits until a branch has executed the command of this number.
    Wait(usize, u32),
    /// Waits until the host has performed a copy between devices.
    WaitForHost(usize),
    /// Waits until a collective has ended.
    WaitForCollective(usize),
    Run(Recording),
    /// Signals that this branch has executed the command of this number.
    Signal(u32),
}

/// Position of a command: segment, part, index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CommandIndex {
    pub(super) segment: usize,
    pub(super) part: usize,
    pub(super) at: usize,
}

impl Graph {
    /// Compiles the graph, as it is now: removes dead and duplicate nodes, assigns independent nodes to several streams, and
    /// places transients in shared memory.
    ///
    /// Every buffer that the program holds counts as live, and so do parameters; transients do not.
    ///
    /// # Errors
    /// `InvalidArgument` that names the node if a transient is read before it is written; `OutOfMemory` for the transients;
    /// `Unsupported` for a buffer parameter that a launch accesses through an address; the driver's if it cannot create another
    /// queue.
    pub fn plan(&self) -> Result<Plan> {
        self.plan_with(PlanOptions::default())
    }

    /// As [`Graph::plan`], with options.
    ///
    /// # Errors
    /// As [`Graph::plan`].
    pub fn plan_with(&self, options: PlanOptions) -> Result<Plan> {
        let begin = Instant::now();
        self.check_parameters()?;
        let wanted = self.wanted();
        let mut nodes = self.nodes.clone();
        let mut order = edges::order(&self.before());
        self.check_transients(&order)?;
        let mut stats = GraphStats { nodes: self.len(), ..GraphStats::default() };
        if options.optimize {
            self.optimize(&mut nodes, &mut order, &wanted, &mut stats);
        }
        order.retain(|node| nodes[*node].is_work());
        let mut plan = Layout::new(&nodes, &order)?.plan((self.id, &nodes), options, &mut stats)?;
        plan.parameters = self.parameters.clone();
        plan.note_parameters();
        stats.plan_time = begin.elapsed();
        plan.stats = stats;
        Ok(plan)
    }

    fn optimize(
        &self,
        nodes: &mut [NodeData],
        order: &mut Vec<usize>,
        wanted: &HashMap<usize, Wanted>,
        stats: &mut GraphStats,
    ) {
        let mut ordered = vec![false; nodes.len()];
        for (node, data) in nodes.iter().enumerate() {
            ordered[node] |= !data.after.is_empty();
            data.after.iter().for_each(|earlier| ordered[*earlier] = true);
        }
        let parameter = |node, argument| {
            self.parameters.iter().position(|parameter| match &parameter.subject {
                Subject::Values(values) => values.contains(&(node, argument)),
                Subject::Buffer(_) => false,
            })
        };
        let (merged, needless) = merge(nodes, order, &ordered, parameter);
        let dead = dead(nodes, order, |storage| wanted.get(&storage).copied().unwrap_or(Wanted::Nothing));
        order.retain(|node| !dead.contains(node));
        let name = |node: usize| nodes[node].name.clone();
        let mut removed: Vec<usize> =
            needless.into_iter().chain(dead).filter(|n| nodes[*n].is_work()).collect();
        removed.sort_unstable();
        stats.removed = removed.into_iter().map(name).collect();
        stats.merged = merged.into_iter().map(|(node, stays)| (name(node), name(stays))).collect();
    }

    /// Liveness of each buffer at the end of a run. Counts handles, so it must be called before any is cloned.
    fn wanted(&self) -> HashMap<usize, Wanted> {
        let mut own: HashMap<usize, usize> = HashMap::new();
        let mut handles = HashMap::new();
        for data in &self.nodes {
            for access in &data.accesses {
                *own.entry(access.key()).or_default() += 1;
                handles.insert(access.key(), &access.storage);
            }
            if let Work::Transfer { source, target } = &data.work {
                *own.entry(identity(&source.storage)).or_default() += 1;
                *own.entry(identity(&target.storage)).or_default() += 1;
            }
        }
        // The handle of a parameter counts as held by the program.
        let wanted = |(storage, handle): (usize, &Arc<Storage>)| {
            let held = Arc::strong_count(handle) > own[&storage];
            let wanted = match handle.block.is_placeholder() {
                true => Wanted::Nothing,
                false if held => Wanted::Whole,
                false => Wanted::ByNextRun,
            };
            (storage, wanted)
        };
        handles.into_iter().map(wanted).collect()
    }

    fn check_parameters(&self) -> Result<()> {
        for parameter in &self.parameters {
            let Subject::Buffer(storage) = &parameter.subject else { continue };
            let is_collective = |data: &&NodeData| {
                let uses = |access: &MemoryAccess| access.key() == identity(storage);
                matches!(data.work, Work::Collective(_)) && data.accesses.iter().any(uses)
            };
            if let Some(data) = self.nodes.iter().find(is_collective) {
                let (name, node) = (&parameter.name, &data.name);
                return Err(Error::unsupported(format!(
                    "graph: parameter `{name}`: {node}: a buffer of a collective cannot be replaced"
                )));
            }
            let mut accesses = self.nodes.iter().flat_map(|data| &data.accesses);
            let by_address = |access: &&MemoryAccess| {
                access.key() == identity(storage) && matches!(access.who, Who::Use(..))
            };
            if let Some(access) = accesses.find(by_address) {
                let (name, who) = (&parameter.name, &access.who);
                return Err(Error::unsupported(format!(
                    "graph: parameter `{name}`: {who}: a buffer that is accessed through an address cannot be replaced"
                )));
            }
        }
        Ok(())
    }

    fn check_transients(&self, order: &[usize]) -> Result<()> {
        let mut written = HashSet::new();
        for node in order {
            for access in self.nodes[*node].accesses.iter().filter(|access| access.is_transient()) {
                if access.mode == Mode::Read && !access.range.is_empty() && !written.contains(&access.key()) {
                    let (name, who) = (&self.nodes[*node].name, &access.who);
                    return Err(Error::invalid(format!(
                        "graph: `{name}` (node {node}): {who}: the transient is read before it is written"
                    )));
                }
            }
            written.extend(self.nodes[*node].accesses.iter().filter(|t| t.writes()).map(MemoryAccess::key));
        }
        Ok(())
    }
}
