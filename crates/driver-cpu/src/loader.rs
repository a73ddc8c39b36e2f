//! Loading of compiled threadgroup functions. Only this file knows their type.
//!
//! An object stays loaded while its [`Code`] is alive. The file may be deleted after loading.

use std::ffi::{CString, c_void};
use std::ops::Range;
use std::path::Path;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, Ordering};

use elinvar_driver::log::ring::Control;
use elinvar_driver::{Error, PerProcess, Result};
use elinvar_msl::scratch::Scratch;
use elinvar_spmd::bounds::FaultRecord;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};

use crate::float_state::FloatState;
#[cfg(target_os = "linux")]
use crate::image::Image;

/// Launch parameters, in the layout that compiled code expects.
#[repr(C)]
pub struct Launch {
    /// One entry per argument: an address, or the offset in dynamic threadgroup memory.
    pub args: *const *const c_void,
    /// Grid size in threads.
    pub threads: [u32; 3],
    /// Grid size in threadgroups.
    pub groups: [u32; 3],
    /// Size in bytes of each argument's memory, for kernels with bounds checks or private counters.
    pub sizes: *const u64,
    /// Where a kernel with bounds checks records its first fault.
    pub record: *mut FaultRecord,
    /// A byte that becomes nonzero to request that a stoppable kernel stops.
    pub stop: *const u8,
    /// Size of a full threadgroup in threads, for code in which it is dynamic.
    pub group: [u32; 3],
    /// The kernel's number in log records, for kernels with log calls.
    pub log_kernel: u32,
    /// The counters of the device's log ring, for kernels with log calls.
    pub log: *const Control,
}

impl Default for Launch {
    /// An empty launch.
    fn default() -> Self {
        let (args, sizes, record, stop) = (null(), null(), null_mut(), null());
        let (threads, groups, group) = ([0; 3], [0; 3], [0; 3]);
        Self { args, threads, groups, sizes, record, stop, group, log_kernel: 0, log: null() }
    }
}

type WorkGroupFunction = unsafe extern "C" fn(*const Launch, *mut u8, u64, u64) -> i32;

/// A loaded threadgroup function.
pub struct Code {
    function: WorkGroupFunction,
    /// Keeps `function` mapped.
    _object: Loaded,
}

/// Owner of a mapped object.
enum Loaded {
    Library {
        _library: Library,
    },
    #[cfg(target_os = "linux")]
    Image {
        _image: Image,
    },
}

/// Whether objects are loaded without files.
static WITHOUT_FILES: AtomicBool = AtomicBool::new(false);

/// Makes this process load machine code without files, for a process that must not open any. Loads the required system libraries now.
///
/// # Errors
/// `Unsupported` on systems other than Linux.
pub fn load_without_files() -> Result<()> {
    if !cfg!(target_os = "linux") {
        return Err(Error::unsupported("loading machine code without files on this system"));
    }
    load_math_library();
    WITHOUT_FILES.store(true, Ordering::Relaxed);
    Ok(())
}

impl Code {
    /// Load a shared object from its bytes, by way of a file in a folder that only this user can enter.
    ///
    /// # Errors
    /// `Environment` when it cannot be loaded or does not define the symbol.
    pub fn from_bytes(object: &[u8], symbol: &str) -> Result<Self> {
        let symbols = [symbol.to_owned()];
        let mut codes = Self::all_from_bytes(object, &symbols)?;
        codes.pop().ok_or_else(|| Error::Environment(format!("the compiled kernel has no symbol {symbol}")))
    }

    /// [`Code::from_bytes`], for an object that defines all these symbols.
    ///
    /// # Errors
    /// As [`Code::from_bytes`].
    pub fn all_from_bytes(object: &[u8], symbols: &[String]) -> Result<Vec<Self>> {
        #[cfg(target_os = "linux")]
        if WITHOUT_FILES.load(Ordering::Relaxed) {
            return symbols.iter().map(|symbol| Self::from_image(object, symbol)).collect();
        }
        let cannot = |error: &std::io::Error| {
            Error::Environment(format!("cannot write the compiled kernel to a file: {error}"))
        };
        let written = Scratch::new().and_then(|folder| {
            let path = folder.path().join("kernel.so");
            std::fs::write(&path, object).map(|()| (folder, path))
        });
        let load = |symbol: &String| match &written {
            Ok((_folder, path)) => Self::from_file(path, object, symbol),
            Err(error) => without_file(object, symbol, cannot(error)),
        };
        symbols.iter().map(load).collect()
    }

    /// Load the shared object at `path`, whose bytes are `object`. If files in that folder cannot be executed (`noexec`), loads it without
    /// the file.
    pub(crate) fn from_file(path: &Path, object: &[u8], symbol: &str) -> Result<Self> {
        Self::load(path, symbol).or_else(|error| without_file(object, symbol, error))
    }

    /// Load a shared object from its bytes, without a file.
    #[cfg(target_os = "linux")]
    #[allow(unsafe_code)] // an address becomes a function
    pub(crate) fn from_image(object: &[u8], symbol: &str) -> Result<Self> {
        load_math_library();
        let (image, function) = Image::load(object, symbol)?;
        // SAFETY: the compiler defines the symbol as a function of exactly this type, and the image keeps it mapped.
        let function = unsafe { std::mem::transmute::<*const c_void, WorkGroupFunction>(function) };
        Ok(Self { function, _object: Loaded::Image { _image: image } })
    }

    /// Load the shared object at `path`, which the compiler's output was linked to.
    #[allow(unsafe_code)] // loads machine code
    pub(crate) fn load(path: &Path, symbol: &str) -> Result<Self> {
        load_math_library();
        let wrong = |error| Error::Environment(format!("cannot load the compiled kernel: {error}"));
        let name = CString::new(symbol).map_err(|_| Error::invalid(format!("symbol name {symbol:?}")))?;
        // SAFETY: the object was linked from compiled kernel code only; it has no initializers.
        let object = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }.map_err(wrong)?;
        // Never unloaded: ThreadSanitizer deadlocks if one thread unloads code while another looks up a symbol.
        #[cfg(elinvar_thread_sanitizer)]
        // SAFETY: as above.
        std::mem::forget(unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) });
        // SAFETY: the compiler defines the symbol as a function of exactly this type.
        let function = unsafe { object.get::<WorkGroupFunction>(name.as_bytes_with_nul()) }.map_err(wrong)?;
        let function = *function;
        Ok(Self { function, _object: Loaded::Library { _library: object } })
    }

    /// Runs threadgroups in ascending order. Returns 0 or a fault code. Restores the thread's floating-point modes.
    ///
    /// # Safety
    /// `launch` matches the kernel: each address is valid for the kernel's accesses, and no other thread writes to the same bytes except
    /// as the kernel expects. `scratch` is aligned to 64 bytes, holds the scratch and threadgroup memory that the kernel and the launch
    /// require, and is not used otherwise.
    #[allow(unsafe_code)] // calls machine code that a user's kernel was compiled to
    pub unsafe fn run(&self, launch: &Launch, scratch: *mut u8, groups: Range<u64>) -> i32 {
        let modes = FloatState::current();
        // SAFETY: as above; `_object` keeps the function mapped.
        let code = unsafe { (self.function)(launch, scratch, groups.start, groups.end) };
        modes.restore();
        code
    }
}

/// Loads code without a file after loading from a file failed with `error`; returns that error if this fails as well.
fn without_file(object: &[u8], symbol: &str, error: Error) -> Result<Code> {
    #[cfg(target_os = "linux")]
    if let Ok(code) = Code::from_image(object, symbol) {
        tracing::debug!("loaded without a file: {error}");
        return Ok(code);
    }
    let _ = (object, symbol);
    Err(error)
}

/// Makes the symbols of libm global, once. LLVM's code generator emits calls of its `fmaf`, `rintf`, `truncf`, `floorf` and `ceilf` for
/// the operations of these names on processors without FMA or round-to-integer instructions (x86-64 before v3 and SSE4.1).
#[allow(unsafe_code)] // loads a system library
fn load_math_library() {
    static LOADED: PerProcess<Option<Library>> = PerProcess::new(|| {
        let name = if cfg!(target_os = "linux") { "libm.so.6" } else { return None };
        // SAFETY: the system's own library, whose initializers every program runs. If it cannot be
        // loaded, the symbols that a kernel lacks are named when the kernel is loaded.
        unsafe { Library::open(Some(name), RTLD_NOW | RTLD_GLOBAL) }.ok()
    });
    let _loaded = LOADED.get();
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_symbol_that_nothing_defines_is_an_error() {
        let ir = "declare i32 @elinvar_no_such_function()
            define i32 @elinvar_threadgroups(ptr %l, ptr %s, i64 %b, i64 %e) {
              %r = call i32 @elinvar_no_such_function()
              ret i32 %r
            }";
        for (ir, missing) in
            [(ir, "elinvar_no_such_function"), ("define void @f() { ret void }", "elinvar_threadgroups")]
        {
            let object = testing::generator().object(ir).unwrap();
            let Err(Error::Environment(why)) = Code::from_bytes(&object, "elinvar_threadgroups") else {
                panic!("loaded without {missing}");
            };
            assert!(why.contains(missing), "{why}");
        }
    }

    #[test]
    fn code_whose_file_cannot_be_mapped_is_loaded_from_memory() {
        const SYMBOL: &str = "elinvar_threadgroups";
        let object = testing::generator().object(testing::COUNT).unwrap();
        let folder = Scratch::new().unwrap();
        let path = folder.path().join("kernel.so");
        std::fs::write(&path, &object[..100]).unwrap();
        assert!(Code::load(&path, SYMBOL).is_err());
        assert!(Code::from_file(&path, &object, SYMBOL).is_ok());
        let Err(Error::Environment(why)) = Code::from_file(&path, &object[..100], SYMBOL) else {
            panic!("loaded half an object");
        };
        assert!(why.starts_with("cannot load the compiled kernel:"), "{why}");
    }
}
