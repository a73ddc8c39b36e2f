//! The device: its capabilities, its memory, and its current worker.
//!
//! A worker is started when the device is created, and again when work arrives and there is no worker. A new worker's state is rebuilt on
//! demand: memory is mapped, kernels are loaded, and queues are opened by the first submission that uses them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread::ThreadId;

use elinvar_cache::Cache;
use elinvar_driver::log::ring::LogMemory;
use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{
    CacheLookups, Caps, Device, Energy, Error, HostBlock, Init, Library, Log, Memory, Primitives, Priority,
    Process, Queue, Readings, ResidentThreads, Result, Source, Storage, Thermal,
};
use rustix::time::ClockId;

use crate::Options;
use crate::arena::{Arena, Piece};
use crate::inner::InnerDevice;
use crate::library::IsolatedLibrary;
use crate::link::{Link, Span, Transfer, Unsent};
use crate::memory::{IsolatedMemory, Pages, Part};
use crate::queue::{self, IsolatedQueue, Remote, Submissions};
use crate::wire::ToWorker;

/// Creates a device in a worker process: the CPU, or the GPU that the options select.
///
/// # Errors
/// `Environment`, with the reason, if no worker can be started; `Unsupported`, with the reason, if the [`Options::kind`] is not available;
/// `InvalidArgument` if [`Options::index`] is out of range.
pub fn device(options: &Options) -> Result<Arc<Isolated>> {
    Isolated::new(options, elinvar_code::user_cache())
}

/// Maximum number of workers that are asked to do a transfer, if workers end meanwhile.
const TRIES: usize = 3;
/// Size of the staging pages through which the host accesses device memory, in bytes.
const STAGE: usize = 4 << 20;

/// A device in a worker process.
pub struct Isolated {
    core: Arc<Core>,
}

/// State shared by the device's parts.
pub(crate) struct Core {
    pub(crate) options: Options,
    pub(crate) inner: InnerDevice,
    pub(crate) caps: Caps,
    pub(crate) arena: Arc<Arena>,
    /// Its ring is in the arena, where it can be read after a worker has ended.
    pub(crate) log: Arc<Log>,
    log_piece: OnceLock<Piece>,
    /// Staging pages for host access to device memory; one transfer at a time.
    stage: Mutex<Option<Pages>>,
    cache: Cache,
    /// The process that owns the workers and threads.
    pub(crate) process: Process,
    /// The system's clock at time 0 of the device's clock.
    pub(crate) epoch_ns: u64,
    /// Bound of the error with which times of a worker are converted to the device's clock.
    pub(crate) timing_error_ns: AtomicU64,
    slot: Mutex<Slot>,
    numbers: AtomicU64,
    queues: Mutex<Vec<Weak<Submissions>>>,
    pub(crate) tasks: Sender<Task>,
    /// The thread that executes them.
    runs: ThreadId,
    /// Compute units to use; 0 for all.
    pub(crate) units: AtomicU32,
}

#[derive(Default)]
struct Slot {
    link: Option<Arc<Link>>,
    started: u64,
}

/// Tasks of the device's thread.
pub(crate) enum Task {
    /// A queue's turn.
    Turn(Arc<Submissions>),
    /// Send bytes that did not fit in the pipe.
    Flush(Arc<Link>),
}

fn run(tasks: &Receiver<Task>) {
    for task in tasks {
        match task {
            Task::Turn(queue) => queue.turn(&mut ()),
            Task::Flush(link) => link.flush(),
        }
    }
}

/// Nanoseconds of the system's monotonic clock.
pub(crate) fn system_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64)
}

impl Core {
    /// A number that is unique within the device.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Time of the device's clock.
    pub(crate) fn now_ns(&self) -> u64 {
        system_ns().saturating_sub(self.epoch_ns)
    }

    /// A worker that accepts work: the current one, or a new one.
    pub(crate) fn link(self: &Arc<Self>) -> Result<Arc<Link>> {
        self.process.expect_this(&"a worker process")?;
        let mut slot = self.slot.lock();
        if let Some(link) = slot.link.as_ref().filter(|link| link.is_there()) {
            return Ok(link.clone());
        }
        let old = slot.link.take();
        if self.log.has_ring() {
            // It may still write to the ring; one that is not in the slot any more has ended.
            if let Some(old) = old {
                old.wait_for_exit();
            }
            self.log.restart();
        }
        slot.started += 1;
        let link = Link::start(self, slot.started)?;
        slot.link = Some(link.clone());
        Ok(link)
    }

    /// The pages of the log's ring, and its size. Allocated with the first kernel that has log calls.
    ///
    /// # Errors
    /// `OutOfMemory`.
    #[allow(unsafe_code)] // memory that kernels write while the host reads it
    pub(crate) fn log_pages(&self) -> Result<(Piece, u64)> {
        self.log.memory_with(|bytes| {
            let piece = self.arena.take(LogMemory::size(bytes))?;
            let piece = *self.log_piece.get_or_init(|| piece);
            let address = self.arena.address(piece).cast();
            // SAFETY: new pages are zeroed, stay mapped as long as the arena, and are the ring's alone. Kernels run in the worker only.
            Ok(unsafe { LogMemory::new(address, 0, bytes, self.arena.clone()) })
        })?;
        let piece = self.log_piece.get().ok_or_else(|| Error::Environment("a log without pages".into()))?;
        Ok((*piece, self.log.size()))
    }

    /// A worker has ended.
    pub(crate) fn lost(&self, number: u64) {
        // A thread that starts another worker holds the lock, and has already replaced this one.
        if let Some(mut slot) = self.slot.try_lock() {
            slot.link.take_if(|link| link.number == number);
        }
    }

    /// The current worker.
    pub(crate) fn present(&self) -> Option<Arc<Link>> {
        // Messages of a forked child would interleave with the parent's.
        if !self.process.is_this() {
            return None;
        }
        self.slot.lock().link.clone()
    }

    /// As [`Link::forget`], if there is a worker.
    pub(crate) fn forget(&self, message: &ToWorker<'_>) {
        if let Some(link) = self.present() {
            link.forget(message);
        }
    }

    /// Makes the worker copy or zero bytes, and waits until it has.
    ///
    /// # Errors
    /// The error of the worker's device; `DeviceLost` if workers end meanwhile.
    pub(crate) fn transfer(self: &Arc<Self>, transfer: &Transfer<'_>) -> Result<()> {
        for _ in 0..TRIES {
            match self.link()?.transfer(self, transfer) {
                Ok(()) => return Ok(()),
                Err(Unsent::Wrong(error)) => return Err(error),
                // It may be incomplete: repeat it.
                Err(Unsent::Lost) => {}
            }
        }
        Err(Error::DeviceLost("worker processes end while they copy memory".into()))
    }

    /// Calls `each` for `len` bytes of device memory from `offset`, in pieces: with a piece of device memory, the staging pages for it and
    /// their address, the piece's offset and its length.
    pub(crate) fn staged(
        self: &Arc<Self>,
        part: Part<'_>,
        offset: u64,
        len: usize,
        mut each: impl FnMut(Span<'_>, (Span<'_>, *mut u8), usize, usize) -> Result<()>,
    ) -> Result<()> {
        let mut stage = self.stage.lock();
        let pages = match &mut *stage {
            Some(pages) => pages,
            none => none.insert(Pages::new(self, STAGE as u64)?),
        };
        let address = pages.address(self).as_ptr();
        (0..len).step_by(STAGE).try_for_each(|at| {
            let bytes = STAGE.min(len - at);
            let staged = Span { part: Part::Pages(pages), offset: 0, len: bytes as u64 };
            each(Span { part, offset: offset + at as u64, len: bytes as u64 }, (staged, address), at, bytes)
        })
    }

    pub(crate) fn task(&self, task: Task) {
        if !self.process.is_this() {
            return std::mem::forget(task);
        }
        let _no_thread = self.tasks.send(task);
    }

    /// Whether this is a thread that makes callbacks.
    fn is_own_thread(&self) -> bool {
        std::thread::current().id() == self.runs || self.present().is_some_and(|link| link.is_reader())
    }

    fn queues(&self) -> Vec<Arc<Submissions>> {
        self.queues.lock().iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // The worker belongs to the parent process.
        if !self.process.is_this() {
            return;
        }
        if let Some(link) = self.slot.get_mut().link.take() {
            link.end(Error::DeviceLost("the device was dropped".into()));
        }
    }
}

impl Isolated {
    /// As [`device`], with a cache other than the user's.
    ///
    /// # Errors
    /// As [`device`].
    pub fn new(options: &Options, cache: &Cache) -> Result<Arc<Self>> {
        let inner = InnerDevice::new(options)?;
        let mut caps = inner.caps(options.memory);
        // The worker has no primitives.
        caps.features.primitives = Primitives::NONE;
        // A GPU's buffers may have host copies, for which the machine's memory is the limit.
        let pages = if inner.has_device_memory() {
            elinvar_driver_cpu::caps(1).limits.total_memory
        } else {
            caps.limits.total_memory
        };
        let arena = Arc::new(Arena::new(options.memory.map_or(pages, |most| most.min(pages)))?);
        let (tasks, queue) = channel();
        let thread = std::thread::Builder::new().name("elinvar-isolated".into());
        let no_thread =
            |error| Error::Environment(format!("cannot start a thread for an isolated device: {error}"));
        let runs = thread.spawn(move || run(&queue)).map_err(no_thread)?;
        let core = Arc::new(Core {
            options: options.clone(),
            inner,
            caps,
            arena,
            log: Log::new(),
            log_piece: OnceLock::new(),
            stage: Mutex::default(),
            cache: cache.counted(),
            process: Process::this(),
            epoch_ns: system_ns(),
            timing_error_ns: AtomicU64::new(0),
            slot: Mutex::default(),
            numbers: AtomicU64::new(1),
            queues: Mutex::default(),
            tasks,
            runs: runs.thread().id(),
            units: AtomicU32::new(0),
        });
        core.link()?;
        Ok(Arc::new(Self { core }))
    }

    /// The worker's process, if there is one.
    pub fn process(&self) -> Option<u32> {
        self.core.present()?.process_id()
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: each allocation is a separate block of the arena; the queues implement the contract; pipelines are those of the worker's device,
// whose checks apply to its mappings of the same memory.
unsafe impl Device for Isolated {
    fn caps(&self) -> &Caps {
        &self.core.caps
    }

    fn details(&self) -> Vec<(&'static str, String)> {
        let process = self.process().map_or_else(|| "none now".into(), |process| process.to_string());
        let mut details = self.core.inner.details();
        details.push(("worker process", process));
        details
    }

    /// Shared memory is zeroed for either `init`; a GPU's private and managed memory is device memory.
    fn allocate(&self, bytes: u64, storage: Storage, init: Init) -> Result<Arc<dyn Memory>> {
        let limit = self.core.caps.limits.max_buffer_bytes;
        if bytes > limit {
            return Err(Error::invalid(format!("a buffer of {bytes} bytes: the limit is {limit} bytes")));
        }
        Ok(Arc::new(IsolatedMemory::new(&self.core, bytes, storage, init)?))
    }

    fn available_memory(&self) -> u64 {
        let Core { inner, caps, arena, .. } = &*self.core;
        let pages = || arena.available().min(elinvar_driver_cpu::available_memory());
        inner.available(caps.limits.total_memory).unwrap_or_else(pages)
    }

    #[allow(unsafe_code)] // overrides an unsafe method; nothing is done
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        let (name, bytes) = (&self.core.caps.name, block.bytes);
        Err(Error::unsupported(format!(
            "device `{name}` cannot use {bytes} bytes of host memory in place: it is isolated, and its worker process maps \
             no memory of this program except the device's buffers"
        )))
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        Ok(Arc::new(IsolatedLibrary::new(&self.core, &self.core.cache, source)?))
    }

    fn expect_executes_commands(&self) -> Result<()> {
        Err(Error::unsupported(
            "indirect command buffers on an isolated device: the worker compiles nothing, and the threadgroup sizes of commands are not known before",
        ))
    }

    fn expect_nested_launches(&self) -> Result<()> {
        Err(Error::unsupported(
            "kernels that launch kernels on an isolated device: the worker compiles nothing, and the threadgroup sizes of launches are not known before",
        ))
    }

    fn resident_queue(&self, _threads: ResidentThreads) -> Result<Arc<dyn Queue>> {
        Err(Error::unsupported(
            "resident kernels on an isolated device: the host cannot wake the threads of its worker process",
        ))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        self.core.process.expect_this(&"a queue")?;
        let queue = IsolatedQueue::new(Remote::new(&self.core, priority));
        let mut queues = self.core.queues.lock();
        if queues.len() == queues.capacity() {
            queues.retain(|queue| queue.strong_count() > 0);
        }
        queues.push(Arc::downgrade(queue.submissions()));
        Ok(Arc::new(queue))
    }

    fn clock_ns(&self) -> u64 {
        self.core.now_ns()
    }

    fn timing_error_ns(&self) -> u64 {
        self.core.timing_error_ns.load(Ordering::Relaxed)
    }

    fn log(&self) -> Option<&Arc<Log>> {
        Some(&self.core.log)
    }

    fn thermal(&self) -> Result<Thermal> {
        self.core.inner.thermal(&self.core.caps.name)
    }

    fn readings(&self) -> Result<Readings> {
        let worker = self.core.present().filter(|link| link.is_there());
        self.core.inner.readings(worker.and_then(|link| link.process_id()))
    }

    fn cache_lookups(&self) -> Option<CacheLookups> {
        let [hits, misses] = self.core.cache.lookups()?;
        Some(CacheLookups { hits, misses })
    }

    fn energy(&self) -> Result<Energy> {
        self.core.inner.energy()
    }

    fn use_units(&self, units: u32) -> Result<()> {
        if self.core.inner.has_device_memory() {
            let name = &self.core.caps.name;
            return Err(Error::unsupported(format!("device `{name}` always uses all of its compute units")));
        }
        let units = units.max(1);
        self.core.units.store(units, Ordering::Relaxed);
        if let Some(link) = self.core.present() {
            link.tell(&ToWorker::UseUnits(units));
        }
        Ok(())
    }

    /// Ends the worker process and starts another. All memory keeps its contents, except for the effects of work that was ended.
    fn reset(&self) -> Result<()> {
        self.core.process.expect_this(&"a reset")?;
        let cause = Error::DeviceLost("the device was reset".into());
        if self.core.is_own_thread() {
            return Err(Error::unsupported("reset of an isolated device in one of its callbacks"));
        }
        let queues = self.core.queues();
        let was: Vec<u64> = queues.iter().map(|queue| queue.last()).collect();
        queues.iter().for_each(|queue| drop(queue.abandon(false, &cause, |_| cause.clone())));
        let link = self.core.slot.lock().link.take();
        if let Some(link) = link {
            link.end(cause);
            link.wait_until_over();
        }
        queues.iter().for_each(|queue| self.core.task(Task::Turn(queue.clone())));
        queues.iter().zip(was).for_each(|(queue, last)| queue::wait_until_ended(queue, last));
        self.core.link().map(drop)
    }
}
