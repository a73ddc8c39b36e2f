//! Processes and signals. Spawn attributes are a pointer on macOS; here it points to a structure of this system.

use std::ffi::{c_char, c_int, c_short, c_void};

super::table! {
    "posix_spawn_file_actions_adddup2" => actions_dup2,
    "posix_spawn_file_actions_destroy" => actions_destroy,
    "posix_spawn_file_actions_init" => actions_init,
    "posix_spawnattr_destroy" => attributes_destroy,
    "posix_spawnattr_init" => attributes_init,
    "posix_spawnattr_setflags" => set_flags,
    "posix_spawnattr_setpgroup" => set_group,
    "posix_spawnattr_setsigdefault" => set_defaults,
    "posix_spawnp" => spawn,
    "sigaction" => sigaction,
    "sigaddset" => sigaddset,
    "sigaltstack" => sigaltstack,
    "sigemptyset" => sigemptyset,
    "signal" => signal,
    "waitid" => wait,
}

pub(super) type Actions = *mut libc::posix_spawn_file_actions_t;
type Attributes = *mut libc::posix_spawnattr_t;

/// # Safety
/// `place` is one for a pointer.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn actions_init(place: *mut Actions) -> c_int {
    let made = Box::into_raw(Box::new(std::mem::MaybeUninit::<libc::posix_spawn_file_actions_t>::zeroed()));
    // SAFETY: the caller's promise; what is made is ours.
    unsafe {
        place.write(made.cast());
        libc::posix_spawn_file_actions_init(made.cast())
    }
}

/// # Safety
/// `place` holds what [`actions_init`] has made.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn actions_destroy(place: *mut Actions) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let made = place.read();
        let status = libc::posix_spawn_file_actions_destroy(made);
        drop(Box::from_raw(made.cast::<std::mem::MaybeUninit<libc::posix_spawn_file_actions_t>>()));
        status
    }
}

/// # Safety
/// `place` holds what [`actions_init`] has made.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn actions_dup2(place: *mut Actions, from: c_int, to: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::posix_spawn_file_actions_adddup2(place.read(), from, to) }
}

/// # Safety
/// `place` holds what [`actions_init`] has made; the path is a C string.
#[allow(unsafe_code)] // C functions
pub(super) unsafe extern "C" fn actions_change_folder(place: *mut Actions, path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::posix_spawn_file_actions_addchdir_np(place.read(), path) }
}

/// # Safety
/// `place` is one for a pointer.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn attributes_init(place: *mut Attributes) -> c_int {
    let made = Box::into_raw(Box::new(std::mem::MaybeUninit::<libc::posix_spawnattr_t>::zeroed()));
    // SAFETY: the caller's promise; what is made is ours.
    unsafe {
        place.write(made.cast());
        libc::posix_spawnattr_init(made.cast())
    }
}

/// # Safety
/// `place` holds what [`attributes_init`] has made.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn attributes_destroy(place: *mut Attributes) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let made = place.read();
        let status = libc::posix_spawnattr_destroy(made);
        drop(Box::from_raw(made.cast::<std::mem::MaybeUninit<libc::posix_spawnattr_t>>()));
        status
    }
}

/// The flags that both systems have: process group and default signals.
///
/// # Safety
/// `place` holds what [`attributes_init`] has made.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn set_flags(place: *mut Attributes, flags: c_short) -> c_int {
    let group = if flags & 2 == 0 { 0 } else { libc::POSIX_SPAWN_SETPGROUP };
    let defaults = if flags & 4 == 0 { 0 } else { libc::POSIX_SPAWN_SETSIGDEF };
    // SAFETY: the caller's promise.
    unsafe { libc::posix_spawnattr_setflags(place.read(), (group | defaults) as c_short) }
}

/// # Safety
/// `place` holds what [`attributes_init`] has made.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn set_group(place: *mut Attributes, group: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { libc::posix_spawnattr_setpgroup(place.read(), group) }
}

/// Signal sets are bit masks. Numbers up to 15 are the same on both systems, except for a few that are not used here.
///
/// # Safety
/// `place` holds what [`attributes_init`] has made; `signals` points to a number.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn set_defaults(place: *mut Attributes, signals: *const u32) -> c_int {
    let mut set = std::mem::MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the caller's promise; the set is made before it is used.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        for signal in (1..16).filter(|signal| signals.read() & (1 << (signal - 1)) != 0) {
            libc::sigaddset(set.as_mut_ptr(), signal);
        }
        libc::posix_spawnattr_setsigdefault(place.read(), set.as_ptr())
    }
}

/// # Safety
/// As on this system, but actions and attributes are null or were created by the functions above.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn spawn(
    process: *mut c_int,
    program: *const c_char,
    actions: *const Actions,
    attributes: *const Attributes,
    words: *const *mut c_char,
    variables: *const *mut c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let status = unsafe {
        let actions = if actions.is_null() { std::ptr::null() } else { actions.read().cast_const() };
        let attributes = if attributes.is_null() { std::ptr::null() } else { attributes.read().cast_const() };
        libc::posix_spawnp(process, program, actions, attributes, words, variables)
    };
    super::errors::translated(status)
}

/// Waits for processes, optionally without reaping; identifiers are the same on both systems.
///
/// # Safety
/// `info` is null or a place for what macOS says of a signal.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn wait(kind: u32, id: u32, info: *mut [i32; 6], options: c_int) -> c_int {
    let keep = if options & 0x20 == 0 { 0 } else { libc::WNOWAIT };
    let stopped = if options & 0x8 == 0 { 0 } else { libc::WSTOPPED };
    let ours = (options & (libc::WNOHANG | libc::WEXITED)) | keep | stopped;
    let mut found = std::mem::MaybeUninit::<libc::siginfo_t>::zeroed();
    // SAFETY: writes what it finds, which zeroes are as well.
    let (status, found) = unsafe { (libc::waitid(kind, id, found.as_mut_ptr(), ours), found.assume_init()) };
    if status == 0 && !info.is_null() {
        // SAFETY: of an ended process these are there.
        let (process, user, ended) = unsafe { (found.si_pid(), found.si_uid(), found.si_status()) };
        // SAFETY: the caller's promise.
        unsafe { info.write([found.si_signo, found.si_errno, found.si_code, process, user as i32, ended]) };
    }
    status
}

/// # Safety
/// `set` points to a number.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn sigemptyset(set: *mut u32) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { set.write(0) };
    0
}

/// # Safety
/// `set` points to a number.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn sigaddset(set: *mut u32, signal: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { *set |= 1_u32.checked_shl(signal.wrapping_sub(1) as u32).unwrap_or(0) };
    0
}

/// Does not install the program's handlers: this process keeps its own. Previous handlers read as none.
///
/// # Safety
/// `old` is null or a place for a structure of 16 bytes.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn sigaction(_signal: c_int, _new: *const c_void, old: *mut [u64; 2]) -> c_int {
    if !old.is_null() {
        // SAFETY: the caller's promise.
        unsafe { old.write_unaligned([0; 2]) };
    }
    0
}

/// No alternate stacks: they read as disabled.
///
/// # Safety
/// `old` is null or a place for a structure of 24 bytes.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn sigaltstack(_new: *const c_void, old: *mut [u32; 6]) -> c_int {
    const DISABLED: u32 = 4;
    if !old.is_null() {
        // SAFETY: the caller's promise.
        unsafe { old.write_unaligned([0, 0, 0, 0, DISABLED, 0]) };
    }
    0
}

extern "C" fn signal(_signal: c_int, _then: usize) -> usize {
    0
}
