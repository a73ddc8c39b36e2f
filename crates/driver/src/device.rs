//! The traits of the contract: driver, device, library, pipeline, queue.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::{
    CacheLookups, Caps, Capture, CollectiveLibrary, Command, Diagnostic, Dim3, Energy, Error, Event,
    FunctionConstant, HostBlock, Init, Link, Log, LogKernel, Memory, PipelineOptions, Place, Primitive,
    Readings, ResidentThreads, Result, Signature, Source, Storage, Thermal, Timeline, UnsupportedKernel,
};

/// A backend for one kind of hardware.
pub trait Driver: Send + Sync {
    /// Short name: `cpu`, `cuda`, `metal`, `sim`.
    fn name(&self) -> &'static str;

    /// Lists the devices that are present. Without hardware the list is empty.
    ///
    /// # Errors
    /// Hardware is present and does not respond; any variant.
    fn devices(&self) -> Result<Vec<Arc<dyn Device>>>;

    /// The reason why there is no device, for messages. `None` by default.
    fn absence(&self) -> Option<String> {
        None
    }
}

/// A device that runs kernels.
///
/// # Safety
/// Safe code relies on three properties. Memory that [`Device::allocate`] returns is disjoint from all other memory for its
/// lifetime. The queues keep the contract of [`Queue`]. A pipeline with [`PipelineOptions::checked`] accesses the memory of its
/// launch only.
#[allow(unsafe_code)] // safe code relies on the implementation
pub unsafe trait Device: Send + Sync + Any {
    /// Identity, limits and features. Constant for the lifetime of the device.
    fn caps(&self) -> &Caps;

    /// Further properties for display, as pairs of name and value. Empty by default.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// Allocates `bytes` bytes, aligned to at least 256 bytes. A size of 0 is allowed.
    ///
    /// # Errors
    /// `OutOfMemory` with the requested and the available size; `InvalidArgument` above [`Limits::max_buffer_bytes`](crate::Limits::max_buffer_bytes);
    /// `Unsupported` for a storage mode that the device lacks.
    fn allocate(&self, bytes: u64, storage: Storage, init: Init) -> Result<Arc<dyn Memory>>;

    /// Estimate of the memory that can be allocated now, in bytes.
    fn available_memory(&self) -> u64;

    /// Imports host memory without a copy. Dropping the last reference to the returned memory drops the block's owner.
    /// Unsupported by default; [`Limits::wrap_granule`](crate::Limits::wrap_granule) is `Some` if it is supported.
    ///
    /// # Safety
    /// The block must be readable and writable and must not move until its owner is dropped. Until then it may be accessed
    /// through the returned memory only.
    ///
    /// # Errors
    /// `Unsupported`; `InvalidArgument` if address or length is not a multiple of [`Limits::wrap_granule`](crate::Limits::wrap_granule).
    #[allow(unsafe_code)] // declares an unsafe method
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        let HostBlock { bytes, .. } = block;
        let name = &self.caps().name;
        Err(Error::unsupported(format!("device `{name}` cannot use {bytes} bytes of host memory in place")))
    }

    /// Compiles a source. The whole source is validated; code generation may be deferred to [`Library::pipeline`] and
    /// [`Pipeline::prepare`].
    ///
    /// # Errors
    /// `Compile` with the diagnostics.
    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>>;

    /// Creates a queue, independent of all others.
    ///
    /// # Errors
    /// `Unsupported` for a priority other than [`Priority::Normal`] where [`Features::priorities`](crate::Features::priorities) is false.
    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>>;

    /// Creates a queue of normal priority.
    ///
    /// # Errors
    /// As [`Device::queue_with`].
    fn queue(&self) -> Result<Arc<dyn Queue>> {
        self.queue_with(Priority::Normal)
    }

    /// Creates a queue for launches of resident kernels ([`Signature::inbox`]), one at a time: they run until the host stops them, and
    /// work of other queues goes on meanwhile. A device that lets them sleep wakes them when the doorbell is rung. Once a busy threadgroup
    /// has yielded, the device rings it, too, so that kernels with one doorbell can pass messages.
    ///
    /// # Errors
    /// `Unsupported` with the reason, by default.
    fn resident_queue(&self, _threads: ResidentThreads) -> Result<Arc<dyn Queue>> {
        Err(Error::unsupported(format!("device `{}` does not run resident kernels", self.caps().name)))
    }

    /// Rejects [`Command::ExecuteCommands`] if the device's queues do not have it.
    ///
    /// # Errors
    /// `Unsupported` with the reason, by default.
    fn expect_executes_commands(&self) -> Result<()> {
        Err(Error::unsupported(format!(
            "device `{}` does not execute indirect command buffers",
            self.caps().name
        )))
    }

    /// Rejects [`Command::LaunchNested`] if the device's queues do not have it.
    ///
    /// # Errors
    /// `Unsupported` with the reason, by default.
    fn expect_nested_launches(&self) -> Result<()> {
        Err(Error::unsupported(format!("kernels on device `{}` cannot launch kernels", self.caps().name)))
    }

    /// Rejects a primitive of [`Features::primitives`](crate::Features::primitives) for whose shape the library has no algorithm. Accepts
    /// all by default.
    ///
    /// # Errors
    /// `Unsupported` with the reason.
    fn expect_primitive(&self, _primitive: &Primitive) -> Result<()> {
        Ok(())
    }

    /// Creates an event with value 0. By default a [`Timeline`] in host memory.
    ///
    /// # Errors
    /// The driver's, if it cannot create another event.
    fn event(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(Timeline::new()))
    }

    /// Current time of the device's clock in nanoseconds, comparable with [`Timing`].
    fn clock_ns(&self) -> u64;

    /// Bound of the error in nanoseconds with which [`Timing`] and timestamps are converted to the clock of [`Device::clock_ns`]. 0 by
    /// default, for a device whose times are readings of that clock.
    fn timing_error_ns(&self) -> u64 {
        0
    }

    /// Limits execution to `units` compute units, from 1 to [`Limits::compute_units`](crate::Limits::compute_units). Running work is not affected.
    ///
    /// # Errors
    /// `Unsupported` by default.
    fn use_units(&self, _units: u32) -> Result<()> {
        Err(Error::unsupported(format!("device `{}` always uses all of its compute units", self.caps().name)))
    }

    /// Thermal state according to the device's own sensor. Only the CPU driver, and that of a GPU on the processor's chip, may report the
    /// host's.
    ///
    /// # Errors
    /// `Unsupported` with the reason if there is no sensor, which is the default.
    fn thermal(&self) -> Result<Thermal> {
        Err(Error::unsupported(format!("the temperature of device `{}` is not measured", self.caps().name)))
    }

    /// What the hardware reports about itself, read now. Takes up to milliseconds.
    ///
    /// # Errors
    /// `Unsupported` with the reason if nothing can be read, which is the default. A single quantity that cannot be read is in the list with its
    /// reason.
    fn readings(&self) -> Result<Readings> {
        Err(Error::unsupported(format!("the hardware of device `{}` is not measured", self.caps().name)))
    }

    /// Lookups in the persistent cache of compiled code since the device was opened. `None` without a cache, which is the default.
    fn cache_lookups(&self) -> Option<CacheLookups> {
        None
    }

    /// Counts events of the device from now on, such as instructions and cache misses, for [`Device::readings`]. Repeated calls have no effect.
    ///
    /// # Errors
    /// `Unsupported` with the reason if no event can be counted, which is the default.
    fn count_events(&self) -> Result<()> {
        Err(Error::unsupported(format!("events of device `{}` are not counted", self.caps().name)))
    }

    /// The counter of the energy that the device has used, read now. Work of other processes and idle power are included.
    ///
    /// # Errors
    /// `Unsupported` with the reason if there is no counter or it may not be read, which is the default.
    fn energy(&self) -> Result<Energy> {
        Err(Error::unsupported(format!("the energy of device `{}` is not measured", self.caps().name)))
    }

    /// How a [`Command::Copy`] of this device's queues transfers bytes between its memory and that of `other`, in either
    /// direction. `None` if it cannot, which is the default.
    fn reaches(&self, _other: &dyn Device) -> Option<Reach> {
        None
    }

    /// Allows kernels of this device to access memory of `other` from now on. Repeated calls have no effect.
    ///
    /// # Errors
    /// `Unsupported` with the reason, by default.
    fn peer_access(&self, other: &dyn Device) -> Result<()> {
        Err(Error::unsupported(format!(
            "kernels of device `{}` cannot access memory of device `{}`",
            self.caps().name,
            other.caps().name
        )))
    }

    /// The vendor's library of collectives.
    ///
    /// # Errors
    /// `Unsupported` with the reason, by default.
    fn collectives(&self) -> Result<Arc<dyn CollectiveLibrary>> {
        Err(Error::unsupported(format!("device `{}` has no library of collectives", self.caps().name)))
    }

    /// Where the device is in the machine. Unknown by default.
    fn place(&self) -> Place {
        Place::default()
    }

    /// The connection to another device, if the driver knows it. `None` by default.
    fn link(&self, _other: &dyn Device) -> Option<Link> {
        None
    }

    /// Starts a GPU trace of the device's work, for the vendor's tools, to a new file at `path`. It contains the work that begins
    /// and ends before the capture is ended.
    ///
    /// # Errors
    /// `Unsupported` by default; `InvalidArgument` if `path` exists or another capture is in progress.
    fn capture(&self, path: &Path) -> Result<Box<dyn Capture>> {
        let (name, path) = (&self.caps().name, path.display());
        Err(Error::unsupported(format!("device `{name}` does not support captures: capture to `{path}`")))
    }

    /// The log to which kernels write lines. `None`, the default, if the device does not support log calls; kernels with log calls are
    /// then `Unsupported`.
    fn log(&self) -> Option<&Arc<Log>> {
        None
    }

    /// The [`Error::DeviceLost`] with which the device rejects all work, if it is lost. `None` by default.
    fn lost(&self) -> Option<Error> {
        None
    }

    /// Recovers a device that was lost or makes no progress. After it returns:
    ///
    /// - All pending submissions have ended, in [`Error::DeviceLost`] unless they had completed. That error is then the failure
    ///   of their queues, until it is acknowledged, and of the events that they would have signaled.
    /// - Queues, memory, libraries and pipelines remain valid.
    /// - [`Storage::Shared`] memory has its content, including partial results of the ended submissions. All other memory has
    ///   unspecified content until it is written, unless the device restarts by itself ([`Features::restarts`](crate::Features::restarts)): then all memory
    ///   has its content.
    ///
    /// Unsupported by default.
    ///
    /// # Errors
    /// `Unsupported` with the reason; `DeviceLost` if the device does not recover.
    fn reset(&self) -> Result<()> {
        Err(Error::unsupported(format!("device `{}` cannot be reset", self.caps().name)))
    }
}

/// Path of a copy between two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// Peer to peer, over a link or the bus.
    Peer,
    /// Staged through host memory by the driver.
    Staged,
}

/// A compiled source.
pub trait Library: Send + Sync + Any {
    /// Signatures of the kernels, in source order, with unique names. Arguments that depend on a function constant are included
    /// here, and in [`Pipeline::signature`] only if they exist with its constants.
    fn kernels(&self) -> &[Signature];

    /// Valid kernels that the device does not support, in source order. They are not in [`Library::kernels`], and a pipeline of
    /// one is `Unsupported`. Empty by default.
    fn unsupported(&self) -> &[UnsupportedKernel] {
        &[]
    }

    /// Warnings of the compilation.
    fn warnings(&self) -> &[Diagnostic];

    /// Function constants that the source declares, in source order. Empty by default.
    fn constants(&self) -> &[FunctionConstant] {
        &[]
    }

    /// Creates a pipeline: the kernel of this name, specialized. It can be dispatched after [`Pipeline::prepare`] has succeeded.
    ///
    /// # Errors
    /// `InvalidArgument` if there is no such kernel or constant, with a list of those that exist; `Compile`; `Unsupported`.
    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>>;
}

/// A kernel that can be dispatched.
pub trait Pipeline: Send + Sync + Any {
    /// Signature of the kernel, with [`Signature::code`] if the driver knows it.
    fn signature(&self) -> &Signature;

    /// Statically declared threadgroup memory in bytes. That of [`Signature::code`] by default.
    fn threadgroup_memory(&self) -> u64 {
        self.signature().code.map_or(0, |code| code.threadgroup_memory)
    }

    /// The LLVM IR of one thread, from which a kernel is analyzed.
    ///
    /// # Errors
    /// `Unsupported` with the reason if the driver does not have it, as by default.
    fn thread_ir(&self) -> Result<String> {
        Err(Error::unsupported("the driver does not have the code of one thread"))
    }

    /// Maximum number of threads of a threadgroup of this kernel, at most [`Limits::max_threads_per_threadgroup`](crate::Limits::max_threads_per_threadgroup).
    fn max_threads_per_threadgroup(&self) -> u32;

    /// Prepares the kernel for threadgroups of this size; a driver that compiles per size does so here. Repeated calls must be cheap.
    ///
    /// # Errors
    /// `Compile`; `Unsupported` with the source line; `InvalidArgument` for a size above the limit.
    fn prepare(&self, group: Dim3) -> Result<()>;

    /// As [`Pipeline::prepare`], for dispatches whose largest memory has `bytes` bytes ([`Dispatch::largest_memory`]); for a driver
    /// whose code depends on it. Called before every dispatch ([`Dispatch::prepare`]).
    ///
    /// # Errors
    /// As [`Pipeline::prepare`].
    ///
    /// [`Dispatch::largest_memory`]: crate::Dispatch::largest_memory
    /// [`Dispatch::prepare`]: crate::Dispatch::prepare
    fn prepare_for(&self, group: Dim3, _bytes: u64) -> Result<()> {
        self.prepare(group)
    }

    /// The largest number of threadgroups of this size, with `threadgroup_bytes` bytes of dynamic threadgroup memory each, of a
    /// [cooperative](Signature::is_cooperative) launch: all of them are resident at once. Prepares the kernel.
    ///
    /// # Errors
    /// As [`Pipeline::prepare`]; `Unsupported` with the reason, by default, for a driver without cooperative launches.
    fn resident_groups(&self, _group: Dim3, _threadgroup_bytes: u64) -> Result<u64> {
        Err(Error::unsupported("the driver has no cooperative launches"))
    }

    /// Waits until optimized code for threadgroups of this size is ready; later dispatches use it. As [`Pipeline::prepare`] by default.
    /// If optimization exceeds a resource limit of the compiler, the code remains unoptimized. No effect for [`Tier::Quick`](crate::Tier::Quick).
    ///
    /// # Errors
    /// As [`Pipeline::prepare`].
    fn optimize(&self, group: Dim3) -> Result<()> {
        self.prepare(group)
    }

    /// Whether a dispatch with threadgroups of this size would run optimized code; `None` if the size has not been prepared. `Some(true)`
    /// by default, for devices with one tier of code.
    fn is_optimized(&self, _group: Dim3) -> Option<bool> {
        Some(true)
    }

    /// The kernel's log calls, if it writes lines to the device's ring. `None` by default. The ring is read while dispatches are pending,
    /// and before a submission's `done`.
    fn log_kernel(&self) -> Option<&Arc<LogKernel>> {
        None
    }

    /// A variant of the kernel that [`Queue::stop`] can end within loops, for work with a deadline. `None` if there is no other
    /// variant, or the device does not support it.
    fn stoppable(&self) -> Option<Arc<dyn Pipeline>> {
        None
    }
}

impl fmt::Debug for dyn Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.signature().name)
    }
}

/// Scheduling priority of a queue. Running work is not preempted. Devices without [`Features::priorities`](crate::Features::priorities) support
/// [`Priority::Normal`] only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Priority {
    /// Scheduled after all others.
    Low,
    /// The default.
    #[default]
    Normal,
    /// Scheduled before all others.
    High,
}

/// Identifies a submission within its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Submission(pub u64);

/// Begin and end of a submission's execution, in nanoseconds on the device's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Time when the first command began.
    pub start_ns: u64,
    /// Time when the last command ended.
    pub end_ns: u64,
}

/// The completion callback of a submission, called at most once; see point 4 of the [contract](crate#execution-contract).
///
/// It is a boxed closure, or a shared object that the caller reuses, which avoids an allocation.
pub struct Done(Option<Callee>);

enum Callee {
    Closure(Box<dyn FnOnce(Result<Timing>) + Send>),
    Shared(Arc<dyn OnCompleted>),
}

/// Receives the result of a submission. One object serves one submission at a time.
pub trait OnCompleted: Send + Sync {
    /// Called when the submission has ended.
    fn completed(self: Arc<Self>, result: Result<Timing>);

    /// Called when the driver drops the callback without a result: the submission was rejected or abandoned.
    fn dropped(self: Arc<Self>);
}

impl Done {
    /// Creates a callback from a closure.
    pub fn new(closure: impl FnOnce(Result<Timing>) + Send + 'static) -> Self {
        Self(Some(Callee::Closure(Box::new(closure))))
    }

    /// Creates a callback from a shared object, without an allocation.
    pub fn shared(handler: Arc<dyn OnCompleted>) -> Self {
        Self(Some(Callee::Shared(handler)))
    }

    /// Reports the result of the submission.
    pub fn call(mut self, result: Result<Timing>) {
        match self.0.take() {
            Some(Callee::Closure(closure)) => closure(result),
            Some(Callee::Shared(handler)) => handler.completed(result),
            None => {}
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if let Some(Callee::Shared(handler)) = self.0.take() {
            handler.dropped();
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Done")
    }
}

/// An ordered list of submissions. Pending submissions complete after the last reference is dropped.
///
/// # Safety
/// After [`Done`] has been called, no submitted work may access the submission's memory; the host may then access it.
#[allow(unsafe_code)] // safe code relies on the implementation
pub unsafe trait Queue: Send + Sync + Any {
    /// Appends commands; does not block until they have run. An empty list is allowed and ends when the preceding submissions
    /// have ended.
    ///
    /// # Errors
    /// The driver's. `done` is then dropped without a call.
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission>;

    /// Removes a submission that has not begun, or is blocked on an event before its first operation. Its `done` receives
    /// [`Error::Cancelled`]. Returns `false`, without effect, if the submission has begun or ended.
    fn cancel(&self, submission: Submission) -> bool;

    /// Ends a submission with `cause`: in submission order if it has not begun; otherwise at a point of [`Features::stops_at`](crate::Features::stops_at),
    /// or when it is blocked on an event. Its effects so far remain, and `cause` is the queue's failure. Returns `false`, without
    /// effect, if the submission has ended. A submission that is about to end may still succeed.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot stop running work.
    fn stop(&self, _submission: Submission, _cause: Error) -> Result<bool> {
        Err(Error::unsupported("this device cannot stop running work"))
    }

    /// Spins until `is_over` returns true, which tests for the end of a submission and for a timeout. A driver that polls for
    /// completions may poll in between, and call callbacks of this queue; the caller holds no lock.
    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        while !is_over() {}
    }

    /// Clears and returns the queue's failure, so that later submissions run; `None` if it has not failed.
    fn acknowledge(&self) -> Option<Error>;
}
