//! A worker process from the host's side: its pipes and its lifetime.
//!
//! A worker has two threads. The *monitor* starts the process (which ends at the latest with that thread), reads its standard error, ends it
//! when a deadline passes, and waits for its end. The *reader* receives the worker's messages and ends submissions; when the process has ended
//! and all its messages are read, it notifies all waiting threads. A thread that spins for the worker's only batch receives messages in
//! place of the reader, which keeps sleeping ([`Link::spin`]).
//!
//! Lock order: `inbox`, the device's slot, `out`, a queue's lock, `pieces`.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use elinvar_driver::sync::{Condvar, Mutex, OnceLock};
use elinvar_driver::{Command, Dim3, Error, Result, Submission};
use rustix::event::{PollFd, PollFlags};

use crate::device::{Core, Task};
use crate::files::{self, Mapping};
use crate::library::Function;
use crate::link::monitor::Monitor;
use crate::pipe::{self, Pipe, Reader, Writer};
use crate::process;
use crate::queue::{self, Submissions};
use crate::wire::{self, FromWorker, Hello, MOST_FROM_WORKER, ToWorker};

mod monitor;
mod orders;

pub(crate) use orders::{Span, Transfer};

/// How long to wait for room in a full pipe before checking again.
const FULL: Duration = Duration::from_millis(1);
/// Maximum time for a worker to become ready.
const START: Duration = Duration::from_secs(60);
/// Maximum time for a reply.
const ANSWER: Duration = Duration::from_secs(20);

/// One worker process.
pub(crate) struct Link {
    /// Number of this worker of the device, from 1.
    pub(crate) number: u64,
    from: Pipe,
    /// Read by the thread that holds `inbox`.
    reader: Reader,
    /// Received bytes of an incomplete message.
    inbox: Mutex<Vec<u8>>,
    out: Mutex<Out>,
    /// Batches that the worker has not ended.
    pieces: Mutex<HashMap<u64, Arc<Submissions>>>,
    /// Threads that wait for a reply; `None` when there will be no more replies.
    answers: Mutex<Option<HashMap<u64, SyncSender<FromWorker>>>>,
    life: Mutex<Life>,
    changed: Condvar,
    /// The process has ended; there may still be messages to read.
    ended: AtomicBool,
    /// How it has ended.
    fate: OnceLock<Fate>,
    /// Why the host has ended it, if it has.
    blame: OnceLock<Error>,
    process: OnceLock<OwnedFd>,
    /// Socket for sending files.
    socket: OnceLock<OwnedFd>,
    id: OnceLock<u32>,
    graces: Mutex<Vec<Grace>>,
    poke: OwnedFd,
    tasks: Sender<Task>,
    /// Offset from the worker's clock to the host's.
    clock: AtomicI64,
    /// How long the reader spins for work in flight before it sleeps.
    awake: Duration,
}

thread_local! {
    /// The link whose messages this thread is processing; 0 for none.
    static ACTS: Cell<usize> = const { Cell::new(0) };
}

#[derive(Clone, Debug)]
enum Life {
    Starting,
    Ready,
    /// It will not become ready.
    Failed(Error),
    /// It has ended, and all waiting threads have been notified.
    Over,
}

/// Outgoing data, and what the worker has mapped and loaded.
struct Out {
    writer: Writer,
    /// Bytes that did not fit in the pipe.
    rest: Vec<u8>,
    is_lost: bool,
    memories: HashSet<u64>,
    functions: HashSet<u64>,
    queues: HashSet<u64>,
}

/// How a process has ended, as text.
#[derive(Debug, Default)]
struct Fate {
    program: String,
    status: String,
    /// The end of its standard error.
    said: String,
}

impl Fate {
    /// The last output of the process, as a suffix of an error message.
    fn saying(&self) -> String {
        if self.said.is_empty() { String::new() } else { format!(", saying \"{}\"", self.said) }
    }
}

/// A deadline: the worker is ended if a submission has not ended in time.
struct Grace {
    at: Instant,
    queue: Weak<Submissions>,
    submission: Submission,
    blame: Error,
}

/// Why a message was not sent.
pub(crate) enum Unsent {
    /// The worker is gone; another worker may take it.
    Lost,
    Wrong(Error),
}

impl Link {
    /// Starts a worker for a device, and waits until it is ready.
    pub(crate) fn start(core: &Arc<Core>, number: u64) -> Result<Arc<Self>> {
        let rings = files::file("elinvar-rings", pipe::BYTES)?;
        let broken = || Error::Environment("cannot create the ring buffers of a worker process".into());
        let [to, from] = Pipe::both(Mapping::whole(&rings)?).ok_or_else(broken)?;
        let poke = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC);
        let poke = poke.map_err(|error| Error::Environment(format!("cannot create an eventfd: {error}")))?;
        let (memories, functions, queues) = (HashSet::new(), HashSet::new(), HashSet::new());
        let writer = Writer::new(to);
        let out = Out { writer, rest: Vec::new(), is_lost: false, memories, functions, queues };
        let link = Arc::new(Self {
            number,
            reader: Reader::new(from.clone()),
            from,
            inbox: Mutex::default(),
            out: Mutex::new(out),
            pieces: Mutex::default(),
            answers: Mutex::new(Some(HashMap::new())),
            life: Mutex::new(Life::Starting),
            changed: Condvar::new(),
            ended: AtomicBool::new(false),
            fate: OnceLock::new(),
            blame: OnceLock::new(),
            process: OnceLock::new(),
            socket: OnceLock::new(),
            id: OnceLock::new(),
            graces: Mutex::default(),
            poke,
            tasks: core.tasks.clone(),
            clock: AtomicI64::new(0),
            awake: pipe::awake(core.inner.message().awake()),
        });
        let no_thread =
            |error| Error::Environment(format!("cannot start a thread for the worker process: {error}"));
        let hello = Hello {
            version: env!("CARGO_PKG_VERSION").into(),
            inner: core.inner.message(),
            arena: core.arena.bytes(),
            private_memory: core.options.private_memory,
            confined: core.options.confined,
            host: std::process::id(),
        };
        let memory = core.arena.file().try_clone_to_owned();
        let memory = memory.map_err(|error| Error::Environment(format!("sharing memory: {error}")))?;
        let monitor = Monitor { link: link.clone(), program: core.options.program.clone() };
        let thread = std::thread::Builder::new().name(format!("elinvar-worker-{number}"));
        thread.spawn(move || monitor.run(&hello, &rings, &memory)).map_err(no_thread)?;
        let (reading, device) = (link.clone(), Arc::downgrade(core));
        let thread = std::thread::Builder::new().name(format!("elinvar-reader-{number}"));
        let spawned = thread.spawn(move || reading.read(&device));
        if let Err(error) = spawned {
            link.end(Error::DeviceLost("it has no reader".into()));
            return Err(no_thread(error));
        }
        link.expect_ready().map_err(|error| match (error, core.options.private_memory) {
            (Error::Environment(why), Some(limit)) => {
                Error::Environment(format!("{why}; its private memory is limited to {limit} bytes"))
            }
            (error, _) => error,
        })?;
        let units = core.units.load(Ordering::Relaxed);
        if units > 0 {
            link.tell(&ToWorker::UseUnits(units));
        }
        Ok(link)
    }

    fn expect_ready(&self) -> Result<()> {
        let late = Instant::now() + START;
        let mut life = self.life.lock();
        loop {
            match &*life {
                Life::Ready => return Ok(()),
                Life::Failed(error) => return Err(error.clone()),
                Life::Over => return Err(self.loss("")),
                Life::Starting => {}
            }
            if self.changed.wait_until(&mut life, late).timed_out() {
                let seconds = START.as_secs();
                let cause = format!("the worker process was not ready after {seconds} s");
                *life = Life::Failed(Error::Environment(cause.clone()));
                self.end(Error::DeviceLost(cause));
            }
        }
    }

    fn set_life(&self, then: Life) {
        let mut life = self.life.lock();
        if !matches!((&*life, &then), (Life::Failed(_), Life::Ready)) {
            *life = then;
        }
        self.changed.notify_all();
    }

    /// Whether it accepts work.
    pub(crate) fn is_there(&self) -> bool {
        !self.ended.load(Ordering::Acquire) && self.blame.get().is_none()
    }

    /// Ends the process. The first `blame` is the error of everything in flight.
    pub(crate) fn end(&self, blame: Error) {
        let _earlier = self.blame.set(blame);
        if let Some(process) = self.process.get() {
            // If it has ended already, nothing is left to do.
            let _gone = rustix::process::pidfd_send_signal(process, rustix::process::Signal::KILL);
        }
        self.poke();
    }

    /// Blocks until the process has ended and all waiting threads have been notified.
    pub(crate) fn wait_until_over(&self) {
        let mut life = self.life.lock();
        while !matches!(*life, Life::Over) {
            self.changed.wait(&mut life);
        }
    }

    /// Blocks until the process has ended, which was asked to.
    pub(crate) fn wait_for_exit(&self) {
        let Some(process) = self.process.get() else { return };
        let mut process = [PollFd::new(process, PollFlags::IN)];
        while let Err(rustix::io::Errno::INTR) = rustix::event::poll(&mut process, None) {}
    }

    fn poke(&self) {
        let _poked = rustix::io::write(&self.poke, &1_u64.to_ne_bytes());
    }

    /// Ends the worker at `at` if a submission of a queue has not ended by then.
    pub(crate) fn arm(&self, at: Instant, queue: &Arc<Submissions>, submission: Submission, blame: Error) {
        self.graces.lock().push(Grace { at, queue: Arc::downgrade(queue), submission, blame });
        self.poke();
    }

    /// The error for lost work. `doing` describes what the worker did, if known.
    fn loss(&self, doing: &str) -> Error {
        if let Some(blame) = self.blame.get() {
            return blame.clone();
        }
        let (status, saying) = match self.fate.get() {
            Some(fate) => (fate.status.as_str(), fate.saying()),
            None => ("has ended", String::new()),
        };
        Error::DeviceLost(format!("the worker process {status}{doing}{saying}"))
    }

    /// Converts a time of the worker's clock to the host's.
    pub(crate) fn time(&self, worker_ns: u64) -> u64 {
        worker_ns.saturating_add_signed(self.clock.load(Ordering::Relaxed))
    }

    fn send(self: &Arc<Self>, out: &mut Out, bytes: &[u8]) {
        if !out.rest.is_empty() {
            out.rest.extend(bytes);
            return;
        }
        match out.writer.write(bytes) {
            Ok(len) if len == bytes.len() => {}
            Ok(len) => {
                out.rest.extend(&bytes[len..]);
                let _over = self.tasks.send(Task::Flush(self.clone()));
            }
            Err(pipe::Broken) => self.end(broken()),
        }
    }

    /// Sends what did not fit in the pipe, as room becomes available.
    pub(crate) fn flush(&self) {
        let mut out = self.out.lock();
        while self.is_there() && !out.rest.is_empty() {
            let rest = std::mem::take(&mut out.rest);
            match out.writer.write(&rest) {
                Ok(len) => out.rest.extend(&rest[len..]),
                Err(pipe::Broken) => return self.end(broken()),
            }
            if !out.rest.is_empty() {
                // Other threads may append meanwhile, and the process may end.
                elinvar_driver::sync::MutexGuard::unlocked(&mut out, || std::thread::sleep(FULL));
            }
        }
    }

    /// Sends a message without a reply, unless the worker is gone.
    pub(crate) fn tell(self: &Arc<Self>, message: &ToWorker<'_>) {
        let mut bytes = Vec::new();
        if wire::write(message, &mut bytes).is_ok() {
            let mut out = self.out.lock();
            if !out.is_lost {
                self.send(&mut out, &bytes);
            }
        }
    }

    /// As [`Link::tell`], for objects that the worker must drop.
    pub(crate) fn forget(self: &Arc<Self>, message: &ToWorker<'_>) {
        let mut out = self.out.lock();
        let known = match message {
            ToWorker::Unmap { memory } => out.memories.remove(memory),
            ToWorker::Unload { function } => out.functions.remove(function),
            ToWorker::Close { queue } => out.queues.remove(queue),
            _ => false,
        };
        let mut bytes = Vec::new();
        if known && !out.is_lost && wire::write(message, &mut bytes).is_ok() {
            self.send(&mut out, &bytes);
        }
    }

    /// Sends commands of a queue, without waits, as one batch. `announce` registers the batch with the queue.
    pub(crate) fn submit(
        self: &Arc<Self>,
        queue: &Arc<Submissions>,
        piece: u64,
        commands: &[Command],
        announce: impl FnOnce(),
    ) -> Result<(), Unsent> {
        let mut out = self.out.lock();
        if out.is_lost || !self.is_there() {
            return Err(Unsent::Lost);
        }
        let mut bytes = Vec::new();
        orders::write(self, queue.backend(), piece, commands, &mut out, &mut bytes).map_err(Unsent::Wrong)?;
        announce();
        self.pieces.lock().insert(piece, queue.clone());
        self.send(&mut out, &bytes);
        Ok(())
    }

    /// Sends the worker a file to which messages refer by a number. A worker that does not accept it is ended.
    fn send_file(&self, number: u64, file: &OwnedFd) {
        // Without a socket, the worker has ended.
        let Some(socket) = self.socket.get() else { return };
        if let Err(error) = process::send_file(socket.as_fd(), number, file.as_fd()) {
            self.end(Error::DeviceLost(format!("cannot send files to the worker process: {error}")));
        }
    }

    /// Makes the worker copy or zero bytes, and waits for the reply.
    pub(crate) fn transfer(self: &Arc<Self>, core: &Core, transfer: &Transfer<'_>) -> Result<(), Unsent> {
        if self.is_reader() {
            return Err(Unsent::Wrong(Error::unsupported(
                "device memory in a callback of the thread that reads",
            )));
        }
        let (mut bytes, request) = (Vec::new(), core.number());
        let answer = {
            let mut out = self.out.lock();
            if out.is_lost || !self.is_there() {
                return Err(Unsent::Lost);
            }
            orders::write_transfer((self, core), request, transfer, &mut out, &mut bytes)
                .map_err(Unsent::Wrong)?;
            let answer = self.expect(request).ok_or(Unsent::Lost)?;
            self.send(&mut out, &bytes);
            answer
        };
        // No timeout: work in flight may delay it. If the worker ends, the wait ends.
        match answer.recv() {
            Ok(FromWorker::Transferred { result, .. }) => result.map_err(|error| self.unless_lost(error)),
            _ => Err(Unsent::Lost),
        }
    }

    /// Makes the worker load a kernel, and waits for the reply: the maximum number of threads per threadgroup.
    pub(crate) fn load(self: &Arc<Self>, function: &Function) -> Result<u32, Unsent> {
        let mut bytes = Vec::new();
        let answer = {
            let mut out = self.out.lock();
            if out.is_lost {
                return Err(Unsent::Lost);
            }
            // A loaded kernel is not loaded again: it is new, or another worker has loaded it.
            out.functions.insert(function.id);
            wire::write(&function.message(), &mut bytes).map_err(Unsent::Wrong)?;
            let answer = self.expect(function.id).ok_or(Unsent::Lost)?;
            self.send(&mut out, &bytes);
            answer
        };
        match self.answer(&answer) {
            Some(FromWorker::Loaded { result: Ok(threads), .. }) => Ok(threads),
            Some(FromWorker::Loaded { result: Err(error), .. }) => {
                self.out.lock().functions.remove(&function.id);
                Err(self.unless_lost(error))
            }
            // The thread that reads replies cannot wait for one; the first launch reports errors.
            _ if self.is_reader() => Ok(function.max_threads()),
            _ => Err(Unsent::Lost),
        }
    }

    /// Asks the worker for the largest number of threadgroups of a cooperative launch. `None` on the thread that reads replies.
    pub(crate) fn resident_groups(
        self: &Arc<Self>,
        function: &Function,
        (group, threadgroup_bytes): (Dim3, u64),
        request: u64,
    ) -> Result<Option<u64>, Unsent> {
        if self.is_reader() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        let answer = {
            let mut out = self.out.lock();
            if out.is_lost {
                return Err(Unsent::Lost);
            }
            if out.functions.insert(function.id) {
                wire::write(&function.message(), &mut bytes).map_err(Unsent::Wrong)?;
            }
            let function = function.id;
            let message = ToWorker::Resident { function, group, threadgroup_bytes, request };
            wire::write(&message, &mut bytes).map_err(Unsent::Wrong)?;
            let answer = self.expect(request).ok_or(Unsent::Lost)?;
            self.send(&mut out, &bytes);
            answer
        };
        match self.answer(&answer) {
            Some(FromWorker::Resident { result: Ok(groups), .. }) => Ok(Some(groups)),
            Some(FromWorker::Resident { result: Err(error), .. }) => Err(self.unless_lost(error)),
            _ => Err(Unsent::Lost),
        }
    }

    /// Asks the worker to cancel batches of a queue; returns whether it has.
    pub(crate) fn cancel(self: &Arc<Self>, queue: u64, pieces: Vec<u64>, request: u64) -> bool {
        let mut bytes = Vec::new();
        if wire::write(&ToWorker::Cancel { queue, pieces, request }, &mut bytes).is_err() {
            return false;
        }
        let Some(answer) = self.expect(request) else { return false };
        {
            let mut out = self.out.lock();
            if out.is_lost {
                return false;
            }
            self.send(&mut out, &bytes);
        }
        matches!(self.answer(&answer), Some(FromWorker::Cancelled { done: true, .. }))
    }

    /// Converts an error of the worker. If its device is lost, another worker can retry the request.
    fn unless_lost(&self, error: Error) -> Unsent {
        if matches!(error, Error::DeviceLost(_)) {
            self.end(error);
            return Unsent::Lost;
        }
        Unsent::Wrong(error)
    }

    fn expect(&self, request: u64) -> Option<Receiver<FromWorker>> {
        let (sender, answer) = sync_channel(1);
        self.answers.lock().as_mut()?.insert(request, sender);
        Some(answer)
    }

    /// Waits for a reply. `None` if the worker is gone or does not reply, or if this is the thread that reads replies.
    fn answer(&self, answer: &Receiver<FromWorker>) -> Option<FromWorker> {
        if self.is_reader() {
            return None;
        }
        answer.recv_timeout(ANSWER).ok()
    }

    /// The process, after it has started.
    pub(crate) fn process_id(&self) -> Option<u32> {
        self.id.get().copied()
    }

    /// Whether this thread is processing the worker's messages.
    pub(crate) fn is_reader(&self) -> bool {
        ACTS.get() == std::ptr::from_ref(self).addr()
    }

    /// Body of the reader thread.
    fn read(&self, device: &Weak<Core>) {
        let ended = || self.ended.load(Ordering::Acquire);
        loop {
            let is_idle = self.pieces.lock().is_empty();
            self.reader.wait(if is_idle { Duration::ZERO } else { self.awake }, ended);
            match self.take(device, &mut self.inbox.lock()) {
                Ok(true) => {}
                Ok(false) if ended() => break,
                Ok(false) => {}
                Err(()) => {
                    self.end(broken());
                    let mut life = self.life.lock();
                    while !ended() {
                        self.changed.wait(&mut life);
                    }
                    break;
                }
            }
        }
        self.lose(device);
    }

    /// Spins until `is_over` returns true. Receives the worker's messages while the worker has only one batch, of this queue.
    pub(crate) fn spin(&self, queue: &Arc<Submissions>, is_over: &mut dyn FnMut() -> bool) {
        let device = Arc::downgrade(&queue.backend().core);
        // In a callback of any link, the locks of its reader are held.
        let inbox = if ACTS.get() == 0 { self.inbox.try_lock() } else { None };
        if let Some(mut inbox) = inbox {
            let is_alone = || {
                let pieces = self.pieces.lock();
                pieces.len() == 1 && pieces.values().all(|other| Arc::ptr_eq(other, queue))
            };
            while is_alone() && !self.ended.load(Ordering::Relaxed) {
                self.reader.look();
                if is_over() {
                    break;
                }
                if self.take(&device, &mut inbox).is_err() {
                    // The reader also handles the end of the process.
                    self.end(broken());
                    break;
                }
            }
            drop(inbox);
            self.reader.look_no_more();
        }
        while !is_over() {}
    }

    /// Receives available bytes, and processes all complete messages. Returns whether there were any.
    fn take(&self, device: &Weak<Core>, bytes: &mut Vec<u8>) -> Result<bool, ()> {
        let some = self.reader.read(bytes).map_err(|pipe::Broken| ())?;
        let mut at = 0;
        while let Some((fields, len)) = wire::first(&bytes[at..], MOST_FROM_WORKER).map_err(drop)? {
            let message = postcard::from_bytes(fields).map_err(drop)?;
            at += len;
            let before = ACTS.replace(std::ptr::from_ref(self).addr());
            let acted = self.act(device, message);
            ACTS.set(before);
            acted?;
        }
        bytes.drain(..at);
        Ok(some)
    }

    fn act(&self, device: &Weak<Core>, message: FromWorker) -> Result<(), ()> {
        match message {
            FromWorker::Ready { clock_ns, system_ns, error_ns } => {
                let core = device.upgrade().ok_or(())?;
                core.timing_error_ns.fetch_max(error_ns, Ordering::Relaxed);
                let zero = system_ns.wrapping_sub(core.epoch_ns).wrapping_sub(clock_ns);
                self.clock.store(zero.cast_signed(), Ordering::Relaxed);
                self.set_life(Life::Ready);
            }
            FromWorker::Refused(error) => self.set_life(Life::Failed(error)),
            FromWorker::Ended { piece, result, stamps } => {
                let queue = self.pieces.lock().remove(&piece).ok_or(())?;
                queue::batch_ended(&queue, self, piece, result, &stamps);
                match device.upgrade().filter(|core| core.inner.has_device_memory()) {
                    // A callback may wait for a transfer, whose completion this thread receives.
                    Some(core) => core.task(Task::Turn(queue)),
                    None => queue.turn(&mut ()),
                }
            }
            FromWorker::Lost(error) => self.end(error),
            FromWorker::CannotStop { piece } => {
                let queue = self.pieces.lock().get(&piece).cloned();
                if let Some(blame) = queue.and_then(|queue| queue::stopping(&queue, piece)) {
                    self.end(lost_to(&blame));
                }
            }
            FromWorker::Loaded { function: request, .. }
            | FromWorker::Resident { request, .. }
            | FromWorker::Transferred { request, .. }
            | FromWorker::Cancelled { request, .. } => {
                let waiting = self.answers.lock().as_mut().and_then(|all| all.remove(&request));
                if let Some(waiting) = waiting {
                    let _gone = waiting.try_send(message);
                }
            }
        }
        Ok(())
    }

    /// The process has ended, and all its messages have been read.
    fn lose(&self, device: &Weak<Core>) {
        ACTS.set(std::ptr::from_ref(self).addr());
        self.out.lock().is_lost = true;
        *self.answers.lock() = None;
        let mut pieces: Vec<(u64, Arc<Submissions>)> = self.pieces.lock().drain().collect();
        pieces.sort_by_key(|(piece, _)| *piece);
        let mut queues: Vec<Arc<Submissions>> = Vec::new();
        for (_, queue) in pieces {
            if !queues.iter().any(|other| Arc::ptr_eq(other, &queue)) {
                queues.push(queue);
            }
        }
        let kernels: Vec<String> = queues.iter().flat_map(|queue| queue::running(queue)).collect();
        let doing = match &kernels[..] {
            [] => String::new(),
            [one] => format!(" while it ran kernel `{one}`"),
            several => format!(" while it ran one of the kernels `{}`", several.join("`, `")),
        };
        let cause = self.loss(&doing);
        if let Some(core) = device.upgrade() {
            core.lost(self.number);
        }
        queues.iter().for_each(|queue| queue.lose_commands(&cause));
        queues.iter().for_each(|queue| queue.turn(&mut ()));
        let failed = matches!(*self.life.lock(), Life::Starting);
        if failed {
            let none = Fate::default();
            let fate = self.fate.get().unwrap_or(&none);
            let (program, status, saying) = (&fate.program, &fate.status, fate.saying());
            let text = format!("`{program}` did not become ready as a worker process: it {status}{saying}");
            self.set_life(Life::Failed(Error::Environment(text)));
        }
        let mut life = self.life.lock();
        if !matches!(*life, Life::Failed(_)) {
            *life = Life::Over;
        }
        self.changed.notify_all();
    }
}

/// The error of other submissions when stopping a submission has ended the worker.
pub(crate) fn lost_to(cause: &Error) -> Error {
    Error::DeviceLost(format!("the worker process was terminated because running work did not stop: {cause}"))
}

fn broken() -> Error {
    Error::DeviceLost("the worker process sent an invalid message and was terminated".into())
}
