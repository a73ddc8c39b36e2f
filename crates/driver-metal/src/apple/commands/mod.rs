//! Execution of commands in memory ([`ExecuteCommands`]) and of launches that kernels enqueue ([`NestedLaunch`]).
//!
//! Kernels write records in memory, also on Metal: `headers` gives Metal's names that meaning. The GPU checks the records and encodes them into an
//! `MTLIndirectCommandBuffer` (`translate.metal`), which it executes up to the first one that is rejected. Ranges, counts and levels stay on the
//! GPU; the host reads a [`State`] when the command buffer has completed, and decodes the rejected record only for its error. Each step is an
//! encoder of its own, so that Metal's hazard tracking orders them.
//!
//! A command buffer has a fixed number of levels of a nested launch; the host commits the next one until no level is left.

mod tables;

use std::any::Any;
use std::slice;
use std::sync::Arc;

use elinvar_driver::{
    Access, Command, CommandHeader, CommandRange, CommandRecord, Error, ExecuteCommands, NestedLaunch,
    QueueHeader, Result, Use,
};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::{
    MTLBuffer as _, MTLCommandQueue, MTLComputeCommandEncoder as _, MTLComputePipelineState as _,
    MTLDevice as _, MTLIndirectCommandBuffer, MTLIndirectCommandBufferDescriptor, MTLIndirectCommandType,
    MTLResourceOptions, MTLResourceUsage, MTLSize,
};
use parking_lot::Mutex;

use super::buffer::Buffer;
use super::core::{self, Core};
use super::encode;
use super::encoding::{BufferInfo, CommandBuffer, ComputeEncoder, Encoding};
use super::kernels::{self, State as Pipeline};
use super::memory::located;
use super::pipeline::MetalPipeline;
use crate::headers;
use tables::{Parameters, State, Tables};

const SOURCE: &str = include_str!("translate.metal");
/// Maximum number of commands of an indirect command buffer (Metal Feature Set Tables); more are executed one after the other.
const MOST_COMMANDS: u32 = 16384;
/// Levels in the first command buffer of a nested launch. Each further one has twice as many, up to [`MOST_LEVELS`].
const FIRST_LEVELS: u64 = 8;
const MOST_LEVELS: u64 = 64;
/// Number of indirect command buffers that are kept for later executions.
const MOST_SPARE: usize = 4;

/// Whether a command executes commands in memory.
pub(super) fn executes(command: &Command) -> bool {
    matches!(command, Command::ExecuteCommands(_) | Command::LaunchNested(_))
}

/// Rejects devices that cannot encode indirect command buffers in kernels, with addresses.
pub(super) fn expect(core: &Core) -> Result<()> {
    if core.features.commands && core.features.edges {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "device `{}` does not execute indirect command buffers: it is not of Metal's family Metal3, whose kernels encode them with addresses of buffers",
        core.caps.name
    )))
}

/// The driver's kernels for it, compiled with the first use, and spare indirect command buffers.
#[derive(Default)]
pub(super) struct Translator {
    programs: Mutex<Option<Arc<Programs>>>,
    spare: Arc<Mutex<Vec<Commands>>>,
}

struct Programs {
    begin_commands: Pipeline,
    begin_nested: Pipeline,
    begin_level: Pipeline,
    translate: Pipeline,
    end_chunk: Pipeline,
}

/// An `MTLIndirectCommandBuffer`, and how many commands it has room for.
struct Commands {
    buffer: Retained<ProtocolObject<dyn MTLIndirectCommandBuffer>>,
    room: u32,
}

#[allow(unsafe_code)] // the bindings leave it open
// SAFETY: Metal's resources may be used on any thread; only the GPU changes it.
unsafe impl Send for Commands {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Commands {}

/// An indirect command buffer in use. It is spare when the command buffer has ended.
pub(super) struct Lane {
    commands: Option<Commands>,
    spare: Arc<Mutex<Vec<Commands>>>,
}

impl Drop for Lane {
    fn drop(&mut self) {
        let mut spare = self.spare.lock();
        if let Some(commands) = self.commands.take().filter(|_| spare.len() < MOST_SPARE) {
            spare.push(commands);
        }
    }
}

impl Translator {
    fn programs(&self, core: &Core) -> Result<Arc<Programs>> {
        let mut programs = self.programs.lock();
        if let Some(programs) = &*programs {
            return Ok(programs.clone());
        }
        let source = [headers::RECORDS, SOURCE].concat();
        let names = ["begin_commands", "begin_nested", "begin_level", "translate", "end_chunk"];
        let [begin_commands, begin_nested, begin_level, translate, end_chunk] =
            kernels::build(&core.device, &core.cache, &source, names)?;
        let built = Programs { begin_commands, begin_nested, begin_level, translate, end_chunk };
        Ok(programs.insert(Arc::new(built)).clone())
    }

    #[allow(unsafe_code)] // a number that Metal may not check
    fn lane(&self, core: &Core, room: u32) -> Result<Lane> {
        let mut spare = self.spare.lock();
        let at = spare.iter().position(|commands| commands.room >= room);
        let found = at.map(|at| spare.swap_remove(at));
        drop(spare);
        if let Some(commands) = found {
            return Ok(Lane { commands: Some(commands), spare: self.spare.clone() });
        }
        let descriptor = MTLIndirectCommandBufferDescriptor::new();
        descriptor.setCommandTypes(
            MTLIndirectCommandType::ConcurrentDispatch | MTLIndirectCommandType::ConcurrentDispatchThreads,
        );
        descriptor.setInheritBuffers(false);
        descriptor.setInheritPipelineState(false);
        descriptor.setMaxKernelBufferBindCount(31);
        let room = room.next_power_of_two().clamp(64, MOST_COMMANDS);
        // SAFETY: at most `MOST_COMMANDS`.
        let made = unsafe {
            core.device.newIndirectCommandBufferWithDescriptor_maxCommandCount_options(
                &descriptor,
                room as usize,
                MTLResourceOptions::StorageModePrivate,
            )
        };
        let buffer = made.ok_or_else(|| core.out_of_memory(u64::from(room) * CommandRecord::BYTES))?;
        Ok(Lane { commands: Some(Commands { buffer, room }), spare: self.spare.clone() })
    }
}

/// What a command buffer executes: command `command` of its submission, and where the GPU notes how it ended.
pub(super) struct Executing {
    state: Buffer,
    command: usize,
}

/// Levels of a nested launch that have been encoded.
pub(super) struct Levels {
    /// Submission, and index of the command.
    place: (u64, usize),
    state: Buffer,
    encoded: u64,
    next: u64,
}

#[allow(unsafe_code)] // reads what the GPU has written
fn state_of(buffer: &Buffer) -> State<'_> {
    // SAFETY: the buffer has that many bytes, and no command buffer that writes them is running.
    State(unsafe { slice::from_raw_parts(core::contents(buffer).as_ptr(), State::BYTES) })
}

/// The next command buffer of such a command, if there is work left, and whether it is the last. `place` is the submission, and the index of the command.
pub(super) fn encode(
    (core, queue): (&Core, &ProtocolObject<dyn MTLCommandQueue>),
    command: &Command,
    place: (u64, usize),
    info: &mut BufferInfo,
) -> Result<(Option<CommandBuffer>, bool)> {
    core.expect_present()?;
    let before = info.levels.take().filter(|levels| levels.place == place);
    match command {
        Command::ExecuteCommands(execution) => {
            let mut encoding = Encoding::new(core, queue, info, false);
            encoding.command = place.1;
            execute(&mut encoding, execution)?;
            Ok((encoding.finish(), true))
        }
        Command::LaunchNested(nested) => {
            if before.as_ref().is_some_and(|levels| state_of(&levels.state).has_ended()) {
                return Ok((None, true));
            }
            let mut encoding = Encoding::new(core, queue, info, false);
            encoding.command = place.1;
            let levels = levels(&mut encoding, nested, place, before)?;
            let buffer = encoding.finish();
            // Behind the last level there is the check that it has enqueued nothing.
            let is_last = levels.encoded > u64::from(nested.depth);
            info.levels = (!is_last).then_some(levels);
            Ok((buffer, is_last))
        }
        _ => Err(Error::invalid("a command that executes no commands in memory")),
    }
}

fn execute(encoding: &mut Encoding<'_>, execution: &ExecuteCommands) -> Result<()> {
    let state = state(encoding)?;
    let (range, in_memory) = match &execution.range {
        CommandRange::Known(range) => (range.clone(), None),
        CommandRange::Indirect(words) => (0..execution.capacity, Some(words)),
    };
    let count = range.end.saturating_sub(range.start);
    let most = count.clamp(1, MOST_COMMANDS);
    let run = Run::new(encoding, execution, &state, CommandHeader::BYTES as u32, most)?;
    let core = encoding.core;
    let words = match in_memory {
        Some(words) => located(core, words)?,
        None => (&state, State::RANGE),
    };
    for chunk in 0..count.div_ceil(most).max(1) {
        let parameters = Parameters {
            first: range.start,
            count,
            range_in_memory: in_memory.is_some(),
            chunk,
            ..run.parameters
        };
        let memory = (run.memory, run.offset);
        let bindings = [(0, (&state, 0)), (2, memory), (3, words)];
        let encoder = stage(encoding, &run.programs.begin_commands, &bindings)?;
        encoding.set_bytes(&encoder, &parameters.bytes(), 1)?;
        one(encoding, &encoder);
        run.chunk(encoding, parameters)?;
    }
    run.keep(encoding);
    Ok(())
}

fn levels(
    encoding: &mut Encoding<'_>,
    nested: &NestedLaunch,
    place: (u64, usize),
    before: Option<Levels>,
) -> Result<Levels> {
    let (is_first, mut levels) = match before {
        Some(levels) => (false, levels),
        None => (true, Levels { place, state: state(encoding)?, encoded: 0, next: FIRST_LEVELS }),
    };
    encoding.keep(levels.state.clone());
    let state = levels.state.clone();
    let execution = &nested.children;
    let records_at = QueueHeader::record(execution.pipelines.len() as u32, 0) as u32;
    let most = execution.capacity.clamp(1, MOST_COMMANDS);
    let run = Run::new(encoding, execution, &state, records_at, most)?;
    let (memory, records) = ((run.memory, run.offset), (run.memory, run.offset + records_at as usize));
    if is_first {
        let encoder = stage(encoding, &run.programs.begin_nested, &[(0, (&state, 0)), (1, memory)])?;
        one(encoding, &encoder);
        encode::dispatch(encoding, &nested.root)?;
        encoding.end();
    }
    let end = (levels.encoded + levels.next).min(u64::from(nested.depth) + 1);
    for _ in levels.encoded..end {
        for chunk in 0..execution.capacity.div_ceil(most) {
            let parameters = Parameters { depth: nested.depth, chunk, ..run.parameters };
            let bindings = [(0, (&state, 0)), (2, memory), (3, records)];
            let encoder = stage(encoding, &run.programs.begin_level, &bindings)?;
            encoding.set_bytes(&encoder, &parameters.bytes(), 1)?;
            one(encoding, &encoder);
            run.chunk(encoding, parameters)?;
        }
    }
    run.keep(encoding);
    (levels.encoded, levels.next) = (end, (2 * levels.next).min(MOST_LEVELS));
    Ok(levels)
}

/// Memory for [`State`], which host and GPU access.
fn state(encoding: &mut Encoding<'_>) -> Result<Buffer> {
    encoding.buffer_with(&[0; State::BYTES])
}

/// What all chunks have in common.
struct Run<'e> {
    programs: Arc<Programs>,
    execution: &'e ExecuteCommands,
    parameters: Parameters,
    state: Buffer,
    memory: &'e Buffer,
    offset: usize,
    /// Kernels, arguments, used ranges, inherited buffers, pipelines and the target, from index 3 on.
    tables: [Buffer; 6],
    lane: Lane,
    /// What kernels may reach, besides `uses`.
    values: Vec<Buffer>,
}

impl<'e> Run<'e> {
    fn new(
        encoding: &mut Encoding<'_>,
        execution: &'e ExecuteCommands,
        state: &Buffer,
        records_at: u32,
        most: u32,
    ) -> Result<Self> {
        let core = encoding.core;
        let programs = core.translator.programs(core)?;
        let (memory, offset) = located(core, &execution.commands)?;
        let mut entries = Vec::new();
        for kernel in execution.kernels() {
            let pipeline: &dyn Any = &**kernel;
            let pipeline = pipeline.downcast_ref::<MetalPipeline>().filter(|pipeline| pipeline.is_of(core));
            let pipeline = pipeline.ok_or_else(|| {
                let (kernel, device) = (&kernel.signature().name, &core.caps.name);
                Error::invalid(format!("kernel `{kernel}` was not compiled for Metal device `{device}`"))
            })?;
            entries.extend(pipeline.for_commands()?.gpuResourceID().to_raw().to_ne_bytes());
        }
        let limits = &core.caps.limits;
        let kernels = execution.kernels().map(|kernel| &**kernel);
        let made = Tables::of(kernels, limits.max_threadgroup_size.to_array());
        let ranges = execution.used_ranges()?;
        let used = tables::used(&ranges);
        let zeros = encoding.buffer_with(&vec![0; made.zeros as usize])?;
        let zeros_at = zeros.gpuAddress();
        let mut values = vec![zeros];
        let inherited = tables::inherited(execution, |bytes| {
            let value = encoding.buffer_with(bytes)?;
            let address = value.gpuAddress();
            values.push(value);
            Ok(address)
        })?;
        let lane = core.translator.lane(core, most)?;
        let target = lane.buffer()?.gpuResourceID().to_raw().to_ne_bytes();
        let tables = [
            encoding.buffer_with(&made.kernels.0)?,
            encoding.buffer_with(&made.arguments.0)?,
            encoding.buffer_with(&used.0)?,
            encoding.buffer_with(&inherited.0)?,
            encoding.buffer_with(&entries)?,
            encoding.buffer_with(&target)?,
        ];
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let parameters = Parameters {
            zeros: zeros_at,
            capacity: execution.capacity,
            used: count(used.0.len() / 24),
            kernels: count(entries.len() / 8),
            max_memory: u32::try_from(execution.max_threadgroup_memory).unwrap_or(u32::MAX),
            inherited_kernel: execution.pipeline.as_ref().map_or(0, |_| count(entries.len() / 8)),
            inherits_buffers: execution.buffers.is_some(),
            most,
            records_at,
            ..Parameters::default()
        };
        let state = state.clone();
        Ok(Self { programs, execution, parameters, state, memory, offset, tables, lane, values })
    }

    /// Encodes and executes the commands of a chunk, whose begin is encoded.
    #[allow(unsafe_code)] // names memory to Metal
    fn chunk(&self, encoding: &mut Encoding<'_>, parameters: Parameters) -> Result<()> {
        let (state, memory) = (&self.state, (self.memory, self.offset));
        let bytes = parameters.bytes();
        let encoder = stage(encoding, &self.programs.translate, &[(0, (state, 0)), (2, memory)])?;
        encoding.set_bytes(&encoder, &bytes, 1)?;
        for (table, index) in self.tables.iter().zip(3..) {
            // SAFETY: the buffer is kept until the command buffer has ended.
            unsafe { encoder.setBuffer_offset_atIndex(Some(table), 0, index) };
        }
        let commands = self.lane.buffer()?;
        encoder.useResource_usage(ProtocolObject::from_ref(commands), MTLResourceUsage::Write);
        // SAFETY: the counts are within the state, which is kept until the command buffer has ended.
        unsafe {
            encoder.dispatchThreadgroupsWithIndirectBuffer_indirectBufferOffset_threadsPerThreadgroup(
                state,
                State::GROUPS,
                size(64),
            );
        }
        encoding.end();
        let encoder = stage(encoding, &self.programs.end_chunk, &[(0, (state, 0)), (2, memory)])?;
        encoding.set_bytes(&encoder, &bytes, 1)?;
        one(encoding, &encoder);
        let encoder = encoding.compute(std::iter::empty())?;
        let core = encoding.core;
        let read_write = MTLResourceUsage::Read | MTLResourceUsage::Write;
        for Use { slice, access } in &self.execution.uses {
            let (buffer, _) = located(core, slice)?;
            let usage = if *access == Access::Read { MTLResourceUsage::Read } else { read_write };
            encoder.useResource_usage(ProtocolObject::from_ref(&**buffer), usage);
        }
        for buffer in self.execution.buffers.iter().flatten() {
            if let elinvar_driver::Binding::Memory(slice) = &buffer.binding {
                let (memory, _) = located(core, slice)?;
                encoder.useResource_usage(ProtocolObject::from_ref(&**memory), read_write);
            }
        }
        // Values are in the records, and ports in the queue.
        encoder.useResource_usage(ProtocolObject::from_ref(&**self.memory), read_write);
        for value in &self.values {
            encoder.useResource_usage(ProtocolObject::from_ref(&**value), MTLResourceUsage::Read);
        }
        // SAFETY: the GPU has written a range within the commands; everything that they use is kept until the command buffer has ended.
        unsafe {
            encoder.executeCommandsInBuffer_indirectBuffer_indirectBufferOffset(
                commands,
                state,
                State::RANGE,
            );
        }
        encoding.end();
        Ok(())
    }

    fn keep(self, encoding: &mut Encoding<'_>) {
        let executing = Executing { state: self.state, command: encoding.command };
        encoding.executes(executing, self.lane);
    }
}

impl Lane {
    fn buffer(&self) -> Result<&ProtocolObject<dyn MTLIndirectCommandBuffer>> {
        let commands = self.commands.as_ref();
        commands.map(|commands| &*commands.buffer).ok_or_else(|| Error::Environment("no commands".into()))
    }
}

/// A new encoder with this kernel and these bindings, by index.
#[allow(unsafe_code)] // binds buffers
fn stage(
    encoding: &mut Encoding<'_>,
    kernel: &Pipeline,
    bindings: &[(usize, (&Buffer, usize))],
) -> Result<ComputeEncoder> {
    encoding.end();
    let encoder = encoding.compute(std::iter::empty())?;
    encoder.setComputePipelineState(kernel);
    for (index, (buffer, offset)) in bindings {
        // SAFETY: the offset is within the buffer, which is kept until the command buffer has ended.
        unsafe { encoder.setBuffer_offset_atIndex(Some(buffer), *offset, *index) };
    }
    Ok(encoder)
}

/// One thread; ends the encoder.
fn one(encoding: &mut Encoding<'_>, encoder: &ComputeEncoder) {
    encoder.dispatchThreadgroups_threadsPerThreadgroup(size(1), size(1));
    encoding.end();
}

fn size(width: usize) -> MTLSize {
    MTLSize { width, height: 1, depth: 1 }
}

/// Codes of `translate.metal`.
mod code {
    pub(super) const DONE: u32 = 0;
    pub(super) const RANGE: u32 = 1;
    pub(super) const BEYOND: u32 = 2;
    pub(super) const REJECTED: u32 = 3;
    pub(super) const OVERFLOW: u32 = 4;
    pub(super) const TOO_DEEP: u32 = 5;
}

impl Executing {
    /// What a command buffer without a failure has rejected.
    pub(super) fn failure(&self, commands: &[Command]) -> Option<Error> {
        let state = state_of(&self.state);
        if state.code() == code::DONE {
            return None;
        }
        let error = match commands.get(self.command) {
            Some(Command::ExecuteCommands(execution)) => rejected(execution, None, &state),
            Some(Command::LaunchNested(nested)) => rejected(&nested.children, Some(nested), &state),
            _ => Ok(()),
        };
        let code = state.code();
        Some(error.err().unwrap_or_else(|| {
            Error::Environment(format!(
                "the device rejected a command in memory (code {code}) that the host accepts"
            ))
        }))
    }
}

/// The error of an execution, from what the host makes of the same record.
fn rejected(execution: &ExecuteCommands, nested: Option<&NestedLaunch>, state: &State<'_>) -> Result<()> {
    match (state.code(), nested) {
        (code::RANGE, _) => execution.range_of([state.index(), state.error()]).map(drop),
        (code::BEYOND, _) => {
            execution.expect_encoded(&CommandHeader { beyond: state.index(), ..CommandHeader::default() })
        }
        (code::OVERFLOW, Some(nested)) => {
            let tickets = [state.error(); 2];
            nested.expect_room(
                &QueueHeader { tickets, overflowing: state.index(), ..QueueHeader::default() },
                0,
            )
        }
        (code::TOO_DEEP, Some(nested)) => Err(nested.too_deep(&state.record())),
        (code::REJECTED, _) => {
            let Some(mut dispatch) = execution.dispatch() else { return Ok(()) };
            let (used, record) = (execution.used_ranges()?, state.record());
            match nested {
                Some(nested) => {
                    let index = state.index().saturating_sub(state.first());
                    nested.decode((state.level(), index), &record, &used, &mut dispatch)?;
                }
                None => _ = execution.decode(state.index(), &record, &used, &mut dispatch)?,
            }
            dispatch.prepare()
        }
        _ => Ok(()),
    }
}
