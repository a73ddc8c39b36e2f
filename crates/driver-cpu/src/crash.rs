//! Crash reports: when a kernel crashes the process, prints the kernel's name, the signal, the argument nearest to the address, and how to
//! find the cause.
//!
//! A handler for SIGSEGV, SIGBUS, SIGILL, SIGFPE and SIGTRAP is installed with the first CPU device of the process. On a thread that runs a
//! kernel, it writes one message to standard error. Then, and on all other threads immediately, it forwards the signal to the previous
//! handler or to the default action, so that exit status and core dump are unchanged. `ELINVAR_CRASH_HANDLER=off` disables it.
//!
//! The handler is async-signal-safe (POSIX.1-2017, 2.4.3): it reads atomics, writes from its stack, and calls `write`, `sigaction`, `raise`
//! and `pthread_self`. It finds the kernel by the thread's number in a table, because a thread-local variable may be allocated on first
//! use. Each worker has an alternate signal stack, so that stack overflows can be reported.

mod nearest;

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};

use elinvar_driver::{Arg, PerProcess, Signature};
use libc::{sigaction, siginfo_t};

use nearest::{Relation, nearest};

/// Disables the handler if it is `off`.
const SWITCH: &str = "ELINVAR_CRASH_HANDLER";

const SIGNALS: [(c_int, &str); 5] = [
    (libc::SIGSEGV, "SIGSEGV"),
    (libc::SIGBUS, "SIGBUS"),
    (libc::SIGILL, "SIGILL"),
    (libc::SIGFPE, "SIGFPE"),
    (libc::SIGTRAP, "SIGTRAP"),
];
/// Size of the table of threads. Further threads are not reported.
const THREADS: usize = 1024;
/// Size of an alternate signal stack, in bytes.
const STACK_BYTES: usize = 64 << 10;
/// A thread whose stack pointer is at most this far from the end of its stack has overflowed it: compiled code probes every page of a frame
/// in order (`frames` of `elinvar-spmd`).
const NEAR_THE_END: usize = 64 << 10;

/// Description of a kernel in a crash report, built when the kernel is built.
pub(crate) struct Description {
    text: Box<[u8]>,
    /// Index and name of each argument.
    arguments: Vec<String>,
}

impl Description {
    pub(crate) fn new(signature: &Signature, checked: bool) -> Self {
        let name = &signature.name;
        let advice = match checked {
            true => "This is a checked kernel, so the crash is a bug in Elinvar: please report it.",
            false => {
                "An access may be out of bounds. A checked launch (`--checked`, `Library::checked_kernel`) reports the \
                 access; on an isolated device (`--isolated`, `Device::isolated()`) a crash is an error."
            }
        };
        let text =
            format!("elinvar: kernel `{}` has crashed this process\n  {advice}\n", name.escape_debug());
        let argument =
            |(index, arg): (usize, &Arg)| format!("argument {index} `{}`", arg.name.escape_debug());
        let arguments = signature.args.iter().enumerate().map(argument).collect();
        Self { text: text.into_bytes().into(), arguments }
    }
}

/// A running kernel: its description, and addresses and sizes in bytes of its arguments.
pub(crate) struct Run<'r> {
    pub(crate) description: &'r Description,
    pub(crate) args: &'r [*const c_void],
    pub(crate) sizes: &'r [u64],
}

/// Entry of a thread in the table.
struct Entry {
    /// The thread's number from `pthread_self`; 0 for a free entry.
    thread: AtomicUsize,
    /// The lowest address of its stack.
    stack_end: AtomicUsize,
    /// The kernel that it runs.
    running: AtomicPtr<Run<'static>>,
}

static TABLE: [Entry; THREADS] = [const {
    Entry { thread: AtomicUsize::new(0), stack_end: AtomicUsize::new(0), running: AtomicPtr::new(null_mut()) }
}; THREADS];

/// What handled the signals before, in the order of [`SIGNALS`]. Written once, before the handler is installed.
static BEFORE: [AtomicPtr<sigaction>; SIGNALS.len()] = [const { AtomicPtr::new(null_mut()) }; SIGNALS.len()];

thread_local! {
    /// This thread's entry.
    static OWN: Cell<Option<&'static Entry>> = const { Cell::new(None) };
}

/// Registration of a thread that runs kernels. Not `Send`.
pub(crate) struct Thread {
    entry: Option<&'static Entry>,
    stack: Option<HandlerStack>,
}

/// An alternate signal stack that a registration has created.
struct HandlerStack {
    pages: *mut c_void,
    /// The thread's alternate signal stack before.
    before: libc::stack_t,
}

impl Thread {
    /// Registers this thread, whose stack has `bytes` bytes.
    pub(crate) fn enter(stack_bytes: usize) -> Self {
        let marker = 0_u8;
        let end = (&raw const marker as usize).saturating_sub(stack_bytes);
        let entry = TABLE.iter().find(|entry| {
            entry.thread.compare_exchange(0, this_thread(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
        });
        if let Some(entry) = entry {
            entry.stack_end.store(end, Ordering::Relaxed);
        }
        OWN.set(entry);
        Self { entry, stack: handler_stack() }
    }
}

impl Drop for Thread {
    #[allow(unsafe_code)] // gives the handlers' stack back
    fn drop(&mut self) {
        OWN.set(None);
        if let Some(entry) = self.entry {
            entry.thread.store(0, Ordering::Release);
        }
        if let Some(HandlerStack { pages, before }) = &self.stack {
            // SAFETY: the stack was created and set by this thread, which is not in a handler; nothing else uses it. The one before is
            // unchanged: who created it frees it after this.
            unsafe {
                libc::sigaltstack(before, null_mut());
                libc::munmap(*pages, STACK_BYTES);
            }
        }
    }
}

/// Marks this thread as running a kernel, until the returned guard is dropped.
pub(crate) fn running<'r>(run: &'r Run<'r>) -> Running<'r> {
    let entry = OWN.get();
    if let Some(entry) = entry {
        entry.running.store(std::ptr::from_ref(run).cast_mut().cast(), Ordering::Relaxed);
        // The handler runs on this same thread, so only the compiler could move the kernel's accesses before the store.
        compiler_fence(Ordering::SeqCst);
    }
    Running { entry, run: PhantomData }
}

/// Guard: its thread runs a kernel.
pub(crate) struct Running<'r> {
    entry: Option<&'static Entry>,
    run: PhantomData<&'r Run<'r>>,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            compiler_fence(Ordering::SeqCst);
            entry.running.store(null_mut(), Ordering::Relaxed);
        }
    }
}

#[allow(unsafe_code)] // calls a function of the C library
fn this_thread() -> usize {
    // SAFETY: it has no preconditions.
    unsafe { libc::pthread_self() as usize }
}

/// Gives this thread an alternate signal stack if it has none, or a small one: Rust's own has the least size that the system allows (8 KiB on
/// many), of which the registers of AVX-512 take half.
#[allow(unsafe_code)] // calls functions of the C library
fn handler_stack() -> Option<HandlerStack> {
    let mut before = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: reads the current setting.
    if unsafe { libc::sigaltstack(null(), before.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: just written.
    let before = unsafe { before.assume_init() };
    if before.ss_flags & libc::SS_DISABLE == 0 && before.ss_size >= STACK_BYTES {
        return None;
    }
    let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: new pages, which no other code knows.
    let pages = unsafe { libc::mmap(null_mut(), STACK_BYTES, access, kind, -1, 0) };
    if pages == libc::MAP_FAILED {
        return None;
    }
    let on = libc::stack_t { ss_sp: pages, ss_flags: 0, ss_size: STACK_BYTES };
    // SAFETY: the pages are as many and stay until the thread takes them out of use.
    let set = unsafe { libc::sigaltstack(&raw const on, null_mut()) } == 0;
    if !set {
        // SAFETY: the pages from above, which are unused.
        unsafe { libc::munmap(pages, STACK_BYTES) };
    }
    set.then_some(HandlerStack { pages, before })
}

/// Installs the handler, once per process, unless it is disabled.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    // After a fork, threads of the parent may have the same numbers as threads here.
    static OTHERS_FORGOTTEN: PerProcess<()> = PerProcess::new(|| {
        TABLE.iter().for_each(|entry| entry.thread.store(0, Ordering::Release));
    });
    OTHERS_FORGOTTEN.get();
    ONCE.call_once(|| {
        if std::env::var_os(SWITCH).is_some_and(|value| value == "off") {
            return;
        }
        SIGNALS.iter().zip(&BEFORE).for_each(|((signal, _), before)| install_for(*signal, before));
    });
}

#[allow(unsafe_code)] // installs a signal handler
fn install_for(signal: c_int, before: &AtomicPtr<sigaction>) {
    let mut found = MaybeUninit::<sigaction>::uninit();
    // SAFETY: reads the current setting.
    if unsafe { sigaction(signal, null(), found.as_mut_ptr()) } != 0 {
        return;
    }
    // SAFETY: just written.
    let found = unsafe { found.assume_init() };
    // Never freed: a handler may read it at any time.
    before.store(Box::into_raw(Box::new(found)), Ordering::Release);
    let mut action = found;
    action.sa_sigaction = on_signal as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | (found.sa_flags & libc::SA_NODEFER);
    // SAFETY: the handler has the type that SA_SIGINFO asks for and does only what a handler may.
    unsafe { sigaction(signal, &raw const action, null_mut()) };
}

extern "C" fn on_signal(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let thread = this_thread();
    let entry = TABLE.iter().find(|entry| entry.thread.load(Ordering::Acquire) == thread);
    let running = entry.map_or(null_mut(), |entry| entry.running.load(Ordering::Relaxed));
    let mut mistaken = false;
    if let Some(entry) = entry.filter(|_| !running.is_null()) {
        let end = entry.stack_end.load(Ordering::Relaxed);
        let (address, pointer) = (fault_address(info), stack_pointer(context));
        let near = |at: usize| at.abs_diff(end) < NEAR_THE_END;
        let overflows = address.is_some_and(near) && pointer.is_none_or(near);
        // Rust's own handler, which may be the previous one, detects overflows by the address alone and would take this for one.
        mistaken = address.is_some_and(near) && !overflows;
        tell(signal, address, overflows, running);
    }
    pass_on(signal, info, context, mistaken);
}

/// Writes the report.
#[allow(unsafe_code)] // reads a description and writes to a descriptor
fn tell(signal: c_int, address: Option<usize>, overflows: bool, running: *const Run<'_>) {
    let mut line = Line { bytes: [0; 1024], len: 0 };
    // SAFETY: the thread runs the kernel; its caller keeps the kernel and the arguments alive.
    let run = unsafe { &*running };
    line.push(&run.description.text);
    line.push(b"  ");
    let name = SIGNALS.iter().find(|(number, _)| *number == signal).map_or("a signal", |(_, name)| name);
    line.push(name.as_bytes());
    if overflows {
        line.push(b": its private arrays and calls have overflowed the stack of the worker thread");
    } else if let Some(address) = address {
        line.push(b" at address 0x");
        line.push_hex(address);
        line.push_argument(address, run);
    }
    line.push(b"\n");
    // SAFETY: the range is valid. A failure cannot be reported.
    let _written = unsafe { libc::write(libc::STDERR_FILENO, line.bytes.as_ptr().cast(), line.len) };
}

/// The faulting address, for signals that have one.
#[allow(unsafe_code)] // reads what the system has written
fn fault_address(info: *mut siginfo_t) -> Option<usize> {
    // SAFETY: the system gives a handler with SA_SIGINFO a valid structure.
    let info = unsafe { info.as_ref()? };
    let tells = [libc::SIGSEGV, libc::SIGBUS].contains(&info.si_signo) && info.si_code > 0;
    // SAFETY: as above; these signals have an address.
    tells.then(|| unsafe { info.si_addr() } as usize)
}

/// The stack pointer of the interrupted code, on known platforms.
#[allow(unsafe_code)] // reads what the system has written
fn stack_pointer(context: *mut c_void) -> Option<usize> {
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    // SAFETY: the system gives a handler with SA_SIGINFO the context of the interrupted code.
    return unsafe { context.cast::<libc::ucontext_t>().as_ref() }
        .map(|context| context.uc_mcontext.gregs[libc::REG_RSP as usize] as usize);
    #[cfg(all(target_os = "linux", target_arch = "aarch64"))]
    // SAFETY: as above.
    return unsafe { context.cast::<libc::ucontext_t>().as_ref() }
        .map(|context| context.uc_mcontext.sp as usize);
    #[cfg(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))))]
    {
        let _unknown = context;
        None
    }
}

/// Forwards a signal to the previous handler; to the default action if `to_system`.
#[allow(unsafe_code)] // calls a signal handler
fn pass_on(signal: c_int, info: *mut siginfo_t, context: *mut c_void, to_system: bool) {
    let place = SIGNALS.iter().position(|(number, _)| *number == signal);
    let before = place.map_or(null_mut(), |place| BEFORE[place].load(Ordering::Acquire));
    // SAFETY: stored before the handler was installed, and never freed.
    let Some(before) = (unsafe { before.as_ref() }) else { return };
    // SAFETY: the system gives a handler with SA_SIGINFO a valid structure.
    let is_sent = unsafe { info.as_ref() }.is_none_or(|info| info.si_code <= 0);
    match before.sa_sigaction {
        libc::SIG_IGN if is_sent => {}
        libc::SIG_DFL | libc::SIG_IGN => end_by(signal, is_sent),
        _ if to_system => end_by(signal, is_sent),
        handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
            // SAFETY: with this flag the handler is a function of this type.
            let handler: extern "C" fn(c_int, *mut siginfo_t, *mut c_void) =
                unsafe { std::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag the handler is a function of this type.
            let handler: extern "C" fn(c_int) = unsafe { std::mem::transmute(handler) };
            handler(signal);
        }
    }
}

/// Restores the default action: returning re-executes the instruction that raised the signal. A signal that another process or `raise` has
/// sent, or whose instruction is not re-executed, is raised again.
#[allow(unsafe_code)] // calls functions of the C library
fn end_by(signal: c_int, is_sent: bool) {
    // SAFETY: a zeroed structure is valid, and SIG_DFL is valid for each of the signals. The signal is blocked until the handler returns.
    unsafe {
        let mut system: sigaction = std::mem::zeroed();
        system.sa_sigaction = libc::SIG_DFL;
        sigaction(signal, &raw const system, null_mut());
        if is_sent || signal == libc::SIGTRAP {
            libc::raise(signal);
        }
    }
}

/// A string of limited length, without allocation.
struct Line {
    bytes: [u8; 1024],
    len: usize,
}

impl Line {
    fn push(&mut self, text: &[u8]) {
        let count = text.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + count].copy_from_slice(&text[..count]);
        self.len += count;
    }

    /// Relates an address to the nearest argument.
    fn push_argument(&mut self, address: usize, run: &Run<'_>) {
        let Some((index, relation)) = nearest(address, run.args, run.sizes) else { return };
        let Some(name) = run.description.arguments.get(index) else { return };
        self.push(b": ");
        match relation {
            Relation::Inside => self.push(b"in "),
            Relation::Before(bytes) => {
                self.push_decimal(bytes);
                self.push(b" bytes before the start of ");
            }
            Relation::After(bytes) => {
                self.push_decimal(bytes);
                self.push(b" bytes after the end of ");
            }
            Relation::Unbound => {}
        }
        self.push(name.as_bytes());
        match relation {
            Relation::Unbound => self.push(b" is unbound"),
            _ => {
                self.push(b" (");
                self.push_decimal(run.sizes[index] as usize);
                self.push(b" bytes)");
            }
        }
    }

    fn push_decimal(&mut self, number: usize) {
        let digits = number.checked_ilog10().unwrap_or(0);
        for digit in (0..=digits).rev() {
            self.push(&[b'0' + (number / 10_usize.pow(digit) % 10) as u8]);
        }
    }

    fn push_hex(&mut self, number: usize) {
        let digits = (usize::BITS / 4 - number.leading_zeros() / 4).max(1);
        for digit in (0..digits).rev() {
            self.push(&[b"0123456789abcdef"[number >> (digit * 4) & 15]]);
        }
    }
}

/// The ends of the stacks of all threads in the table.
#[cfg(test)]
pub(crate) fn stack_ends() -> Vec<usize> {
    let used = TABLE.iter().filter(|entry| entry.thread.load(Ordering::Acquire) != 0);
    // A thread is in the table before the end of its stack is.
    used.map(|entry| entry.stack_end.load(Ordering::Relaxed)).filter(|end| *end != 0).collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;
    use crate::testing;

    /// Environment variable that selects what the child process does.
    const CASE: &str = "ELINVAR_TEST_CRASH";

    #[test]
    fn numbers_are_written_as_they_are() {
        let mut line = Line { bytes: [0; 1024], len: 0 };
        for number in [0, 9, 0x10, 0xdead_beef, usize::MAX] {
            line.push_hex(number);
            line.push(b" ");
            line.push_decimal(number);
            line.push(b" ");
        }
        let most = usize::MAX;
        let expected = format!("0 0 9 9 10 16 deadbeef 3735928559 {most:x} {most} ");
        assert_eq!(&line.bytes[..line.len], expected.as_bytes());
        line.push(&[b'x'; 5000]);
        assert_eq!(line.len, 1024);
    }

    /// Not a test by itself: the body of the child processes of the other tests.
    #[test]
    #[ignore = "crashes"]
    fn child() {
        let Ok(case) = std::env::var(CASE) else { return };
        testing::crash(&case);
    }

    fn run(case: &str, more: &[(&str, &str)]) -> (Output, String) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "crash::tests::child", "--ignored", "--nocapture", "--test-threads=1"]);
        // The working directory, in which the system may write a core dump.
        let folder = tempfile::tempdir().unwrap();
        let output =
            command.current_dir(&folder).env(CASE, case).envs(more.iter().copied()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output, text)
    }

    fn signal_of(output: &Output) -> Option<c_int> {
        std::os::unix::process::ExitStatusExt::signal(&output.status)
    }

    #[test]
    fn a_wild_store_is_told_of_with_the_kernels_name() {
        let (output, text) = run("wild", &[]);
        assert_eq!(signal_of(&output), Some(libc::SIGSEGV), "{text}");
        for part in [
            "kernel `wild` has crashed",
            "`--checked`, `Library::checked_kernel`",
            "`--isolated`, `Device::isolated()`",
            "SIGSEGV at address 0x1230",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert!(!text.contains("overflowed"), "{text}");
    }

    #[test]
    fn without_the_handler_it_is_as_before() {
        let (output, text) = run("wild", &[(SWITCH, "off")]);
        assert_eq!(signal_of(&output), Some(libc::SIGSEGV), "{text}");
        assert!(!text.contains("has crashed"), "{text}");
    }

    #[test]
    fn a_trap_is_told_of() {
        let (output, text) = run("trap", &[]);
        let expected = [libc::SIGILL, libc::SIGTRAP];
        assert!(signal_of(&output).is_some_and(|signal| expected.contains(&signal)), "{output:?}");
        assert!(text.contains("kernel `trap` has crashed") && text.contains("SIG"), "{text}");
    }

    #[test]
    fn a_breakpoint_ends_the_process() {
        let (output, text) = run("breakpoint", &[]);
        assert_eq!(signal_of(&output), Some(libc::SIGTRAP), "{output:?}");
        assert!(text.contains("kernel `breakpoint` has crashed") && text.contains("SIGTRAP"), "{text}");
    }

    #[test]
    fn a_page_that_a_file_no_longer_has_is_told_of() {
        let (output, text) = run("bus", &[]);
        assert_eq!(signal_of(&output), Some(libc::SIGBUS), "{text}");
        assert!(text.contains("kernel `bus` has crashed") && text.contains("SIGBUS at address 0x"), "{text}");
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_division_that_traps_is_told_of() {
        let (output, text) = run("divide", &[]);
        assert_eq!(signal_of(&output), Some(libc::SIGFPE), "{text}");
        assert!(text.contains("kernel `divide` has crashed") && text.contains("  SIGFPE\n"), "{text}");
    }

    /// Whether the system writes a core dump depends on its settings: the result must be the same with and without the handler.
    #[test]
    fn a_core_is_dumped_as_without_the_handler() {
        let dumped = |more: &[(&str, &str)]| {
            let (output, text) = run("wild", &[&[("ELINVAR_TEST_CORE", "1")], more].concat());
            assert_eq!(signal_of(&output), Some(libc::SIGSEGV), "{text}");
            std::os::unix::process::ExitStatusExt::core_dumped(&output.status)
        };
        assert_eq!(dumped(&[]), dumped(&[(SWITCH, "off")]));
    }

    #[test]
    fn a_stack_overflow_is_told_of_and_handed_to_rusts_own_handler() {
        let (output, text) = run("deep", &[]);
        assert!(
            text.contains("kernel `deep` has crashed") && text.contains("have overflowed the stack"),
            "{text}"
        );
        assert!(text.contains("has overflowed its stack"), "Rust's own message: {text}");
        assert_eq!(signal_of(&output), Some(libc::SIGABRT), "{text}");
    }

    /// As in compiled kernels with large frames: without stack probes, the store would skip the pages below the stack.
    #[test]
    fn a_frame_larger_than_the_stack_is_an_overflow() {
        let (output, text) = run("frame", &[]);
        let expected =
            ["kernel `frame` has crashed", "have overflowed the stack", "has overflowed its stack"];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        assert_eq!(signal_of(&output), Some(libc::SIGABRT), "{text}");
    }

    #[test]
    fn a_wild_load_beside_the_stack_is_no_overflow() {
        let (output, text) = run("guard", &[]);
        assert_eq!(signal_of(&output), Some(libc::SIGSEGV), "{text}");
        assert!(text.contains("kernel `guard` has crashed") && !text.contains("overflowed"), "{text}");
    }

    #[test]
    fn another_handler_has_its_turn() {
        let (output, text) = run("other", &[]);
        let ours = text.find("kernel `wild` has crashed");
        assert!(ours.is_some() && ours < text.find("the other handler"), "{text}");
        assert_eq!(output.status.code(), Some(77), "{text}");
        // Outside of kernels, the handler must have no effect.
        let (output, text) = run("host", &[]);
        assert!(text.contains("the other handler") && !text.contains("has crashed"), "{text}");
        assert_eq!(output.status.code(), Some(77), "{text}");
    }
}
