//! Simulation of all stages: each stream advances as far as events allow.

use std::collections::{BTreeMap, HashMap};

use super::table::{StageId, Table, WaitId};

/// State of the simulation.
struct Play {
    /// Values of events, and the stages that signaled them.
    values: HashMap<u64, (u64, StageId)>,
    /// Blocked stages by event and value, each with the index of the wait.
    stuck: HashMap<u64, BTreeMap<u64, Vec<(StageId, usize)>>>,
    order: Vec<StageId>,
    witnesses: Vec<(WaitId, StageId)>,
}

impl Table {
    /// Message of the cycle in which streams are blocked. If there is none, the table adopts the order of the simulation.
    pub(super) fn play(&mut self) -> Option<String> {
        let (values, stuck, order, witnesses) = (HashMap::new(), HashMap::new(), Vec::new(), Vec::new());
        let mut play = Play { values, stuck, order, witnesses };
        let mut ready: Vec<(StageId, usize)> = self.starts().into_iter().map(|stage| (stage, 0)).collect();
        while let Some((stage, wait)) = ready.pop() {
            self.go_on(&mut play, stage, wait, &mut ready);
        }
        let stuck = play.stuck.into_values().flat_map(BTreeMap::into_values).flatten();
        let waits: BTreeMap<u64, WaitId> =
            stuck.map(|(stage, wait)| (self.stages[stage].stream, self.stages[stage].waits[wait])).collect();
        if waits.is_empty() {
            self.replace(&play.order, &play.witnesses);
            return None;
        }
        Some(self.cycle(&waits))
    }

    /// Resumes a stage at one of its waits.
    fn go_on(&self, play: &mut Play, stage: StageId, wait: usize, ready: &mut Vec<(StageId, usize)>) {
        let here = &self.stages[stage];
        for (at, wait) in here.waits.iter().enumerate().skip(wait).filter(|(_, wait)| self.blocks(**wait)) {
            let (event, value) = self.waits[*wait].op.point();
            match play.values.get(&event).filter(|(reached, _)| *reached >= value) {
                Some((_, witness)) => play.witnesses.push((*wait, *witness)),
                None => {
                    let stuck = play.stuck.entry(event).or_default().entry(value).or_default();
                    return stuck.push((stage, at));
                }
            }
        }
        play.order.push(stage);
        for op in &here.signals {
            let (event, value) = op.point();
            let reached = play.values.entry(event).or_insert((value, stage));
            if reached.0 < value {
                *reached = (value, stage);
            }
            if let Some(stuck) = play.stuck.get_mut(&event) {
                let later = value.checked_add(1).map(|next| stuck.split_off(&next)).unwrap_or_default();
                ready.extend(std::mem::replace(stuck, later).into_values().flatten());
            }
        }
        ready.extend(here.after.map(|after| (after, 0)));
    }

    /// Follows blocked streams from waiter to signaler until one repeats. `waits` are the waits at which the
    /// streams are blocked.
    fn cycle(&self, waits: &BTreeMap<u64, WaitId>) -> String {
        let mut path: Vec<u64> = Vec::new();
        let mut places = HashMap::new();
        let mut at = waits.keys().next().copied();
        while let Some(stream) = at.filter(|stream| !places.contains_key(stream)) {
            places.insert(stream, path.len());
            path.push(stream);
            let signal = self.exact(waits[&stream]);
            at = signal.map(|stage| self.stages[stage].stream).filter(|next| waits.contains_key(next));
        }
        let first = at.and_then(|stream| places.get(&stream).copied()).unwrap_or(0);
        super::words(path[first..].iter().map(|stream| (*stream, &self.waits[waits[stream]].op)))
    }
}
