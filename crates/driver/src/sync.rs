//! Locks without poisoning, over those of the standard library; the model checker replaces these.
//!
//! The locks have no global state. A lock whose waiting threads are in a process-wide table would keep threads of the parent in
//! that table after a `fork`; locks of a device created in the child must not be affected.

#[cfg(elinvar_thread_sanitizer)]
mod instrumented;

use std::fmt;
use std::ops::{Deref, DerefMut};
#[cfg(not(elinvar_thread_sanitizer))]
use std::sync;
use std::sync::atomic::AtomicUsize;
use std::sync::{PoisonError, TryLockError};
use std::time::{Duration, Instant};

// The model checker replaces these, too.
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

#[cfg(elinvar_thread_sanitizer)]
use instrumented as sync;

/// A cell that is initialized once.
#[cfg(elinvar_thread_sanitizer)]
pub use once_cell::sync::OnceCell as OnceLock;
#[cfg(not(elinvar_thread_sanitizer))]
pub use std::sync::OnceLock;

/// A mutual exclusion lock. It is not poisoned by a panic: code that panics while it holds the lock leaves the value consistent.
#[derive(Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// Access to the value of a locked [`Mutex`]. Dropping it unlocks.
#[must_use = "dropping it lets go of the lock"]
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None` within [`MutexGuard::unlocked`] and during a wait on a [`Condvar`].
    held: Option<sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Locks; blocks until the lock is free.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, held: Some(self.take()) }
    }

    /// Locks if the lock is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(held) => Some(MutexGuard { lock: self, held: Some(held) }),
            Err(TryLockError::Poisoned(held)) => {
                Some(MutexGuard { lock: self, held: Some(held.into_inner()) })
            }
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The value. `&mut self` excludes other holders.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut told = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(value) => told.field("value", &*value).finish(),
            None => told.finish_non_exhaustive(),
        }
    }
}

impl<'a, T> MutexGuard<'a, T> {
    /// Runs `f` with the lock released, and locks again afterwards, also if `f` panics.
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        struct Again<'g, 'a, T>(&'g mut MutexGuard<'a, T>);
        impl<T> Drop for Again<'_, '_, T> {
            fn drop(&mut self) {
                self.0.held = Some(self.0.lock.take());
            }
        }
        guard.held = None;
        let _again = Again(guard);
        f()
    }

    /// Passes the inner guard to a wait and stores the guard that it returns.
    fn through<R>(
        &mut self,
        wait: impl FnOnce(sync::MutexGuard<'a, T>) -> (sync::MutexGuard<'a, T>, R),
    ) -> R {
        let held = self.held.take().unwrap_or_else(|| self.lock.take());
        let (held, result) = wait(held);
        self.held = Some(held);
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        match &self.held {
            Some(held) => held,
            None => unreachable!("a guard is borrowed while it does not hold its lock"),
        }
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.held {
            Some(held) => held,
            None => unreachable!("a guard is borrowed while it does not hold its lock"),
        }
    }
}

/// A condition variable. Waits may wake spuriously. Whoever notifies has changed what is waited for with the lock held.
///
/// A notification that nobody waits for is free, where the standard library's is a system call.
#[derive(Default)]
pub struct Condvar {
    inner: sync::Condvar,
    /// Threads that wait. Changes under the lock of their guards, so that whoever changes what they wait for sees them.
    waiting: AtomicUsize,
}

/// Whether a timed wait has timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waited(bool);

impl Waited {
    /// Whether the wait has timed out.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Creates a condition variable.
    pub const fn new() -> Self {
        Self { inner: sync::Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// Releases the lock and blocks until notified, then locks again.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        guard.through(|held| (self.inner.wait(held).unwrap_or_else(PoisonError::into_inner), ()));
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// As [`Condvar::wait`], for at most `timeout`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> Waited {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = guard.through(|held| {
            let waited = self.inner.wait_timeout(held, timeout);
            let (held, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            (held, Waited(waited.timed_out()))
        });
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        waited
    }

    /// As [`Condvar::wait`], until `then` at the latest.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, then: Instant) -> Waited {
        self.wait_for(guard, then.saturating_duration_since(Instant::now()))
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.inner.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.inner.notify_all();
        }
    }
}

/// A reader-writer lock with recursive read locks: a waiting writer does not block new readers.
#[derive(Default)]
pub struct RwLock<T> {
    readers: Mutex<Readers>,
    changed: Condvar,
    value: sync::RwLock<T>,
}

#[derive(Default)]
struct Readers {
    reading: usize,
    writing: bool,
}

/// Shared access to the value. Dropping it unlocks.
#[must_use = "dropping it lets go of the lock"]
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    held: sync::RwLockReadGuard<'a, T>,
}

/// Exclusive access to the value. Dropping it unlocks.
#[must_use = "dropping it lets go of the lock"]
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    held: sync::RwLockWriteGuard<'a, T>,
}

impl<T> RwLock<T> {
    /// Locks for reading; blocks while there is a writer.
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let mut readers = self.readers.lock();
        while readers.writing {
            self.changed.wait(&mut readers);
        }
        readers.reading += 1;
        drop(readers);
        RwLockReadGuard { lock: self, held: self.value.read().unwrap_or_else(PoisonError::into_inner) }
    }

    /// Locks for writing; blocks while there is a reader or a writer.
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let mut readers = self.readers.lock();
        while readers.writing || readers.reading > 0 {
            self.changed.wait(&mut readers);
        }
        readers.writing = true;
        drop(readers);
        RwLockWriteGuard { lock: self, held: self.value.write().unwrap_or_else(PoisonError::into_inner) }
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        let mut readers = self.lock.readers.lock();
        readers.reading -= 1;
        if readers.reading == 0 {
            self.lock.changed.notify_all();
        }
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.readers.lock().writing = false;
        self.lock.changed.notify_all();
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.held
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.held
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_lock_is_free_while_its_guard_is_unlocked_and_after_a_panic() {
        let lock = Mutex::new(1);
        let mut guard = lock.lock();
        assert!(lock.try_lock().is_none());
        assert_eq!(MutexGuard::unlocked(&mut guard, || std::mem::replace(&mut *lock.lock(), 2)), 1);
        assert_eq!(*guard, 2);
        drop(guard);
        let panic = std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("a panic of a test");
        });
        assert!(std::panic::catch_unwind(panic).is_err());
        assert_eq!(lock.try_lock().as_deref(), Some(&2));
    }

    #[test]
    fn one_that_waits_is_woken() {
        let (lock, changed) = (Mutex::new(false), Condvar::new());
        let (sender, begun) = channel();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut is_set = lock.lock();
                sender.send(()).unwrap();
                while !*is_set {
                    if changed.wait_for(&mut is_set, Duration::from_secs(60)).timed_out() {
                        return false;
                    }
                }
                true
            });
            begun.recv().unwrap();
            // Had when the other waits.
            *lock.lock() = true;
            changed.notify_one();
            assert!(waits.join().is_ok_and(|woken| woken));
        });
        let mut is_set = lock.lock();
        while !changed.wait_for(&mut is_set, Duration::from_millis(1)).timed_out() {}
        assert_eq!(changed.waiting.load(Ordering::Relaxed), 0, "nobody waits any more");
    }

    #[test]
    fn no_notification_is_lost() {
        const TURNS: usize = 2_000;
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            for own in 0..2 {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    for _ in 0..TURNS {
                        let mut turn = turn.lock();
                        while *turn % 2 != own {
                            assert!(!changed.wait_for(&mut turn, Duration::from_secs(60)).timed_out());
                        }
                        *turn += 1;
                        drop(turn);
                        changed.notify_one();
                    }
                });
            }
        });
        assert_eq!(*turn.lock(), 2 * TURNS);
    }

    #[test]
    fn waits_end_when_notified_or_when_it_is_time() {
        let (lock, changed) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                *lock.lock() = 1;
                changed.notify_all();
            });
            let mut value = lock.lock();
            while *value == 0 {
                changed.wait(&mut value);
            }
        });
        let mut value = lock.lock();
        while !changed.wait_until(&mut value, Instant::now() + Duration::from_millis(1)).timed_out() {}
        assert!(changed.wait_until(&mut value, Instant::now()).timed_out());
        assert_eq!(*value, 1);
    }

    #[test]
    fn a_reader_may_read_again_though_somebody_is_to_write() {
        let lock = RwLock::<u32>::default();
        let (sender, begun) = channel();
        std::thread::scope(|scope| {
            let reading = lock.read();
            let lock = &lock;
            scope.spawn(move || {
                sender.send(()).unwrap();
                *lock.write() += 1;
            });
            begun.recv().unwrap();
            for _ in 0..1000 {
                assert_eq!(*lock.read(), 0);
                std::thread::yield_now();
            }
            drop(reading);
        });
        assert_eq!(*lock.read(), 1);
        let counted = RwLock::<u32>::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| *counted.write() += 1));
            }
        });
        assert_eq!(*counted.read(), 4000);
    }
}
