//! loom's locks, atomics and futexes with the interface that the crates use.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

pub use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// A mutex without poisoning.
pub struct Mutex<T>(loom::sync::Mutex<T>);

/// Access to the value of a locked [`Mutex`].
pub struct MutexGuard<'a, T> {
    /// `None` while it waits.
    held: Option<loom::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { held: Some(self.0.lock().expect("no model panics with a lock held")) }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("it does not wait")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("it does not wait")
    }
}

/// A condition variable.
#[derive(Default)]
pub struct Condvar(loom::sync::Condvar);

/// Whether a wait ended at its timeout: never, since a model must end without.
pub struct Waited;

impl Waited {
    pub fn timed_out(&self) -> bool {
        false
    }
}

impl Condvar {
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _waited = self.wait_for(&mut guard, Duration::ZERO);
        guard
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _most: Duration) -> Waited {
        let held = guard.held.take().expect("it does not wait");
        guard.held = Some(self.0.wait(held).expect("no model panics with a lock held"));
        Waited
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// Number of wake-ups of each futex word.
#[derive(Default)]
struct Futexes {
    wakes: loom::sync::Mutex<BTreeMap<usize, u64>>,
    woken: loom::sync::Condvar,
}

loom::lazy_static! {
    static ref FUTEXES: Futexes = Futexes::default();
}

/// Futex wait: sleeps until woken if the word equals `expected`.
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    let count = |wakes: &BTreeMap<usize, u64>| wakes.get(&address(word)).copied();
    let mut wakes = FUTEXES.wakes.lock().expect("no model panics with a lock held");
    let before = count(&wakes);
    if word.load(Ordering::Relaxed) != expected {
        return;
    }
    while count(&wakes) == before {
        wakes = FUTEXES.woken.wait(wakes).expect("no model panics with a lock held");
    }
}

/// Futex wake: wakes all waiters of the word.
pub fn futex_wake(word: &AtomicU32) {
    let mut wakes = FUTEXES.wakes.lock().expect("no model panics with a lock held");
    *wakes.entry(address(word)).or_default() += 1;
    FUTEXES.woken.notify_all();
}

fn address(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}
