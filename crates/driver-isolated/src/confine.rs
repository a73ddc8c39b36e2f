//! Confinement of a worker process.
//!
//! A kernel that takes over the process can access only what the process has: the pages of the device's buffers, the rings, the end of a
//! socket that the host does not read from, and the standard error pipe. The filter (`seccomp(2)`) permits memory, futexes, time and exit;
//! every other system call fails with `EPERM`, in all threads and permanently. Programs cannot gain privileges (`no_new_privs`).

use std::collections::BTreeMap;

use elinvar_driver::{Error, Result};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

/// Allowed with any arguments. None takes a path, a network address, or another process.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_madvise,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_robust_list,
    libc::SYS_sigaltstack,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Signals, to this process only.
const TO_ITSELF: [libc::c_long; 2] = [libc::SYS_kill, libc::SYS_tgkill];

/// Confines this process, with all its threads.
///
/// # Errors
/// `Environment` if the system does not support seccomp filters.
pub(crate) fn confine() -> Result<()> {
    apply(filter())
}

fn apply(filter: Result<BpfProgram, seccompiler::BackendError>) -> Result<()> {
    let cannot = |error: &dyn std::fmt::Display| {
        Error::Environment(format!(
            "cannot confine the worker process: {error}; `IsolatedOptions::confined` controls whether confinement is required"
        ))
    };
    let filter = filter.map_err(|error| cannot(&error))?;
    seccompiler::apply_filter_all_threads(&filter).map_err(|error| cannot(&error))
}

/// Denied in the worker of a GPU, whose driver opens files, uses device nodes and starts threads at any time: executing programs, networking,
/// access to other processes, and changes of privileges and mounts.
const REFUSED_FOR_GPU: &[libc::c_long] = &[
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_bpf,
    libc::SYS_connect,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_init_module,
    libc::SYS_kexec_load,
    libc::SYS_listen,
    libc::SYS_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_send_signal,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setns,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_tkill,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// As [`confine`], as strictly as the driver of a GPU permits.
pub(crate) fn confine_for_gpu() -> Result<()> {
    apply(filter_for_gpu())
}

fn filter_for_gpu() -> Result<BpfProgram, seccompiler::BackendError> {
    let own = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED_FOR_GPU.iter().map(|call| (*call, Vec::new())).collect();
    for call in TO_ITSELF {
        let other = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, own)?;
        rules.insert(call, vec![SeccompRule::new(vec![other])?]);
    }
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, refused, arch)?.try_into()
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let own = u64::from(std::process::id());
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    for call in TO_ITSELF {
        let this = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, own)?;
        rules.insert(call, vec![SeccompRule::new(vec![this])?]);
    }
    // Threads that have not run yet have the name of their creator.
    let name = libc::PR_SET_NAME.cast_unsigned().into();
    let name = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, name)?;
    rules.insert(libc::SYS_prctl, vec![SeccompRule::new(vec![name])?]);
    let refused = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()
}

/// Closes all inherited files except the standard streams.
pub(crate) fn close_others() {
    #[allow(unsafe_code)] // a system call
    // SAFETY: this process has just started and has opened none of these files; no other code has their descriptors.
    unsafe {
        libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpStream, UdpSocket};
    use std::process::Command;

    /// System calls that must fail in a confined process.
    #[test]
    #[ignore = "run by another test, in a process of its own"]
    fn confined() {
        let parent = rustix::process::getppid().unwrap();
        super::confine().unwrap();
        let refused = |what: &str, result: std::io::Result<()>| {
            let error = result.expect_err(what);
            assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{what}: {error}");
        };
        refused("a file", std::fs::File::open("/etc/passwd").map(drop));
        refused("a new file", std::fs::write("/tmp/elinvar-confined", "x"));
        refused("a folder", std::fs::read_dir("/").map(drop));
        refused("a connection", TcpStream::connect("127.0.0.1:1").map(drop));
        refused("a socket", UdpSocket::bind("127.0.0.1:0").map(drop));
        refused("a program", Command::new("/bin/true").status().map(drop));
        refused("a thread", std::thread::Builder::new().spawn(|| {}).map(drop));
        let signal = rustix::process::kill_process(parent, rustix::process::Signal::CONT);
        assert_eq!(signal, Err(rustix::io::Errno::PERM));
        // Memory, time and arithmetic still work.
        let sum: u64 = (0..1 << 20).collect::<Vec<u64>>().iter().sum();
        assert_eq!(sum, (1 << 19) * ((1 << 20) - 1));
        eprintln!("all was refused");
    }

    #[test]
    fn a_confined_process_reaches_no_files_networks_programs_or_processes() {
        let this = std::env::current_exe().unwrap();
        let mut command = Command::new(this);
        // Run on the main thread, because the test has no other.
        command.args(["--exact", "confine::tests::confined", "--ignored", "--nocapture", "--test-threads=1"]);
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("all was refused"), "{text}{}", String::from_utf8_lossy(&output.stdout));
    }
}
