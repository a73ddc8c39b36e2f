//! Pending submissions with waits or signals, and whether all of them can proceed.
//!
//! A submission is divided into *stages*: some waits, then some signals. A stage follows the previous stage of its stream. A wait
//! *blocks* if its event is below its value, has not failed, and a signal of exactly that value is in the table; any signal of
//! the event with at least that value ends it. All stages can proceed if and only if each blocking wait can be assigned one of
//! these signals, its *witness*, so that the relations "follows in the stream" and "waits for its witness" together are acyclic.
//! (Given such witnesses, stages can run in a topological order; if all stages run, the signal that ended each wait is its
//! witness.)
//!
//! The table keeps witnesses and a topological order between submissions ([`search`](super::search)). Only if a wait has a choice
//! of signals, and no witness is found that is consistent with the others, are all stages simulated (`play`).

use std::collections::{BTreeMap, BTreeSet};

use slab::Slab;
use smallvec::SmallVec;

use super::EventOp;
use super::order::Order;
use super::search::Seen;

/// The number of a stage, of a wait, of an event.
pub(super) type StageId = usize;
pub(super) type WaitId = usize;
type EventId = usize;

/// Maximum number of signals that are tried as a wait's witness.
const TRIES: usize = 4;

pub(super) struct Stage {
    pub stream: u64,
    /// Previous and next stage of the stream.
    pub before: Option<StageId>,
    pub after: Option<StageId>,
    pub waits: SmallVec<[WaitId; 2]>,
    pub signals: Vec<EventOp>,
    /// The first of the waits whose witness is one of its signals.
    dependent: Option<WaitId>,
    /// The last search that reached it from either side.
    pub seen: [Seen; 2],
}

pub(super) struct Wait {
    pub op: EventOp,
    event: EventId,
    pub stage: StageId,
    pub witness: Option<StageId>,
    /// Previous and next wait with the same witness.
    siblings: [Option<WaitId>; 2],
}

#[derive(Default)]
struct Stream {
    last: Option<StageId>,
    /// Waits that may not have ended.
    open: BTreeSet<WaitId>,
}

/// Signals and waits of an event, by value.
#[derive(Default)]
struct Uses {
    signals: BTreeSet<(u64, StageId)>,
    /// Value of the first signal, if any.
    least: Option<u64>,
    waits: BTreeSet<(u64, WaitId)>,
}

/// Pending submissions. Uses trees, since growing a hash table makes single insertions slow.
pub(super) struct Table {
    pub stages: Slab<Stage>,
    pub waits: Slab<Wait>,
    events: Slab<Uses>,
    event_ids: BTreeMap<u64, EventId>,
    pub order: Order,
    streams: BTreeMap<u64, Stream>,
    /// All waits that may block and have no witness.
    loose: BTreeSet<WaitId>,
    submissions: BTreeMap<u64, Vec<StageId>>,
    pub searches: u64,
    /// Neighbors of the stage that a search visits. Kept to reuse the allocation.
    pub near: Vec<(StageId, Option<WaitId>)>,
    /// Number of stages visited by searches.
    pub visits: u64,
}

/// Result of a search for a witness.
enum Found {
    Witness,
    None,
    /// A cycle: its waits, none of which has an alternative signal.
    Cycle(Vec<WaitId>),
}

/// Classification of a path that closes a cycle.
enum Way {
    /// Some waits have ended: the path does not exist any more.
    Open,
    /// Some waits could have another witness.
    Choice,
    /// No wait could have another witness.
    Shut(Vec<WaitId>),
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            stages: Slab::new(),
            waits: Slab::new(),
            events: Slab::new(),
            event_ids: BTreeMap::new(),
            order: Order::new(),
            streams: BTreeMap::new(),
            loose: BTreeSet::new(),
            submissions: BTreeMap::new(),
            searches: 0,
            near: Vec::new(),
            visits: 0,
        }
    }

    /// Enters a submission behind those of its stream; or returns the message of the cycle that it would close, without effect.
    pub(super) fn enter(
        &mut self,
        submission: u64,
        stream: u64,
        ops: Vec<EventOp>,
    ) -> Result<(), (String, Vec<EventOp>)> {
        let signals = ops.iter().any(|op| op.signals);
        let stages = self.append(stream, ops);
        self.submissions.insert(submission, stages);
        // Only a signal behind a wait of its stream can close a cycle.
        let may_close = signals && self.has_open_wait(stream);
        let cycle = self.find_witnesses();
        if self.loose.is_empty() || !may_close {
            return Ok(());
        }
        let message = match cycle {
            Some(cycle) => Some(self.words_of_cycle(cycle)),
            None => self.play(),
        };
        message.map_or(Ok(()), |message| Err((message, self.remove(submission))))
    }

    /// Removes a submission; the caller drops the returned ops without a lock.
    pub(super) fn remove(&mut self, submission: u64) -> Vec<EventOp> {
        let mut held = Vec::new();
        for id in self.submissions.remove(&submission).unwrap_or_default() {
            self.remove_stage(id, &mut held);
        }
        held
    }

    fn append(&mut self, stream: u64, ops: Vec<EventOp>) -> Vec<StageId> {
        let mut stages: Vec<StageId> = Vec::new();
        for op in ops {
            let last = stages.last().copied();
            let fits = last.filter(|last| op.signals || self.stages[*last].signals.is_empty());
            let stage = fits.unwrap_or_else(|| {
                stages.push(self.new_stage(stream));
                stages[stages.len() - 1]
            });
            let (id, value) = op.point();
            let event = *self.event_ids.entry(id).or_insert_with(|| self.events.insert(Uses::default()));
            let uses = &mut self.events[event];
            if op.signals {
                uses.signals.insert((value, stage));
                uses.least = uses.signals.first().map(|(value, _)| *value);
                self.stages[stage].signals.push(op);
                let waits = uses.waits.range((value, 0)..=(value, WaitId::MAX)).map(|(_, wait)| *wait);
                self.loose.extend(waits.filter(|wait| self.waits[*wait].witness.is_none()));
            } else {
                let wait = self.waits.insert(Wait { op, event, stage, witness: None, siblings: [None; 2] });
                self.stages[stage].waits.push(wait);
                uses.waits.insert((value, wait));
                self.streams.entry(stream).or_default().open.insert(wait);
                self.loose.insert(wait);
            }
        }
        for stage in &stages {
            // Stages with waits for known signals are appended; those without waits may be first.
            let Stage { before, waits, .. } = &self.stages[*stage];
            let known = |wait: &WaitId| self.candidates(*wait).next().is_some();
            match before.is_some() || waits.iter().any(known) {
                true => self.order.push_last(*stage),
                false => self.order.push_first(*stage),
            }
        }
        stages
    }

    fn new_stage(&mut self, stream: u64) -> StageId {
        let last = &mut self.streams.entry(stream).or_default().last;
        let before = *last;
        let (waits, signals, dependent) = (SmallVec::new(), Vec::new(), None);
        let seen = [Seen::default(); 2];
        let stage = Stage { stream, before, after: None, waits, signals, dependent, seen };
        let id = self.stages.insert(stage);
        *last = Some(id);
        if let Some(before) = before {
            self.stages[before].after = Some(id);
        }
        id
    }

    fn remove_stage(&mut self, id: StageId, held: &mut Vec<EventOp>) {
        self.order.remove(id);
        while let Some(wait) = self.stages[id].dependent {
            self.clear_witness(wait);
            self.loose.insert(wait);
        }
        let Stage { stream, before, after, waits, signals, .. } = self.stages.remove(id);
        if let Some(before) = before {
            self.stages[before].after = after;
        }
        match after {
            Some(after) => self.stages[after].before = before,
            None => self.streams.entry(stream).or_default().last = before,
        }
        for id in waits {
            self.clear_witness(id);
            let Wait { op, event, .. } = self.waits.remove(id);
            self.events[event].waits.remove(&(op.value, id));
            self.forget(event, op.id);
            self.loose.remove(&id);
            self.streams.entry(stream).or_default().open.remove(&id);
            held.push(op);
        }
        for op in signals {
            if let Some(event) = self.event_ids.get(&op.id).copied() {
                let uses = &mut self.events[event];
                uses.signals.remove(&(op.value, id));
                uses.least = uses.signals.first().map(|(value, _)| *value);
                self.forget(event, op.id);
            }
            held.push(op);
        }
        if self.streams.get(&stream).is_some_and(|stream| stream.last.is_none()) {
            self.streams.remove(&stream);
        }
    }

    /// Removes an event that is no longer used.
    fn forget(&mut self, event: EventId, id: u64) {
        let Uses { signals, waits, .. } = &self.events[event];
        if signals.is_empty() && waits.is_empty() {
            self.events.remove(event);
            self.event_ids.remove(&id);
        }
    }

    /// Whether the stream has a wait for a value that its event has not reached.
    fn has_open_wait(&mut self, stream: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&stream) else { return false };
        while let Some(wait) = stream.open.first().copied() {
            let EventOp { event, value, .. } = &self.waits[wait].op;
            if event.value() < *value {
                return true;
            }
            stream.open.remove(&wait);
        }
        false
    }

    /// Whether a wait blocks; see the module's documentation.
    pub(super) fn blocks(&self, wait: WaitId) -> bool {
        let op = &self.waits[wait].op;
        self.exact(wait).is_some() && op.event.is_pending(op.value)
    }

    /// The first stage that signals exactly a wait's value.
    pub(super) fn exact(&self, wait: WaitId) -> Option<StageId> {
        let (value, stage) = self.ends(wait).next()?;
        (value == self.waits[wait].op.value).then_some(stage)
    }

    /// The signals that end a wait, in ascending order of value, with their stages.
    fn ends(&self, wait: WaitId) -> impl Iterator<Item = (u64, StageId)> {
        let Wait { op, event, .. } = &self.waits[wait];
        self.events[*event].signals.range((op.value, 0)..).copied()
    }

    /// The stages with a signal that ends a wait; those with exactly its value first.
    fn candidates(&self, wait: WaitId) -> impl Iterator<Item = StageId> {
        self.ends(wait).map(|(_, stage)| stage)
    }

    /// Assigns a witness to each blocking wait; those without one stay in `loose`. Returns an unavoidable cycle that
    /// contains one of them, if any.
    fn find_witnesses(&mut self) -> Option<Vec<WaitId>> {
        let mut cycle = None;
        for wait in std::mem::take(&mut self.loose) {
            if !self.blocks(wait) {
                continue;
            }
            match self.find_witness(wait) {
                Found::Witness => {}
                Found::None => drop(self.loose.insert(wait)),
                Found::Cycle(found) => {
                    self.loose.insert(wait);
                    cycle.get_or_insert(found);
                }
            }
        }
        cycle
    }

    fn find_witness(&mut self, wait: WaitId) -> Found {
        let stage = self.waits[wait].stage;
        let candidates: Vec<StageId> = self.candidates(wait).take(TRIES).collect();
        let mut cycle = None;
        for candidate in &candidates {
            let shut = loop {
                let Err(path) = self.connect(*candidate, stage) else {
                    self.set_witness(wait, *candidate);
                    return Found::Witness;
                };
                match self.examine(path) {
                    Way::Open => {}
                    Way::Choice => break None,
                    Way::Shut(waits) => break Some(waits),
                }
            };
            cycle = cycle.or(shut);
        }
        match cycle {
            Some(mut waits) if candidates.len() == 1 => {
                waits.push(wait);
                Found::Cycle(waits)
            }
            _ => Found::None,
        }
    }

    pub(super) fn set_witness(&mut self, wait: WaitId, witness: StageId) {
        let behind = self.stages[witness].dependent.replace(wait);
        if let Some(behind) = behind {
            self.waits[behind].siblings[0] = Some(wait);
        }
        let entry = &mut self.waits[wait];
        (entry.witness, entry.siblings) = (Some(witness), [None, behind]);
    }

    fn clear_witness(&mut self, wait: WaitId) {
        let entry = &mut self.waits[wait];
        let Some(witness) = entry.witness.take() else { return };
        let [before, behind] = std::mem::take(&mut entry.siblings);
        match before {
            Some(before) => self.waits[before].siblings[1] = behind,
            None => self.stages[witness].dependent = behind,
        }
        if let Some(behind) = behind {
            self.waits[behind].siblings[0] = before;
        }
    }

    /// The waits whose witness is a signal of a stage.
    pub(super) fn dependents(&self, stage: StageId) -> impl Iterator<Item = WaitId> {
        std::iter::successors(self.stages[stage].dependent, |wait| self.waits[*wait].siblings[1])
    }

    /// Classifies a path. Removes the witnesses of waits that no longer block.
    fn examine(&mut self, waits: Vec<WaitId>) -> Way {
        let (mut ended, mut choice) = (Vec::new(), false);
        for wait in &waits {
            match self.candidate_count(*wait) {
                (true, count) => choice |= count > 1,
                (false, _) => ended.push(*wait),
            }
        }
        for wait in &ended {
            self.clear_witness(*wait);
        }
        match ended.is_empty() {
            false => Way::Open,
            true if choice => Way::Choice,
            true => Way::Shut(waits),
        }
    }

    /// Whether a wait blocks, as [`Table::blocks`], and the number of stages that could end it, counted up to 2.
    fn candidate_count(&self, wait: WaitId) -> (bool, usize) {
        let Wait { op, event, .. } = &self.waits[wait];
        let uses = &self.events[*event];
        let (least, count) = match (uses.signals.len(), uses.least) {
            (1, Some(only)) if only >= op.value => (only, 1),
            _ => {
                let mut ends = self.ends(wait);
                let Some((least, _)) = ends.next() else { return (false, 0) };
                (least, if ends.next().is_some() { 2 } else { 1 })
            }
        };
        (least == op.value && op.event.is_pending(op.value), count)
    }

    /// A cycle of waits, each for a signal behind the one before it and the first for one behind the last.
    fn words_of_cycle(&self, mut waits: Vec<WaitId>) -> String {
        // The message begins with the stream with the lowest number.
        waits.reverse();
        let stream = |wait: &WaitId| self.stages[self.waits[*wait].stage].stream;
        let first = (0..waits.len()).min_by_key(|at| stream(&waits[*at])).unwrap_or(0);
        waits.rotate_left(first);
        super::words(waits.iter().map(|wait| (stream(wait), &self.waits[*wait].op)))
    }

    /// Whether the table is empty.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let lists = self.stages.is_empty() && self.waits.is_empty() && self.loose.is_empty();
        let indices = self.streams.is_empty() && self.events.is_empty() && self.event_ids.is_empty();
        lists && indices && self.submissions.is_empty()
    }

    /// The first stages of all streams.
    pub(super) fn starts(&self) -> Vec<StageId> {
        self.stages.iter().filter(|(_, stage)| stage.before.is_none()).map(|(id, _)| id).collect()
    }

    /// Replaces the order of all stages, and the witnesses.
    pub(super) fn replace(&mut self, order: &[StageId], witnesses: &[(WaitId, StageId)]) {
        for stage in order {
            self.order.remove(*stage);
            self.order.push_last(*stage);
            for wait in self.stages[*stage].waits.clone() {
                self.clear_witness(wait);
            }
        }
        witnesses.iter().for_each(|(wait, stage)| self.set_witness(*wait, *stage));
        self.loose.clear();
    }
}
