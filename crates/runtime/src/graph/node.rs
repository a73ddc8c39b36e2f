//! [`NodeData`]: a node of a graph as data, and its memory accesses.
//!
//! The accesses follow from the command and its kernel's signature. An argument that the kernel may write counts as read too,
//! since unwritten bytes keep their content.

use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::Command;

use crate::Device;
use crate::collective::GraphCollective;
use crate::identity::identity;
use crate::memory::memory_effects::{COMMANDS, Effect, INHERITED, MemoryEffect, USED, memory_effects};
use crate::memory::span::Span;
use crate::memory::usage::{Access, Storage, Usage, Who};

/// A node of a graph.
#[derive(Clone)]
pub(super) struct NodeData {
    pub(super) name: String,
    pub(super) device: Device,
    pub(super) work: Work,
    pub(super) accesses: Vec<MemoryAccess>,
    /// Dependencies that the program added.
    pub(super) after: Vec<usize>,
}

/// Work of a node.
#[derive(Clone)]
pub(super) enum Work {
    /// None: the node only orders others.
    Nothing,
    /// A command of its device.
    Command(Command),
    /// A copy to another device.
    Transfer { source: Span, target: Span },
    /// An operation of a communicator's member.
    Collective(Arc<GraphCollective>),
}

/// Kind of access to a byte range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    /// Any byte may be read, and any may be written.
    Modify,
    /// All bytes are written; none is read.
    Overwrite,
}

/// An access of a node to an allocation.
#[derive(Clone)]
pub(super) struct MemoryAccess {
    pub(super) storage: Arc<Storage>,
    pub(super) range: Range<u64>,
    pub(super) mode: Mode,
    pub(super) who: Who,
}

impl NodeData {
    pub(super) fn is_work(&self) -> bool {
        !matches!(self.work, Work::Nothing)
    }
}

impl MemoryAccess {
    pub(super) fn of_span(span: &Span, mode: Mode, who: &'static str) -> Self {
        let range = span.offset..span.offset + span.len;
        Self { storage: span.storage.clone(), range, mode, who: Who::Operation(who) }
    }

    pub(super) fn writes(&self) -> bool {
        self.mode != Mode::Read
    }

    pub(super) fn key(&self) -> usize {
        identity(&self.storage)
    }

    pub(super) fn is_transient(&self) -> bool {
        self.storage.block.is_placeholder()
    }

    /// Whether the range is the whole allocation.
    pub(super) fn is_whole(&self) -> bool {
        self.range == (0..self.storage.block.bytes)
    }

    /// The use for the usage record.
    pub(super) fn usage(&self) -> Usage {
        let access = if self.writes() { Access::Write } else { Access::Read };
        // The range written through an address is unknown.
        let by_address = match &self.who {
            Who::Use(..) => true,
            Who::Operation(name) => [COMMANDS, INHERITED, USED].contains(name),
            _ => false,
        };
        let covers = self.is_whole() && !by_address;
        Usage { storage: self.storage.clone(), who: self.who.clone(), access, covers }
    }
}

/// Memory accesses of a command; `usages` has the allocations that it names.
pub(super) fn accesses(command: &Command, usages: &[Usage]) -> Vec<MemoryAccess> {
    let access = |MemoryEffect { slice, effect, who }: MemoryEffect<'_>| {
        let of = |usage: &&Usage| identity(&usage.storage.block.memory) == identity(&slice.memory);
        let usage = usages.iter().find(of)?;
        let mode = match effect {
            Effect::Reads => Mode::Read,
            Effect::MayWrite | Effect::MayReadAndWrite => Mode::Modify,
            Effect::Overwrites => Mode::Overwrite,
        };
        Some(MemoryAccess {
            storage: usage.storage.clone(),
            range: slice.offset..slice.offset + slice.len,
            mode,
            who,
        })
    };
    memory_effects(command).into_iter().filter_map(access).collect()
}
