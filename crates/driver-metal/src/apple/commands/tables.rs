//! What the kernels of `translate.metal` read and write: kernels, arguments and used memory as plain numbers.

use elinvar_driver::indirect::UsedRanges;
use elinvar_driver::{Access, ArgKind, Binding, ElementType, Error, ExecuteCommands, Pipeline, Result};

/// Appends numbers to bytes.
#[derive(Default)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Bytes {
    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend(number.to_ne_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_ne_bytes());
        self
    }
}

/// Kernels and arguments.
#[derive(Default)]
pub(super) struct Tables {
    /// 32 bytes for each kernel.
    pub(super) kernels: Bytes,
    /// 24 bytes for each argument.
    pub(super) arguments: Bytes,
    /// Size of the largest argument that is a reference.
    pub(super) zeros: u64,
}

impl Tables {
    /// `most_size` is the device's limit for threadgroups.
    pub(super) fn of<'p>(kernels: impl Iterator<Item = &'p dyn Pipeline>, most_size: [u32; 3]) -> Self {
        let mut tables = Self { zeros: 16, ..Self::default() };
        let mut first = 0;
        for pipeline in kernels {
            let arguments = &pipeline.signature().args;
            let own = u32::try_from(pipeline.threadgroup_memory()).unwrap_or(u32::MAX);
            let row = &mut tables.kernels;
            row.u32(pipeline.max_threads_per_threadgroup());
            most_size.into_iter().for_each(|size| _ = row.u32(size));
            row.u32(own).u32(first).u32(arguments.len() as u32).u32(0);
            first += arguments.len() as u32;
            for arg in arguments {
                let kind = match (&arg.element, arg.kind) {
                    (ElementType::LaunchQueue, _) => 3,
                    (_, ArgKind::Pointer) => 0,
                    (_, ArgKind::Reference) => 1,
                    (_, ArgKind::Threadgroup) => 2,
                };
                if arg.kind == ArgKind::Reference {
                    tables.zeros = tables.zeros.max(arg.element_size);
                }
                let writes = u32::from(arg.access == Access::ReadWrite);
                let align = u32::try_from(arg.element_align.max(1)).unwrap_or(u32::MAX);
                tables.arguments.u32(arg.index).u32(kind).u32(writes).u32(align).u64(arg.element_size);
            }
        }
        tables
    }
}

/// The used memory in the order of `UsedRanges`, 24 bytes each.
pub(super) fn used(ranges: &UsedRanges<'_>) -> Bytes {
    let mut table = Bytes::default();
    for (first, slice, access) in ranges.iter() {
        table.u64(first).u64(first + slice.len).u64(u64::from(access == Access::ReadWrite));
    }
    table
}

/// The inherited buffers, 24 bytes for each of 31 indices; `value` gives a value's address.
pub(super) fn inherited(
    execution: &ExecuteCommands,
    mut value: impl FnMut(&[u8]) -> Result<u64>,
) -> Result<Bytes> {
    let mut rows = [(0, 0, 0, 0); 31];
    for buffer in execution.buffers.iter().flatten() {
        let (address, bytes) = match &buffer.binding {
            Binding::Memory(slice) => {
                let first = slice.memory.gpu_address();
                let first = first.ok_or_else(|| Error::unsupported("the device has no addresses"))?;
                (first + slice.offset, slice.len)
            }
            Binding::Bytes(bytes) => (value(bytes)?, bytes.len() as u64),
            Binding::Threadgroup(_) | Binding::Unbound => continue,
        };
        if let Some(row) = rows.get_mut(buffer.index as usize) {
            *row = (address, bytes, 1, u32::from(buffer.access == Access::ReadWrite));
        }
    }
    let mut table = Bytes::default();
    for (address, bytes, is_set, writes) in rows {
        table.u64(address).u64(bytes).u32(is_set).u32(writes);
    }
    Ok(table)
}

/// `Parameters` of `translate.metal`.
#[derive(Clone, Copy, Default)]
pub(super) struct Parameters {
    pub(super) zeros: u64,
    pub(super) capacity: u32,
    pub(super) used: u32,
    pub(super) kernels: u32,
    pub(super) max_memory: u32,
    pub(super) inherited_kernel: u32,
    pub(super) inherits_buffers: bool,
    pub(super) first: u32,
    pub(super) count: u32,
    pub(super) range_in_memory: bool,
    pub(super) chunk: u32,
    /// Most commands of a chunk.
    pub(super) most: u32,
    pub(super) depth: u32,
    /// Offset in bytes of the first record.
    pub(super) records_at: u32,
}

impl Parameters {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Bytes::default();
        bytes.u64(self.zeros).u32(self.capacity).u32(self.used).u32(self.kernels).u32(self.max_memory);
        bytes.u32(self.inherited_kernel).u32(self.inherits_buffers.into());
        bytes.u32(self.first).u32(self.count).u32(self.range_in_memory.into());
        bytes.u32(self.chunk).u32(self.most).u32(self.depth).u32(self.records_at).u32(0);
        bytes.0
    }
}

/// `State` of `translate.metal`.
pub(super) struct State<'b>(pub(super) &'b [u8]);

impl State<'_> {
    pub(super) const BYTES: usize = 64 + 576;
    /// Offset of the counts of threadgroups.
    pub(super) const GROUPS: usize = 40;
    /// Offset of the range.
    pub(super) const RANGE: usize = 52;

    fn word(&self, at: usize) -> u32 {
        let word = self.0.get(4 * at..4 * at + 4).and_then(|bytes| bytes.try_into().ok());
        word.map_or(0, u32::from_ne_bytes)
    }

    pub(super) fn code(&self) -> u32 {
        self.word(0)
    }

    pub(super) fn index(&self) -> u32 {
        self.word(1)
    }

    pub(super) fn error(&self) -> u32 {
        self.word(2)
    }

    pub(super) fn first(&self) -> u32 {
        self.word(3)
    }

    pub(super) fn level(&self) -> u32 {
        self.word(5)
    }

    /// Whether no level is left.
    pub(super) fn has_ended(&self) -> bool {
        self.word(6) != 0
    }

    /// The record that was rejected.
    pub(super) fn record(&self) -> elinvar_driver::CommandRecord {
        elinvar_driver::CommandRecord::from_bytes(self.0.get(64..).unwrap_or_default())
    }
}
