//! Worker processes: locating the program, starting it, and its entry point.
//!
//! The socket between host and worker is the worker's standard input, so that the host needs no custom fork. It carries the first message with
//! the shared files, then the files of device memory. When it is closed, the other side is gone.

use std::ffi::OsStr;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use elinvar_driver::{Error, Result};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use crate::wire::{Hello, Inner};
use crate::worker;

/// Set for a program that is to serve as a worker. Its value is the version of the host.
const SERVE: &str = "ELINVAR_SERVE";
/// Path of the worker program.
const WORKER: &str = "ELINVAR_WORKER";
/// Environment variables that a worker inherits: library paths and diagnostics.
const KEPT: [&str; 4] = ["LD_LIBRARY_PATH", "PATH", "RUST_BACKTRACE", "TMPDIR"];
/// In addition for NVIDIA's driver: device selection, driver options, and the location of its code cache.
const KEPT_FOR_CUDA: [&str; 2] = ["HOME", "XDG_CACHE_HOME"];
const CUDA: [&str; 2] = ["CUDA_", "NVIDIA_"];
/// Maximum time for a worker to make room in the socket.
const SEND: Duration = Duration::from_secs(20);
/// Maximum size of the first message in bytes.
const MOST_HELLO: usize = 4096;

/// Whether this program serves when it is started as a worker.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Serves as a worker process and does not return, if this program was started as one. Call it at the start of `main`, before anything
/// else; the program can then be its own worker.
pub fn serve_if_asked() {
    SERVES.store(true, Ordering::Relaxed);
    if std::env::var_os(SERVE).is_none() {
        return;
    }
    // The process ends here in any case.
    std::process::exit(worker::serve(std::io::stdin().as_fd()));
}

/// Path of the worker program.
fn program(chosen: Option<&Path>) -> Result<PathBuf> {
    if let Some(chosen) = chosen {
        return Ok(chosen.to_owned());
    }
    if let Some(set) = std::env::var_os(WORKER).filter(|set| !set.is_empty()) {
        return Ok(set.into());
    }
    let this = std::env::current_exe();
    if SERVES.load(Ordering::Relaxed) && this.is_ok() {
        // The running program, even if its file was replaced.
        return Ok("/proc/self/exe".into());
    }
    let beside = this.ok().and_then(|this| Some(this.parent()?.to_owned()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = beside.into_iter().chain(std::env::split_paths(&path)).collect();
    let programs = |folder: &PathBuf| ["elinvar-worker", "elinvar"].map(|name| folder.join(name));
    folders.iter().flat_map(programs).find(|file| file.is_file()).ok_or_else(|| {
        Error::Environment(format!(
            "no worker program found: set ${WORKER}, call `serve_if_asked` at the start of `main`, or put `elinvar-worker` or \
             `elinvar` beside this program or in $PATH"
        ))
    })
}

/// Whether a worker inherits an environment variable.
fn is_kept(name: &OsStr, is_gpu: bool) -> bool {
    let Some(name) = name.to_str() else { return false };
    let for_cuda = || KEPT_FOR_CUDA.contains(&name) || CUDA.iter().any(|start| name.starts_with(start));
    KEPT.contains(&name) || is_gpu && for_cuda()
}

/// A process that was just started.
pub(crate) struct Started {
    pub(crate) program: PathBuf,
    pub(crate) id: u32,
    /// Becomes readable when the process has ended.
    pub(crate) process: OwnedFd,
    /// Closed when the host is gone.
    pub(crate) socket: OwnedFd,
    pub(crate) stderr: ChildStderr,
}

/// Starts a worker and sends it its files. The worker ends with the calling thread.
pub(crate) fn start(chosen: Option<&Path>, hello: &Hello, files: &[BorrowedFd<'_>]) -> Result<Started> {
    if std::env::var_os(SERVE).is_some() {
        return Err(Error::Environment(format!(
            "this process is a worker (${SERVE} is set) and cannot use an isolated device: call `serve_if_asked` \
             at the start of `main`"
        )));
    }
    let program = program(chosen)?;
    let cannot = |what: &dyn std::fmt::Display| {
        Error::Environment(format!("cannot start `{}`: {what}", program.display()))
    };
    let flags = SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (ours, theirs) = pair.map_err(|error| cannot(&error))?;
    let mut command = Command::new(&program);
    command.env_clear().env(SERVE, env!("CARGO_PKG_VERSION"));
    let is_gpu = matches!(hello.inner, Inner::Cuda { .. });
    command.envs(std::env::vars_os().filter(|(name, _)| is_kept(name, is_gpu)));
    command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| cannot(&error))?;
    // Otherwise the host would keep the worker's end open.
    drop(command);
    let ended = |child: &mut std::process::Child, what: &dyn std::fmt::Display| {
        let _ended = child.kill();
        let _reaped = child.wait();
        cannot(what)
    };
    let pid = rustix::process::Pid::from_child(&child);
    let process = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
    let process = match process {
        Ok(process) => process,
        Err(error) => return Err(ended(&mut child, &error)),
    };
    if let Err(error) = greet(ours.as_fd(), hello, files) {
        return Err(ended(&mut child, &error));
    }
    match child.stderr.take() {
        Some(stderr) => Ok(Started { program, id: child.id(), process, socket: ours, stderr }),
        None => Err(ended(&mut child, &"it has no standard error")),
    }
}

fn greet(socket: BorrowedFd<'_>, hello: &Hello, files: &[BorrowedFd<'_>]) -> Result<()> {
    let cannot = |error: &dyn std::fmt::Display| Error::Environment(format!("the first message: {error}"));
    let bytes = postcard::to_stdvec(hello).map_err(|error| cannot(&error))?;
    // Fits in the socket's buffer, so the worker need not read yet.
    let timeout = rustix::net::sockopt::set_socket_timeout;
    timeout(socket, rustix::net::sockopt::Timeout::Send, Some(SEND)).map_err(|error| cannot(&error))?;
    match send(socket, &bytes, files) {
        // It has already ended; the monitor reports how.
        Ok(()) | Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(()),
        Err(error) => Err(cannot(&error)),
    }
}

/// Sends a file, which the worker identifies by a number.
pub(crate) fn send_file(
    socket: BorrowedFd<'_>,
    number: u64,
    file: BorrowedFd<'_>,
) -> Result<(), rustix::io::Errno> {
    send(socket, &number.to_le_bytes(), &[file])
}

/// Receives the next file and its number; `None` when the other end is closed.
pub(crate) fn receive_file(socket: BorrowedFd<'_>) -> Option<(u64, OwnedFd)> {
    let mut bytes = [0; 8];
    let (len, files) = receive(socket, &mut bytes).ok()?;
    (len == bytes.len()).then_some(())?;
    Some((u64::from_le_bytes(bytes), files.into_iter().next()?))
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], files: &[BorrowedFd<'_>]) -> Result<(), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(files));
    let flags = SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags).map(drop)
}

fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags)?;
    let files = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => Some(files),
        _ => None,
    });
    Ok((got.bytes, files.flatten().collect()))
}

/// Receives the first message and its files.
pub(crate) fn greeted(socket: BorrowedFd<'_>) -> Result<(Hello, Vec<OwnedFd>)> {
    let cannot = |error: &dyn std::fmt::Display| Error::Environment(format!("the first message: {error}"));
    let mut bytes = vec![0; MOST_HELLO];
    let (len, files) = receive(socket, &mut bytes).map_err(|error| cannot(&error))?;
    let hello = postcard::from_bytes(&bytes[..len]).map_err(|error| cannot(&error))?;
    Ok((hello, files))
}
