//! Batches: dispatches that are not ordered, as commands between two barriers of an indirect command buffer, run as one job of the workers.
//!
//! The threadgroups of all members are numbered consecutively, so that workers share many small dispatches as they share a large one.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use elinvar_driver::{Dim3, Dispatch, Error, Pipeline, Result};

use crate::encode::{self, Plan, Running};
use crate::job::{Demand, RANGE_NS, Work};
use crate::kernel::{CompiledKernel, CpuPipeline};
use crate::pool::Worker;
use crate::scratch::Scratch;
use crate::stop::Stop;

/// Maximum number of members.
const MOST: usize = 256;

/// A dispatch of a batch.
struct Member {
    pipeline: Arc<dyn Pipeline>,
    kernel: Arc<CompiledKernel>,
    group: Dim3,
    largest: u64,
    /// Its threadgroups among those of the batch.
    groups: Range<u64>,
    /// Number by which the owner knows it.
    tag: [u32; 2],
}

/// What workers run.
#[derive(Default)]
struct Members {
    /// The first as many as there are members are in use.
    running: Vec<Running>,
    ends: Vec<u64>,
}

impl Work for Members {
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()> {
        let mut next = groups.start;
        let mut at = self.ends.partition_point(|end| *end <= next);
        while next < groups.end {
            let first = if at == 0 { 0 } else { self.ends[at - 1] };
            let end = groups.end.min(self.ends[at]);
            self.running[at].run(next - first..end - first, scratch)?;
            (next, at) = (end, at + 1);
        }
        ControlFlow::Continue(())
    }
}

/// Dispatches that are collected, and run when the batch is full or its owner needs their results.
#[derive(Default)]
pub(crate) struct Batch {
    work: Arc<Members>,
    members: Vec<Member>,
}

impl Batch {
    /// Adds a dispatch of a kernel without grid barriers, which is prepared. `tag` is passed to `place` for a fault of it. Runs the batch if it is
    /// full.
    ///
    /// # Errors
    /// As [`Batch::run`]; a dispatch that is too large.
    pub(crate) fn push(
        &mut self,
        dispatch: &Dispatch,
        tag: [u32; 2],
        (stop, worker): (&Arc<Stop>, &mut Worker),
        place: impl Fn([u32; 2]) -> String,
    ) -> Result<()> {
        let Some(Plan { pipeline, kernel, threads, total, largest }) = encode::plan(dispatch)? else {
            return Ok(());
        };
        let first = self.members.last().map_or(0, |member| member.groups.end);
        let end = first.checked_add(total).filter(|end| u128::from(*end) < encode::MAX_GROUPS);
        if self.members.len() == MOST || end.is_none() {
            self.run(worker, &place)?;
            return self.push(dispatch, tag, (stop, worker), place);
        }
        let groups = first..first.saturating_add(total);
        // A helper of the previous batch may not have dropped it yet.
        if Arc::get_mut(&mut self.work).is_none() {
            self.work = Arc::default();
        }
        let Some(work) = Arc::get_mut(&mut self.work) else { return Ok(()) };
        let at = self.members.len();
        if work.running.len() == at {
            work.running.push(Running::default());
        }
        work.running[at].set(dispatch, threads, &kernel, stop, pipeline.log_kernel())?;
        work.ends.truncate(at);
        work.ends.push(groups.end);
        let (pipeline, group) = (dispatch.pipeline.clone(), dispatch.group);
        self.members.push(Member { pipeline, kernel, group, largest, groups, tag });
        Ok(())
    }

    /// Runs the collected dispatches.
    ///
    /// # Errors
    /// The first failure of a member, in their order; a fault begins with its place.
    pub(crate) fn run(&mut self, worker: &mut Worker, place: impl Fn([u32; 2]) -> String) -> Result<()> {
        let members = std::mem::take(&mut self.members);
        let Some(last) = members.last() else { return Ok(()) };
        let groups = last.groups.end;
        let known = |member: &Member| {
            let count = member.groups.end - member.groups.start;
            member.kernel.group_ns.load(Ordering::Relaxed).saturating_mul(count)
        };
        let known_ns = members.iter().map(known).fold(0, u64::saturating_add);
        let demand = Demand {
            groups,
            group_ns: known_ns / groups,
            ascending: members.iter().any(|member| member.kernel.ascending),
            range_ns: members.iter().map(|member| encode::range_ns(&member.kernel)).max().unwrap_or(RANGE_NS),
        };
        let ran = worker.run(&self.work, demand);
        let running = self.work.running.iter().zip(&members);
        let ended = running.map(|(running, member)| {
            running.end().map_err(|error| encode::within(error, || place(member.tag)))
        });
        // A failure of a member is the cause of what the workers report.
        let ended = ended.collect::<Vec<Result<()>>>().into_iter().collect::<Result<()>>();
        if let Some(work) = Arc::get_mut(&mut self.work) {
            work.running.iter_mut().for_each(Running::release);
        }
        let group_ns = ran?;
        ended?;
        let one = &members[0].kernel;
        let is_one = members.iter().all(|member| Arc::ptr_eq(&member.kernel, one));
        for member in &members {
            let own = member.kernel.group_ns.load(Ordering::Relaxed);
            let ns = if is_one || own == 0 { group_ns } else { own };
            member.kernel.group_ns.store(ns, Ordering::Relaxed);
            let pipeline: &dyn std::any::Any = &*member.pipeline;
            if let Some(pipeline) = pipeline.downcast_ref::<CpuPipeline>() {
                let count = member.groups.end - member.groups.start;
                pipeline.ran(member.group, member.largest, ns.saturating_mul(count));
            }
        }
        Ok(())
    }

    /// Runs the collected dispatches before an error of what would be next; returns the first error.
    pub(crate) fn run_before(
        &mut self,
        error: Error,
        worker: &mut Worker,
        place: impl Fn([u32; 2]) -> String,
    ) -> Error {
        self.run(worker, place).err().unwrap_or(error)
    }
}
