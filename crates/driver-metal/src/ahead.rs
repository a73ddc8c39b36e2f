//! [`Ahead`]: decides which command buffers a queue may commit while earlier ones are in flight.
//!
//! If a command buffer fails, Metal still executes those committed behind it, but the contract says that they do not run. Therefore a command
//! buffer is committed ahead only if its execution behind a failure is unobservable, except for its outputs, which are poisoned:
//!
//! 1. Its writes are disjoint from all accesses of the command buffers in flight, because those may be retried.
//! 2. No command of it writes what the command or an earlier one of the command buffer reads, unless a copy, a fill or a primitive of the
//!    command buffer has overwritten it before: it may be retried itself.
//! 3. The bytes that it accesses do not depend on contents that a failure leaves undefined: no command *steers* by memory that a command
//!    buffer in flight writes, or by memory computed from that. Therefore it writes the same bytes as after a success, and terminates equally.
//!
//! The GPU may wait for an event that a queue of the same device raises behind command buffers in flight. These count as in flight here as
//! well, until the event is raised (see [`Gate`]).
//!
//! Reading the output of a command buffer in flight is otherwise allowed. Not committed ahead are command buffers whose reads Metal would not
//! order behind writes in flight, because they use another object over the same memory, and those with more than [`MOST`] accesses.
//! `docs/metal.md` gives the reasons.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of command buffers in flight on a queue. Metal allows 64 (`maxCommandBufferCount`).
pub(crate) const DEPTH: usize = 8;
/// Maximum number of accesses of a command buffer that are compared.
const MOST: usize = 256;

/// Kind of access to a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Effect {
    reads: bool,
    /// Whether other accesses depend on the values read.
    steers: bool,
    writes: bool,
    /// Whether all bytes are written, whatever is read.
    overwrites: bool,
}

impl Effect {
    const NONE: Self = Self { reads: false, steers: false, writes: false, overwrites: false };
    pub(crate) const READS: Self = Self { reads: true, ..Self::NONE };
    /// Writes some or all of the bytes, reads none.
    pub(crate) const MAY_WRITE: Self = Self { writes: true, ..Self::NONE };
    pub(crate) const OVERWRITES: Self = Self { overwrites: true, ..Self::MAY_WRITE };
    pub(crate) const UPDATES: Self = Self { writes: true, ..Self::READS };

    /// Reads, and other accesses depend on the values read.
    pub(crate) fn steering(self) -> Self {
        Self { reads: true, steers: true, ..self }
    }
}

/// A range of bytes in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bytes {
    /// Identifies memory that the host cannot access; 0 for host-accessible memory.
    space: usize,
    range: Range<u64>,
    /// Address of the memory's object.
    object: usize,
}

impl Bytes {
    /// The bytes of a slice. Host-accessible memory is identified by its address, because two objects may refer to the same pages.
    #[cfg(any(target_vendor = "apple", elinvar_apple))]
    pub(crate) fn of(slice: &elinvar_driver::MemorySlice) -> Self {
        let object = std::sync::Arc::as_ptr(&slice.memory).addr();
        let (space, start) = match slice.memory.host_ptr() {
            Some(host) => (0, host.as_ptr() as u64),
            None => (object, 0),
        };
        let start = start.saturating_add(slice.offset);
        Self { space, range: start..start.saturating_add(slice.len), object }
    }

    fn overlap(&self, other: &Self) -> bool {
        let is_shared = self.range.start < other.range.end && other.range.start < self.range.end;
        self.space == other.space && is_shared
    }

    fn contain(&self, other: &Self) -> bool {
        self.space == other.space
            && self.range.start <= other.range.start
            && other.range.end <= self.range.end
    }
}

#[derive(Clone, Debug)]
struct Use {
    /// Index of the command in its command buffer.
    command: usize,
    bytes: Bytes,
    effect: Effect,
}

/// The accesses of a command buffer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Footprint {
    uses: Vec<Use>,
    commands: usize,
    /// Whether it has accesses that are not recorded here.
    is_unknown: bool,
    /// Whether it raises events before its end.
    pub(crate) has_signals: bool,
    /// Whether it samples times before its end.
    pub(crate) has_times: bool,
}

impl Footprint {
    fn clear(&mut self) {
        self.uses.clear();
        (self.commands, self.is_unknown) = (0, false);
        (self.has_signals, self.has_times) = (false, false);
    }

    /// Records the accesses of the next command.
    pub(crate) fn add(&mut self, uses: impl IntoIterator<Item = (Bytes, Effect)>) {
        let command = self.commands;
        self.commands += 1;
        for (bytes, effect) in uses {
            if self.uses.len() >= MOST {
                self.is_unknown = true;
                return;
            }
            if !bytes.range.is_empty() {
                self.uses.push(Use { command, bytes, effect });
            }
        }
    }

    /// Records that the accesses of the next command are unknown.
    pub(crate) fn add_unknown(&mut self) {
        self.is_unknown = true;
    }

    fn writes(&self) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(|used| used.effect.writes)
    }
}

/// An event for which the GPU waits, behind command buffers of any queue of the device.
#[derive(Debug)]
pub(crate) struct Gate {
    /// The accesses of the command buffers behind which the event is raised.
    footprint: Footprint,
    /// Whether the event was raised.
    is_open: AtomicBool,
}

impl Gate {
    /// The event was raised.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }
}

struct InFlight {
    number: u64,
    footprint: Footprint,
    has_ended: bool,
}

/// Command buffers of a queue in flight: those that have not succeeded, and those behind them.
#[derive(Default)]
pub(crate) struct Ahead {
    in_flight: VecDeque<InFlight>,
    /// Gates that are not known to open.
    gates: Vec<Arc<Gate>>,
    last: u64,
    /// The first one that has failed.
    failed: Option<u64>,
    spare: Vec<Footprint>,
}

impl Ahead {
    /// An empty footprint.
    pub(crate) fn footprint(&mut self) -> Footprint {
        self.spare.pop().unwrap_or_default()
    }

    /// Returns a footprint for reuse.
    pub(crate) fn recycle(&mut self, mut footprint: Footprint) {
        footprint.clear();
        self.spare.push(footprint);
    }

    /// Nothing is in flight, and the issuing thread knows of all failures.
    pub(crate) fn restart(&mut self) {
        self.failed = None;
        self.gates.clear();
        while let Some(InFlight { footprint, .. }) = self.in_flight.pop_front() {
            self.recycle(footprint);
        }
    }

    /// Whether a command buffer may be committed now.
    pub(crate) fn allows(&mut self, next: &Footprint) -> bool {
        self.forget();
        if self.failed.is_some() {
            return false;
        }
        if self.in_flight.is_empty() && self.gates.is_empty() {
            return true;
        }
        let are_known = !next.is_unknown && self.earlier().all(|earlier| !earlier.is_unknown);
        // The signal counter must tell what a failed command buffer has reached, and the sample buffer serves one command buffer at a time.
        let signals_alone = !next.has_signals || self.earlier().all(|earlier| !earlier.has_signals);
        self.in_flight.len() < DEPTH
            && are_known
            && signals_alone
            && !next.has_times
            && self.keeps_earlier(next)
            && can_run_again(next)
            && self.is_steady(next)
    }

    fn earlier(&self) -> impl Iterator<Item = &Footprint> {
        let awaited = self.gates.iter().map(|gate| &gate.footprint);
        self.in_flight.iter().map(|entry| &entry.footprint).chain(awaited)
    }

    /// Removes command buffers that have succeeded.
    fn forget(&mut self) {
        self.gates.retain(|gate| !gate.is_open());
        // Command buffers behind one in flight, or behind a gate, may have to be retried with it.
        while self.gates.is_empty()
            && let Some(first) = self.in_flight.pop_front_if(|first| first.has_ended)
        {
            self.recycle(first.footprint);
        }
    }

    /// Adds a gate in front of the next command buffer, which starts with this footprint. Returns whether it may be committed before the gate is
    /// open; if not, nothing changes.
    pub(crate) fn enter(&mut self, gate: &Arc<Gate>, next: &Footprint) -> bool {
        self.gates.push(gate.clone());
        let is_allowed = self.allows(next);
        if !is_allowed {
            self.gates.retain(|other| !Arc::ptr_eq(other, gate));
        }
        is_allowed
    }

    /// A gate for an event behind everything committed, with the number of the last command buffer; `None` if everything has ended, or a
    /// command buffer has failed.
    pub(crate) fn gate(&mut self) -> Option<(u64, Gate)> {
        self.forget();
        if self.in_flight.is_empty() || self.failed.is_some() {
            return None;
        }
        let mut footprint = Footprint::default();
        for earlier in self.earlier() {
            footprint.uses.extend(earlier.uses.iter().cloned());
            footprint.is_unknown |= earlier.is_unknown || footprint.uses.len() > MOST;
        }
        Some((self.last, Gate { footprint, is_open: AtomicBool::new(false) }))
    }

    /// Number of the last committed command buffer.
    pub(crate) fn last(&self) -> u64 {
        self.last
    }

    /// Rule 1.
    fn keeps_earlier(&self, next: &Footprint) -> bool {
        let is_used =
            |bytes: &Bytes| self.earlier().flat_map(|one| &one.uses).any(|used| used.bytes.overlap(bytes));
        !next.writes().any(|write| is_used(&write.bytes))
    }

    /// Rule 3, and whether Metal orders its reads.
    fn is_steady(&self, next: &Footprint) -> bool {
        let written: Vec<&Bytes> =
            self.earlier().flat_map(Footprint::writes).map(|used| &used.bytes).collect();
        let mut computed: Vec<&Bytes> = Vec::new();
        for command in next.uses.chunk_by(|a, b| a.command == b.command) {
            let mut is_affected = false;
            for Use { bytes, effect, .. } in command.iter().filter(|used| used.effect.reads) {
                let in_flight = || written.iter().filter(|other| other.overlap(bytes));
                if in_flight().any(|other| other.object != bytes.object) {
                    return false;
                }
                let is_undefined =
                    in_flight().next().is_some() || computed.iter().any(|other| other.overlap(bytes));
                if is_undefined && effect.steers {
                    return false;
                }
                is_affected |= is_undefined;
            }
            if is_affected {
                computed.extend(command.iter().filter(|used| used.effect.writes).map(|used| &used.bytes));
            }
        }
        true
    }

    /// Registers a command buffer before it is committed. Returns its number.
    pub(crate) fn commit(&mut self, footprint: Footprint) -> u64 {
        self.last += 1;
        self.in_flight.push_back(InFlight { number: self.last, footprint, has_ended: false });
        self.last
    }

    /// Registers the end of a command buffer. Returns whether an earlier one has failed, or may have.
    pub(crate) fn end(&mut self, number: u64, well: bool) -> bool {
        let is_behind = self.failed.is_some_and(|failed| failed < number) || !self.gates.is_empty();
        if !well {
            self.failed = Some(self.failed.map_or(number, |failed| failed.min(number)));
            return is_behind;
        }
        if let Some(entry) = self.in_flight.iter_mut().find(|entry| entry.number == number) {
            entry.has_ended = true;
        }
        self.forget();
        is_behind
    }
}

/// Rule 2.
fn can_run_again(next: &Footprint) -> bool {
    let mut overwritten: Vec<&Bytes> = Vec::new();
    let mut inputs: Vec<&Bytes> = Vec::new();
    for command in next.uses.chunk_by(|a, b| a.command == b.command) {
        let reads = command.iter().filter(|used| used.effect.reads).map(|used| &used.bytes);
        inputs.extend(reads.filter(|bytes| !overwritten.iter().any(|whole| whole.contain(bytes))));
        for Use { bytes, effect, .. } in command.iter().filter(|used| used.effect.writes) {
            if inputs.iter().any(|input| input.overlap(bytes)) {
                return false;
            }
            if effect.overwrites {
                overwritten.push(bytes);
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    type Command = Vec<(Bytes, Effect)>;

    fn bytes(space: usize, range: Range<u64>) -> Bytes {
        Bytes { space, range, object: space }
    }

    /// Memory of 8 bytes.
    fn all(space: usize) -> Bytes {
        bytes(space, 0..8)
    }

    fn copy(from: usize, to: usize) -> Command {
        vec![(all(from), Effect::READS), (all(to), Effect::OVERWRITES)]
    }

    /// A kernel that writes some elements of one buffer, computed from elements of the other.
    fn map(from: usize, to: usize) -> Command {
        vec![(all(from), Effect::READS), (all(to), Effect::MAY_WRITE)]
    }

    /// A kernel that writes elements whose indices it reads.
    fn scatter(from: usize, to: usize) -> Command {
        vec![(all(from), Effect::READS.steering()), (all(to), Effect::MAY_WRITE)]
    }

    fn update(place: usize) -> Command {
        vec![(all(place), Effect::UPDATES)]
    }

    fn fill(place: usize) -> Command {
        vec![(all(place), Effect::OVERWRITES)]
    }

    fn footprint(commands: impl IntoIterator<Item = Command>) -> Footprint {
        let mut footprint = Ahead::default().footprint();
        commands.into_iter().for_each(|command| footprint.add(command));
        footprint
    }

    /// Whether the second may be committed while the first is in flight.
    fn allowed<const A: usize, const B: usize>(first: [Command; A], second: [Command; B]) -> bool {
        let mut ahead = Ahead::default();
        let first = footprint(first);
        assert!(ahead.allows(&first), "the first always may");
        ahead.commit(first);
        ahead.allows(&footprint(second))
    }

    #[test]
    fn a_chain_of_separate_buffers_runs_ahead() {
        assert!(allowed([copy(1, 2)], [copy(2, 3)]));
        assert!(allowed([map(1, 2)], [map(2, 3)]));
        assert!(allowed([scatter(1, 2)], [scatter(1, 3)]), "both read what is there");
        assert!(allowed([update(1)], [map(1, 2)]));
        assert!(allowed([fill(1)], []));
    }

    #[test]
    fn what_those_in_flight_use_is_not_overwritten() {
        assert!(!allowed([copy(1, 2)], [fill(1)]), "the input of one that may be tried again");
        assert!(!allowed([copy(1, 2)], [fill(2)]));
        assert!(!allowed([update(1)], [update(1)]));
        let half = |range| vec![(bytes(1, range), Effect::OVERWRITES)];
        assert!(allowed([half(0..4)], [half(4..8)]));
        assert!(!allowed([half(0..5)], [half(4..8)]));
    }

    #[test]
    fn what_works_in_place_is_not_run_ahead() {
        assert!(!allowed([fill(1)], [update(2)]));
        assert!(!allowed([fill(1)], [copy(2, 3), copy(3, 2)]));
        assert!(allowed([fill(1)], [fill(2), update(2)]), "it overwrites its input first");
        assert!(!allowed([fill(1)], [map(3, 2), update(2)]), "not all of it, perhaps");
        let overlapping = vec![(bytes(2, 0..8), Effect::READS), (bytes(2, 4..12), Effect::OVERWRITES)];
        assert!(!allowed([fill(1)], [overlapping]));
        assert!(allowed([fill(1)], [map(2, 3), map(3, 4)]), "the bytes that are read were written again");
        assert!(!allowed([fill(1)], [map(2, 3), map(3, 4), map(4, 2)]));
    }

    #[test]
    fn nothing_steers_by_what_a_failure_leaves_undefined() {
        assert!(!allowed([map(1, 2)], [scatter(2, 3)]));
        assert!(!allowed([map(1, 2)], [map(2, 3), scatter(3, 4)]), "by way of another command");
        assert!(allowed([map(1, 2)], [map(5, 3), scatter(3, 4)]));
        assert!(allowed([map(1, 2)], [map(2, 3), scatter(5, 4)]));
    }

    #[test]
    fn reads_through_another_object_wait() {
        let (other, own) = (Bytes { object: 7, ..all(0) }, Bytes { object: 8, ..all(0) });
        let writes = || vec![(other.clone(), Effect::MAY_WRITE)];
        assert!(!allowed([writes()], [vec![(own.clone(), Effect::READS), (all(3), Effect::MAY_WRITE)]]));
        assert!(allowed([writes()], [vec![(other.clone(), Effect::READS), (all(3), Effect::MAY_WRITE)]]));
    }

    #[test]
    fn depth_and_length_have_limits() {
        let mut ahead = Ahead::default();
        for place in 1..=DEPTH {
            let next = footprint([fill(place)]);
            assert!(ahead.allows(&next));
            ahead.commit(next);
        }
        assert!(!ahead.allows(&footprint([fill(100)])));
        assert!(!ahead.end(1, true));
        assert!(ahead.allows(&footprint([fill(100)])));
        let long = footprint((0..=MOST).map(|place| fill(1000 + place)));
        assert!(!ahead.allows(&long) && Ahead::default().allows(&long));
        let mut ahead = Ahead::default();
        ahead.commit(long);
        assert!(!ahead.allows(&footprint([fill(1)])));
        let mut ahead = Ahead::default();
        ahead.commit(footprint([]));
        let mut unknown = footprint([]);
        unknown.add_unknown();
        assert!(!ahead.allows(&unknown));
    }

    #[test]
    fn marks_within_command_buffers_are_one_at_a_time() {
        let with = |has_signals, has_times| Footprint { has_signals, has_times, ..footprint([fill(1)]) };
        let mut ahead = Ahead::default();
        ahead.commit(Footprint { has_signals: true, has_times: true, ..footprint([fill(2)]) });
        assert!(ahead.allows(&with(false, false)));
        assert!(!ahead.allows(&with(true, false)));
        let mut ahead = Ahead::default();
        ahead.commit(footprint([fill(2)]));
        assert!(ahead.allows(&with(true, false)));
        assert!(!ahead.allows(&with(false, true)));
    }

    #[test]
    fn a_failure_halts_until_nothing_is_in_flight() {
        let mut ahead = Ahead::default();
        let numbers: Vec<u64> = (1..=3).map(|place| ahead.commit(footprint([fill(place)]))).collect();
        assert!(!ahead.end(numbers[0], false));
        assert!(ahead.end(numbers[1], false) && ahead.end(numbers[2], true));
        assert!(!ahead.allows(&footprint([fill(9)])));
        ahead.restart();
        assert!(ahead.allows(&footprint([update(1)])));
    }

    #[test]
    fn what_is_behind_a_gate_may_have_to_be_run_again() {
        let (mut first, mut second) = (Ahead::default(), Ahead::default());
        assert!(first.gate().is_none());
        first.commit(footprint([copy(1, 2)]));
        let (number, gate) = first.gate().unwrap();
        assert_eq!(number, first.last());
        let gate = Arc::new(gate);
        assert!(!second.enter(&gate, &footprint([fill(1)])), "an input of the other queue's");
        assert!(second.allows(&footprint([fill(1)])), "it has not entered");
        assert!(second.enter(&gate, &footprint([copy(2, 3)])));
        let own = second.commit(footprint([copy(2, 3)]));
        let (_, both) = second.gate().unwrap();
        let mut third = Ahead::default();
        assert!(!third.enter(&Arc::new(both), &footprint([fill(1)])), "what a gate is behind counts as well");
        second.end(own, true);
        assert!(!second.allows(&footprint([fill(2)])) && !second.allows(&footprint([fill(3)])));
        first.end(number, true);
        assert!(!second.allows(&footprint([fill(3)])), "the event may yet fail");
        gate.open();
        assert!(second.allows(&footprint([fill(3)])));
    }

    #[test]
    fn one_that_ends_early_counts_until_those_before_it_have_ended() {
        let mut ahead = Ahead::default();
        let (first, second) = (ahead.commit(footprint([fill(1)])), ahead.commit(footprint([copy(2, 3)])));
        ahead.end(second, true);
        assert!(!ahead.allows(&footprint([fill(2)])), "the second may have to be run again");
        ahead.end(first, true);
        assert!(ahead.allows(&footprint([fill(2)])));
    }
}
