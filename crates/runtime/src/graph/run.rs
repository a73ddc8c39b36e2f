//! [`Plan::run`]: the submissions of a plan, behind what a stream has.
//!
//! Streams of a run tell one another how far they are through an event each, which counts on from run to run. A run with
//! several streams begins with a signal on the one that it is given and ends with a wait there, so that it takes its place
//! in that stream's order as one submission would. After a failure, events and streams are put in order before the
//! next run, when the last has ended everywhere.

use std::fmt;
use std::time::Instant;

use elinvar_driver::{Error, Result, Timing};

use super::plan::{Part, Plan};
use super::schedule::BEGIN;
use super::transfer::{Staged, carry};
use super::{GraphStats, Route};
use crate::{Buffer, Completion, Device, Event, Stream};

/// A stream of a plan.
pub(super) struct Lane {
    device: Option<Device>,
    /// None for the first, which is the one that a run is given.
    stream: Option<Stream>,
    /// How far it is; none if there is no other.
    event: Option<Event>,
    /// The event's value before the run.
    base: u64,
}

/// Bytes that the host moves between two commands.
pub(super) struct Hop {
    /// The command after which it does: stream and number.
    sent: (usize, u32),
    from: Buffer<u8>,
    to: Buffer<u8>,
    bytes: u64,
    arrived: Event,
    /// The event's value before the run.
    base: u64,
}

/// The runs that may not have ended.
#[derive(Default)]
pub(super) struct History {
    runs: Vec<Run>,
    /// Whether one was not submitted in full.
    broken: bool,
    last: Option<(Stream, Completion)>,
    timed: Vec<Completion>,
}

struct Run {
    whole: Completion,
    parts: Vec<Completion>,
}

impl Lane {
    pub(super) fn new(device: Option<&Device>, lane: usize, lanes: usize) -> Result<Self> {
        let device = device.cloned();
        let stream = device.as_ref().filter(|_| lane > 0).map(Device::stream).transpose()?;
        let mut lane = Self { device, stream, event: None, base: 0 };
        if lanes > 1 {
            lane.renew()?;
        }
        Ok(lane)
    }

    /// A new event, in place of one that may have failed.
    fn renew(&mut self) -> Result<()> {
        (self.event, self.base) = (self.device.as_ref().map(Device::event).transpose()?, 0);
        Ok(())
    }
}

impl Hop {
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
    /// Run the graph behind the work that `stream` has; what the stream gets later runs behind it. Returns at once. The stream
    /// is of the device of the first node that is left; the others are the plan's own.
    ///
    /// What fails takes with it what depends on it, and the stream, until [`Stream::acknowledge`]; then the plan can run again,
    /// and waits first until all of the run that failed has ended. More branches than streams share them, and fail
    /// together. To cancel what is returned takes back the last submission only.
    ///
    /// # Safety
    /// As for each launch of the graph, with the arguments that it has now: see [`crate::Kernel::launch`].
    ///
    /// # Errors
    /// As [`crate::CommandBuffer::submit`]; `InvalidArgument` for a stream of another device. What was submitted before the error
    /// runs, and what waits for the rest ends in that error.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn run(&mut self, stream: &Stream) -> Result<Completion> {
        let begin = Instant::now();
        if let Some(main) = &self.main {
            stream.device().expect_same(main, || "run: the graph begins on a node".into())?;
        }
        self.recover()?;
        self.follow(stream)?;
        let mut parts = Vec::new();
        let submitted = self.submit(stream, &mut parts);
        self.count();
        let several = self.lanes.len() > 1;
        match submitted {
            Ok(whole) => {
                self.history.timed =
                    parts.iter().filter(|(lane, _)| self.is_main(*lane)).map(|(_, c)| c.clone()).collect();
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

    fn is_main(&self, lane: usize) -> bool {
        self.lanes[lane].device == self.main
    }

    /// Submits everything; adds what was submitted to `parts`, with its stream's number.
    fn submit(&self, stream: &Stream, parts: &mut Vec<(usize, Completion)>) -> Result<Completion> {
        if self.lanes.len() > 1 {
            let mut command_buffer = stream.command_buffer();
            self.signal(&mut command_buffer, 0, BEGIN);
            parts.push((0, command_buffer.submit()?));
        }
        for hop in &self.hops {
            let (from, to, arrived) = (hop.from.clone(), hop.to.clone(), hop.arrived.clone());
            let (bytes, value) = (hop.bytes, hop.base + 1);
            if let (lane, Some(event)) = (&self.lanes[hop.sent.0], &self.lanes[hop.sent.0].event) {
                event.when(lane.base + u64::from(hop.sent.1), move |sent| {
                    let carried = sent.and_then(|()| carry(&from, &to, bytes));
                    // Before anybody knows: who then waits finds memory given back that only this copy still had.
                    drop((from, to));
                    match carried {
                        Ok(()) => arrived.signal(value),
                        Err(cause) => arrived.fail(&cause),
                    }
                });
            }
        }
        // In the order of their first commands. What a submission waits for is then there before the next of its stream,
        // which may block until it has ended; and what it reads is known to be written anew.
        for segment in &self.segments {
            let on = self.lanes[segment.lane].stream.as_ref().unwrap_or(stream);
            let mut command_buffer = on.command_buffer();
            match &segment.parts[..] {
                [Part::Run(only)] => command_buffer.replay(only.commands.clone(), only.usages.clone()),
                several => several.iter().for_each(|part| self.add(&mut command_buffer, segment.lane, part)),
            }
            parts.push((segment.lane, command_buffer.submit()?));
        }
        let mut command_buffer = stream.command_buffer();
        self.joins.iter().for_each(|(lane, number)| self.wait(&mut command_buffer, *lane, *number));
        let last = parts.iter().rev().find(|(lane, _)| *lane == 0).filter(|_| self.joins.is_empty());
        let whole = last.map_or_else(|| command_buffer.submit(), |(_, last)| Ok(last.clone()))?;
        parts.push((0, whole.clone()));
        Ok(whole)
    }

    fn add(&self, command_buffer: &mut crate::CommandBuffer, lane: usize, part: &Part) {
        match part {
            Part::Wait(lane, number) => self.wait(command_buffer, *lane, *number),
            Part::Arrive(hop) => command_buffer.wait_for(&self.hops[*hop].arrived, self.hops[*hop].base + 1),
            Part::Run(recording) => command_buffer.append(&recording.commands, &recording.usages),
            Part::Signal(number) => self.signal(command_buffer, lane, *number),
        }
    }

    fn wait(&self, command_buffer: &mut crate::CommandBuffer, lane: usize, number: u32) {
        let lane = &self.lanes[lane];
        if let Some(event) = &lane.event {
            command_buffer.wait_for(event, lane.base + u64::from(number));
        }
    }

    fn signal(&self, command_buffer: &mut crate::CommandBuffer, lane: usize, number: u32) {
        let lane = &self.lanes[lane];
        if let Some(event) = &lane.event {
            command_buffer.signal(event, lane.base + u64::from(number));
        }
    }

    /// Lets the next run count on where this one ends.
    fn count(&mut self) {
        let length = u64::from(BEGIN) + self.stats.commands as u64;
        self.lanes.iter_mut().for_each(|lane| lane.base += length);
        self.hops.iter_mut().for_each(|hop| hop.base += 1);
    }

    /// Lets what waits for the rest of a run know that it does not come.
    fn give_up(&self, cause: &Error) {
        self.lanes.iter().filter_map(|lane| lane.event.as_ref()).for_each(|event| event.fail(cause));
        self.hops.iter().for_each(|hop| hop.arrived.fail(cause));
    }

    /// Puts events and streams in order if an earlier run has failed.
    fn recover(&mut self) -> Result<()> {
        self.history.runs.retain(|run| run.whole.timing().is_none());
        let failed = self.history.runs.iter().any(|run| run.whole.is_done());
        if self.lanes.len() == 1 || !(failed || self.history.broken) {
            return Ok(());
        }
        for part in self.history.runs.iter().flat_map(|run| &run.parts) {
            part.wait_for_end("Plan::run behind a run that has failed")?;
        }
        for lane in &mut self.lanes {
            lane.stream.iter().for_each(|stream| drop(stream.acknowledge()));
            lane.renew()?;
        }
        self.hops.iter_mut().try_for_each(Hop::renew)?;
        self.history = History::default();
        Ok(())
    }

    /// Lets a run on another stream come after the last: both use the same memory.
    fn follow(&mut self, stream: &Stream) -> Result<()> {
        let last = self.history.last.take().filter(|(last, whole)| last.id != stream.id && !whole.is_done());
        if let Some((last, _)) = last {
            let event = stream.device().event()?;
            last.signal(&event, 1)?;
            stream.wait_for(&event, 1)?;
        }
        Ok(())
    }

    /// What became of the graph's nodes, and the runs so far.
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
