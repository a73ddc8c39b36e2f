//! Launches of kernels with grid barriers: a dispatch for each round from one barrier to the next, in command buffers with more and more rounds.
//!
//! The kernel is split at its barriers ([`split`](crate::split)). A thread that waits at one sets its round's word in memory; rounds behind the last one
//! find no thread left, and end at once. The host reads the words when a command buffer has completed, and commits the next one until no thread waits.

use std::any::Any;

use elinvar_driver::{Command, Dispatch, Error, Grid, Result};
use objc2::runtime::ProtocolObject;
use objc2_metal::{MTLBarrierScope, MTLCommandQueue, MTLComputeCommandEncoder as _, MTLResourceOptions};

use super::buffer::Buffer;
use super::core::{self, Core};
use super::encode;
use super::encoding::{BufferInfo, CommandBuffer, Encoding, Place};
use super::pipeline::MetalPipeline;

/// Rounds of the first command buffer. Each further one has twice as many, up to [`MOST`].
const FIRST: usize = 8;
const MOST: usize = 256;

/// Rounds that have been encoded.
pub(super) struct Rounds {
    /// Submission, and index of the command.
    place: (u64, usize),
    states: Buffer,
    /// A word for each round of the last command buffer.
    waits: Buffer,
    count: usize,
}

impl Rounds {
    /// Whether no thread waits behind the last round.
    #[allow(unsafe_code)] // reads what the GPU has written
    fn have_ended(&self) -> bool {
        let words = core::contents(&self.waits).cast::<u32>();
        // SAFETY: the buffer has a word for each round, and no command buffer that writes them is running.
        unsafe { words.add(self.count - 1).read() == 0 }
    }
}

fn pipeline(dispatch: &Dispatch) -> Option<&MetalPipeline> {
    let pipeline: &dyn Any = &*dispatch.pipeline;
    pipeline.downcast_ref::<MetalPipeline>()
}

/// Whether a launch is of a kernel with grid barriers.
pub(super) fn is_for(dispatch: &Dispatch) -> bool {
    pipeline(dispatch).is_some_and(|pipeline| pipeline.states().is_some())
}

/// The same for a command.
pub(super) fn is_command(command: &Command) -> bool {
    matches!(command, Command::Dispatch(dispatch) if is_for(dispatch))
}

/// The next command buffer of a launch, or `None` if it has ended. `place` is the submission, and the index of the command.
#[allow(unsafe_code)] // binds buffers
pub(super) fn encode(
    (core, queue): (&Core, &ProtocolObject<dyn MTLCommandQueue>),
    dispatch: &Dispatch,
    place: (u64, usize),
    info: &mut BufferInfo,
) -> Result<Option<CommandBuffer>> {
    core.expect_present()?;
    let name = &dispatch.pipeline.signature().name;
    let pipeline = pipeline(dispatch).filter(|pipeline| pipeline.is_of(core));
    let Some((pipeline, kept)) = pipeline.and_then(|pipeline| Some((pipeline, pipeline.states()?))) else {
        let device = &core.caps.name;
        return Err(Error::invalid(format!("kernel `{name}` was not compiled for Metal device `{device}`")));
    };
    let Grid::Threads(threads) = &dispatch.grid else {
        return Err(Error::invalid(format!("kernel `{name}`: a cooperative launch whose size is in memory")));
    };
    let before = info.rounds.take().filter(|rounds| rounds.place == place);
    if threads.volume() == 0 || before.as_ref().is_some_and(Rounds::have_ended) {
        return Ok(None);
    }
    let dimensions = kept.split.dimensions;
    if (dimensions < 3 && threads.z > 1) || (dimensions < 2 && threads.y > 1) {
        return Err(Error::unsupported(format!(
            "kernel `{name}`: a grid of {threads} threads; on Metal, a kernel with grid barriers whose positions have {dimensions} components is launched in as many dimensions"
        )));
    }
    let mut encoding = Encoding::new(core, queue, info, false);
    encoding.command = place.1;
    let count = before.as_ref().map_or(FIRST, |before| (2 * before.count).min(MOST));
    let states = match before {
        Some(before) => encoding.keep(before.states),
        None => {
            let bytes = threads.volume().saturating_mul(kept.bytes.into());
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).saturating_add(3) / 4 * 4;
            let states = encoding.transient(bytes, MTLResourceOptions::StorageModePrivate)?;
            encoding.fill(Place { buffer: &states, offset: 0 }, bytes, &[0])?;
            encoding.end();
            states
        }
    };
    let waits = encoding.buffer_with(&vec![0; 4 * count])?;
    for round in 0..count {
        let encoder = encoding.compute(std::iter::empty())?;
        if round > 0 {
            encoder.memoryBarrierWithScope(MTLBarrierScope::Buffers);
        }
        let (states_at, waits_at) = (kept.split.states as usize, kept.split.waits as usize);
        // SAFETY: the buffers are kept until the command buffer has ended, and have room for all threads and rounds.
        unsafe {
            encoder.setBuffer_offset_atIndex(Some(&states), 0, states_at);
            encoder.setBuffer_offset_atIndex(Some(&waits), 4 * round, waits_at);
        }
        encode::launch(&mut encoding, &encoder, pipeline, dispatch, None)?;
    }
    let buffer = encoding.finish();
    info.rounds = Some(Rounds { place, states, waits, count });
    Ok(buffer)
}
