//! [`Mpi`]: a member of the communicator of all processes that `mpirun` has started, by the library of Open MPI or MPICH.
//!
//! All operations are nonblocking ones (MPI 3.1, chapter 5.12), so that a wait can be given up after the timeout; [`watch`] then finds the rank that is late.
//! A member that ends without `MPI_Finalize` makes `mpirun` end the others.

mod library;
mod watch;

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use elinvar_driver::{Aborter, Collective, CollectiveCall, Error, Member, Reduction, Result, Scalar};

use library::{Handle, Loaded, Object, UserFunction, calling};
use watch::Watch;

use crate::memory::Bytes;
use crate::reduce::reduce;
use crate::wait::Patience;

/// The types that can be reduced, in the order of [`OPERATIONS`].
const ELEMENTS: [Scalar; 11] = [
    Scalar::I8,
    Scalar::U8,
    Scalar::I16,
    Scalar::U16,
    Scalar::I32,
    Scalar::U32,
    Scalar::I64,
    Scalar::U64,
    Scalar::F16,
    Scalar::BF16,
    Scalar::F32,
];

macro_rules! operations {
    ($($element:literal)*) => {
        [$([apply::<$element, 0>, apply::<$element, 1>, apply::<$element, 2>, apply::<$element, 3>]),*]
    };
}

/// The reductions, by type and by the order of [`Reduction::ALL`]. MPI's own lack half precision, and in Open MPI 4.1.4 sums of small integers saturate
/// (open-mpi/ompi#8045) and minima of unsigned ones are wrong (open-mpi/ompi#10648).
const OPERATIONS: [[UserFunction; 4]; 11] = operations!(0 1 2 3 4 5 6 7 8 9 10);

/// Reduces elements of one type in one way.
#[allow(unsafe_code)] // called by MPI
extern "C" fn apply<const ELEMENT: usize, const REDUCTION: usize>(
    incoming: *mut c_void,
    own: *mut c_void,
    count: *mut c_int,
    _element: *mut Handle,
) {
    let (element, reduction) = (ELEMENTS[ELEMENT], Reduction::ALL[REDUCTION]);
    // SAFETY: MPI passes the address of a number.
    let bytes = unsafe { *count } as usize * element.size() as usize;
    if bytes == 0 {
        return;
    }
    // SAFETY: MPI passes two arrays of this many elements, which do not overlap.
    let (own, incoming) = unsafe {
        (
            std::slice::from_raw_parts_mut(own.cast::<u8>(), bytes),
            std::slice::from_raw_parts(incoming.cast::<u8>(), bytes),
        )
    };
    reduce(element, reduction, own, incoming);
}

/// A member of MPI's communicator of all processes.
pub struct Mpi {
    loaded: Arc<Loaded>,
    comm: usize,
    rank: u32,
    size: u32,
    /// Operations that have been created, by type and reduction, with their types.
    operations: HashMap<(usize, usize), (usize, usize)>,
    failed: Arc<Failed>,
    watch: Watch,
}

/// Whether a call of this process has failed.
#[derive(Default)]
struct Failed {
    is: AtomicBool,
    reason: Mutex<Option<(u32, String)>>,
}

impl Mpi {
    /// Joins the communicator of all processes of the job; a duplicate of it, for each call of this function.
    ///
    /// # Errors
    /// `Unsupported` with the reason if Open MPI's library is not installed or cannot be used; `Environment` if a call fails.
    #[allow(unsafe_code)] // C functions
    pub fn join() -> Result<Self> {
        let loaded = Loaded::get().map_err(|reason| Error::unsupported(format!("MPI: {reason}")))?;
        let handle = |object: Object| {
            loaded.handle(object).map_err(|reason| Error::unsupported(format!("MPI: {reason}")))
        };
        let (world, returns) = (handle(Object::World)?, handle(Object::ErrorsReturn)?);
        let call = calling().ok_or_else(finalized)?;
        let (mut comm, mut control): (Handle, Handle) = (ptr::null_mut(), ptr::null_mut());
        let (mut rank, mut size) = (0, 0);
        let functions = &loaded.functions;
        // SAFETY: the handles are the library's; each call writes a handle or a number.
        let codes = unsafe {
            [
                (functions.on_error)(world, returns),
                (functions.duplicate)(world, &mut comm),
                (functions.on_error)(comm, returns),
                (functions.duplicate)(world, &mut control),
                (functions.on_error)(control, returns),
                (functions.rank)(comm, &mut rank),
                (functions.size)(comm, &mut size),
            ]
        };
        if let Some(code) = codes.into_iter().find(|code| *code != 0) {
            return Err(Error::Environment(format!("MPI: {}", text(&loaded, code))));
        }
        drop(call);
        let (rank, size) = (rank as u32, size as u32);
        let watch = Watch::new(loaded.clone(), control.expose_provenance(), rank, size)
            .map_err(|error| Error::Environment(format!("MPI: cannot start a thread: {error}")))?;
        Ok(Self {
            loaded: loaded.clone(),
            comm: comm.expose_provenance(),
            rank,
            size,
            operations: HashMap::new(),
            failed: Arc::default(),
            watch,
        })
    }

    fn error(&self, code: c_int, what: &CollectiveCall) -> Error {
        Error::Environment(format!("MPI, {what}: {}", text(&self.loaded, code)))
    }

    fn handle(&self, object: Object) -> Result<Handle> {
        self.loaded.handle(object).map_err(|reason| Error::unsupported(format!("MPI: {reason}")))
    }

    /// Type, operation and number of elements of a part; bytes for everything but reductions.
    #[allow(unsafe_code)] // C functions
    fn types(&mut self, call: &CollectiveCall) -> Result<(Handle, Handle, c_int)> {
        let too_long = || Error::invalid(format!("{call}: MPI takes up to {} elements", c_int::MAX));
        let byte = self.handle(Object::Byte)?;
        let Some((element, reduction)) = call.element.zip(call.collective.reduction()) else {
            let bytes = c_int::try_from(call.part_bytes()).map_err(|_| too_long())?;
            return Ok((byte, ptr::null_mut(), bytes));
        };
        let element = if element == Scalar::Bool { Scalar::U8 } else { element };
        let at = |found: Option<usize>| found.ok_or_else(|| Error::unsupported(format!("{call}: MPI")));
        let row = at(ELEMENTS.iter().position(|known| *known == element))?;
        let column = at(Reduction::ALL.iter().position(|known| *known == reduction))?;
        let count = c_int::try_from(call.count).map_err(|_| too_long())?;
        let (kind, operation) = match self.operations.get(&(row, column)) {
            Some(known) => *known,
            None => {
                let (mut kind, mut operation) = (ptr::null_mut(), ptr::null_mut());
                let mpi = &self.loaded.functions;
                let call_lock = calling().ok_or_else(finalized)?;
                // SAFETY: each writes a handle. The function is called with arrays of elements of this size.
                let codes = unsafe {
                    [
                        (mpi.contiguous)(element.size() as c_int, byte, &mut kind),
                        (mpi.commit)(&mut kind),
                        (mpi.create_operation)(OPERATIONS[row][column], 1, &mut operation),
                    ]
                };
                drop(call_lock);
                if let Some(code) = codes.into_iter().find(|code| *code != 0) {
                    return Err(self.error(code, call));
                }
                let made = (kind.expose_provenance(), operation.expose_provenance());
                self.operations.insert((row, column), made);
                made
            }
        };
        Ok((ptr::with_exposed_provenance_mut(kind), ptr::with_exposed_provenance_mut(operation), count))
    }

    /// Begins an operation. The bytes must stay where they are until it has ended.
    #[allow(unsafe_code)] // C functions
    fn begin(
        &mut self,
        call: &CollectiveCall,
        source: &[u8],
        target: &mut [u8],
        same: bool,
    ) -> Result<Handle> {
        let (element, operation, count) = self.types(call)?;
        let (mpi, comm) = (&self.loaded.functions, ptr::with_exposed_provenance_mut(self.comm));
        let to = target.as_mut_ptr().cast::<c_void>();
        let from = if same { self.loaded.abi.in_place() } else { source.as_ptr().cast_mut().cast() };
        let mut request = ptr::null_mut();
        let _call = calling().ok_or_else(finalized)?;
        // SAFETY: `run` has checked that both have the sizes of the operation; MPI reads the source and writes the target until the request has ended.
        let code = unsafe {
            match call.collective {
                Collective::Broadcast { root } => {
                    (mpi.broadcast)(to, count, element, root as c_int, comm, &mut request)
                }
                Collective::Reduce { root, .. } => {
                    (mpi.reduce)(from, to, count, element, operation, root as c_int, comm, &mut request)
                }
                Collective::AllReduce { .. } => {
                    (mpi.all_reduce)(from, to, count, element, operation, comm, &mut request)
                }
                Collective::ReduceScatter { .. } => {
                    (mpi.reduce_scatter)(from, to, count, element, operation, comm, &mut request)
                }
                Collective::AllGather => {
                    (mpi.all_gather)(from, count, element, to, count, element, comm, &mut request)
                }
                Collective::AllToAll => {
                    (mpi.all_to_all)(from, count, element, to, count, element, comm, &mut request)
                }
                Collective::Gather { root } => {
                    (mpi.gather)(from, count, element, to, count, element, root as c_int, comm, &mut request)
                }
                Collective::Scatter { root } => {
                    (mpi.scatter)(from, count, element, to, count, element, root as c_int, comm, &mut request)
                }
                Collective::Send { to } => {
                    (mpi.send)(from, count, element, to as c_int, 0, comm, &mut request)
                }
                Collective::Receive { from } => {
                    (mpi.receive)(to, count, element, from as c_int, 0, comm, &mut request)
                }
                Collective::Barrier => (mpi.barrier)(comm, &mut request),
            }
        };
        if code == 0 { Ok(request) } else { Err(self.error(code, call)) }
    }

    #[allow(unsafe_code)] // C functions
    fn wait(&self, mut request: Handle, call: &CollectiveCall) -> Result<()> {
        let mut patience = Patience::new();
        loop {
            let mut ended = 0;
            {
                let _call = calling().ok_or_else(finalized)?;
                let ignored = self.loaded.abi.ignored_status();
                // SAFETY: the request is ours.
                let code = unsafe { (self.loaded.functions.test)(&mut request, &mut ended, ignored) };
                if code != 0 {
                    return Err(self.error(code, call));
                }
            }
            if ended != 0 {
                return Ok(());
            }
            self.failed.expect_none()?;
            if patience.pause() && patience.is_over(call.timeout) {
                return Err(self.timed_out(call));
            }
        }
    }

    /// The error of a call that has made no progress in time.
    fn timed_out(&self, call: &CollectiveCall) -> Error {
        let timeout = call.timeout;
        let late = match call.collective {
            Collective::Send { to: peer } | Collective::Receive { from: peer } => {
                Some((peer, "it has not taken part"))
            }
            _ => self.watch.late(),
        };
        match late {
            Some((rank, why)) => {
                Error::RankFailed { rank, reason: format!("{why} within {timeout:?}: {call}") }
            }
            None => {
                Error::Timeout(format!("{call}: no progress within {timeout:?}; all ranks have begun it"))
            }
        }
    }
}

fn finalized() -> Error {
    Error::Environment("MPI: the library has been finalized".into())
}

impl Failed {
    fn expect_none(&self) -> Result<()> {
        if !self.is.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (rank, reason) = reason.unwrap_or((0, "an earlier operation has failed".into()));
        Err(Error::RankFailed { rank, reason })
    }
}

impl Aborter for Failed {
    fn abort(&self, rank: u32, reason: &str) {
        self.reason.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert((rank, reason.to_owned()));
        self.is.store(true, Ordering::Release);
    }
}

/// MPI's text for an error code.
#[allow(unsafe_code)] // a C function
fn text(loaded: &Loaded, code: c_int) -> String {
    // `MPI_MAX_ERROR_STRING` is 256.
    let (mut bytes, mut len): ([c_char; 1024], c_int) = ([0; 1024], 0);
    // SAFETY: it writes at most the documented number of characters.
    unsafe { (loaded.functions.error_text)(code, bytes.as_mut_ptr(), &mut len) };
    let bytes: Vec<u8> = bytes.iter().take(len.max(0) as usize).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Member for Mpi {
    fn engine(&self) -> &'static str {
        "mpi"
    }

    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    #[allow(unsafe_code)] // uses memory of devices
    fn run(&mut self, call: &CollectiveCall) -> Result<()> {
        self.failed.expect_none()?;
        crate::ring::check(call, self.rank, self.size)?;
        if !matches!(call.collective, Collective::Send { .. } | Collective::Receive { .. }) {
            self.watch.begin();
        }
        let same = crate::ring::is_in_place(call);
        // SAFETY: the caller guarantees that no other work uses the memory.
        let source = unsafe { Bytes::source(call.source.as_ref().filter(|_| !same)) }?;
        // SAFETY: as above; if both are the same memory, only the target refers to it.
        let mut target = unsafe { Bytes::target(call.target.as_ref(), same) }?;
        if !same && matches!(call.collective, Collective::Broadcast { root } if root == self.rank) {
            target.copy_from_slice(&source);
        }
        let in_place = same && matches!(call.collective, Collective::AllReduce { .. });
        let begun = self.begin(call, &source, &mut target, in_place);
        let result = begun.and_then(|request| self.wait(request, call));
        if let Err(error) = result {
            match &error {
                Error::RankFailed { rank, reason } => self.failed.abort(*rank, reason),
                _ => self.failed.abort(self.rank, &error.to_string()),
            }
            // MPI may use the bytes as long as the process lives.
            std::mem::forget((source, target));
            return Err(error);
        }
        // SAFETY: as above.
        unsafe { target.store() }
    }

    fn aborter(&self) -> Arc<dyn Aborter> {
        self.failed.clone()
    }
}
