//! The positions of a pipe's two ends, and who sleeps until they change.
//!
//! Who is about to sleep says so, and looks once more; who has changed its position looks whether somebody sleeps. A fence between
//! the two steps of each makes one of them see the other.
//!
//! A reader that has something else to do may *leave*: then who writes wakes the *deputy*, a thread that sleeps until then and reads in its
//! place. One that comes back before that goes on as if it had not left, and nobody has entered the system.
//!
//! Atomics and futexes are those of `crate::sync`: a checker runs this file with its own (`verify/models`).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, futex_wait, futex_wake};

/// What both ends see, in this order on every build of this version. Zeros are a pipe without bytes.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Head {
    written: Line<AtomicU64>,
    read: Line<AtomicU64>,
    /// [`ASLEEP`] while the reader sleeps, or is about to; [`AWAY`] while nobody reads.
    reader: Line<AtomicU32>,
    /// [`ASLEEP`] while the writer waits for room.
    writer: Line<AtomicU32>,
    /// Not 0 once the deputy is to read.
    deputy: Line<AtomicU32>,
}

/// On a cache line of its own.
#[derive(Default)]
#[repr(C, align(128))]
struct Line<T>(T);

/// Who looks for changes sees them by itself.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const AWAY: u32 = 2;

impl Head {
    /// Bytes that were ever written, and with them what was stored before they were.
    pub(crate) fn written(&self) -> u64 {
        self.written.0.load(Ordering::Acquire)
    }

    /// Bytes that were ever read.
    pub(crate) fn read(&self) -> u64 {
        self.read.0.load(Ordering::Acquire)
    }

    /// Bytes were written: whoever is to read them is woken.
    pub(crate) fn set_written(&self, position: u64) {
        self.written.0.store(position, Ordering::Release);
        fence(Ordering::SeqCst);
        let word = &self.reader.0;
        if word.load(Ordering::Relaxed) == AWAKE {
            return;
        }
        match word.swap(AWAKE, Ordering::SeqCst) {
            AWAKE => {}
            AWAY => self.wake_deputy(),
            _ => futex_wake(word),
        }
    }

    /// Bytes were read: a writer that waits for room is woken.
    pub(crate) fn set_read(&self, position: u64) {
        self.read.0.store(position, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.writer.0.load(Ordering::Relaxed) != AWAKE {
            wake(&self.writer.0);
        }
    }

    /// Makes a reader that sleeps look again.
    pub(crate) fn wake_reader(&self) {
        wake(&self.reader.0);
    }

    /// Sleeps until bytes are written, unless `is_there` finds some. May return without a cause.
    pub(crate) fn sleep_for_bytes(&self, is_there: impl Fn() -> bool) {
        sleep(&self.reader.0, is_there);
    }

    /// Sleeps until bytes are read, unless `is_there` finds room. May return without a cause.
    pub(crate) fn sleep_for_room(&self, is_there: impl Fn() -> bool) {
        sleep(&self.writer.0, is_there);
    }

    /// The reader looks for bytes by itself.
    pub(crate) fn look(&self) {
        let word = &self.reader.0;
        if word.load(Ordering::Relaxed) != AWAKE {
            word.store(AWAKE, Ordering::Relaxed);
        }
    }

    /// The thread in [`Head::sleep_for_bytes`] is woken for bytes again; at once if there are some.
    pub(crate) fn look_no_more(&self, has_some: impl Fn() -> bool) {
        let word = &self.reader.0;
        word.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if has_some() {
            wake(word);
        }
    }

    /// The reader leaves, unless there are bytes; whether it has.
    pub(crate) fn leave(&self, has_some: impl Fn() -> bool) -> bool {
        self.reader.0.store(AWAY, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // If it cannot come back, the deputy has been woken.
        !(has_some() && self.come_back())
    }

    /// Whether the caller reads again; else the deputy does.
    pub(crate) fn come_back(&self) -> bool {
        self.reader.0.compare_exchange(AWAY, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Ends one [`Head::wait_as_deputy`].
    pub(crate) fn wake_deputy(&self) {
        // Not a store: among swaps alone the checker knows which came last.
        self.deputy.0.swap(1, Ordering::SeqCst);
        futex_wake(&self.deputy.0);
    }

    /// Sleeps until it is the caller's turn to read in place of another.
    pub(crate) fn wait_as_deputy(&self) {
        while self.deputy.0.swap(0, Ordering::SeqCst) == 0 {
            futex_wait(&self.deputy.0, 0);
        }
    }
}

fn wake(word: &AtomicU32) {
    word.store(AWAKE, Ordering::SeqCst);
    futex_wake(word);
}

/// Sleeps at `word` unless there is something.
fn sleep(word: &AtomicU32, is_there: impl Fn() -> bool) {
    word.store(ASLEEP, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if is_there() {
        word.store(AWAKE, Ordering::SeqCst);
        return;
    }
    futex_wait(word, ASLEEP);
}
