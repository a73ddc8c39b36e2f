//! What launches need while they run beside what their commands name: copies of arguments given by value, places where
//! kernels with bounds checks note a fault, and copies of the counts that an indirect launch goes by.
//!
//! It lies in *chunks*: pinned memory where the host writes, and as much device memory where kernels read. A device keeps
//! chunks that are not used.

use std::sync::Arc;

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_driver::{Dim3, Error, Fault, Grid, Init, Label, Memory, Result, Storage};
use elinvar_ptx::{Bounds, FaultRecord};
use parking_lot::Mutex;

use crate::context::{Context, at, void};
use crate::failure::Failure;
use crate::memory::CudaMemory;

/// Bytes of a chunk, unless more is needed at once.
const CHUNK: u64 = 64 << 10;
/// What everything in a chunk is aligned to.
const ALIGN: u64 = 64;
/// Unused chunks that a device keeps.
const SPARE: usize = 32;

struct Chunk {
    host: CudaMemory,
    device: CudaMemory,
    used: u64,
}

/// The chunks of a device that nothing uses.
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

/// What the launches of a part of a submission need until it has ended.
#[derive(Default)]
pub(crate) struct Staging {
    chunks: Vec<Chunk>,
    checks: Vec<Check>,
    /// Where the counts of an indirect launch will be: chunk and offset.
    counts: Option<(usize, u64)>,
}

/// A fault record of a launch.
struct Check {
    chunk: usize,
    offset: u64,
    bounds: Arc<Bounds>,
    launch: Option<Arc<Label>>,
}

impl Staging {
    /// A copy of `bytes` on the device, from when the stream comes there. The context is current.
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
        // SAFETY: the place is in range and nobody else's until the part has ended.
        unsafe { host.write(offset, bytes) }?;
        let (from, to) = (host.host_ptr(), device.at(offset, bytes.len() as u64)?);
        let from =
            from.map_or(std::ptr::null(), |first| first.as_ptr().wrapping_add(offset as usize).cast_const());
        // SAFETY: both ranges are of that size and stay until the part has ended.
        let copied = unsafe { context.api.copy_to_device(to, from.cast(), bytes.len(), stream) };
        copied.map_err(|failure| context.error(failure, "copying arguments to the device"))?;
        Ok(to)
    }

    /// A fault record, empty, on the device.
    pub(crate) fn record(
        &mut self,
        chunks: &Chunks,
        context: &Arc<Context>,
        stream: CUstream,
        bounds: &Arc<Bounds>,
        launch: Option<&Arc<Label>>,
    ) -> Result<CUdeviceptr> {
        let address = self.copy(chunks, context, stream, &[0; size_of::<FaultRecord>()])?;
        let chunk = self.chunks.len() - 1;
        let offset = address - self.chunks[chunk].device.at(0, 0)?;
        self.checks.push(Check { chunk, offset, bounds: bounds.clone(), launch: launch.cloned() });
        Ok(address)
    }

    /// Have the counts of an indirect launch brought to the host, from when the stream comes there. The context is current.
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
        // SAFETY: the counts are in memory that the submission keeps; their place stays until the part has ended.
        let copied = unsafe { context.api.copy(to, counts, Grid::COUNTS_BYTES as usize, stream) };
        copied.map_err(|failure| context.error(failure, "copying the counts of a launch to the host"))?;
        self.counts = Some((chunk, offset));
        Ok(())
    }

    /// Have the records brought back to the host, behind the launches.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn fetch(&self, context: &Context, stream: CUstream) -> Result<(), Failure> {
        self.checks.iter().try_for_each(|check| {
            let Chunk { host, device, .. } = &self.chunks[check.chunk];
            let first = host.host_ptr().map_or(std::ptr::null_mut(), |first| first.as_ptr());
            let to = void(first.wrapping_add(check.offset as usize));
            let from = device.at(0, 0).map_or(0, |first| at(first, check.offset));
            // SAFETY: both are the record's places, made by `record`.
            unsafe { context.api.copy_to_host(to, from, size_of::<FaultRecord>(), stream) }
        })
    }

    /// Whether there is nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether the host has to look at something before it knows how to go on: a launch may turn out to have failed, or
    /// the next is to be counted.
    pub(crate) fn has_news(&self) -> bool {
        !self.checks.is_empty() || self.counts.is_some()
    }

    /// The counts that were brought. Only once the part has ended.
    pub(crate) fn counts(&self) -> Option<Dim3> {
        self.counts.and_then(|(chunk, offset)| self.read::<[u32; 3]>(chunk, offset)).map(Dim3::from)
    }

    /// The first fault that was noted. Only once the part has ended.
    pub(crate) fn fault(&self) -> Option<Error> {
        self.checks.iter().find_map(|check| {
            let record = self.read::<FaultRecord>(check.chunk, check.offset)?;
            let fault = (record.taken != 0).then(|| check.bounds.fault(&record))?;
            Some(Error::Fault(Fault { launch: check.launch.clone(), ..fault }))
        })
    }

    #[allow(unsafe_code)] // reads what the device wrote
    fn read<T: Copy>(&self, chunk: usize, offset: u64) -> Option<T> {
        let first = self.chunks[chunk].host.host_ptr()?;
        let place = first.as_ptr().wrapping_add(offset as usize).cast::<T>();
        // SAFETY: the record's or the counts' place, aligned by `place`, plain numbers that nothing writes any more.
        Some(unsafe { place.read() })
    }

    /// Give the chunks back.
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
