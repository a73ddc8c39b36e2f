//! Commands to calls of the driver: the one `match` on [`Command`].

use std::any::Any;
use std::sync::Arc;

use cudarc::driver::sys::CUstream;
use elinvar_driver::{Command, Dim3, Dispatch, Error, Event, Grid, MemorySlice, Result, Stamp};

use crate::event::CudaEvent;
use crate::function::{Target, memory};
use crate::kept::{Chunks, Kept};
use crate::pipeline::CudaPipeline;
use crate::shared::Shared;
use crate::transfer;

/// What a command was.
pub(crate) enum Step {
    /// Nothing for the device.
    Nothing,
    /// Work, at the end of the stream now.
    Work,
    /// The counts that a launch goes by are on their way: the same command again when the host has them.
    Counts,
    /// To be done by the host when the device has come so far.
    Host(HostStep),
    /// The stream waits for this event on the device.
    Waits(Arc<dyn Event>, u64),
    /// Nothing may be given to the device before the event has this value.
    Gate(Arc<dyn Event>, u64),
}

/// What the host does when the device has come so far.
pub(crate) enum HostStep {
    Signal(Arc<dyn Event>, u64),
    Stamp(Arc<Stamp>),
}

/// What the commands of a lane are encoded with.
pub(crate) struct Encoder<'e> {
    pub(crate) shared: &'e Shared,
    pub(crate) stream: CUstream,
    pub(crate) kept: &'e mut Kept,
    pub(crate) params: &'e mut Vec<u8>,
    /// The threadgroups of the launch that comes next, if the host has been told them.
    pub(crate) counts: Option<Dim3>,
}

impl Encoder<'_> {
    /// Put a command at the end of the stream. The context is current.
    pub(crate) fn encode(&mut self, command: &Command) -> Result<Step> {
        match command {
            Command::Dispatch(dispatch) => self.dispatch(dispatch),
            Command::Copy { source, target } => self.copy(source, target).map(|()| Step::Work),
            Command::Fill { target, pattern } => self.fill(target, pattern).map(|()| Step::Work),
            Command::Signal { event, value } => Ok(Step::Host(HostStep::Signal(event.clone(), *value))),
            Command::Wait { event, value } => self.wait(event, *value),
            Command::Timestamp { into } => Ok(Step::Host(HostStep::Stamp(into.clone()))),
            other => Err(Error::unsupported(format!("the CUDA driver has no command {other:?}"))),
        }
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<Step> {
        let threads = match (&dispatch.grid, self.counts.take()) {
            (Grid::Threads(threads), _) => *threads,
            (Grid::Indirect(_), Some(counts)) => dispatch.threads_of(counts)?,
            (Grid::Indirect(counts), None) => {
                let from = memory(counts)?.at(counts.offset, Grid::COUNTS_BYTES)?;
                let Shared { chunks, context, .. } = self.shared;
                return self.kept.count(chunks, context, self.stream, from).map(|()| Step::Counts);
            }
        };
        for used in &dispatch.uses {
            memory(&used.slice)?.at(used.slice.offset, used.slice.len)?;
        }
        let function = pipeline(dispatch)?.function(&dispatch.bindings)?;
        let chunks: &Chunks = &self.shared.chunks;
        let mut target = Target { stream: self.stream, chunks, kept: self.kept, params: self.params };
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

    fn wait(&self, event: &Arc<dyn Event>, value: u64) -> Result<Step> {
        if event.value() >= value {
            return Ok(Step::Nothing);
        }
        if let Some(cause) = event.failure() {
            return Err(cause);
        }
        let context = &self.shared.context;
        // Another device's may end without raising it, and then this one's stream would wait for ever.
        let promised = CudaEvent::of(&**event).and_then(|event| event.promised(value));
        let Some(point) = promised.filter(|point| point.is_of(context)) else {
            return Ok(Step::Gate(event.clone(), value));
        };
        point.gate(self.stream).map_err(|failure| context.error(failure, "waiting for an event"))?;
        Ok(Step::Waits(event.clone(), value))
    }
}

/// The pipeline of a launch, if it is one of this driver's.
pub(crate) fn pipeline(dispatch: &Dispatch) -> Result<&CudaPipeline> {
    let pipeline: &dyn Any = &*dispatch.pipeline;
    pipeline.downcast_ref().ok_or_else(|| {
        let name = &dispatch.pipeline.signature().name;
        Error::invalid(format!("kernel `{name}` was not compiled by the CUDA driver"))
    })
}
