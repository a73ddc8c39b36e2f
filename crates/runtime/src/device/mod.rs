//! [`Device`]: the place where everything begins.
//!
//! A `Device` is a cheap handle on a driver's device. It allocates buffers, compiles sources and opens
//! streams; what handles share lies in [`crate::device::registry`]. Two handles are the same device when they share the driver's
//! object, and things of different devices do not mix in one launch.

mod drivers;
mod registry;
mod tuning_cache;

use std::borrow::Borrow;
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use bytemuck::Pod;
use elinvar_driver::{
    Callback, Caps, DeviceKind, Error, HostBlock, Init, Priority, Result, Source, Storage as StorageMode,
    TimestampSlot,
};

use crate::identity::identity;
use crate::launch::group::Members;
use crate::launch::slots::Slots;
use crate::launch::tune::Tuned;
use crate::memory::object_pool::ObjectPool;
use crate::memory::span::Span;
use crate::recovery::{RecoveringQueue, Recovery};
use crate::sync::coalesce::Coalescers;
use crate::sync::loss::Loss;
use crate::{
    Buffer, Event, EventStats, HostAccess, Library, Pool, RecoveryPolicy, SlotStats, Stream, StreamGroup,
    Trace,
};

use registry::Inner;
pub use tuning_cache::TuningCache;

/// A thing that runs kernels. Cloning gives another handle on the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

impl Device {
    /// Every device of this machine, the preferred first: Apple, then NVIDIA, then the processor. Hardware that is present
    /// and does not work is not among them, and [`Device::absent`] says why; the next call asks for it again.
    ///
    /// # Errors
    /// `Unsupported` when there is none at all.
    pub fn all() -> Result<Vec<Self>> {
        let devices = drivers::devices();
        if devices.is_empty() {
            let reasons = Self::absent().into_iter().map(|(kind, reason)| format!("\n{kind}: {reason}"));
            let reasons: String = reasons.collect();
            return Err(Error::unsupported(format!("no driver of this build has found a device{reasons}")));
        }
        Ok(devices)
    }

    /// Kinds of hardware of which [`Device::all`] has none, by their lower-case names, each with the reason. What does not work is
    /// known once it has been asked for.
    pub fn absent() -> Vec<(&'static str, String)> {
        drivers::absences()
    }

    /// The first of [`Device::all`].
    ///
    /// # Errors
    /// As [`Device::all`].
    pub fn system_default() -> Result<Self> {
        Ok(Self::all()?.swap_remove(0))
    }

    /// The processor.
    ///
    /// # Errors
    /// `Unsupported` when this build has no CPU driver.
    pub fn cpu() -> Result<Self> {
        let cpu = Self::all()?.into_iter().find(|d| d.kind() == DeviceKind::Cpu);
        cpu.ok_or_else(|| Error::unsupported("this build has no CPU driver"))
    }

    /// The processor, with kernels that run in a worker process: what a kernel does wrong harms no memory of this program but the
    /// device's own buffers. When the worker crashes, or is ended since it does not stop, the work in flight ends in
    /// [`Error::DeviceLost`] with the cause, and the next submission has a new worker. Buffers keep what they hold.
    ///
    /// Each call makes another device with a worker of its own. The program that serves as the worker is this one, if it calls
    /// [`crate::serve_if_asked`] at the start of `main`, or `elinvar`; see [`crate::IsolatedOptions::program`].
    ///
    /// # Errors
    /// `Environment` when no worker can be started, with the reason; `Unsupported` on systems other than Linux.
    #[cfg(feature = "isolated")]
    pub fn isolated() -> Result<Self> {
        Self::isolated_with(&crate::IsolatedOptions::default())
    }

    /// As [`Device::isolated`], with the worker's limits and program given.
    ///
    /// # Errors
    /// As there.
    #[cfg(feature = "isolated")]
    pub fn isolated_with(options: &crate::IsolatedOptions) -> Result<Self> {
        Ok(Self::new(elinvar_driver_isolated::device(options)?))
    }

    /// A device of a driver that [`Device::all`] does not know.
    ///
    /// Handles made from the same `Arc` are the same device; a second `Arc` is another device.
    pub fn new(driver: Arc<dyn elinvar_driver::Device>) -> Self {
        Self { inner: registry::inner(driver) }
    }

    /// Facts and limits.
    pub fn caps(&self) -> &Caps {
        self.inner.driver.caps()
    }

    /// What else the driver tells of it, for people: name and value.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        self.inner.driver.details()
    }

    /// The hardware's own name.
    pub fn name(&self) -> &str {
        &self.caps().name
    }

    /// The kind of hardware.
    pub fn kind(&self) -> DeviceKind {
        self.caps().kind
    }

    /// Compile MSL text; takes a [`Source`] or a reference to one.
    ///
    /// # Errors
    /// `Compile` with the diagnostics, each with file, line and column; `Environment` when the compiler
    /// cannot be found or run; `Unsupported`.
    pub fn compile(&self, source: impl Borrow<Source>) -> Result<Library> {
        self.expect_here("Device::compile")?;
        let source: &Source = source.borrow();
        let library = self.inner.driver.compile(source);
        self.recovery().vitals.compilation(library.as_ref().err());
        Ok(Library::new(self.clone(), library?, source))
    }

    /// The device's memory: what buffers have, what waits to be used again, limits and statistics.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// A buffer of `len` zeroed elements that host and device use.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidArgument` beyond [`Limits::max_buffer_bytes`] or for an element without size.
    #[track_caller]
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.buffer_for(len, HostAccess::ReadWrite)
    }

    /// A buffer of `len` zeroed elements whose storage mode follows from what the host does with it.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    #[track_caller]
    pub fn buffer_for<T: Pod>(&self, len: usize, host: HostAccess) -> Result<Buffer<T>> {
        self.buffer_in(len, host.storage(self.caps()))
    }

    /// As [`Device::buffer`], with the storage mode given.
    ///
    /// # Errors
    /// As [`Device::buffer`]; `Unsupported` when the device has no such storage.
    #[track_caller]
    pub fn buffer_in<T: Pod>(&self, len: usize, storage: StorageMode) -> Result<Buffer<T>> {
        self.allocate(len, storage, Init::Zeroed)
    }

    /// A buffer that holds a copy of `data`.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    #[allow(unsafe_code)] // the content is written in full before anybody can see it
    #[track_caller]
    pub fn buffer_with_data<T: Pod>(&self, data: &[T]) -> Result<Buffer<T>> {
        // SAFETY: every element is written before the buffer is handed out.
        let mut buffer = unsafe { self.buffer_uninit(data.len(), HostAccess::ReadWrite) }?;
        buffer.write(data)?;
        Ok(buffer)
    }

    /// A buffer of `len` elements whose content is anything, also what another buffer held, which saves the time to
    /// zero it.
    ///
    /// # Safety
    /// Every element is written, by host or device, before it is read by either.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    #[allow(unsafe_code)] // declares an unsafe function
    #[track_caller]
    pub unsafe fn buffer_uninit<T: Pod>(&self, len: usize, host: HostAccess) -> Result<Buffer<T>> {
        self.allocate(len, host.storage(self.caps()), Init::Uninitialized)
    }

    /// A buffer over memory of the host, used in place and not copied; `owner` is dropped when the last handle is gone
    /// and the device has finished all work that uses it, on the thread that lets go of it last: its destructor must not wait for
    /// work ([`Error::WouldDeadlock`]). The memory begins and ends at multiples of
    /// [`Limits::wrap_granule`], such as a mapped file does.
    ///
    /// # Safety
    /// The slice that `owner` gives stays where it is until `owner` is dropped, and nobody touches it meanwhile but
    /// through the buffer.
    ///
    /// # Errors
    /// `Unsupported` on a device that cannot; `InvalidArgument` for memory that does not begin or end at such a
    /// multiple or is larger than [`Limits::max_buffer_bytes`], or an element without size.
    #[allow(unsafe_code)] // declares an unsafe function
    #[track_caller]
    pub unsafe fn buffer_no_copy<T: Pod>(
        &self,
        owner: impl AsMut<[T]> + Send + Sync + 'static,
    ) -> Result<Buffer<T>> {
        self.expect_here("Device::buffer_no_copy")?;
        let mut owner = Box::new(Owner(Some(owner)));
        let slice = owner.0.as_mut().map_or(&mut [][..], AsMut::as_mut);
        let bytes = element_bytes::<T>(slice.len())?;
        self.expect_allowed(bytes)?;
        let address = NonNull::from(slice).cast();
        // SAFETY: what the caller promises of the slice; boxed, the owner itself does not move.
        let memory = unsafe { self.inner.driver.wrap(HostBlock { address, bytes, owner }) }?;
        let block = self.pool().adopt(memory, Location::caller());
        Ok(Buffer::new(Span::whole(self.clone(), block)))
    }

    /// A new stream, independent of all others.
    ///
    /// # Errors
    /// What the driver answers when it cannot open another queue.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(Priority::Normal)
    }

    /// A new stream that goes before or after others where several have something to do. What runs is not interrupted.
    ///
    /// # Errors
    /// As [`Device::stream`].
    pub fn stream_with(&self, priority: Priority) -> Result<Stream> {
        self.expect_here("Device::stream")?;
        Ok(Stream::new(self.clone(), self.inner.driver.queue_with(priority)?, priority))
    }

    /// A new stream that deals with failures as `policy` says. Work that fails is done again or elsewhere, while what is
    /// behind it waits; what cannot be helped fails as on any stream. Decisions are in the trace.
    ///
    /// # Errors
    /// As [`Device::stream`]; `Environment` when its thread cannot be started.
    pub fn stream_recovering(&self, policy: RecoveryPolicy) -> Result<Stream> {
        self.expect_here("Device::stream_recovering")?;
        let queue = Arc::new(RecoveringQueue::new(self, Priority::Normal, policy)?);
        Ok(Stream::recovering(self.clone(), queue, Priority::Normal))
    }

    /// Streams for independent work: as many as the device runs side by side with profit,
    /// [`Limits::parallel_queues`], each opened when there is work for it.
    pub fn stream_group(&self) -> StreamGroup {
        self.stream_group_with(self.caps().limits.parallel_queues as usize, Priority::Normal)
    }

    /// As [`Device::stream_group`], with at most `most` streams, at least one, of this priority.
    pub fn stream_group_with(&self, most: usize, priority: Priority) -> StreamGroup {
        StreamGroup::new(self.clone(), most, priority)
    }

    /// Block until everything that was submitted before, to any stream of the device, has ended, well or not. By then the
    /// device has let go of what only that work used. How it ended, each [`crate::Completion`] says.
    ///
    /// Work that waits for an event is waited for as well, so the event must be raised elsewhere. What was in flight when the
    /// device was lost has ended.
    ///
    /// # Errors
    /// `WouldDeadlock` in a waker or the destructor of a buffer's memory, unless all has ended already.
    pub fn synchronize(&self) -> Result<()> {
        self.expect_here("Device::synchronize")?;
        self.loss().pending().iter().try_for_each(|outcome| outcome.wait("Device::synchronize").map(drop))
    }

    /// A new event, at 0.
    ///
    /// # Errors
    /// What the driver answers when it cannot make another.
    pub fn event(&self) -> Result<Event> {
        self.expect_here("Device::event")?;
        Event::new(self.clone())
    }

    /// How many events there are and were.
    pub fn event_stats(&self) -> EventStats {
        self.inner.events.stats()
    }

    /// How many timestamps there are and were.
    pub fn timestamp_stats(&self) -> EventStats {
        self.inner.timestamps.stats()
    }

    /// The device's own clock, now, in the nanoseconds of [`crate::Timing`].
    pub fn clock_ns(&self) -> u64 {
        self.inner.driver.clock_ns()
    }

    /// What the device is asked to do, step by step; off until it is started.
    pub fn trace(&self) -> &Trace {
        &self.inner.trace
    }

    /// How many submission slots are ready and in use.
    pub fn slot_stats(&self) -> SlotStats {
        self.inner.slots.stats()
    }

    /// How many submission slots are made ahead and kept: 8 to 32, at first 16. Those that are idle for a minute go.
    pub fn keep_slots(&self, count: usize) {
        self.inner.slots.keep(count);
    }

    pub(crate) fn tuned(&self) -> &Tuned {
        &self.inner.tuned
    }

    pub(crate) fn coalescers(&self) -> &Coalescers {
        &self.inner.coalescers
    }

    pub(crate) fn slots(&self) -> &Slots {
        &self.inner.slots
    }

    pub(crate) fn driver(&self) -> &dyn elinvar_driver::Device {
        &*self.inner.driver
    }

    pub(crate) fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    pub(crate) fn loss(&self) -> &Loss {
        &self.inner.loss
    }

    pub(crate) fn timestamps(&self) -> &ObjectPool<Arc<TimestampSlot>> {
        &self.inner.timestamps
    }

    pub(crate) fn events(&self) -> &ObjectPool<Arc<dyn elinvar_driver::Event>> {
        &self.inner.events
    }

    /// Has the streams of a group looked after.
    pub(crate) fn register(&self, group: Weak<Members>) {
        let mut groups = self.inner.groups.lock();
        groups.retain(|group| group.strong_count() > 0);
        groups.push(group);
    }

    #[track_caller]
    fn allocate<T: Pod>(&self, len: usize, storage: StorageMode, init: Init) -> Result<Buffer<T>> {
        self.expect_here("a buffer")?;
        let bytes = element_bytes::<T>(len)?;
        self.expect_allowed(bytes)?;
        // Memory that is made is known to a reset before that begins.
        let present = self.loss().hold();
        if storage == StorageMode::Shared { present.expect() } else { present.expect_content() }?;
        let block = self.pool().allocate(bytes, storage, init, Location::caller())?;
        Ok(Buffer::new(Span::whole(self.clone(), block)))
    }

    /// Whether it was made in this process.
    pub(crate) fn is_here(&self) -> bool {
        self.inner.process.is_this()
    }

    /// To be called before `what` begins.
    ///
    /// # Errors
    /// `DeviceLost` in a child of the process that made the device.
    pub(crate) fn expect_here(&self, what: &str) -> Result<()> {
        self.inner.process.expect_this(&what)
    }

    /// An error for a buffer that is larger than the device allows.
    fn expect_allowed(&self, bytes: u64) -> Result<()> {
        let limit = self.caps().limits.max_buffer_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::invalid(format!("a buffer of {bytes} bytes: device `{}` allows {limit}", self.name())))
    }

    /// An error unless `other` is this device; `subject` begins the message.
    pub(crate) fn expect_same(&self, other: &Device, subject: impl FnOnce() -> String) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let (ours, theirs) = (self.name(), other.name());
        let note = if ours == theirs { " (another device of that name)" } else { "" };
        Err(Error::invalid(format!("{} of device `{theirs}`, used with device `{ours}`{note}", subject())))
    }
}

/// What a buffer's memory is of. Its destructor is the program's, and runs on the thread that lets go of the memory last.
struct Owner<O>(Option<O>);

impl<O> Drop for Owner<O> {
    fn drop(&mut self) {
        let _callback = Callback::enter();
        drop(self.0.take());
    }
}

/// Bytes of `len` elements.
pub(crate) fn element_bytes<T>(len: usize) -> Result<u64> {
    let (size, type_name) = (size_of::<T>(), std::any::type_name::<T>());
    if size == 0 {
        return Err(Error::invalid(format!("a buffer of `{type_name}`, which has no size")));
    }
    if align_of::<T>() > 256 {
        return Err(Error::invalid(format!("a buffer of `{type_name}`: its alignment is above 256 bytes")));
    }
    (len as u64).checked_mul(size as u64).ok_or_else(|| {
        Error::invalid(format!("a buffer of {len} elements of {size} bytes is beyond 64 bits"))
    })
}

impl PartialEq for Device {
    /// Whether both are handles on the same device.
    fn eq(&self, other: &Self) -> bool {
        identity(&self.inner.driver) == identity(&other.inner.driver)
    }
}

impl Eq for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}, {})", self.kind().name(), self.name())
    }
}
