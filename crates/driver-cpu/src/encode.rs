//! Execution of commands: the one `match` on [`Command`], and the call of compiled code.
//!
//! Dispatches are shared among workers; copies and fills run on the queue's worker.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Binding, Command, Dim3, Dispatch, Error, Fault, Grid, Label, LogKernel, MemorySlice, Pipeline as _,
    Primitive, Result,
};
use elinvar_spmd::bounds::FaultRecord;

use crate::commands;
use crate::cooperative::{self, Suspended};
use crate::job::{COUNTING_NS, Demand, RANGE_NS, Work};
use crate::kernel::{CompiledKernel, CpuPipeline};
use crate::loader::Launch;
use crate::memory::HostMemory;
use crate::pool::Worker;
use crate::product;
use crate::resident::{self, Resumed};
use crate::scratch::Scratch;
use crate::stop::Stop;
use crate::{crash, host};

/// Alignment of an argument's threadgroup memory, in bytes.
const THREADGROUP_ALIGN: u64 = 16;
/// Maximum number of threadgroups of a dispatch. Below it, no counter overflows.
pub(crate) const MAX_GROUPS: u128 = 1 << 62;
/// Approximate size of the block in which a fill repeats its pattern, in bytes.
const FILL_BLOCK: usize = 4096;

/// Executes commands of a submission, in order.
pub(crate) fn run(commands: &[Command], stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    for command in commands {
        stop.check()?;
        match command {
            Command::Dispatch(launch) => launch_one(launch, stop, worker)?,
            Command::LaunchNested(nested) => commands::execute_nested(nested, stop, worker)?,
            Command::ExecuteCommands(execution) => commands::execute(execution, stop, worker)?,
            Command::Copy { source, target } => copy(source, target)?,
            Command::Fill { target, pattern } => fill(target, pattern)?,
            Command::Primitive { primitive, operands } => compute(primitive, operands, stop, worker)?,
            Command::Timestamp { into } => into.set(host::now_ns()),
            other => return Err(Error::unsupported(format!("the CPU driver has no command {other:?}"))),
        }
    }
    Ok(())
}

/// Executes a dispatch. A fault has the launch's label.
pub(crate) fn launch_one(launch: &Dispatch, stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    dispatch(launch, stop, worker).map_err(|error| named(error, &launch.label))
}

/// Adds the launch's label to a fault.
pub(crate) fn named(error: Error, label: &Option<Arc<Label>>) -> Error {
    match error {
        Error::Fault(fault) => Error::Fault(Fault { launch: label.clone(), ..fault }),
        error => error,
    }
}

/// What a dispatch runs.
pub(crate) struct Plan<'d> {
    pub(crate) pipeline: &'d CpuPipeline,
    pub(crate) kernel: Arc<CompiledKernel>,
    pub(crate) threads: Dim3,
    /// Number of threadgroups, at least 1 and below [`MAX_GROUPS`].
    pub(crate) total: u64,
    pub(crate) largest: u64,
}

/// The code and the size of a dispatch, which is prepared; `None` if nothing runs.
pub(crate) fn plan(dispatch: &Dispatch) -> Result<Option<Plan<'_>>> {
    let pipeline: &dyn Any = &*dispatch.pipeline;
    let pipeline = pipeline.downcast_ref::<CpuPipeline>().ok_or_else(|| {
        Error::invalid(format!(
            "kernel `{}` was not compiled by the CPU driver",
            dispatch.pipeline.signature().name
        ))
    })?;
    let largest = dispatch.largest_memory();
    let kernel = pipeline.kernel(dispatch.group, largest)?;
    let threads = match &dispatch.grid {
        Grid::Threads(threads) => *threads,
        Grid::Indirect(counts) => dispatch.threads_of(read_counts(counts)?)?,
    };
    let groups = threads.div_ceil(dispatch.group);
    match groups.volume() {
        0 => Ok(None),
        // Fits: MAX_GROUPS is below 2^64.
        total @ 1..MAX_GROUPS => Ok(Some(Plan { pipeline, kernel, threads, total: total as u64, largest })),
        _ => {
            let (name, most) = (&kernel.name, MAX_GROUPS);
            Err(Error::invalid(format!("kernel `{name}`: {groups} threadgroups: less than {most} in all")))
        }
    }
}

/// Target duration of a range of a kernel's threadgroups.
pub(crate) fn range_ns(kernel: &CompiledKernel) -> u64 {
    if kernel.private_counters { COUNTING_NS } else { RANGE_NS }
}

fn dispatch(dispatch: &Dispatch, stop: &Arc<Stop>, worker: &mut Worker) -> Result<()> {
    let Some(Plan { pipeline, kernel, threads, total, largest }) = plan(dispatch)? else {
        return Ok(());
    };
    if pipeline.signature().inbox().is_some() && worker.resident.is_none() {
        let name = &pipeline.signature().name;
        return Err(Error::Environment(format!(
            "kernel `{name}`: cannot start a thread for a resident kernel"
        )));
    }
    let demand = Demand {
        groups: total,
        group_ns: kernel.group_ns.load(Ordering::Relaxed),
        ascending: kernel.ascending,
        range_ns: range_ns(&kernel),
    };
    // A helper of the previous dispatch may not have dropped it yet.
    let mut running = worker.spare.take().unwrap_or_default();
    let unused = match Arc::get_mut(&mut running) {
        Some(unused) => unused,
        None => {
            running = Arc::default();
            let Some(unused) = Arc::get_mut(&mut running) else { return Ok(()) };
            unused
        }
    };
    unused.set(dispatch, threads, &kernel, stop, pipeline.log_kernel())?;
    let (group_ns, ended) = if kernel.cooperative {
        dispatch.expect_resident(total.into(), cooperative::resident_groups(unused.scratch))?;
        let mut memory = std::mem::take(&mut worker.suspended);
        unused.suspended = Some(Suspended::new(&mut memory, total, unused.scratch)?);
        let ended = match worker.resident.clone() {
            Some(threads) => {
                resident::run(&running, total, worker.workers(), &threads);
                Ok((0, running.end()))
            }
            None => run_rounds(&running, demand, worker),
        };
        worker.suspended = cooperative::keep(memory);
        ended?
    } else {
        (worker.run(&running, demand)?, running.end())
    };
    if let Some(unused) = Arc::get_mut(&mut running) {
        unused.release();
        worker.spare = Some(running);
    }
    ended?;
    kernel.group_ns.store(group_ns, Ordering::Relaxed);
    pipeline.ran(dispatch.group, largest, group_ns.saturating_mul(total));
    Ok(())
}

/// Of a kernel whose rounds are short, a thread runs this many rounds alone between two that are timed.
const UNTIMED_ROUNDS: u32 = 15;

/// Runs the rounds of a cooperative launch, until all threadgroups have ended or one has failed. Returns the time per threadgroup, and the
/// result.
fn run_rounds(running: &Arc<Running>, demand: Demand, worker: &mut Worker) -> Result<(u64, Result<()>)> {
    let mut round = demand;
    let mut group_ns = 0_u64;
    loop {
        // Shorter than what would be shared. Reading the clock for ranges of threadgroups would be a large part of such a round.
        let is_short = round.group_ns > 0 && round.group_ns.saturating_mul(round.groups) < RANGE_NS;
        for _ in 0..if is_short { UNTIMED_ROUNDS } else { 0 } {
            let flow = worker.run_whole(&**running, round.groups)?;
            group_ns = group_ns.saturating_add(round.group_ns);
            if flow.is_break() || !running.suspended.as_ref().is_some_and(Suspended::next_round) {
                return Ok((group_ns, running.end()));
            }
        }
        round.group_ns = worker.run(running, round)?;
        group_ns = group_ns.saturating_add(round.group_ns);
        let ended = running.end();
        if ended.is_err() || !running.suspended.as_ref().is_some_and(Suspended::next_round) {
            return Ok((group_ns, ended));
        }
    }
}

fn compute(
    primitive: &Primitive,
    operands: &[MemorySlice],
    stop: &Arc<Stop>,
    worker: &mut Worker,
) -> Result<()> {
    primitive.check(operands)?;
    match primitive {
        Primitive::MatMul(p) => product::multiply(p, operands, stop, worker),
        Primitive::MatVec(p) => product::multiply(&p.as_mat_mul(), operands, stop, worker),
        Primitive::Convolution(p) => product::convolve(p, operands, stop, worker),
        other => Err(Error::unsupported(format!("the CPU driver has no {}", other.kind().name()))),
    }
}

/// Adds a place to a fault.
pub(crate) fn within(error: Error, place: impl FnOnce() -> String) -> Error {
    match error {
        Error::Fault(fault) => {
            Error::Fault(Fault { message: format!("{}: {}", place(), fault.message), ..fault })
        }
        error => error,
    }
}

/// A dispatch that workers execute. The submission keeps the memory alive that `launch` points to. The worker reuses it for its next
/// dispatch.
#[derive(Default)]
pub(crate) struct Running {
    /// `None` between dispatches, as is `stop`.
    kernel: Option<Arc<CompiledKernel>>,
    launch: Launch,
    /// Size of scratch memory in bytes, static and dynamic.
    scratch: u64,
    /// The memory of threadgroups that grid barriers suspend. `None` for a kernel without.
    suspended: Option<Suspended>,
    /// The stop flag of the submission.
    stop: Option<Arc<Stop>>,
    /// Whether the other threads of a resident kernel should end.
    is_over: AtomicBool,
    /// The first failure.
    failure: Mutex<Option<Error>>,
    /// Arrays that `launch` points to.
    record: Box<UnsafeCell<FaultRecord>>,
    sizes: Vec<u64>,
    args: Vec<*const c_void>,
    /// Copies of arguments passed by value.
    values: Vec<Block>,
}

/// A block with the largest alignment that a value can have.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u8; 64]);

#[allow(unsafe_code)] // holds addresses for compiled code
// SAFETY: the addresses point to arrays of this value, which do not move during a dispatch, to blocks of suspended threadgroups, and to
// driver memory, which any thread may use. Nothing here is bound to a thread.
unsafe impl Send for Running {}
#[allow(unsafe_code)] // as above
// SAFETY: only `failure`, `record` and the blocks of suspended threadgroups change. A block is used by the one thread that runs the
// threadgroup in a round, and the end of a round orders its uses. Compiled code writes the record once, guarded by an atomic exchange, and it is read after
// all threadgroups have ended. Accesses of compiled code through the addresses are the kernel's responsibility, as on any device.
unsafe impl Sync for Running {}

impl Running {
    /// Lets go of what it refers to, after a dispatch.
    pub(crate) fn release(&mut self) {
        self.kernel = None;
        self.suspended = None;
        self.stop = None;
    }

    pub(crate) fn set(
        &mut self,
        dispatch: &Dispatch,
        threads: Dim3,
        kernel: &Arc<CompiledKernel>,
        stop: &Arc<Stop>,
        log: Option<&Arc<LogKernel>>,
    ) -> Result<()> {
        for used in &dispatch.uses {
            address(&used.slice)?;
        }
        copy_values(&dispatch.bindings, &mut self.values);
        let mut value = self.values.as_ptr();
        let mut dynamic = 0_u64;
        self.args.clear();
        for binding in &dispatch.bindings {
            self.args.push(match binding {
                Binding::Memory(slice) => address(slice)?.cast::<c_void>().cast_const(),
                Binding::Bytes(bytes) => {
                    let at = value;
                    value = at.wrapping_add(blocks(bytes));
                    at.cast()
                }
                Binding::Threadgroup(bytes) => {
                    let offset = dynamic;
                    let end = bytes.checked_next_multiple_of(THREADGROUP_ALIGN);
                    dynamic = end.and_then(|size| size.checked_add(offset)).ok_or_else(|| {
                        Error::invalid(format!(
                            "kernel `{}`: {bytes} bytes of threadgroup memory",
                            kernel.name
                        ))
                    })?;
                    std::ptr::without_provenance(offset as usize)
                }
                Binding::Unbound => std::ptr::null(),
            });
        }
        self.sizes.clear();
        self.sizes.extend(dispatch.bindings.iter().map(bytes));
        *self.record.get_mut() = FaultRecord::default();
        *self.failure.get_mut() = None;
        *self.is_over.get_mut() = false;
        self.launch = Launch {
            args: self.args.as_ptr(),
            threads: threads.to_array(),
            groups: threads.div_ceil(dispatch.group).to_array(),
            sizes: self.sizes.as_ptr(),
            record: self.record.get(),
            stop: stop.byte(),
            group: dispatch.group.to_array(),
            log_kernel: log.map_or(0, |kernel| kernel.number()),
            log: log.map_or(std::ptr::null(), |kernel| std::ptr::from_ref(kernel.log().control())),
        };
        self.scratch = kernel.scratch_bytes.saturating_add(dynamic);
        (self.kernel, self.stop) = (Some(kernel.clone()), Some(stop.clone()));
        Ok(())
    }

    /// The result. Must be called after all threadgroups have ended.
    pub(crate) fn end(&self) -> Result<()> {
        self.failure.lock().take().map_or_else(|| self.expect_in_bounds(), Err)
    }

    /// The fault that a kernel with bounds checks has recorded, if any. Must be called after all threadgroups have ended.
    #[allow(unsafe_code)] // reads what compiled code wrote
    fn expect_in_bounds(&self) -> Result<()> {
        // SAFETY: the record is plain integers, and no thread writes to it any more.
        let record = unsafe { *self.record.get() };
        match self.kernel.as_ref().and_then(|kernel| kernel.bounds.as_ref()) {
            Some(bounds) if record.taken != 0 => Err(Error::Fault(bounds.fault(&record))),
            _ => Ok(()),
        }
    }

    /// Runs a threadgroup up to its next grid barrier, unless it has ended.
    #[allow(unsafe_code)] // calls compiled code
    fn resume(
        &self,
        group: u64,
        suspended: &Suspended,
        kernel: &CompiledKernel,
        stop: &Stop,
    ) -> ControlFlow<()> {
        if suspended.has_ended(group) {
            return ControlFlow::Continue(());
        }
        // SAFETY: as in `run`; the block has the required size, and only this thread uses it in this round.
        let arrived = match unsafe { kernel.code.run(&self.launch, suspended.block(group), group..group + 1) }
        {
            0 => suspended.end(group),
            elinvar_spmd::SUSPENDED => suspended.arrive(group),
            code => return self.end_early(code, kernel, stop),
        };
        arrived.map_or_else(|fault| self.fail(kernel.fault(fault)), ControlFlow::Continue)
    }

    /// Runs a threadgroup of a resident kernel until it yields.
    #[allow(unsafe_code)] // calls compiled code
    pub(crate) fn resume_resident(&self, group: u64) -> Resumed {
        let (Some(kernel), Some(stop), Some(suspended)) = (&self.kernel, &self.stop, &self.suspended) else {
            return Resumed::Failed;
        };
        if suspended.has_ended(group) {
            return Resumed::Ended;
        }
        if self.is_over.load(Ordering::Relaxed) {
            return Resumed::Failed;
        }
        let failed = |flow: ControlFlow<()>| {
            self.is_over.store(true, Ordering::Relaxed);
            match flow {
                ControlFlow::Break(()) => Resumed::Failed,
                ControlFlow::Continue(()) => Resumed::Ended,
            }
        };
        if stop.is_set()
            && let Err(cause) = stop.check()
        {
            return failed(self.fail(cause));
        }
        let run = crash::Run { description: &kernel.crash, args: &self.args, sizes: &self.sizes };
        let _named = crash::running(&run);
        // SAFETY: as in `Work::run`; the block has the required size, and one thread runs the threadgroup from start to end.
        match unsafe { kernel.code.run(&self.launch, suspended.block(group), group..group + 1) } {
            0 => {
                let _arrived = suspended.end(group);
                Resumed::Ended
            }
            elinvar_spmd::SUSPENDED => match suspended.second(group) {
                elinvar_spmd::YIELDED_BUSY => Resumed::Busy,
                elinvar_spmd::YIELDED_IDLE => Resumed::Idle,
                fault => failed(self.fail(kernel.fault(fault as i32))),
            },
            code => failed(self.end_early(code, kernel, stop)),
        }
    }

    /// Fails, since a thread could not be started.
    pub(crate) fn cannot_start(&self, error: &std::io::Error) {
        let _failed = self.fail(Error::Environment(format!("cannot start a thread: {error}")));
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Cancels the remaining threadgroups after compiled code has returned a code that is not 0.
    fn end_early(&self, code: i32, kernel: &CompiledKernel, stop: &Stop) -> ControlFlow<()> {
        match (code, stop.check()) {
            (elinvar_spmd::STOPPED, Err(cause)) => self.fail(cause),
            (elinvar_spmd::STOPPED, Ok(())) => ControlFlow::Break(()),
            (code, _) => self.fail(kernel.fault(code)),
        }
    }

    fn fail(&self, error: Error) -> ControlFlow<()> {
        self.failure.lock().get_or_insert(error);
        ControlFlow::Break(())
    }
}

impl Work for Running {
    #[allow(unsafe_code)] // calls compiled code
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()> {
        let (Some(kernel), Some(stop)) = (&self.kernel, &self.stop) else { return ControlFlow::Break(()) };
        if let Err(cause) = stop.check() {
            return self.fail(cause);
        }
        let run = crash::Run { description: &kernel.crash, args: &self.args, sizes: &self.sizes };
        let _named = crash::running(&run);
        if let Some(suspended) = &self.suspended {
            return groups.into_iter().try_for_each(|group| self.resume(group, suspended, kernel, stop));
        }
        let scratch = match scratch.reserve(self.scratch) {
            Ok(scratch) => scratch,
            Err(error) => return self.fail(error),
        };
        // SAFETY: the runtime has checked the bindings against the kernel's signature; what the kernel does with them is the caller's
        // responsibility. The addresses are valid while the submission is pending, which the job's owner ensures. The scratch memory has the
        // required size and belongs to this thread.
        match unsafe { kernel.code.run(&self.launch, scratch, groups) } {
            0 => ControlFlow::Continue(()),
            code => self.end_early(code, kernel, stop),
        }
    }
}

/// Size in bytes of the memory that an argument points to.
fn bytes(binding: &Binding) -> u64 {
    match binding {
        Binding::Memory(slice) => slice.len,
        Binding::Bytes(bytes) => bytes.len() as u64,
        Binding::Threadgroup(bytes) => *bytes,
        Binding::Unbound => 0,
    }
}

fn blocks(bytes: &[u8]) -> usize {
    bytes.len().div_ceil(size_of::<Block>())
}

/// Copies all values, each to the start of a block. The kernel may write to the copies, and the command may be submitted again.
fn copy_values(bindings: &[Binding], values: &mut Vec<Block>) {
    values.clear();
    for binding in bindings {
        if let Binding::Bytes(bytes) = binding {
            values.extend(bytes.chunks(size_of::<Block>()).map(|chunk| {
                let mut block = Block([0; 64]);
                block.0[..chunk.len()].copy_from_slice(chunk);
                block
            }));
        }
    }
}

/// Address of the first byte of a slice, after checking that the slice is within its memory.
pub(crate) fn address(slice: &MemorySlice) -> Result<*mut u8> {
    let memory: &dyn Any = &*slice.memory;
    let memory = memory.downcast_ref::<HostMemory>();
    memory.ok_or_else(|| Error::invalid("the memory belongs to another driver"))?.at(slice.offset, slice.len)
}

/// Reads the threadgroup counts of an indirect launch.
#[allow(unsafe_code)] // reads through an address
fn read_counts(counts: &MemorySlice) -> Result<Dim3> {
    let from = address(&MemorySlice { len: Grid::COUNTS_BYTES, ..counts.clone() })?;
    // SAFETY: the range is within the memory, which the submission keeps alive. Concurrent writes would be a race of the program.
    let counts = unsafe { from.cast::<[u32; 3]>().read_unaligned() };
    Ok(counts.into())
}

#[allow(unsafe_code)] // copies through addresses
fn copy(source: &MemorySlice, target: &MemorySlice) -> Result<()> {
    if source.len != target.len {
        return Err(Error::invalid(format!("copy of {} bytes to {} bytes", source.len, target.len)));
    }
    let (from, to) = (address(source)?, address(target)?);
    // SAFETY: both ranges are within their memories, which the submission keeps alive; they may overlap. Concurrent accesses would be a
    // race of the program.
    unsafe { std::ptr::copy(from, to, source.len as usize) };
    Ok(())
}

#[allow(unsafe_code)] // writes through an address
fn fill(target: &MemorySlice, pattern: &[u8]) -> Result<()> {
    if !(1..=16).contains(&pattern.len()) || !target.len.is_multiple_of(pattern.len() as u64) {
        let (len, pattern) = (target.len, pattern.len());
        return Err(Error::invalid(format!("fill of {len} bytes with a pattern of {pattern} bytes")));
    }
    let block = pattern.repeat(FILL_BLOCK / pattern.len());
    let (to, len) = (address(target)?, target.len as usize);
    for begin in (0..len).step_by(block.len()) {
        let bytes = block.len().min(len - begin);
        // SAFETY: `begin + bytes` is at most `len`, and the range is within the memory, which the submission keeps alive; `block` is local.
        // Concurrent accesses would be a race of the program.
        unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), to.add(begin), bytes) };
    }
    Ok(())
}
