//! Nested launches: kernels that enqueue launches in a queue in memory, and [`NestedLaunch`].
//!
//! The queue's memory is a [`QueueHeader`], then ports, then records ([`CommandRecord`]) in two halves of `capacity` records, and one more, which takes
//! launches for which there is no room. The launches that the kernels of one level enqueue are the next level; its records are in the other
//! half, so that a level is read while the next one is written. The header `launch.h` of MSL has the same structs.
//!
//! ```text
//! byte   0  header: u32 capacity            records of a half
//!           +4   u32 pipelines              number of kernels
//!           +8   u32 half                   0 or 1: where kernels enqueue; the driver changes it between levels
//!           +12  u32 overflowing            number of a kernel whose launch found no room; 0 none
//!           +16  u32 tickets[2]             launches enqueued in each half, also those without room
//!           +24  u32 unused[2]
//!           +32  u64 records                address of the first record
//!           +40  u32 unused[6]
//! byte  64  ports: port k is the argument `elinvar::launch_queue` of kernel number k, 0 to `pipelines`; 16 bytes each
//!           +0   u64 header                 address of the header
//!           +8   u32 pipeline               k
//!           +12  u32 unused
//! byte  64 + 16 (pipelines + 1)  records, 576 bytes each: half 0, half 1, the one for launches without room
//! ```
//!
//! A launch takes a ticket of the half by an atomic addition, and is record `half * capacity + ticket`. Its `parent` is the number of the kernel
//! that enqueued it.

use std::ops::Range;

use crate::indirect::UsedRanges;
use crate::{CommandRecord, Dispatch, Error, ExecuteCommands, Fault, MemorySlice, Result};

/// Begin of a launch queue's memory; see the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
#[allow(missing_docs)] // the module documents them
pub struct QueueHeader {
    pub capacity: u32,
    pub pipelines: u32,
    pub half: u32,
    pub overflowing: u32,
    pub tickets: [u32; 2],
    pub unused0: [u32; 2],
    pub records: u64,
    pub unused1: [u32; 6],
}

impl QueueHeader {
    /// Size in bytes.
    pub const BYTES: u64 = size_of::<Self>() as u64;
    /// Size of a port in bytes.
    pub const PORT_BYTES: u64 = 16;
    /// Bytes that the driver writes between levels: `half`, `overflowing`, `tickets`.
    pub const STATE: Range<u64> = 8..24;

    /// Offset in bytes of a port.
    pub const fn port(pipeline: u32) -> u64 {
        Self::BYTES + pipeline as u64 * Self::PORT_BYTES
    }

    /// Offset in bytes of a record, for a queue with so many kernels.
    pub const fn record(pipelines: u32, index: u64) -> u64 {
        Self::port(pipelines + 1) + index * CommandRecord::BYTES
    }

    /// Size in bytes of a queue's memory.
    pub const fn bytes(pipelines: u32, capacity: u32) -> u64 {
        Self::record(pipelines, 2 * capacity as u64 + 1)
    }

    /// Header and ports of an empty queue at an address, as bytes.
    pub fn to_bytes(pipelines: u32, capacity: u32, address: u64) -> Vec<u8> {
        let mut bytes = vec![0; Self::record(pipelines, 0) as usize];
        let mut put =
            |at: u64, word: &[u8]| bytes[at as usize..at as usize + word.len()].copy_from_slice(word);
        put(0, &capacity.to_ne_bytes());
        put(4, &pipelines.to_ne_bytes());
        put(32, &(address + Self::record(pipelines, 0)).to_ne_bytes());
        for pipeline in 0..=pipelines {
            put(Self::port(pipeline), &address.to_ne_bytes());
            put(Self::port(pipeline) + 8, &pipeline.to_ne_bytes());
        }
        bytes
    }
}

const _: () = assert!(QueueHeader::BYTES == 64 && std::mem::offset_of!(QueueHeader, records) == 32);

/// A launch whose kernel, and the kernels that it launches, may enqueue further launches. They run level by level, after all launches of the
/// level before, and have ended when the command has. Launches of a level are not ordered.
///
/// A launch beyond the capacity, or below the last level, is an [`Error::Fault`] that names the kernel that enqueued it and the limit; no launch is
/// left out silently.
#[derive(Clone, Debug)]
pub struct NestedLaunch {
    /// The first launch, level 0. Its binding for the `elinvar::launch_queue` is port 0, or the port of its kernel.
    pub root: Dispatch,
    /// How the queue's records are decoded: `commands` is the queue's memory, `capacity` that of a level. There is nothing to inherit, and
    /// `range` is unused.
    pub children: ExecuteCommands,
    /// Number of the last level that may have launches.
    pub depth: u32,
}

impl NestedLaunch {
    /// The state with which level 0 begins, and kernels enqueue in half 0, or a later level, in the bytes [`QueueHeader::STATE`].
    pub fn state(half: u32, tickets: [u32; 2]) -> [u8; 16] {
        let mut bytes = [0; 16];
        for (to, word) in bytes.chunks_exact_mut(4).zip([half, 0, tickets[0], tickets[1]]) {
            to.copy_from_slice(&word.to_ne_bytes());
        }
        bytes
    }

    /// Name of a kernel by its number in the queue.
    fn name(&self, number: u32) -> &str {
        let at = (number as usize).checked_sub(1);
        let pipeline = at.and_then(|at| self.children.pipelines.get(at)).unwrap_or(&self.root.pipeline);
        &pipeline.signature().name
    }

    /// Rejects launches for which there was no room in a half.
    ///
    /// # Errors
    /// A fault of the kernel that enqueued one of them, with the capacity.
    pub fn expect_room(&self, header: &QueueHeader, half: u32) -> Result<()> {
        let (tickets, capacity) = (header.tickets[half as usize & 1], self.children.capacity);
        if tickets <= capacity {
            return Ok(());
        }
        Err(self.fault(
            self.name(header.overflowing),
            format!("{tickets} launches or more in one level; the launch queue has room for {capacity}"),
        ))
    }

    /// The fault of a launch below the last level, which a record describes.
    pub fn too_deep(&self, record: &CommandRecord) -> Error {
        let depth = self.depth;
        self.fault(
            self.name(record.parent),
            format!("a launch of level {}; the launch queue's depth is {depth}", depth.saturating_add(1)),
        )
    }

    /// Where a launch is in messages.
    pub fn place(&self, level: u32, index: u32, parent: u32) -> String {
        format!("launch {index} of level {level}, by kernel `{}`", self.name(parent))
    }

    /// Translates launch `index` of a level to a dispatch, as [`ExecuteCommands::decode`].
    ///
    /// # Errors
    /// A fault that names launch, kernel and argument.
    pub fn decode(
        &self,
        (level, index): (u32, u32),
        record: &CommandRecord,
        used: &UsedRanges<'_>,
        dispatch: &mut Dispatch,
    ) -> Result<bool> {
        let parent = self.name(record.parent);
        let place = format_args!("launch {index} of level {level}, by kernel `{parent}`");
        self.children.decode_at(place, record, used, dispatch, true)
    }

    /// The port of a kernel in the queue's memory.
    pub fn port(queue: &MemorySlice, pipeline: u32) -> MemorySlice {
        MemorySlice {
            memory: queue.memory.clone(),
            offset: queue.offset + QueueHeader::port(pipeline),
            len: QueueHeader::PORT_BYTES,
        }
    }

    fn fault(&self, kernel: &str, message: String) -> Error {
        Error::Fault(Fault {
            kernel: kernel.into(),
            message,
            location: None,
            launch: self.root.label.clone(),
        })
    }
}
