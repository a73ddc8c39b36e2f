//! Diagnostics for tests: live objects and blocks, objects without a pool, and program errors.
//!
//! `ELINVAR_APPLE_LOG=1` logs errors on stderr when they are created. Tests read counts through C functions. `ELINVAR_APPLE_EXIT=strict` makes a
//! process that exits successfully fail if Metal objects are alive at its end, or if objects were autoreleased without a pool.

use std::ffi::{CStr, c_char};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::block;
use crate::class::Class;

static WITHOUT_POOL: AtomicUsize = AtomicUsize::new(0);

/// Reports a program error and ends the process.
pub fn fatal(message: fmt::Arguments<'_>) -> ! {
    eprintln!("elinvar-apple: {message}");
    std::process::abort();
}

/// Logs a message, if `ELINVAR_APPLE_LOG` is set.
pub fn log(message: fmt::Arguments<'_>) {
    if std::env::var_os("ELINVAR_APPLE_LOG").is_some_and(|value| !value.is_empty()) {
        eprintln!("elinvar-apple: {message}");
    }
}

/// Counts an object that was autoreleased on a thread without a pool.
pub(crate) fn without_pool(class: &Class) {
    let before = WITHOUT_POOL.fetch_add(1, Ordering::Relaxed);
    if before == 0 && is_strict() {
        eprintln!(
            "elinvar-apple: a {} was autoreleased without a pool; it lives until its thread ends",
            class.name().to_string_lossy()
        );
    }
}

fn is_strict() -> bool {
    std::env::var_os("ELINVAR_APPLE_EXIT").is_some_and(|value| value == "strict")
}

/// Number of live objects of a class or protocol; of all classes if no name is given.
fn live(name: Option<&CStr>) -> usize {
    let is_meant = |class: &&Class| match name {
        None => true,
        Some(name) => class.conforms(name) || class.line().any(|class| class.name() == name),
    };
    Class::all().into_iter().filter(is_meant).map(|class| class.live.load(Ordering::Relaxed)).sum()
}

/// Number of live objects of a class or protocol; null for all classes.
///
/// # Safety
/// `name` is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn elinvar_apple_live(name: *const c_char) -> usize {
    // SAFETY: the caller's promise.
    live((!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }))
}

/// Number of blocks on the heap.
#[unsafe(no_mangle)]
pub extern "C" fn elinvar_apple_live_blocks() -> usize {
    block::LIVE.load(Ordering::Relaxed)
}

/// Number of objects that were autoreleased on threads without a pool.
#[unsafe(no_mangle)]
pub extern "C" fn elinvar_apple_without_pool() -> usize {
    WITHOUT_POOL.load(Ordering::Relaxed)
}

/// Classes whose objects live as long as the process.
const STAY: [&CStr; 2] = [c"ElinvarMTLDevice", c"MTLCaptureManager"];

/// Metal classes with live objects.
fn leaked() -> Vec<(String, usize)> {
    let counts = Class::all().into_iter().filter_map(|class| {
        let live = class.live.load(Ordering::Relaxed);
        let name = class.name().to_string_lossy().into_owned();
        let is_metal = class.name().to_bytes().windows(3).any(|part| part == b"MTL" || part == b"MPS");
        (live > 0 && is_metal && !STAY.contains(&class.name())).then_some((name, live))
    });
    let mut leaked: Vec<_> = counts.collect();
    leaked.sort();
    leaked
}

extern "C" fn at_exit() {
    let (leaked, poolless) = (leaked(), WITHOUT_POOL.load(Ordering::Relaxed));
    for (class, live) in &leaked {
        eprintln!("elinvar-apple: at the end {live} of {class} were not freed");
    }
    if poolless > 0 {
        eprintln!("elinvar-apple: {poolless} objects were autoreleased without a pool");
    }
    if poolless > 0 || !leaked.is_empty() {
        // SAFETY: ends the process without further functions at its end.
        unsafe { libc::_exit(70) };
    }
}

/// Checks the state at the end of the process, if the environment requests it.
pub fn look_at_exit() {
    if is_strict() {
        // SAFETY: the function stays, as this library is not unloaded.
        unsafe { libc::atexit(at_exit) };
    }
}
