//! A driver without hardware: it records commands, fails on demand and waits when told to.
//!
//! [`Sim`] keeps the driver contract to the letter, so that tests of the runtime see every state that a
//! real device can be in, without races: [`Sim::hold`] stops all queues before their next submission,
//! [`Sim::fail_next`] makes one operation fail, [`Sim::lose`] all of them. Copies and fills are executed; kernels are declared by
//! the test with a signature and, if they are to do something, a closure. Sources are not looked at.

mod fate;
mod memory;
mod queue;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Access, Binding, Caps, CodeFacts, Command, Device, DeviceKind, Diagnostic, Dim3, Dispatch, Driver, Error,
    Features, HostBlock, Init, Library, Limits, Memory, MemorySlice, Pipeline, PipelineOptions, Primitives,
    Priority, Queue, Result, Signature, Source, StopsAt, Storage, Thermal, Use,
};

use fate::Fate;
pub use fate::Op;
use memory::{Meter, SimMemory};
use queue::{SimQueue, Stop, Submissions};

/// What a kernel does in place of compiled code.
pub type Body = Arc<dyn Fn(&Launch<'_>) -> Result<()> + Send + Sync>;

/// A driver with one device, itself.
pub struct Sim {
    shared: Arc<Shared>,
    caps: Caps,
    this: Weak<Sim>,
}

/// What queues and their threads know of the device.
struct Shared {
    kernels: Mutex<Vec<(Signature, Option<Body>)>>,
    commands: Mutex<Vec<Command>>,
    failing_launches: Mutex<Vec<(String, Error)>>,
    fate: Arc<Fate>,
    resets: AtomicU64,
    units: AtomicU32,
    held: AtomicBool,
    addressless: AtomicBool,
    queues: Mutex<Vec<Weak<Submissions>>>,
    clock: AtomicU64,
    priorities: Mutex<Vec<Priority>>,
    thermal: Mutex<Option<Thermal>>,
    stops: AtomicU64,
    submissions: AtomicU64,
    can_stop: bool,
    meter: Arc<Meter>,
}

impl Sim {
    /// A device called `sim`, whose memory is the host's.
    pub fn new() -> Arc<Self> {
        Self::with_caps(|_| {})
    }

    /// A device of that name.
    pub fn named(name: &str) -> Arc<Self> {
        Self::with_caps(|caps| caps.name = name.into())
    }

    /// A device with memory of its own and managed memory.
    pub fn discrete() -> Arc<Self> {
        Self::with_caps(|caps| {
            (caps.features.unified_memory, caps.features.managed_memory, caps.limits.wrap_granule) =
                (false, true, None);
        })
    }

    /// A device with some of the facts changed.
    pub fn with_caps(change: impl FnOnce(&mut Caps)) -> Arc<Self> {
        let mut caps = Caps {
            name: "sim".into(),
            kind: DeviceKind::Sim,
            limits: Limits {
                simdgroup_width: 32,
                max_threads_per_threadgroup: 1024,
                max_threadgroup_size: Dim3::new(1024, 1024, 64),
                max_threadgroup_memory: 32 * 1024,
                max_buffer_bytes: 1 << 30,
                total_memory: 1 << 32,
                working_set: 1 << 32,
                memory_granule: 256,
                wrap_granule: Some(4096),
                compute_units: 1,
                parallel_queues: 4,
                vector_bits: None,
            },
            features: Features {
                unified_memory: true,
                managed_memory: false,
                stops_at: StopsAt::Threadgroups,
                restarts: false,
                sees_counts: true,
                priorities: true,
                names_accesses: true,
                primitives: Primitives::NONE,
            },
        };
        change(&mut caps);
        let shared = Shared {
            kernels: Mutex::default(),
            commands: Mutex::default(),
            failing_launches: Mutex::default(),
            fate: Arc::default(),
            resets: AtomicU64::new(0),
            units: AtomicU32::new(caps.limits.compute_units),
            can_stop: caps.features.stops_at != StopsAt::Never,
            held: AtomicBool::new(false),
            addressless: AtomicBool::new(false),
            queues: Mutex::default(),
            clock: AtomicU64::new(0),
            priorities: Mutex::default(),
            thermal: Mutex::default(),
            stops: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
            meter: Meter::new(caps.limits.total_memory),
        };
        Arc::new_cyclic(|this| Self { shared: Arc::new(shared), caps, this: this.clone() })
    }

    /// Declare a kernel that does nothing. Sources compiled from now on have it.
    pub fn add_kernel(&self, signature: Signature) {
        self.shared.kernels.lock().push((signature, None));
    }

    /// Declare a kernel that runs `body` once per launch, on the queue's thread. A panic in it is a fault.
    pub fn add_kernel_with(
        &self,
        signature: Signature,
        body: impl Fn(&Launch<'_>) -> Result<()> + Send + Sync + 'static,
    ) {
        self.shared.kernels.lock().push((signature, Some(Arc::new(body))));
    }

    /// Every command that was submitted, in the order of submission.
    pub fn commands(&self) -> Vec<Command> {
        self.shared.commands.lock().clone()
    }

    /// How many submissions there were.
    pub fn submissions(&self) -> u64 {
        self.shared.submissions.load(Ordering::SeqCst)
    }

    /// Let go of the commands that were submitted so far, and of the memory that they name.
    pub fn forget_commands(&self) {
        self.shared.commands.lock().clear();
    }

    /// Make the next operation of this kind fail. Several calls fail several operations, in order.
    pub fn fail_next(&self, op: Op, error: Error) {
        self.fail_after(op, 0, error);
    }

    /// Let the next operation of this kind pass: what [`Sim::fail_next`] is told from now on is for those after it.
    pub fn pass_next(&self, op: Op) {
        self.shared.fate.pass(op, 1);
    }

    /// Make the next launch of this kernel, or of this label, end its submission in the error.
    pub fn fail_launch(&self, name: &str, error: Error) {
        self.shared.failing_launches.lock().push((name.into(), error));
    }

    /// Make an operation of this kind fail, behind those that are to fail already and `well` that do not.
    pub fn fail_after(&self, op: Op, well: usize, error: Error) {
        self.shared.fate.pass(op, well);
        self.shared.fate.fail(op, error);
    }

    /// Call `then` in the next operation of this kind, on its thread: before it does anything, or for [`Op::Reset`] when
    /// the device is back. So a test can put something in the middle of it.
    pub fn within_next(&self, op: Op, then: impl FnOnce() + Send + 'static) {
        self.shared.fate.within_next(op, Box::new(then));
    }

    /// Queues that are there: those that are not dropped, or have work.
    pub fn open_queues(&self) -> usize {
        self.shared.queues().len()
    }

    /// From now on the device is lost: what runs ends in [`Error::DeviceLost`] when it next looks whether it is stopped,
    /// all else ends in it at once, and so does looking at memory that is not shared. [`Device::reset`] brings it back.
    pub fn lose(&self, cause: &str) {
        let cause = Error::DeviceLost(cause.into());
        self.shared.fate.lose(&cause);
        self.shared.queues().iter().for_each(|queue| queue.backend().stop_running(&cause));
    }

    /// How often it was reset.
    pub fn resets(&self) -> u64 {
        self.shared.resets.load(Ordering::SeqCst)
    }

    /// How many compute units it is to use.
    pub fn units(&self) -> u32 {
        self.shared.units.load(Ordering::SeqCst)
    }

    /// From now on the device has a sensor of its own that says this.
    pub fn set_thermal(&self, thermal: Thermal) {
        *self.shared.thermal.lock() = Some(thermal);
    }

    /// Whether so many submissions have been told to stop.
    pub fn stopped(&self, count: u64) -> bool {
        self.shared.stops.load(Ordering::SeqCst) >= count
    }

    /// The priority of every queue that was opened, in order.
    pub fn queues(&self) -> Vec<Priority> {
        self.shared.priorities.lock().clone()
    }

    /// Allocations that the device has given out and not got back, and their bytes.
    pub fn memory(&self) -> (u64, u64) {
        self.shared.meter.used()
    }

    /// From now on the device has so much memory.
    pub fn limit_memory(&self, bytes: u64) {
        self.shared.meter.set_limit(bytes);
    }

    /// From now on new memory has no address for kernels.
    pub fn without_addresses(&self) {
        self.shared.addressless.store(true, Ordering::SeqCst);
    }

    /// From now on no submission begins; those that have begun run on.
    pub fn hold(&self) {
        let queues = self.shared.queues.lock();
        self.shared.held.store(true, Ordering::SeqCst);
        queues.iter().filter_map(Weak::upgrade).for_each(|queue| queue.hold());
    }

    /// Ends [`Sim::hold`].
    pub fn release(&self) {
        self.shared.held.store(false, Ordering::SeqCst);
        self.shared.queues().iter().for_each(|queue| queue.release());
    }
}

impl Shared {
    fn failure(&self, op: Op) -> Result<()> {
        self.fate.of(op)
    }

    /// The error that this launch was told to end in, once.
    fn launch_failure(&self, dispatch: &Dispatch) -> Result<()> {
        let kernel = &dispatch.pipeline.signature().name;
        let is_this =
            |name: &String| name == kernel || dispatch.label.as_ref().is_some_and(|l| l.name == *name);
        let mut failing = self.failing_launches.lock();
        match failing.iter().position(|(name, _)| is_this(name)) {
            Some(at) => Err(failing.remove(at).1),
            None => Ok(()),
        }
    }

    fn queues(&self) -> Vec<Arc<Submissions>> {
        self.queues.lock().iter().filter_map(Weak::upgrade).collect()
    }

    fn body(&self, kernel: &str) -> Option<Body> {
        let kernels = self.kernels.lock();
        kernels.iter().find(|(signature, _)| signature.name == kernel).and_then(|(_, body)| body.clone())
    }
}

impl Driver for Sim {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn devices(&self) -> Result<Vec<Arc<dyn Device>>> {
        Ok(self.this.upgrade().into_iter().map(|sim| sim as Arc<dyn Device>).collect())
    }
}

#[allow(unsafe_code)] // promises what the contract asks for
// SAFETY: each allocation is of its own; the queue is the simulator's.
unsafe impl Device for Sim {
    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn allocate(&self, bytes: u64, storage: Storage, init: Init) -> Result<Arc<dyn Memory>> {
        self.shared.failure(Op::Allocate)?;
        let max = self.caps.limits.max_buffer_bytes;
        if bytes > max {
            return Err(Error::invalid(format!(
                "a buffer of {bytes} bytes; `{}` allows {max}",
                self.caps.name
            )));
        }
        if storage == Storage::Managed && !self.caps.features.managed_memory {
            return Err(Error::unsupported("managed storage on the simulated device"));
        }
        let addressed = !self.shared.addressless.load(Ordering::SeqCst);
        Ok(Arc::new(SimMemory::new(bytes, storage, init, addressed, &self.shared)?))
    }

    fn available_memory(&self) -> u64 {
        self.shared.meter.available()
    }

    #[allow(unsafe_code)] // hands on the caller's promise
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        let granule =
            self.caps.limits.wrap_granule.ok_or_else(|| Error::unsupported("host memory in place"))?;
        let address = block.address.as_ptr() as u64;
        if !address.is_multiple_of(granule) || !block.bytes.is_multiple_of(granule) {
            let bytes = block.bytes;
            return Err(Error::invalid(format!(
                "host memory of {bytes} bytes at {address:#x}, not by {granule}"
            )));
        }
        // SAFETY: the caller promises what this asks for.
        Ok(Arc::new(unsafe { SimMemory::wrap(block) }))
    }

    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>> {
        source.expect_no_metal_library()?;
        self.shared.failure(Op::Compile)?;
        let kernels = self.shared.kernels.lock();
        let kernels = kernels.iter().map(|(signature, _)| signature.clone()).collect();
        let (fate, max_threads) = (self.shared.fate.clone(), self.caps.limits.max_threads_per_threadgroup);
        let stops_in_loops = self.caps.features.stops_at == StopsAt::Loops;
        Ok(Arc::new(SimLibrary { kernels, max_threads, stops_in_loops, fate }))
    }

    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>> {
        if priority != Priority::Normal && !self.caps.features.priorities {
            return Err(Error::unsupported("the sim device was made without priorities"));
        }
        self.shared.priorities.lock().push(priority);
        self.shared.failure(Op::Queue)?;
        let queue = SimQueue::start(self.shared.clone())?;
        let mut queues = self.shared.queues.lock();
        queues.retain(|queue| queue.strong_count() > 0);
        queues.push(Arc::downgrade(queue.submissions()));
        if self.shared.held.load(Ordering::SeqCst) {
            queue.submissions().hold();
        }
        Ok(Arc::new(queue))
    }

    fn clock_ns(&self) -> u64 {
        self.shared.now_ns()
    }

    fn use_units(&self, units: u32) -> Result<()> {
        self.shared.fate.of(Op::Units)?;
        self.shared.units.store(units, Ordering::SeqCst);
        Ok(())
    }

    fn thermal(&self) -> Result<Thermal> {
        let told = *self.shared.thermal.lock();
        told.ok_or_else(|| Error::unsupported("the sim device has no sensor"))
    }

    fn reset(&self) -> Result<()> {
        self.shared.fate.injected(Op::Reset)?;
        let cause = Error::DeviceLost("the device was reset".into());
        self.shared.queues().iter().for_each(|queue| queue::abandon(queue, &cause));
        self.shared.meter.forget();
        self.shared.fate.restore();
        self.shared.resets.fetch_add(1, Ordering::SeqCst);
        self.shared.fate.interrupt(Op::Reset);
        Ok(())
    }
}

impl Shared {
    /// A clock that goes on by one with each look at it.
    fn now_ns(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

struct SimLibrary {
    kernels: Vec<Signature>,
    max_threads: u32,
    stops_in_loops: bool,
    fate: Arc<Fate>,
}

impl Library for SimLibrary {
    fn kernels(&self) -> &[Signature] {
        &self.kernels
    }

    fn warnings(&self) -> &[Diagnostic] {
        &[]
    }

    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>> {
        self.fate.of(Op::Pipeline)?;
        if *options != PipelineOptions::default() {
            return Err(Error::unsupported("the sim driver does not specialise kernels"));
        }
        let Some(signature) = self.kernels.iter().find(|signature| signature.name == kernel) else {
            let names: Vec<&str> = self.kernels.iter().map(|signature| signature.name.as_str()).collect();
            return Err(Error::invalid(format!("no kernel `{kernel}`; there are: {}", names.join(", "))));
        };
        let mut signature = signature.clone();
        signature.code.get_or_insert(CodeFacts::default());
        let other =
            SimPipeline { signature: signature.clone(), max_threads: self.max_threads, stoppable: None };
        let stoppable = self.stops_in_loops.then(|| Arc::new(other));
        Ok(Arc::new(SimPipeline { signature, max_threads: self.max_threads, stoppable }))
    }
}

struct SimPipeline {
    signature: Signature,
    max_threads: u32,
    /// The same kernel once more, as drivers have it that compile code which looks for stops apart.
    stoppable: Option<Arc<SimPipeline>>,
}

impl Pipeline for SimPipeline {
    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn max_threads_per_threadgroup(&self) -> u32 {
        self.signature.max_threads_per_threadgroup.unwrap_or(self.max_threads).min(self.max_threads)
    }

    fn prepare(&self, _group: Dim3) -> Result<()> {
        Ok(())
    }

    fn stoppable(&self) -> Option<Arc<dyn Pipeline>> {
        self.stoppable.clone().map(|pipeline| pipeline as Arc<dyn Pipeline>)
    }
}

/// A launch as a kernel's closure sees it.
pub struct Launch<'a> {
    dispatch: &'a Dispatch,
    threads: Dim3,
    clock: &'a AtomicU64,
    stop: &'a Stop,
}

#[allow(unsafe_code)] // stands in for the device
impl Launch<'_> {
    /// An error once the launch is to end.
    ///
    /// # Errors
    /// What [`Queue::stop`] was given.
    pub fn stopped(&self) -> Result<()> {
        self.stop.check()
    }

    /// Let the launch take so long by the device's clock.
    pub fn take_ns(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    /// Threads of the grid.
    pub fn threads(&self) -> Dim3 {
        self.threads
    }

    /// Threads of a threadgroup.
    pub fn group(&self) -> Dim3 {
        self.dispatch.group
    }

    /// The bytes of an argument; zeroes for threadgroup memory.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such argument; what the memory answers.
    pub fn bytes(&self, index: usize) -> Result<Vec<u8>> {
        match self.dispatch.bindings.get(index) {
            Some(Binding::Memory(slice)) => {
                let mut bytes = vec![0; slice.len as usize];
                // SAFETY: the slice is within the memory; this thread is the device, and the runtime lets the
                // host not write meanwhile. Tests give their kernels no racing streams.
                unsafe { slice.memory.read(slice.offset, &mut bytes) }?;
                Ok(bytes)
            }
            Some(Binding::Bytes(bytes)) => Ok(bytes.to_vec()),
            Some(Binding::Threadgroup(len)) => Ok(vec![0; *len as usize]),
            None => Err(Error::invalid(format!("the launch has no argument {index}"))),
        }
    }

    /// The first bytes of what the launch uses at an address.
    ///
    /// # Errors
    /// `InvalidArgument` when the launch names no memory that has these bytes; what the memory answers.
    pub fn bytes_at(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        let (slice, offset) = self.used(address, len, Access::Read)?;
        let mut bytes = vec![0; len];
        // SAFETY: as for `bytes`; the range is within the slice.
        unsafe { slice.memory.read(offset, &mut bytes) }?;
        Ok(bytes)
    }

    /// Set bytes of what the launch uses at an address and may write.
    ///
    /// # Errors
    /// As [`Launch::bytes_at`].
    pub fn write_at(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let (slice, offset) = self.used(address, bytes.len(), Access::ReadWrite)?;
        // SAFETY: as for `bytes`; the range is within the slice.
        unsafe { slice.memory.write(offset, bytes) }
    }

    /// The memory of a range of addresses, and the range's offset in it.
    fn used(&self, address: u64, len: usize, access: Access) -> Result<(&MemorySlice, u64)> {
        let range = |used: &'_ Use| {
            let offset = address.checked_sub(used.slice.memory.gpu_address()?)?;
            let within =
                offset >= used.slice.offset && offset + len as u64 <= used.slice.offset + used.slice.len;
            (within && (access == Access::Read || used.access == access)).then_some(offset)
        };
        let found = self.dispatch.uses.iter().find_map(|used| Some((&used.slice, range(used)?)));
        found.ok_or_else(|| Error::invalid(format!("the launch uses no {len} bytes at {address:#x}")))
    }

    /// Set the first bytes of a buffer argument.
    ///
    /// # Errors
    /// `InvalidArgument` when the argument is no buffer of that size; what the memory answers.
    pub fn write(&self, index: usize, bytes: &[u8]) -> Result<()> {
        match self.dispatch.bindings.get(index) {
            Some(Binding::Memory(slice)) if bytes.len() as u64 <= slice.len => {
                // SAFETY: as for `bytes`; the range is within the slice.
                unsafe { slice.memory.write(slice.offset, bytes) }
            }
            _ => Err(Error::invalid(format!("argument {index} is not a buffer of {} bytes", bytes.len()))),
        }
    }
}
