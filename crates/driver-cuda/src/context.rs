//! A device's primary context, and the objects that its queues share.
//!
//! The context is made current for each call and restored afterwards, so that a program that uses CUDA itself is not affected. A failure
//! that destroys the context is recorded here after the poller thread has processed everything in flight; from then on, all calls for
//! the device return it.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream};
use elinvar_driver::{Error, Promise, Result};
use parking_lot::Mutex;

use crate::api::Api;
use crate::failure::{Failure, code};

/// `CU_STREAM_NON_BLOCKING`: no synchronization with the program's work on the default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const DISABLE_TIMING: u32 = 2;

/// The primary context of a device.
pub(crate) struct Context {
    pub(crate) api: &'static Api,
    pub(crate) device: CUdevice,
    pub(crate) raw: CUcontext,
    /// Name of the device, for messages.
    pub(crate) name: String,
    /// The error that destroyed the context, if any.
    lost: OnceLock<Error>,
    /// Idle streams for synchronous operations of the host.
    idle: Mutex<Vec<Handle<CUstream>>>,
    /// Unused events: without times, and with times.
    events: [Mutex<Vec<Arc<RawEvent>>>; 2],
    /// Whether stream-ordered allocation is supported.
    pub(crate) has_pools: bool,
}

/// A driver handle, which any thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub(crate) T);

#[allow(unsafe_code)] // handles are pointers
// SAFETY: the driver API may be called from any thread with any handle.
unsafe impl<T> Send for Handle<*mut T> {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; the driver synchronizes its calls.
unsafe impl<T> Sync for Handle<*mut T> {}

#[allow(unsafe_code)] // the context is a pointer
// SAFETY: as for `Handle`; the other fields are `Sync`.
unsafe impl Send for Context {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Context {}

/// Guard: the context is current on this thread.
pub(crate) struct Current<'c> {
    context: &'c Context,
    /// Not `Send`.
    _here: std::marker::PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        let mut popped: CUcontext = std::ptr::null_mut();
        // SAFETY: removes the context that `enter` has pushed on the same thread. It fails only when the driver is shutting down, when no context
        // is current.
        let _gone = unsafe { self.context.api.pop_context(&mut popped) };
    }
}

impl Context {
    /// Retains the device's primary context, which is shared with the program's own use of CUDA.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn new(api: &'static Api, device: CUdevice, name: String, has_pools: bool) -> Result<Self> {
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device handle comes from the driver.
        unsafe { api.retain_context(&mut raw, device) }
            .map_err(|failure| Error::DeviceLost(format!("device `{name}`: {}", failure.text(api))))?;
        let (lost, idle, events) = (OnceLock::new(), Mutex::default(), Default::default());
        Ok(Self { api, device, raw, name, lost, idle, events, has_pools })
    }

    /// Makes the context current until the guard is dropped.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn enter(&self) -> Result<Current<'_>> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        // SAFETY: the context is retained while `self` is alive.
        let entered = unsafe { self.api.push_context(self.raw) };
        entered.map_err(|failure| self.error(failure, "making the context current"))?;
        Ok(Current { context: self, _here: std::marker::PhantomData })
    }

    /// The error for a failure of the operation `what`.
    pub(crate) fn error(&self, failure: Failure, what: &str) -> Error {
        if let Some(lost) = self.lost.get() {
            return lost.clone();
        }
        failure.error(self.api, &format!("device `{}`: {what}", self.name))
    }

    /// Records that the context was destroyed.
    pub(crate) fn lose(&self, cause: Error) {
        self.lost.get_or_init(|| cause);
    }

    /// The error that destroyed the context, if it was destroyed.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    /// Runs `work` on a separate stream, and waits for its completion.
    #[allow(unsafe_code)] // C functions
    pub(crate) fn done(
        &self,
        what: &str,
        work: impl FnOnce(&Api, CUstream) -> Result<(), Failure>,
    ) -> Result<()> {
        let _current = self.enter()?;
        let idle = self.idle.lock().pop();
        let stream = match idle {
            Some(stream) => stream,
            None => Handle(self.create_stream(0)?),
        };
        // SAFETY: the stream is ours.
        let ended = work(self.api, stream.0).and_then(|()| unsafe { self.api.wait_for_stream(stream.0) });
        self.idle.lock().push(stream);
        ended.map_err(|failure| self.error(failure, what))
    }

    /// Creates a stream, which the caller destroys. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn create_stream(&self, priority: i32) -> Result<CUstream> {
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: it writes a handle.
        let created = unsafe { self.api.create_stream(&mut stream, NON_BLOCKING, priority) };
        created.map_err(|failure| self.error(failure, "opening a stream"))?;
        Ok(stream)
    }

    /// Device memory in bytes: free and total.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn memory(&self) -> Result<(u64, u64)> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: it writes two numbers.
        let told = unsafe { self.api.memory_info(&mut free, &mut total) };
        told.map_err(|failure| self.error(failure, "asking for free memory"))?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Context {
    #[allow(unsafe_code)] // C functions
    fn drop(&mut self) {
        let idle = std::mem::take(self.idle.get_mut());
        let events = self.events.each_mut().map(|events| std::mem::take(events.get_mut()));
        if let Ok(_current) = self.enter() {
            // SAFETY: nothing uses these, or the context would be alive. On failure, they are released at the end of the process.
            let _left = idle.iter().try_for_each(|stream| unsafe { self.api.destroy_stream(stream.0) });
            drop(events);
        }
        // SAFETY: retained once by `new`.
        let _gone = unsafe { self.api.release_context(self.device) };
    }
}

/// A point in a stream, whose time can be read if it was recorded with it. Clones refer to the same point; the event is reused after the last of them has
/// been dropped.
pub(crate) struct DeviceEvent {
    /// Declared before the context, which must outlive it.
    event: Arc<RawEvent>,
    context: Arc<Context>,
}

/// A CUDA event, destroyed on drop.
struct RawEvent {
    api: &'static Api,
    raw: Handle<CUevent>,
    has_time: bool,
    /// Number of [`DeviceEvent`]s that refer to it; 0 while it is unused.
    references: AtomicUsize,
}

impl Drop for RawEvent {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        // SAFETY: created by `record`, and nothing uses it. On failure, it is released at the end of the process.
        let _left = unsafe { self.api.destroy_event(self.raw.0) };
    }
}

impl DeviceEvent {
    /// Records an event at the current end of a stream, with its time. The context must be current.
    pub(crate) fn record(context: &Arc<Context>, stream: CUstream) -> Result<Self, Failure> {
        Self::record_as(context, stream, true)
    }

    /// As [`DeviceEvent::record`]. Without its time, the event does not hold back the copy behind it.
    #[allow(unsafe_code)] // C functions
    pub(crate) fn record_as(
        context: &Arc<Context>,
        stream: CUstream,
        has_time: bool,
    ) -> Result<Self, Failure> {
        let idle = context.events[usize::from(has_time)].lock().pop();
        let event = match idle {
            Some(event) => event,
            None => {
                let mut event: CUevent = std::ptr::null_mut();
                let flags = if has_time { 0 } else { DISABLE_TIMING };
                // SAFETY: it writes a handle. Events without flags record times.
                unsafe { context.api.create_event(&mut event, flags) }?;
                let (raw, references) = (Handle(event), AtomicUsize::new(0));
                Arc::new(RawEvent { api: context.api, raw, has_time, references })
            }
        };
        event.references.store(1, Ordering::Relaxed);
        let event = Self { event, context: context.clone() };
        // SAFETY: both are of this context.
        unsafe { context.api.record(event.raw(), stream) }?;
        Ok(event)
    }

    fn raw(&self) -> CUevent {
        self.event.raw.0
    }

    pub(crate) fn has_time(&self) -> bool {
        self.event.has_time
    }

    /// Whether both refer to the same point.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }

    /// Whether the device has reached the event. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn has_come(&self) -> Result<bool, Failure> {
        // SAFETY: the event is ours.
        match unsafe { self.context.api.query(self.raw()) } {
            Err(Failure { code: code::NOT_READY, .. }) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Waits until the device has reached the event. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the event is ours.
        unsafe { self.context.api.wait_for_event(self.raw()) }
    }

    /// Nanoseconds from an earlier event to this one; negative if it is a later one. Both must have been reached, and the context must be
    /// current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn since(&self, earlier: &Self) -> Result<i64, Failure> {
        let mut ms = 0.0_f32;
        // SAFETY: both events are of this context and were recorded with their times.
        unsafe { self.context.api.elapsed(&mut ms, earlier.raw(), self.raw()) }?;
        Ok((f64::from(ms) * 1e6) as i64)
    }

    /// Makes a stream of the same context wait for the event. The context must be current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn gate(&self, stream: CUstream) -> Result<(), Failure> {
        // SAFETY: both are of this context, and the event was recorded.
        unsafe { self.context.api.stream_waits(stream, self.raw(), 0) }
    }

    pub(crate) fn is_of(&self, context: &Arc<Context>) -> bool {
        Arc::ptr_eq(&self.context, context)
    }
}

impl Promise for DeviceEvent {}

impl Clone for DeviceEvent {
    fn clone(&self) -> Self {
        self.event.references.fetch_add(1, Ordering::Relaxed);
        Self { event: self.event.clone(), context: self.context.clone() }
    }
}

impl Drop for DeviceEvent {
    fn drop(&mut self) {
        if self.event.references.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.context.events[usize::from(self.event.has_time)].lock().push(self.event.clone());
        }
    }
}

/// A host address as the driver's calls take it.
pub(crate) fn void<T>(bytes: *mut T) -> *mut c_void {
    bytes.cast()
}

/// An address that is `offset` bytes further.
pub(crate) fn at(address: CUdeviceptr, offset: u64) -> CUdeviceptr {
    address.wrapping_add(offset)
}
