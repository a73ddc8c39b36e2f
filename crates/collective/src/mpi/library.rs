//! The MPI library of the process: Open MPI or MPICH, opened at run time.
//!
//! The functions are those of the MPI standard's C binding; handles, constants and the library's name are the implementation's. Open MPI's handles are addresses of objects in
//! the library. MPICH's are numbers of type `int`, which a pointer carries in its low half: a function takes them from the same register or stack slot, and writes
//! them to the low half of a zeroed pointer. Intel MPI and other libraries have MPICH's interface (the MPICH ABI Compatibility Initiative).

use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

/// `MPI_THREAD_SERIALIZED`.
const SERIALIZED: c_int = 2;

pub(super) type Handle = *mut c_void;
pub(super) type Buffer = *mut c_void;
/// `MPI_User_function`: the incoming elements, those that receive the result, their number and type.
pub(super) type UserFunction = extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut Handle);

/// The binary interface of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abi {
    OpenMpi,
    Mpich,
}

/// Names of the libraries: Open MPI 4 and 5, and MPICH 3 and 4 by Debian's name and by its own.
const FILES: [(Abi, &str); 4] = [
    (Abi::OpenMpi, "libmpi.so.40"),
    (Abi::OpenMpi, "libmpi.so.40.30"),
    (Abi::Mpich, "libmpich.so.12"),
    (Abi::Mpich, "libmpi.so.12"),
];

/// A predefined object.
#[derive(Clone, Copy)]
pub(super) enum Object {
    World,
    ErrorsReturn,
    Byte,
}

impl Abi {
    /// That of the launcher: MPICH's tells its processes their ranks in other variables.
    fn of_launcher() -> Self {
        let is_set = |name: &str| std::env::var_os(name).is_some();
        match is_set("PMI_RANK") && !is_set("OMPI_COMM_WORLD_RANK") {
            true => Self::Mpich,
            false => Self::OpenMpi,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::OpenMpi => "Open MPI",
            Self::Mpich => "MPICH",
        }
    }

    /// `MPI_IN_PLACE`.
    pub(super) fn in_place(self) -> Buffer {
        ptr::without_provenance_mut(if self == Self::OpenMpi { 1 } else { usize::MAX })
    }

    /// `MPI_STATUS_IGNORE`.
    pub(super) fn ignored_status(self) -> *mut c_void {
        ptr::without_provenance_mut(if self == Self::OpenMpi { 0 } else { 1 })
    }

    /// `MPI_ANY_SOURCE`.
    pub(super) const fn any_source(self) -> c_int {
        match self {
            Self::OpenMpi => -1,
            Self::Mpich => -2,
        }
    }
}

macro_rules! functions {
    ($($name:ident = $symbol:literal ($($type:ty),* $(,)?);)*) => {
        /// Functions of the library, which return 0 for success.
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($type),*) -> c_int,)*
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
    probe = "MPI_Iprobe"(c_int, c_int, Handle, *mut c_int, *mut c_void);
    take = "MPI_Recv"(Buffer, c_int, Handle, c_int, c_int, Handle, *mut c_void);
    free_request = "MPI_Request_free"(*mut Handle);
}

/// The library, initialized once and finalized when the process exits.
pub(super) struct Loaded {
    pub(super) functions: Functions,
    library: Library,
    pub(super) abi: Abi,
}

static LIBRARY: Mutex<Option<Result<Arc<Loaded>, String>>> = Mutex::new(None);
/// Held during every call.
static CALL: Mutex<()> = Mutex::new(());
/// No call may follow.
static IS_FINALIZED: AtomicBool = AtomicBool::new(false);

/// Keeps other threads from the library. `None` when it has been finalized.
pub(super) fn calling() -> Option<std::sync::MutexGuard<'static, ()>> {
    let guard = CALL.lock().unwrap_or_else(PoisonError::into_inner);
    (!IS_FINALIZED.load(Ordering::Relaxed)).then_some(guard)
}

impl Loaded {
    /// The library of this process.
    ///
    /// # Errors
    /// The reason why there is none.
    pub(super) fn get() -> Result<Arc<Self>, String> {
        let mut library = LIBRARY.lock().unwrap_or_else(PoisonError::into_inner);
        library.get_or_insert_with(Self::open).clone()
    }

    #[allow(unsafe_code)] // a symbol
    pub(super) fn handle(&self, object: Object) -> Result<Handle, String> {
        // Of `mpi.h` of MPICH.
        let (name, number) = match object {
            Object::World => ("ompi_mpi_comm_world", 0x4400_0000),
            Object::ErrorsReturn => ("ompi_mpi_errors_return", 0x5400_0001),
            Object::Byte => ("ompi_mpi_byte", 0x4c00_010d),
        };
        if self.abi == Abi::Mpich {
            return Ok(ptr::without_provenance_mut(number));
        }
        // SAFETY: only the address is used.
        let found = unsafe { self.library.get::<*mut c_void>(name.as_bytes()) };
        found.map(|symbol| symbol.into_raw()).map_err(|_| format!("it has no `{name}`: it is not Open MPI"))
    }

    #[allow(unsafe_code)] // loads a library, C functions
    fn open() -> Result<Arc<Self>, String> {
        let wanted = Abi::of_launcher();
        // Slurm's launcher sets MPICH's variables for Open MPI as well.
        let mut files = FILES;
        files.sort_by_key(|(abi, _)| *abi != wanted);
        let found = files.iter().find_map(|(abi, name)| {
            // SAFETY: runs the library's initializers. Its plugins need its symbols.
            let library = unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) };
            Some((*abi, library.ok()?))
        });
        // The names of Open MPI 1 are MPICH's.
        let found = found.map(|(abi, library)| {
            // SAFETY: only asks for a symbol.
            let is_open_mpi = unsafe { library.get::<*mut c_void>(b"ompi_mpi_comm_world") }.is_ok();
            (if is_open_mpi { Abi::OpenMpi } else { abi }, library)
        });
        let (abi, library) = found.ok_or_else(|| {
            let names = files.map(|(abi, name)| format!("`{name}` of {}", abi.name()));
            format!("no library can be loaded: {}", names.join(", "))
        })?;
        let functions = Functions::load(&library)?;
        let loaded = Arc::new(Self { functions, library, abi });
        loaded.handle(Object::World)?;
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
    if let Some(Ok(loaded)) = loaded
        && let Some(_call) = calling()
    {
        IS_FINALIZED.store(true, Ordering::Relaxed);
        #[allow(unsafe_code)] // a C function
        // SAFETY: no call follows.
        unsafe {
            (loaded.functions.finalize)()
        };
    }
}
