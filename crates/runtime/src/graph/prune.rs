//! Dead work: nodes whose results nobody reads and nobody keeps.
//!
//! Backwards from the end, with the bytes that are still wanted. A buffer that the program holds is wanted as it is at the
//! end; a transient is not; a buffer that only the graph has left is wanted if a run reads what the run before it left.

use std::collections::HashMap;

use super::ranges::Ranges;
use super::step::{Mode, Step};

/// What is wanted of a buffer when the graph has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// All of it.
    Whole,
    /// What the next run reads before it writes it.
    ByNextRun,
    /// Nothing.
    Nothing,
}

/// The nodes of `order` that are dead.
pub(super) fn dead(steps: &[Step], order: &[usize], wanted: impl Fn(usize) -> Wanted) -> Vec<usize> {
    let mut at_end: HashMap<usize, Ranges> = HashMap::new();
    for touch in order.iter().flat_map(|node| &steps[*node].touches) {
        if wanted(touch.key()) == Wanted::Whole {
            at_end.entry(touch.key()).or_default().add(&(0..touch.storage.block.bytes));
        }
    }
    loop {
        let (dead, at_start) = backwards(steps, order, at_end.clone());
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

/// The dead nodes, and what is wanted before the first node.
fn backwards(
    steps: &[Step],
    order: &[usize],
    mut live: HashMap<usize, Ranges>,
) -> (Vec<usize>, HashMap<usize, Ranges>) {
    let mut dead = Vec::new();
    for node in order.iter().rev() {
        let touches = &steps[*node].touches;
        let is_wanted = touches
            .iter()
            .any(|touch| touch.writes() && live.get(&touch.key()).is_some_and(|l| l.overlaps(&touch.range)));
        if !is_wanted {
            dead.push(*node);
            continue;
        }
        for touch in touches.iter().filter(|touch| touch.mode == Mode::Overwrite) {
            live.entry(touch.key()).or_default().remove(&touch.range);
        }
        for touch in touches.iter().filter(|touch| touch.mode != Mode::Overwrite) {
            live.entry(touch.key()).or_default().add(&touch.range);
        }
    }
    (dead, live)
}
