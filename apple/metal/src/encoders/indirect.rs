//! [`IndirectBuffer`]: [`MTLIndirectCommandBuffer`](https://developer.apple.com/documentation/metal/mtlindirectcommandbuffer) with
//! compute commands, encoded by the host or by kernels. Execution uses the commands at the time of execution.
//!
//! Kernels encode records in memory ([`elinvar_driver::indirect`]), whose address is the resource ID. The record of a command that the host has
//! encoded is a mark, which a kernel overwrites when it encodes the command again, or resets it.

use std::sync::Arc;

use elinvar_driver::{
    CommandHeader, CommandRange, CommandRecord, ExecuteCommands, InheritedBuffer, Init, Memory, MemorySlice,
    Use,
};
use elinvar_objc::foundation::NsString;
use elinvar_objc::watch::fatal;
use elinvar_objc::{Declaration, NsRange, Property, Ref};
use parking_lot::Mutex;

use crate::commands::pass::{Dispatch, Grid};
use crate::device::Device;
use crate::encoders::bindings::{Bindings, Bound, PLACES};
use crate::library::pipeline::Pipeline;
use crate::memory::buffer::{Buffer, Held};
use crate::require;
use crate::validation::fault_injection::Site;
use crate::values::{ResourceId, Size, within};

/// `MTLIndirectCommandTypeConcurrentDispatch`, `MTLIndirectCommandTypeConcurrentDispatchThreads`.
const DISPATCH: usize = 1 << 5;
const DISPATCH_THREADS: usize = 1 << 6;

/// How an indirect command buffer is to be.
#[derive(Clone)]
pub struct IndirectDescriptor {
    kinds: Property<usize>,
    inherit_pipeline: Property<bool>,
    inherit_buffers: Property<bool>,
    buffers: Property<usize>,
    threadgroups: Property<usize>,
}

elinvar_objc::object!(IndirectDescriptor, c"MTLIndirectCommandBufferDescriptor");

impl Default for IndirectDescriptor {
    fn default() -> Self {
        Self {
            kinds: Property::default(),
            inherit_pipeline: Property::default(),
            inherit_buffers: Property::new(true),
            buffers: Property::default(),
            threadgroups: Property::new(PLACES),
        }
    }
}

/// One command.
#[derive(Clone, Default)]
struct Command {
    bindings: Bindings,
    work: Option<(Grid, Size)>,
    /// Whether it has a barrier before it.
    barrier: bool,
}

/// Kind of the record of a command that the host has encoded.
const BY_HOST: u32 = u32::from_be_bytes(*b"host");

/// A command as it is executed.
pub enum Encoded {
    ByHost(Dispatch),
    /// By a kernel; with its index.
    InMemory(u32, Box<CommandRecord>),
}

/// Encoded commands.
pub struct IndirectBuffer {
    device: Ref<Device>,
    descriptor: IndirectDescriptor,
    commands: Mutex<Vec<Command>>,
    /// Header and records.
    memory: Arc<dyn Memory>,
    label: Property<Option<Ref<NsString>>>,
}

elinvar_objc::object!(IndirectBuffer, c"ElinvarMTLIndirectCommandBuffer");

/// `MTLIndirectComputeCommand`: one of them, by its number.
pub struct IndirectCommand {
    of: Ref<IndirectBuffer>,
    at: usize,
}

elinvar_objc::object!(IndirectCommand, c"ElinvarMTLIndirectComputeCommand");

const CLASS: &str = "MTLIndirectComputeCommand";

impl IndirectBuffer {
    /// `newIndirectCommandBufferWithDescriptor:maxCommandCount:options:`.
    pub fn with_descriptor(
        device: &Ref<Device>,
        descriptor: Ref<IndirectDescriptor>,
        count: usize,
        _options: usize,
    ) -> Option<Ref<Self>> {
        const METHOD: &str = "newIndirectCommandBufferWithDescriptor:maxCommandCount:options:";
        let kinds = descriptor.kinds.get();
        require!(
            kinds != 0 && kinds & !(DISPATCH | DISPATCH_THREADS) == 0,
            "{METHOD} command types {kinds:#x}: only compute commands are supported"
        );
        // 16384 is the limit of the feature set tables.
        require!((1..=16384).contains(&count), "{METHOD} {count} commands: 1 to 16384 are allowed");
        let buffers = descriptor.buffers.get();
        require!(buffers <= PLACES, "{METHOD} {buffers} kernel buffers: the limit is {PLACES}");
        if device.faults.now(Site::Object).is_some() {
            return None;
        }
        let header = CommandHeader {
            capacity: count as u32,
            max_buffers: buffers as u32,
            flags: (u32::from(descriptor.inherit_buffers.get()) * CommandHeader::INHERITS_BUFFERS)
                | (u32::from(descriptor.inherit_pipeline.get()) * CommandHeader::INHERITS_PIPELINE),
            ..CommandHeader::default()
        };
        let bytes = ExecuteCommands::bytes(count as u32);
        let memory = device.cpu.allocate(bytes, elinvar_driver::Storage::Shared, Init::Zeroed).ok()?;
        // SAFETY: within the memory, which is new.
        unsafe { memory.write(0, &header.to_bytes()) }.ok()?;
        Some(Ref::new(Self {
            memory,
            device: device.clone(),
            descriptor: IndirectDescriptor::clone(&descriptor),
            commands: Mutex::new(vec![Command::default(); count]),
            label: Property::default(),
        }))
    }

    /// Number of commands.
    pub fn count(&self) -> usize {
        self.commands.lock().len()
    }

    /// The current commands of a range; empty ones do nothing. Commands between barriers are reversed, as in a concurrent
    /// pass.
    pub fn encoded(&self, range: NsRange, inherited: &Bindings) -> Vec<Encoded> {
        let commands = self.commands.lock();
        let (mut ordered, mut side_by_side) = (Vec::new(), Vec::new());
        for (index, command) in commands.iter().enumerate().skip(range.location).take(range.length) {
            let record = self.record(index);
            let by_host = record.kind == BY_HOST;
            if if by_host { command.barrier } else { record.flags & CommandRecord::BARRIER != 0 } {
                ordered.extend(side_by_side.drain(..).rev());
            }
            if !by_host {
                side_by_side.push(Encoded::InMemory(index as u32, Box::new(record)));
            } else if record != (CommandRecord { kind: BY_HOST, ..CommandRecord::empty() }) {
                fatal(format_args!(
                    "a kernel changes a part of command {index}, which the host has encoded; the stand-in supports commands that are reset before"
                ));
            } else if let Some((grid, group)) = command.work.clone() {
                let mut bindings = command.bindings.clone();
                if self.inherits_pipeline() {
                    bindings.pipeline.clone_from(&inherited.pipeline);
                }
                if self.inherits_buffers() {
                    bindings.places.clone_from(&inherited.places);
                }
                let dispatch = bindings.dispatch(&self.device, "an indirect command:", grid, group);
                side_by_side.extend(dispatch.map(Encoded::ByHost));
            }
        }
        ordered.extend(side_by_side.drain(..).rev());
        ordered
    }

    pub fn inherits_pipeline(&self) -> bool {
        self.descriptor.inherit_pipeline.get()
    }

    pub fn inherits_buffers(&self) -> bool {
        self.descriptor.inherit_buffers.get()
    }

    /// What translates records of kernels, each with the one pipeline, and with these buffers if they inherit them.
    pub fn execution(
        &self,
        pipeline: Arc<dyn elinvar_driver::Pipeline>,
        uses: Vec<Use>,
        buffers: Vec<InheritedBuffer>,
    ) -> ExecuteCommands {
        ExecuteCommands {
            commands: MemorySlice { memory: self.memory.clone(), offset: 0, len: self.memory.len() },
            capacity: self.count() as u32,
            max_buffers: self.descriptor.buffers.get() as u32,
            pipelines: Arc::new([pipeline]),
            range: CommandRange::Known(0..0),
            pipeline: None,
            buffers: self.inherits_buffers().then_some(buffers),
            uses,
            max_threadgroup_memory: self.device.cpu.caps().limits.max_threadgroup_memory,
            label: None,
        }
    }

    /// The largest index, at or above the number of commands, that a kernel has tried to encode; 0 if there was none.
    pub fn beyond(&self) -> u32 {
        let mut word = [0; 4];
        // SAFETY: within the memory; kernels that write it have ended.
        let read = unsafe { self.memory.read(16, &mut word) };
        if read.is_ok() { u32::from_ne_bytes(word) } else { 0 }
    }

    fn record(&self, index: usize) -> CommandRecord {
        let mut bytes = [0; CommandRecord::BYTES as usize];
        // SAFETY: the index is below the number of commands; kernels that write the memory have ended, or it is a race of the program.
        let _within = unsafe { self.memory.read(ExecuteCommands::offset(index as u32), &mut bytes) };
        CommandRecord::from_bytes(&bytes)
    }

    fn set_record(&self, index: usize, record: &CommandRecord) {
        // SAFETY: as in `record`.
        let _within = unsafe { self.memory.write(ExecuteCommands::offset(index as u32), &record.to_bytes()) };
    }

    /// Resets a range.
    pub fn reset(&self, range: NsRange) {
        let mut commands = self.commands.lock();
        for (index, command) in commands.iter_mut().enumerate().skip(range.location).take(range.length) {
            *command = Command::default();
            self.set_record(index, &CommandRecord::empty());
        }
    }

    /// Copies commands from another buffer.
    pub fn copy_from(&self, from: &Self, range: NsRange, at: usize) {
        let copied: Vec<(Command, CommandRecord)> = {
            let commands = from.commands.lock();
            let range = commands.iter().enumerate().skip(range.location).take(range.length);
            range.map(|(index, command)| (command.clone(), from.record(index))).collect()
        };
        for (index, (to, (command, record))) in self
            .commands
            .lock()
            .iter_mut()
            .enumerate()
            .skip(at)
            .zip(copied)
            .map(|((index, to), copied)| (index, (to, copied)))
        {
            *to = command;
            self.set_record(index, &record);
        }
    }

    fn command(this: &Ref<Self>, at: usize) -> Option<Ref<IndirectCommand>> {
        let count = this.count();
        require!(at < count, "indirectComputeCommandAtIndex: index {at} of {count}");
        Some(Ref::new(IndirectCommand { of: this.clone(), at }))
    }

    fn reset_range(this: &Ref<Self>, range: NsRange) {
        let count = this.count();
        require!(within(range, count), "resetWithRange: {range:?} is not within {count} commands");
        this.reset(range);
    }
}

impl IndirectCommand {
    fn change(&self, change: impl FnOnce(&mut Command)) {
        let mut commands = self.of.commands.lock();
        let mark = CommandRecord { kind: BY_HOST, ..CommandRecord::empty() };
        if self.of.record(self.at) != mark {
            // What a kernel has encoded is replaced.
            commands[self.at] = Command::default();
            self.of.set_record(self.at, &mark);
        }
        change(&mut commands[self.at]);
    }

    fn reset(&self) {
        self.of.reset(NsRange { location: self.at, length: 1 });
    }

    fn set_pipeline(this: &Ref<Self>, pipeline: Ref<Pipeline>) {
        const METHOD: &str = "setComputePipelineState:";
        require!(
            pipeline.indirect,
            "-[{CLASS} {METHOD}]: the pipeline does not support indirect command buffers"
        );
        let inherits = this.of.descriptor.inherit_pipeline.get();
        require!(!inherits, "-[{CLASS} {METHOD}]: the pipeline is inherited");
        this.change(|command| command.bindings.pipeline = Some(pipeline));
    }

    fn set_buffer(this: &Ref<Self>, buffer: Ref<Buffer>, offset: usize, index: usize) {
        const METHOD: &str = "setKernelBuffer:offset:atIndex:";
        let descriptor = &this.of.descriptor;
        let (inherits, count) = (descriptor.inherit_buffers.get(), descriptor.buffers.get());
        require!(!inherits, "-[{CLASS} {METHOD}]: buffers are inherited");
        require!(index < count, "-[{CLASS} {METHOD}]: index {index} of {count}");
        let length = buffer.store().length();
        require!(offset < length, "-[{CLASS} {METHOD}]: the offset {offset} is not within {length} bytes");
        // Indirect commands do not retain buffers: the program makes them resident.
        let bound = Bound::Buffer(Held::new(&buffer, false), offset, length);
        this.change(|command| command.bindings.places[index] = Some(bound));
    }

    fn set_threadgroup(this: &Ref<Self>, length: usize, index: usize) {
        const METHOD: &str = "setThreadgroupMemoryLength:atIndex:";
        require!(index < PLACES, "-[{CLASS} {METHOD}]: the index {index} is over 30");
        require!(length.is_multiple_of(16), "-[{CLASS} {METHOD}]: {length} is not a multiple of 16");
        this.change(|command| command.bindings.threadgroup[index] = length);
    }

    fn dispatch(this: &Ref<Self>, kind: usize, grid: Grid, group: Size) {
        let kinds = this.of.descriptor.kinds.get();
        require!(kinds & kind != 0, "-[{CLASS}]: the buffer's command types {kinds:#x} have no {kind:#x}");
        this.change(|command| command.work = Some((grid, group)));
    }
}

pub fn register() {
    Declaration::<IndirectDescriptor>::new()
        .makes_default()
        .copies()
        .property("commandTypes", |d: &IndirectDescriptor| &d.kinds)
        .property("inheritPipelineState", |d: &IndirectDescriptor| &d.inherit_pipeline)
        .property("inheritBuffers", |d: &IndirectDescriptor| &d.inherit_buffers)
        .property("maxKernelBufferBindCount", |d: &IndirectDescriptor| &d.buffers)
        .property("maxKernelThreadgroupMemoryBindCount", |d: &IndirectDescriptor| &d.threadgroups)
        .register();
    Declaration::<IndirectBuffer>::new()
        .follows(c"MTLIndirectCommandBuffer")
        .follows(c"MTLResource")
        .follows(c"MTLAllocation")
        .property("label", |buffer: &IndirectBuffer| &buffer.label)
        .method("device", |this: &Ref<IndirectBuffer>| this.device.clone())
        .method("size", |this: &Ref<IndirectBuffer>| this.count())
        .method("allocatedSize", |this: &Ref<IndirectBuffer>| this.count() * 256)
        .method("gpuResourceID", |this: &Ref<IndirectBuffer>| {
            ResourceId(this.memory.gpu_address().unwrap_or(0))
        })
        .method("resetWithRange:", IndirectBuffer::reset_range)
        .method("indirectComputeCommandAtIndex:", IndirectBuffer::command)
        .register();
    Declaration::<IndirectCommand>::new()
        .follows(c"MTLIndirectComputeCommand")
        .method("setComputePipelineState:", IndirectCommand::set_pipeline)
        .method("setKernelBuffer:offset:atIndex:", IndirectCommand::set_buffer)
        .method("setThreadgroupMemoryLength:atIndex:", IndirectCommand::set_threadgroup)
        .method(
            "concurrentDispatchThreadgroups:threadsPerThreadgroup:",
            |this: &Ref<IndirectCommand>, groups: Size, group: Size| {
                IndirectCommand::dispatch(this, DISPATCH, Grid::Groups(groups), group);
            },
        )
        .method(
            "concurrentDispatchThreads:threadsPerThreadgroup:",
            |this: &Ref<IndirectCommand>, threads: Size, group: Size| {
                IndirectCommand::dispatch(this, DISPATCH_THREADS, Grid::Threads(threads), group);
            },
        )
        .method("setBarrier", |this: &Ref<IndirectCommand>| this.change(|command| command.barrier = true))
        .method("clearBarrier", |this: &Ref<IndirectCommand>| this.change(|command| command.barrier = false))
        .method("reset", |this: &Ref<IndirectCommand>| this.reset())
        .register();
}
