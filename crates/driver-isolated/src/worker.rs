//! The worker process: receives messages, passes their work to the inner device, and reports the results.
//!
//! For a CPU, two threads take turns at receiving messages and executing them in order, one at a time ([`Desk`]). The receiving thread runs a
//! launch itself if there is no other work and the other thread can receive meanwhile; otherwise, and for long launches, the
//! device's threads do. For a GPU, one thread receives and submits. Another thread receives files from the host, and ends this process when
//! the host ends.

mod files;
mod orders;
mod table;

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use elinvar_cache::Cache;
use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{Device, Driver as _, Error, Result};
use elinvar_driver_cpu::{CpuDriver, Guest};
use elinvar_driver_cuda::CudaDriver;

use crate::confine;
use crate::device::system_ns;
use crate::files::Mapping;
use crate::inner;
use crate::pipe::{self, Pipe, Reader, Writer};
use crate::process;
use crate::wire::{self, FromWorker, Hello, Inner, ToWorker};
use crate::worker::files::Files;
use crate::worker::table::Table;

/// Address at which every worker maps the memory file, away from programs, libraries and stacks.
pub(crate) const BASE: u64 = 0x2000_0000_0000;
/// Number of launches that are left to the device's threads after the next message arrived while a launch ran here. Each such case wakes a
/// thread, which happens when launches arrive faster than they run.
const ELSEWHERE: u32 = 64;
/// Number of threads that take turns at receiving.
const READERS: u32 = 2;

/// Connection to the host, for the device's threads.
pub(crate) struct Answers(Mutex<Writer>);

impl Answers {
    pub(crate) fn send(&self, message: &FromWorker) {
        let mut bytes = Vec::new();
        let written = wire::write(message, &mut bytes);
        if written.is_err() || self.0.lock().write_all(&bytes).is_err() {
            end();
        }
    }
}

/// Serves until the host ends it. Returns an exit status if it fails.
pub(crate) fn serve(socket: BorrowedFd<'_>) -> i32 {
    confine::close_others();
    let (hello, files) = match process::greeted(socket) {
        Ok(first) => first,
        Err(error) => {
            eprintln!("{error}");
            return 2;
        }
    };
    let Some((reader, answers, memory)) = ends(files) else {
        eprintln!("the files that came with the first message are not those of this version");
        return 2;
    };
    let answers = Arc::new(answers);
    let desk = Arc::new(OnceLock::new());
    let (leave, left) = channel();
    let files = Arc::new(Files::default());
    let ready = prepare(socket, &hello, &files, &desk, &leave);
    let table = match ready {
        Ok(device) => {
            let before = system_ns();
            let clock_ns = device.clock_ns();
            let apart = system_ns().saturating_sub(before);
            let error_ns = apart.div_ceil(2).saturating_add(device.timing_error_ns());
            answers.send(&FromWorker::Ready { clock_ns, system_ns: before + apart / 2, error_ns });
            Table::new(device, memory, hello.arena, files, answers)
        }
        Err(error) => {
            answers.send(&FromWorker::Refused(error));
            return 2;
        }
    };
    let inbox = Mutex::new(Inbox { bytes: Vec::new(), table });
    let [waiting, readers, elsewhere] = [const { AtomicU32::new(0) }; 3];
    let awake = pipe::awake(hello.inner.awake());
    let _first = desk.set(Desk { reader, inbox, waiting, readers, elsewhere, awake });
    // Received when a serving thread fails.
    left.recv().unwrap_or(2)
}

/// State of the threads that receive and execute messages.
struct Desk {
    reader: Reader,
    inbox: Mutex<Inbox>,
    /// Number of threads that wait to receive in place of the current one.
    waiting: AtomicU32,
    /// Number of threads that have started; the first receives.
    readers: AtomicU32,
    /// Number of launches left to the device's threads before one runs here again.
    elsewhere: AtomicU32,
    /// How long to spin for the next message.
    awake: Duration,
}

struct Inbox {
    /// Received bytes of an incomplete message.
    bytes: Vec<u8>,
    table: Table,
}

impl Desk {
    /// Serves in turn with the other threads. Returns an exit status if the host has violated the protocol.
    fn serve(&self, mut guest: Option<&mut Guest>) -> i32 {
        let mut reads = self.readers.fetch_add(1, Ordering::SeqCst) == 0;
        loop {
            if !reads {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                self.reader.wait_as_deputy();
                self.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            reads = match self.read(guest.as_deref_mut()) {
                Ok(reads) => reads,
                Err(status) => return status,
            };
        }
    }

    /// Receives and executes messages until this thread can run a launch, and runs it. Returns whether it continues to receive; otherwise
    /// another thread does.
    fn read(&self, mut guest: Option<&mut Guest>) -> Result<bool, i32> {
        let mut inbox = self.inbox.lock();
        loop {
            self.reader.wait(self.awake, || false);
            let Inbox { bytes, table } = &mut *inbox;
            if self.reader.read(bytes).is_err() {
                return Err(2);
            }
            let (mut at, mut to_run) = (0, None);
            while let Ok(Some((fields, len))) = wire::first(&bytes[at..], usize::MAX) {
                match postcard::from_bytes::<ToWorker<'_>>(fields) {
                    // Earlier work is pending, so the launch is not alone.
                    Ok(message) => to_run = table.act(message, guest.as_deref()),
                    Err(error) => {
                        eprintln!("invalid message: {error}");
                        return Err(2);
                    }
                }
                at += len;
            }
            bytes.drain(..at);
            // A waiting thread takes over as soon as a message arrives.
            if let (Some(work), Some(guest)) = (to_run, &mut guest)
                && bytes.is_empty()
                && self.is_tried_here()
                && self.waiting.load(Ordering::SeqCst) > 0
                && self.reader.leave()
            {
                drop(inbox);
                guest.run(work);
                let reads = self.reader.come_back();
                if !reads {
                    self.elsewhere.store(ELSEWHERE, Ordering::Relaxed);
                }
                return Ok(reads);
            }
        }
    }

    fn is_tried_here(&self) -> bool {
        let less = |left: u32| left.checked_sub(1);
        self.elsewhere.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_err()
    }
}

fn ends(files: Vec<OwnedFd>) -> Option<(Reader, Answers, OwnedFd)> {
    let [rings, memory] = <[OwnedFd; 2]>::try_from(files).ok()?;
    let [from_host, to_host] = Pipe::both(Mapping::whole(&rings).ok()?)?;
    Some((Reader::new(from_host), Answers(Mutex::new(Writer::new(to_host))), memory))
}

/// One-time setup. The serving threads start when the desk exists.
fn prepare(
    socket: BorrowedFd<'_>,
    hello: &Hello,
    files: &Arc<Files>,
    desk: &Arc<OnceLock<Desk>>,
    leave: &Sender<i32>,
) -> Result<Arc<dyn Device>> {
    let (ours, theirs) = (env!("CARGO_PKG_VERSION"), &hello.version);
    if ours != theirs {
        return Err(Error::Environment(format!(
            "the worker program has version {ours}, and the program that started it {theirs}"
        )));
    }
    follow(socket, hello, files)?;
    table::reserve(hello.arena)?;
    let device = match hello.inner {
        Inner::Cpu { threads } => processor(threads, desk, leave)?,
        Inner::Cuda { index } => gpu(index, desk, leave)?,
    };
    if hello.confined {
        // Initialize now what reads files, which is forbidden once the process is confined.
        let _now = device.clock_ns();
        match hello.inner {
            Inner::Cpu { .. } => {
                elinvar_driver_cpu::load_without_files()?;
                confine::confine()?;
            }
            Inner::Cuda { .. } => confine::confine_for_gpu()?,
        }
    }
    Ok(device)
}

fn processor(threads: usize, desk: &Arc<OnceLock<Desk>>, leave: &Sender<i32>) -> Result<Arc<dyn Device>> {
    let driver = CpuDriver::with_cache(threads, &Cache::off());
    let device = driver.devices()?.into_iter().next();
    let device = device.ok_or_else(|| Error::unsupported("the device has no CPU"))?;
    for number in 0..READERS {
        let (desk, leave) = (desk.clone(), leave.clone());
        let serve = move |mut guest: Guest| {
            let _gone = leave.send(desk.wait().serve(Some(&mut guest)));
        };
        driver.spawn_guest(format!("elinvar-serves-{number}"), serve)?;
    }
    Ok(device)
}

fn gpu(index: usize, desk: &Arc<OnceLock<Desk>>, leave: &Sender<i32>) -> Result<Arc<dyn Device>> {
    let device = CudaDriver::with_cache(&Cache::off()).device(index)?;
    elinvar_driver_cuda::reserve(&*device, inner::ADDRESSES, inner::ADDRESSES_LEN)?;
    let (desk, leave) = (desk.clone(), leave.clone());
    let thread = std::thread::Builder::new().name("elinvar-serves".into());
    let serve = move || {
        let _gone = leave.send(desk.wait().serve(None));
    };
    let no_thread =
        |error| Error::Environment(format!("cannot start a thread of the worker process: {error}"));
    thread.spawn(serve).map_err(no_thread)?;
    Ok(device)
}

/// Receives files from the host, and ends this process when the host ends.
fn follow(socket: BorrowedFd<'_>, hello: &Hello, files: &Arc<Files>) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Environment(format!("a worker process: {error}"));
    let kill = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(kill)).map_err(|error| failed(&error))?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    // In another PID namespace, the host may have another PID or none.
    if parent.is_some_and(|parent| parent == 1 && hello.host != 1) {
        end();
    }
    let core = rustix::process::Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(rustix::process::Resource::Core, core).map_err(|error| failed(&error))?;
    if let Some(bytes) = hello.private_memory {
        let limit = rustix::process::Rlimit { current: Some(bytes), maximum: Some(bytes) };
        rustix::process::setrlimit(rustix::process::Resource::Data, limit).map_err(|error| failed(&error))?;
    }
    let socket = socket.as_fd().try_clone_to_owned().map_err(|error| failed(&error))?;
    let files = files.clone();
    let watch = move || {
        while let Some((number, file)) = process::receive_file(socket.as_fd()) {
            files.put(number, file);
        }
        end();
    };
    let thread = std::thread::Builder::new().name("elinvar-host".into());
    thread.spawn(watch).map(drop).map_err(|error| failed(&error))
}

/// Ends this process immediately, whatever its threads do.
fn end() -> ! {
    let _sent = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
