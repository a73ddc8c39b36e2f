//! [`Step`]: a node of a graph as data, and what it does to memory.
//!
//! What a command touches follows from the command and its kernel's signature: an argument that the kernel may write counts
//! as read too, since what it leaves alone stays.

use std::ops::Range;
use std::sync::Arc;

use elinvar_driver::Command;

use crate::Device;
use crate::identity::identity;
use crate::memory::span::Span;
use crate::memory::touched::{Effect, Touched, touched};
use crate::memory::usage::{Access, Storage, Usage, Who};

/// A node.
#[derive(Clone)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) device: Device,
    pub(super) work: Work,
    pub(super) touches: Vec<Touch>,
    /// The nodes that the program put before it.
    pub(super) after: Vec<usize>,
}

/// What a node does.
#[derive(Clone)]
pub(super) enum Work {
    /// Nothing: it orders others.
    Nothing,
    /// A command of its device.
    Command(Command),
    /// A copy to another device.
    Transfer { source: Span, target: Span },
}

/// What is done to a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Read,
    /// Any of them may be read, and any may be written.
    Modify,
    /// All are written and none is read.
    Overwrite,
}

/// One use of one allocation by a node.
#[derive(Clone)]
pub(super) struct Touch {
    pub(super) storage: Arc<Storage>,
    pub(super) range: Range<u64>,
    pub(super) mode: Mode,
    pub(super) who: Who,
}

impl Step {
    pub(super) fn is_work(&self) -> bool {
        !matches!(self.work, Work::Nothing)
    }
}

impl Touch {
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

    /// The same for the account of the memory.
    pub(super) fn usage(&self) -> Usage {
        let access = if self.writes() { Access::Write } else { Access::Read };
        // Which bytes are written through an address is not known.
        let covers = self.is_whole() && !matches!(self.who, Who::Use(..));
        Usage { storage: self.storage.clone(), who: self.who.clone(), access, covers }
    }
}

/// What a command does to memory; `usages` has the allocations of all that it names.
pub(super) fn touches(command: &Command, usages: &[Usage]) -> Vec<Touch> {
    let touch = |Touched { slice, effect, who }: Touched<'_>| {
        let of = |usage: &&Usage| identity(&usage.storage.block.memory) == identity(&slice.memory);
        let usage = usages.iter().find(of)?;
        let mode = match effect {
            Effect::Reads => Mode::Read,
            Effect::MayWrite | Effect::MayReadAndWrite => Mode::Modify,
            Effect::Overwrites => Mode::Overwrite,
        };
        Some(Touch {
            storage: usage.storage.clone(),
            range: slice.offset..slice.offset + slice.len,
            mode,
            who,
        })
    };
    touched(command).into_iter().filter_map(touch).collect()
}
