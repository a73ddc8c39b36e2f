//! Threads. Structures of macOS are large enough for those of this system. Static initializers start with a signature, which is cleared on
//! first use; the remaining zeros are this system's initial state.

use std::collections::BTreeSet;
use std::ffi::{c_char, c_int, c_long, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::errors::translated;

super::table! {
    "_tlv_atexit" => at_thread_exit,
    "_tlv_bootstrap" => crate::thread_locals::elinvar_thread_local,
    "dispatch_release" => release,
    "dispatch_semaphore_create" => semaphore_create,
    "dispatch_semaphore_signal" => semaphore_signal,
    "dispatch_semaphore_wait" => semaphore_wait,
    "dispatch_time" => dispatch_time,
    "pthread_attr_destroy" => libc::pthread_attr_destroy,
    "pthread_attr_init" => libc::pthread_attr_init,
    "pthread_attr_setstacksize" => libc::pthread_attr_setstacksize,
    "pthread_cond_destroy" => libc::pthread_cond_destroy,
    "pthread_cond_signal" => cond_signal,
    "pthread_cond_broadcast" => cond_broadcast,
    "pthread_cond_timedwait" => cond_timedwait,
    "pthread_cond_timedwait_relative_np" => cond_timedwait_relative,
    "pthread_cond_wait" => cond_wait,
    "pthread_create" => libc::pthread_create,
    "pthread_detach" => libc::pthread_detach,
    "pthread_get_stackaddr_np" => stack_address,
    "pthread_get_stacksize_np" => stack_size,
    "pthread_join" => libc::pthread_join,
    "pthread_mutex_destroy" => libc::pthread_mutex_destroy,
    "pthread_mutex_init" => libc::pthread_mutex_init,
    "pthread_mutex_lock" => mutex_lock,
    "pthread_mutex_trylock" => mutex_trylock,
    "pthread_mutex_unlock" => mutex_unlock,
    "pthread_mutexattr_destroy" => libc::pthread_mutexattr_destroy,
    "pthread_mutexattr_init" => libc::pthread_mutexattr_init,
    "pthread_mutexattr_settype" => mutexattr_settype,
    "pthread_self" => libc::pthread_self,
    "pthread_setname_np" => set_name,
    "pthread_threadid_np" => thread_id,
}

const MUTEX_MARK: u64 = 0x32AA_ABA7;
const COND_MARK: u64 = 0x3CB0_B1BB;
/// `PTHREAD_MUTEX_RECURSIVE`.
const RECURSIVE: c_int = 2;

/// # Safety
/// `at` is the start of a mutex or condition of the program.
#[allow(unsafe_code)] // changes a structure of the program
unsafe fn unmark<T>(at: *mut T, mark: u64) -> *mut T {
    // SAFETY: the structure is aligned to 8 and begins with a number that is the mark or this system's.
    let first = unsafe { AtomicU64::from_ptr(at.cast()) };
    let _other = first.compare_exchange(mark, 0, Ordering::AcqRel, Ordering::Acquire);
    at
}

macro_rules! of_marked {
    ($($(#[$doc:meta])* $name:ident($ty:ty, $mark:ident) => $function:path;)*) => {
        $(
            /// # Safety
            /// As the function of this system.
            #[allow(unsafe_code)] // hands on a structure of the program
            unsafe extern "C" fn $name(at: *mut $ty) -> c_int {
                // SAFETY: the caller's promise.
                translated(unsafe { $function(unmark(at, $mark)) })
            }
        )*
    };
}

of_marked! {
    mutex_lock(libc::pthread_mutex_t, MUTEX_MARK) => libc::pthread_mutex_lock;
    mutex_trylock(libc::pthread_mutex_t, MUTEX_MARK) => libc::pthread_mutex_trylock;
    mutex_unlock(libc::pthread_mutex_t, MUTEX_MARK) => libc::pthread_mutex_unlock;
    cond_signal(libc::pthread_cond_t, COND_MARK) => libc::pthread_cond_signal;
    cond_broadcast(libc::pthread_cond_t, COND_MARK) => libc::pthread_cond_broadcast;
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // hands on structures of the program
unsafe extern "C" fn cond_wait(cond: *mut libc::pthread_cond_t, mutex: *mut libc::pthread_mutex_t) -> c_int {
    // SAFETY: the caller's promise.
    translated(unsafe { libc::pthread_cond_wait(unmark(cond, COND_MARK), unmark(mutex, MUTEX_MARK)) })
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // hands on structures of the program
unsafe extern "C" fn cond_timedwait(
    cond: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise.
    translated(unsafe {
        libc::pthread_cond_timedwait(unmark(cond, COND_MARK), unmark(mutex, MUTEX_MARK), until)
    })
}

/// As [`cond_timedwait`], with a relative time.
///
/// # Safety
/// As [`cond_timedwait`].
#[allow(unsafe_code)] // hands on structures of the program
unsafe extern "C" fn cond_timedwait_relative(
    cond: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    time: *const libc::timespec,
) -> c_int {
    const NANOSECONDS: c_long = 1_000_000_000;
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the caller's promise; the time is written before it is read.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until);
        let nanoseconds = until.tv_nsec + (*time).tv_nsec;
        until.tv_sec = until.tv_sec.saturating_add((*time).tv_sec).saturating_add(nanoseconds / NANOSECONDS);
        until.tv_nsec = nanoseconds % NANOSECONDS;
        cond_timedwait(cond, mutex, &raw const until)
    }
}

/// # Safety
/// As the function of this system.
#[allow(unsafe_code)] // hands on a structure of the program
unsafe extern "C" fn mutexattr_settype(attributes: *mut libc::pthread_mutexattr_t, kind: c_int) -> c_int {
    let kind = if kind == RECURSIVE { libc::PTHREAD_MUTEX_RECURSIVE } else { libc::PTHREAD_MUTEX_NORMAL };
    // SAFETY: the caller's promise.
    unsafe { libc::pthread_mutexattr_settype(attributes, kind) }
}

/// The stack of a thread: its lowest address and its size.
///
/// # Safety
/// The thread is one.
#[allow(unsafe_code)] // C functions
unsafe fn stack(thread: libc::pthread_t) -> (*mut c_void, usize) {
    let mut attributes = std::mem::MaybeUninit::<libc::pthread_attr_t>::zeroed();
    let (mut address, mut size) = (std::ptr::null_mut(), 0);
    // SAFETY: the caller's promise; the attributes are written before they are read.
    unsafe {
        if libc::pthread_getattr_np(thread, attributes.as_mut_ptr()) == 0 {
            libc::pthread_attr_getstack(attributes.as_ptr(), &raw mut address, &raw mut size);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
    }
    (address, size)
}

/// # Safety
/// As [`stack`].
#[allow(unsafe_code)] // calls one that is
unsafe extern "C" fn stack_address(thread: libc::pthread_t) -> *mut c_void {
    // SAFETY: the caller's promise.
    let (address, size) = unsafe { stack(thread) };
    address.wrapping_byte_add(size)
}

/// # Safety
/// As [`stack`].
#[allow(unsafe_code)] // calls one that is
unsafe extern "C" fn stack_size(thread: libc::pthread_t) -> usize {
    // SAFETY: the caller's promise.
    unsafe { stack(thread) }.1
}

extern "C" fn set_name(_name: *const c_char) -> c_int {
    0
}

/// # Safety
/// `id` is null or a place for a number.
#[allow(unsafe_code)] // writes for the program
unsafe extern "C" fn thread_id(_thread: libc::pthread_t, id: *mut u64) -> c_int {
    // SAFETY: the caller's promise; the function takes nothing.
    unsafe { id.write(libc::gettid() as u64) };
    0
}

#[allow(unsafe_code)] // of the C library
unsafe extern "C" {
    static __dso_handle: u8;
    fn __cxa_thread_atexit_impl(
        then: unsafe extern "C" fn(*mut c_void),
        with: *mut c_void,
        of: *const u8,
    ) -> c_int;
}

/// # Safety
/// The function may be called with the argument when the thread ends.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn at_thread_exit(then: unsafe extern "C" fn(*mut c_void), with: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { __cxa_thread_atexit_impl(then, with, &raw const __dso_handle) };
}

/// The addresses of semaphores. Never freed, because a program frees few.
static SEMAPHORES: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// A semaphore of this system.
#[allow(unsafe_code)] // C functions
extern "C" fn semaphore_create(value: c_long) -> *mut libc::sem_t {
    let semaphore = Box::leak(Box::new(std::mem::MaybeUninit::<libc::sem_t>::zeroed()));
    // SAFETY: it is ours and stays.
    unsafe { libc::sem_init(semaphore.as_mut_ptr(), 0, u32::try_from(value).unwrap_or(0)) };
    SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner).insert(semaphore.as_ptr().addr());
    semaphore.as_mut_ptr()
}

/// Releases a dispatch object of the frameworks' library, or a semaphore.
///
/// # Safety
/// `object` is one, or a semaphore of this file, and the caller owns a reference to it.
#[allow(unsafe_code)] // calls a function of the library
unsafe extern "C" fn release(object: *mut c_void) {
    if SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner).contains(&object.addr()) {
        return;
    }
    // SAFETY: the name ends with a zero.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"dispatch_release".as_ptr()) };
    if !found.is_null() {
        // SAFETY: the library's function of this name takes an object and gives nothing.
        let release: unsafe extern "C" fn(*mut c_void) = unsafe { std::mem::transmute(found) };
        // SAFETY: the caller's promise.
        unsafe { release(object) };
    }
}

/// # Safety
/// The semaphore is one of ours.
#[allow(unsafe_code)] // a C function
unsafe extern "C" fn semaphore_signal(semaphore: *mut libc::sem_t) -> c_long {
    // SAFETY: the caller's promise.
    unsafe { libc::sem_post(semaphore) };
    0
}

/// Waits with a timeout in nanoseconds; without timeout if all bits are set.
///
/// # Safety
/// The semaphore is one of ours.
#[allow(unsafe_code)] // C functions
unsafe extern "C" fn semaphore_wait(semaphore: *mut libc::sem_t, nanoseconds: u64) -> c_long {
    if nanoseconds == u64::MAX {
        // SAFETY: the caller's promise.
        while unsafe { libc::sem_wait(semaphore) } != 0 {}
        return 0;
    }
    let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until) };
    let ns = until.tv_nsec as u64 + nanoseconds % 1_000_000_000;
    until.tv_sec += (nanoseconds / 1_000_000_000 + ns / 1_000_000_000) as i64;
    until.tv_nsec = (ns % 1_000_000_000) as i64;
    // SAFETY: the caller's promise.
    c_long::from(unsafe { libc::sem_timedwait(semaphore, &raw const until) } != 0)
}

/// A relative time, as [`semaphore_wait`] takes it.
extern "C" fn dispatch_time(_base: u64, nanoseconds: i64) -> u64 {
    nanoseconds.max(0) as u64
}
