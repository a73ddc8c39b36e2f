//! The monitor thread: starts a worker process and waits for its end.

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ChildStderr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{WaitId, WaitIdOptions, WaitIdStatus};

use crate::link::{Fate, Grace, Life, Link};
use crate::process::{self, Started};
use crate::wire::Hello;

/// Maximum number of bytes of a worker's standard error that are kept.
const KEPT: usize = 2048;

pub(super) struct Monitor {
    pub(super) link: Arc<Link>,
    pub(super) program: Option<PathBuf>,
}

impl Monitor {
    /// Runs until the process has ended.
    pub(super) fn run(self, hello: &Hello, rings: &OwnedFd, memory: &OwnedFd) {
        let started = process::start(self.program.as_deref(), hello, &[rings.as_fd(), memory.as_fd()]);
        let link = self.link;
        match started {
            Ok(started) => {
                let fate = watch(&link, started);
                let _first = link.fate.set(fate);
            }
            Err(error) => link.set_life(Life::Failed(error)),
        }
        link.ended.store(true, Ordering::Release);
        let _life = link.life.lock();
        link.changed.notify_all();
        link.from.wake_reader();
    }
}

/// Waits for the end of a process. Returns how it ended.
fn watch(link: &Link, started: Started) -> Fate {
    let Started { program, id, process, socket, mut stderr } = started;
    let _first = link.id.set(id);
    // The worker's own end is closed at the latest when the link is gone.
    let _first = socket.try_clone().map(|socket| link.socket.set(socket));
    let _nonblocking = rustix::fs::fcntl_setfl(&stderr, rustix::fs::OFlags::NONBLOCK);
    let process = link.process.get_or_init(|| process);
    if let Some(blame) = link.blame.get() {
        // Ended before it was known here.
        link.end(blame.clone());
    }
    let (mut said, mut is_open) = (Vec::new(), true);
    loop {
        let timeout = link.next_grace().and_then(|timeout| timeout.try_into().ok());
        let mut files = vec![
            PollFd::new(process, PollFlags::IN),
            PollFd::new(&link.poke, PollFlags::IN),
            PollFd::new(&stderr, PollFlags::IN),
        ];
        files.truncate(if is_open { 3 } else { 2 });
        let _ready = rustix::event::poll(&mut files, timeout.as_ref());
        let ready = |at: usize| files.get(at).is_some_and(|file| !file.revents().is_empty());
        let (has_ended, poked, speaks) = (ready(0), ready(1), ready(2));
        drop(files);
        if poked {
            let _count = rustix::io::read(&link.poke, &mut [0_u8; 8]);
        }
        if speaks {
            is_open = listen(&mut stderr, &mut said);
        }
        link.end_late();
        if has_ended {
            break;
        }
    }
    listen(&mut stderr, &mut said);
    drop(socket);
    let status = rustix::process::waitid(WaitId::PidFd(process.as_fd()), WaitIdOptions::EXITED);
    let status = status.ok().flatten().map_or_else(|| "has ended".into(), |status| ended(&status));
    let said = String::from_utf8_lossy(&said);
    let said: String =
        said.trim().chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect();
    Fate { program: program.display().to_string(), status, said }
}

/// Reads available output and keeps its end. Returns whether more may follow.
fn listen(stderr: &mut ChildStderr, said: &mut Vec<u8>) -> bool {
    let mut bytes = [0; 4096];
    loop {
        match std::io::Read::read(stderr, &mut bytes) {
            Ok(0) => return false,
            Ok(len) => {
                said.extend(&bytes[..len]);
                let over = said.len().saturating_sub(KEPT);
                said.drain(..over);
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
    }
}

/// Text that describes how a process ended.
fn ended(status: &WaitIdStatus) -> String {
    if let Some(signal) = status.terminating_signal() {
        return format!("was ended by {}", signal_name(signal));
    }
    match status.exit_status() {
        Some(code) => format!("has ended with exit status {code}"),
        None => "has ended".into(),
    }
}

fn signal_name(signal: i32) -> String {
    let names = [
        (4, "SIGILL (illegal instruction)"),
        (5, "SIGTRAP (trap)"),
        (6, "SIGABRT (aborted)"),
        (7, "SIGBUS (access to nonexistent memory)"),
        (8, "SIGFPE (arithmetic)"),
        (9, "SIGKILL (killed by another process, or out of memory)"),
        (11, "SIGSEGV (invalid memory reference)"),
        (15, "SIGTERM (terminated)"),
        (24, "SIGXCPU (CPU time limit)"),
        (31, "SIGSYS (forbidden system call)"),
    ];
    let known = names.iter().find(|(number, _)| *number == signal);
    known.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).into())
}

impl Link {
    /// Time until the first deadline.
    fn next_grace(&self) -> Option<Duration> {
        let first = self.graces.lock().iter().map(|grace| grace.at).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    /// Ends the worker if a deadline has passed.
    fn end_late(&self) {
        let now = Instant::now();
        let due: Vec<Grace> = self.graces.lock().extract_if(.., |grace| grace.at <= now).collect();
        for Grace { queue, submission, blame, .. } in due {
            let first = queue.upgrade().and_then(|queue| queue.first_in_flight());
            if first.is_some_and(|(first, _)| first == submission) {
                self.end(blame);
            }
        }
    }
}
