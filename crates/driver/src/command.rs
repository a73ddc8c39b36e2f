//! Commands: what a queue is asked to do, as plain data.
//!
//! A command owns references to all it uses, so a list of commands can be kept, replayed, printed or
//! handed to another thread. There is exactly one place per driver that turns a `Command` into work.

use std::fmt;
use std::sync::Arc;

use crate::{Access, Dim3, Error, Event, Fault, Grid, Memory, Pipeline, Primitive, Result, Stamp};

/// One step of a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Run a kernel over a grid.
    Dispatch(Dispatch),
    /// Copy `source` to `target`; the two have the same length. Overlap within one memory is allowed
    /// and behaves as if the source had been read in full first. One of the two may be of another device of the driver, if
    /// [`Device::reaches`](crate::Device::reaches) says so.
    Copy {
        /// Where the bytes come from.
        source: MemorySlice,
        /// Where they go.
        target: MemorySlice,
    },
    /// Repeat `pattern` over `target`, whose length is a multiple of the pattern's.
    Fill {
        /// The bytes to set.
        target: MemorySlice,
        /// 1 to 16 bytes, repeated.
        pattern: Vec<u8>,
    },
    /// Let the vendor's library compute a primitive that [`Caps::primitives`](crate::Caps::primitives) has.
    Primitive {
        /// What is computed.
        primitive: Primitive,
        /// The memory, one slice for each of [`Primitive::operands`], in that order.
        operands: Vec<MemorySlice>,
    },
    /// Raise an event, once what is before it in the queue has taken effect.
    Signal {
        /// The event.
        event: Arc<dyn Event>,
        /// The value that it then has at least.
        value: u64,
    },
    /// Let what comes after it begin when an event has reached a value. If the event fails, so does the submission.
    Wait {
        /// The event, of any device.
        event: Arc<dyn Event>,
        /// The value.
        value: u64,
    },
    /// Note the time by the device's clock when what is before it in the submission has ended and nothing behind it has
    /// begun. It is noted before the submission's `done` is called.
    Timestamp {
        /// Where.
        into: Arc<Stamp>,
    },
}

/// A kernel launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// What to run.
    pub pipeline: Arc<dyn Pipeline>,
    /// One binding per entry of [`crate::Signature::args`], in that order.
    pub bindings: Vec<Binding>,
    /// Memory that the kernel reaches through addresses in its arguments' memory (`useResource` in Metal).
    pub uses: Vec<Use>,
    /// How much is run, `threads_per_grid` in MSL.
    pub grid: Grid,
    /// Threads of a full threadgroup; groups at the far edges are smaller when it does not divide
    /// the grid's threads, as with Metal's `dispatchThreads`.
    pub group: Dim3,
    /// What the program calls it.
    pub label: Option<Arc<Label>>,
}

/// What a program calls a launch, in traces and errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Label {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u64,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.id)
    }
}

impl Dispatch {
    /// Threads of the grid for the counts that an indirect launch has found.
    ///
    /// # Errors
    /// `Fault` naming kernel, launch and counts when a dimension has more than `u32::MAX` threads.
    pub fn threads_of(&self, counts: Dim3) -> Result<Dim3> {
        counts.of_pieces(self.group).ok_or_else(|| {
            let (group, most) = (self.group, u32::MAX);
            self.fault(format!("{counts} threadgroups of {group} threads, read when it began: at most {most} threads along a dimension"))
        })
    }

    /// A fault of this launch.
    pub fn fault(&self, message: String) -> Error {
        let kernel = self.pipeline.signature().name.clone();
        Error::Fault(Fault { kernel, message, location: None, launch: self.label.clone() })
    }
}

/// The value of one kernel argument.
#[derive(Clone, Debug)]
pub enum Binding {
    /// A pointer to the first byte of the slice.
    Memory(MemorySlice),
    /// A pointer to a copy of these bytes that lives as long as the dispatch (`setBytes` in Metal).
    Bytes(Vec<u8>),
    /// A pointer to this many bytes of threadgroup memory, aligned to 16.
    Threadgroup(u64),
}

/// Memory that a dispatch uses without having it as an argument.
#[derive(Clone, Debug)]
pub struct Use {
    /// The bytes.
    pub slice: MemorySlice,
    /// What the kernel may do with them.
    pub access: Access,
}

/// A range of bytes of a memory.
#[derive(Clone)]
pub struct MemorySlice {
    /// The memory.
    pub memory: Arc<dyn Memory>,
    /// First byte.
    pub offset: u64,
    /// Number of bytes; `offset + len` is within the memory.
    pub len: u64,
}

impl fmt::Debug for MemorySlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Arc::as_ptr(&self.memory).cast::<()>();
        write!(f, "{address:?}[{}..{}]", self.offset, self.offset + self.len)
    }
}
