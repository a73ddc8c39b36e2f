//! Model of a pipe's heads: sleepers are woken, and each byte is read once, in every interleaving.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

use crate::head_source::Head;
use crate::model;

/// A pipe of one byte.
#[derive(Default)]
struct Pipe {
    head: Head,
    /// The reader's position; one thread reads at a time.
    at: AtomicU64,
    reads: AtomicBool,
    ended: AtomicBool,
}

impl Pipe {
    fn has_some(&self) -> bool {
        self.head.written() != self.at.load(Ordering::Relaxed)
    }

    /// Reads what is available; returns whether there was any.
    fn read(&self) -> bool {
        assert!(!self.reads.swap(true, Ordering::SeqCst), "two threads read");
        let (at, written) = (self.at.load(Ordering::Relaxed), self.head.written());
        if at != written {
            self.at.store(written, Ordering::Relaxed);
            self.head.set_read(written);
        }
        self.reads.store(false, Ordering::SeqCst);
        at != written
    }

    /// Reads, and sleeps until data is available.
    fn read_some(&self) {
        while !self.read() {
            self.head.sleep_for_bytes(|| self.has_some());
        }
    }

    fn write(&self, written: u64) {
        while self.head.read() + 1 != written {
            self.head.sleep_for_room(|| self.head.read() + 1 == written);
        }
        self.head.set_written(written);
    }
}

/// loom reports a lost wake-up as a deadlock.
#[test]
fn both_ends_are_woken() {
    model(|| {
        let pipe = Arc::new(Pipe::default());
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || [1, 2].into_iter().for_each(|written| pipe.write(written))
        });
        pipe.read_some();
        pipe.read_some();
        writer.join().unwrap();
        assert_eq!(pipe.at.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn one_of_two_reads_what_comes_while_the_reader_is_away() {
    model(|| {
        let pipe = Arc::new(Pipe::default());
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || pipe.head.set_written(1)
        });
        let deputy = thread::spawn({
            let pipe = pipe.clone();
            move || {
                pipe.head.wait_as_deputy();
                !pipe.ended.load(Ordering::SeqCst) && pipe.read()
            }
        });
        let leads = !pipe.head.leave(|| pipe.has_some()) || pipe.head.come_back();
        if leads {
            pipe.read_some();
            pipe.ended.store(true, Ordering::SeqCst);
            pipe.head.wake_deputy();
        }
        assert_eq!(deputy.join().unwrap(), !leads, "nobody was to read in its place, or nobody has");
        writer.join().unwrap();
        assert_eq!(pipe.at.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_reader_does_not_leave_bytes_that_nobody_reads() {
    model(|| {
        let pipe = Arc::new(Pipe::default());
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || pipe.head.set_written(1)
        });
        let deputy = thread::spawn({
            let pipe = pipe.clone();
            move || {
                pipe.head.wait_as_deputy();
                pipe.ended.load(Ordering::SeqCst) || pipe.read()
            }
        });
        // A reader that has left does not return.
        if !pipe.head.leave(|| pipe.has_some()) {
            assert!(pipe.read());
            pipe.ended.store(true, Ordering::SeqCst);
            pipe.head.wake_deputy();
        }
        assert!(deputy.join().unwrap(), "woken without bytes");
        writer.join().unwrap();
        assert_eq!(pipe.at.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_reader_that_has_looked_by_itself_is_woken_again() {
    model(|| {
        let pipe = Arc::new(Pipe::default());
        let sleeper = thread::spawn({
            let pipe = pipe.clone();
            move || {
                while !pipe.ended.load(Ordering::SeqCst) && !pipe.has_some() {
                    pipe.head.sleep_for_bytes(|| pipe.has_some() || pipe.ended.load(Ordering::SeqCst));
                }
            }
        });
        let writer = thread::spawn({
            let pipe = pipe.clone();
            move || pipe.head.set_written(1)
        });
        pipe.head.look();
        pipe.head.look_no_more(|| pipe.has_some());
        writer.join().unwrap();
        sleeper.join().unwrap();
    });
}
