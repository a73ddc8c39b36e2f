//! [`Graph::plan`]: from nodes to the submissions of a run.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::{Error, Result};

use super::layout::Layout;
use super::merge::merge;
use super::parameters::{Named, Subject};
use super::prune::{Wanted, dead};
use super::replace::Replaced;
use super::run::{History, Hop, Lane};
use super::step::{Mode, Step, Touch, Work};
use super::{Graph, GraphStats, edges};
use crate::Device;
use crate::identity::identity;
use crate::launch::recording::Recording;
use crate::memory::usage::{Storage, Who};

/// Which commands are submitted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Batching {
    /// Each alone.
    None,
    /// Those of which each depends on the one before it, as long as the results of one that went well are not lost when
    /// a later one fails.
    #[default]
    Chains,
    /// All of a stream, with waits in between. When one fails, so does what the others of the stream write.
    Streams,
}

/// How a graph is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Whether work that nobody needs is left out and transients share memory.
    pub optimize: bool,
    /// What is submitted together.
    pub batching: Batching,
    /// The most streams of each device; [`crate::Limits::parallel_queues`] if not given.
    pub streams: Option<usize>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { optimize: true, batching: Batching::default(), streams: None }
    }
}

/// What runs a [`Graph`], any number of times; see [`Plan::run`].
pub struct Plan {
    pub(super) graph: u64,
    /// The device of the first stream; none for a graph without nodes.
    pub(super) main: Option<Device>,
    pub(super) lanes: Vec<Lane>,
    pub(super) segments: Vec<Segment>,
    pub(super) joins: Vec<(usize, u32)>,
    pub(super) hops: Vec<Hop>,
    pub(super) parameters: Vec<Named>,
    /// Where each node's command is.
    pub(super) sites: HashMap<usize, Site>,
    /// What replaces the buffer of a parameter, by its number.
    pub(super) replaced: HashMap<usize, Replaced>,
    pub(super) history: History,
    pub(super) stats: GraphStats,
}

/// One submission.
pub(super) struct Segment {
    pub(super) lane: usize,
    pub(super) parts: Vec<Part>,
}

pub(super) enum Part {
    /// Until a stream has done a command of that number.
    Wait(usize, u32),
    /// Until the bytes of a copy between devices are there.
    Arrive(usize),
    Run(Recording),
    /// That this stream has done the command of that number.
    Signal(u32),
}

/// Where a command is: segment, part, position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Site {
    pub(super) segment: usize,
    pub(super) part: usize,
    pub(super) at: usize,
}

impl Graph {
    /// What runs this graph, as it is now: without the work whose results nobody reads or has, on several streams where
    /// nodes do not depend on one another, and with transients that share memory.
    ///
    /// Every buffer that the program holds counts as kept, and so do parameters; transients do not.
    ///
    /// # Errors
    /// `InvalidArgument` naming the node that reads a transient before any writes it; `OutOfMemory` for the transients;
    /// `Unsupported` for a buffer parameter that a launch reaches through an address; what the driver answers when it
    /// cannot open another queue.
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
        let mut steps = self.steps.clone();
        let mut order = edges::order(&self.before());
        self.check_transients(&order)?;
        let mut stats = GraphStats { nodes: self.len(), ..GraphStats::default() };
        if options.optimize {
            self.optimize(&mut steps, &mut order, &wanted, &mut stats);
        }
        order.retain(|node| steps[*node].is_work());
        let mut plan = Layout::new(&steps, &order)?.plan(options, &mut stats)?;
        (plan.graph, plan.parameters) = (self.id, self.parameters.clone());
        plan.note_parameters();
        stats.plan_time = begin.elapsed();
        plan.stats = stats;
        Ok(plan)
    }

    fn optimize(
        &self,
        steps: &mut [Step],
        order: &mut Vec<usize>,
        wanted: &HashMap<usize, Wanted>,
        stats: &mut GraphStats,
    ) {
        let mut ordered = vec![false; steps.len()];
        for (node, step) in steps.iter().enumerate() {
            ordered[node] |= !step.after.is_empty();
            step.after.iter().for_each(|earlier| ordered[*earlier] = true);
        }
        let parameter = |node, argument| {
            self.parameters.iter().position(|parameter| match &parameter.subject {
                Subject::Values(values) => values.contains(&(node, argument)),
                Subject::Buffer(_) => false,
            })
        };
        let (merged, needless) = merge(steps, order, &ordered, parameter);
        let dead = dead(steps, order, |storage| wanted.get(&storage).copied().unwrap_or(Wanted::Nothing));
        order.retain(|node| !dead.contains(node));
        let name = |node: usize| steps[node].name.clone();
        let mut removed: Vec<usize> =
            needless.into_iter().chain(dead).filter(|n| steps[*n].is_work()).collect();
        removed.sort_unstable();
        stats.removed = removed.into_iter().map(name).collect();
        stats.merged = merged.into_iter().map(|(node, stays)| (name(node), name(stays))).collect();
    }

    /// What is wanted of each buffer at the end. Counts handles, so it is to be called before any is cloned.
    fn wanted(&self) -> HashMap<usize, Wanted> {
        let mut own: HashMap<usize, usize> = HashMap::new();
        let mut handles = HashMap::new();
        for step in &self.steps {
            for touch in &step.touches {
                *own.entry(touch.key()).or_default() += 1;
                handles.insert(touch.key(), &touch.storage);
            }
            if let Work::Transfer { source, target } = &step.work {
                *own.entry(identity(&source.storage)).or_default() += 1;
                *own.entry(identity(&target.storage)).or_default() += 1;
            }
        }
        // The handle of a parameter counts as one that the program holds.
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
            let mut touches = self.steps.iter().flat_map(|step| &step.touches);
            let by_address =
                |touch: &&Touch| touch.key() == identity(storage) && matches!(touch.who, Who::Use(..));
            if let Some(touch) = touches.find(by_address) {
                let (name, who) = (&parameter.name, &touch.who);
                return Err(Error::unsupported(format!(
                    "graph: parameter `{name}`: {who}: the address is in memory that the graph does not know"
                )));
            }
        }
        Ok(())
    }

    fn check_transients(&self, order: &[usize]) -> Result<()> {
        let mut written = HashSet::new();
        for node in order {
            for touch in self.steps[*node].touches.iter().filter(|touch| touch.is_transient()) {
                if touch.mode == Mode::Read && !touch.range.is_empty() && !written.contains(&touch.key()) {
                    let (name, who) = (&self.steps[*node].name, &touch.who);
                    return Err(Error::invalid(format!(
                        "graph: `{name}` (node {node}): {who}: the transient is read before anything writes it"
                    )));
                }
            }
            written.extend(self.steps[*node].touches.iter().filter(|t| t.writes()).map(Touch::key));
        }
        Ok(())
    }
}
