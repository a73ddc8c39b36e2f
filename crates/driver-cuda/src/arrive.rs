//! What the host does as the device comes along: times, events, and the ends of submissions. All of it is done on the
//! device's thread, in the order in which the stream was given its work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use elinvar_driver::{Command, Done, Error, Event, Result, Timing, end_submission};

use crate::clock::now_ns;
use crate::context::DeviceEvent;
use crate::encode::HostStep;
use crate::failure::Failure;
use crate::kept::Kept;
use crate::lane::{Flight, Lane};

/// Something for the host to do when the device has come so far.
pub(crate) struct Mark {
    /// `None`: when what is before it has been done.
    pub(crate) at: Option<Arc<DeviceEvent>>,
    /// It was given by the host then, so it was not before.
    pub(crate) given_ns: u64,
    /// Commands that the device has done then.
    pub(crate) commands: u32,
    pub(crate) kept: Kept,
    pub(crate) what: What,
}

pub(crate) enum What {
    /// A submission begins.
    Begin,
    Host(HostStep),
    /// A part of a submission has ended.
    Part,
    /// A submission has ended.
    End(Ending),
}

pub(crate) struct Ending {
    pub(crate) id: u64,
    pub(crate) commands: Arc<[Command]>,
    pub(crate) has_begun: bool,
    pub(crate) waits: Vec<(Arc<dyn Event>, u64)>,
    pub(crate) done: Done,
    pub(crate) result: Result<()>,
}

/// What is done without the lock.
pub(crate) enum Reached {
    Signal(Arc<dyn Event>, u64, u64),
    End(Arc<[Command]>, Done, Result<Timing>),
}

/// So many marks ahead are asked for at once, since all before one that was reached have been.
const MANY: usize = 16;

/// After so many have ended those who wait are told.
const MOST_AT_ONCE: usize = 64;

/// What a turn has brought.
pub(crate) struct Turn {
    pub(crate) has_done: bool,
    /// Whether so much is in flight that nobody waits for what is next.
    pub(crate) is_busy: bool,
    pub(crate) goes_on: bool,
}

impl Lane {
    /// Do what is to be done for what the device has come to. Only the device's thread calls this.
    pub(crate) fn turn(self: &Arc<Self>) -> Turn {
        let mut reached = Vec::new();
        let collected = self.collect(&mut reached);
        let has_done = !reached.is_empty();
        reached.into_iter().for_each(Reached::act);
        if let Err(failure) = collected {
            self.shared.fail(failure);
        }
        let is_empty = self.flight.lock().marks.is_empty();
        if self.has_backlog.load(Ordering::Acquire) && (has_done || is_empty) {
            self.advance(self.state.lock());
        }
        let mut flight = self.flight.lock();
        flight.is_watched = !flight.marks.is_empty();
        Turn { has_done, is_busy: flight.marks.len() > MANY, goes_on: flight.is_watched }
    }

    fn collect(&self, reached: &mut Vec<Reached>) -> Result<(), Failure> {
        let Ok(_current) = self.shared.context.enter() else {
            self.take_all(None, reached);
            return Ok(());
        };
        let mut come: Option<(Arc<DeviceEvent>, u64)> = None;
        // Marks from the first on of which it is known that the device has come there.
        let mut known = 0;
        loop {
            // Nobody else takes from the list: what is first stays first without the lock.
            let (at, far) = {
                let flight = self.flight.lock();
                if let Some(failure) = flight.broken {
                    return Err(failure);
                }
                let Some(mark) = flight.marks.front() else { break };
                (mark.at.clone(), flight.marks.get(MANY - 1).and_then(|mark| mark.at.clone()))
            };
            if known == 0
                && let Some(far) = far
                && far.has_come()?
            {
                known = MANY;
            }
            let ns = match at {
                None => 0,
                Some(at) => match &come {
                    Some((known, ns)) if Arc::ptr_eq(known, &at) => *ns,
                    _ if known == 0 && !at.has_come()? => return Ok(()),
                    _ => {
                        let ns = self.shared.clock.place(&at)?;
                        come = Some((at, ns));
                        ns
                    }
                },
            };
            if !self.pass(ns, reached) {
                return Ok(());
            }
            known = known.saturating_sub(1);
            if reached.len() >= MOST_AT_ONCE {
                return Ok(());
            }
        }
        self.shared.clock.refresh()
    }

    /// The device has come to the first mark. `false` if the host has to know more first.
    fn pass(&self, ns: u64, reached: &mut Vec<Reached>) -> bool {
        let mut flight = self.flight.lock();
        let Some(mark) = flight.marks.front() else { return false };
        if let What::End(end) = &mark.what
            && end.waits.iter().any(|(event, value)| event.value() < *value && event.failure().is_none())
        {
            // The device knows it, the host not yet: its turn comes.
            return false;
        }
        let ns = ns.max(mark.given_ns).min(now_ns()).max(flight.last_ns);
        flight.last_ns = ns;
        let Some(Mark { commands, kept, what, .. }) = flight.marks.pop_front() else { return false };
        flight.commands -= commands;
        match what {
            What::Begin => flight.start_ns = ns,
            What::Host(HostStep::Stamp(into)) => into.set(ns),
            What::Host(HostStep::Signal(event, value)) => reached.push(Reached::Signal(event, value, ns)),
            What::Part => {}
            What::End(end) => {
                let timing =
                    Timing { start_ns: if end.has_begun { flight.start_ns } else { ns }, end_ns: ns };
                if end.has_begun {
                    flight.submissions -= 1;
                    let took = timing.end_ns.saturating_sub(timing.start_ns);
                    flight.mean_ns = Some(flight.mean_ns.map_or(took, |mean| (3 * mean + took) / 4));
                }
                reached.push(Reached::End(end.commands, end.done, end.result.map(|()| timing)));
            }
        }
        drop(flight);
        self.let_go(kept);
        true
    }

    /// What a part of a submission has needed is needed no more; what the host was to look at is known now.
    fn let_go(&self, kept: Kept) {
        if kept.has_news() {
            let mut state = self.state.lock();
            state.holds = false;
            if let Some(entry) = state.waiting.front_mut() {
                entry.counts = kept.counts();
                entry.ended = kept.fault().or(entry.ended.take());
            }
        }
        kept.end(&self.shared.chunks);
    }

    /// The kernels that the device has been given and may not have ended, by submission.
    pub(crate) fn suspects(&self) -> Vec<Arc<[Command]>> {
        let state = self.state.lock();
        let flight = self.flight.lock();
        let flying = flight.marks.iter().filter_map(|mark| match &mark.what {
            What::End(end) if end.has_begun && end.result.is_ok() => Some(end.commands.clone()),
            _ => None,
        });
        flying
            .chain(state.waiting.iter().filter(|entry| entry.has_begun).map(|entry| entry.commands.clone()))
            .collect()
    }

    /// Let everything end, since the context has. The submission of `guilty` ends in that error.
    pub(crate) fn abandon(&self, guilty: Option<(&Arc<[Command]>, &Error)>) {
        let mut reached = Vec::new();
        self.take_all(guilty, &mut reached);
        reached.into_iter().for_each(Reached::act);
    }

    fn take_all(&self, guilty: Option<(&Arc<[Command]>, &Error)>, reached: &mut Vec<Reached>) {
        let mut state = self.state.lock();
        let marks = {
            let mut flight = self.flight.lock();
            let marks = std::mem::take(&mut flight.marks);
            *flight = Flight { is_watched: flight.is_watched, ..Flight::default() };
            marks
        };
        let lost = self.shared.context.lost().cloned();
        let lost =
            lost.unwrap_or_else(|| Error::DeviceLost(format!("device `{}`", self.shared.context.name)));
        let mut behind = lost.clone();
        let mut end = |commands: Arc<[Command]>, done, known: Result<()>| {
            let error = match (guilty, known) {
                (_, Err(known)) => known,
                (Some((theirs, fault)), _) if Arc::ptr_eq(theirs, &commands) => {
                    behind = fault.poison();
                    (*fault).clone()
                }
                _ => behind.clone(),
            };
            reached.push(Reached::End(commands, done, Err(error)));
        };
        for mark in marks {
            if let What::End(Ending { commands, done, result, .. }) = mark.what {
                end(commands, done, result);
            }
        }
        for entry in std::mem::take(&mut state.waiting) {
            end(entry.commands, entry.done, entry.ended.map_or(Ok(()), Err));
        }
        let failure = state.failure.take().unwrap_or_else(|| guilty.map_or(lost, |(_, fault)| fault.clone()));
        state.forget(failure);
        self.has_backlog.store(false, Ordering::Release);
    }
}

impl Reached {
    /// Tell those who wait. A panic of a callback ends here: the hook has reported it, and nobody is left to tell.
    pub(crate) fn act(self) {
        match self {
            Self::Signal(event, value, ns) => {
                let _panic = catch_unwind(AssertUnwindSafe(|| event.signal(value, ns)));
            }
            Self::End(commands, done, result) => end_submission(commands, done, result),
        }
    }
}
