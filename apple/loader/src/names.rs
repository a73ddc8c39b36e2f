//! Symbol lookup.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::system;

/// Size of a stub that reports a missing function, in bytes.
const STUB: usize = 32;
/// Maximum number of stubs.
const STUBS: usize = 1024;

pub struct Names {
    library: *mut c_void,
    known: HashMap<String, u64>,
    stubs: *mut u8,
    used: usize,
}

impl Names {
    /// Opens the library that provides frameworks and Objective-C.
    #[allow(unsafe_code)] // opens a library and maps memory
    pub fn open(library: &Path) -> Result<Self> {
        let path = CString::new(library.as_os_str().as_bytes()).context("a path with a zero byte")?;
        // SAFETY: the path ends with a zero; what the library does when it is opened is what it is given for.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() {
            // SAFETY: after a failure there is a text.
            let why = unsafe { CStr::from_ptr(libc::dlerror()) };
            bail!("{}", why.to_string_lossy());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping where the system likes it changes no other memory.
        let stubs = unsafe { libc::mmap(std::ptr::null_mut(), STUB * STUBS, access, flags, -1, 0) };
        ensure!(stubs != libc::MAP_FAILED, "the system does not allow code to be written");
        Ok(Self { library: handle, known: HashMap::new(), stubs: stubs.cast(), used: 0 })
    }

    /// The address of a symbol; of a stub that reports it as missing and ends the process, if it does not exist.
    pub fn find(&mut self, name: &str) -> u64 {
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let plain = name.strip_prefix('_').unwrap_or(name);
        // A suffix from `$` on distinguishes versions of a function.
        let first = plain.split('$').next().unwrap_or(plain);
        let found = system::function(first)
            .or_else(|| self.of_library(plain))
            .or_else(|| system::SAME.contains(&first).then(|| self.of_system(first)).flatten());
        let address = found.map_or_else(|| self.missing(plain), |address| address as u64);
        self.known.insert(name.to_owned(), address);
        address
    }

    #[allow(unsafe_code)] // asks the loader of shared objects
    fn of_library(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open, and the name ends with a zero.
        let address = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        // Excluding its dependencies: symbols of the C library are not the program's.
        (!address.is_null() && is_of(address, self.library)).then_some(address as usize)
    }

    #[allow(unsafe_code)] // asks the loader of shared objects
    fn of_system(&self, name: &str) -> Option<usize> {
        let name = CString::new(name).ok()?;
        // SAFETY: the name ends with a zero.
        let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        (!address.is_null()).then_some(address as usize)
    }

    /// Creates a stub that passes the name to [`missing`].
    #[allow(unsafe_code)] // writes code
    fn missing(&mut self, name: &str) -> u64 {
        let text = CString::new(name).unwrap_or_default().into_raw() as u64;
        let target = missing as *const () as u64;
        // mov rdi, text; mov rax, target; and rsp, -16; push rax; push rax; pop rax; jmp rax — aligned as a call.
        let mut code = vec![0x48, 0xbf];
        code.extend(text.to_le_bytes());
        code.extend([0x48, 0xb8]);
        code.extend(target.to_le_bytes());
        code.extend([0xff, 0xe0]);
        let at = self.used % STUBS;
        self.used += 1;
        let address = self.stubs.wrapping_add(at * STUB);
        // SAFETY: within the mapping, and no code there runs yet.
        unsafe { address.copy_from_nonoverlapping(code.as_ptr(), code.len()) };
        address as u64
    }
}

/// Whether an address is in a library itself, rather than in a dependency.
#[allow(unsafe_code)] // asks the loader of shared objects
fn is_of(address: *mut c_void, library: *mut c_void) -> bool {
    let mut of_address = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: writes what it finds; the address need not be anything.
    if unsafe { libc::dladdr(address, of_address.as_mut_ptr()) } == 0 {
        return false;
    }
    // SAFETY: zeroes are a value of it, and the call has succeeded.
    let of_address = unsafe { of_address.assume_init() };
    let own = c"elinvar_apple_live";
    let mut of_library = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the handle is open, and the name ends with a zero.
    let own = unsafe { libc::dlsym(library, own.as_ptr()) };
    // SAFETY: as above.
    let found = unsafe { libc::dladdr(own, of_library.as_mut_ptr()) } != 0;
    // SAFETY: as above.
    found && unsafe { of_library.assume_init() }.dli_fbase == of_address.dli_fbase
}

/// Reports the missing function that the program has called.
#[allow(unsafe_code)] // reads a text that stays
extern "C" fn missing(name: *const c_char) -> ! {
    // SAFETY: the code that jumps here names a text that stays.
    let name = unsafe { CStr::from_ptr(name) };
    eprintln!("elinvar-macho: the program calls {}, which does not exist", name.to_string_lossy());
    std::process::abort();
}
