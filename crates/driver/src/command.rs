//! [`Command`]: the operations of a queue, as plain data.
//!
//! A command owns references to everything that it uses, so a list of commands can be stored, replayed, printed or sent to another
//! thread. Each driver has exactly one `match` that executes commands.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    Access, Dim3, Error, Event, ExecuteCommands, Fault, Grid, Memory, NestedLaunch, Pipeline, Primitive,
    Result, TimestampSlot,
};

/// An operation of a queue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Command {
    /// Launches a kernel over a grid.
    Dispatch(Dispatch),
    /// Executes commands in memory, where [`Device::expect_executes_commands`](crate::Device::expect_executes_commands) allows it.
    ExecuteCommands(Box<ExecuteCommands>),
    /// Launches a kernel that enqueues launches, where [`Device::expect_nested_launches`](crate::Device::expect_nested_launches) allows it.
    LaunchNested(Box<NestedLaunch>),
    /// Copies `source` to `target`, which have the same length. They may overlap, with the semantics of `memmove`. One of them may
    /// belong to another device of the driver, if [`Device::reaches`](crate::Device::reaches) allows it.
    Copy {
        /// Source range.
        source: MemorySlice,
        /// Target range.
        target: MemorySlice,
    },
    /// Fills `target` with a repeated `pattern`. The length of `target` is a multiple of the pattern's.
    Fill {
        /// Target range.
        target: MemorySlice,
        /// Pattern of 1 to 16 bytes.
        pattern: Vec<u8>,
    },
    /// Executes a primitive of the vendor's library that [`Features::primitives`](crate::Features::primitives) lists.
    Primitive {
        /// The operation.
        primitive: Primitive,
        /// Memory of the operands, in the order of [`Primitive::operands`].
        operands: Vec<MemorySlice>,
    },
    /// Signals an event when all preceding work of the queue has taken effect.
    Signal {
        /// The event.
        event: Arc<dyn Event>,
        /// The value to signal.
        value: u64,
    },
    /// Blocks following commands until an event has reached a value. If the event fails, the submission fails.
    Wait {
        /// The event, which may belong to any device.
        event: Arc<dyn Event>,
        /// The value to wait for.
        value: u64,
    },
    /// Records the time on the device's clock, when preceding commands of the submission have ended and no following one has begun.
    /// It is available before the submission's `done` is called.
    Timestamp {
        /// Receives the time.
        into: Arc<TimestampSlot>,
    },
}

/// A kernel launch.
#[derive(Clone, Debug)]
pub struct Dispatch {
    /// The kernel.
    pub pipeline: Arc<dyn Pipeline>,
    /// Arguments, in the order of [`crate::Signature::args`].
    pub bindings: Vec<Binding>,
    /// Memory that the kernel accesses through addresses in argument buffers (`useResource` in Metal).
    pub uses: Vec<Use>,
    /// Size of the grid, `threads_per_grid` in MSL.
    pub grid: Grid,
    /// Size of a full threadgroup. If the grid's size is not a multiple of it, threadgroups at the edges are smaller, as with Metal's
    /// `dispatchThreads`.
    pub group: Dim3,
    /// Label of the launch.
    pub label: Option<Arc<Label>>,
}

/// Label of a launch, for traces and errors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Label {
    /// Name.
    pub name: String,
    /// Number, chosen by the program.
    pub id: u64,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` ({})", self.name, self.id)
    }
}

impl Dispatch {
    /// Size in bytes of the largest memory that the kernel can access. Memory counts whole, since a kernel may reach all of it from a
    /// pointer into it.
    pub fn largest_memory(&self) -> u64 {
        let bound = self.bindings.iter().filter_map(|binding| match binding {
            Binding::Memory(slice) => Some(slice),
            Binding::Bytes(_) | Binding::Threadgroup(_) | Binding::Unbound => None,
        });
        let slices = bound.chain(self.uses.iter().map(|used| &used.slice));
        slices.map(|slice| slice.memory.len()).max().unwrap_or(0)
    }

    /// Total size in bytes of the dynamic threadgroup memory, each argument's rounded up to a multiple of 16.
    pub fn threadgroup_bytes(&self) -> u64 {
        let sizes = self.bindings.iter().map(|binding| match binding {
            Binding::Threadgroup(bytes) => bytes.checked_next_multiple_of(16).unwrap_or(u64::MAX),
            Binding::Memory(_) | Binding::Bytes(_) | Binding::Unbound => 0,
        });
        sizes.fold(0, u64::saturating_add)
    }

    /// Rejects a cooperative launch of `groups` threadgroups if at most `most` can be resident.
    ///
    /// # Errors
    /// `InvalidArgument` with the kernel and both numbers.
    pub fn expect_resident(&self, groups: u128, most: u64) -> Result<()> {
        if groups <= u128::from(most) {
            return Ok(());
        }
        let (name, group) = (&self.pipeline.signature().name, self.group);
        Err(Error::invalid(format!(
            "kernel `{name}`: a cooperative launch of {groups} threadgroups of {group} threads; at most {most} are resident at once"
        )))
    }

    /// Prepares the kernel for this dispatch.
    ///
    /// # Errors
    /// As [`Pipeline::prepare`].
    pub fn prepare(&self) -> Result<()> {
        self.pipeline.prepare_for(self.group, self.largest_memory())
    }

    /// Number of threads of an indirect launch with these threadgroup counts.
    ///
    /// # Errors
    /// [`Error::Fault`] that names kernel, launch and counts if a dimension exceeds `u32::MAX` threads.
    pub fn threads_of(&self, counts: Dim3) -> Result<Dim3> {
        counts.of_pieces(self.group).ok_or_else(|| {
            let (group, most) = (self.group, u32::MAX);
            self.fault(format!("{counts} threadgroups of {group} threads, read when it began: at most {most} threads along a dimension"))
        })
    }

    /// Creates a fault of this launch.
    pub fn fault(&self, message: String) -> Error {
        let kernel = self.pipeline.signature().name.clone();
        Error::Fault(Fault { kernel, message, location: None, launch: self.label.clone() })
    }
}

/// Bytes of an argument that is passed by value; up to 16 are stored without an allocation.
pub type InlineBytes = SmallVec<[u8; 16]>;

/// Value of a kernel argument.
#[derive(Clone, Debug)]
pub enum Binding {
    /// Pointer to the first byte of the slice.
    Memory(MemorySlice),
    /// Pointer to a copy of these bytes that lives as long as the dispatch (`setBytes` in Metal).
    Bytes(InlineBytes),
    /// Pointer to this many bytes of threadgroup memory, aligned to 16 bytes.
    Threadgroup(u64),
    /// A null pointer, to memory of 0 bytes; on Metal, whose validation requires a buffer, a pointer to one element. The kernel must not
    /// access it; a checked kernel that does faults.
    Unbound,
}

impl Binding {
    /// A pointer to a copy of these bytes.
    pub fn bytes(bytes: &[u8]) -> Self {
        Self::Bytes(InlineBytes::from_slice(bytes))
    }
}

/// Memory that a dispatch accesses without an argument for it.
#[derive(Clone, Debug)]
pub struct Use {
    /// The range.
    pub slice: MemorySlice,
    /// How the kernel may access it.
    pub access: Access,
}

/// A byte range of a memory.
#[derive(Clone)]
pub struct MemorySlice {
    /// The memory.
    pub memory: Arc<dyn Memory>,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes; `offset + len` is at most the memory's size.
    pub len: u64,
}

impl fmt::Debug for MemorySlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = Arc::as_ptr(&self.memory).cast::<()>();
        write!(f, "{address:?}[{}..{}]", self.offset, self.offset + self.len)
    }
}
