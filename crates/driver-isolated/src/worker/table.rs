//! The worker's objects by the host's numbers: memory, kernels, queues, batches.

use std::collections::HashMap;
use std::ffi::c_void;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use elinvar_driver::log::ring::LogMemory;
use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Command, Device, Error, HostBlock, Memory, Packed, Pipeline, PipelineOptions, Queue, Result, Source,
    Submission, TimestampSlot,
};
use elinvar_driver_cpu::{Guest, ToRun};
use rustix::mm::{MapFlags, ProtFlags};

use super::files::Files;
use super::{Answers, BASE, orders};
use crate::wire::{FromWorker, LogLoan, Order, ToWorker};

pub(super) struct Table {
    device: Arc<dyn Device>,
    file: OwnedFd,
    arena: u64,
    answers: Arc<Answers>,
    files: Arc<Files>,
    /// Queue for transfers.
    transfers: Option<Arc<dyn Queue>>,
    pub(super) memories: HashMap<u64, Result<Arc<dyn Memory>>>,
    pub(super) functions: HashMap<u64, Result<Function>>,
    queues: HashMap<u64, Inner>,
    /// Batches that have not ended, by the host's numbers.
    pieces: Arc<Mutex<HashMap<u64, Submission>>>,
}

/// A queue of the inner device.
struct Inner {
    queue: Result<Arc<dyn Queue>>,
    /// Error of a failed submission; later batches of the queue are not executed either.
    failure: Option<Error>,
}

/// A loaded kernel.
#[derive(Clone)]
pub(super) struct Function {
    pub(super) pipeline: Arc<dyn Pipeline>,
    /// Whether it serves several threadgroup sizes, each of which is prepared by the first launch with it.
    pub(super) is_general: bool,
    /// The size in bytes of the largest memory that its launches may use.
    pub(super) largest: u64,
}

/// A kernel to load.
struct ToLoad<'a> {
    bundle: &'a [u8],
    key: [u8; 32],
    kernel: &'a str,
    options: PipelineOptions,
    group: Option<elinvar_driver::Dim3>,
    stoppable: bool,
    largest: u64,
    log: Option<LogLoan>,
}

impl Table {
    pub(super) fn new(
        device: Arc<dyn Device>,
        file: OwnedFd,
        arena: u64,
        files: Arc<Files>,
        answers: Arc<Answers>,
    ) -> Self {
        let (memories, functions, queues) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (transfers, pieces) = (None, Arc::default());
        Self { device, file, arena, answers, files, transfers, memories, functions, queues, pieces }
    }

    /// Executes a message. The caller runs the work that it returns.
    pub(super) fn act(&mut self, message: ToWorker<'_>, guest: Option<&Guest>) -> Option<ToRun> {
        match message {
            ToWorker::Map { memory, offset, len } => {
                let mapped = self.map(offset, len);
                self.memories.insert(memory, mapped);
            }
            ToWorker::MapDevice { memory, bytes, address } => {
                let file = self.files.take(memory);
                let mapped = elinvar_driver_cuda::import(&*self.device, &file, bytes, address);
                self.memories.insert(memory, mapped);
            }
            ToWorker::Transfer { request, order } => self.transfer(request, &order),
            ToWorker::Unmap { memory } => drop(self.memories.remove(&memory)),
            ToWorker::Load { function, bundle, key, kernel, options, group, stoppable, largest, log } => {
                let loaded =
                    self.load(ToLoad { bundle, key, kernel, options, group, stoppable, largest, log });
                let threads = |function: &Function| function.pipeline.max_threads_per_threadgroup();
                let result = loaded.as_ref().map(threads).map_err(Clone::clone);
                self.functions.insert(function, loaded);
                self.answers.send(&FromWorker::Loaded { function, result });
            }
            ToWorker::Resident { function, group, threadgroup_bytes, request } => {
                let unknown = || Err(Error::invalid(format!("no function {function}")));
                let function = self.functions.get(&function).cloned().unwrap_or_else(unknown);
                let resident =
                    |function: Function| function.pipeline.resident_groups(group, threadgroup_bytes);
                self.answers.send(&FromWorker::Resident { request, result: function.and_then(resident) });
            }
            ToWorker::Unload { function } => drop(self.functions.remove(&function)),
            ToWorker::Open { queue, priority } => {
                let inner = Inner { queue: self.device.queue_with(priority), failure: None };
                self.queues.insert(queue, inner);
            }
            ToWorker::Close { queue } => drop(self.queues.remove(&queue)),
            ToWorker::Submit { queue, piece, commands } => {
                return self.submit(queue, piece, &commands, guest);
            }
            ToWorker::Cancel { queue, pieces, request } => {
                let done = self.cancel(queue, &pieces);
                self.answers.send(&FromWorker::Cancelled { request, done });
            }
            ToWorker::Stop { queue, pieces, cause } => self.stop(queue, &pieces, &cause),
            ToWorker::Acknowledge { queue } => {
                if let Some(Inner { queue: Ok(queue), failure }) = self.queues.get_mut(&queue) {
                    (*failure, _) = (None, queue.acknowledge());
                }
            }
            ToWorker::UseUnits(units) => {
                if let Err(error) = self.device.use_units(units) {
                    tracing::debug!("{error}");
                }
            }
        }
        None
    }

    fn map(&self, offset: u64, len: u64) -> Result<Arc<dyn Memory>> {
        if offset.checked_add(len).is_none_or(|end| end > self.arena) {
            return Err(Error::invalid(format!("{len} bytes at {offset} of {} that are shared", self.arena)));
        }
        let mapped = Mapped::new(&self.file, offset, len)?;
        let block = HostBlock { address: mapped.address, bytes: len, owner: Box::new(mapped) };
        #[allow(unsafe_code)] // the inner device uses shared pages in place
        // SAFETY: the pages stay mapped until their owner is dropped. The host's runtime orders accesses, here and in the host.
        unsafe {
            self.device.wrap(block)
        }
    }

    /// Makes the device's kernels write to the host's log ring.
    fn lend(&self, loan: LogLoan) -> Result<()> {
        let Some(log) = self.device.log().filter(|log| !log.has_ring()) else { return Ok(()) };
        if LogMemory::size(loan.size) > loan.len {
            return Err(Error::invalid("a log that does not fit its pages"));
        }
        let memory = self.map(loan.offset, loan.len)?;
        let addresses = memory.host_ptr().zip(memory.gpu_address());
        let (host, device) = addresses.ok_or_else(|| Error::invalid("pages of a log without an address"))?;
        #[allow(unsafe_code)] // memory that the host reads while kernels write it
        // SAFETY: the host gives zeroed pages, which stay mapped as long as `memory`, and reads them as a ring only.
        log.lend(unsafe { LogMemory::new(host.cast(), device, loan.size, memory) });
        Ok(())
    }

    fn load(&self, load: ToLoad<'_>) -> Result<Function> {
        if let Some(loan) = load.log {
            self.lend(loan)?;
        }
        let packed = Packed { bundle: load.bundle.into(), key: load.key };
        let source = Source { packed: Some(packed), ..Source::default() };
        let mut pipeline = self.device.compile(&source)?.pipeline(load.kernel, &load.options)?;
        if load.stoppable {
            let none =
                || Error::unsupported(format!("kernel `{}` was not compiled with stop checks", load.kernel));
            pipeline = pipeline.stoppable().ok_or_else(none)?;
        }
        if let (Some(loan), Some(kernel)) = (load.log, pipeline.log_kernel()) {
            kernel.renumber(loan.kernel);
        }
        load.group.map_or(Ok(()), |group| pipeline.prepare_for(group, load.largest))?;
        Ok(Function { pipeline, is_general: load.group.is_none(), largest: load.largest })
    }

    /// Executes a request that the host waits for, and replies.
    fn transfer(&mut self, request: u64, order: &Order<'_>) {
        let answers = self.answers.clone();
        let tell = move |result| answers.send(&FromWorker::Transferred { request, result });
        let submitted = orders::command(self, order, &mut Vec::new()).and_then(|command| {
            let queue = match &self.transfers {
                Some(queue) => queue,
                None => self.transfers.insert(self.device.queue()?),
            };
            // The host handles the failure; later transfers must not be affected.
            queue.acknowledge();
            let tell = tell.clone();
            queue.submit(Arc::new([command]), elinvar_driver::Done::new(move |result| tell(result.map(drop))))
        });
        if let Err(error) = submitted {
            tell(Err(error));
        }
    }

    fn submit(
        &mut self,
        queue: u64,
        piece: u64,
        commands: &[Order<'_>],
        guest: Option<&Guest>,
    ) -> Option<ToRun> {
        let mut stamps = Vec::new();
        let taken = self
            .commands(commands, &mut stamps)
            .and_then(|commands| self.queue(queue, piece, commands, stamps, guest));
        taken.unwrap_or_else(|error| {
            if let Some(inner) = self.queues.get_mut(&queue) {
                inner.failure.get_or_insert_with(|| error.clone());
            }
            self.answers.send(&FromWorker::Ended { piece, result: Err(error), stamps: Vec::new() });
            None
        })
    }

    fn commands(&self, orders: &[Order<'_>], stamps: &mut Vec<Arc<TimestampSlot>>) -> Result<Arc<[Command]>> {
        orders.iter().map(|order| orders::command(self, order, stamps)).collect()
    }

    fn queue(
        &self,
        queue: u64,
        piece: u64,
        commands: Arc<[Command]>,
        stamps: Vec<Arc<TimestampSlot>>,
        guest: Option<&Guest>,
    ) -> Result<Option<ToRun>> {
        let inner = self.queues.get(&queue).ok_or_else(|| Error::invalid("no such queue"))?;
        if let Some(failure) = &inner.failure {
            return Err(failure.poison());
        }
        let (answers, ended, device) = (self.answers.clone(), self.pieces.clone(), self.device.clone());
        let done = elinvar_driver::Done::new(move |result: Result<elinvar_driver::Timing>| {
            ended.lock().remove(&piece);
            let lost = if result.is_err() { device.lost() } else { None };
            let result = result.map(|timing| (timing.start_ns, timing.end_ns));
            let stamps = stamps.iter().map(|stamp| stamp.ns()).collect();
            answers.send(&FromWorker::Ended { piece, result, stamps });
            // The host ends this process, and sends later work to another worker.
            lost.into_iter().for_each(|error| answers.send(&FromWorker::Lost(error)));
        });
        // It may end before its number is entered here; its callback waits for this lock.
        let mut pieces = self.pieces.lock();
        let queue = inner.queue.as_ref().map_err(Clone::clone)?;
        let (submission, to_run) = match guest {
            Some(guest) => guest.submit(&**queue, commands, done)?,
            None => (queue.submit(commands, done)?, None),
        };
        pieces.insert(piece, submission);
        Ok(to_run)
    }

    fn known(&self, queue: u64, piece: u64) -> Option<(&Arc<dyn Queue>, Submission)> {
        let submission = *self.pieces.lock().get(&piece)?;
        Some((self.queues.get(&queue)?.queue.as_ref().ok()?, submission))
    }

    fn cancel(&self, queue: u64, pieces: &[u64]) -> bool {
        let cancel = |piece: &u64| {
            let known = self.known(queue, *piece);
            known.is_some_and(|(queue, submission)| queue.cancel(submission))
        };
        let [first, rest @ ..] = pieces else { return false };
        let done = cancel(first);
        if done {
            rest.iter().for_each(|piece| _ = cancel(piece));
        }
        done
    }

    fn stop(&self, queue: u64, pieces: &[u64], cause: &Error) {
        for piece in pieces {
            let Some((queue, submission)) = self.known(queue, *piece) else { continue };
            if queue.stop(submission, cause.clone()).is_err() {
                self.answers.send(&FromWorker::CannotStop { piece: *piece });
            }
        }
    }
}

/// Reserves the addresses of the host's memory.
#[allow(unsafe_code)] // a system call
pub(super) fn reserve(bytes: u64) -> Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    let at = std::ptr::without_provenance_mut::<c_void>(BASE as usize);
    // SAFETY: new inaccessible pages, at addresses where nothing is mapped.
    let reserved = unsafe { rustix::mm::mmap_anonymous(at, bytes as usize, ProtFlags::empty(), flags) };
    match reserved {
        Ok(got) if got == at => Ok(()),
        Ok(_) => Err(Error::Environment(format!("{bytes} bytes of addresses at {BASE:#x} are not free"))),
        Err(error) => Err(Error::Environment(format!("{bytes} bytes of addresses at {BASE:#x}: {error}"))),
    }
}

/// A range of the host's memory, mapped at its address.
struct Mapped {
    address: NonNull<u8>,
    bytes: usize,
}

#[allow(unsafe_code)] // an address of memory that processes share
// SAFETY: the pages belong to this value and may be used and unmapped on any thread.
unsafe impl Send for Mapped {}
#[allow(unsafe_code)] // as above
// SAFETY: the fields are constant.
unsafe impl Sync for Mapped {}

impl Mapped {
    #[allow(unsafe_code)] // a system call
    fn new(file: &OwnedFd, offset: u64, len: u64) -> Result<Self> {
        let failed = |error| Error::Environment(format!("mapping {len} bytes that the host shares: {error}"));
        let at = std::ptr::with_exposed_provenance_mut::<c_void>((BASE + offset) as usize);
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the range is within the addresses that `reserve` has reserved, and the host allocates each address at most once at a time.
        let address = unsafe { rustix::mm::mmap(at, len as usize, access, flags, file.as_fd(), offset) };
        let address =
            NonNull::new(address.map_err(failed)?.cast()).ok_or_else(|| failed(rustix::io::Errno::INVAL))?;
        Ok(Self { address, bytes: len as usize })
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code)] // a system call
    fn drop(&mut self) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let at = self.address.as_ptr().cast();
        // SAFETY: exactly the pages that `new` mapped, whose only owner is being dropped; their addresses stay reserved.
        let _left = unsafe { rustix::mm::mmap_anonymous(at, self.bytes, ProtFlags::empty(), flags) };
    }
}
