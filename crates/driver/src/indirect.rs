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

const _: () = assert!(CommandHeader::BYTES == 64 && CommandRecord::BYTES == 576);
const _: () = assert!(std::mem::offset_of!(CommandRecord, buffers) == 64);
const _: () = assert!(std::mem::offset_of!(CommandRecord, lengths) == 312);
const _: () = assert!(std::mem::offset_of!(CommandRecord, payload) == 448);
