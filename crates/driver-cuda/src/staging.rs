//! Staging memory of launches: copies of arguments passed by value, fault records of kernels with bounds checks, and copies of the counts
//! of indirect launches.
//!
//! Allocated in *chunks*: pinned memory for the host, and an equal amount of device memory for kernels. A device keeps unused chunks for
//! reuse.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_driver::{Dim3, Error, Fault, Grid, Init, Label, Memory, Result, Storage};
use elinvar_ptx::{Bounds, FaultRecord};
use parking_lot::Mutex;

use crate::commands::{CommandsCheck, CountsCheck};
use crate::context::{Context, at, void};
use crate::failure::Failure;
use crate::memory::CudaMemory;

/// Size of a chunk in bytes, unless a single allocation needs more.
const CHUNK: u64 = 64 << 10;
/// Alignment of allocations in a chunk, in bytes.
const ALIGN: u64 = 64;
/// Maximum number of launches with counts in memory that share a block of reports.
const COUNTS: usize = 128;
/// Maximum number of unused chunks that a device keeps.
const SPARE: usize = 32;

struct Chunk {
    host: CudaMemory,
    device: CudaMemory,
    used: u64,
}

/// Unused chunks of a device.
#[derive(Default)]
pub(crate) struct Chunks {
    spare: Mutex<Vec<Chunk>>,
}

impl Chunks {
    fn take(&self, context: &Arc<Context>, bytes: u64) -> Result<Chunk> {
        let mut spare = self.spare.lock();
        if let Some(index) = spare.iter().position(|chunk| chunk.host.len() >= bytes) {
            return Ok(spare.swap_remove(index));
        }
        drop(spare);
        let bytes = bytes.max(CHUNK);
        let part = |storage| CudaMemory::new(context, bytes, storage, Init::Uninitialized);
        Ok(Chunk { host: part(Storage::Shared)?, device: part(Storage::Private)?, used: 0 })
    }
}

/// Staging memory of a part of a submission, kept until the part has ended.
#[derive(Default)]
pub(crate) struct Staging {
    chunks: Vec<Chunk>,
    checks: Vec<Check>,
    /// Location of the counts of an indirect launch: chunk and offset.
    counts: Option<(usize, u64)>,
}

/// What the device reports of a launch, or of an execution of commands.
struct Check {
    chunk: usize,
    offset: u64,
    meaning: Meaning,
}

enum Meaning {
    /// A fault record.
    Launch(Arc<Bounds>, Option<Arc<Label>>),
    /// The report of an execution of commands.
    Commands(CommandsCheck),
    /// The reports of launches whose counts are in memory, of up to [`COUNTS`].
    Counts(Vec<CountsCheck>),
}

impl Meaning {
    /// Size in bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Launch(..) => size_of::<FaultRecord>(),
            Self::Commands(check) => check.bytes(),
            Self::Counts(_) => COUNTS * CountsCheck::BYTES,
        }
    }
}

impl Staging {
    /// Copies `bytes` to the device, in stream order. Returns the device address. The context must be current.
    #[allow(unsafe_code)] // writes to pinned memory
    pub(crate) fn copy(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        bytes: &[u8],
    ) -> Result<CUdeviceptr> {
        let (chunk, offset) = self.place(chunks, context, bytes.len() as u64)?;
        let Chunk { host, device, .. } = &self.chunks[chunk];
        // SAFETY: the range is valid and exclusive to this part until it has ended.
        unsafe { host.write(offset, bytes) }?;
        let (from, to) = (host.host_ptr(), device.at(offset, bytes.len() as u64)?);
        let from =
            from.map_or(std::ptr::null(), |first| first.as_ptr().wrapping_add(offset as usize).cast_const());
        // SAFETY: both ranges have this size and stay valid until the part has ended.
        let copied = unsafe { context.api.copy_to_device(to, from.cast(), bytes.len(), stream) };
        copied.map_err(|failure| context.error(failure, "copying arguments to the device"))?;
        Ok(to)
    }

    /// Allocates an empty fault record on the device.
    pub(crate) fn record(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        bounds: &Arc<Bounds>,
        launch: Option<&Arc<Label>>,
    ) -> Result<CUdeviceptr> {
        self.check(chunks, context, stream, Meaning::Launch(bounds.clone(), launch.cloned()))
    }

    /// Allocates an empty report of an execution of commands on the device.
    pub(crate) fn report(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        check: CommandsCheck,
    ) -> Result<CUdeviceptr> {
        self.check(chunks, context, stream, Meaning::Commands(check))
    }

    /// The device address of an empty report of a launch with counts in memory.
    pub(crate) fn counts_report(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        check: CountsCheck,
    ) -> Result<CUdeviceptr> {
        let first = match self.checks.last() {
            Some(Check { chunk, offset, meaning: Meaning::Counts(known) }) if known.len() < COUNTS => {
                self.chunks[*chunk].device.at(*offset, 0)?
            }
            _ => self.check(chunks, context, stream, Meaning::Counts(Vec::new()))?,
        };
        let Some(Check { meaning: Meaning::Counts(known), .. }) = self.checks.last_mut() else {
            return Err(Error::Environment("a report is missing".into()));
        };
        known.push(check);
        Ok(first + ((known.len() - 1) * CountsCheck::BYTES) as u64)
    }

    fn check(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        meaning: Meaning,
    ) -> Result<CUdeviceptr> {
        let address = self.copy(chunks, context, stream, &vec![0; meaning.bytes()])?;
        let chunk = self.chunks.len() - 1;
        let offset = address - self.chunks[chunk].device.at(0, 0)?;
        self.checks.push(Check { chunk, offset, meaning });
        Ok(address)
    }

    /// Number of reports.
    pub(crate) fn checks(&self) -> usize {
        self.checks.len()
    }

    /// Device address of the first report behind so many, if there is one.
    pub(crate) fn check_behind(&self, count: usize) -> Result<Option<CUdeviceptr>> {
        let check = self.checks.get(count);
        check.map(|check| self.chunks[check.chunk].device.at(check.offset, 0)).transpose()
    }

    /// Copies the counts of an indirect launch to the host, in stream order. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn count(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        counts: CUdeviceptr,
    ) -> Result<()> {
        let (chunk, offset) = self.place(chunks, context, Grid::COUNTS_BYTES)?;
        let to = self.chunks[chunk].host.at(offset, Grid::COUNTS_BYTES)?;
        // SAFETY: the counts are in memory that the submission keeps alive; their location stays valid until the part has ended.
        let copied = unsafe { context.api.copy(to, counts, Grid::COUNTS_BYTES as usize, stream) };
        copied.map_err(|failure| context.error(failure, "copying the counts of a launch to the host"))?;
        self.counts = Some((chunk, offset));
        Ok(())
    }

    /// Copies the fault records to the host, behind the launches.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn fetch(&self, context: &Context, stream: CUstream) -> Result<(), Failure> {
        self.checks.iter().try_for_each(|check| {
            let Chunk { host, device, .. } = &self.chunks[check.chunk];
            let first = host.host_ptr().map_or(std::ptr::null_mut(), |first| first.as_ptr());
            let to = void(first.wrapping_add(check.offset as usize));
            let from = device.at(0, 0).map_or(0, |first| at(first, check.offset));
            // SAFETY: both are locations of the record, made by `record`.
            unsafe { context.api.copy_to_host(to, from, check.meaning.bytes(), stream) }
        })
    }

    /// Whether nothing was allocated.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether the host must read results before it can issue more: a launch may have failed, or the next launch needs its counts.
    pub(crate) fn has_news(&self) -> bool {
        self.counts.is_some() || self.checks.iter().any(|check| !matches!(check.meaning, Meaning::Counts(_)))
    }

    /// Whether the device reports anything.
    pub(crate) fn has_reports(&self) -> bool {
        self.counts.is_some() || !self.checks.is_empty()
    }

    /// The counts. Must be called after the part has ended.
    pub(crate) fn counts(&self) -> Option<Dim3> {
        self.counts.and_then(|(chunk, offset)| self.read::<[u32; 3]>(chunk, offset)).map(Dim3::from)
    }

    /// The first recorded fault. Must be called after the part has ended.
    #[allow(unsafe_code)] // reads what the device wrote
    pub(crate) fn fault(&self) -> Option<Error> {
        self.checks.iter().find_map(|check| match &check.meaning {
            Meaning::Launch(bounds, launch) => {
                let record = self.read::<FaultRecord>(check.chunk, check.offset)?;
                let fault = (record.taken != 0).then(|| bounds.fault(&record))?;
                Some(Error::Fault(Fault { launch: launch.clone(), ..fault }))
            }
            Meaning::Counts(launches) => (0..).zip(launches).find_map(|(at, launch)| {
                let offset = check.offset + at * CountsCheck::BYTES as u64;
                launch.fault(self.read::<[u32; 4]>(check.chunk, offset)?)
            }),
            Meaning::Commands(commands) => {
                let mut report = vec![0; commands.bytes()];
                let host = &self.chunks[check.chunk].host;
                // SAFETY: the device has written the report and nothing writes it any more.
                unsafe { host.read(check.offset, &mut report) }.ok()?;
                commands.fault(&report)
            }
        })
    }

    #[allow(unsafe_code)] // reads what the device wrote
    fn read<T: Copy>(&self, chunk: usize, offset: u64) -> Option<T> {
        let first = self.chunks[chunk].host.host_ptr()?;
        let place = first.as_ptr().wrapping_add(offset as usize).cast::<T>();
        // SAFETY: the location of the record or the counts, aligned by `place`; plain integers that nothing writes any more.
        Some(unsafe { place.read() })
    }

    /// Returns the chunks to the device.
    pub(crate) fn end(self, chunks: &Chunks) {
        let mut spare = chunks.spare.lock();
        for chunk in self.chunks {
            if spare.len() < SPARE && chunk.host.len() <= CHUNK {
                spare.push(Chunk { used: 0, ..chunk });
            }
        }
    }

    fn place(&mut self, chunks: &Chunks, context: &Arc<Context>, bytes: u64) -> Result<(usize, u64)> {
        let fits = |chunk: &Chunk| chunk.host.len() - chunk.used >= bytes;
        if !self.chunks.last().is_some_and(fits) {
            self.chunks.push(chunks.take(context, bytes)?);
        }
        let last = self.chunks.len() - 1;
        let chunk = &mut self.chunks[last];
        let offset = chunk.used;
        chunk.used = (offset + bytes).next_multiple_of(ALIGN).min(chunk.host.len());
        Ok((last, offset))
    }
}
