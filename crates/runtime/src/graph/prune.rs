//! Dead code elimination: removes nodes whose results are not used.
//!
//! A backward liveness analysis over byte ranges. At the end of a run, a buffer that the program holds is live; a transient is
//! not; a buffer that only the graph holds is live if the next run reads content of this run.

use std::collections::HashMap;

use super::node::{Mode, NodeData, Work};
use super::ranges::Ranges;

/// Liveness of a buffer at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The whole buffer is live.
    Whole,
    /// The ranges that the next run reads before it writes them are live.
    ByNextRun,
    /// The buffer is dead.
    Nothing,
}

/// The dead nodes of `order`.
pub(super) fn dead(nodes: &[NodeData], order: &[usize], wanted: impl Fn(usize) -> Wanted) -> Vec<usize> {
    let mut at_end: HashMap<usize, Ranges> = HashMap::new();
    for access in order.iter().flat_map(|node| &nodes[*node].accesses) {
        if wanted(access.key()) == Wanted::Whole {
            at_end.entry(access.key()).or_default().add(&(0..access.storage.block.bytes));
        }
    }
    loop {
        let (dead, at_start) = backwards(nodes, order, at_end.clone());
        let mut grown = false;
        for (key, ranges) in at_start {
            if wanted(key) == Wanted::ByNextRun {
                let end = at_end.entry(key).or_default();
                let before = end.clone();
                end.add_all(&ranges);
                grown |= *end != before;
            }
        }
        if !grown {
            return dead;
        }
    }
}

/// The dead nodes, and the ranges that are live before the first node.
fn backwards(
    nodes: &[NodeData],
    order: &[usize],
    mut live: HashMap<usize, Ranges>,
) -> (Vec<usize>, HashMap<usize, Ranges>) {
    let mut dead = Vec::new();
    for node in order.iter().rev() {
        let accesses = &nodes[*node].accesses;
        // Other members take part in a collective.
        let is_collective = matches!(nodes[*node].work, Work::Collective(_));
        let is_wanted = is_collective
            || accesses.iter().any(|access| {
                access.writes() && live.get(&access.key()).is_some_and(|l| l.overlaps(&access.range))
            });
        if !is_wanted {
            dead.push(*node);
            continue;
        }
        for access in accesses.iter().filter(|access| access.mode == Mode::Overwrite) {
            live.entry(access.key()).or_default().remove(&access.range);
        }
        for access in accesses.iter().filter(|access| access.mode != Mode::Overwrite) {
            live.entry(access.key()).or_default().add(&access.range);
        }
    }
    (dead, live)
}
