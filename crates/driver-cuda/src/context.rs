//! A device's primary context: what all calls for the device go through, and what is shared by its queues.
//!
//! The context is made current for a call and taken back after it, so that a program which uses CUDA itself finds its own.
//! A failure that ends the context is noted here once the device's thread has looked at what was in flight; from then on the
//! device answers it to everything.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use cudarc::driver::sys::{CUcontext, CUdevice, CUdeviceptr, CUevent, CUstream};
use elinvar_driver::{Error, Promise, Result};
use parking_lot::Mutex;

use crate::api::Api;
use crate::failure::{Failure, code};

/// `CU_STREAM_NON_BLOCKING`: no order with the program's own work on the default stream.
const NON_BLOCKING: u32 = 1;

/// The primary context of a device.
pub(crate) struct Context {
    pub(crate) api: &'static Api,
    pub(crate) device: CUdevice,
    pub(crate) raw: CUcontext,
    /// The device's name, for messages.
    pub(crate) name: String,
    /// Why nothing works any more, if so.
    lost: OnceLock<Error>,
    /// Streams for what the host waits for, when none uses them.
    idle: Mutex<Vec<Handle<CUstream>>>,
    /// Events that are not in use.
    events: Mutex<Vec<Arc<RawEvent>>>,
    /// Whether memory can be had and given back in the order of a stream.
    pub(crate) has_pools: bool,
}

/// A handle of the driver's, which any thread may use.
#[derive(Clone, Copy)]
pub(crate) struct Handle<T>(pub(crate) T);

#[allow(unsafe_code)] // handles are pointers
// SAFETY: the driver API may be called from any thread with any of its handles.
unsafe impl<T> Send for Handle<*mut T> {}
#[allow(unsafe_code)] // as above
// SAFETY: as above; the driver locks what it has to.
unsafe impl<T> Sync for Handle<*mut T> {}

#[allow(unsafe_code)] // the context is a pointer
// SAFETY: as for `Handle`; all else in it is safe to share.
unsafe impl Send for Context {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Context {}

/// While it lives the context is the thread's current one.
pub(crate) struct Current<'c> {
    context: &'c Context,
    /// It belongs to this thread.
    _here: std::marker::PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        let mut popped: CUcontext = std::ptr::null_mut();
        // SAFETY: it takes away what `enter` has put there, on the same thread. It cannot fail but when the driver is
        // shutting down, when nothing is current any more.
        let _gone = unsafe { self.context.api.pop_context(&mut popped) };
    }
}

impl Context {
    /// The device's primary context, shared with the program's own use of CUDA.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn new(api: &'static Api, device: CUdevice, name: String, has_pools: bool) -> Result<Self> {
        let mut raw: CUcontext = std::ptr::null_mut();
        // SAFETY: the device is one that the driver has named.
        unsafe { api.retain_context(&mut raw, device) }
            .map_err(|failure| Error::DeviceLost(format!("device `{name}`: {}", failure.text(api))))?;
        let (lost, idle, events) = (OnceLock::new(), Mutex::default(), Mutex::default());
        Ok(Self { api, device, raw, name, lost, idle, events, has_pools })
    }

    /// Make the context current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn enter(&self) -> Result<Current<'_>> {
        if let Some(lost) = self.lost.get() {
            return Err(lost.clone());
        }
        // SAFETY: the context is retained as long as `self` lives.
        let entered = unsafe { self.api.push_context(self.raw) };
        entered.map_err(|failure| self.error(failure, "making the context current"))?;
        Ok(Current { context: self, _here: std::marker::PhantomData })
    }

    /// The error for a failure while `what` was done.
    pub(crate) fn error(&self, failure: Failure, what: &str) -> Error {
        if let Some(lost) = self.lost.get() {
            return lost.clone();
        }
        failure.error(self.api, &format!("device `{}`: {what}", self.name))
    }

    /// Note that the context has ended.
    pub(crate) fn lose(&self, cause: Error) {
        self.lost.get_or_init(|| cause);
    }

    /// Why the context has ended, if it has.
    pub(crate) fn lost(&self) -> Option<&Error> {
        self.lost.get()
    }

    /// Have `work` done on a stream of its own, and wait for its end.
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

    /// A new stream, which the caller destroys. The context is current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn create_stream(&self, priority: i32) -> Result<CUstream> {
        let mut stream: CUstream = std::ptr::null_mut();
        // SAFETY: it writes a handle.
        let created = unsafe { self.api.create_stream(&mut stream, NON_BLOCKING, priority) };
        created.map_err(|failure| self.error(failure, "opening a stream"))?;
        Ok(stream)
    }

    /// Bytes of device memory: free ones and all.
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
        let (idle, events) = (std::mem::take(self.idle.get_mut()), std::mem::take(self.events.get_mut()));
        if let Ok(_current) = self.enter() {
            // SAFETY: nothing uses these any more, or the context would live. A failure leaves them to the process's end.
            let _left = idle.iter().try_for_each(|stream| unsafe { self.api.destroy_stream(stream.0) });
            drop(events);
        }
        // SAFETY: retained once by `new`.
        let _gone = unsafe { self.api.release_context(self.device) };
    }
}

/// A point of a stream that the device reaches at a time that can be read. Clones are the same point; the event is recorded again
/// once the last of them has been dropped.
pub(crate) struct DeviceEvent {
    /// Declared before the context, which outlives it.
    event: Arc<RawEvent>,
    context: Arc<Context>,
}

/// A CUDA event, destroyed when it is dropped.
struct RawEvent {
    api: &'static Api,
    raw: Handle<CUevent>,
    /// The [`DeviceEvent`]s that refer to it; 0 while it is not in use.
    references: AtomicUsize,
}

impl Drop for RawEvent {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        // SAFETY: created by `record`, and nothing uses it any more. A failure leaves it to the process's end.
        let _left = unsafe { self.api.destroy_event(self.raw.0) };
    }
}

impl DeviceEvent {
    /// The end of the work that the stream has now. The context is current.
    #[allow(unsafe_code)] // C functions
    pub(crate) fn record(context: &Arc<Context>, stream: CUstream) -> Result<Self, Failure> {
        let idle = context.events.lock().pop();
        let event = match idle {
            Some(event) => event,
            None => {
                let mut event: CUevent = std::ptr::null_mut();
                // SAFETY: it writes a handle. Without flags an event has a time.
                unsafe { context.api.create_event(&mut event, 0) }?;
                Arc::new(RawEvent { api: context.api, raw: Handle(event), references: AtomicUsize::new(0) })
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

    /// Whether both are the same point.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.raw() == other.raw()
    }

    /// Whether the device has come there. The context is current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn has_come(&self) -> Result<bool, Failure> {
        // SAFETY: the event is ours.
        match unsafe { self.context.api.query(self.raw()) } {
            Err(Failure { code: code::NOT_READY, .. }) => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// Wait until the device has come there. The context is current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn wait(&self) -> Result<(), Failure> {
        // SAFETY: the event is ours.
        unsafe { self.context.api.wait_for_event(self.raw()) }
    }

    /// Nanoseconds from an earlier event to this one, negative if it is a later one; both have been reached. The context is
    /// current.
    #[allow(unsafe_code)] // a C function
    pub(crate) fn since(&self, earlier: &Self) -> Result<i64, Failure> {
        let mut ms = 0.0_f32;
        // SAFETY: both events are of this context and were recorded with their times.
        unsafe { self.context.api.elapsed(&mut ms, earlier.raw(), self.raw()) }?;
        Ok((f64::from(ms) * 1e6) as i64)
    }

    /// Let a stream of the same context go on when the device has come there. The context is current.
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
            self.context.events.lock().push(self.event.clone());
        }
    }
}

/// A place in memory as the driver's calls take it for the host's side.
pub(crate) fn void<T>(bytes: *mut T) -> *mut c_void {
    bytes.cast()
}

/// An address that is `offset` bytes further.
pub(crate) fn at(address: CUdeviceptr, offset: u64) -> CUdeviceptr {
    address.wrapping_add(offset)
}
