//! The locks of what is also run under a model checker, which replaces this module by its own.

pub(crate) use elinvar_driver::sync::{Mutex, MutexGuard};

/// What threads wait at for a change of what a lock guards.
#[derive(Default)]
pub(crate) struct Condvar(elinvar_driver::sync::Condvar);

impl Condvar {
    /// Waits for [`Condvar::notify_all`], without the lock; it may also return before.
    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
