//! [`Device`]: the entry point of the API.
//!
//! A `Device` is a handle on a driver's device. It allocates buffers, compiles sources and creates streams; the state that
//! handles share is in [`crate::device::registry`]. Two handles are equal if they share the driver's object. A launch uses
//! objects of one device only.

mod drivers;
mod registry;
mod tuning_cache;

#[cfg(not(feature = "translate"))]
use elinvar_driver::SourceLanguage;
use std::borrow::{Borrow, Cow};
use std::fmt;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};
use std::time::Instant;

use bytemuck::Pod;
use elinvar_driver::{
    Callback, Cancellation, Caps, DeviceKind, Error, HostBlock, Init, Priority, Result, Source,
    Storage as StorageMode, TimestampSlot,
};

use crate::identity::identity;
use crate::launch::bound::RustKernels;
use crate::launch::command_list_pool::CommandListPool;
use crate::launch::group::Members;
use crate::launch::tune::Tuned;
use crate::memory::object_pool::ObjectPool;
use crate::memory::span::Span;
use crate::observe::event;
use crate::observe::hardware::Hardware;
use crate::observe::metrics::Counters;
use crate::recovery::{RecoveringQueue, Recovery};
use crate::sync::coalesce::Coalescers;
use crate::sync::device_state::DeviceState;
use crate::tensor::{KernelCache, RouteChoices};
use crate::transfer::TransferLog;
use crate::{
    Buffer, CommandListStats, Compilation, Event, EventStats, HostAccess, Library, Pool, RecoveryPolicy,
    Stream, StreamGroup, Trace,
};

use registry::Inner;
pub use tuning_cache::TuningCache;

/// A device that runs kernels. A clone is another handle on the same device.
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
}

impl Device {
    /// All devices of this machine, in order of preference: Apple GPUs, NVIDIA GPUs, the CPU. Hardware that is present but does
    /// not work is left out; [`Device::absent`] has the reason, and the next call queries it again.
    ///
    /// # Errors
    /// `Unsupported` if there is no device, with the reason of each driver.
    pub fn all() -> Result<Vec<Self>> {
        let devices = drivers::devices();
        if devices.is_empty() {
            let reasons = Self::absent().into_iter().map(|(kind, reason)| format!("\n{kind}: {reason}"));
            let reasons: String = reasons.collect();
            return Err(Error::unsupported(format!("no driver of this build has found a device{reasons}")));
        }
        Ok(devices)
    }

    /// Kinds of hardware without a device in [`Device::all`], as pairs of lower-case name and reason. Queries the drivers if that
    /// has not been done.
    pub fn absent() -> Vec<(&'static str, String)> {
        drivers::absences()
    }

    /// The first device of [`Device::all`].
    ///
    /// # Errors
    /// As [`Device::all`].
    pub fn system_default() -> Result<Self> {
        Ok(Self::all()?.swap_remove(0))
    }

    /// The CPU.
    ///
    /// # Errors
    /// `Unsupported` if this build has no CPU driver.
    pub fn cpu() -> Result<Self> {
        let cpu = Self::all()?.into_iter().find(|d| d.kind() == DeviceKind::Cpu);
        cpu.ok_or_else(|| Error::unsupported("this build has no CPU driver"))
    }

    /// The CPU, with kernels in a worker process. A faulty kernel can corrupt the device's own buffers, but no other memory of
    /// this program. If the worker crashes, or is ended because it does not stop, pending work ends in [`Error::DeviceLost`] with
    /// the cause, and the next submission starts a new worker. Buffers keep their content.
    ///
    /// Each call creates another device with its own worker. The worker's program is this program, if it calls
    /// [`crate::serve_if_asked`] at the start of `main`, or `elinvar`; see [`crate::IsolatedOptions::program`].
    ///
    /// # Errors
    /// `Environment` if no worker can be started, with the reason; `Unsupported` on systems other than Linux.
    #[cfg(feature = "isolated")]
    pub fn isolated() -> Result<Self> {
        Self::isolated_with(&crate::IsolatedOptions::default())
    }

    /// As [`Device::isolated`], with the worker's limits and program.
    ///
    /// # Errors
    /// As [`Device::isolated`].
    #[cfg(feature = "isolated")]
    pub fn isolated_with(options: &crate::IsolatedOptions) -> Result<Self> {
        Ok(Self::new(elinvar_driver_isolated::device(options)?))
    }

    /// A device of a driver that [`Device::all`] does not know.
    ///
    /// Handles created from the same `Arc` are equal; another `Arc` is another device.
    pub fn new(driver: Arc<dyn elinvar_driver::Device>) -> Self {
        Self { inner: registry::inner(driver) }
    }

    /// Identity, limits and features.
    pub fn caps(&self) -> &Caps {
        self.inner.driver.caps()
    }

    /// Further properties reported by the driver, for display, as pairs of name and value.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        self.inner.driver.details()
    }

    /// Name of the hardware.
    pub fn name(&self) -> &str {
        &self.caps().name
    }

    /// Kind of hardware.
    pub fn kind(&self) -> DeviceKind {
        self.caps().kind
    }

    /// Compiles MSL source. Takes a [`Source`] or a reference to one. OpenCL C is translated first, if the feature `translate` is enabled.
    ///
    /// # Errors
    /// `Compile` with diagnostics that have file, line and column; `Environment` if the compiler cannot be found or run;
    /// `Unsupported`.
    pub fn compile(&self, source: impl Borrow<Source>) -> Result<Library> {
        self.expect_here("Device::compile")?;
        let source = source.borrow();
        let begun = Instant::now();
        let span = event::compile(self, source.files.first().map_or("", |file| &file.name));
        let source = as_msl(source)?;
        let source = Source::linked(&source)?;
        let library = span.in_scope(|| self.compiled(self.inner.driver.compile(&source)));
        event::compiled(&span, self, library.as_ref().err());
        self.counters().compilation(library.as_ref().err(), begun.elapsed());
        Ok(Library::new(self.clone(), library?, &source))
    }

    /// Compiles MSL source as [`Device::compile`], in the background. The compilation can be cancelled.
    pub fn compile_async(&self, source: impl Borrow<Source>) -> Compilation<Library> {
        let (device, source) = (self.clone(), source.borrow().clone());
        Compilation::begin(move || device.compile(source))
    }

    /// Records the outcome of a compilation for the device's health; a cancellation is none.
    pub(crate) fn compiled<T>(&self, result: Result<T>) -> Result<T> {
        if Cancellation::current().is_some_and(|cancellation| cancellation.is_cancelled()) {
            return Err(Error::Cancelled);
        }
        self.recovery().vitals.compilation(result.as_ref().err());
        result
    }

    /// The device's memory pool: statistics, limits, trimming.
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Allocates a buffer of `len` zeroed elements, accessible by host and device.
    ///
    /// # Errors
    /// `OutOfMemory`; `InvalidArgument` if the size exceeds [`Limits::max_buffer_bytes`](crate::Limits::max_buffer_bytes), or for an element of size 0 or with an
    /// alignment above 256 bytes.
    #[track_caller]
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        self.buffer_for(len, HostAccess::ReadWrite)
    }

    /// Allocates a buffer of `len` zeroed elements. Its storage mode follows from the host's access; see [`HostAccess`].
    ///
    /// # Errors
    /// As [`Device::buffer`].
    #[track_caller]
    pub fn buffer_for<T: Pod>(&self, len: usize, host: HostAccess) -> Result<Buffer<T>> {
        self.buffer_in(len, host.storage(self.caps()))
    }

    /// As [`Device::buffer`], with an explicit storage mode.
    ///
    /// # Errors
    /// As [`Device::buffer`]; `Unsupported` if the device lacks the storage mode.
    #[track_caller]
    pub fn buffer_in<T: Pod>(&self, len: usize, storage: StorageMode) -> Result<Buffer<T>> {
        self.allocate(len, storage, Init::Zeroed)
    }

    /// Allocates a buffer that holds a copy of `data`.
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

    /// Allocates a buffer of `len` elements with unspecified content, possibly that of a freed buffer. Saves the time for
    /// zeroing.
    ///
    /// # Safety
    /// Every element must be written, by host or device, before it is read by either.
    ///
    /// # Errors
    /// As [`Device::buffer`].
    #[allow(unsafe_code)] // declares an unsafe function
    #[track_caller]
    pub unsafe fn buffer_uninit<T: Pod>(&self, len: usize, host: HostAccess) -> Result<Buffer<T>> {
        self.allocate(len, host.storage(self.caps()), Init::Uninitialized)
    }

    /// Creates a buffer over host memory without a copy (`makeBuffer(bytesNoCopy:)` in Metal). `owner` is dropped when the last
    /// handle is gone and the device has finished all work that uses the memory. Its destructor runs on the thread that releases
    /// the last reference; it must not wait for work ([`Error::WouldDeadlock`]). Address and length must be multiples of
    /// [`Limits::wrap_granule`](crate::Limits::wrap_granule), as those of a mapped file are.
    ///
    /// # Safety
    /// The slice that `owner` returns must not move until `owner` is dropped. Until then it may be accessed through the buffer
    /// only.
    ///
    /// # Errors
    /// `Unsupported` if the device cannot import host memory; `InvalidArgument` if address or length is not a multiple of
    /// [`Limits::wrap_granule`](crate::Limits::wrap_granule), the size exceeds [`Limits::max_buffer_bytes`](crate::Limits::max_buffer_bytes), or the element has size 0.
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
        // SAFETY: the caller guarantees it for the slice; the owner is boxed, so it does not move.
        let memory = unsafe { self.inner.driver.wrap(HostBlock { address, bytes, owner }) }?;
        let block = self.pool().adopt(memory, Location::caller());
        Ok(Buffer::new(Span::whole(self.clone(), block)))
    }

    /// Creates a stream of normal priority, independent of all others.
    ///
    /// # Errors
    /// The driver's, if it cannot create another queue.
    pub fn stream(&self) -> Result<Stream> {
        self.stream_with(Priority::Normal)
    }

    /// Creates a stream with a scheduling priority. Running work is not preempted.
    ///
    /// # Errors
    /// As [`Device::stream`]; `Unsupported` for a priority other than [`Priority::Normal`] where [`crate::Features::priorities`]
    /// is false.
    pub fn stream_with(&self, priority: Priority) -> Result<Stream> {
        self.expect_here("Device::stream")?;
        Ok(Stream::new(self.clone(), self.inner.driver.queue_with(priority)?, priority))
    }

    /// Creates a stream that recovers from failures according to `policy`: failed work is retried or rerun on another device,
    /// while the work behind it waits. Unrecoverable failures end work as on any stream. Decisions are recorded in the
    /// [trace](Device::trace).
    ///
    /// # Errors
    /// As [`Device::stream`]; `Environment` if its thread cannot be started.
    pub fn stream_recovering(&self, policy: RecoveryPolicy) -> Result<Stream> {
        self.expect_here("Device::stream_recovering")?;
        let queue = Arc::new(RecoveringQueue::new(self, Priority::Normal, policy)?);
        Ok(Stream::recovering(self.clone(), queue, Priority::Normal))
    }

    /// A group of streams for independent work: up to [`Limits::parallel_queues`](crate::Limits::parallel_queues), each created on demand.
    pub fn stream_group(&self) -> StreamGroup {
        self.stream_group_with(self.caps().limits.parallel_queues as usize, Priority::Normal)
    }

    /// As [`Device::stream_group`], with at most `most` streams (0 counts as 1) of the given priority.
    pub fn stream_group_with(&self, most: usize, priority: Priority) -> StreamGroup {
        StreamGroup::new(self.clone(), most, priority)
    }

    /// Blocks until all work submitted before, to any stream of the device, has ended, successfully or not. The device has then
    /// released the memory that only that work used. [`crate::Completion`] has the result of each submission.
    ///
    /// Includes work that is blocked on an event, which must therefore be signaled elsewhere. Work that was pending when the
    /// device was lost has ended.
    ///
    /// # Errors
    /// `WouldDeadlock` in a waker or the destructor of a buffer's memory, unless all work has ended.
    pub fn synchronize(&self) -> Result<()> {
        self.expect_here("Device::synchronize")?;
        self.state().pending().iter().try_for_each(|outcome| outcome.wait("Device::synchronize").map(drop))
    }

    /// Creates an event with value 0.
    ///
    /// # Errors
    /// The driver's, if it cannot create another event.
    pub fn event(&self) -> Result<Event> {
        self.expect_here("Device::event")?;
        Event::new(self.clone())
    }

    /// Statistics of the device's events.
    pub fn event_stats(&self) -> EventStats {
        self.inner.events.stats()
    }

    /// Statistics of the device's timestamps.
    pub fn timestamp_stats(&self) -> EventStats {
        self.inner.timestamps.stats()
    }

    /// Current time of the device's clock in nanoseconds, comparable with [`crate::Timing`].
    pub fn clock_ns(&self) -> u64 {
        self.inner.driver.clock_ns()
    }

    /// The trace of submissions; off until [`Trace::start`].
    pub fn trace(&self) -> &Trace {
        &self.inner.trace
    }

    /// Statistics of the command lists that command buffers record into.
    pub fn command_list_stats(&self) -> CommandListStats {
        self.inner.command_lists.stats()
    }

    /// Sets how many command lists are allocated in advance and kept: `count` clamped to 8 to 32; 16 by default. Lists that are
    /// idle for a minute are freed.
    pub fn keep_command_lists(&self, count: usize) {
        self.inner.command_lists.keep(count);
    }

    /// Releases the compiled kernels of [tensor operations](crate::tensor), which are otherwise kept as long as the device. Later
    /// operations compile them again.
    pub fn release_tensor_kernels(&self) {
        self.inner.tensor_kernels.clear();
    }

    pub(crate) fn route_choices(&self) -> &RouteChoices {
        &self.inner.route_choices
    }

    pub(crate) fn tensor_kernels(&self) -> &KernelCache {
        &self.inner.tensor_kernels
    }

    pub(crate) fn transfers(&self) -> &TransferLog {
        &self.inner.transfers
    }

    /// Number of the device, unique in the process.
    pub(crate) fn number(&self) -> u64 {
        self.inner.number
    }

    /// Records that kernels may access memory of `other`.
    pub(crate) fn add_peer(&self, other: &Device) {
        let mut peers = self.inner.peers.lock();
        if !peers.contains(&other.number()) {
            peers.push(other.number());
        }
    }

    /// Rejects `subject` of device `other` unless kernels of this device may access it.
    pub(crate) fn expect_accessible(&self, other: &Device, subject: impl FnOnce() -> String) -> Result<()> {
        if self == other || self.inner.peers.lock().contains(&other.number()) {
            return Ok(());
        }
        self.expect_same(other, subject).map_err(|error| match error {
            Error::InvalidArgument(text)
                if self.driver().link(other.driver()).is_some_and(|link| link.access) =>
            {
                Error::InvalidArgument(format!("{text}; `Device::peer_access` allows it"))
            }
            error => error,
        })
    }

    pub(crate) fn rust_kernels(&self) -> &RustKernels {
        &self.inner.rust_kernels
    }

    pub(crate) fn tuned(&self) -> &Tuned {
        &self.inner.tuned
    }

    pub(crate) fn coalescers(&self) -> &Coalescers {
        &self.inner.coalescers
    }

    pub(crate) fn command_lists(&self) -> &CommandListPool {
        &self.inner.command_lists
    }

    pub(crate) fn driver_arc(&self) -> Arc<dyn elinvar_driver::Device> {
        self.inner.driver.clone()
    }

    pub(crate) fn driver(&self) -> &dyn elinvar_driver::Device {
        &*self.inner.driver
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.inner.counters
    }

    pub(crate) fn hardware(&self) -> &Hardware {
        &self.inner.hardware
    }

    pub(crate) fn recovery(&self) -> &Recovery {
        &self.inner.recovery
    }

    pub(crate) fn state(&self) -> &Arc<DeviceState> {
        &self.inner.state
    }

    pub(crate) fn timestamps(&self) -> &ObjectPool<Arc<TimestampSlot>> {
        &self.inner.timestamps
    }

    pub(crate) fn events(&self) -> &ObjectPool<Arc<dyn elinvar_driver::Event>> {
        &self.inner.events
    }

    /// Registers a group, so that its idle streams are closed.
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
        // The allocation is registered before a reset can begin.
        let state = self.state().read();
        if storage == StorageMode::Shared { state.check_available() } else { state.check_content() }?;
        let block = self.pool().allocate(bytes, storage, init, Location::caller())?;
        Ok(Buffer::new(Span::whole(self.clone(), block)))
    }

    /// Whether it was created in this process.
    pub(crate) fn is_here(&self) -> bool {
        self.inner.process.is_this()
    }

    /// Rejects `what` in another process than the device's.
    ///
    /// # Errors
    /// `DeviceLost` in a child of the process that created the device.
    pub(crate) fn expect_here(&self, what: &str) -> Result<()> {
        self.inner.process.expect_this(&what)
    }

    /// Rejects a buffer that exceeds the device's limit.
    fn expect_allowed(&self, bytes: u64) -> Result<()> {
        let limit = self.caps().limits.max_buffer_bytes;
        if bytes <= limit {
            return Ok(());
        }
        Err(Error::invalid(format!("a buffer of {bytes} bytes: device `{}` allows {limit}", self.name())))
    }

    /// Rejects `subject` of device `other` unless `other` is this device.
    pub(crate) fn expect_same(&self, other: &Device, subject: impl FnOnce() -> String) -> Result<()> {
        if self == other {
            return Ok(());
        }
        let (ours, theirs) = (self.name(), other.name());
        let note = if ours == theirs { " (another device of that name)" } else { "" };
        Err(Error::invalid(format!("{} of device `{theirs}`, used with device `{ours}`{note}", subject())))
    }
}

/// Owner of a buffer's host memory. Its destructor is code of the program and runs on the thread that releases the last reference.
struct Owner<O>(Option<O>);

impl<O> Drop for Owner<O> {
    fn drop(&mut self) {
        let _callback = Callback::enter();
        drop(self.0.take());
    }
}

/// Size of `len` elements in bytes.
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
    /// Whether both are handles on the same device of the driver.
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

/// The source in MSL.
#[cfg(feature = "translate")]
fn as_msl(source: &Source) -> Result<Cow<'_, Source>> {
    elinvar_translate::as_msl(source)
}

#[cfg(not(feature = "translate"))]
fn as_msl(source: &Source) -> Result<Cow<'_, Source>> {
    if source.language == SourceLanguage::Msl {
        return Ok(Cow::Borrowed(source));
    }
    Err(Error::unsupported(
        "this build does not translate OpenCL C: enable the feature `translate` of the crate `elinvar`",
    ))
}
