//! [`Plan::run`]: submits a plan behind a stream's pending work.
//!
//! Branches of a run synchronize through one event each, whose value increases from run to run. A run with several branches
//! begins with a signal on the given stream and ends with a wait there, so it is ordered in that stream like one submission.
//! After a failure, the next run waits until the failed one has ended everywhere, and replaces its events.

use std::fmt;
use std::time::Instant;

use elinvar_driver::{Error, Result, Timing};

use super::GraphStats;
use super::plan::{Part, Plan};
use super::schedule::BEGIN;
use crate::collective::PlannedCollective;
use crate::observe::event;
use crate::transfer::{Route, Staged, carry};
use crate::{Buffer, Completion, Device, Event, Stream};

/// A branch of a plan: commands that run on one stream.
pub(super) struct Branch {
    device: Option<Device>,
    /// `None` for the first branch, which uses the stream that is passed to a run.
    stream: Option<Stream>,
    /// Progress of the branch; `None` if nothing waits for it.
    event: Option<Event>,
    /// The event's value before the run.
    base: u64,
}

/// A copy between devices that the host performs, between two commands.
pub(super) struct HostCopy {
    /// The command after which it is performed: branch and number.
    sent: (usize, u32),
    from: Buffer<u8>,
    to: Buffer<u8>,
    bytes: u64,
    arrived: Event,
    /// The event's value before the run.
    base: u64,
}

/// Runs that may be pending.
#[derive(Default)]
pub(super) struct History {
    runs: Vec<Run>,
    /// Whether a run was submitted in part only.
    broken: bool,
    last: Option<(Stream, Completion)>,
    timed: Vec<Completion>,
}

struct Run {
    whole: Completion,
    parts: Vec<Completion>,
}

impl Branch {
    pub(super) fn new(device: Option<&Device>, branch: usize, has_event: bool) -> Result<Self> {
        let device = device.cloned();
        let stream = device.as_ref().filter(|_| branch > 0).map(Device::stream).transpose()?;
        let mut branch = Self { device, stream, event: None, base: 0 };
        if has_event {
            branch.renew()?;
        }
        Ok(branch)
    }

    /// Replaces the event, which may have failed.
    fn renew(&mut self) -> Result<()> {
        (self.event, self.base) = (self.device.as_ref().map(Device::event).transpose()?, 0);
        Ok(())
    }
}

impl HostCopy {
    pub(super) fn new(sent: (usize, u32), staged: Staged) -> Result<Self> {
        debug_assert_eq!(staged.route, Route::Host);
        let Staged { from, to, bytes, .. } = staged;
        let arrived = to.device().event()?;
        Ok(Self { sent, from, to, bytes, arrived, base: 0 })
    }

    fn renew(&mut self) -> Result<()> {
        (self.arrived, self.base) = (self.to.device().event()?, 0);
        Ok(())
    }
}

impl Plan {
    /// Runs the graph behind the stream's pending work; later work of the stream runs behind it. Does not block, except after a
    /// failed run. The stream must belong to the device of the first live node; the other streams belong to the plan.
    ///
    /// A failure fails the work that depends on it, and the stream until [`Stream::acknowledge`]. The plan can then run again;
    /// that run first waits until the failed one has ended. If there are more branches than streams, branches share a stream and
    /// its failures. [`Completion::cancel`] on the result cancels the last submission only.
    ///
    /// # Safety
    /// As for each launch of the graph, with its current arguments; see [`crate::Kernel::launch`].
    ///
    /// # Errors
    /// As [`crate::CommandBuffer::submit`]; `InvalidArgument` for a stream of another device. Submissions before the error run;
    /// work that waits for the others ends in that error.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn run(&mut self, stream: &Stream) -> Result<Completion> {
        let begin = Instant::now();
        let _span = event::graph(stream.device(), self.branches.len()).entered();
        if let Some(main) = &self.main {
            stream.device().expect_same(main, || "run: the graph begins on a node".into())?;
        }
        self.recover()?;
        self.follow(stream)?;
        let mut parts = Vec::new();
        let submitted = self.submit(stream, &mut parts);
        self.count();
        let several = self.has_events();
        match submitted {
            Ok(whole) => {
                self.history.timed = parts
                    .iter()
                    .filter(|(branch, _)| self.is_main(*branch))
                    .map(|(_, c)| c.clone())
                    .collect();
                if several {
                    let parts = parts.into_iter().map(|(_, part)| part).collect();
                    self.history.runs.push(Run { whole: whole.clone(), parts });
                }
                self.history.last = Some((stream.clone(), whole.clone()));
                self.stats.runs += 1;
                self.stats.submit_time += begin.elapsed();
                Ok(whole)
            }
            Err(cause) => {
                self.give_up(&cause);
                if let Some((_, whole)) = parts.last().cloned() {
                    let parts = parts.into_iter().map(|(_, part)| part).collect();
                    self.history.runs.push(Run { whole, parts });
                }
                self.history.broken = true;
                Err(cause)
            }
        }
    }

    /// Counts the submissions of later runs by this name, in the [metrics](Device::metrics) `elinvar.graph.submissions` and
    /// `elinvar.graph.duration`. Plans may share a name.
    pub fn set_name(&mut self, name: &str) {
        self.name = Some(name.to_owned());
    }

    /// Whether branches signal their progress, so that a failed run leaves failed events.
    fn has_events(&self) -> bool {
        self.branches.len() > 1 || !self.collectives.is_empty()
    }

    fn is_main(&self, branch: usize) -> bool {
        self.branches[branch].device == self.main
    }

    /// Submits everything; appends the submissions to `parts`, with the number of their branch.
    fn submit(&self, stream: &Stream, parts: &mut Vec<(usize, Completion)>) -> Result<Completion> {
        if self.branches.len() > 1 {
            let mut command_buffer = stream.command_buffer();
            self.signal(&mut command_buffer, 0, BEGIN);
            parts.push((0, command_buffer.submit()?));
        }
        for host_copy in &self.host_copies {
            let (from, to, arrived) =
                (host_copy.from.clone(), host_copy.to.clone(), host_copy.arrived.clone());
            let (bytes, value) = (host_copy.bytes, host_copy.base + 1);
            if let (branch, Some(event)) =
                (&self.branches[host_copy.sent.0], &self.branches[host_copy.sent.0].event)
            {
                event.when(branch.base + u64::from(host_copy.sent.1), move |sent| {
                    let carried = sent.and_then(|()| carry(&from, &to, bytes));
                    // Before the event is signaled, so that waiters find the memory released.
                    drop((from, to));
                    match carried {
                        Ok(()) => arrived.signal(value),
                        Err(cause) => arrived.fail(&cause),
                    }
                });
            }
        }
        for collective in &self.collectives {
            let branch = &self.branches[collective.sent.0];
            if let Some(event) = &branch.event {
                collective.begin((event.clone(), branch.base + u64::from(collective.sent.1)));
            }
        }
        // In the order of their first commands. The signals that a submission waits for are then submitted before the next
        // submission of its stream, which may block until it has ended; and the content that it reads is known to be overwritten.
        for segment in &self.segments {
            let on = self.branches[segment.branch].stream.as_ref().unwrap_or(stream);
            let mut command_buffer = on.command_buffer();
            command_buffer.graph = self.name.as_ref().map(|name| on.device().counters().graph(name));
            match &segment.parts[..] {
                [Part::Run(only)] => command_buffer.replay(only),
                several => {
                    several.iter().for_each(|part| self.add(&mut command_buffer, segment.branch, part))
                }
            }
            parts.push((segment.branch, command_buffer.submit()?));
        }
        let mut command_buffer = stream.command_buffer();
        self.joins.iter().for_each(|(branch, number)| self.wait(&mut command_buffer, *branch, *number));
        let last = parts.iter().rev().find(|(branch, _)| *branch == 0).filter(|_| self.joins.is_empty());
        let whole = last.map_or_else(|| command_buffer.submit(), |(_, last)| Ok(last.clone()))?;
        parts.push((0, whole.clone()));
        Ok(whole)
    }

    fn add(&self, command_buffer: &mut crate::CommandBuffer, branch: usize, part: &Part) {
        match part {
            Part::Wait(branch, number) => self.wait(command_buffer, *branch, *number),
            Part::WaitForHost(host_copy) => command_buffer
                .wait_for(&self.host_copies[*host_copy].arrived, self.host_copies[*host_copy].base + 1),
            Part::WaitForCollective(collective) => command_buffer
                .wait_for(&self.collectives[*collective].done, self.collectives[*collective].value()),
            Part::Run(recording) => command_buffer.append(recording),
            Part::Signal(number) => self.signal(command_buffer, branch, *number),
        }
    }

    fn wait(&self, command_buffer: &mut crate::CommandBuffer, branch: usize, number: u32) {
        let branch = &self.branches[branch];
        if let Some(event) = &branch.event {
            command_buffer.wait_for(event, branch.base + u64::from(number));
        }
    }

    fn signal(&self, command_buffer: &mut crate::CommandBuffer, branch: usize, number: u32) {
        let branch = &self.branches[branch];
        if let Some(event) = &branch.event {
            command_buffer.signal(event, branch.base + u64::from(number));
        }
    }

    /// Advances the events' base values for the next run.
    fn count(&mut self) {
        let length = u64::from(BEGIN) + self.stats.commands as u64;
        self.branches.iter_mut().for_each(|branch| branch.base += length);
        self.host_copies.iter_mut().for_each(|host_copy| host_copy.base += 1);
        self.collectives.iter_mut().for_each(PlannedCollective::count);
    }

    /// Fails work that waits for the missing submissions of a run.
    fn give_up(&self, cause: &Error) {
        self.branches.iter().filter_map(|branch| branch.event.as_ref()).for_each(|event| event.fail(cause));
        self.host_copies.iter().for_each(|host_copy| host_copy.arrived.fail(cause));
        self.collectives.iter().for_each(|collective| collective.done.fail(cause));
    }

    /// Restores events and streams after a failed run.
    fn recover(&mut self) -> Result<()> {
        self.history.runs.retain(|run| run.whole.timing().is_none());
        let failed = self.history.runs.iter().any(|run| run.whole.is_done());
        if !self.has_events() || !(failed || self.history.broken) {
            return Ok(());
        }
        for part in self.history.runs.iter().flat_map(|run| &run.parts) {
            part.wait_for_end("Plan::run after a failed run")?;
        }
        for branch in &mut self.branches {
            branch.stream.iter().for_each(|stream| drop(stream.acknowledge()));
            branch.renew()?;
        }
        self.host_copies.iter_mut().try_for_each(HostCopy::renew)?;
        self.collectives.iter_mut().try_for_each(PlannedCollective::renew)?;
        self.history = History::default();
        Ok(())
    }

    /// Orders a run on another stream after the previous run, which uses the same memory.
    fn follow(&mut self, stream: &Stream) -> Result<()> {
        let last = self.history.last.take().filter(|(last, whole)| last.id != stream.id && !whole.is_done());
        if let Some((last, _)) = last {
            let event = stream.device().event()?;
            last.signal(&event, 1)?;
            stream.wait_for(&event, 1)?;
        }
        Ok(())
    }

    /// Statistics of the plan and its runs so far.
    pub fn stats(&self) -> GraphStats {
        let timings: Option<Vec<Timing>> = self.history.timed.iter().map(Completion::timing).collect();
        let timings = timings.unwrap_or_default();
        let start = timings.iter().map(|timing| timing.start_ns).min();
        let end = timings.iter().map(|timing| timing.end_ns).max();
        let run_time =
            start.zip(end).map(|(start, end)| std::time::Duration::from_nanos(end.saturating_sub(start)));
        GraphStats { run_time, ..self.stats.clone() }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let GraphStats { commands, submissions, streams, .. } = &self.stats;
        write!(f, "Plan({commands} commands, {submissions} submissions, {streams} streams)")
    }
}
