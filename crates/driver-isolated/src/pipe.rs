//! A single-producer, single-consumer ring buffer in shared memory. Neither side makes a system call unless the other sleeps.
//!
//! Each side keeps its own position and reads the other's. Positions of the other side are validated, and bytes are copied before they
//! are interpreted, so a malicious side can harm only itself. [`Head`] implements sleeping and waking.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::files::Mapping;
use crate::head::Head;

/// Capacity in bytes; a power of two.
const CAPACITY: u64 = 1 << 20;
/// Size of the header in bytes.
const HEAD: u64 = 4096;
/// Size of the file of two pipes in bytes.
pub(crate) const BYTES: u64 = 2 * (HEAD + CAPACITY);

/// How long to spin, where another processor can make progress meanwhile.
pub(crate) fn awake(time: Duration) -> Duration {
    static SEVERAL: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));
    if *SEVERAL { time } else { Duration::ZERO }
}

/// The other side has violated the protocol.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// One of the two pipes of a mapping of [`BYTES`].
#[derive(Clone)]
pub(crate) struct Pipe {
    mapping: Arc<Mapping>,
    start: u64,
}

impl Pipe {
    /// Host to worker, and worker to host.
    pub(crate) fn both(mapping: Mapping) -> Option<[Self; 2]> {
        let mapping = (mapping.len() as u64 == BYTES).then(|| Arc::new(mapping))?;
        Some([0, HEAD + CAPACITY].map(|start| Self { mapping: mapping.clone(), start }))
    }

    #[allow(unsafe_code)] // looks at shared memory
    fn head(&self) -> &Head {
        let at = self.mapping.at(self.start as usize).cast::<Head>();
        // SAFETY: the mapping lives as long as `self`, is page-aligned and has room for a head at `start`. All fields are atomic and valid for any
        // content.
        unsafe { at.as_ref() }
    }

    /// The at most two contiguous ranges from a position on: address and length.
    fn runs(&self, position: u64, len: u64) -> [(*mut u8, usize); 2] {
        let from = position % CAPACITY;
        let first = len.min(CAPACITY - from);
        let content = self.start + HEAD;
        let at = |offset: u64| self.mapping.at((content + offset) as usize).as_ptr();
        [(at(from), first as usize), (at(0), (len - first) as usize)]
    }

    /// Wakes a sleeping reader.
    pub(crate) fn wake_reader(&self) {
        self.head().wake_reader();
    }
}

/// The writing side.
pub(crate) struct Writer {
    pipe: Pipe,
    written: u64,
}

impl Writer {
    pub(crate) fn new(pipe: Pipe) -> Self {
        Self { pipe, written: 0 }
    }

    fn room(&self) -> Result<u64, Broken> {
        let used = self.written.wrapping_sub(self.pipe.head().read());
        CAPACITY.checked_sub(used).ok_or(Broken)
    }

    /// Writes as many bytes as fit; returns their number.
    #[allow(unsafe_code)] // copies to shared memory
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let len = self.room()?.min(bytes.len() as u64);
        if len == 0 {
            return Ok(0);
        }
        let mut from = bytes.as_ptr();
        for (to, len) in self.pipe.runs(self.written, len) {
            // SAFETY: both ranges are within the buffer, in a part that the reader does not access until the position is published; together they are
            // at most as long as `bytes`.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            from = from.wrapping_add(len);
        }
        self.written = self.written.wrapping_add(len);
        self.pipe.head().set_written(self.written);
        Ok(len as usize)
    }

    /// Writes all bytes, waiting for room if necessary.
    pub(crate) fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Broken> {
        while !bytes.is_empty() {
            let len = self.write(bytes)?;
            bytes = &bytes[len..];
            if len == 0 {
                self.pipe.head().sleep_for_room(|| self.room() != Ok(0));
            }
        }
        Ok(())
    }
}

/// The reading side. One thread reads at a time; others may wait.
pub(crate) struct Reader {
    pipe: Pipe,
    read: AtomicU64,
}

impl Reader {
    pub(crate) fn new(pipe: Pipe) -> Self {
        Self { pipe, read: AtomicU64::new(0) }
    }

    fn available(&self) -> u64 {
        self.pipe.head().written().wrapping_sub(self.read.load(Ordering::Relaxed))
    }

    /// Whether there are bytes to read.
    pub(crate) fn has_some(&self) -> bool {
        self.available() != 0
    }

    /// Appends all available bytes; returns whether there were any. The caller ensures that only one thread reads at a time.
    #[allow(unsafe_code)] // copies from shared memory
    pub(crate) fn read(&self, into: &mut Vec<u8>) -> Result<bool, Broken> {
        let len = self.available();
        if len > CAPACITY {
            return Err(Broken);
        }
        if len == 0 {
            return Ok(false);
        }
        let position = self.read.load(Ordering::Relaxed);
        into.reserve(len as usize);
        for (from, len) in self.pipe.runs(position, len) {
            // SAFETY: both ranges are within the buffer, and the vector has capacity for them. The copied data are bytes, valid whatever the other
            // side writes concurrently.
            unsafe {
                let to = into.as_mut_ptr().add(into.len());
                std::ptr::copy_nonoverlapping(from, to, len);
                into.set_len(into.len() + len);
            }
        }
        let position = position.wrapping_add(len);
        self.read.store(position, Ordering::Relaxed);
        self.pipe.head().set_read(position);
        Ok(true)
    }

    /// Waits until there are bytes, or [`Pipe::wake_reader`] is called: spins for `awake`, then sleeps. `ended` returns whether to stop
    /// waiting.
    pub(crate) fn wait(&self, awake: Duration, ended: impl Fn() -> bool) {
        let is_there = || self.has_some() || ended();
        let start = Instant::now();
        while !is_there() {
            if start.elapsed() >= awake {
                return self.pipe.head().sleep_for_bytes(is_there);
            }
            std::hint::spin_loop();
        }
    }

    /// Until [`Reader::look_no_more`], the writer wakes no thread: the caller polls.
    pub(crate) fn look(&self) {
        self.pipe.head().look();
    }

    /// Ends [`Reader::look`]: a thread that sleeps in [`Reader::wait`] is woken for bytes written since the last poll.
    pub(crate) fn look_no_more(&self) {
        self.pipe.head().look_no_more(|| self.has_some());
    }

    /// Leaves the pipe, unless there are bytes to read; returns whether it has left. If bytes arrive before [`Reader::come_back`], the deputy
    /// reads them.
    pub(crate) fn leave(&self) -> bool {
        self.pipe.head().leave(|| self.has_some())
    }

    /// Returns whether the caller reads again; if not, the deputy reads.
    pub(crate) fn come_back(&self) -> bool {
        self.pipe.head().come_back()
    }

    /// Sleeps until it is the caller's turn to read as the deputy.
    pub(crate) fn wait_as_deputy(&self) {
        self.pipe.head().wait_as_deputy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files;

    fn pipe() -> Pipe {
        let [pipe, _] = Pipe::both(Mapping::whole(files::file("test", BYTES).unwrap()).unwrap()).unwrap();
        pipe
    }

    #[test]
    fn bytes_come_out_as_they_went_in_through_sleeps_and_a_full_pipe() {
        let pipe = pipe();
        let (mut writer, reader) = (Writer::new(pipe.clone()), Reader::new(pipe));
        let total = 5 * CAPACITY as usize + 123;
        let byte = |at: usize| (at * 31 / 7) as u8;
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let bytes: Vec<u8> = (0..total).map(byte).collect();
                let mut sizes = [1, 7, 100_000, 3, 2 * CAPACITY as usize].into_iter().cycle();
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let (now, later) = rest.split_at(sizes.next().unwrap().min(rest.len()));
                    writer.write_all(now).unwrap();
                    rest = later;
                }
            });
            let mut got = Vec::new();
            while got.len() < total {
                reader.wait(Duration::ZERO, || false);
                reader.read(&mut got).unwrap();
            }
            assert!(got.iter().enumerate().all(|(at, got)| *got == byte(at)));
        });
    }

    #[test]
    fn positions_that_cannot_be_are_seen() {
        let pipe = pipe();
        let (mut writer, reader) = (Writer::new(pipe.clone()), Reader::new(pipe.clone()));
        pipe.head().set_written(CAPACITY + 1);
        assert_eq!(reader.read(&mut Vec::new()), Err(Broken));
        pipe.head().set_read(1);
        assert_eq!(writer.write(b"x"), Err(Broken));
    }

    #[test]
    fn a_reader_is_woken_without_bytes() {
        let pipe = pipe();
        let reader = Reader::new(pipe.clone());
        let ended = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| reader.wait(Duration::ZERO, || ended.load(Ordering::SeqCst)));
            ended.store(true, Ordering::SeqCst);
            pipe.wake_reader();
        });
    }

    #[test]
    fn a_deputy_reads_what_comes_while_the_reader_is_away_and_only_then() {
        let pipe = pipe();
        let (mut writer, reader) = (Writer::new(pipe.clone()), Reader::new(pipe.clone()));
        let mut bytes = Vec::new();
        // Nothing arrives.
        assert!(reader.leave() && reader.come_back() && !reader.come_back());
        // Bytes are already available.
        writer.write_all(b"one").unwrap();
        assert!(!reader.leave());
        assert!(reader.read(&mut bytes).unwrap() && bytes == b"one");
        assert!(reader.leave());
        std::thread::scope(|scope| {
            let deputy = scope.spawn(|| {
                reader.wait_as_deputy();
                let mut bytes = Vec::new();
                reader.read(&mut bytes).unwrap();
                bytes
            });
            writer.write_all(b"two").unwrap();
            assert_eq!(deputy.join().unwrap(), b"two");
        });
        assert!(!reader.come_back(), "another reads");
    }

    /// Two threads that leave and come back at random read every byte exactly once.
    #[test]
    fn readers_that_take_turns_lose_nothing() {
        const BYTES: usize = 20_000;
        let pipe = pipe();
        let (mut writer, reader) = (Writer::new(pipe.clone()), Reader::new(pipe));
        let all = elinvar_driver::sync::Mutex::new(Vec::new());
        let deputies = AtomicU64::new(0);
        let serve = |mut leads: bool| {
            loop {
                if !leads {
                    deputies.fetch_add(1, Ordering::SeqCst);
                    reader.wait_as_deputy();
                    deputies.fetch_sub(1, Ordering::SeqCst);
                }
                leads = true;
                while leads {
                    let mut bytes = all.lock();
                    if bytes.len() == BYTES {
                        // Ends the other thread too.
                        return reader.pipe.head().wake_deputy();
                    }
                    reader.wait(Duration::ZERO, || false);
                    reader.read(&mut bytes).unwrap();
                    if deputies.load(Ordering::SeqCst) > 0 && bytes.len() < BYTES && reader.leave() {
                        drop(bytes);
                        std::thread::yield_now();
                        leads = reader.come_back();
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| serve(true));
            scope.spawn(|| serve(false));
            for at in 0..BYTES {
                writer.write_all(&[at as u8]).unwrap();
            }
        });
        assert!(all.lock().iter().enumerate().all(|(at, byte)| *byte == at as u8));
    }
}
