//! [`Stream`] and the way of a launch: check, record, submit.
//!
//! [`Kernel::launch`] is a batch of one. A [`Batch`] checks each call as it comes and records a command with
//! the memory it uses; `submit` enters that use into the accounts of the memory and hands the commands
//! to the driver's queue, in one step. Nothing is recorded by a call that is refused.
//!
//! Streams are ordered within themselves, and by events where the program says so. The runtime orders neither launches
//! nor copies of different streams by itself; host access alone waits for work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytemuck::Pod;
use elinvar_driver::{Command, Dispatch, Error, Queue, Result, Timing, fail_signals};

use crate::bind::{Bound, bind};
use crate::completion::{Outcome, Promise};
use crate::dependencies::{self, Entered, Step};
use crate::span::Span;
use crate::usage::{Access, Storage, Usage, Who, commit};
use crate::{Args, BufferSlice, BufferSliceMut, CheckedKernel, Completion, Device, Event, Grid, Kernel};

static NEXT_STREAM: AtomicU64 = AtomicU64::new(0);

/// An ordered list of work for a device. Cloning gives another handle on the same list.
///
/// Dropping all handles lets what was submitted finish.
#[derive(Clone)]
pub struct Stream {
    device: Device,
    queue: Arc<dyn Queue>,
    id: u64,
    in_flight: Arc<AtomicUsize>,
}

/// What a submission holds until it has ended.
struct Held {
    _storages: Vec<Arc<Storage>>,
    /// Before the events, which are used again if nothing else has them.
    _entered: Option<Entered>,
    /// The events that it raises.
    _events: Vec<Event>,
    in_flight: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Stream {
    pub(crate) fn new(device: Device, queue: Arc<dyn Queue>) -> Self {
        let id = NEXT_STREAM.fetch_add(1, Ordering::Relaxed);
        Self { device, queue, id, in_flight: Arc::default() }
    }

    /// The device that does the work.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Submissions that have not ended.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Raise an event to `value` once the work that the stream has now has ended well; if it fails, so does the event.
    ///
    /// # Errors
    /// As [`Batch::submit`].
    pub fn signal(&self, event: &Event, value: u64) -> Result<Completion> {
        let mut batch = self.batch();
        batch.signal(event, value);
        batch.submit()
    }

    /// Let what is submitted from now on begin when an event, of any device, has reached `value`. The host does not wait.
    ///
    /// # Errors
    /// As [`Batch::submit`].
    pub fn wait_for(&self, event: &Event, value: u64) -> Result<Completion> {
        let mut batch = self.batch();
        batch.wait_for(event, value);
        batch.submit()
    }

    /// An empty batch, to submit many commands at once.
    pub fn batch(&self) -> Batch {
        Batch {
            stream: self.clone(),
            commands: Vec::new(),
            usages: Vec::new(),
            steps: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Set all elements of a buffer or slice to `value`, on the device.
    ///
    /// # Errors
    /// As [`Batch::fill`].
    pub fn fill<'t, T: Pod>(&self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<Completion> {
        let mut batch = self.batch();
        batch.fill(target, value)?;
        batch.submit()
    }

    /// Copy a buffer or slice to another, on the device.
    ///
    /// # Errors
    /// As [`Batch::copy`].
    pub fn copy<'s, 't, T: Pod>(
        &self,
        source: impl Into<BufferSlice<'s, T>>,
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<Completion> {
        let mut batch = self.batch();
        batch.copy(source, target)?;
        batch.submit()
    }

    /// Block until everything submitted so far has ended.
    ///
    /// # Errors
    /// `Poisoned` with the first cause when the stream has failed and that is not acknowledged.
    pub fn synchronize(&self) -> Result<Timing> {
        self.batch().submit()?.wait()
    }

    /// Forget a failure, so that later work runs again. Returns the failure, or `None` if there was none.
    ///
    /// Buffers that failed work should have written stay unreadable until they are written anew.
    pub fn acknowledge(&self) -> Option<Error> {
        self.queue.acknowledge()
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({}, {})", self.id, self.device.name())
    }
}

impl Kernel {
    /// Run the kernel over a grid, behind the work that the stream has already. Returns at once.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Device, Grid, Source};
    /// # let device = Device::best()?;
    /// # let kernel = device.compile(Source::msl("…"))?.kernel("scale")?;
    /// # let stream = device.stream()?;
    /// let mut data = device.buffer_from(&[1.0f32, 2.0, 3.0])?;
    /// // SAFETY: `scale` stays within the `n` elements it is told of.
    /// unsafe { kernel.launch(&stream, Grid::threads(3), (&mut data, 2.0f32, 3u32)) }?;
    /// assert_eq!(data.to_vec()?, [2.0, 4.0, 6.0]); // waits for the launch
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Safety
    /// With these arguments the kernel reads and writes within the memory it is given, and does not race, in
    /// itself or with work of other streams, in a way that MSL leaves undefined.
    ///
    /// # Errors
    /// `InvalidArgument` naming kernel and argument when an argument does not fit the signature, its buffer is
    /// mapped or belongs to another device, or when the grid is out of range; `Compile` or `Unsupported` when
    /// the kernel cannot be built for the group's size; what the driver answers to a submission.
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Completion> {
        let mut batch = stream.batch();
        // SAFETY: the caller vouches for the same.
        unsafe { batch.launch(self, grid, args) }?;
        batch.submit()
    }
}

impl CheckedKernel {
    /// Run the kernel over a grid; see [`Kernel::launch`]. Safe, because every access is checked.
    ///
    /// # Errors
    /// As [`Kernel::launch`].
    #[allow(unsafe_code)] // calls the unchecked launch
    pub fn launch(&self, stream: &Stream, grid: Grid, args: impl Args) -> Result<Completion> {
        // SAFETY: the checks keep every access within the memory of the arguments.
        unsafe { self.kernel.launch(stream, grid, args) }
    }
}

/// Commands that are submitted together, in order. Dropping a batch forgets them.
pub struct Batch {
    stream: Stream,
    commands: Vec<Command>,
    usages: Vec<Usage>,
    /// Waits and signals.
    steps: Vec<Step>,
    /// The events that it raises.
    events: Vec<Event>,
}

impl Batch {
    pub(crate) fn device(&self) -> &Device {
        &self.stream.device
    }

    /// Add a launch; see [`Kernel::launch`]. A refused launch leaves the batch as it was.
    ///
    /// # Safety
    /// As [`Kernel::launch`].
    ///
    /// # Errors
    /// As [`Kernel::launch`], except that maps are looked at by [`Batch::submit`].
    #[allow(unsafe_code)] // declares an unsafe function
    pub unsafe fn launch(&mut self, kernel: &Kernel, grid: Grid, args: impl Args) -> Result<()> {
        let pipeline = &kernel.pipeline;
        let name = &pipeline.signature().name;
        self.stream.device.expect_same(&kernel.device, || format!("kernel `{name}` is"))?;
        let caps = self.stream.device.caps();
        let size = grid.resolve(name, pipeline.max_threads_per_threadgroup(), caps)?;
        let bound = bind(&kernel.device, pipeline, args.into_args())?;
        let Some((threads, group)) = size else {
            return Ok(());
        };
        pipeline.prepare(group)?;
        let Bound { bindings, uses, usages } = bound;
        let dispatch = Dispatch { pipeline: pipeline.clone(), bindings, uses, threads, group };
        self.commands.push(Command::Dispatch(dispatch));
        self.usages.extend(usages);
        Ok(())
    }

    /// Add a launch of a kernel with bounds checks; see [`CheckedKernel::launch`].
    ///
    /// # Errors
    /// As [`Batch::launch`].
    #[allow(unsafe_code)] // calls the unchecked launch
    pub fn launch_checked(&mut self, kernel: &CheckedKernel, grid: Grid, args: impl Args) -> Result<()> {
        // SAFETY: the checks keep every access within the memory of the arguments.
        unsafe { self.launch(&kernel.kernel, grid, args) }
    }

    /// Add a fill of a buffer or slice.
    ///
    /// # Errors
    /// `InvalidArgument` for an element of more than 16 bytes or a buffer of another device.
    pub fn fill<'t, T: Pod>(&mut self, target: impl Into<BufferSliceMut<'t, T>>, value: T) -> Result<()> {
        let span = target.into().span;
        let pattern = bytemuck::bytes_of(&value).to_vec();
        if pattern.len() > 16 {
            let (name, size) = (std::any::type_name::<T>(), pattern.len());
            return Err(Error::invalid(format!("fill: `{name}` has {size} bytes, at most 16 allowed")));
        }
        self.record_use("fill: the buffer", &span, Access::Write)?;
        if span.len > 0 {
            self.commands.push(Command::Fill { target: span.memory_slice(), pattern });
        }
        Ok(())
    }

    /// Add a copy between buffers or slices of the same length. They may be parts of one buffer and overlap:
    /// the target then gets what the source held before.
    ///
    /// # Errors
    /// `InvalidArgument` for different lengths or a buffer of another device.
    pub fn copy<'s, 't, T: Pod>(
        &mut self,
        source: impl Into<BufferSlice<'s, T>>,
        target: impl Into<BufferSliceMut<'t, T>>,
    ) -> Result<()> {
        let (source, target) = (source.into(), target.into());
        if source.len() != target.len() {
            let (from, to) = (source.len(), target.len());
            return Err(Error::invalid(format!("copy: the source has {from} elements, the target {to}")));
        }
        let (source, target) = (source.span, target.span);
        let target_device = &target.storage.device;
        self.stream.device.expect_same(target_device, || "copy: the target is".into())?;
        self.record_use("copy: the source", &source, Access::Read)?;
        self.record_use("copy: the target", &target, Access::Write)?;
        if source.len > 0 {
            self.commands
                .push(Command::Copy { source: source.memory_slice(), target: target.memory_slice() });
        }
        Ok(())
    }

    /// Add the raising of an event to `value`.
    pub fn signal(&mut self, event: &Event, value: u64) {
        let step = event.step(value, true);
        self.commands.push(Command::Signal { event: step.event.clone(), value: step.value });
        self.steps.push(step);
        self.events.push(event.clone());
    }

    /// Add a wait until an event, of any device, has reached `value`.
    pub fn wait_for(&mut self, event: &Event, value: u64) {
        let step = event.step(value, false);
        self.commands.push(Command::Wait { event: step.event.clone(), value: step.value });
        self.steps.push(step);
    }

    /// Hand the commands to the stream. An empty batch ends when the work before it has ended.
    ///
    /// # Errors
    /// `InvalidArgument` when the buffer of a command is mapped in conflict with it, or streams would wait for one
    /// another in a circle; what the driver answers to a submission. Nothing runs then.
    pub fn submit(self) -> Result<Completion> {
        let Self { stream, commands, usages, steps, events } = self;
        let (queue, in_flight) = (stream.queue, stream.in_flight);
        let commands: Arc<[Command]> = commands.into();
        let entered = (!steps.is_empty()).then(|| dependencies::enter(stream.id, steps)).transpose()?;
        let submit = |storages: Vec<Arc<Storage>>| {
            in_flight.fetch_add(1, Ordering::Relaxed);
            let held = Held { _storages: storages, _entered: entered, _events: events.clone(), in_flight };
            let (promise, outcome) = Promise::new();
            let done = Box::new(move |result| {
                // Before anybody knows: who then waits finds memory given back that only this work still had.
                drop(held);
                promise.resolve(result);
            });
            let submission = queue.submit(commands.clone(), done)?;
            Ok((outcome, submission))
        };
        let (outcome, submission): (Arc<Outcome>, _) = commit(usages, stream.id, submit)?;
        if let (None, Some(Err(cause))) = (&submission, outcome.get()) {
            fail_signals(&commands, cause);
        }
        let origin = submission.map(|submission| (queue.clone(), submission));
        Ok(Completion::new(outcome, origin))
    }

    fn record_use(&mut self, subject: &'static str, span: &Span, access: Access) -> Result<()> {
        self.stream.device.expect_same(&span.storage.device, || format!("{subject} is"))?;
        let who = Who::Operation(subject);
        self.usages.push(Usage { storage: span.storage.clone(), who, access, covers: span.covers_storage() });
        Ok(())
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch({:?}, {} commands)", self.stream, self.commands.len())
    }
}
