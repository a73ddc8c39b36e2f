//! [`Mpi`]: a member of the communicator of all processes that `mpirun` has started, by Open MPI's library, which is opened at run time.
//!
//! Open MPI's handles are addresses of objects in the library (`ompi_mpi_comm_world`), so that its binary interface can be used without its header; that of
//! MPICH has numbers in their place and is not supported. All operations are nonblocking ones (MPI 3.1, chapter 5.12), so that a wait can be given up after
//! the timeout. A member that ends without `MPI_Finalize` makes `mpirun` end the others.

use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use elinvar_driver::{Aborter, Collective, CollectiveCall, Error, Member, Reduction, Result, Scalar};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::memory::Bytes;
use crate::reduce::reduce;
use crate::wait::Patience;

/// Names of Open MPI's library, versions 4 and 5.
const FILES: [&str; 2] = ["libmpi.so.40", "libmpi.so.40.30"];
/// `MPI_THREAD_SERIALIZED`.
const SERIALIZED: c_int = 2;
/// `MPI_IN_PLACE` of Open MPI.
const IN_PLACE: usize = 1;

type Handle = *mut c_void;
type Buffer = *mut c_void;
/// `MPI_User_function`: the incoming elements, those that receive the result, their number and type.
type UserFunction = extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut Handle);

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

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($type:ty),* $(,)?);)*) => {
        /// Functions of the library, which return 0 for success.
        struct Functions {
            $($name: unsafe extern "C" fn($($type),*) -> c_int,)*
        }

        impl Functions {
            #[allow(unsafe_code)] // symbols of the types of `mpi.h`
            fn load(library: &Library) -> Result<Self, String> {
                // SAFETY: the types are those of the MPI standard's C binding.
                Ok(Self { $($name: *unsafe { library.get($symbol.as_bytes()) }.map_err(|_| format!("it has no `{}`", $symbol))?,)* })
            }
        }
    };
}

functions! {
    initialized = "MPI_Initialized"(*mut c_int);
    init = "MPI_Init_thread"(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int);
    finalize = "MPI_Finalize"();
    on_error = "MPI_Comm_set_errhandler"(Handle, Handle);
    duplicate = "MPI_Comm_dup"(Handle, *mut Handle);
    rank = "MPI_Comm_rank"(Handle, *mut c_int);
    size = "MPI_Comm_size"(Handle, *mut c_int);
    contiguous = "MPI_Type_contiguous"(c_int, Handle, *mut Handle);
    commit = "MPI_Type_commit"(*mut Handle);
    create_operation = "MPI_Op_create"(UserFunction, c_int, *mut Handle);
    test = "MPI_Test"(*mut Handle, *mut c_int, *mut c_void);
    error_text = "MPI_Error_string"(c_int, *mut c_char, *mut c_int);
    broadcast = "MPI_Ibcast"(Buffer, c_int, Handle, c_int, Handle, *mut Handle);
    reduce = "MPI_Ireduce"(Buffer, Buffer, c_int, Handle, Handle, c_int, Handle, *mut Handle);
    all_reduce = "MPI_Iallreduce"(Buffer, Buffer, c_int, Handle, Handle, Handle, *mut Handle);
    reduce_scatter = "MPI_Ireduce_scatter_block"(Buffer, Buffer, c_int, Handle, Handle, Handle, *mut Handle);
    all_gather = "MPI_Iallgather"(Buffer, c_int, Handle, Buffer, c_int, Handle, Handle, *mut Handle);
    all_to_all = "MPI_Ialltoall"(Buffer, c_int, Handle, Buffer, c_int, Handle, Handle, *mut Handle);
    gather = "MPI_Igather"(Buffer, c_int, Handle, Buffer, c_int, Handle, c_int, Handle, *mut Handle);
    scatter = "MPI_Iscatter"(Buffer, c_int, Handle, Buffer, c_int, Handle, c_int, Handle, *mut Handle);
    send = "MPI_Isend"(Buffer, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    receive = "MPI_Irecv"(Buffer, c_int, Handle, c_int, c_int, Handle, *mut Handle);
    barrier = "MPI_Ibarrier"(Handle, *mut Handle);
}

/// The library, initialized once and finalized when the process exits.
struct Loaded {
    functions: Functions,
    library: Library,
}

static LIBRARY: Mutex<Option<Result<Arc<Loaded>, String>>> = Mutex::new(None);
/// Held during every call.
static CALL: Mutex<()> = Mutex::new(());

impl Loaded {
    /// The address of an object of the library, which is its handle.
    #[allow(unsafe_code)] // a symbol
    fn handle(&self, name: &str) -> Result<Handle, String> {
        // SAFETY: only the address is used.
        let found = unsafe { self.library.get::<*mut c_void>(name.as_bytes()) };
        found.map(|symbol| symbol.into_raw()).map_err(|_| format!("it has no `{name}`: it is not Open MPI"))
    }

    #[allow(unsafe_code)] // loads a library, C functions
    fn open() -> Result<Arc<Self>, String> {
        // SAFETY: runs the library's initializers. Its plugins need its symbols.
        let library =
            FILES.iter().find_map(|name| unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok());
        let library = library.ok_or_else(|| format!("Open MPI's library `{}` cannot be loaded", FILES[0]))?;
        let functions = Functions::load(&library)?;
        let loaded = Arc::new(Self { functions, library });
        loaded.handle("ompi_mpi_comm_world")?;
        let (mut is, mut provided) = (0, 0);
        // SAFETY: they write a number each; null arguments are allowed since MPI 2.
        let failed = unsafe {
            (loaded.functions.initialized)(&mut is) != 0
                || (is == 0
                    && (loaded.functions.init)(ptr::null_mut(), ptr::null_mut(), SERIALIZED, &mut provided)
                        != 0)
        };
        if failed {
            return Err("MPI_Init_thread has failed".into());
        }
        if is == 0 {
            if provided < SERIALIZED {
                return Err("the library does not support threads".into());
            }
            // SAFETY: registers a function.
            unsafe { libc::atexit(finalize) };
        }
        Ok(loaded)
    }
}

/// Finalizes the library when the process exits, as `mpirun` expects.
extern "C" fn finalize() {
    let loaded = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(Ok(loaded)) = loaded {
        #[allow(unsafe_code)] // a C function
        // SAFETY: no call follows.
        unsafe {
            (loaded.functions.finalize)()
        };
    }
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
        let loaded = {
            let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
            library.get_or_insert_with(Loaded::open).clone()
        };
        let loaded = loaded.map_err(|reason| Error::unsupported(format!("MPI: {reason}")))?;
        let handle =
            |name: &str| loaded.handle(name).map_err(|reason| Error::unsupported(format!("MPI: {reason}")));
        let (world, returns) = (handle("ompi_mpi_comm_world")?, handle("ompi_mpi_errors_return")?);
        let _call = CALL.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut comm, mut rank, mut size): (Handle, _, _) = (ptr::null_mut(), 0, 0);
        let functions = &loaded.functions;
        // SAFETY: the handles are the library's; each call writes a handle or a number.
        let codes = unsafe {
            [
                (functions.on_error)(world, returns),
                (functions.duplicate)(world, &mut comm),
                (functions.on_error)(comm, returns),
                (functions.rank)(comm, &mut rank),
                (functions.size)(comm, &mut size),
            ]
        };
        if let Some(code) = codes.into_iter().find(|code| *code != 0) {
            return Err(Error::Environment(format!("MPI: {}", text(&loaded, code))));
        }
        let (rank, size) = (rank as u32, size as u32);
        Ok(Self {
            loaded: loaded.clone(),
            comm: comm.expose_provenance(),
            rank,
            size,
            operations: HashMap::new(),
            failed: Arc::default(),
        })
    }

    fn error(&self, code: c_int, what: &CollectiveCall) -> Error {
        Error::Environment(format!("MPI, {what}: {}", text(&self.loaded, code)))
    }

    fn handle(&self, name: &str) -> Result<Handle> {
        self.loaded.handle(name).map_err(|reason| Error::unsupported(format!("MPI: {reason}")))
    }

    /// Type, operation and number of elements of a part; bytes for everything but reductions.
    #[allow(unsafe_code)] // C functions
    fn types(&mut self, call: &CollectiveCall) -> Result<(Handle, Handle, c_int)> {
        let too_long = || Error::invalid(format!("{call}: MPI takes up to {} elements", c_int::MAX));
        let byte = self.handle("ompi_mpi_byte")?;
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
                let call_lock = CALL.lock().unwrap_or_else(PoisonError::into_inner);
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
        let from =
            if same { ptr::without_provenance_mut(IN_PLACE) } else { source.as_ptr().cast_mut().cast() };
        let mut request = ptr::null_mut();
        let _call = CALL.lock().unwrap_or_else(PoisonError::into_inner);
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
                let _call = CALL.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: the request is ours; `MPI_STATUS_IGNORE` is null in Open MPI.
                let code = unsafe { (self.loaded.functions.test)(&mut request, &mut ended, ptr::null_mut()) };
                if code != 0 {
                    return Err(self.error(code, call));
                }
            }
            if ended != 0 {
                return Ok(());
            }
            self.failed.expect_none()?;
            if patience.pause() && patience.is_over(call.timeout) {
                let timeout = call.timeout;
                return Err(Error::Timeout(format!(
                    "{call}: not all ranks have taken part within {timeout:?}"
                )));
            }
        }
    }
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
            self.failed.abort(self.rank, &error.to_string());
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
