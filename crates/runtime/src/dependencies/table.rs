//! The submissions in flight that have waits or signals, and whether all of them can go on.
//!
//! A submission is cut into *stages*: some waits, then some signals. A stage follows its stream's stage before it. A wait
//! *blocks* while its event is below its value, has not failed, and a signal of just that value is in the table; any signal
//! of the event that is as high ends it. All stages can go on if and only if every wait that blocks can be given one
//! of these signals, its *witness*, so that "follows in the stream" and "waits for its witness" together have no cycle. (If
//! there are such witnesses, stages can run in a topological order; if all stages run, the signal that ended each
//! wait is its witness.)
//!
//! The table keeps witnesses and a topological order from one submission to the next. A new edge against the order is
//! searched from both ends at once among the stages between them, and what the shorter search has found is moved, after
//! Bender, Fineman, Gilbert and Tarjan, "A new approach to incremental cycle detection", 2016, and Pearce and
//! Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006. Only where a wait has a choice of
//! signals and no witness is found that fits those of others are all stages played through (`play`).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use slab::Slab;

use super::Step;
use super::order::Order;

/// The number of a stage, of a wait.
pub(super) type StageId = usize;
pub(super) type WaitId = usize;

/// Signals that are tried as a wait's witness.
const TRIES: usize = 4;

pub(super) struct Stage {
    pub stream: u64,
    /// The stages of the stream before and behind it.
    pub before: Option<StageId>,
    pub after: Option<StageId>,
    pub waits: Vec<WaitId>,
    pub signals: Vec<Step>,
    /// The waits whose witness is one of its signals.
    dependents: BTreeSet<WaitId>,
    /// The last search that came here from either side, and from where.
    seen: [(u64, StageId); 2],
}

pub(super) struct Wait {
    pub step: Step,
    pub stage: StageId,
    witness: Option<StageId>,
}

#[derive(Default)]
struct Stream {
    last: Option<StageId>,
    /// Waits that are not known to have ended.
    open: BTreeSet<WaitId>,
}

/// Submissions in flight.
pub(super) struct Table {
    pub stages: Slab<Stage>,
    pub waits: Slab<Wait>,
    order: Order,
    streams: HashMap<u64, Stream>,
    /// The stages that signal an event, by value.
    pub signals: HashMap<u64, BTreeMap<u64, BTreeSet<StageId>>>,
    /// The waits for a value of an event.
    waiting: HashMap<(u64, u64), BTreeSet<WaitId>>,
    /// All waits that may block and have no witness.
    loose: BTreeSet<WaitId>,
    submissions: HashMap<u64, Vec<StageId>>,
    searches: u64,
    /// The neighbors of the stage that a search is at. Kept for its memory.
    near: Vec<StageId>,
    /// Stages that searches have come to.
    pub visits: u64,
}

/// How a search for a witness ended.
enum Found {
    Witness,
    None,
    /// A cycle: its waits, none of which has another signal to wait for.
    Cycle(Vec<WaitId>),
}

/// What the waits along a path are that closes a cycle.
enum Way {
    /// Some have ended: the path is none.
    Open,
    /// Some could have another witness.
    Choice,
    /// None could: these are they.
    Shut(Vec<WaitId>),
}

/// Whether a wait's event is below its value and has not failed.
fn is_open(step: &Step) -> bool {
    step.event.value() < step.value && step.event.failure().is_none()
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            stages: Slab::new(),
            waits: Slab::new(),
            order: Order::new(),
            streams: HashMap::new(),
            signals: HashMap::new(),
            waiting: HashMap::new(),
            loose: BTreeSet::new(),
            submissions: HashMap::new(),
            searches: 0,
            near: Vec::new(),
            visits: 0,
        }
    }

    /// Enters a submission behind those that its stream has; or says what circle it would close, and leaves it out.
    pub(super) fn enter(
        &mut self,
        submission: u64,
        stream: u64,
        steps: Vec<Step>,
    ) -> Result<(), (String, Vec<Step>)> {
        let signals = steps.iter().any(|step| step.signals);
        let stages = self.append(stream, steps);
        self.submissions.insert(submission, stages);
        // Only a signal behind a wait of its stream can close a circle.
        let may_close = signals && self.has_open_wait(stream);
        let cycle = self.find_witnesses();
        if self.loose.is_empty() || !may_close {
            return Ok(());
        }
        let circle = match cycle {
            Some(cycle) => Some(self.words_of_cycle(cycle)),
            None => self.play(),
        };
        circle.map_or(Ok(()), |circle| Err((circle, self.remove(submission))))
    }

    /// Takes a submission out; what it held is to be dropped without a lock.
    pub(super) fn remove(&mut self, submission: u64) -> Vec<Step> {
        let mut held = Vec::new();
        for id in self.submissions.remove(&submission).unwrap_or_default() {
            self.remove_stage(id, &mut held);
        }
        held
    }

    fn append(&mut self, stream: u64, steps: Vec<Step>) -> Vec<StageId> {
        let mut stages: Vec<StageId> = Vec::new();
        for step in steps {
            let last = stages.last().copied();
            let fits = last.filter(|last| step.signals || self.stages[*last].signals.is_empty());
            let stage = fits.unwrap_or_else(|| {
                stages.push(self.new_stage(stream));
                stages[stages.len() - 1]
            });
            let point = step.point();
            if step.signals {
                self.signals.entry(point.0).or_default().entry(point.1).or_default().insert(stage);
                self.stages[stage].signals.push(step);
                self.loose.extend(
                    self.waiting
                        .get(&point)
                        .into_iter()
                        .flatten()
                        .filter(|wait| self.waits[**wait].witness.is_none()),
                );
            } else {
                let wait = self.waits.insert(Wait { step, stage, witness: None });
                self.stages[stage].waits.push(wait);
                self.waiting.entry(point).or_default().insert(wait);
                self.streams.entry(stream).or_default().open.insert(wait);
                self.loose.insert(wait);
            }
        }
        for stage in &stages {
            // Waits for what is known come last; what waits for nothing may come before all.
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
        let (waits, signals, dependents) = (Vec::new(), Vec::new(), BTreeSet::new());
        let seen = [(0, 0); 2];
        let stage = Stage { stream, before, after: None, waits, signals, dependents, seen };
        let id = self.stages.insert(stage);
        *last = Some(id);
        if let Some(before) = before {
            self.stages[before].after = Some(id);
        }
        id
    }

    fn remove_stage(&mut self, id: StageId, held: &mut Vec<Step>) {
        self.order.remove(id);
        let Stage { stream, before, after, waits, signals, dependents, .. } = self.stages.remove(id);
        if let Some(before) = before {
            self.stages[before].after = after;
        }
        match after {
            Some(after) => self.stages[after].before = before,
            None => self.streams.entry(stream).or_default().last = before,
        }
        for wait in dependents {
            self.waits[wait].witness = None;
            self.loose.insert(wait);
        }
        for id in waits {
            let Wait { step, witness, .. } = self.waits.remove(id);
            if let Some(witness) = witness {
                self.stages[witness].dependents.remove(&id);
            }
            if let Some(waiting) = self.waiting.get_mut(&step.point()) {
                waiting.remove(&id);
                if waiting.is_empty() {
                    self.waiting.remove(&step.point());
                }
            }
            self.loose.remove(&id);
            self.streams.entry(stream).or_default().open.remove(&id);
            held.push(step);
        }
        for step in signals {
            let (event, value) = step.point();
            if let Some(values) = self.signals.get_mut(&event) {
                if let Some(stages) = values.get_mut(&value) {
                    stages.remove(&id);
                    if stages.is_empty() {
                        values.remove(&value);
                    }
                }
                if values.is_empty() {
                    self.signals.remove(&event);
                }
            }
            held.push(step);
        }
        if self.streams.get(&stream).is_some_and(|stream| stream.last.is_none()) {
            self.streams.remove(&stream);
        }
    }

    /// Whether the stream has a wait for more than its event has reached.
    fn has_open_wait(&mut self, stream: u64) -> bool {
        let Some(stream) = self.streams.get_mut(&stream) else { return false };
        while let Some(wait) = stream.open.first().copied() {
            let Step { event, value, .. } = &self.waits[wait].step;
            if event.value() < *value {
                return true;
            }
            stream.open.remove(&wait);
        }
        false
    }

    /// Whether a wait is for a signal of the table, and neither reached nor failed.
    pub(super) fn blocks(&self, wait: WaitId) -> bool {
        let step = &self.waits[wait].step;
        let known = self.signals.get(&step.id).is_some_and(|values| values.contains_key(&step.value));
        known && is_open(step)
    }

    /// The stages that have a signal which ends a wait; those with just its value first.
    fn candidates(&self, wait: WaitId) -> impl Iterator<Item = StageId> {
        let (event, value) = self.waits[wait].step.point();
        let values = self.signals.get(&event).into_iter().flat_map(move |values| values.range(value..));
        values.flat_map(|(_, stages)| stages.iter().copied())
    }

    /// Gives the waits that block a witness each; those for which there is none stay in `loose`. Returns a cycle that
    /// cannot be avoided, if one of them is in such.
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
                match self.examine(&path) {
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
        self.waits[wait].witness = Some(witness);
        self.stages[witness].dependents.insert(wait);
    }

    /// The waits that lead from stage to stage along a path, where the stream does not.
    fn waits_of(&self, path: &[StageId]) -> impl Iterator<Item = WaitId> {
        path.windows(2).filter_map(|pair| {
            let waits = &self.stages[pair[1]].waits;
            let by_stream = self.stages[pair[0]].after == Some(pair[1]);
            waits.iter().copied().find(|w| !by_stream && self.waits[*w].witness == Some(pair[0]))
        })
    }

    /// What the waits along a path are. Witnesses of those that do not block any more are forgotten.
    fn examine(&mut self, path: &[StageId]) -> Way {
        let (mut waits, mut ended, mut choice) = (Vec::with_capacity(path.len()), Vec::new(), false);
        for wait in self.waits_of(path) {
            waits.push(wait);
            match self.candidate_count(wait) {
                (true, count) => choice |= count > 1,
                (false, _) => ended.push(wait),
            }
        }
        for wait in &ended {
            if let Some(witness) = self.waits[*wait].witness.take() {
                self.stages[witness].dependents.remove(wait);
            }
        }
        match ended.is_empty() {
            false => Way::Open,
            true if choice => Way::Choice,
            true => Way::Shut(waits),
        }
    }

    /// Whether a wait blocks, as [`Table::blocks`], and how many stages could end it, of which two are as good as more.
    fn candidate_count(&self, wait: WaitId) -> (bool, usize) {
        let step = &self.waits[wait].step;
        let Some(values) = self.signals.get(&step.id) else { return (false, 0) };
        let mut values = values.range(step.value..);
        let Some((least, stages)) = values.next() else { return (false, 0) };
        let blocks = *least == step.value && is_open(step);
        (blocks, if stages.len() > 1 || values.next().is_some() { 2 } else { 1 })
    }

    /// Brings `to` behind `from` in the order; or the path from `to` to `from` for which that cannot be.
    fn connect(&mut self, from: StageId, to: StageId) -> Result<(), Vec<StageId>> {
        if from == to {
            return Err(vec![to]);
        }
        if self.order.precedes(from, to) {
            return Ok(());
        }
        self.searches += 1;
        let mut found = [vec![to], vec![from]];
        let mut next = [0, 0];
        self.stages[to].seen[0] = (self.searches, to);
        self.stages[from].seen[1] = (self.searches, from);
        loop {
            for side in [0, 1] {
                let Some(at) = found[side].get(next[side]).copied() else {
                    self.rearrange(side, &mut found[side], if side == 0 { from } else { to });
                    return Ok(());
                };
                next[side] += 1;
                self.visits += 1;
                if let Some(met) = self.step(side, at, [to, from], &mut found[side]) {
                    return Err(self.path(side, at, met));
                }
            }
        }
    }

    /// Goes from one stage to those directly behind it, or on side 1 before it, as far as they lie between `ends`. Returns a stage to
    /// which the search from the other side has come, if it meets one.
    fn step(
        &mut self,
        side: usize,
        at: StageId,
        ends: [StageId; 2],
        found: &mut Vec<StageId>,
    ) -> Option<StageId> {
        let mut near = std::mem::take(&mut self.near);
        near.clear();
        let Stage { before, after, waits, dependents, .. } = &self.stages[at];
        match side {
            0 => near
                .extend(after.iter().copied().chain(dependents.iter().map(|wait| self.waits[*wait].stage))),
            _ => {
                near.extend(before.iter().copied().chain(waits.iter().filter_map(|w| self.waits[*w].witness)))
            }
        }
        let met = near.iter().copied().find(|near| {
            let stage = &mut self.stages[*near];
            if stage.seen[1 - side].0 == self.searches {
                return true;
            }
            let [to, from] = ends;
            let between =
                if side == 0 { self.order.precedes(*near, from) } else { self.order.precedes(to, *near) };
            if between && stage.seen[side].0 != self.searches {
                stage.seen[side] = (self.searches, at);
                found.push(*near);
            }
            false
        });
        self.near = near;
        met
    }

    /// Moves what a search has found: from side 0 behind `at`, from side 1 before it.
    fn rearrange(&mut self, side: usize, found: &mut [StageId], at: StageId) {
        found.sort_unstable_by_key(|stage| self.order.label(*stage));
        found.iter().for_each(|stage| self.order.remove(*stage));
        if side == 0 {
            found.iter().rev().for_each(|stage| self.order.insert_after(at, *stage));
        } else {
            found.iter().for_each(|stage| self.order.insert_before(at, *stage));
        }
    }

    /// The path on which two searches have met: one was at `at` and saw `near`.
    fn path(&self, side: usize, at: StageId, near: StageId) -> Vec<StageId> {
        let (low, high) = if side == 0 { (at, near) } else { (near, at) };
        let back = |mut stage: StageId, side: usize| {
            let mut path = vec![stage];
            while self.stages[stage].seen[side].1 != stage {
                stage = self.stages[stage].seen[side].1;
                path.push(stage);
            }
            path
        };
        let mut path = back(low, 0);
        path.reverse();
        path.extend(back(high, 1));
        path
    }

    /// A cycle of waits, each for a signal behind the one before it and the first for one behind the last.
    fn words_of_cycle(&self, mut waits: Vec<WaitId>) -> String {
        // What waits for what is named in this order, from the stream with the lowest number on.
        waits.reverse();
        let stream = |wait: &WaitId| self.stages[self.waits[*wait].stage].stream;
        let first = (0..waits.len()).min_by_key(|at| stream(&waits[*at])).unwrap_or(0);
        waits.rotate_left(first);
        super::words(waits.iter().map(|wait| (stream(wait), &self.waits[*wait].step)))
    }

    /// Whether nothing of any submission is left.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let lists = self.stages.is_empty() && self.waits.is_empty() && self.loose.is_empty();
        let indices = self.streams.is_empty() && self.signals.is_empty() && self.waiting.is_empty();
        lists && indices && self.submissions.is_empty()
    }

    /// The first stages of all streams.
    pub(super) fn starts(&self) -> Vec<StageId> {
        self.stages.iter().filter(|(_, stage)| stage.before.is_none()).map(|(id, _)| id).collect()
    }

    /// Takes over another order of all stages and other witnesses.
    pub(super) fn replace(&mut self, order: &[StageId], witnesses: &[(WaitId, StageId)]) {
        for stage in order {
            self.order.remove(*stage);
            self.order.push_last(*stage);
            self.stages[*stage].dependents.clear();
            for wait in &self.stages[*stage].waits {
                self.waits[*wait].witness = None;
            }
        }
        witnesses.iter().for_each(|(wait, stage)| self.set_witness(*wait, *stage));
        self.loose.clear();
    }
}
