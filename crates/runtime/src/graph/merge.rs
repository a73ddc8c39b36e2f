//! Duplicate work: a launch that computes into transients what another one has computed into transients of its own.
//!
//! The content of each allocation has a number; equal numbers mean equal content, whatever the memory holds. A launch is a
//! duplicate if kernel, grid, values and the numbers of all content that it sees are those of an earlier one, which
//! memory the same arguments share included. Its readers then read the earlier one's results, which nobody changes
//! any more.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_driver::{Binding, Command, Dim3, Dispatch, MemorySlice};

use super::step::{Mode, Step, Touch, Work};
use crate::identity::identity;
use crate::memory::touched::slices_mut;
use crate::memory::usage::Storage;

/// What content is, by how it came about.
#[derive(PartialEq, Eq, Hash)]
enum Content {
    /// What a transient holds at first, which no kernel may depend on.
    Anything(u64),
    /// What a buffer holds at first.
    Given(usize),
    /// Known to be like no other.
    Unique(usize),
    /// A pattern over all bytes.
    Filled { pattern: Vec<u8>, bytes: u64 },
    /// Other content, with a part of it replaced.
    Patched { old: u64, offset: u64, len: u64, with: Patch },
    /// What a launch leaves in the allocation that is its argument's, counted from the first.
    Result { launch: u64, allocation: usize },
}

#[derive(PartialEq, Eq, Hash)]
enum Patch {
    Pattern(Vec<u8>),
    Copy { content: u64, offset: u64 },
}

/// A launch without the names of its memory.
#[derive(PartialEq, Eq, Hash)]
struct Launch {
    pipeline: usize,
    /// Unless they are read from memory, which is then the last of `args`.
    threads: Option<Dim3>,
    group: Dim3,
    args: Vec<Value>,
}

#[derive(PartialEq, Eq, Hash)]
enum Value {
    Memory {
        allocation: usize,
        content: u64,
        offset: u64,
        len: u64,
    },
    Bytes(Vec<u8>),
    /// A value that is given anew for each run.
    Parameter(usize),
    Threadgroup(u64),
}

/// Numbers for what is equal.
struct Numbers<T> {
    known: HashMap<T, u64>,
}

impl<T: Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, value: T) -> u64 {
        let next = self.known.len() as u64;
        *self.known.entry(value).or_insert(next)
    }
}

/// The content of all allocations while the nodes are gone through in order.
struct Contents {
    numbers: Numbers<Content>,
    now: HashMap<usize, u64>,
}

impl Contents {
    fn of(&mut self, storage: &Arc<Storage>) -> u64 {
        let first = match storage.block.is_placeholder() {
            true => Content::Anything(storage.block.bytes),
            false => Content::Given(identity(storage)),
        };
        let numbers = &mut self.numbers;
        *self.now.entry(identity(storage)).or_insert_with(|| numbers.of(first))
    }

    fn set(&mut self, touch: &Touch, content: Content) {
        let number = self.numbers.of(content);
        self.now.insert(touch.key(), number);
    }

    fn patch(&mut self, touch: &Touch, with: Patch) {
        let old = if touch.is_whole() { u64::MAX } else { self.of(&touch.storage) };
        let len = touch.range.end - touch.range.start;
        self.set(touch, Content::Patched { old, offset: touch.range.start, len, with });
    }
}

/// Takes duplicates out of `order` and lets their readers read the other results; `parameter` tells the arguments that
/// runs replace. Returns each duplicate with the node that stays, and what prepared only its results.
pub(super) fn merge(
    steps: &mut [Step],
    order: &mut Vec<usize>,
    is_ordered: &[bool],
    parameter: impl Fn(usize, usize) -> Option<usize>,
) -> (Vec<(usize, usize)>, Vec<usize>) {
    let mut contents = Contents { numbers: Numbers { known: HashMap::new() }, now: HashMap::new() };
    let (mut launches, mut first) = (Numbers { known: HashMap::new() }, HashMap::new());
    let (mut merged, mut needless) = (Vec::new(), Vec::new());
    for at in 0..order.len() {
        let node = order[at];
        match steps[node].work.clone() {
            Work::Command(Command::Dispatch(dispatch)) if is_pure(&dispatch) => {
                let launch = launches.of(launch(&dispatch, node, &steps[node], &mut contents, &parameter));
                let other = *first.entry(launch).or_insert(node);
                let pairs = pairs(&steps[other].touches, &steps[node].touches);
                let mergeable = other != node
                    && !is_ordered[node]
                    && pairs.iter().all(|pair| can_merge(steps, order, at, other, pair));
                if mergeable && !pairs.is_empty() {
                    merged.push((node, other));
                    for (theirs, ours) in &pairs {
                        needless.extend(order[..at].iter().copied().filter(|n| writes(&steps[*n], ours)));
                        order[at + 1..].iter().for_each(|later| replace(&mut steps[*later], ours, theirs));
                    }
                    continue;
                }
                let allocations = allocations(&steps[node].touches);
                for touch in steps[node].touches.iter().filter(|touch| touch.writes()) {
                    let allocation = allocations[&touch.key()];
                    contents.set(touch, Content::Result { launch, allocation });
                }
            }
            Work::Command(Command::Fill { pattern, .. }) => {
                let touch = &steps[node].touches[0];
                match touch.is_whole() {
                    true => contents.set(touch, Content::Filled { pattern, bytes: touch.range.end }),
                    false => contents.patch(touch, Patch::Pattern(pattern)),
                }
            }
            Work::Command(Command::Copy { .. }) => {
                let [source, target] = [&steps[node].touches[0], &steps[node].touches[1]];
                let content = contents.of(&source.storage);
                match source.is_whole() && target.is_whole() {
                    true => drop(contents.now.insert(target.key(), content)),
                    false => contents.patch(target, Patch::Copy { content, offset: source.range.start }),
                }
            }
            _ => {
                for touch in steps[node].touches.iter().filter(|touch| touch.writes()) {
                    contents.set(touch, Content::Unique(node));
                }
            }
        }
    }
    order.retain(|node| !merged.iter().any(|(duplicate, _)| duplicate == node) && !needless.contains(node));
    (merged, needless)
}

/// Whether equal arguments give equal results: no order among threads is seen, and all that it sees is known.
fn is_pure(dispatch: &Dispatch) -> bool {
    dispatch.uses.is_empty() && dispatch.pipeline.signature().code.is_some_and(|code| code.atomics == 0)
}

/// The allocations of a node by their first use.
fn allocations(touches: &[Touch]) -> HashMap<usize, usize> {
    let mut numbers = HashMap::new();
    for touch in touches {
        let next = numbers.len();
        numbers.entry(touch.key()).or_insert(next);
    }
    numbers
}

fn launch(
    dispatch: &Dispatch,
    node: usize,
    step: &Step,
    contents: &mut Contents,
    parameter: &impl Fn(usize, usize) -> Option<usize>,
) -> Launch {
    let allocations = allocations(&step.touches);
    let by_memory: HashMap<usize, &Arc<Storage>> =
        step.touches.iter().map(|touch| (identity(&touch.storage.block.memory), &touch.storage)).collect();
    let mut memory = |slice: &MemorySlice| {
        let storage = by_memory[&identity(&slice.memory)];
        let (allocation, content) = (allocations[&identity(storage)], contents.of(storage));
        Value::Memory { allocation, content, offset: slice.offset, len: slice.len }
    };
    let value = |(index, binding): (usize, &Binding)| match binding {
        Binding::Memory(slice) => memory(slice),
        Binding::Bytes(bytes) => {
            parameter(node, index).map_or_else(|| Value::Bytes(bytes.clone()), Value::Parameter)
        }
        Binding::Threadgroup(bytes) => Value::Threadgroup(*bytes),
    };
    let mut args: Vec<Value> = dispatch.bindings.iter().enumerate().map(value).collect();
    args.extend(dispatch.grid.counts().map(memory));
    Launch {
        pipeline: identity(&dispatch.pipeline),
        threads: dispatch.grid.threads(),
        group: dispatch.group,
        args,
    }
}

/// The allocations that the two write, each other's counterparts.
fn pairs(theirs: &[Touch], ours: &[Touch]) -> Vec<(Arc<Storage>, Arc<Storage>)> {
    let mut pairs: Vec<(Arc<Storage>, Arc<Storage>)> = Vec::new();
    for (theirs, ours) in theirs.iter().zip(ours).filter(|(theirs, _)| theirs.writes()) {
        if !pairs.iter().any(|(_, known)| identity(known) == ours.key()) {
            pairs.push((theirs.storage.clone(), ours.storage.clone()));
        }
    }
    pairs
}

/// Whether both are transients that nobody else writes from here on, and nobody has read ours before.
fn can_merge(
    steps: &[Step],
    order: &[usize],
    at: usize,
    other: usize,
    (theirs, ours): &(Arc<Storage>, Arc<Storage>),
) -> bool {
    let are_transients = theirs.block.is_placeholder() && ours.block.is_placeholder();
    let same_size = theirs.block.bytes == ours.block.bytes && identity(theirs) != identity(ours);
    let other_at = order[..at].iter().position(|node| *node == other);
    let final_theirs =
        other_at.is_some_and(|other| !order[other + 1..].iter().any(|node| writes(&steps[*node], theirs)));
    let final_ours = !order[at + 1..].iter().any(|node| writes(&steps[*node], ours));
    let only_prepared = order[..at].iter().all(|node| {
        let touches = &steps[*node].touches;
        let prepares = |touch: &Touch| touch.mode == Mode::Overwrite;
        touches.iter().filter(|touch| touch.key() == identity(ours)).all(prepares)
    });
    are_transients && same_size && final_theirs && final_ours && only_prepared
}

fn writes(step: &Step, storage: &Arc<Storage>) -> bool {
    step.touches.iter().any(|touch| touch.writes() && touch.key() == identity(storage))
}

/// Lets a node use `with` in place of `storage`.
fn replace(step: &mut Step, storage: &Arc<Storage>, with: &Arc<Storage>) {
    for touch in step.touches.iter_mut().filter(|touch| touch.key() == identity(storage)) {
        touch.storage = with.clone();
    }
    let (old, new) = (identity(&storage.block.memory), &with.block.memory);
    match &mut step.work {
        Work::Command(command) => {
            let slices = slices_mut(command).into_iter().filter(|slice| identity(&slice.memory) == old);
            slices.for_each(|slice| slice.memory = new.clone());
        }
        Work::Transfer { source, .. } => {
            if identity(&source.storage) == identity(storage) {
                source.storage = with.clone();
            }
        }
        Work::Nothing => {}
    }
}
