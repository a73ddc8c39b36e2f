//! Inserts an edge into the topological order, or finds the cycle that it would close.
//!
//! An edge against the order is searched from both ends, among the stages between them, and the stages found by the shorter
//! search are moved; after Bender, Fineman, Gilbert and Tarjan, "A new approach to incremental cycle detection", 2016, and Pearce
//! and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", 2006.

use super::table::{Stage, StageId, Table, WaitId};

/// The edge is the order of a stream, not a wait.
const BY_STREAM: u32 = u32::MAX;

/// The edge by which a search reached a stage. Compact, since long searches are memory-bound.
#[derive(Clone, Copy, Default)]
pub(super) struct Seen {
    search: u64,
    from: u32,
    /// The wait, or [`BY_STREAM`].
    wait: u32,
}

impl Table {
    /// Orders `to` after `from`; or returns the waits along the path from `to` to `from`, which prevent it.
    pub(super) fn connect(&mut self, from: StageId, to: StageId) -> Result<(), Vec<WaitId>> {
        if from == to {
            return Err(Vec::new());
        }
        if self.order.precedes(from, to) {
            return Ok(());
        }
        self.searches += 1;
        let mut found = [vec![to], vec![from]];
        let mut next = [0, 0];
        for (side, end) in [to, from].into_iter().enumerate() {
            self.stages[end].seen[side] = Seen { search: self.searches, from: end as u32, wait: BY_STREAM };
        }
        loop {
            for side in [0, 1] {
                let Some(at) = found[side].get(next[side]).copied() else {
                    self.rearrange(side, &mut found[side], if side == 0 { from } else { to });
                    return Ok(());
                };
                next[side] += 1;
                self.visits += 1;
                if let Some((met, wait)) = self.step(side, at, [to, from], &mut found[side]) {
                    return Err(self.path(side, at, met, wait));
                }
            }
        }
    }

    /// Visits the direct successors of a stage (on side 1 its predecessors) that lie between `ends`. Returns a stage that the
    /// search from the other side has reached, if any.
    fn step(
        &mut self,
        side: usize,
        at: StageId,
        ends: [StageId; 2],
        found: &mut Vec<StageId>,
    ) -> Option<(StageId, Option<WaitId>)> {
        let mut near = std::mem::take(&mut self.near);
        near.clear();
        let Stage { before, after, waits, .. } = &self.stages[at];
        match side {
            0 => {
                near.extend(after.map(|after| (after, None)));
                near.extend(self.dependents(at).map(|wait| (self.waits[wait].stage, Some(wait))));
            }
            _ => {
                near.extend(before.map(|before| (before, None)));
                near.extend(waits.iter().filter_map(|wait| Some((self.waits[*wait].witness?, Some(*wait)))));
            }
        }
        let met = near.iter().copied().find(|(near, wait)| {
            let stage = &mut self.stages[*near];
            if stage.seen[1 - side].search == self.searches {
                return true;
            }
            let [to, from] = ends;
            let between =
                if side == 0 { self.order.precedes(*near, from) } else { self.order.precedes(to, *near) };
            if between && stage.seen[side].search != self.searches {
                stage.seen[side] = Seen {
                    search: self.searches,
                    from: at as u32,
                    wait: wait.map_or(BY_STREAM, |w| w as u32),
                };
                found.push(*near);
            }
            false
        });
        self.near = near;
        met
    }

    /// Moves the stages that a search found: from side 0 after `at`, from side 1 before it.
    fn rearrange(&mut self, side: usize, found: &mut [StageId], at: StageId) {
        found.sort_unstable_by_key(|stage| self.order.label(*stage));
        found.iter().for_each(|stage| self.order.remove(*stage));
        if side == 0 {
            found.iter().rev().for_each(|stage| self.order.insert_after(at, *stage));
        } else {
            found.iter().for_each(|stage| self.order.insert_before(at, *stage));
        }
    }

    /// The waits along the path on which two searches met: one at `at` reached `near`, by `wait` or the stream's order.
    fn path(&self, side: usize, at: StageId, near: StageId, wait: Option<WaitId>) -> Vec<WaitId> {
        let (low, high) = if side == 0 { (at, near) } else { (near, at) };
        let mut path = Vec::new();
        self.back(low, 0, &mut path);
        path.reverse();
        path.extend(wait);
        self.back(high, 1, &mut path);
        path
    }

    /// Appends the waits by which a search from one side reached a stage, the last one first.
    fn back(&self, mut stage: StageId, side: usize, path: &mut Vec<WaitId>) {
        loop {
            let Seen { from, wait, .. } = self.stages[stage].seen[side];
            path.extend((wait != BY_STREAM).then_some(wait as usize));
            if from as usize == stage {
                return;
            }
            stage = from as usize;
        }
    }
}
