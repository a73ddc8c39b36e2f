//! A pipe of bytes in memory that two processes share: one writes, one reads, neither enters the system unless the other sleeps.
//!
//! Each end keeps its own position and looks at the other's. What it finds there is checked, and bytes are copied before anybody
//! looks at them, so an end that does what it likes harms nobody but itself. Who sleeps and who is woken is in [`Head`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use crate::files::Mapping;
use crate::head::Head;

/// Bytes that a pipe holds: a power of two.
const CAPACITY: u64 = 1 << 20;
/// Bytes before a pipe's content.
const HEAD: u64 = 4096;
/// Bytes of the file of two pipes.
pub(crate) const BYTES: u64 = 2 * (HEAD + CAPACITY);

/// Time to wait awake where that can bring something: another processor does what is waited for.
pub(crate) fn awake(time: Duration) -> Duration {
    static SEVERAL: LazyLock<bool> =
        LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));
    if *SEVERAL { time } else { Duration::ZERO }
}

/// The other end has broken the rules.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Broken;

/// One of the two pipes of a mapping of [`BYTES`].
#[derive(Clone)]
pub(crate) struct Pipe {
    mapping: Arc<Mapping>,
    start: u64,
}

impl Pipe {
    /// From host to worker, and from worker to host.
    pub(crate) fn both(mapping: Mapping) -> Option<[Self; 2]> {
        let mapping = (mapping.len() as u64 == BYTES).then(|| Arc::new(mapping))?;
        Some([0, HEAD + CAPACITY].map(|start| Self { mapping: mapping.clone(), start }))
    }

    #[allow(unsafe_code)] // looks at shared memory
    fn head(&self) -> &Head {
        let at = self.mapping.at(self.start as usize).cast::<Head>();
        // SAFETY: the mapping lives as long as `self`, begins at a page and has room for a head at `start`. All fields are
        // atomic, and every content is one.
        unsafe { at.as_ref() }
    }

    /// The at most two runs of bytes from a position on: address and length.
    fn runs(&self, position: u64, len: u64) -> [(*mut u8, usize); 2] {
        let from = position % CAPACITY;
        let first = len.min(CAPACITY - from);
        let content = self.start + HEAD;
        let at = |offset: u64| self.mapping.at((content + offset) as usize).as_ptr();
        [(at(from), first as usize), (at(0), (len - first) as usize)]
    }

    /// Makes a reader that sleeps look again.
    pub(crate) fn wake_reader(&self) {
        self.head().wake_reader();
    }
}

/// The end that writes.
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

    /// Write as many bytes as there is room for; how many.
    #[allow(unsafe_code)] // copies to shared memory
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let len = self.room()?.min(bytes.len() as u64);
        if len == 0 {
            return Ok(0);
        }
        let mut from = bytes.as_ptr();
        for (to, len) in self.pipe.runs(self.written, len) {
            // SAFETY: both runs lie within the content, in a part that the reader leaves alone until it is told; together
            // they are at most as long as `bytes`.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
            from = from.wrapping_add(len);
        }
        self.written = self.written.wrapping_add(len);
        self.pipe.head().set_written(self.written);
        Ok(len as usize)
    }

    /// Write all, and wait for room where there is none.
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

/// The end that reads. One thread reads at a time; others may wait.
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

    /// Whether there is something to read.
    pub(crate) fn has_some(&self) -> bool {
        self.available() != 0
    }

    /// Append all there is; whether there was something. By one thread at a time, as the caller sees to.
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
            // SAFETY: both runs lie within the content; the vector has room for them, and what is copied is bytes, whatever the
            // other end does meanwhile.
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

    /// Wait until there is something, or [`Pipe::wake_reader`] is called: awake for `awake`, then asleep. `ended` says
    /// whether there is nothing more to wait for.
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

    /// From now on nobody is woken for what is written: the caller looks. Until [`Reader::look_no_more`].
    pub(crate) fn look(&self) {
        self.pipe.head().look();
    }

    /// A thread that is asleep in [`Reader::wait`] is woken for what is written, from now on and since the last look.
    pub(crate) fn look_no_more(&self) {
        self.pipe.head().look_no_more(|| self.has_some());
    }

    /// Leave, unless there is something to read; whether it has. Then the deputy reads, if there is something before
    /// [`Reader::come_back`].
    pub(crate) fn leave(&self) -> bool {
        self.pipe.head().leave(|| self.has_some())
    }

    /// Whether the caller reads again; else another does.
    pub(crate) fn come_back(&self) -> bool {
        self.pipe.head().come_back()
    }

    /// Sleeps until it is the caller's turn to read in place of another.
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
        // Nothing comes.
        assert!(reader.leave() && reader.come_back() && !reader.come_back());
        // It is there already.
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

    /// Two threads that leave and come back as they like read everything, each byte once.
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
                        // The other one ends too.
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
