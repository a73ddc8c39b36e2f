//! Locks of code that is also run under a model checker, which replaces this module.

pub(crate) use elinvar_driver::sync::{Mutex, MutexGuard};

/// A condition variable.
#[derive(Default)]
pub(crate) struct Condvar(elinvar_driver::sync::Condvar);

impl Condvar {
    /// Releases the lock and waits for [`Condvar::notify_all`], then locks again. May wake spuriously.
    pub(crate) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(&mut guard);
        guard
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}
