//! Other functions: arguments, clocks, system properties, random numbers, libraries.

use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

super::table! {
    "CCRandomGenerateBytes" => random,
    "__bzero" => zero,
    "_NSGetArgc" => argc,
    "_NSGetArgv" => argv,
    "_NSGetEnviron" => environment,
    "_dyld_get_image_header" => none,
    "_dyld_get_image_name" => none,
    "_dyld_get_image_vmaddr_slide" => none,
    "_dyld_image_count" => none,
    "clock_gettime" => clock,
    "confstr" => none,
    "dlopen" => open,
    "dlsym" => symbol,
    "dyld_stub_binder" => none,
    "memset_pattern16" => fill,
    "sysconf" => sysconf,
    "sysctlbyname" => refuse,
}

static ARGC: AtomicI32 = AtomicI32::new(0);
static ARGV: AtomicPtr<*const c_char> = AtomicPtr::new(std::ptr::null_mut());

/// The program's arguments, kept permanently.
pub fn set_arguments(count: c_int, words: *const *const c_char) {
    ARGC.store(count, Ordering::Release);
    ARGV.store(words.cast_mut(), Ordering::Release);
}

extern "C" fn argc() -> *mut c_int {
    ARGC.as_ptr()
}

extern "C" fn argv() -> *mut *mut *const c_char {
    ARGV.as_ptr()
}

#[allow(unsafe_code)] // of the C library
unsafe extern "C" {
    static mut environ: *const *const c_char;
}

#[allow(unsafe_code)] // a variable of the C library
extern "C" fn environment() -> *mut *const *const c_char {
    &raw mut environ
}

extern "C" fn none() -> usize {
    0
}

extern "C" fn refuse() -> c_int {
    -1
}

/// # Safety
/// `target` has room for `len` bytes.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn zero(target: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { target.write_bytes(0, len) };
}

/// Repeats 16 bytes; the last repetition may be a part.
///
/// # Safety
/// `target` has room for `len` bytes, and `pattern` has 16.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn fill(target: *mut u8, pattern: *const [u8; 16], len: usize) {
    // SAFETY: the caller's promise; the bytes need not be initialized before.
    let (target, pattern) = unsafe { (std::slice::from_raw_parts_mut(target.cast(), len), &*pattern) };
    for (at, byte) in target.iter_mut().zip(pattern.iter().cycle()) {
        std::mem::MaybeUninit::write(at, *byte);
    }
}

/// # Safety
/// `target` has room for `len` bytes.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn random(target: *mut c_void, len: usize) -> c_int {
    // SAFETY: the caller's promise.
    let got = unsafe { libc::getrandom(target, len, 0) };
    if usize::try_from(got) == Ok(len) { 0 } else { -1 }
}

/// The real-time clock is 0 on both systems; all others map to the monotonic clock.
///
/// # Safety
/// `time` is a place for one.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn clock(number: c_int, time: *mut libc::timespec) -> c_int {
    let clock = if number == 0 { libc::CLOCK_REALTIME } else { libc::CLOCK_MONOTONIC };
    // SAFETY: the caller's promise.
    unsafe { libc::clock_gettime(clock, time) }
}

/// By the numbers of macOS.
#[allow(unsafe_code)] // a C function
extern "C" fn sysconf(name: c_int) -> c_long {
    let name = match name {
        29 => libc::_SC_PAGESIZE,
        57 => libc::_SC_NPROCESSORS_CONF,
        58 => libc::_SC_NPROCESSORS_ONLN,
        71 => libc::_SC_GETPW_R_SIZE_MAX,
        200 => libc::_SC_PHYS_PAGES,
        _ => return -1,
    };
    // SAFETY: takes a number, returns a number.
    unsafe { libc::sysconf(name) }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn open(path: *const c_char, flags: c_int) -> *mut c_void {
    let when = if flags & 2 == 0 { libc::RTLD_LAZY } else { libc::RTLD_NOW };
    let global = if flags & 8 == 0 { 0 } else { libc::RTLD_GLOBAL };
    // SAFETY: the caller's promise.
    unsafe { libc::dlopen(path, when | global) }
}

/// Looks up a symbol in an opened library. Of the optional newer functions that are looked up in the global scope, only one exists, without
/// which the standard library forks to start a process in another folder.
///
/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn symbol(library: *mut c_void, name: *const c_char) -> *mut c_void {
    const EVERYWHERE: isize = -2;
    if library.addr() as isize == EVERYWHERE {
        // SAFETY: the caller's promise.
        let name = unsafe { std::ffi::CStr::from_ptr(name) };
        return match name.to_bytes() {
            b"posix_spawn_file_actions_addchdir_np" => super::processes::actions_change_folder as *mut c_void,
            _ => std::ptr::null_mut(),
        };
    }
    // SAFETY: the caller's promise.
    unsafe { libc::dlsym(library, name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_repeated_up_to_the_length() {
        let pattern: [u8; 16] = std::array::from_fn(|i| i as u8 + 1);
        let mut bytes = [0; 41];
        // SAFETY: there is room for 40 bytes.
        #[allow(unsafe_code)]
        unsafe {
            fill(bytes.as_mut_ptr(), &pattern, 40);
        }
        let expected: Vec<u8> = (0..40).map(|i| i % 16 + 1).chain([0]).collect();
        assert_eq!(bytes.as_slice(), expected);
    }
}
