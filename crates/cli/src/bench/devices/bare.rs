//! Bare calls of the CUDA driver and of NCCL, the baselines.
#![allow(unsafe_code)] // C functions

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::{CudaContext, DriverError, result, sys};
use elinvar::Error;
use libloading::Library;

use super::collectives::Kind;
use super::timed;
use crate::failure::{Failure, Result};

fn failed(error: DriverError) -> Failure {
    Error::DeviceLost(format!("the baseline: {error}")).into()
}

/// Memory and a stream on one GPU.
struct Place {
    context: Arc<CudaContext>,
    raw: sys::CUcontext,
    stream: sys::CUstream,
    memory: Vec<sys::CUdeviceptr>,
}

impl Place {
    fn new(ordinal: usize, sizes: &[usize]) -> Result<Self> {
        let make = || {
            let context = CudaContext::new(ordinal)?;
            context.bind_to_thread()?;
            let raw = result::ctx::get_current()?.unwrap_or(std::ptr::null_mut());
            let stream = result::stream::create(result::stream::StreamKind::NonBlocking)?;
            let mut place = Self { context, raw, stream, memory: Vec::new() };
            for size in sizes {
                // SAFETY: the context is current.
                let memory = unsafe { result::malloc_sync(*size) }?;
                place.memory.push(memory);
                // SAFETY: allocated above.
                unsafe { result::memset_d8_sync(memory, 0, *size) }?;
            }
            Ok(place)
        };
        make().map_err(failed)
    }

    fn synchronize(&self) -> Result<()> {
        self.context.bind_to_thread().map_err(failed)?;
        // SAFETY: the stream is ours.
        unsafe { result::stream::synchronize(self.stream) }.map_err(failed)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.context.bind_to_thread().is_err() {
            return;
        }
        // SAFETY: the stream and the memory are ours, and no call follows. The process' end frees what cannot be freed.
        unsafe {
            let _idle = result::stream::synchronize(self.stream);
            for memory in self.memory.drain(..) {
                let _freed = result::free_sync(memory);
            }
            let _destroyed = result::stream::destroy(self.stream);
        }
    }
}

/// Copies by `cuMemcpyPeerAsync` between two GPUs with peer access.
pub(super) struct PeerCopy {
    from: Place,
    to: Place,
    bytes: usize,
}

impl PeerCopy {
    pub(super) fn new(from: usize, to: usize, bytes: usize) -> Result<Self> {
        let places = Self { to: Place::new(to, &[bytes])?, from: Place::new(from, &[bytes])?, bytes };
        for (one, other) in [(&places.from, &places.to), (&places.to, &places.from)] {
            one.context.bind_to_thread().map_err(failed)?;
            // SAFETY: both contexts are retained. It may be enabled already, or not exist.
            let _enabled = unsafe { sys::cuCtxEnablePeerAccess(other.raw, 0) };
        }
        Ok(places)
    }

    /// Time of copies in one stream, until their end.
    pub(super) fn run(&self, count: usize) -> Result<u64> {
        let Self { from, to, bytes } = self;
        from.context.bind_to_thread().map_err(failed)?;
        timed(|| {
            for _ in 0..count {
                // SAFETY: both have this size.
                let begun = unsafe {
                    sys::cuMemcpyPeerAsync(
                        to.memory[0],
                        to.raw,
                        from.memory[0],
                        from.raw,
                        *bytes,
                        from.stream,
                    )
                };
                begun.result().map_err(failed)?;
            }
            from.synchronize()
        })
    }
}

type Comm = *mut c_void;
type InitAll = unsafe extern "C" fn(*mut Comm, i32, *const i32) -> i32;
type Group = unsafe extern "C" fn() -> i32;
type Destroy = unsafe extern "C" fn(Comm) -> i32;
type AllReduce = unsafe extern "C" fn(u64, u64, usize, i32, i32, Comm, sys::CUstream) -> i32;
type AllGather = unsafe extern "C" fn(u64, u64, usize, i32, Comm, sys::CUstream) -> i32;
type Broadcast = unsafe extern "C" fn(u64, u64, usize, i32, i32, Comm, sys::CUstream) -> i32;

/// `ncclFloat32` and `ncclSum`.
const FLOAT: i32 = 7;
const SUM: i32 = 0;

/// A communicator of NCCL over the first GPUs, in one thread.
pub(super) struct Nccl {
    places: Vec<Place>,
    comms: Vec<Comm>,
    elements: usize,
    begin: Group,
    end: Group,
    all_reduce: AllReduce,
    reduce_scatter: AllReduce,
    all_gather: AllGather,
    broadcast: Broadcast,
    destroy: Destroy,
}

fn checked(call: &str, code: i32) -> Result<()> {
    match code {
        0 => Ok(()),
        code => Err(Error::DeviceLost(format!("the baseline: {call}: NCCL result {code}")).into()),
    }
}

impl Nccl {
    /// Of the first `size` GPUs, with `elements` floats in all and a part of them on each.
    pub(super) fn new(path: &Path, size: usize, elements: usize) -> Result<Self> {
        let missing = |error: libloading::Error| Failure::from(Error::Environment(error.to_string()));
        // SAFETY: runs the library's initializers. It is never unloaded.
        let library = Box::leak(Box::new(unsafe { Library::new(path) }.map_err(missing)?));
        let places = (0..size).map(|ordinal| Place::new(ordinal, &[4 * elements, 4 * elements / size]));
        let places = places.collect::<Result<Vec<_>>>()?;
        // SAFETY: the types are those of `nccl.h`.
        let init: InitAll = unsafe { *library.get(b"ncclCommInitAll").map_err(missing)? };
        let mut nccl = Self {
            places,
            comms: vec![std::ptr::null_mut(); size],
            elements,
            // SAFETY: the types are those of `nccl.h`.
            begin: unsafe { *library.get(b"ncclGroupStart").map_err(missing)? },
            // SAFETY: see above.
            end: unsafe { *library.get(b"ncclGroupEnd").map_err(missing)? },
            // SAFETY: see above.
            all_reduce: unsafe { *library.get(b"ncclAllReduce").map_err(missing)? },
            // SAFETY: see above; both have the same type.
            reduce_scatter: unsafe { *library.get(b"ncclReduceScatter").map_err(missing)? },
            // SAFETY: see above.
            all_gather: unsafe { *library.get(b"ncclAllGather").map_err(missing)? },
            // SAFETY: see above.
            broadcast: unsafe { *library.get(b"ncclBroadcast").map_err(missing)? },
            // SAFETY: see above.
            destroy: unsafe { *library.get(b"ncclCommDestroy").map_err(missing)? },
        };
        let ordinals: Vec<i32> = (0..size as i32).collect();
        // SAFETY: it writes `size` handles.
        let code = unsafe { init(nccl.comms.as_mut_ptr(), size as i32, ordinals.as_ptr()) };
        checked("ncclCommInitAll", code)?;
        Ok(nccl)
    }

    /// Time of operations one after the other, until their end on all GPUs.
    pub(super) fn run(&self, kind: Kind, count: usize) -> Result<u64> {
        let part = self.elements / self.places.len();
        timed(|| {
            for _ in 0..count {
                // SAFETY: no arguments.
                checked("ncclGroupStart", unsafe { (self.begin)() })?;
                for (place, comm) in self.places.iter().zip(&self.comms) {
                    let (whole, own, stream) = (place.memory[0], place.memory[1], place.stream);
                    let (n, comm) = (self.elements, *comm);
                    // SAFETY: the memory has these numbers of floats.
                    let code = unsafe {
                        match kind {
                            Kind::AllReduce => (self.all_reduce)(whole, whole, n, FLOAT, SUM, comm, stream),
                            Kind::ReduceScatter => {
                                (self.reduce_scatter)(whole, own, part, FLOAT, SUM, comm, stream)
                            }
                            Kind::AllGather => (self.all_gather)(own, whole, part, FLOAT, comm, stream),
                            Kind::Broadcast => (self.broadcast)(whole, whole, n, FLOAT, 0, comm, stream),
                        }
                    };
                    checked("a collective", code)?;
                }
                // SAFETY: no arguments.
                checked("ncclGroupEnd", unsafe { (self.end)() })?;
            }
            self.places.iter().try_for_each(Place::synchronize)
        })
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        for comm in self.comms.drain(..).filter(|comm| !comm.is_null()) {
            // SAFETY: the handle is ours, and its work has ended.
            unsafe { (self.destroy)(comm) };
        }
    }
}
