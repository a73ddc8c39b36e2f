//! A simulated driver: records commands, injects faults, and blocks on request.
//!
//! [`Sim`] implements the driver contract exactly, so that tests of the runtime reach every state of a real device without races:
//! [`Sim::hold`] stops all queues before their next submission, [`Sim::fail_next`] makes one operation fail, [`Sim::lose`] all of them.
//! Copies and fills are executed. Kernels are declared by the test, with a signature and optionally a closure. Sources are ignored.

mod fate;
mod hardware;
mod memory;
mod queue;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use elinvar_driver::sync::Mutex;
use elinvar_driver::{
    Access, Binding, Caps, CodeFacts, Command, Device, DeviceKind, Diagnostic, Dim3, Dispatch, Driver,
    Energy, Error, Features, HostBlock, Init, Library, Limits, Memory, MemorySlice, Pipeline,
    PipelineOptions, Primitives, Priority, Queue, Readings, Result, Signature, Source, StopsAt, Storage,
    Thermal, Use,
};

use fate::Fate;
pub use fate::Op;
use hardware::Hardware;
use memory::{Meter, SimMemory};
use queue::{SimQueue, Stop, Submissions};

/// Body of a kernel.
pub type Body = Arc<dyn Fn(&Launch<'_>) -> Result<()> + Send + Sync>;

/// A driver with one device, which is itself.
pub struct Sim {
    shared: Arc<Shared>,
    caps: Caps,
    this: Weak<Sim>,
}

/// State shared with queues and their threads.
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
    hardware: Hardware,
    stops: AtomicU64,
    submissions: AtomicU64,
    can_stop: bool,
    meter: Arc<Meter>,
}

impl Sim {
    /// A device named `sim` with unified memory.
    pub fn new() -> Arc<Self> {
        Self::with_caps(|_| {})
    }

    /// A device with that name.
    pub fn named(name: &str) -> Arc<Self> {
        Self::with_caps(|caps| caps.name = name.into())
    }

    /// A device with dedicated memory and managed memory.
    pub fn discrete() -> Arc<Self> {
        Self::with_caps(|caps| {
            (caps.features.unified_memory, caps.features.managed_memory, caps.limits.wrap_granule) =
                (false, true, None);
        })
    }

    /// A device with modified caps.
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
                tensor_products: false,
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
            hardware: Hardware::default(),
            stops: AtomicU64::new(0),
            submissions: AtomicU64::new(0),
            meter: Meter::new(caps.limits.total_memory),
        };
        Arc::new_cyclic(|this| Self { shared: Arc::new(shared), caps, this: this.clone() })
    }

    /// Declares a kernel without effect, for sources compiled from now on.
    pub fn add_kernel(&self, signature: Signature) {
        self.shared.kernels.lock().push((signature, None));
    }

    /// Declares a kernel that runs `body` once per launch, on the queue's thread. A panic in `body` is a fault.
    pub fn add_kernel_with(
        &self,
        signature: Signature,
        body: impl Fn(&Launch<'_>) -> Result<()> + Send + Sync + 'static,
    ) {
        self.shared.kernels.lock().push((signature, Some(Arc::new(body))));
    }

    /// All submitted commands, in order.
    pub fn commands(&self) -> Vec<Command> {
        self.shared.commands.lock().clone()
    }

    /// Number of submissions.
    pub fn submissions(&self) -> u64 {
        self.shared.submissions.load(Ordering::SeqCst)
    }

    /// Drops the recorded commands, and the memory that they refer to.
    pub fn forget_commands(&self) {
        self.shared.commands.lock().clear();
    }

    /// Makes the next operation of this kind fail. Several calls affect several operations, in order.
    pub fn fail_next(&self, op: Op, error: Error) {
        self.fail_after(op, 0, error);
    }

    /// Makes the next operation of this kind succeed; later calls of [`Sim::fail_next`] affect those after it.
    pub fn pass_next(&self, op: Op) {
        self.shared.fate.pass(op, 1);
    }

    /// Makes the next launch of this kernel, or with this label, end its submission in the error.
    pub fn fail_launch(&self, name: &str, error: Error) {
        self.shared.failing_launches.lock().push((name.into(), error));
    }

    /// Makes an operation of this kind fail, after the injected outcomes so far and `well` successes.
    pub fn fail_after(&self, op: Op, well: usize, error: Error) {
        self.shared.fate.pass(op, well);
        self.shared.fate.fail(op, error);
    }

    /// Calls `then` in the next operation of this kind, on its thread, before it does anything; for [`Op::Reset`], after the
    /// device is restored. This allows a test to act in the middle of an operation.
    pub fn within_next(&self, op: Op, then: impl FnOnce() + Send + 'static) {
        self.shared.fate.within_next(op, Box::new(then));
    }

    /// Number of queues that have not been dropped, or have work.
    pub fn open_queues(&self) -> usize {
        self.shared.queues().len()
    }

    /// Loses the device: running work ends in [`Error::DeviceLost`] at its next stop check, all other work at once, and accesses to
    /// memory that is not shared fail. [`Device::reset`] restores it.
    pub fn lose(&self, cause: &str) {
        let cause = Error::DeviceLost(cause.into());
        self.shared.fate.lose(&cause);
        self.shared.queues().iter().for_each(|queue| queue.backend().stop_running(&cause));
    }

    /// Number of resets.
    pub fn resets(&self) -> u64 {
        self.shared.resets.load(Ordering::SeqCst)
    }

    /// Number of compute units to use.
    pub fn units(&self) -> u32 {
        self.shared.units.load(Ordering::SeqCst)
    }

    /// Gives the device a sensor that reports this level.
    pub fn set_thermal(&self, thermal: Thermal) {
        *self.shared.thermal.lock() = Some(thermal);
    }

    /// Gives the device readings, which this function returns.
    pub fn set_readings(&self, read: impl Fn() -> Result<Readings> + Send + Sync + 'static) {
        self.shared.hardware.set_readings(Box::new(read));
    }

    /// Gives the device an energy counter, which this function returns.
    pub fn set_energy(&self, read: impl Fn() -> Result<Energy> + Send + Sync + 'static) {
        self.shared.hardware.set_energy(Box::new(read));
    }

    /// Whether at least this many submissions have been stopped.
    pub fn stopped(&self, count: u64) -> bool {
        self.shared.stops.load(Ordering::SeqCst) >= count
    }

    /// Priorities of all queues that were opened, in order.
    pub fn queues(&self) -> Vec<Priority> {
        self.shared.priorities.lock().clone()
    }

    /// Number and total size in bytes of live allocations.
    pub fn memory(&self) -> (u64, u64) {
        self.shared.meter.used()
    }

    /// Sets the amount of memory.
    pub fn limit_memory(&self, bytes: u64) {
        self.shared.meter.set_limit(bytes);
    }

    /// Makes new memory have no device address.
    pub fn without_addresses(&self) {
        self.shared.addressless.store(true, Ordering::SeqCst);
    }

    /// Stops queues before their next submission; running submissions continue.
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

    /// Takes the injected error of this launch.
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
// SAFETY: allocations are separate, and the queues are those of the simulator.
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
        // SAFETY: guaranteed by the caller.
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

    fn readings(&self) -> Result<Readings> {
        self.shared.hardware.readings()
    }

    fn energy(&self) -> Result<Energy> {
        self.shared.hardware.energy()
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
    /// A clock that advances by one at each reading.
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
    /// A second pipeline of the same kernel, as in drivers that compile stoppable code separately.
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

/// A launch, for a kernel's closure.
pub struct Launch<'a> {
    dispatch: &'a Dispatch,
    threads: Dim3,
    clock: &'a AtomicU64,
    stop: &'a Stop,
}

#[allow(unsafe_code)] // stands in for the device
impl Launch<'_> {
    /// An error if the launch was stopped.
    ///
    /// # Errors
    /// The cause given to [`Queue::stop`].
    pub fn stopped(&self) -> Result<()> {
        self.stop.check()
    }

    /// Makes the launch take this long on the device's clock.
    pub fn take_ns(&self, ns: u64) {
        self.clock.fetch_add(ns, Ordering::Relaxed);
    }

    /// Grid size in threads.
    pub fn threads(&self) -> Dim3 {
        self.threads
    }

    /// Threadgroup size in threads.
    pub fn group(&self) -> Dim3 {
        self.dispatch.group
    }

    /// The bytes of an argument; zeros for threadgroup memory.
    ///
    /// # Errors
    /// `InvalidArgument` if the argument does not exist; errors of the memory.
    pub fn bytes(&self, index: usize) -> Result<Vec<u8>> {
        match self.dispatch.bindings.get(index) {
            Some(Binding::Memory(slice)) => {
                let mut bytes = vec![0; slice.len as usize];
                // SAFETY: the slice is within the memory. This thread is the device, and the runtime prevents writes by the host meanwhile.
                // Tests do not use streams that race.
                unsafe { slice.memory.read(slice.offset, &mut bytes) }?;
                Ok(bytes)
            }
            Some(Binding::Bytes(bytes)) => Ok(bytes.to_vec()),
            Some(Binding::Threadgroup(len)) => Ok(vec![0; *len as usize]),
            Some(Binding::Unbound) => Ok(Vec::new()),
            None => Err(Error::invalid(format!("the launch has no argument {index}"))),
        }
    }

    /// Reads bytes at an address in memory that the launch uses.
    ///
    /// # Errors
    /// `InvalidArgument` if the launch uses no memory with these bytes; errors of the memory.
    pub fn bytes_at(&self, address: u64, len: usize) -> Result<Vec<u8>> {
        let (slice, offset) = self.used(address, len, Access::Read)?;
        let mut bytes = vec![0; len];
        // SAFETY: as for `bytes`; the range is within the slice.
        unsafe { slice.memory.read(offset, &mut bytes) }?;
        Ok(bytes)
    }

    /// Writes bytes at an address in memory that the launch uses and may write.
    ///
    /// # Errors
    /// As [`Launch::bytes_at`].
    pub fn write_at(&self, address: u64, bytes: &[u8]) -> Result<()> {
        let (slice, offset) = self.used(address, bytes.len(), Access::ReadWrite)?;
        // SAFETY: as for `bytes`; the range is within the slice.
        unsafe { slice.memory.write(offset, bytes) }
    }

    /// The memory of an address range, and the offset in it.
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

    /// Writes the first bytes of a buffer argument.
    ///
    /// # Errors
    /// `InvalidArgument` if the argument is not a buffer of at least that size; errors of the memory.
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
