//! Serialization of commands: the one `match` on [`Command`].

use std::any::Any;

use elinvar_driver::{
    Access, Binding, Command, Dispatch, Error, Grid, Memory, MemorySlice, Result, expect_within,
};

use super::{Link, Out};
use crate::device::Core;
use crate::library::IsolatedPipeline;
use crate::memory::{IsolatedMemory, Part};
use crate::queue::Remote;
use crate::wire::{self, Extent, Launch, Order, Slice, ToWorker, Value};

/// A range of a memory, or of its host copy.
#[derive(Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) part: Part<'a>,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// An operation of the worker on behalf of the host, not ordered with any queue.
pub(crate) enum Transfer<'a> {
    Copy {
        source: Span<'a>,
        target: Span<'a>,
    },
    /// Zero-fill.
    Clear(Span<'a>),
}

/// Writes a transfer, after the messages that it depends on.
pub(super) fn write_transfer(
    (link, core): (&Link, &Core),
    request: u64,
    transfer: &Transfer<'_>,
    out: &mut Out,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let mut writing = Writing { link, core, out, bytes };
    let order = match transfer {
        Transfer::Copy { source, target } => {
            Order::Copy { source: writing.span(*source)?, target: writing.span(*target)? }
        }
        Transfer::Clear(target) => Order::Fill { target: writing.span(*target)?, pattern: &[0] },
    };
    wire::write(&ToWorker::Transfer { request, order }, bytes)
}

/// Writes a batch, after the messages that it depends on.
pub(super) fn write(
    link: &Link,
    queue: &Remote,
    piece: u64,
    commands: &[Command],
    out: &mut Out,
    bytes: &mut Vec<u8>,
) -> Result<()> {
    let mut writing = Writing { link, core: &queue.core, out, bytes };
    let (queue, priority) = (queue.id, queue.priority);
    if !writing.out.queues.contains(&queue) {
        wire::write(&ToWorker::Open { queue, priority }, writing.bytes)?;
        writing.out.queues.insert(queue);
    }
    let commands = commands.iter().map(|command| writing.order(command)).collect::<Result<_>>()?;
    wire::write(&ToWorker::Submit { queue, piece, commands }, bytes)
}

struct Writing<'a> {
    link: &'a Link,
    core: &'a Core,
    out: &'a mut Out,
    bytes: &'a mut Vec<u8>,
}

impl Writing<'_> {
    fn order<'c>(&mut self, command: &'c Command) -> Result<Order<'c>> {
        Ok(match command {
            Command::Dispatch(dispatch) => Order::Dispatch(self.launch(dispatch)?),
            Command::Copy { source, target } => {
                Order::Copy { source: self.slice(source)?, target: self.slice(target)? }
            }
            Command::Fill { target, pattern } => Order::Fill { target: self.slice(target)?, pattern },
            Command::Timestamp { .. } => Order::Timestamp,
            other => {
                return Err(Error::unsupported(format!("an isolated device has no command {other:?}")));
            }
        })
    }

    fn launch<'c>(&mut self, dispatch: &'c Dispatch) -> Result<Launch<'c>> {
        let pipeline: &dyn Any = &*dispatch.pipeline;
        let pipeline = pipeline.downcast_ref::<IsolatedPipeline>().ok_or_else(|| {
            let name = &dispatch.pipeline.signature().name;
            Error::invalid(format!("kernel `{name}` was not compiled by an isolated device"))
        })?;
        let function = pipeline.function(dispatch.group, dispatch.largest_memory())?;
        if !self.out.functions.contains(&function.id) {
            wire::write(&function.message(), self.bytes)?;
            self.out.functions.insert(function.id);
        }
        let bindings = dispatch.bindings.iter().map(|binding| {
            Ok(match binding {
                Binding::Memory(slice) => Value::Memory(self.slice(slice)?),
                Binding::Bytes(bytes) => Value::Bytes(bytes),
                Binding::Threadgroup(bytes) => Value::Threadgroup(*bytes),
                Binding::Unbound => Value::Unbound,
            })
        });
        let bindings = bindings.collect::<Result<_>>()?;
        let uses =
            dispatch.uses.iter().map(|used| Ok((self.slice(&used.slice)?, used.access == Access::ReadWrite)));
        let uses = uses.collect::<Result<_>>()?;
        let grid = match &dispatch.grid {
            Grid::Threads(threads) => Extent::Threads(*threads),
            Grid::Indirect(counts) => Extent::Indirect(self.slice(counts)?),
        };
        let label = dispatch.label.as_deref().cloned();
        Ok(Launch { function: function.id, bindings, uses, grid, group: dispatch.group, label })
    }

    /// Converts a slice of this device's memory, mapping it in the worker on first use.
    fn slice(&mut self, slice: &MemorySlice) -> Result<Slice> {
        let MemorySlice { memory, offset, len } = slice;
        let (offset, len) = (*offset, *len);
        let any: &dyn Any = &**memory;
        let ours = any.downcast_ref::<IsolatedMemory>();
        let ours = ours.filter(|ours| std::ptr::eq(&*ours.core, self.core));
        let ours = ours.ok_or_else(|| Error::invalid("the memory belongs to another device"))?;
        expect_within(ours.len(), offset, len)?;
        self.span(Span { part: ours.part(), offset, len })
    }

    /// As above, by the memory's number.
    fn span(&mut self, span: Span<'_>) -> Result<Slice> {
        let Span { part, offset, len } = span;
        let (memory, first) = match part {
            Part::Pages(pages) => (pages.id, 0),
            Part::Device(piece) => (piece.slab.id, piece.offset),
        };
        if !self.out.memories.contains(&memory) {
            let message = match part {
                Part::Pages(pages) => {
                    ToWorker::Map { memory, offset: pages.piece.offset, len: pages.piece.bytes }
                }
                Part::Device(piece) => {
                    let (block, address) = (&piece.slab.block, piece.slab.address);
                    self.link.send_file(memory, &block.share()?);
                    ToWorker::MapDevice { memory, bytes: block.bytes(), address }
                }
            };
            wire::write(&message, self.bytes)?;
            self.out.memories.insert(memory);
        }
        Ok(Slice { memory, offset: first + offset, len })
    }
}
