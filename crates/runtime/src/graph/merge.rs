//! Common subexpression elimination: removes launches that compute the same results into transients as an earlier launch.
//!
//! Memory contents are value-numbered: equal numbers mean equal content, regardless of the memory that holds it. A launch is a
//! duplicate if its kernel, grid, values, the numbers of all content that it accesses, and the aliasing of its arguments are
//! those of an earlier launch. Its readers then read the earlier launch's results, which are not modified any more.

use std::collections::HashMap;
use std::sync::Arc;

use elinvar_driver::{Binding, Command, Dim3, Dispatch, MemorySlice};

use super::node::{MemoryAccess, Mode, NodeData, Work};
use crate::identity::identity;
use crate::memory::memory_effects::slices_mut;
use crate::memory::usage::Storage;

/// Content, by its origin.
#[derive(PartialEq, Eq, Hash)]
enum Content {
    /// Initial content of a transient, on which no kernel may depend.
    Anything(u64),
    /// Initial content of a buffer.
    Given(usize),
    /// Unequal to all other content.
    Unique(usize),
    /// A repeated pattern.
    Filled { pattern: Vec<u8>, bytes: u64 },
    /// Other content with a replaced range.
    Patched { old: u64, offset: u64, len: u64, with: Patch },
    /// Result of a launch in its n-th allocation.
    Result { launch: u64, allocation: usize },
}

#[derive(PartialEq, Eq, Hash)]
enum Patch {
    Pattern(Vec<u8>),
    Copy { content: u64, offset: u64 },
}

/// The value of a launch: independent of the memory that it uses.
#[derive(PartialEq, Eq, Hash)]
struct Launch {
    pipeline: usize,
    /// `None` for an indirect launch, whose counts are the last of `args`.
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
    /// A parameter, replaced between runs.
    Parameter(usize),
    Threadgroup(u64),
    Unbound,
}

/// Value numbering: equal values have equal numbers.
struct Numbers<T> {
    known: HashMap<T, u64>,
}

impl<T: Eq + std::hash::Hash> Numbers<T> {
    fn of(&mut self, value: T) -> u64 {
        let next = self.known.len() as u64;
        *self.known.entry(value).or_insert(next)
    }
}

/// Content of all allocations during the traversal of the nodes.
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

    fn set(&mut self, access: &MemoryAccess, content: Content) {
        let number = self.numbers.of(content);
        self.now.insert(access.key(), number);
    }

    fn patch(&mut self, access: &MemoryAccess, with: Patch) {
        let old = if access.is_whole() { u64::MAX } else { self.of(&access.storage) };
        let len = access.range.end - access.range.start;
        self.set(access, Content::Patched { old, offset: access.range.start, len, with });
    }
}

/// Removes duplicates from `order` and redirects their readers. `parameter` maps arguments to parameters. Returns each duplicate
/// with the remaining node, and the nodes that only initialized its results.
pub(super) fn merge(
    nodes: &mut [NodeData],
    order: &mut Vec<usize>,
    is_ordered: &[bool],
    parameter: impl Fn(usize, usize) -> Option<usize>,
) -> (Vec<(usize, usize)>, Vec<usize>) {
    let mut contents = Contents { numbers: Numbers { known: HashMap::new() }, now: HashMap::new() };
    let (mut launches, mut first) = (Numbers { known: HashMap::new() }, HashMap::new());
    let (mut merged, mut needless) = (Vec::new(), Vec::new());
    for at in 0..order.len() {
        let node = order[at];
        match nodes[node].work.clone() {
            Work::Command(Command::Dispatch(dispatch)) if is_pure(&dispatch) => {
                let launch = launches.of(launch(&dispatch, node, &nodes[node], &mut contents, &parameter));
                let other = *first.entry(launch).or_insert(node);
                let pairs = pairs(&nodes[other].accesses, &nodes[node].accesses);
                let mergeable = other != node
                    && !is_ordered[node]
                    && pairs.iter().all(|pair| can_merge(nodes, order, at, other, pair));
                if mergeable && !pairs.is_empty() {
                    merged.push((node, other));
                    for (theirs, ours) in &pairs {
                        needless.extend(order[..at].iter().copied().filter(|n| writes(&nodes[*n], ours)));
                        order[at + 1..].iter().for_each(|later| replace(&mut nodes[*later], ours, theirs));
                    }
                    continue;
                }
                let allocations = allocations(&nodes[node].accesses);
                for access in nodes[node].accesses.iter().filter(|access| access.writes()) {
                    let allocation = allocations[&access.key()];
                    contents.set(access, Content::Result { launch, allocation });
                }
            }
            Work::Command(Command::Fill { pattern, .. }) => {
                let access = &nodes[node].accesses[0];
                match access.is_whole() {
                    true => contents.set(access, Content::Filled { pattern, bytes: access.range.end }),
                    false => contents.patch(access, Patch::Pattern(pattern)),
                }
            }
            Work::Command(Command::Copy { .. }) => {
                let [source, target] = [&nodes[node].accesses[0], &nodes[node].accesses[1]];
                let content = contents.of(&source.storage);
                match source.is_whole() && target.is_whole() {
                    true => drop(contents.now.insert(target.key(), content)),
                    false => contents.patch(target, Patch::Copy { content, offset: source.range.start }),
                }
            }
            _ => {
                for access in nodes[node].accesses.iter().filter(|access| access.writes()) {
                    contents.set(access, Content::Unique(node));
                }
            }
        }
    }
    order.retain(|node| !merged.iter().any(|(duplicate, _)| duplicate == node) && !needless.contains(node));
    (merged, needless)
}

/// Whether equal arguments give equal results: the kernel does not observe the order of threads, and all its inputs are known.
fn is_pure(dispatch: &Dispatch) -> bool {
    dispatch.uses.is_empty() && dispatch.pipeline.signature().code.is_some_and(|code| code.atomics == 0)
}

/// The allocations of a node, numbered by first use.
fn allocations(accesses: &[MemoryAccess]) -> HashMap<usize, usize> {
    let mut numbers = HashMap::new();
    for access in accesses {
        let next = numbers.len();
        numbers.entry(access.key()).or_insert(next);
    }
    numbers
}

fn launch(
    dispatch: &Dispatch,
    node: usize,
    data: &NodeData,
    contents: &mut Contents,
    parameter: &impl Fn(usize, usize) -> Option<usize>,
) -> Launch {
    let allocations = allocations(&data.accesses);
    let by_memory: HashMap<usize, &Arc<Storage>> = data
        .accesses
        .iter()
        .map(|access| (identity(&access.storage.block.memory), &access.storage))
        .collect();
    let mut memory = |slice: &MemorySlice| {
        let storage = by_memory[&identity(&slice.memory)];
        let (allocation, content) = (allocations[&identity(storage)], contents.of(storage));
        Value::Memory { allocation, content, offset: slice.offset, len: slice.len }
    };
    let value = |(index, binding): (usize, &Binding)| match binding {
        Binding::Memory(slice) => memory(slice),
        Binding::Bytes(bytes) => {
            parameter(node, index).map_or_else(|| Value::Bytes(bytes.to_vec()), Value::Parameter)
        }
        Binding::Threadgroup(bytes) => Value::Threadgroup(*bytes),
        Binding::Unbound => Value::Unbound,
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

/// Pairs of corresponding allocations that the two nodes write.
fn pairs(theirs: &[MemoryAccess], ours: &[MemoryAccess]) -> Vec<(Arc<Storage>, Arc<Storage>)> {
    let mut pairs: Vec<(Arc<Storage>, Arc<Storage>)> = Vec::new();
    for (theirs, ours) in theirs.iter().zip(ours).filter(|(theirs, _)| theirs.writes()) {
        if !pairs.iter().any(|(_, known)| identity(known) == ours.key()) {
            pairs.push((theirs.storage.clone(), ours.storage.clone()));
        }
    }
    pairs
}

/// Whether both are transients that no later node writes, and no earlier node reads ours.
fn can_merge(
    nodes: &[NodeData],
    order: &[usize],
    at: usize,
    other: usize,
    (theirs, ours): &(Arc<Storage>, Arc<Storage>),
) -> bool {
    let are_transients = theirs.block.is_placeholder() && ours.block.is_placeholder();
    let same_size = theirs.block.bytes == ours.block.bytes && identity(theirs) != identity(ours);
    let other_at = order[..at].iter().position(|node| *node == other);
    let final_theirs =
        other_at.is_some_and(|other| !order[other + 1..].iter().any(|node| writes(&nodes[*node], theirs)));
    let final_ours = !order[at + 1..].iter().any(|node| writes(&nodes[*node], ours));
    let only_prepared = order[..at].iter().all(|node| {
        let accesses = &nodes[*node].accesses;
        let prepares = |access: &MemoryAccess| access.mode == Mode::Overwrite;
        accesses.iter().filter(|access| access.key() == identity(ours)).all(prepares)
    });
    are_transients && same_size && final_theirs && final_ours && only_prepared
}

fn writes(data: &NodeData, storage: &Arc<Storage>) -> bool {
    data.accesses.iter().any(|access| access.writes() && access.key() == identity(storage))
}

/// Replaces `storage` by `with` in a node.
fn replace(data: &mut NodeData, storage: &Arc<Storage>, with: &Arc<Storage>) {
    for access in data.accesses.iter_mut().filter(|access| access.key() == identity(storage)) {
        access.storage = with.clone();
    }
    let (old, new) = (identity(&storage.block.memory), &with.block.memory);
    match &mut data.work {
        Work::Command(command) => {
            let slices = slices_mut(command).into_iter().filter(|slice| identity(&slice.memory) == old);
            slices.for_each(|slice| slice.memory = new.clone());
        }
        Work::Transfer { source, .. } => {
            if identity(&source.storage) == identity(storage) {
                source.storage = with.clone();
            }
        }
        // It uses no transients.
        Work::Nothing | Work::Collective(_) => {}
    }
}
