//! Indirect command buffers and nested launches: executed on the device by a kernel, the executor (`executor.c`), which launches the commands' kernels with
//! CUDA dynamic parallelism. The host links it with the kernels ([`program`]), passes it tables ([`layout`]), and reads its report.
//!
//! Linking needs CUDA's device runtime, `libcudadevrt.a`, which is part of CUDA's toolkit and of the Python package
//! `nvidia-cuda-runtime`. Graphs are not used: a CUDA graph does not wait for kernels that a kernel launches behind itself.

mod indirect;
mod layout;
mod link;
mod program;

use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::CUfunction;
use elinvar_driver::{
    Access, Binding, CommandHeader, CommandRange, CommandRecord, Error, ExecuteCommands, Fault, NestedLaunch,
    QueueHeader, Result,
};
use elinvar_ptx::FaultRecord;

pub(crate) use self::indirect::CountsCheck;
use self::layout::{Bytes, INHERITED, STATUS_BYTES, code};
pub(crate) use self::link::Linker;
pub(crate) use self::program::{Program, Programs};
use crate::encode::{Encoder, Step};
use crate::function::{address, memory};
use crate::shared::Shared;

/// Threads of the executor's block, as in `executor.c`.
const THREADS: u32 = 128;
/// Size of a used range in bytes.
const USED_BYTES: usize = 24;

/// The linker, which needs CUDA's device runtime.
///
/// # Errors
/// `Unsupported` if it was not found.
pub(crate) fn expect_linker<'s>(shared: &'s Shared, what: &str) -> Result<&'s Linker> {
    shared.linker.as_ref().map_err(|why| Error::unsupported(format!("{what}: {why}")))
}

/// The program of an execution. The context must be current.
///
/// # Errors
/// `Unsupported` without CUDA's device runtime.
pub(crate) fn program(shared: &Shared, execution: &ExecuteCommands) -> Result<Arc<Program>> {
    let linker = expect_linker(shared, "kernels that a GPU launches")?;
    shared.programs.of(&shared.context, linker, execution)
}

/// What differs between an indirect command buffer and a launch queue, for the executor.
struct Work {
    /// Addresses of the header, the queue and the first record; one of the first two is null.
    commands: [u64; 3],
    /// Address of a range in memory, or null.
    range: u64,
    /// Address of the first launch's fault record, or null.
    root: u64,
    /// First command and number of commands.
    first: [u32; 2],
    depth: u32,
    /// Number of fault records, if any kernel checks bounds.
    most: u32,
}

impl Encoder<'_> {
    /// Appends the execution of commands to the stream. The context must be current.
    pub(crate) fn execute(&mut self, execution: &ExecuteCommands) -> Result<()> {
        let program = program(self.shared, execution)?;
        let commands = address(&execution.commands)?;
        let (range, first) = match &execution.range {
            CommandRange::Known(range) => (0, [range.start, range.end.saturating_sub(range.start)]),
            CommandRange::Indirect(words) => {
                (memory(words)?.at(words.offset, CommandRange::BYTES)?, [0, execution.capacity])
            }
        };
        let commands = [commands, 0, commands + CommandHeader::BYTES];
        let work = Work { commands, range, root: 0, first, depth: 0, most: first[1] };
        let function = program.commands.0;
        self.start(&program, function, execution, &work, Executed::Commands(Arc::new(execution.clone())))
    }

    /// Appends a launch and those that its kernels enqueue. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn launch_nested(&mut self, nested: &NestedLaunch) -> Result<Step> {
        let children = &nested.children;
        let program = program(self.shared, children)?;
        let (queue, context) = (address(&children.commands)?, &self.shared.context);
        let words = (QueueHeader::STATE.end - QueueHeader::STATE.start) / 4;
        // SAFETY: the state is in the queue's memory, which the submission keeps alive.
        let cleared =
            unsafe { context.api.set_u32(queue + QueueHeader::STATE.start, 0, words as usize, self.stream) };
        cleared.map_err(|failure| context.error(failure, "clearing a launch queue"))?;
        let checks = self.staging.checks();
        match self.dispatch(&nested.root)? {
            Step::Work => {}
            step @ Step::Counts => return Ok(step),
        }
        let root = self.staging.check_behind(checks)?.unwrap_or(0);
        let records = queue + QueueHeader::record(children.pipelines.len() as u32, 0);
        let (depth, most) = (nested.depth, children.capacity);
        let work = Work { commands: [0, queue, records], range: 0, root, first: [0, 0], depth, most };
        let function = program.nested.0;
        self.start(&program, function, children, &work, Executed::Nested(Arc::new(nested.clone())))?;
        Ok(Step::Work)
    }

    /// Launches the executor.
    fn start(
        &mut self,
        program: &Arc<Program>,
        function: CUfunction,
        execution: &ExecuteCommands,
        work: &Work,
        executed: Executed,
    ) -> Result<()> {
        let used = self.used(execution)?;
        let inherited = self.inherited(execution)?;
        let faults = if program.is_checked() { work.most as usize } else { 0 };
        let check = CommandsCheck { executed, program: program.clone(), faults };
        let Shared { chunks, context, .. } = self.shared;
        let (staging, stream) = (&mut *self.staging, self.stream);
        let status = staging.report(chunks, context, stream, check)?;
        let [kernels, parameters, arguments, zeros] = program.addresses()?;
        let fault_records = if faults == 0 { 0 } else { status + STATUS_BYTES as u64 };
        let used_count = u32::try_from(used.0.len() / USED_BYTES).unwrap_or(u32::MAX);
        let used = staging.copy(chunks, context, stream, &used.0)?;
        let mut bytes = Bytes::default();
        bytes.u64s(&work.commands);
        bytes.u64s(&[kernels, parameters, arguments, used, work.range, status, fault_records, zeros]);
        bytes.u64s(&[work.root]);
        let inherited_kernel = execution.pipeline.as_ref().map_or(0, |_| program.kernel_count);
        let most = u32::try_from(execution.max_threadgroup_memory).unwrap_or(u32::MAX);
        bytes.u32s(&[used_count, program.kernel_count, execution.capacity, most]);
        bytes.u32s(&[inherited_kernel, execution.buffers.is_some().into()]);
        bytes.u32s(&work.first);
        bytes.u32s(&[0, work.depth]);
        bytes.0.extend(inherited.0);
        let all = staging.copy(chunks, context, stream, &bytes.0)?;
        let mut params = Bytes::default();
        params.u64s(&[all]);
        params.u32s(&[0, 0]);
        self.launch_executor(function, THREADS, params)
    }

    /// The ranges that commands may name, those with the largest first address last.
    fn used(&self, execution: &ExecuteCommands) -> Result<Bytes> {
        let mut ranges = Vec::with_capacity(execution.uses.len());
        for used in &execution.uses {
            ranges.push((address(&used.slice)?, used.access == Access::ReadWrite, used.slice.len));
        }
        ranges.sort_unstable();
        let mut bytes = Bytes::default();
        for (first, writes, len) in ranges {
            bytes.u64s(&[first, first.saturating_add(len), writes.into()]);
        }
        Ok(bytes)
    }

    fn inherited(&mut self, execution: &ExecuteCommands) -> Result<Bytes> {
        let mut all = [(0_u64, 0_u64, [0_u32; 2]); INHERITED];
        for buffer in execution.buffers.iter().flatten() {
            let Some(to) = all.get_mut(buffer.index as usize) else { continue };
            let (at, len) = match &buffer.binding {
                Binding::Memory(slice) => (address(slice)?, slice.len),
                Binding::Bytes(bytes) => {
                    let Shared { chunks, context, .. } = self.shared;
                    (self.staging.copy(chunks, context, self.stream, bytes)?, bytes.len() as u64)
                }
                Binding::Threadgroup(_) | Binding::Unbound => continue,
            };
            *to = (at, len, [1, (buffer.access == Access::ReadWrite).into()]);
        }
        let mut bytes = Bytes::default();
        for (at, len, flags) in all {
            bytes.u64s(&[at, len]);
            bytes.u32s(&flags);
        }
        Ok(bytes)
    }

    #[allow(unsafe_code)] // a C function
    fn launch_executor(&mut self, function: CUfunction, threads: u32, mut params: Bytes) -> Result<()> {
        let context = &self.shared.context;
        let mut bytes = params.0.len();
        // SAFETY: CUDA's markers for a buffer with all parameters and its size; both stay valid until the call returns, which copies them.
        let mut extra = [
            std::ptr::without_provenance_mut(1),
            params.0.as_mut_ptr().cast(),
            std::ptr::without_provenance_mut(2),
            (&raw mut bytes).cast(),
            null_mut(),
        ];
        // SAFETY: the executor takes these parameters and checks the commands; the submission keeps the memory that they may name.
        let launched = unsafe {
            let stream = self.stream;
            context.api.launch(function, 1, 1, 1, threads, 1, 1, 0, stream, null_mut(), extra.as_mut_ptr())
        };
        launched.map_err(|failure| context.error(failure, "executing commands"))
    }
}

/// What was executed.
enum Executed {
    Commands(Arc<ExecuteCommands>),
    Nested(Arc<NestedLaunch>),
}

/// What the report of an execution means.
pub(crate) struct CommandsCheck {
    executed: Executed,
    program: Arc<Program>,
    /// Number of fault records behind the report.
    faults: usize,
}

/// The report of an execution that has ended early.
struct Report<'r> {
    code: u32,
    index: u32,
    error: u32,
    /// The first command of the range, or the level.
    first: u32,
    record: CommandRecord,
    faults: &'r [u8],
}

impl CommandsCheck {
    /// Size of the report in bytes.
    pub(crate) fn bytes(&self) -> usize {
        STATUS_BYTES + self.faults * size_of::<FaultRecord>()
    }

    fn execution(&self) -> &ExecuteCommands {
        match &self.executed {
            Executed::Commands(execution) => execution,
            Executed::Nested(nested) => &nested.children,
        }
    }

    /// The fault that a report tells of.
    pub(crate) fn fault(&self, report: &[u8]) -> Option<Error> {
        let word = |at: usize| {
            let bytes = report.get(at..).and_then(|rest| rest.first_chunk()).copied();
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let report = Report {
            code: word(0),
            index: word(4),
            error: word(8),
            first: word(12),
            record: CommandRecord::from_bytes(report.get(16..STATUS_BYTES).unwrap_or_default()),
            faults: report.get(STATUS_BYTES..).unwrap_or_default(),
        };
        (report.code != code::DONE).then(|| self.meaning(&report))
    }

    fn meaning(&self, report: &Report<'_>) -> Error {
        let (execution, place) = (self.execution(), self.place(report));
        let changed =
            |what: &str| execution.fault(format!("{place}: {what} was changed while it was executed"));
        let in_place = |why: String| execution.fault(format!("{place}: {why}"));
        match (report.code, &self.executed) {
            (code::RANGE, _) => {
                let range = execution.range_of([report.index, report.error]);
                range.err().unwrap_or_else(|| changed("the range"))
            }
            (code::BEYOND, _) => {
                let header = CommandHeader { beyond: report.index, ..CommandHeader::default() };
                execution.expect_encoded(&header).err().unwrap_or_else(|| changed("the header"))
            }
            (code::OVERFLOW, Executed::Nested(nested)) => {
                let header = QueueHeader {
                    overflowing: report.error,
                    tickets: [report.index; 2],
                    ..Default::default()
                };
                nested.expect_room(&header, 0).err().unwrap_or_else(|| changed("the header"))
            }
            (code::TOO_DEEP, Executed::Nested(nested)) => nested.too_deep(&report.record),
            (code::REJECTED, _) => self.decode(report).err().unwrap_or_else(|| changed("the record")),
            (code::LAUNCH_FAILED, _) => {
                in_place(format!("CUDA's device runtime cannot launch it (error {})", report.error))
            }
            (code::SHARED_MEMORY, _) => in_place(self.too_much_memory(report)),
            (code::GRID, _) => in_place(format!("more than {} threadgroups", i32::MAX)),
            (code::FAULT, _) => self.kernel_fault(report),
            (other, _) => in_place(format!("the report was overwritten: code {other}")),
        }
    }

    /// Where the command is in messages.
    fn place(&self, report: &Report<'_>) -> String {
        match &self.executed {
            Executed::Commands(_) => format!("command {}", report.index),
            Executed::Nested(nested) => nested.place(report.first, report.index, report.record.parent),
        }
    }

    fn decode(&self, report: &Report<'_>) -> Result<()> {
        let (execution, record) = (self.execution(), &report.record);
        let Some(mut dispatch) = execution.dispatch() else { return Ok(()) };
        let used = execution.used_ranges()?;
        match &self.executed {
            Executed::Commands(_) => execution.decode(report.index, record, &used, &mut dispatch),
            Executed::Nested(nested) => {
                nested.decode((report.first, report.index), record, &used, &mut dispatch)
            }
        }?;
        dispatch.prepare().map_err(|error| execution.fault(format!("{}: {error}", self.place(report))))
    }

    /// Number of the report's kernel, from 0.
    fn kernel(&self, report: &Report<'_>) -> Option<usize> {
        let is_inherited = self.execution().pipeline.is_some();
        let number = if is_inherited { self.program.kernel_count } else { report.record.pipeline };
        (number as usize).checked_sub(1)
    }

    fn too_much_memory(&self, report: &Report<'_>) -> String {
        let number = self.kernel(report);
        let kernel = number.and_then(|number| self.execution().kernels().nth(number));
        let name = kernel.map_or("?", |kernel| &kernel.signature().name);
        let most = number.and_then(|number| self.program.most_dynamic.get(number)).copied().unwrap_or(0);
        let bytes = report.error;
        format!(
            "kernel `{name}`: {bytes} bytes of dynamic threadgroup memory: at most {most} if the device launches it"
        )
    }

    /// The fault of a kernel that checks bounds.
    fn kernel_fault(&self, report: &Report<'_>) -> Error {
        let execution = self.execution();
        let offset = match &self.executed {
            Executed::Commands(_) => report.index.saturating_sub(report.first),
            Executed::Nested(_) => report.index,
        };
        let bounds = self.kernel(report).and_then(|number| self.program.bounds.get(number)?.clone());
        let taken = report.faults.get(offset as usize * size_of::<FaultRecord>()..).and_then(read_fault);
        let place = self.place(report);
        match (bounds, taken) {
            (Some(bounds), Some(taken)) => {
                let fault = bounds.fault(&taken);
                let message = format!("{place}: {}", fault.message);
                Error::Fault(Fault { message, launch: execution.label.clone(), ..fault })
            }
            _ => execution.fault(format!("{place}: an access is out of bounds")),
        }
    }
}

/// Reads a fault record.
fn read_fault(bytes: &[u8]) -> Option<FaultRecord> {
    let word = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
    let long = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u64::from_ne_bytes);
    Some(FaultRecord {
        taken: word(0)?,
        site: word(4)?,
        root: word(8)?,
        thread: [word(12)?, word(16)?, word(20)?],
        offset: long(24)?.cast_signed(),
        size: long(32)?,
    })
}
