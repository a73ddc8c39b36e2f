//! The worker process: takes messages, gives their work to the inner device, and tells what has become of it.
//!
//! On the processor two threads take turns at reading messages and doing them in order, one at a time ([`Desk`]). The one that reads runs a
//! launch itself if that is all there is to do and the other is there to read meanwhile; else, and whenever it is long, the device's threads
//! do. For a GPU one thread reads and submits. Another takes files from the host, and waits for its end, which is this process's too.

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

/// The address at which every worker has the file of memory: where no program, library or stack lies.
pub(crate) const BASE: u64 = 0x2000_0000_0000;
/// So many launches are left to the device's threads after one that ran here while the next came: that wakes a thread each time, as often as
/// launches follow one another faster than they run.
const ELSEWHERE: u32 = 64;
/// Threads that take turns at reading.
const READERS: u32 = 2;

/// The way to the host, for the device's threads.
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

/// Serves until the host ends it. Returns an exit status if it cannot.
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
            let clock_ns = device.clock_ns();
            answers.send(&FromWorker::Ready { clock_ns, system_ns: system_ns() });
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
    // Not even if it cannot read: then nobody sends.
    left.recv().unwrap_or(2)
}

/// Where messages are read and done.
struct Desk {
    reader: Reader,
    inbox: Mutex<Inbox>,
    /// Threads that wait to read in place of the one that does.
    waiting: AtomicU32,
    /// Threads that have come; the first reads.
    readers: AtomicU32,
    /// Launches that the device's threads run before one is tried here again.
    elsewhere: AtomicU32,
    /// How long is waited awake for more to do.
    awake: Duration,
}

struct Inbox {
    /// What was read and is no whole message yet.
    bytes: Vec<u8>,
    table: Table,
}

impl Desk {
    /// Serves in turns with the others. Returns an exit status if the host has broken the rules.
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

    /// Reads and does messages until there is something that this thread can run, and runs that. Whether it reads on; else another does.
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
                    // What was to be run before is not alone.
                    Ok(message) => to_run = table.act(message, guest.as_deref()),
                    Err(error) => {
                        eprintln!("invalid message: {error}");
                        return Err(2);
                    }
                }
                at += len;
            }
            bytes.drain(..at);
            // A thread that waits takes this one's place as soon as there is something to read.
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

/// Everything that is done once. The threads that serve begin when there is a desk.
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
        // What is found out once, from files, is known from here on.
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

/// Ends this process with the host, and takes its files till then.
fn follow(socket: BorrowedFd<'_>, hello: &Hello, files: &Arc<Files>) -> Result<()> {
    let failed = |error: &dyn std::fmt::Display| Error::Environment(format!("a worker process: {error}"));
    let kill = rustix::process::Signal::KILL;
    rustix::process::set_parent_process_death_signal(Some(kill)).map_err(|error| failed(&error))?;
    let parent = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().cast_unsigned());
    // In a namespace of its own the host may have another number here, and none.
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

/// Ends this process, whatever its threads do.
fn end() -> ! {
    let _sent = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort()
}
