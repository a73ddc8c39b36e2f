//! Execution of command buffers: converts their operations to commands of the CPU driver, and reports results.
//!
//! The commands of a pass up to the next host operation are one submission, which is waited for. When a pass fails, later passes are not
//! executed and their events are not signaled, as in Metal.

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{
    Access, Binding, Command, CommandRecord, Dim3, Dispatch as CpuDispatch, Error, InheritedBuffer, Use,
};
use elinvar_objc::foundation::{NsArray, NsError, NsString};
use elinvar_objc::watch::fatal;
use elinvar_objc::{Declaration, NsRange, Ref};

use crate::commands::command_buffer::CommandBuffer;
use crate::commands::pass::{Argument, Dispatch, ExecuteRange, Failure, Grid, Op, Pass, Step};
use crate::device::Device;
use crate::encoders::bindings::{Bindings, Bound};
use crate::encoders::indirect::{Encoded, IndirectBuffer};
use crate::library::pipeline;
use crate::memory::buffer::Held;
use crate::memory::store::{Store, all, all_large};
use crate::validation::fault_injection::{Fault, Site};
use crate::validation::shader_validation::Log;
use crate::values::{Size, execution_error, within};

/// `MTLCommandBufferErrorOptionEncoderExecutionStatus`.
const ENCODER_STATUS: usize = 1;

elinvar_objc::string_constants! {
    MTLCommandBufferErrorDomain = "MTLCommandBufferErrorDomain",
    MTLCommandBufferEncoderInfoErrorKey = "MTLCommandBufferEncoderInfoErrorKey",
    MTLLibraryErrorDomain = "MTLLibraryErrorDomain",
    MTLBinaryArchiveDomain = "MTLBinaryArchiveDomain",
}

/// `MTLCommandEncoderErrorState`.
mod state {
    pub const COMPLETED: isize = 1;
    pub const PENDING: isize = 3;
    pub const FAULTED: isize = 4;
}

/// `MTLCommandBufferEncoderInfo`.
struct EncoderInfo {
    label: String,
    signposts: Vec<String>,
    state: isize,
}

elinvar_objc::object!(EncoderInfo, c"ElinvarMTLCommandBufferEncoderInfo");

/// Execution in progress.
struct Run<'a> {
    device: &'a Ref<Device>,
    queue: Arc<dyn elinvar_driver::Queue>,
    commands: Vec<Command>,
    /// Buffers kept until the commands have completed.
    stores: Vec<Arc<Store>>,
    /// Label of the pass's encoder.
    encoder: String,
    /// Faults found by shader validation.
    logs: Vec<Ref<Log>>,
}

/// Additional results of an execution.
#[derive(Default)]
struct Told {
    infos: Vec<EncoderInfo>,
    logs: Vec<Ref<Log>>,
}

/// Executes a command buffer, and calls its handlers.
pub fn run(buffer: &Ref<CommandBuffer>) {
    let device = &buffer.queue.device;
    let (steps, scheduled) = buffer.schedule();
    scheduled.iter().for_each(|block| block.call(buffer.id()));
    drop(scheduled);
    let fault = device.faults.now(Site::Execution);
    let start = device.now_ns();
    let mut told = Told::default();
    if let Some(log) = &buffer.log {
        device.log.run(log, true);
    }
    let result = steps_of(device, steps, fault, &mut told);
    if let Some(log) = &buffer.log {
        device.log.run(log, false);
    }
    let end = device.now_ns();
    if result.as_ref().is_err_and(|failure| failure.code == execution_error::DEVICE_REMOVED) {
        Device::lose(device);
    }
    let with_infos = buffer.error_options & ENCODER_STATUS != 0;
    let Told { infos, logs } = told;
    let error = result.err().map(|failure| error_of(failure, if with_infos { infos } else { Vec::new() }));
    for block in buffer.complete(start, end, error, logs) {
        block.call(buffer.id());
    }
}

fn error_of(failure: Failure, infos: Vec<EncoderInfo>) -> Ref<NsError> {
    let infos = (!infos.is_empty()).then(|| {
        let infos = NsArray::new(infos.into_iter().map(|info| Ref::new(info).into_object()));
        ("MTLCommandBufferEncoderInfoErrorKey", infos.into_object())
    });
    NsError::with_info("MTLCommandBufferErrorDomain", failure.code, &failure.message, infos)
}

fn steps_of(
    device: &Ref<Device>,
    steps: Vec<Step>,
    fault: Option<Fault>,
    told: &mut Told,
) -> Result<(), Failure> {
    let queue = device.cpu.queue().map_err(failure_of)?;
    let (encoder, logs) = (String::new(), Vec::new());
    let mut run = Run { device, queue, commands: Vec::new(), stores: Vec::new(), encoder, logs };
    let mut result = if device.is_lost() { Err(lost()) } else { Ok(()) };
    if let Some(fault) = fault.filter(|fault| fault.encoder < 0) {
        result = Err(asked_for(fault));
    }
    let mut number = 0;
    for step in steps {
        match step {
            Step::Pass(pass) => {
                let mut info = EncoderInfo {
                    label: pass.label.clone(),
                    signposts: pass.signposts.clone(),
                    state: state::PENDING,
                };
                if result.is_ok() {
                    device.hold.pass(number);
                    result = match fault.filter(|fault| fault.encoder == number) {
                        Some(fault) => Err(asked_for(fault)),
                        None => run.pass(pass),
                    };
                    info.state = if result.is_ok() { state::COMPLETED } else { state::FAULTED };
                }
                told.infos.push(info);
                number += 1;
            }
            Step::Wait(counter, value) if result.is_ok() => {
                counter.wait(value, None);
            }
            Step::Signal(counter, value) if result.is_ok() => counter.raise(value),
            Step::Wait(..) | Step::Signal(..) => {}
        }
    }
    // A fault for an encoder that does not exist takes effect at the end.
    if let Some(fault) = fault.filter(|fault| fault.encoder >= number && result.is_ok()) {
        result = Err(asked_for(fault));
    }
    told.logs = run.logs;
    result
}

fn asked_for(fault: Fault) -> Failure {
    Failure {
        code: fault.code,
        message: format!("execution failed with error {} (injected by a test)", fault.code),
    }
}

fn lost() -> Failure {
    Failure { code: execution_error::DEVICE_REMOVED, message: "the device has been removed".into() }
}

fn failure_of(error: Error) -> Failure {
    let code = match &error {
        Error::Fault(_) => execution_error::PAGE_FAULT,
        Error::OutOfMemory { .. } => execution_error::OUT_OF_MEMORY,
        Error::Timeout(_) => execution_error::TIMEOUT,
        Error::DeviceLost(_) => execution_error::DEVICE_REMOVED,
        _ => execution_error::INTERNAL,
    };
    Failure { code, message: error.to_string() }
}

fn dim3(size: Size) -> Result<Dim3, Failure> {
    let number = |number: usize| u32::try_from(number).ok();
    let dim = (|| Some(Dim3::new(number(size.width)?, number(size.height)?, number(size.depth)?)))();
    dim.ok_or_else(|| Failure {
        code: execution_error::INTERNAL,
        message: format!("a grid of {size} is too large"),
    })
}

fn times(groups: Size, group: Size) -> Size {
    Size {
        width: groups.width.saturating_mul(group.width),
        height: groups.height.saturating_mul(group.height),
        depth: groups.depth.saturating_mul(group.depth),
    }
}

impl Run<'_> {
    fn pass(&mut self, pass: Pass) -> Result<(), Failure> {
        self.encoder.clone_from(&pass.label);
        for op in pass.into_ordered() {
            self.op(op)?;
        }
        self.flush()
    }

    fn op(&mut self, op: Op) -> Result<(), Failure> {
        match op {
            Op::Dispatch(dispatch) => self.dispatch(&dispatch)?,
            Op::Copy { from: (from, from_at), to: (to, to_at), length } => {
                let (source, target) = (self.store(&from), self.store(&to));
                let (source, target) = (source.range(from_at, length), target.range(to_at, length));
                self.commands.push(Command::Copy { source, target });
            }
            Op::Fill { to, range, value } => {
                let target = self.store(&to).range(range.location, range.length);
                self.commands.push(Command::Fill { target, pattern: vec![value] });
            }
            // The CPU driver executes commands in order.
            Op::Barrier => {}
            other => {
                self.flush()?;
                self.on_host(other)?;
            }
        }
        Ok(())
    }

    /// Executes a host operation after all earlier operations.
    fn on_host(&mut self, op: Op) -> Result<(), Failure> {
        match op {
            Op::Synchronize(held) => self.store(&held).pull(),
            Op::Resolve { samples, range, to, offset } => {
                let (bytes, to) = (samples.bytes(range), self.store(&to));
                // SAFETY: the range was checked when it was encoded.
                unsafe {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.device_bytes().add(offset), bytes.len())
                };
            }
            Op::Sample(samples, index) => samples.take(index),
            Op::Update(fence) => fence.update(),
            Op::Await(fence) if !fence.is_updated() => {
                fatal(format_args!("a pass waits for a fence that no pass before it updates"));
            }
            Op::Execute { commands, range, inherited } => {
                let range = self.range(range, commands.count())?;
                for command in commands.encoded(range, &inherited) {
                    match command {
                        Encoded::ByHost(dispatch) => self.dispatch(&dispatch)?,
                        Encoded::InMemory(index, record) => {
                            self.record(&commands, index, *record, &inherited)?
                        }
                    }
                }
            }
            Op::ResetIndirect(commands, range) => commands.reset(range),
            Op::CopyIndirect { from, range, to, at } => to.copy_from(&from, range, at),
            Op::Host(work) => work()?,
            _ => {}
        }
        Ok(())
    }

    /// The bytes of a buffer, kept until the commands have completed.
    fn store(&mut self, held: &Held) -> Arc<Store> {
        let Some(store) = held.store() else {
            fatal(format_args!("a buffer was freed before the command buffer that uses it had run"));
        };
        self.stores.push(store.clone());
        store
    }

    /// 32-bit numbers in a buffer.
    fn numbers<const N: usize>(&mut self, held: &Held, offset: usize) -> Result<[usize; N], Failure> {
        self.flush()?;
        let store = self.store(held);
        let mut numbers = [0; N];
        for (at, number) in numbers.iter_mut().enumerate() {
            // SAFETY: the range was checked when it was encoded.
            *number =
                unsafe { store.device_bytes().add(offset + at * 4).cast::<u32>().read_unaligned() } as usize;
        }
        Ok(numbers)
    }

    fn range(&mut self, range: ExecuteRange, count: usize) -> Result<NsRange, Failure> {
        let range = match range {
            ExecuteRange::Given(range) => range,
            ExecuteRange::InBuffer(held, offset) => {
                let [location, length] = self.numbers(&held, offset)?;
                NsRange { location, length }
            }
        };
        let message = format!("{range:?} is not within {count} indirect commands");
        if within(range, count) {
            Ok(range)
        } else {
            Err(Failure { code: execution_error::PAGE_FAULT, message })
        }
    }

    /// Executes a command that a kernel has encoded. It may have any buffer of the process.
    fn record(
        &mut self,
        commands: &IndirectBuffer,
        index: u32,
        record: CommandRecord,
        inherited: &Bindings,
    ) -> Result<(), Failure> {
        let fault = |message| Failure { code: execution_error::PAGE_FAULT, message };
        if commands.beyond() != 0 {
            let (index, count) = (commands.beyond(), commands.count());
            return Err(fault(format!("a kernel has encoded indirect command {index} of {count}")));
        }
        if record.kind == CommandRecord::EMPTY {
            return Ok(());
        }
        let own = pipeline::by_number(record.pipeline);
        let pipeline = match (&inherited.pipeline, commands.inherits_pipeline()) {
            (Some(pipeline), true) => pipeline.indirect.then(|| pipeline.compiled.clone()),
            (None, true) => None,
            (_, false) => own,
        };
        let Some(pipeline) = pipeline else {
            let number = record.pipeline;
            return Err(fault(format!(
                "indirect command {index}: no pipeline that supports indirect command buffers has resource ID {number}"
            )));
        };
        let uses = all().into_iter().map(|slice| Use { slice, access: Access::ReadWrite }).collect();
        let places = inherited.places.iter().zip(0..).filter_map(|(bound, index)| {
            let binding = match bound.as_ref()? {
                Bound::Buffer(held, offset, _) => Binding::Memory(self.store(held).from(*offset)),
                Bound::Bytes(bytes) => Binding::bytes(bytes),
            };
            Some(InheritedBuffer { index, binding, access: Access::ReadWrite })
        });
        let places = if commands.inherits_buffers() { places.collect() } else { Vec::new() };
        let execution = commands.execution(pipeline, uses, places);
        let Some(mut dispatch) = execution.dispatch() else { return Ok(()) };
        let used = execution.used_ranges().map_err(failure_of)?;
        let record = CommandRecord { pipeline: 1, ..record };
        if execution.decode(index, &record, &used, &mut dispatch).map_err(failure_of)? {
            dispatch.prepare().map_err(failure_of)?;
            self.commands.push(Command::Dispatch(dispatch));
        }
        Ok(())
    }

    fn dispatch(&mut self, dispatch: &Dispatch) -> Result<(), Failure> {
        let threads = match &dispatch.grid {
            Grid::Threads(threads) => *threads,
            Grid::Groups(groups) => times(*groups, dispatch.group),
            Grid::Indirect(held, offset) => {
                let [width, height, depth] = self.numbers(held, *offset)?;
                times(Size { width, height, depth }, dispatch.group)
            }
        };
        let (threads, group) = (dim3(threads)?, dim3(dispatch.group)?);
        // Not every kernel can be compiled with bounds checks.
        let validated = dispatch.pipeline.validated.clone().filter(|checked| checked.prepare(group).is_ok());
        let is_validated = validated.is_some();
        let pipeline = validated.unwrap_or_else(|| dispatch.pipeline.compiled.clone());
        if is_validated {
            self.flush()?;
        }
        let bindings =
            dispatch.arguments.iter().map(|argument| self.binding(argument, is_validated)).collect();
        let any = |slice| Use { slice, access: Access::ReadWrite };
        let uses = all_large().into_iter().map(any).collect();
        let grid = elinvar_driver::Grid::Threads(threads);
        let dispatch = CpuDispatch { pipeline, bindings, uses, grid, group, label: None };
        dispatch.prepare().map_err(failure_of)?;
        self.commands.push(Command::Dispatch(dispatch));
        if !is_validated {
            return Ok(());
        }
        match self.submit() {
            Err(Error::Fault(fault)) => {
                self.logs.push(Log::of(&fault, &self.encoder));
                Ok(())
            }
            other => self.ended(other),
        }
    }

    /// An argument's value. With shader validation, a buffer's bounds are its length, not whole pages.
    fn binding(&mut self, argument: &Argument, is_validated: bool) -> Binding {
        match argument {
            Argument::Buffer(held, offset) if is_validated => Binding::Memory(self.store(held).rest(*offset)),
            Argument::Buffer(held, offset) => Binding::Memory(self.store(held).from(*offset)),
            Argument::Bytes(bytes) => Binding::bytes(bytes),
            Argument::Threadgroup(bytes) => Binding::Threadgroup(*bytes as u64),
        }
    }

    /// Submits the collected commands, and waits for them.
    fn flush(&mut self) -> Result<(), Failure> {
        if self.commands.is_empty() {
            return Ok(());
        }
        let result = self.submit();
        self.ended(result)
    }

    fn submit(&mut self) -> Result<(), Error> {
        let commands: Arc<[Command]> = std::mem::take(&mut self.commands).into();
        let (done, ended) = channel();
        let tell = elinvar_driver::Done::new(move |result| {
            let _told = done.send(result);
        });
        self.queue.submit(commands, tell)?;
        let result =
            ended.recv().unwrap_or_else(|_| Err(Error::DeviceLost("the driver dropped the work".into())));
        self.stores.clear();
        let _acknowledged = self.queue.acknowledge();
        result.map(|_| ())
    }

    fn ended(&self, result: Result<(), Error>) -> Result<(), Failure> {
        if self.device.is_lost() {
            return Err(lost());
        }
        result.map_err(failure_of)
    }
}

pub fn register() {
    register_constants();
    Declaration::<EncoderInfo>::new()
        .follows(c"MTLCommandBufferEncoderInfo")
        .method("label", |this: &Ref<EncoderInfo>| NsString::new(&this.label))
        .method("debugSignposts", |this: &Ref<EncoderInfo>| {
            NsArray::new(this.signposts.iter().map(|text| NsString::new(text).into_object()))
        })
        .method("errorState", |this: &Ref<EncoderInfo>| this.state)
        .register();
}
