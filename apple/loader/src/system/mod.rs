//! `libSystem` for a program: functions of this system's C library where both systems agree, and translating functions where constants or
//! structures differ.
//!
//! Only functions that programs of this workspace call are included.

mod errors;
mod files;
mod processes;
mod threads;
mod various;

pub use various::set_arguments;

/// Functions with the same interface on both systems.
pub const SAME: &[&str] = &[
    "_Unwind_Backtrace",
    "_Unwind_DeleteException",
    "_Unwind_GetDataRelBase",
    "_Unwind_GetIP",
    "_Unwind_GetIPInfo",
    "_Unwind_GetLanguageSpecificData",
    "_Unwind_GetRegionStart",
    "_Unwind_GetTextRelBase",
    "_Unwind_RaiseException",
    "_Unwind_Resume",
    "_Unwind_SetGR",
    "_Unwind_SetIP",
    "_exit",
    "abort",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "calloc",
    "cbrt",
    "chdir",
    "close",
    "closedir",
    "cos",
    "cosf",
    "cosh",
    "dirfd",
    "dlclose",
    "dlerror",
    "dup",
    "dup2",
    "exit",
    "exp",
    "exp2",
    "expf",
    "fchmod",
    "fdopendir",
    "flock",
    "fma",
    "fmaf",
    "fmod",
    "fmodf",
    "free",
    "fsync",
    "ftruncate",
    "getcwd",
    "getentropy",
    "getenv",
    "geteuid",
    "getpid",
    "gettimeofday",
    "getuid",
    "isatty",
    "kill",
    "log",
    "log10",
    "log1p",
    "log2",
    "lseek",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "mkdir",
    "mprotect",
    "munmap",
    "nanosleep",
    "opendir",
    "pipe",
    "posix_memalign",
    "poll",
    "pow",
    "powf",
    "read",
    "readv",
    "realloc",
    "realpath",
    "rename",
    "rmdir",
    "sched_yield",
    "setpgid",
    "setsid",
    "sin",
    "sinf",
    "sinh",
    "strlen",
    "tan",
    "tanf",
    "tanh",
    "unlink",
    "utimensat",
    "waitpid",
    "write",
    "writev",
];

/// The address of a translating function.
pub fn function(name: &str) -> Option<usize> {
    let tables =
        [errors::FUNCTIONS, files::FUNCTIONS, processes::FUNCTIONS, threads::FUNCTIONS, various::FUNCTIONS];
    let found = tables.into_iter().flatten().find(|(known, _)| *known == name);
    found.map(|(_, address)| address.0 as usize)
}

/// The address of a function in a table.
#[derive(Clone, Copy)]
pub struct Address(*const ());

#[allow(unsafe_code)] // addresses are not shared by default
// SAFETY: nothing is done with it but to call it.
unsafe impl Sync for Address {}

type Table = &'static [(&'static str, Address)];

/// A table of functions by their names.
macro_rules! table {
    ($($name:literal => $function:path),* $(,)?) => {
        pub const FUNCTIONS: crate::system::Table =
            &[$(($name, crate::system::Address($function as *const ()))),*];
    };
}
use table;
