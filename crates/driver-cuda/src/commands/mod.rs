//! Indirect command buffers: executed on the device by a kernel, the executor (`executor.c`), which launches the commands' kernels with
//! CUDA dynamic parallelism. The host links it with the kernels ([`program`]), passes it tables ([`layout`]), and reads its report.
//!
//! Linking needs CUDA's device runtime, `libcudadevrt.a`, which is part of CUDA's toolkit and of the Python package
//! `nvidia-cuda-runtime`. Graphs are not used: a CUDA graph does not wait for kernels that a kernel launches behind itself.

mod layout;
mod program;

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;

use cudarc::driver::sys::CUdeviceptr;
use elinvar_driver::{
    Access, Binding, CommandHeader, CommandRange, CommandRecord, Error, ExecuteCommands, Fault, Result,
};
use elinvar_ptx::FaultRecord;

use self::layout::{Bytes, INHERITED, STATUS_BYTES, code};
pub(crate) use self::program::{Program, Programs};
use crate::encode::Encoder;
use crate::function::{address, memory};
use crate::libraries::find_file;
use crate::shared::Shared;

/// Threads of the executor's block, as in `executor.c`.
const THREADS: u32 = 128;

/// Searches for CUDA's device runtime.
pub(crate) fn device_runtime() -> Result<PathBuf, String> {
    find_file(&["libcudadevrt.a".into()])
}

/// The program of an execution. The context must be current.
///
/// # Errors
/// `Unsupported` without CUDA's device runtime.
pub(crate) fn program(shared: &Shared, execution: &ExecuteCommands) -> Result<Arc<Program>> {
    let runtime = shared.device_runtime.as_ref();
    let runtime = runtime.map_err(|why| Error::unsupported(format!("indirect command buffers: {why}")))?;
    shared.programs.of(&shared.context, runtime, execution)
}

impl Encoder<'_> {
    /// Appends the execution of commands to the stream. The context must be current.
    pub(crate) fn execute(&mut self, execution: &ExecuteCommands) -> Result<()> {
        let program = program(self.shared, execution)?;
        let commands = address(&execution.commands)?;
        let (range, [first, count]) = match &execution.range {
            CommandRange::Known(range) => (0, [range.start, range.end.saturating_sub(range.start)]),
            CommandRange::Indirect(words) => {
                (memory(words)?.at(words.offset, CommandRange::BYTES)?, [0, execution.capacity])
            }
        };
        let used = self.used(execution)?;
        let inherited = self.inherited(execution)?;
        let faults = if program.is_checked() { count as usize } else { 0 };
        let check =
            CommandsCheck { execution: Arc::new(execution.clone()), program: program.clone(), faults };
        let Shared { chunks, context, .. } = self.shared;
        let (staging, stream) = (&mut *self.staging, self.stream);
        let status = staging.report(chunks, context, stream, check)?;
        let [kernels, parameters, arguments, zeros] = program.addresses()?;
        let fault_records = if faults == 0 { 0 } else { status + STATUS_BYTES as u64 };
        let used_count = u32::try_from(used.0.len() / 24).unwrap_or(u32::MAX);
        let used = staging.copy(chunks, context, stream, &used.0)?;
        let mut bytes = Bytes::default();
        bytes.u64s(&[commands, kernels, parameters, arguments, used, range, status, fault_records, zeros]);
        let inherited_kernel = execution.pipeline.as_ref().map_or(0, |_| program.kernel_count);
        let most = u32::try_from(execution.max_threadgroup_memory).unwrap_or(u32::MAX);
        bytes.u32s(&[used_count, program.kernel_count, execution.capacity, most]);
        bytes.u32s(&[inherited_kernel, execution.buffers.is_some().into(), first, count]);
        bytes.0.extend(inherited.0);
        let all = staging.copy(chunks, context, stream, &bytes.0)?;
        self.launch_executor(&program, all)
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
    fn launch_executor(&mut self, program: &Program, execution: CUdeviceptr) -> Result<()> {
        let context = &self.shared.context;
        let mut params = Bytes::default();
        params.u64s(&[execution]);
        params.u32s(&[0, 0]);
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
            let (function, stream) = (program.executor(), self.stream);
            context.api.launch(function, 1, 1, 1, THREADS, 1, 1, 0, stream, null_mut(), extra.as_mut_ptr())
        };
        launched.map_err(|failure| context.error(failure, "executing commands"))
    }
}

/// What the report of an execution means.
pub(crate) struct CommandsCheck {
    execution: Arc<ExecuteCommands>,
    program: Arc<Program>,
    /// Number of fault records behind the report.
    faults: usize,
}

impl CommandsCheck {
    /// Size of the report in bytes.
    pub(crate) fn bytes(&self) -> usize {
        STATUS_BYTES + self.faults * size_of::<FaultRecord>()
    }

    /// The fault that a report tells of.
    pub(crate) fn fault(&self, report: &[u8]) -> Option<Error> {
        let word = |at: usize| {
            let bytes = report.get(at..).and_then(|rest| rest.first_chunk()).copied();
            bytes.map_or(0, u32::from_ne_bytes)
        };
        let [code, index, error] = [word(0), word(4), word(8)];
        let record = CommandRecord::from_bytes(report.get(16..STATUS_BYTES).unwrap_or_default());
        let execution = &*self.execution;
        let in_command = |why: String| execution.fault(format!("command {index}: {why}"));
        Some(match code {
            code::DONE => return None,
            code::RANGE => match execution.range_of([index, error]) {
                Err(fault) => fault,
                Ok(_) => execution.fault("the range has changed while it was executed".into()),
            },
            code::BEYOND => {
                let header = CommandHeader { beyond: index, ..CommandHeader::default() };
                match execution.expect_encoded(&header) {
                    Err(fault) => fault,
                    Ok(()) => execution.fault("the header was overwritten".into()),
                }
            }
            code::REJECTED => match self.decode(index, &record) {
                Err(fault) => fault,
                Ok(()) => in_command("it was changed while it was executed".into()),
            },
            code::LAUNCH_FAILED => {
                in_command(format!("CUDA's device runtime cannot launch it (error {error})"))
            }
            code::SHARED_MEMORY => {
                in_command("its threadgroup memory and the kernel's own: at most 48 KiB together".into())
            }
            code::GRID => in_command(format!("more than {} threadgroups", i32::MAX)),
            code::FAULT => self.kernel_fault(index, &record, report),
            other => execution.fault(format!("the report was overwritten: code {other}")),
        })
    }

    fn decode(&self, index: u32, record: &CommandRecord) -> Result<()> {
        let Some(mut dispatch) = self.execution.dispatch() else { return Ok(()) };
        self.execution.decode(index, record, &self.execution.used_ranges()?, &mut dispatch)?;
        dispatch.prepare().map_err(|error| self.execution.fault(format!("command {index}: {error}")))
    }

    /// The fault of a kernel that checks bounds.
    fn kernel_fault(&self, index: u32, record: &CommandRecord, report: &[u8]) -> Error {
        let first = match &self.execution.range {
            CommandRange::Known(range) => range.start,
            // Told by the executor.
            CommandRange::Indirect(_) => {
                let bytes = report.get(12..).and_then(|rest| rest.first_chunk()).copied();
                bytes.map_or(0, u32::from_ne_bytes)
            }
        };
        let number =
            if self.execution.pipeline.is_some() { self.program.kernel_count } else { record.pipeline };
        let bounds = (number as usize).checked_sub(1).and_then(|at| self.program.bounds.get(at)?.clone());
        let at = STATUS_BYTES + index.saturating_sub(first) as usize * size_of::<FaultRecord>();
        let taken = report.get(at..).and_then(read_fault);
        match (bounds, taken) {
            (Some(bounds), Some(taken)) => {
                let fault = bounds.fault(&taken);
                let message = format!("command {index}: {}", fault.message);
                Error::Fault(Fault { message, launch: self.execution.label.clone(), ..fault })
            }
            _ => self.execution.fault(format!("command {index}: an access is out of bounds")),
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
