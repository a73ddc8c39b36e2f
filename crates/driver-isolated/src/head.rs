//! The header of a pipe: the positions of both sides, and sleeping until they change.
//!
//! A side that is about to sleep sets its flag and checks again; a side that has moved its position checks the other's flag. A fence between the
//! two steps of each ensures that at least one of them sees the other.
//!
//! A reader that has other work may *leave*. The writer then wakes the *deputy*, a sleeping thread that reads in the reader's place. If the
//! reader comes back before anything was written, it continues without a system call.
//!
//! Atomics and futexes are those of `crate::sync`, which the model checker replaces (`verify/models`).

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, futex_wait, futex_wake};

/// State shared by both sides. The layout is fixed for this version. All zeros is an empty pipe.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Head {
    written: Line<AtomicU64>,
    read: Line<AtomicU64>,
    /// [`ASLEEP`] while the reader sleeps or is about to; [`AWAY`] while no thread reads.
    reader: Line<AtomicU32>,
    /// [`ASLEEP`] while the writer waits for room.
    writer: Line<AtomicU32>,
    /// Nonzero when the deputy must read.
    deputy: Line<AtomicU32>,
}

/// Aligned to a cache line.
#[derive(Default)]
#[repr(C, align(128))]
struct Line<T>(T);

/// The waiting thread polls, so it need not be woken.
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const AWAY: u32 = 2;

impl Head {
    /// Total number of bytes written. Reading it synchronizes with stores before the write.
    pub(crate) fn written(&self) -> u64 {
        self.written.0.load(Ordering::Acquire)
    }

    /// Total number of bytes read.
    pub(crate) fn read(&self) -> u64 {
        self.read.0.load(Ordering::Acquire)
    }

    /// Advances the write position, and wakes the reader or the deputy.
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

    /// Advances the read position, and wakes a writer that waits for room.
    pub(crate) fn set_read(&self, position: u64) {
        self.read.0.store(position, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.writer.0.load(Ordering::Relaxed) != AWAKE {
            wake(&self.writer.0);
        }
    }

    /// Wakes a sleeping reader.
    pub(crate) fn wake_reader(&self) {
        wake(&self.reader.0);
    }

    /// Sleeps until bytes are written, unless `is_there` finds some. May wake spuriously.
    pub(crate) fn sleep_for_bytes(&self, is_there: impl Fn() -> bool) {
        sleep(&self.reader.0, is_there);
    }

    /// Sleeps until bytes are read, unless `is_there` finds room. May wake spuriously.
    pub(crate) fn sleep_for_room(&self, is_there: impl Fn() -> bool) {
        sleep(&self.writer.0, is_there);
    }

    /// The reader starts polling.
    pub(crate) fn look(&self) {
        let word = &self.reader.0;
        if word.load(Ordering::Relaxed) != AWAKE {
            word.store(AWAKE, Ordering::Relaxed);
        }
    }

    /// Ends polling: the thread in [`Head::sleep_for_bytes`] is woken for bytes again, at once if there are some.
    pub(crate) fn look_no_more(&self, has_some: impl Fn() -> bool) {
        let word = &self.reader.0;
        word.store(ASLEEP, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        if has_some() {
            wake(word);
        }
    }

    /// The reader leaves, unless there are bytes. Returns whether it has left.
    pub(crate) fn leave(&self, has_some: impl Fn() -> bool) -> bool {
        self.reader.0.store(AWAY, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // If it cannot come back, the deputy has been woken.
        !(has_some() && self.come_back())
    }

    /// Returns whether the caller reads again; if not, the deputy does.
    pub(crate) fn come_back(&self) -> bool {
        self.reader.0.compare_exchange(AWAY, AWAKE, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Ends one [`Head::wait_as_deputy`].
    pub(crate) fn wake_deputy(&self) {
        // Not a store: with swaps only, the model checker knows the order.
        self.deputy.0.swap(1, Ordering::SeqCst);
        futex_wake(&self.deputy.0);
    }

    /// Sleeps until it is the caller's turn to read as the deputy.
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

/// Sleeps on `word`, unless `is_there` finds something.
fn sleep(word: &AtomicU32, is_there: impl Fn() -> bool) {
    word.store(ASLEEP, Ordering::SeqCst);
    fence(Ordering::SeqCst);
    if is_there() {
        word.store(AWAKE, Ordering::SeqCst);
        return;
    }
    futex_wait(word, ASLEEP);
}
