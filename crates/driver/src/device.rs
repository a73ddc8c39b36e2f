//! The traits of the contract: driver, device, library, pipeline, queue.

use std::any::Any;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use crate::{
    Caps, Capture, Command, Diagnostic, Dim3, Error, Event, FunctionConstant, HostBlock, Init, Memory,
    PipelineOptions, Result, Signature, Source, Storage, Thermal, Timeline, UnsupportedKernel,
};

/// A kind of hardware that this build can talk to.
pub trait Driver: Send + Sync {
    /// A short name: `cpu`, `cuda`, `metal`, `sim`.
    fn name(&self) -> &'static str;

    /// The devices that are present. No device is an empty list; the error is for hardware that is
    /// there and does not answer.
    fn devices(&self) -> Result<Vec<Arc<dyn Device>>>;

    /// Why there is no device, in words, where that needs saying. `None` unless the driver says otherwise.
    fn absence(&self) -> Option<String> {
        None
    }
}

/// A thing that runs kernels.
///
/// # Safety
/// What [`Device::allocate`] gives is of nobody else while it is there: it neither is, nor overlaps, memory that was given before.
/// Its queues keep the contract of [`Queue`]. A pipeline that was asked for with [`PipelineOptions::checked`] reaches no memory but
/// that of its launch.
#[allow(unsafe_code)] // what safe code relies on
pub unsafe trait Device: Send + Sync + Any {
    /// Facts and limits; constant over the device's life.
    fn caps(&self) -> &Caps;

    /// What else the driver tells of it, for people: name and value. Nothing unless the driver says otherwise.
    fn details(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// `bytes` of memory, at least aligned to 256. Zero bytes is allowed.
    ///
    /// # Errors
    /// `OutOfMemory` with the amounts, `InvalidArgument` beyond [`Limits::max_buffer_bytes`],
    /// `Unsupported` for a storage mode that the device has not.
    fn allocate(&self, bytes: u64, storage: Storage, init: Init) -> Result<Arc<dyn Memory>>;

    /// Bytes that could be allocated now, as far as the driver and the system know.
    fn available_memory(&self) -> u64;

    /// Use memory of the host in place. It stays the host's: dropping the last reference drops its owner.
    /// Unsupported unless the driver says otherwise; [`Limits::wrap_granule`] says whether it does.
    ///
    /// # Safety
    /// The block is readable and writable and stays where it is until its owner is dropped, and nobody touches it
    /// meanwhile but through the memory that is returned.
    ///
    /// # Errors
    /// `Unsupported`; `InvalidArgument` for an address or a length that is no multiple of the granule.
    #[allow(unsafe_code)] // declares an unsafe method
    unsafe fn wrap(&self, block: HostBlock) -> Result<Arc<dyn Memory>> {
        let HostBlock { bytes, .. } = block;
        let name = &self.caps().name;
        Err(Error::unsupported(format!("device `{name}` cannot use {bytes} bytes of host memory in place")))
    }

    /// Compile a source. The whole source is checked; code generation may wait for
    /// [`Library::pipeline`] and [`Pipeline::prepare`].
    ///
    /// # Errors
    /// `Compile` with the diagnostics.
    fn compile(&self, source: &Source) -> Result<Arc<dyn Library>>;

    /// A new queue, independent of all others.
    ///
    /// # Errors
    /// `Unsupported` for a priority other than [`Priority::Normal`] where [`Features::priorities`] is false.
    fn queue_with(&self, priority: Priority) -> Result<Arc<dyn Queue>>;

    /// A new queue of normal priority.
    fn queue(&self) -> Result<Arc<dyn Queue>> {
        self.queue_with(Priority::Normal)
    }

    /// A new event, at 0. One of the host's memory unless the driver says otherwise.
    ///
    /// # Errors
    /// What the driver answers when it cannot make another.
    fn event(&self) -> Result<Arc<dyn Event>> {
        Ok(Arc::new(Timeline::new()))
    }

    /// The device's own clock, now, in the nanoseconds of [`Timing`].
    fn clock_ns(&self) -> u64;

    /// From now on run threadgroups on at most `units`, at least one, of [`Limits::compute_units`] at a time. What runs
    /// runs on.
    ///
    /// # Errors
    /// `Unsupported` unless the driver says otherwise.
    fn use_units(&self, _units: u32) -> Result<()> {
        Err(Error::unsupported(format!("device `{}` always uses all of its compute units", self.caps().name)))
    }

    /// How warm the device is, by a sensor of its own. Never the host's temperature, unless the device is the host's processor.
    ///
    /// # Errors
    /// `Unsupported` with the reason where nothing measures it, which is so unless the driver says otherwise.
    fn thermal(&self) -> Result<Thermal> {
        Err(Error::unsupported(format!("the temperature of device `{}` is not measured", self.caps().name)))
    }

    /// How a [`Command::Copy`] of this device's queues moves bytes between its memory and that of `other`, in either direction.
    /// `None`, as long as the driver does not say otherwise: it cannot.
    fn reaches(&self, _other: &dyn Device) -> Option<Reach> {
        None
    }

    /// Record what the device does from now on, for tools of its maker, to a file at `path`, until the recording is ended. What begins
    /// and ends within is in it.
    ///
    /// # Errors
    /// `Unsupported` unless the driver says otherwise; `InvalidArgument` if there is something at `path`, or another recording
    /// is under way.
    fn capture(&self, path: &Path) -> Result<Box<dyn Capture>> {
        let (name, path) = (&self.caps().name, path.display());
        Err(Error::unsupported(format!("device `{name}` does not support captures: capture to `{path}`")))
    }

    /// Why the device takes no more work of this process, if that is so: [`Error::DeviceLost`]. Never, unless the driver says otherwise.
    fn lost(&self) -> Option<Error> {
        None
    }

    /// Bring the device back after it was lost, or when it does not get on. Once this has returned:
    ///
    /// - Every submission that was in flight has ended, those that had not before in [`Error::DeviceLost`], which is then
    ///   the failure of their queues until it is acknowledged, and of the events that they would have raised.
    /// - Queues, memory, libraries and pipelines stay what they are and can be used again.
    /// - [`Storage::Shared`] memory holds what it held, as far as the work that was ended left it. All other memory holds
    ///   anything until it is written, unless the device restarts by itself ([`Features::restarts`]): then all memory holds what it held.
    ///
    /// Unsupported unless the driver says otherwise.
    ///
    /// # Errors
    /// `Unsupported` with the reason; `DeviceLost` when it does not come back.
    fn reset(&self) -> Result<()> {
        Err(Error::unsupported(format!("device `{}` cannot be reset", self.caps().name)))
    }
}

/// How bytes get from the memory of one device to that of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// Over the link or the bus between the two, without the host.
    Peer,
    /// Through memory of the host, by the driver's own means.
    Staged,
}

/// A compiled source.
pub trait Library: Send + Sync + Any {
    /// What each kernel takes, in the order of the source; the names are unique. An argument that depends on
    /// a function constant is in the list; [`Pipeline::signature`] has it only if it is there.
    fn kernels(&self) -> &[Signature];

    /// Well-formed kernels of the source that the device cannot run, in its order. They are not among
    /// [`Library::kernels`], and a pipeline of one is `Unsupported`. None unless the driver says otherwise.
    fn unsupported(&self) -> &[UnsupportedKernel] {
        &[]
    }

    /// Warnings of the compilation.
    fn warnings(&self) -> &[Diagnostic];

    /// The function constants that the source declares, in its order. None unless the driver says otherwise.
    fn constants(&self) -> &[FunctionConstant] {
        &[]
    }

    /// The kernel of that name, specialised, ready to be dispatched once [`Pipeline::prepare`] has passed.
    ///
    /// # Errors
    /// `InvalidArgument` when there is no such kernel or constant (the message lists those there are),
    /// `Compile`, `Unsupported`.
    fn pipeline(&self, kernel: &str, options: &PipelineOptions) -> Result<Arc<dyn Pipeline>>;
}

/// A kernel that can be dispatched.
pub trait Pipeline: Send + Sync + Any {
    /// What the kernel takes, with [`Signature::code`] where the driver knows it.
    fn signature(&self) -> &Signature;

    /// Bytes of threadgroup memory that the kernel declares itself. Those of [`Signature::code`] unless the driver says otherwise.
    fn threadgroup_memory(&self) -> u64 {
        self.signature().code.map_or(0, |code| code.threadgroup_memory)
    }

    /// Largest threadgroup for this kernel, at most [`Limits::max_threads_per_threadgroup`].
    fn max_threads_per_threadgroup(&self) -> u32;

    /// Make the kernel ready for threadgroups of this size; called before every dispatch that uses it,
    /// so a second call must be cheap. A driver that compiles per size does so here.
    ///
    /// # Errors
    /// `Compile`, `Unsupported` with the source line, `InvalidArgument` for a size over the limit.
    fn prepare(&self, group: Dim3) -> Result<()>;

    /// The same kernel as code that [`Queue::stop`] ends within loops, for work with a deadline, where other code is faster and
    /// runs on to the end of its threadgroup. `None` where there is no other code, or the device cannot do it.
    fn stoppable(&self) -> Option<Arc<dyn Pipeline>> {
        None
    }
}

impl fmt::Debug for dyn Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.signature().name)
    }
}

/// Which queue goes first where several have something to do. It does not interrupt what runs. Devices without
/// [`Features::priorities`] refuse all but [`Priority::Normal`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Priority {
    /// After all others.
    Low,
    /// As most.
    #[default]
    Normal,
    /// Before all others.
    High,
}

/// Identifies a submission within its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Submission(pub u64);

/// When a submission ran, in nanoseconds of the device's own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Its first command began.
    pub start_ns: u64,
    /// Its last command ended.
    pub end_ns: u64,
}

/// The completion callback of a submission, called at most once; see the contract, point 4.
///
/// It is a closure, which is boxed, or an object that the caller shares and reuses, which allocates nothing.
pub struct Done(Option<Callee>);

enum Callee {
    Closure(Box<dyn FnOnce(Result<Timing>) + Send>),
    Shared(Arc<dyn OnCompleted>),
}

/// An object that is told how a submission ended. One object serves one submission at a time.
pub trait OnCompleted: Send + Sync {
    /// The submission has ended.
    fn completed(self: Arc<Self>, result: Result<Timing>);

    /// The driver has dropped the callback without calling it: the submission was refused, or abandoned.
    fn dropped(self: Arc<Self>);
}

impl Done {
    /// A callback that calls `closure`.
    pub fn new(closure: impl FnOnce(Result<Timing>) + Send + 'static) -> Self {
        Self(Some(Callee::Closure(Box::new(closure))))
    }

    /// A callback that tells `handler`; no allocation.
    pub fn shared(handler: Arc<dyn OnCompleted>) -> Self {
        Self(Some(Callee::Shared(handler)))
    }

    /// Report how the submission ended.
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

/// An ordered list of submissions. Dropping the last reference lets what was submitted finish.
///
/// # Safety
/// Once [`Done`] has been called, nothing that was submitted reads or writes its memory any more: the host does then.
#[allow(unsafe_code)] // what safe code relies on
pub unsafe trait Queue: Send + Sync + Any {
    /// Add commands to the end; returns before they have run. No commands are allowed: such a
    /// submission ends when those before it have. If this returns an error `done` has been dropped
    /// without a call.
    fn submit(&self, commands: Arc<[Command]>, done: Done) -> Result<Submission>;

    /// Take a submission that has not begun, or waits for an event with nothing done yet, out of the queue: its `done` gets [`Error::Cancelled`]
    /// and the answer is `true`. `false` when it has begun or ended; nothing changes then.
    fn cancel(&self, submission: Submission) -> bool;

    /// Let a submission end in `cause`: in its turn if it has not begun, else where [`Features::stops_at`] says, or when it has
    /// waited for an event. What it has done so far stays, and `cause` is the queue's failure. `false` when it has ended;
    /// nothing changes then. One that is at its end may still end well.
    ///
    /// # Errors
    /// `Unsupported` where nothing that runs can be stopped.
    fn stop(&self, _submission: Submission, _cause: Error) -> Result<bool> {
        Err(Error::unsupported("this device cannot stop running work"))
    }

    /// Spin until `is_over` answers true, which looks at whether a submission has ended or enough time has passed. A driver whose
    /// ends some thread has to look for may look here in between, and call callbacks of this queue: the caller holds no lock.
    fn spin(&self, is_over: &mut dyn FnMut() -> bool) {
        while !is_over() {}
    }

    /// Forget a failure, so that later submissions run again. Returns it, or `None`.
    fn acknowledge(&self) -> Option<Error>;
}
