//! Translation of commands to driver API calls: the one `match` on [`Command`].

use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use elinvar_driver::{Command, Dim3, Dispatch, Error, Grid, MemorySlice, Result};

use crate::cooperative::GridCounter;
use crate::function::{Target, memory};
use crate::libraries::StreamLibraries;
use crate::pipeline::CudaPipeline;
use crate::shared::Shared;
use crate::staging::{Chunks, Staging};
use crate::transfer;

/// How a command was encoded.
pub(crate) enum Step {
    /// It was appended to the stream.
    Work,
    /// A copy of an indirect launch's counts to the host is in flight; encode the same command again when it has completed.
    Counts,
}

/// Context for encoding the commands of a queue.
pub(crate) struct Encoder<'e> {
    pub(crate) shared: &'e Shared,
    pub(crate) stream: CUstream,
    pub(crate) staging: &'e mut Staging,
    pub(crate) params: &'e mut Vec<u8>,
    pub(crate) counter: &'e mut GridCounter,
    pub(crate) libraries: &'e mut StreamLibraries,
    /// Threadgroup counts of the next launch, if it is indirect and the host has read them.
    pub(crate) counts: Option<Dim3>,
}

impl Encoder<'_> {
    /// Appends a command to the stream. The context must be current.
    pub(crate) fn encode(&mut self, command: &Command) -> Result<Step> {
        match command {
            Command::Dispatch(dispatch) => self.dispatch(dispatch),
            Command::ExecuteCommands(execution) => self.execute(execution).map(|()| Step::Work),
            Command::LaunchNested(nested) => self.launch_nested(nested),
            Command::Copy { source, target } => self.copy(source, target).map(|()| Step::Work),
            Command::Fill { target, pattern } => self.fill(target, pattern).map(|()| Step::Work),
            Command::Primitive { primitive, operands } => {
                let Shared { libraries, .. } = self.shared;
                libraries.encode(self.libraries, self.stream, primitive, operands).map(|()| Step::Work)
            }
            other => Err(Error::unsupported(format!("the CUDA driver has no command {other:?}"))),
        }
    }

    pub(crate) fn dispatch(&mut self, dispatch: &Dispatch) -> Result<Step> {
        for used in &dispatch.uses {
            memory(&used.slice)?.at(used.slice.offset, used.slice.len)?;
        }
        let threads = match (&dispatch.grid, self.counts.take()) {
            (Grid::Threads(threads), _) => *threads,
            (Grid::Indirect(_), Some(counts)) => dispatch.threads_of(counts)?,
            (Grid::Indirect(counts), None) => {
                if self.launch_indirect(dispatch, counts)? {
                    return Ok(Step::Work);
                }
                let from = memory(counts)?.at(counts.offset, Grid::COUNTS_BYTES)?;
                let Shared { chunks, context, .. } = self.shared;
                return self.staging.count(chunks, context, self.stream, from).map(|()| Step::Counts);
            }
        };
        let function = pipeline(dispatch)?.function(&dispatch.bindings)?;
        let chunks: &Chunks = &self.shared.chunks;
        let (staging, counter, params) = (&mut *self.staging, &mut *self.counter, &mut *self.params);
        let mut target = Target { stream: self.stream, chunks, staging, counter, params };
        function.launch(dispatch, threads, &mut target)?;
        Ok(Step::Work)
    }

    fn copy(&self, source: &MemorySlice, target: &MemorySlice) -> Result<()> {
        if source.len != target.len {
            return Err(Error::invalid(format!("copy of {} bytes to {} bytes", source.len, target.len)));
        }
        let (from, to) = (memory(source)?, memory(target)?);
        let (first, last) = (from.at(source.offset, source.len)?, to.at(target.offset, target.len)?);
        if Arc::ptr_eq(from.context(), to.context()) {
            return transfer::copy(&self.shared.context, self.stream, first, last, source.len);
        }
        transfer::copy_between(self.stream, (from.context(), first), (to.context(), last), source.len)
    }

    fn fill(&self, target: &MemorySlice, pattern: &[u8]) -> Result<()> {
        let to = memory(target)?.at(target.offset, target.len)?;
        transfer::fill(&self.shared.context, self.stream, to, target.len, pattern)
    }
}

/// Whether a command only copies from one device to another.
pub(crate) fn is_between_devices(command: &Command) -> bool {
    let Command::Copy { source, target } = command else { return false };
    let (from, to) = (memory(source), memory(target));
    from.is_ok_and(|from| to.is_ok_and(|to| !Arc::ptr_eq(from.context(), to.context())))
}

/// The pipeline of a launch, after checking that it belongs to this driver.
pub(crate) fn pipeline(dispatch: &Dispatch) -> Result<&CudaPipeline> {
    CudaPipeline::of(&*dispatch.pipeline)
}
