//! [`Log`]: the log of a device, to which kernels write lines while they run (MSL specification, "Logging").
//!
//! A kernel stores a record for each call of `os_log` or `printf` to the device's [ring](ring), which is bounded: records that find it
//! full are lost and counted. The host reads it at intervals while submissions with such kernels are pending, and before their `done`,
//! and formats a line for each record. A device's log costs nothing until a kernel with log calls is created.

mod format;
pub mod ring;
mod site;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::sync::{Condvar, Mutex, OnceLock, RwLock};
use crate::{Callback, Error, Result, Signature};
use format::Piece;
use ring::{Control, LogMemory, Reader, Record};
pub use site::{LogLevel, LogSite, LogValue, MAX_LOG_WORDS};

/// Default size of a ring in bytes.
const SIZE: u64 = 1 << 20;
/// Interval at which a ring is read while kernels write to it.
const INTERVAL: Duration = Duration::from_millis(1);
/// Time for which the end of a submission waits for records of others that are being written before its own.
const SUSPENDED: Duration = Duration::from_millis(100);
/// Number of lines that are taken out of the ring before they are passed on.
const BATCH: usize = 256;
/// Time after which the reading thread ends if there is nothing to read.
const IDLE: Duration = Duration::from_secs(2);

/// A line that a thread of a kernel has logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// The kernel; empty if the device does not report it.
    pub kernel: Arc<str>,
    /// Position of the thread in the grid; `None` if the device does not report it.
    pub thread: Option<[u32; 3]>,
    /// Level.
    pub level: LogLevel,
    /// Subsystem of the `os_log`; empty for the default one.
    pub subsystem: Arc<str>,
    /// Category of the `os_log`; empty for the default one.
    pub category: Arc<str>,
    /// The formatted message.
    pub message: String,
    /// Source file and line of the call, if known.
    pub location: Option<(Arc<str>, u32)>,
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, thread, level, subsystem, category, message, .. } = self;
        if !kernel.is_empty() {
            write!(f, "{kernel} ")?;
        }
        if let Some([x, y, z]) = thread {
            write!(f, "[{x}, {y}, {z}] ")?;
        }
        write!(f, "{level}")?;
        if !subsystem.is_empty() || !category.is_empty() {
            write!(f, " {subsystem}:{category}")?;
        }
        write!(f, ": {}", message.strip_suffix('\n').unwrap_or(message))
    }
}

/// A receiver of lines.
pub type LogCallback = dyn Fn(&LogLine) + Send + Sync;

/// The log of a device.
#[derive(Default)]
pub struct Log {
    /// Size of the ring in bytes; 0 for the default.
    size: AtomicU64,
    ring: OnceLock<Ring>,
    /// Whether the size is that of a log that the system keeps.
    is_fixed: AtomicBool,
    /// Whether another process reads it.
    is_lent: AtomicBool,
    kernels: RwLock<HashMap<u32, Weak<LogKernel>>>,
    last_kernel: AtomicU32,
    reader: Mutex<Reading>,
    /// Held while lines are passed on, so that they stay in order.
    delivery: Mutex<()>,
    /// Lost records of rings before the last reset, and records that cannot be read.
    lost_before: AtomicU64,
    delivered: AtomicU64,
    callbacks: Mutex<Vec<(u64, Arc<LogCallback>)>>,
    last_callback: AtomicU64,
    pending: Mutex<Pending>,
    has_changed: Condvar,
}

struct Ring {
    memory: LogMemory,
    control: Control,
}

impl Ring {
    fn new(memory: LogMemory) -> Self {
        let control = memory.control();
        Self { memory, control }
    }
}

#[derive(Default)]
struct Reading {
    reader: Reader,
    /// Lines of the ring before it was emptied.
    rest: Vec<LogLine>,
}

#[derive(Default)]
struct Pending {
    /// Number of pending submissions of kernels with log calls.
    submissions: u64,
    has_thread: bool,
}

thread_local! {
    /// Whether this thread reads a log: a callback may submit or end work.
    static READS: Cell<bool> = const { Cell::new(false) };
}

impl Log {
    /// A log without a ring.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the size of the ring in bytes, of which a record takes 64 or more; rounded down to a power of two of records.
    ///
    /// # Errors
    /// `InvalidArgument` below 1024 bytes, above 1 GiB, and after a kernel with log calls was created.
    pub fn set_size(&self, bytes: u64) -> Result<()> {
        if !(1024..=1 << 30).contains(&bytes) {
            return Err(Error::invalid(format!("a log of {bytes} bytes: 1024 to {} are allowed", 1 << 30)));
        }
        if self.ring.get().is_some() || self.is_fixed.load(Ordering::Relaxed) {
            return Err(Error::invalid(
                "the size of a log after a kernel with log calls was created: it has to be set before",
            ));
        }
        self.size.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Size of the ring in bytes.
    pub fn size(&self) -> u64 {
        match self.size.load(Ordering::Relaxed) {
            0 => SIZE,
            bytes => bytes,
        }
    }

    /// The size of the log of a device whose system formats lines, which does not change from now on.
    pub fn fix_size(&self) -> u64 {
        self.is_fixed.store(true, Ordering::Relaxed);
        self.size()
    }

    /// Number of lines that were passed to the receivers.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Number of records that were lost because the ring was full.
    pub fn lost(&self) -> u64 {
        let now = self.ring.get().map_or(0, |ring| ring.memory.lost());
        self.lost_before.load(Ordering::Relaxed) + now
    }

    /// The ring's counters for kernels in this process; creates the ring on first use.
    pub fn control(&self) -> &Control {
        &self.ring.get_or_init(|| Ring::new(LogMemory::host(self.size()))).control
    }

    /// The ring in memory that a driver provides, of [`LogMemory::size`] of [`Log::size`] bytes; `make` is called on first use.
    ///
    /// # Errors
    /// That of `make`.
    pub fn memory_with(&self, make: impl FnOnce(u64) -> Result<LogMemory>) -> Result<&LogMemory> {
        if let Some(ring) = self.ring.get() {
            return Ok(&ring.memory);
        }
        let memory = make(self.size())?;
        Ok(&self.ring.get_or_init(|| Ring::new(memory)).memory)
    }

    /// Makes kernels write to a ring that another process reads, of [`LogMemory::size`] of [`Log::size`] bytes there. Must be called
    /// before a kernel with log calls is created.
    pub fn lend(&self, memory: LogMemory) {
        self.is_lent.store(true, Ordering::Relaxed);
        self.ring.get_or_init(|| Ring::new(memory));
    }

    /// Registers a kernel's log calls. `None` if it has none.
    pub fn kernel(self: &Arc<Self>, signature: &Signature) -> Option<Arc<LogKernel>> {
        if signature.logs.is_empty() {
            return None;
        }
        let number = 1 + self.last_kernel.fetch_add(1, Ordering::Relaxed);
        let sites = signature.logs.iter().map(Site::new).collect();
        let kernel = LogKernel {
            log: self.clone(),
            number: number.into(),
            name: signature.name.as_str().into(),
            sites,
        };
        let kernel = Arc::new(kernel);
        self.kernels.write().insert(number, Arc::downgrade(&kernel));
        Some(kernel)
    }

    /// Adds a receiver of all lines. They are passed to it one after the other, on threads of the driver, on which it must not wait for
    /// work of the device. Returns a number for [`Log::unsubscribe`].
    pub fn subscribe(&self, callback: Arc<LogCallback>) -> u64 {
        let number = 1 + self.last_callback.fetch_add(1, Ordering::Relaxed);
        self.callbacks.lock().push((number, callback));
        number
    }

    /// Removes a receiver.
    pub fn unsubscribe(&self, number: u64) {
        self.callbacks.lock().retain(|(other, _)| *other != number);
    }

    /// Passes a line to the receivers. For devices whose system formats lines; they are passed as they come.
    pub fn deliver(&self, line: &LogLine) {
        self.delivered.fetch_add(1, Ordering::Relaxed);
        let callbacks: Vec<Arc<LogCallback>> =
            self.callbacks.lock().iter().map(|(_, callback)| callback.clone()).collect();
        let _callback = Callback::enter();
        for callback in callbacks {
            // The panic hook has reported it.
            let _panic = catch_unwind(AssertUnwindSafe(|| callback(line)));
        }
    }

    /// Marks the start of a submission of kernels with log calls: the ring is read until it has ended.
    pub(crate) fn begin(self: &Arc<Self>) {
        if self.is_lent.load(Ordering::Relaxed) {
            return;
        }
        let mut pending = self.pending.lock();
        pending.submissions += 1;
        if pending.has_thread {
            self.has_changed.notify_all();
            return;
        }
        let log = self.clone();
        let thread = std::thread::Builder::new().name("elinvar-log".into());
        // Without the thread lines are passed on at the end of submissions.
        pending.has_thread = thread.spawn(move || log.read_at_intervals()).is_ok();
    }

    /// Marks the end of a submission. Its lines have been passed on when it returns. If it has failed, some of its threads may have ended
    /// within a record.
    pub(crate) fn end(&self, has_failed: bool) {
        let others = {
            let mut pending = self.pending.lock();
            pending.submissions = pending.submissions.saturating_sub(1);
            pending.submissions > 0
        };
        if !others {
            // All writers have ended; of a failed submission some may have ended within a record.
            return self.read(has_failed);
        }
        // A record is written in less than a microsecond, unless its thread is suspended.
        self.read(false);
        let late = Instant::now() + SUSPENDED;
        while self.has_gap() && Instant::now() < late {
            std::thread::sleep(Duration::from_micros(50));
            self.read(false);
        }
        if has_failed {
            self.read(true);
        }
    }

    /// Whether records are published behind one that is not.
    fn has_gap(&self) -> bool {
        self.ring.get().is_some_and(|ring| self.reader.lock().reader.has_gap(&ring.memory))
    }

    fn read_at_intervals(&self) {
        loop {
            self.read(false);
            let mut pending = self.pending.lock();
            if pending.submissions > 0 {
                self.has_changed.wait_for(&mut pending, INTERVAL);
            } else if self.has_changed.wait_for(&mut pending, IDLE).timed_out() && pending.submissions == 0 {
                pending.has_thread = false;
                return;
            }
        }
    }

    /// Reads the records that are published, at most as many as the ring has room for, since kernels may write faster than they are read.
    /// With `past`, also those behind a record that its writer will not publish.
    pub fn read(&self, past: bool) {
        let Some(ring) = self.ring.get().filter(|_| !self.is_lent.load(Ordering::Relaxed)) else { return };
        if READS.replace(true) {
            return;
        }
        let delivery = self.delivery.lock();
        let end = self.reader.lock().reader.end(&ring.memory);
        loop {
            let lines = {
                let mut reading = self.reader.lock();
                if reading.reader.has_passed(end) {
                    break;
                }
                let mut lines = std::mem::take(&mut reading.rest);
                self.take(ring, &mut reading.reader, past, BATCH, &mut lines);
                lines
            };
            if lines.is_empty() {
                break;
            }
            lines.iter().for_each(|line| self.deliver(line));
        }
        drop(delivery);
        READS.set(false);
    }

    /// Appends at most `most` lines of the ring.
    fn take(&self, ring: &Ring, reader: &mut Reader, past: bool, most: usize, lines: &mut Vec<LogLine>) {
        for _ in 0..most {
            match reader.next(&ring.memory, past) {
                None => return,
                Some(record) => match record.and_then(|record| self.line(&record)) {
                    Some(line) => lines.push(line),
                    None => {
                        self.lost_before.fetch_add(1, Ordering::Relaxed);
                    }
                },
            }
        }
    }

    /// Empties the ring, for a new [`Control`]; its lines are passed on by the next [`Log::read`]. No kernel may write to it any more.
    pub fn restart(&self) {
        let Some(ring) = self.ring.get() else { return };
        let Reading { reader, rest } = &mut *self.reader.lock();
        self.take(ring, reader, true, usize::MAX, rest);
        self.lost_before.fetch_add(ring.memory.lost(), Ordering::Relaxed);
        reader.reset(&ring.memory);
    }

    /// Whether a kernel with log calls was created.
    pub fn has_ring(&self) -> bool {
        self.ring.get().is_some()
    }

    /// Stores a record as compiled code does, for kernels that are interpreted.
    pub fn store(&self, kernel: &LogKernel, site: u16, thread: [u32; 3], words: Vec<u64>) {
        self.control();
        if let Some(ring) = self.ring.get() {
            ring::write(
                &ring.memory,
                &ring.control,
                &Record { kernel: kernel.number(), site, thread, words },
            );
        }
    }

    fn line(&self, record: &Record) -> Option<LogLine> {
        let kernel = self.kernels.read().get(&record.kernel)?.upgrade()?;
        let site = kernel.sites.get(usize::from(record.site))?;
        Some(LogLine {
            kernel: kernel.name.clone(),
            thread: Some(record.thread),
            level: site.level,
            subsystem: site.subsystem.clone(),
            category: site.category.clone(),
            message: format::message(&site.pieces, &site.values, &record.words),
            location: site.location.clone(),
        })
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("size", &self.size()).field("lost", &self.lost()).finish_non_exhaustive()
    }
}

/// A kernel's log calls, registered with its device's log.
pub struct LogKernel {
    log: Arc<Log>,
    number: AtomicU32,
    name: Arc<str>,
    sites: Vec<Site>,
}

impl LogKernel {
    /// Its number in records, from 1.
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// Sets the number by which the process that reads a [lent](Log::lend) ring knows the kernel.
    pub fn renumber(&self, number: u32) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// The log.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }
}

impl Drop for LogKernel {
    fn drop(&mut self) {
        self.log.kernels.write().remove(&self.number());
    }
}

/// A log call, its format parsed.
struct Site {
    level: LogLevel,
    subsystem: Arc<str>,
    category: Arc<str>,
    pieces: Vec<Piece>,
    values: Vec<LogValue>,
    location: Option<(Arc<str>, u32)>,
}

impl Site {
    fn new(site: &LogSite) -> Self {
        Self {
            level: site.level,
            subsystem: site.subsystem.as_str().into(),
            category: site.category.as_str().into(),
            pieces: site.pieces(),
            values: site.values.clone(),
            location: (site.line > 0).then(|| (site.file.as_str().into(), site.line)),
        }
    }
}
