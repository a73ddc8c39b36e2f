//! Loading of compiled work-group functions: the only place that knows their type.
//!
//! An object stays loaded as long as its [`Code`]. The file may be deleted once it is loaded.

use std::ffi::{CString, c_void};
use std::ops::Range;
use std::path::Path;
use std::sync::LazyLock;

use elinvar_driver::{Error, Result};
use elinvar_spmd::bounds::FaultRecord;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

/// The launch as compiled code reads it.
#[repr(C)]
pub struct Launch {
    /// One entry per argument: an address, or for threadgroup memory an offset in the dynamic part.
    pub args: *const *const c_void,
    /// Threads of the grid.
    pub threads: [u32; 3],
    /// Threadgroups of the grid.
    pub groups: [u32; 3],
    /// Bytes of each argument's memory, for kernels with bounds checks.
    pub sizes: *const u64,
    /// Where such a kernel notes its first fault.
    pub record: *mut FaultRecord,
    /// A byte that is not 0 once a kernel that can be stopped is to stop.
    pub stop: *const u8,
}

type WorkGroupFunction = unsafe extern "C" fn(*const Launch, *mut u8, u64, u64) -> i32;

/// A loaded work-group function.
pub struct Code {
    function: WorkGroupFunction,
    /// Keeps `function` mapped.
    _object: Library,
}

impl Code {
    /// Load a shared object from its bytes, by way of a file in a folder that only this user can enter.
    pub(crate) fn from_bytes(object: &[u8], symbol: &str) -> Result<Self> {
        let cannot =
            |error| Error::Environment(format!("cannot write the compiled kernel to a file: {error}"));
        let folder = tempfile::Builder::new().prefix("elinvar-").tempdir().map_err(cannot)?;
        let path = folder.path().join("kernel.so");
        std::fs::write(&path, object).map_err(cannot)?;
        Self::load(&path, symbol)
    }

    /// Load the shared object at `path`, which the compiler's output was linked to.
    #[allow(unsafe_code)] // loads machine code
    pub(crate) fn load(path: &Path, symbol: &str) -> Result<Self> {
        load_math_library();
        let wrong = |error| Error::Environment(format!("cannot load the compiled kernel: {error}"));
        let name = CString::new(symbol).map_err(|_| Error::invalid(format!("symbol name {symbol:?}")))?;
        // SAFETY: the object was linked from compiled kernel code only; it has no initialisers.
        let object = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(wrong)?;
        // SAFETY: the compiler defines the symbol as a function of exactly this type.
        let function = unsafe { object.get::<WorkGroupFunction>(name.as_bytes_with_nul()) }.map_err(wrong)?;
        Ok(Self { function: *function, _object: object })
    }

    /// Run groups in ascending order. Returns 0 or a fault's code.
    ///
    /// # Safety
    /// `launch` fits the kernel: each address is valid for what the kernel does with it, and nothing
    /// writes to the same bytes meanwhile but as the kernel expects. `scratch` is aligned to 64, has
    /// the bytes that the kernel and the launch's threadgroup memory need, and is in no other use.
    #[allow(unsafe_code)] // calls machine code that a user's kernel was compiled to
    pub unsafe fn run(&self, launch: &Launch, scratch: *mut u8, groups: Range<u64>) -> i32 {
        // SAFETY: as above; `_object` keeps the function mapped.
        unsafe { (self.function)(launch, scratch, groups.start, groups.end) }
    }
}

/// Compiled code calls functions of the C mathematics library, which objects linked directly do not
/// name; where it is a library of its own, its symbols are made visible once for all.
#[allow(unsafe_code)] // loads a system library
fn load_math_library() {
    static LOADED: LazyLock<Option<Library>> = LazyLock::new(|| {
        let name = if cfg!(target_os = "linux") { "libm.so.6" } else { return None };
        // SAFETY: the system's own library, whose initialisers every program runs. If it cannot be
        // loaded, the symbols that a kernel lacks are named when the kernel is loaded.
        unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok()
    });
    LazyLock::force(&LOADED);
}
