//! Collectives by NCCL, NVIDIA's library, which is found like the other libraries and loaded when a communicator is created.
//!
//! Communicators are nonblocking (`ncclConfig_t::blocking`): calls return while they are in progress, so that a wait for a member that never comes can be
//! given up, by `ncclCommAbort`. A collective is on a stream of the communicator: device events order it behind the work before it and before the work
//! behind it, without the host. Source: NVIDIA's NCCL documentation, and `nccl.h` of version 2.18.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUdeviceptr, CUstream};
use elinvar_driver::{
    Check, Collective, CollectiveCall, CollectiveLibrary, Error, Init, LibraryMember, Point, Reduction,
    Result, Scalar, Storage,
};

use super::load::{Object, Status, find, library};
use crate::context::{Context, DeviceEvent, Handle};
use crate::function::address;
use crate::memory::CudaMemory;
use crate::queue::CudaEvent;

/// `ncclInProgress`.
const IN_PROGRESS: i32 = 7;
/// `NCCL_CONFIG_UNDEF_INT`.
const UNDEFINED: i32 = i32::MIN;
/// `NCCL_API_MAGIC`.
const MAGIC: u32 = 0xcafe_beef;
/// The version whose configuration this is; later libraries set what it lacks.
const CONFIG_VERSION: u32 = 21_800;
/// Time that a wait does not sleep.
const AWAKE: Duration = Duration::from_millis(20);
/// Interval at which the other members are checked while the device works.
const CHECK: Duration = Duration::from_millis(1);
/// Time for the work of a communicator that is destroyed to end.
const ENDING: Duration = Duration::from_secs(10);

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// `ncclConfig_t`.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    cga_cluster_size: i32,
    min_ctas: i32,
    max_ctas: i32,
    net_name: *const c_void,
    split_share: i32,
}

library! {
    /// Functions of NCCL.
    Functions {
        version = "ncclGetVersion"(version: *mut i32);
        unique_id = "ncclGetUniqueId"(id: *mut UniqueId);
        init_rank = "ncclCommInitRankConfig"(comm: *mut Object, size: i32, id: UniqueId, rank: i32, config: *mut Config);
        async_error = "ncclCommGetAsyncError"(comm: Object, error: *mut i32);
        finalize = "ncclCommFinalize"(comm: Object);
        destroy = "ncclCommDestroy"(comm: Object);
        abort = "ncclCommAbort"(comm: Object);
        group_start = "ncclGroupStart"();
        group_end = "ncclGroupEnd"();
        all_reduce = "ncclAllReduce"(
            source: CUdeviceptr, target: CUdeviceptr, count: usize, data_type: i32, op: i32, comm: Object, stream: CUstream,
        );
        reduce = "ncclReduce"(
            source: CUdeviceptr, target: CUdeviceptr, count: usize, data_type: i32, op: i32, root: i32, comm: Object,
            stream: CUstream,
        );
        reduce_scatter = "ncclReduceScatter"(
            source: CUdeviceptr, target: CUdeviceptr, count: usize, data_type: i32, op: i32, comm: Object, stream: CUstream,
        );
        broadcast = "ncclBroadcast"(
            source: CUdeviceptr, target: CUdeviceptr, count: usize, data_type: i32, root: i32, comm: Object, stream: CUstream,
        );
        all_gather = "ncclAllGather"(
            source: CUdeviceptr, target: CUdeviceptr, count: usize, data_type: i32, comm: Object, stream: CUstream,
        );
        send = "ncclSend"(source: CUdeviceptr, count: usize, data_type: i32, peer: i32, comm: Object, stream: CUstream);
        receive = "ncclRecv"(target: CUdeviceptr, count: usize, data_type: i32, peer: i32, comm: Object, stream: CUstream);
    }
}

/// Read by threads that call NCCL, and held for writing from the end of the process on: the library's destructors run then.
static CALLS: RwLock<()> = RwLock::new(());

/// Keeps the process from ending as long as it exists, at most for [`ENDING`].
fn calling() -> RwLockReadGuard<'static, ()> {
    CALLS.read().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no thread calls NCCL, and keeps them from it.
extern "C" fn end_calls() {
    let begin = Instant::now();
    while begin.elapsed() < ENDING {
        if let Ok(forever) = CALLS.try_write() {
            return std::mem::forget(forever);
        }
        std::thread::sleep(CHECK);
    }
}

/// Registers [`end_calls`], behind the library's own handlers, so that it is called before them.
#[cfg(unix)]
#[allow(unsafe_code)] // a C function
fn at_exit() {
    // SAFETY: `end_calls` does not unwind.
    let _is_kept = unsafe { libc::atexit(end_calls) };
}

#[cfg(not(unix))]
fn at_exit() {}

/// NCCL for one device.
pub(crate) struct Nccl {
    context: Arc<Context>,
    functions: Arc<Functions>,
}

/// `ncclDataType_t` of a number; `None` for those without reductions.
fn data_type(element: Scalar) -> Option<i32> {
    Some(match element {
        Scalar::I8 => 0,
        Scalar::Bool | Scalar::U8 => 1,
        Scalar::I32 => 2,
        Scalar::U32 => 3,
        Scalar::I64 => 4,
        Scalar::U64 => 5,
        Scalar::F16 => 6,
        Scalar::F32 => 7,
        Scalar::BF16 => 9,
        Scalar::I16 | Scalar::U16 => return None,
    })
}

/// `ncclUint8`, as which data is moved.
const BYTES: i32 = 1;

/// `ncclRedOp_t`.
fn operation(reduction: Reduction) -> i32 {
    match reduction {
        Reduction::Sum => 0,
        Reduction::Product => 1,
        Reduction::Max => 2,
        Reduction::Min => 3,
    }
}

/// The path of the library, or the reason why there is none.
pub(crate) fn path() -> Result<PathBuf, String> {
    find("nccl", &[2])
}

impl Nccl {
    /// Loads the library, once for the process.
    ///
    /// # Errors
    /// `Unsupported` with the reason.
    pub(crate) fn open(context: &Arc<Context>) -> Result<Self> {
        static FUNCTIONS: OnceLock<Result<Arc<Functions>, String>> = OnceLock::new();
        let open = || {
            let path = path()?;
            let functions = Functions::open(&path)?;
            let mut version = 0;
            #[allow(unsafe_code)] // a C function
            // SAFETY: it writes a number.
            let told = unsafe { functions.version(&mut version) };
            told.map_err(|status| format!("{}: {status:?}", path.display()))?;
            if version < 21_800 {
                return Err(format!(
                    "{}: version {version}, 21800 (2.18) or later is needed",
                    path.display()
                ));
            }
            at_exit();
            Ok(Arc::new(functions))
        };
        let functions = FUNCTIONS.get_or_init(open).clone().map_err(Error::Unsupported)?;
        Ok(Self { context: context.clone(), functions })
    }

    fn error(&self, Status { call, code }: Status, what: &str) -> Error {
        let name = match code {
            1 => "ncclUnhandledCudaError",
            2 => "ncclSystemError",
            3 => "ncclInternalError",
            4 => "ncclInvalidArgument",
            5 => "ncclInvalidUsage",
            6 => "ncclRemoteError",
            _ => "an unknown error",
        };
        Error::Environment(format!("device `{}`: {call}: {name} ({code}), {what}", self.context.name))
    }
}

impl CollectiveLibrary for Nccl {
    fn name(&self) -> &'static str {
        "nccl"
    }

    #[allow(unsafe_code)] // a C function
    fn unique_id(&self) -> Result<Vec<u8>> {
        let _current = self.context.enter()?;
        let (_calling, mut id) = (calling(), UniqueId([0; 128]));
        // SAFETY: it writes 128 bytes.
        unsafe { self.functions.unique_id(&mut id) }
            .map_err(|status| self.error(status, "creating an identity"))?;
        Ok(id.0.to_vec())
    }

    #[allow(unsafe_code)] // C functions
    fn join(&self, id: &[u8], rank: u32, size: u32, check: &mut Check<'_>) -> Result<Box<dyn LibraryMember>> {
        let id: [u8; 128] = id.try_into().map_err(|_| Error::invalid("an identity that is not NCCL's"))?;
        let (context, functions, _calling) = (self.context.clone(), self.functions.clone(), calling());
        let current = context.enter()?;
        let stream = Handle(context.create_stream(0)?);
        let scratch = CudaMemory::new(&context, 256, Storage::Private, Init::Zeroed)?;
        let mut config = Config {
            size: size_of::<Config>(),
            magic: MAGIC,
            version: CONFIG_VERSION,
            blocking: 0,
            cga_cluster_size: UNDEFINED,
            min_ctas: UNDEFINED,
            max_ctas: UNDEFINED,
            net_name: std::ptr::null(),
            split_share: UNDEFINED,
        };
        let mut comm: Object = std::ptr::null_mut();
        let (ranks, rank_number) = (size as i32, rank as i32);
        // SAFETY: it reads the configuration and writes a handle, which later calls may use while it is in progress.
        let begun = unsafe { functions.init_rank(&mut comm, ranks, UniqueId(id), rank_number, &mut config) };
        drop(current);
        let nccl = Self { context, functions };
        let (starting, running, checked) = (None, VecDeque::new(), Instant::now());
        let comm = Handle(comm);
        let mut member = NcclMember { nccl, comm, stream, scratch, rank, size, starting, running, checked };
        let made = member.settle(begun, "joining a communicator", check);
        made.inspect_err(|_| member.abort())?;
        Ok(Box::new(member))
    }
}

/// One rank of an NCCL communicator.
struct NcclMember {
    nccl: Nccl,
    /// Null when it has been aborted.
    comm: Handle<Object>,
    stream: Handle<CUstream>,
    /// Memory for barriers.
    scratch: CudaMemory,
    rank: u32,
    size: u32,
    /// The last collective of the queue, if the library has not passed it to the stream yet.
    starting: Option<Starting>,
    /// The ends of those in the stream, in order.
    running: VecDeque<DeviceEvent>,
    /// When the library was last asked for errors of the network and of other members.
    checked: Instant,
}

/// A collective that the library is passing to the stream.
struct Starting {
    what: String,
    status: Result<(), Status>,
    done: Point,
}

impl NcclMember {
    /// Waits until a call is no longer in progress.
    #[allow(unsafe_code)] // a C function
    fn settle(&self, begun: Result<(), Status>, what: &str, check: &mut Check<'_>) -> Result<()> {
        let (mut status, begin) = (begun, Instant::now());
        while let Err(Status { call, code: IN_PROGRESS }) = status {
            check()?;
            pause(begin);
            let (_calling, _current) = (calling(), self.nccl.context.enter()?);
            let mut code = 0;
            // SAFETY: the handle is ours; it writes a number.
            status = unsafe { self.nccl.functions.async_error(self.comm.0, &mut code) };
            if status.is_ok() && code != 0 {
                status = Err(Status { call, code });
            }
        }
        status.map_err(|status| self.nccl.error(status, what))
    }

    /// Ends everything that is in progress. No call may follow.
    #[allow(unsafe_code)] // a C function
    fn abort(&mut self) {
        let comm = std::mem::replace(&mut self.comm.0, std::ptr::null_mut());
        self.starting = None;
        if comm.is_null() {
            return;
        }
        let _calling = calling();
        if let Ok(_current) = self.nccl.context.enter() {
            // SAFETY: the handle is ours and not used any more. There is nothing to do about a failure.
            let _ended = unsafe { self.nccl.functions.abort(comm) };
            // SAFETY: the stream is ours; its kernels end when the communicator has been aborted.
            let _idle = unsafe { self.nccl.context.api.wait_for_stream(self.stream.0) };
        }
        self.running.clear();
    }

    /// What the library says of its work.
    #[allow(unsafe_code)] // a C function
    fn status(&self) -> Result<Result<(), Status>> {
        let (_calling, _current) = (calling(), self.nccl.context.enter()?);
        let mut code = 0;
        // SAFETY: the handle is ours; it writes a number.
        let told = unsafe { self.nccl.functions.async_error(self.comm.0, &mut code) };
        Ok(match code {
            0 => told,
            code => told.and(Err(Status { call: "ncclCommGetAsyncError", code })),
        })
    }

    /// Puts a collective behind `ready` into the stream. Returns `false` while the device cannot be made to wait for that.
    fn put(&mut self, call: &CollectiveCall, ready: &Point, done: &Point) -> Result<bool> {
        if !self.has_started()? {
            return Ok(false);
        }
        let context = &self.nccl.context;
        let promised = CudaEvent::of(&*ready.event).and_then(|event| event.promised(ready.value));
        let gate = promised.filter(|point| point.is_of(context));
        if gate.is_none() && ready.is_pending() {
            return Ok(false);
        }
        let what = call.to_string();
        let status = {
            let (_calling, _current) = (calling(), context.enter()?);
            if let Some(gate) = gate {
                gate.gate(self.stream.0).map_err(|failure| context.error(failure, &what))?;
            }
            match call.count == 0 && call.collective != Collective::Barrier {
                true => Ok(()),
                false => self.append(call)?,
            }
        };
        self.starting = Some(Starting { what, status, done: done.clone() });
        self.has_started()?;
        Ok(true)
    }

    /// Whether the library has passed the last collective to the stream. Its end is then promised.
    fn has_started(&mut self) -> Result<bool> {
        let Some(Starting { what, status, done }) = &mut self.starting else { return Ok(true) };
        let (what, done) = (what.clone(), done.clone());
        if let Err(Status { code: IN_PROGRESS, .. }) = status {
            match self.status()? {
                Err(Status { code: IN_PROGRESS, .. }) => return Ok(false),
                other => other,
            }
        } else {
            std::mem::replace(status, Ok(()))
        }
        .map_err(|status| self.nccl.error(status, &what))?;
        self.starting = None;
        let context = &self.nccl.context;
        let end = {
            let _current = context.enter()?;
            let end = DeviceEvent::record_as(context, self.stream.0, false);
            end.map_err(|failure| context.error(failure, &what))?
        };
        self.running.push_back(end.clone());
        if let Some(event) = CudaEvent::of(&*done.event) {
            event.promise(done.value, end);
        }
        Ok(true)
    }

    /// Whether the first collective of the stream has ended.
    fn look(&mut self) -> Result<bool> {
        self.has_started()?;
        let Some(first) = self.running.front() else { return Ok(false) };
        let context = &self.nccl.context;
        let has_come = {
            let _current = context.enter()?;
            first.has_come().map_err(|failure| context.error(failure, "a collective"))?
        };
        if has_come {
            self.running.pop_front();
            return Ok(true);
        }
        if self.checked.elapsed() >= CHECK {
            self.checked = Instant::now();
            match self.status()? {
                Ok(()) | Err(Status { code: IN_PROGRESS, .. }) => {}
                Err(status) => return Err(self.nccl.error(status, "a collective")),
            }
        }
        Ok(false)
    }

    /// Appends the operation to the stream. The context must be current.
    #[allow(unsafe_code)] // C functions
    fn append(&self, call: &CollectiveCall) -> Result<Result<(), Status>> {
        let (nccl, comm, stream) = (&*self.nccl.functions, self.comm.0, self.stream.0);
        let side = |slice: &Option<_>| slice.as_ref().map_or(Ok(0), address);
        let (source, target) = (side(&call.source)?, side(&call.target)?);
        let (count, bytes) = (call.count as usize, call.part_bytes() as usize);
        let op = call.collective.reduction().map_or(0, operation);
        let number = call.element.and_then(data_type);
        if call.collective.reduction().is_some() && number.is_none() {
            return Err(Error::unsupported(format!("{call}: NCCL has no reductions of this type")));
        }
        let number = number.unwrap_or(BYTES);
        // SAFETY (of all calls): the addresses are of memory of the call's sizes, which no other work uses until the stream has ended; the handles are ours.
        Ok(match call.collective {
            // SAFETY: see above.
            Collective::AllReduce { .. } => unsafe {
                nccl.all_reduce(source, target, count, number, op, comm, stream)
            },
            // SAFETY: see above. Only the root's target is used.
            Collective::Reduce { root, .. } => unsafe {
                nccl.reduce(source, target, count, number, op, root as i32, comm, stream)
            },
            // SAFETY: see above.
            Collective::ReduceScatter { .. } => unsafe {
                nccl.reduce_scatter(source, target, count, number, op, comm, stream)
            },
            // SAFETY: see above. Only the root's source is used.
            Collective::Broadcast { root } => unsafe {
                let source = if root == self.rank { source } else { target };
                nccl.broadcast(source, target, bytes, BYTES, root as i32, comm, stream)
            },
            // SAFETY: see above.
            Collective::AllGather => unsafe { nccl.all_gather(source, target, bytes, BYTES, comm, stream) },
            // SAFETY: see above.
            Collective::Send { to } => unsafe { nccl.send(source, bytes, BYTES, to as i32, comm, stream) },
            // SAFETY: see above.
            Collective::Receive { from } => unsafe {
                nccl.receive(target, bytes, BYTES, from as i32, comm, stream)
            },
            Collective::AllToAll => {
                let all: Vec<u32> = (0..self.size).collect();
                self.exchange((source, &all), (target, &all), bytes)
            }
            Collective::Gather { root } => {
                let all: Vec<u32> = if root == self.rank { (0..self.size).collect() } else { Vec::new() };
                self.exchange((source, &[root]), (target, &all), bytes)
            }
            Collective::Scatter { root } => {
                let all: Vec<u32> = if root == self.rank { (0..self.size).collect() } else { Vec::new() };
                self.exchange((source, &all), (target, &[root]), bytes)
            }
            // SAFETY: see above; the scratch memory is ours.
            Collective::Barrier => unsafe {
                let scratch = self.scratch.at(0, 4)?;
                nccl.all_reduce(scratch, scratch, 1, 3, 0, comm, stream)
            },
        })
    }

    /// Sends consecutive parts to these ranks and receives consecutive parts from those, all at once.
    #[allow(unsafe_code)] // C functions
    fn exchange(
        &self,
        (source, to): (CUdeviceptr, &[u32]),
        (target, from): (CUdeviceptr, &[u32]),
        bytes: usize,
    ) -> Result<(), Status> {
        let (nccl, comm, stream) = (&*self.nccl.functions, self.comm.0, self.stream.0);
        let part = |base: CUdeviceptr, number: usize| base + (number * bytes) as u64;
        // SAFETY: no arguments.
        unsafe { nccl.group_start() }?;
        let sent = to.iter().enumerate().try_for_each(|(at, rank)| {
            // SAFETY: as for `append`.
            unsafe { nccl.send(part(source, at), bytes, BYTES, *rank as i32, comm, stream) }
        });
        let received = from.iter().enumerate().try_for_each(|(at, rank)| {
            // SAFETY: as for `append`.
            unsafe { nccl.receive(part(target, at), bytes, BYTES, *rank as i32, comm, stream) }
        });
        // SAFETY: ends the group in any case.
        let ended = unsafe { nccl.group_end() };
        let in_progress = |result: Result<(), Status>| match result {
            Err(Status { code: IN_PROGRESS, .. }) => Ok(()),
            other => other,
        };
        in_progress(sent).and(in_progress(received)).and(ended)
    }

    fn try_run(&self, call: &CollectiveCall, check: &mut Check<'_>) -> Result<()> {
        let what = call.to_string();
        let begun = {
            let (_calling, _current) = (calling(), self.nccl.context.enter()?);
            self.append(call)?
        };
        self.settle(begun, &what, check)?;
        let context = &self.nccl.context;
        let failed = |failure| context.error(failure, &what);
        let end = {
            let _current = context.enter()?;
            DeviceEvent::record(context, self.stream.0).map_err(failed)?
        };
        let (begin, mut checked) = (Instant::now(), Instant::now());
        loop {
            {
                let _current = context.enter()?;
                if end.has_come().map_err(failed)? {
                    return Ok(());
                }
            }
            pause(begin);
            if checked.elapsed() >= CHECK {
                checked = Instant::now();
                // An error of the network or of another member.
                self.settle(Err(Status { call: "ncclCommGetAsyncError", code: IN_PROGRESS }), &what, check)?;
            }
        }
    }
}

/// Gives way to other threads, and sleeps when a wait is long.
fn pause(begin: Instant) {
    match begin.elapsed() < AWAKE {
        true => std::thread::yield_now(),
        false => std::thread::sleep(Duration::from_micros(50)),
    }
}

impl LibraryMember for NcclMember {
    fn cannot_reduce(&self) -> &'static [Scalar] {
        &[Scalar::I16, Scalar::U16]
    }

    fn run(&mut self, call: &CollectiveCall, check: &mut Check<'_>) -> Result<()> {
        if call.count == 0 && call.collective != Collective::Barrier {
            return Ok(());
        }
        self.try_run(call, check).inspect_err(|_| self.abort())
    }

    fn has_queue(&self) -> bool {
        true
    }

    fn enqueue(&mut self, call: &CollectiveCall, ready: &Point, done: &Point) -> Result<bool> {
        self.put(call, ready, done).inspect_err(|_| self.abort())
    }

    fn has_first_ended(&mut self) -> Result<bool> {
        self.look().inspect_err(|_| self.abort())
    }

    fn abort(&mut self) {
        Self::abort(self);
    }
}

impl Drop for NcclMember {
    #[allow(unsafe_code)] // C functions
    fn drop(&mut self) {
        let _calling = calling();
        if !self.comm.0.is_null() {
            let deadline = Instant::now() + ENDING;
            let mut check = || {
                std::thread::sleep(Duration::from_micros(50));
                if Instant::now() < deadline {
                    Ok(())
                } else {
                    Err(Error::Timeout("ending a communicator".into()))
                }
            };
            let ended = {
                let _current = self.nccl.context.enter();
                // SAFETY: the handle is ours.
                unsafe { self.nccl.functions.finalize(self.comm.0) }
            };
            if self.settle(ended, "ending a communicator", &mut check).is_ok() {
                let comm = std::mem::replace(&mut self.comm.0, std::ptr::null_mut());
                let _current = self.nccl.context.enter();
                // SAFETY: the handle is ours and not used any more.
                let _destroyed = unsafe { self.nccl.functions.destroy(comm) };
            } else {
                self.abort();
            }
        }
        if let Ok(_current) = self.nccl.context.enter() {
            // SAFETY: the stream is ours, and its work has ended. On failure, it is released at the end of the process.
            let _left = unsafe { self.nccl.context.api.destroy_stream(self.stream.0) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The layout of `ncclConfig_t` in version 2.18.
    #[test]
    fn the_configuration_has_the_librarys_layout() {
        assert_eq!(size_of::<Config>(), 48);
        assert_eq!(std::mem::offset_of!(Config, blocking), 16);
        assert_eq!(std::mem::offset_of!(Config, net_name), 32);
        assert_eq!(std::mem::offset_of!(Config, split_share), 40);
    }
}
