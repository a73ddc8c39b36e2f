//! Indirect command buffers: the layout of commands in memory, which the host or a kernel encodes, and [`ExecuteCommands`].
//!
//! The memory is a [`CommandHeader`], then `capacity` [`CommandRecord`]s, and one more, which takes the commands that a kernel encodes
//! behind the last one and is never executed. All fields are in the device's byte order, and a record of zeros is an empty command. The
//! header `commands.h` of MSL has the same structs. A driver does not trust the memory: kernels may have written anything to it. What it
//! relies on is in [`ExecuteCommands`].
//!
//! ```text
//! byte   0  header: u32 capacity, max_buffers, flags, pipelines, beyond, 11 unused
//! byte  64  record 0
//! byte 640  record 1, and so on, 576 bytes each:
//!           +0   u32 kind             0 empty, 1 dispatch of threadgroups, 2 dispatch of threads
//!           +4   u32 pipeline         number from 1 in the list of pipelines; 0 none
//!           +8   u32 flags            bit 0: barrier, the command begins when all those before it have ended
//!           +12  u32 misuse           0, or why the command must not run (`Misuse`)
//!           +16  u32 buffers_set      bit i: `buffers[i]` is set; otherwise buffer(i) is unbound
//!           +20  u32 values_set       bit i: buffer(i) is a value in the payload
//!           +24  u32 lengths_set      bit i: `lengths[i]` is set; otherwise 0
//!           +28  u32 parent           pipeline number of the kernel that has enqueued the command; 0 none
//!           +32  u32 grid[3]          threadgroups or threads, by kind; a 0 makes the command empty
//!           +44  u32 group[3]         threads per threadgroup
//!           +56  u32 payload_bytes    used bytes of the payload
//!           +60  u32 unused
//!           +64  u64 buffers[31]      address of buffer(i), or of a value: offset in the payload | size in bytes << 32
//!           +312 u32 lengths[31]      bytes of threadgroup(i)
//!           +436 u32 unused[3]
//!           +448 u8  payload[128]     values, each at a multiple of 16
//! ```

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{
    Access, Arg, ArgKind, Binding, Dim3, Dispatch, ElementType, Error, Fault, Grid, InlineBytes, Label,
    MemorySlice, NestedLaunch, Pipeline, Result, Use,
};

/// Maximum number of buffers, and of arguments in threadgroup memory, of a command (Metal Feature Set Tables).
pub const MAX_COMMAND_BUFFERS: u32 = 31;

/// Begin of an indirect command buffer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CommandHeader {
    /// Number of commands.
    pub capacity: u32,
    /// Number of buffers that a command can set, at most [`MAX_COMMAND_BUFFERS`].
    pub max_buffers: u32,
    /// [`CommandHeader::INHERITS_BUFFERS`], [`CommandHeader::INHERITS_PIPELINE`].
    pub flags: u32,
    /// Number of pipelines.
    pub pipelines: u32,
    /// The largest index at or above the capacity of a command that a kernel has tried to encode; 0 if there was none.
    pub beyond: u32,
    /// Zeros.
    pub unused: [u32; 11],
}

impl CommandHeader {
    /// All commands have the buffers of the execution; none can set its own.
    pub const INHERITS_BUFFERS: u32 = 1;
    /// All commands have the pipeline of the execution; none can set its own.
    pub const INHERITS_PIPELINE: u32 = 2;
    /// Size in bytes.
    pub const BYTES: u64 = size_of::<Self>() as u64;
}

/// A command in memory; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // the module documents them
pub struct CommandRecord {
    pub kind: u32,
    pub pipeline: u32,
    pub flags: u32,
    pub misuse: u32,
    pub buffers_set: u32,
    pub values_set: u32,
    pub lengths_set: u32,
    pub parent: u32,
    pub grid: [u32; 3],
    pub group: [u32; 3],
    pub payload_bytes: u32,
    pub unused0: u32,
    pub buffers: [u64; MAX_COMMAND_BUFFERS as usize],
    pub lengths: [u32; MAX_COMMAND_BUFFERS as usize],
    pub unused1: [u32; 3],
    pub payload: [u8; CommandRecord::PAYLOAD_BYTES],
}

impl CommandRecord {
    /// [`CommandRecord::kind`] of an empty command.
    pub const EMPTY: u32 = 0;
    /// [`CommandRecord::kind`] of a dispatch whose grid is in threadgroups.
    pub const THREADGROUPS: u32 = 1;
    /// [`CommandRecord::kind`] of a dispatch whose grid is in threads.
    pub const THREADS: u32 = 2;
    /// Bit of [`CommandRecord::flags`].
    pub const BARRIER: u32 = 1;
    /// Size of the payload in bytes.
    pub const PAYLOAD_BYTES: usize = 128;
    /// Size of a record in bytes.
    pub const BYTES: u64 = size_of::<Self>() as u64;
}

impl CommandHeader {
    /// The header as bytes.
    pub fn to_bytes(&self) -> [u8; CommandHeader::BYTES as usize] {
        let mut words =
            [self.capacity, self.max_buffers, self.flags, self.pipelines, self.beyond].into_iter();
        let mut bytes = [0; CommandHeader::BYTES as usize];
        for (to, word) in bytes.chunks_exact_mut(4).zip(&mut words) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }
}

impl CommandRecord {
    /// An empty command.
    pub const fn empty() -> Self {
        Self {
            kind: Self::EMPTY,
            pipeline: 0,
            flags: 0,
            misuse: 0,
            buffers_set: 0,
            values_set: 0,
            lengths_set: 0,
            parent: 0,
            grid: [0; 3],
            group: [0; 3],
            payload_bytes: 0,
            unused0: 0,
            buffers: [0; MAX_COMMAND_BUFFERS as usize],
            lengths: [0; MAX_COMMAND_BUFFERS as usize],
            unused1: [0; 3],
            payload: [0; Self::PAYLOAD_BYTES],
        }
    }

    /// The record as bytes.
    pub fn to_bytes(&self) -> [u8; CommandRecord::BYTES as usize] {
        let head = [
            self.kind,
            self.pipeline,
            self.flags,
            self.misuse,
            self.buffers_set,
            self.values_set,
            self.lengths_set,
            self.parent,
        ];
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_ne_bytes()).collect::<Vec<u8>>();
        let parts = [
            words(&head),
            words(&self.grid),
            words(&self.group),
            words(&[self.payload_bytes, self.unused0]),
            self.buffers.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            words(&self.lengths),
            words(&self.unused1),
            self.payload.to_vec(),
        ];
        let mut bytes = [0; CommandRecord::BYTES as usize];
        for (to, byte) in bytes.iter_mut().zip(parts.concat()) {
            *to = byte;
        }
        bytes
    }

    /// Reads a record from bytes. Missing ones are zeros.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 4];
            let given = bytes.get(at..).unwrap_or_default();
            word.iter_mut().zip(given).for_each(|(to, byte)| *to = *byte);
            u32::from_ne_bytes(word)
        };
        let long = |at: usize| {
            let mut long = [0; 8];
            let given = bytes.get(at..).unwrap_or_default();
            long.iter_mut().zip(given).for_each(|(to, byte)| *to = *byte);
            u64::from_ne_bytes(long)
        };
        Self {
            kind: word(0),
            pipeline: word(4),
            flags: word(8),
            misuse: word(12),
            buffers_set: word(16),
            values_set: word(20),
            lengths_set: word(24),
            parent: word(28),
            grid: std::array::from_fn(|i| word(32 + 4 * i)),
            group: std::array::from_fn(|i| word(44 + 4 * i)),
            payload_bytes: word(56),
            unused0: word(60),
            buffers: std::array::from_fn(|i| long(64 + 8 * i)),
            lengths: std::array::from_fn(|i| word(312 + 4 * i)),
            unused1: std::array::from_fn(|i| word(436 + 4 * i)),
            payload: std::array::from_fn(|i| bytes.get(448 + i).copied().unwrap_or(0)),
        }
    }
}

const _: () = assert!(CommandHeader::BYTES == 64 && CommandRecord::BYTES == 576);
const _: () = assert!(std::mem::offset_of!(CommandRecord, buffers) == 64);
const _: () = assert!(std::mem::offset_of!(CommandRecord, lengths) == 312);
const _: () = assert!(std::mem::offset_of!(CommandRecord, payload) == 448);

/// Executes commands in memory, in order.
///
/// A driver rejects a command with [`Error::Fault`], which names command, kernel and argument, before any of it runs: a pipeline number
/// outside the list, a threadgroup that the kernel cannot have, an address outside `uses`, a buffer that the kernel may write and that is
/// used for reads only. Commands before it have taken effect.
#[derive(Clone, Debug)]
pub struct ExecuteCommands {
    /// Header and records.
    pub commands: MemorySlice,
    /// Number of commands. The memory has room for one more record.
    pub capacity: u32,
    /// Number of buffers that a command can set.
    pub max_buffers: u32,
    /// The kernels of the commands, by their numbers from 1. None is cooperative or resident, and none takes functions or queues.
    pub pipelines: Arc<[Arc<dyn Pipeline>]>,
    /// Which commands.
    pub range: CommandRange,
    /// The kernel of all commands, if they inherit it.
    pub pipeline: Option<Arc<dyn Pipeline>>,
    /// The buffers of all commands, if they inherit them.
    pub buffers: Option<Vec<InheritedBuffer>>,
    /// The memory whose addresses commands may have.
    pub uses: Vec<Use>,
    /// Maximum threadgroup memory of a command in bytes, static and dynamic together.
    pub max_threadgroup_memory: u64,
    /// Label of the execution.
    pub label: Option<Arc<Label>>,
}

/// A buffer that commands inherit.
#[derive(Clone, Debug)]
pub struct InheritedBuffer {
    /// Index of `[[buffer(n)]]`.
    pub index: u32,
    /// Memory or a value.
    pub binding: Binding,
    /// How kernels may access it.
    pub access: Access,
}

/// A range of commands.
#[derive(Clone, Debug)]
pub enum CommandRange {
    /// Known to the host, within the capacity.
    Known(Range<u32>),
    /// Two `u32` in memory, aligned to 4 bytes: the first command and the number of commands (`MTLIndirectCommandBufferExecutionRange`).
    /// The device reads them when the execution begins; commands beyond the capacity are a fault.
    Indirect(MemorySlice),
}

impl CommandRange {
    /// Size in bytes of a range in memory.
    pub const BYTES: u64 = 8;
}

impl ExecuteCommands {
    /// Size in bytes of the memory for `capacity` commands.
    pub const fn bytes(capacity: u32) -> u64 {
        CommandHeader::BYTES + (capacity as u64 + 1) * CommandRecord::BYTES
    }

    /// Offset in bytes of a record.
    pub const fn offset(index: u32) -> u64 {
        CommandHeader::BYTES + index as u64 * CommandRecord::BYTES
    }

    /// All kernels that may run.
    pub fn kernels(&self) -> impl Iterator<Item = &Arc<dyn Pipeline>> {
        self.pipelines.iter().chain(&self.pipeline)
    }

    /// Checks a range that was read from memory.
    ///
    /// # Errors
    /// A fault with range and capacity.
    pub fn range_of(&self, [first, count]: [u32; 2]) -> Result<Range<u32>> {
        match first.checked_add(count) {
            Some(end) if end <= self.capacity => Ok(first..end),
            _ => Err(self.fault(format!(
                "{count} commands from {first} on, read when it began; the indirect command buffer has {}",
                self.capacity
            ))),
        }
    }

    /// Rejects commands that a kernel has tried to encode behind the last one.
    ///
    /// # Errors
    /// A fault with the largest index, and the capacity.
    pub fn expect_encoded(&self, header: &CommandHeader) -> Result<()> {
        if header.beyond == 0 {
            return Ok(());
        }
        Err(self.fault(format!(
            "a kernel has encoded command {}; the indirect command buffer has {}",
            header.beyond, self.capacity
        )))
    }

    /// A dispatch to be filled by [`ExecuteCommands::decode`]. `None` if no kernel can run.
    pub fn dispatch(&self) -> Option<Dispatch> {
        let pipeline = self.kernels().next()?.clone();
        let (grid, group) = (Grid::Threads(Dim3::new(0, 1, 1)), Dim3::new(1, 1, 1));
        Some(Dispatch {
            pipeline,
            bindings: Vec::new(),
            uses: self.uses.clone(),
            grid,
            group,
            label: self.label.clone(),
        })
    }

    /// The memory of `uses`, for [`ExecuteCommands::decode`].
    ///
    /// # Errors
    /// `Unsupported` if the driver has no device addresses.
    pub fn used_ranges(&self) -> Result<UsedRanges<'_>> {
        UsedRanges::of(&self.uses)
    }

    /// Translates a record to a dispatch, whose `uses` and `label` stay; returns whether there is anything to run.
    ///
    /// # Errors
    /// A fault that names command, kernel and argument.
    pub fn decode(
        &self,
        index: u32,
        record: &CommandRecord,
        used: &UsedRanges<'_>,
        dispatch: &mut Dispatch,
    ) -> Result<bool> {
        self.decode_at(format_args!("command {index}"), record, used, dispatch, false)
    }

    /// The same for a record that messages name so, and in a launch queue or not.
    pub(crate) fn decode_at(
        &self,
        place: fmt::Arguments<'_>,
        record: &CommandRecord,
        used: &UsedRanges<'_>,
        dispatch: &mut Dispatch,
        is_nested: bool,
    ) -> Result<bool> {
        if record.kind == CommandRecord::EMPTY {
            return Ok(false);
        }
        let pipeline = self.pipeline_of(record).map_err(|why| self.fault(format!("{place}: {why}")))?;
        if !Arc::ptr_eq(&dispatch.pipeline, pipeline) {
            dispatch.pipeline = pipeline.clone();
        }
        let decoder = Decoder { of: self, record, used, is_nested };
        let fault = |why| dispatch.fault(format!("{place}: {why}"));
        (dispatch.grid, dispatch.group) = decoder.sizes(&**pipeline).map_err(fault)?;
        let mut bindings = std::mem::take(&mut dispatch.bindings);
        bindings.clear();
        for (number, arg) in pipeline.signature().args.iter().enumerate() {
            let binding = decoder.binding(arg);
            bindings.push(binding.map_err(|why| {
                dispatch.fault(format!("{place}: argument {number} `{}`: {why}", arg.name))
            })?);
        }
        dispatch.bindings = bindings;
        let (own, given) = (pipeline.threadgroup_memory(), dispatch.threadgroup_bytes());
        if own.saturating_add(given) > self.max_threadgroup_memory {
            let most = self.max_threadgroup_memory;
            return Err(dispatch.fault(format!(
                "{place}: {given} bytes of threadgroup memory given and {own} declared by the kernel; the device allows {most}"
            )));
        }
        Ok(dispatch.grid.threads().is_some_and(|threads| threads.volume() > 0))
    }

    fn pipeline_of(&self, record: &CommandRecord) -> std::result::Result<&Arc<dyn Pipeline>, String> {
        let why = match record.misuse {
            0 => None,
            1 => Some(format!("it sets a buffer with an index of {} or more", self.max_buffers)),
            2 => Some("it sets a buffer, but the indirect command buffer inherits buffers".into()),
            3 => Some("it sets a kernel, but the indirect command buffer inherits the kernel".into()),
            4 => Some(format!("it sets threadgroup memory with an index of {MAX_COMMAND_BUFFERS} or more")),
            5 => Some(format!("its values need more than {} bytes", CommandRecord::PAYLOAD_BYTES)),
            other => Some(format!("overwritten: misuse {other}")),
        };
        if let Some(why) = why {
            return Err(why);
        }
        if !matches!(record.kind, CommandRecord::THREADGROUPS | CommandRecord::THREADS) {
            return Err(format!("overwritten: kind {}", record.kind));
        }
        if let Some(inherited) = &self.pipeline {
            return Ok(inherited);
        }
        let count = self.pipelines.len();
        let known = (record.pipeline as usize).checked_sub(1).and_then(|at| self.pipelines.get(at));
        known.ok_or_else(|| match record.pipeline {
            0 => "it has no kernel".into(),
            number => format!("kernel number {number}; the indirect command buffer has kernels 1 to {count}"),
        })
    }

    /// Creates a fault of this execution.
    pub fn fault(&self, message: String) -> Error {
        Error::Fault(Fault {
            kernel: "execute_commands".into(),
            message,
            location: None,
            launch: self.label.clone(),
        })
    }
}

/// Memory by its device addresses, in ascending order.
pub struct UsedRanges<'a> {
    ranges: Vec<(u64, &'a Use)>,
}

impl<'a> UsedRanges<'a> {
    fn of(uses: &'a [Use]) -> Result<Self> {
        let address = |used: &'a Use| {
            let first = used.slice.memory.gpu_address();
            let first = first.ok_or_else(|| Error::unsupported("the driver has no device addresses"))?;
            Ok((first + used.slice.offset, used))
        };
        let mut ranges = uses.iter().map(address).collect::<Result<Vec<_>>>()?;
        // Of ranges with one address, that which may be written, and the longest, is the last.
        ranges.sort_by_key(|(first, used)| (*first, used.access == Access::ReadWrite, used.slice.len));
        Ok(Self { ranges })
    }

    /// Address, memory, and permitted access of each range, in ascending order. Of several that contain an address, the last one that allows an
    /// access counts.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &MemorySlice, Access)> {
        self.ranges.iter().map(|(first, used)| (*first, &used.slice, used.access))
    }

    /// The memory from an address to the end of the range that it is in, and how it may be accessed: as wanted, if one of the ranges allows it.
    pub fn find(&self, address: u64, wanted: Access) -> Option<(MemorySlice, Access)> {
        let end = self.ranges.partition_point(|(first, _)| *first <= address);
        // Ranges may overlap, as slices of one buffer do.
        let mut found = self.ranges[..end].iter().rev().filter_map(|(first, used)| {
            let offset = address - first;
            let slice = &used.slice;
            let rest = slice.len.checked_sub(offset).filter(|rest| *rest > 0)?;
            let rest = MemorySlice { memory: slice.memory.clone(), offset: slice.offset + offset, len: rest };
            Some((rest, used.access))
        });
        let first = found.next()?;
        let allows = |access| wanted == Access::Read || access == Access::ReadWrite;
        if allows(first.1) { Some(first) } else { found.find(|(_, access)| allows(*access)).or(Some(first)) }
    }
}

/// A record that is translated to a dispatch.
struct Decoder<'a> {
    of: &'a ExecuteCommands,
    record: &'a CommandRecord,
    used: &'a UsedRanges<'a>,
    is_nested: bool,
}

impl Decoder<'_> {
    /// Grid and threadgroup.
    fn sizes(&self, pipeline: &dyn Pipeline) -> std::result::Result<(Grid, Dim3), String> {
        let (grid, group): (Dim3, Dim3) = (self.record.grid.into(), self.record.group.into());
        let most = pipeline.max_threads_per_threadgroup();
        if group.volume() == 0 || group.volume() > u128::from(most) {
            return Err(format!("threadgroups of {group} threads; 1 to {most} threads are allowed"));
        }
        let threads = match self.record.kind {
            CommandRecord::THREADS => grid,
            _ => grid.of_pieces(group).ok_or_else(|| {
                format!(
                    "{grid} threadgroups of {group} threads; at most {} threads along a dimension",
                    u32::MAX
                )
            })?,
        };
        Ok((Grid::Threads(threads), group))
    }

    fn binding(&self, arg: &Arg) -> std::result::Result<Binding, String> {
        let at = arg.index as usize;
        let (record, bit) = (self.record, 1_u32.checked_shl(arg.index).unwrap_or(0));
        if arg.kind == ArgKind::Threadgroup {
            let length = if record.lengths_set & bit == 0 { 0 } else { record.lengths[at] };
            return Ok(Binding::Threadgroup(length.into()));
        }
        if self.is_nested && arg.element == ElementType::LaunchQueue {
            return Ok(Binding::Memory(NestedLaunch::port(&self.of.commands, record.pipeline)));
        }
        if let Some(buffers) = &self.of.buffers {
            let inherited = buffers.iter().find(|inherited| inherited.index == arg.index);
            return inherited.map_or_else(|| Ok(unbound(arg)), |inherited| self.inherited(arg, inherited));
        }
        if record.buffers_set & bit == 0 {
            return Ok(unbound(arg));
        }
        let word = record.buffers[at];
        if record.values_set & bit != 0 {
            let (offset, size) = (word as u32 as usize, (word >> 32) as usize);
            let value = offset.checked_add(size).and_then(|end| record.payload.get(offset..end));
            let value =
                value.ok_or_else(|| format!("overwritten: {size} bytes of the payload from {offset} on"))?;
            if arg.access == Access::ReadWrite {
                return Err("the kernel may write to it; it cannot be a value".into());
            }
            expect_size(arg, size as u64)?;
            return Ok(Binding::Bytes(InlineBytes::from_slice(value)));
        }
        if word == 0 {
            return Ok(unbound(arg));
        }
        let Some((slice, access)) = self.used.find(word, arg.access) else {
            return Err(format!(
                "address {word:#x} is in none of the {} used buffers",
                self.used.ranges.len()
            ));
        };
        if arg.access == Access::ReadWrite && access == Access::Read {
            return Err("the kernel may write to it, and the buffer is used for reads only".into());
        }
        if !word.is_multiple_of(arg.element_align.max(1)) {
            return Err(format!("address {word:#x} is not a multiple of {}", arg.element_align));
        }
        expect_size(arg, slice.len)?;
        Ok(Binding::Memory(slice))
    }

    /// A buffer of the execution, which the runtime has not seen with this kernel.
    fn inherited(&self, arg: &Arg, inherited: &InheritedBuffer) -> std::result::Result<Binding, String> {
        if arg.access == Access::ReadWrite && inherited.access == Access::Read {
            return Err(
                "the kernel may write to it, and the inherited buffer or value is for reads only".into()
            );
        }
        match &inherited.binding {
            Binding::Memory(slice) => {
                let align = arg.element_align.max(1);
                let first = slice.memory.gpu_address().unwrap_or(0).wrapping_add(slice.offset);
                if !first.is_multiple_of(align) {
                    return Err(format!("the inherited buffer's address is not a multiple of {align}"));
                }
                expect_size(arg, slice.len)?;
            }
            Binding::Bytes(bytes) => expect_size(arg, bytes.len() as u64)?,
            Binding::Threadgroup(_) | Binding::Unbound => return Ok(unbound(arg)),
        }
        Ok(inherited.binding.clone())
    }
}

fn expect_size(arg: &Arg, bytes: u64) -> std::result::Result<(), String> {
    if bytes < arg.element_size {
        return Err(format!("needs at least {} bytes, given {bytes}", arg.element_size));
    }
    Ok(())
}

/// A buffer that is not set: a pointer is null, a reference is to zeros.
fn unbound(arg: &Arg) -> Binding {
    match arg.kind {
        ArgKind::Reference => Binding::Bytes(InlineBytes::from_elem(0, arg.element_size as usize)),
        ArgKind::Pointer | ArgKind::Threadgroup => Binding::Unbound,
    }
}

/// Rejects a kernel that commands of an indirect command buffer, or launches of a launch queue, cannot have.
///
/// # Errors
/// `Unsupported` with kernel and reason.
pub fn expect_command_kernel(pipeline: &dyn Pipeline, in_queue: bool) -> Result<()> {
    let signature = pipeline.signature();
    let refuse = |why: &str| {
        let name = &signature.name;
        let place = if in_queue { "a launch queue" } else { "an indirect command buffer" };
        Err(Error::unsupported(format!("kernel `{name}` in {place}: {why}")))
    };
    if signature.is_cooperative() {
        return refuse("it has a grid barrier");
    }
    for arg in &signature.args {
        match arg.element {
            ElementType::LaunchQueue if !in_queue => return refuse("it launches kernels"),
            ElementType::Inbox { .. } => return refuse("it is resident"),
            ElementType::Function { .. } => return refuse("it takes a visible_function_table"),
            ElementType::Queue { .. } => return refuse("it takes a message queue"),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_documented_layout() {
        let mut record = CommandRecord::empty();
        assert_eq!(record.to_bytes(), [0; 576]);
        record = CommandRecord {
            kind: 1,
            pipeline: 2,
            flags: 3,
            misuse: 4,
            buffers_set: 5,
            values_set: 6,
            lengths_set: 7,
            parent: 8,
            grid: [9, 10, 11],
            group: [12, 13, 14],
            payload_bytes: 15,
            ..record
        };
        record.buffers = std::array::from_fn(|i| (i as u64) << 40 | 1);
        record.lengths = std::array::from_fn(|i| i as u32 + 100);
        record.payload = std::array::from_fn(|i| i as u8);
        let bytes = record.to_bytes();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert!((0..15).all(|i| word(4 * i) == i as u32 + 1));
        assert_eq!((word(64 + 8 * 30), word(64 + 8 * 30 + 4)), (1, 30 << 8), "little endian");
        assert_eq!((word(312), word(312 + 4 * 30)), (100, 130));
        assert_eq!((bytes[448], bytes[575]), (0, 127));
        assert_eq!(CommandRecord::from_bytes(&bytes), record);
        let header = CommandHeader {
            capacity: 1,
            max_buffers: 2,
            flags: 3,
            pipelines: 4,
            beyond: 5,
            ..Default::default()
        };
        let bytes = header.to_bytes();
        assert!((0..5).all(|i| bytes[4 * i] == i as u8 + 1) && bytes[20..] == [0; 44]);
    }
}
