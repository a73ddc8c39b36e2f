//! Locks with the standard library's interface, compiled with the program. ThreadSanitizer does not instrument the standard
//! library: it would not see that its locks are taken, and would report races of what they guard.

use std::sync::{LockResult, TryLockError, TryLockResult};
use std::time::Duration;

pub(super) use parking_lot::{MutexGuard, RwLockReadGuard, RwLockWriteGuard};

#[derive(Default)]
pub(super) struct Mutex<T>(parking_lot::Mutex<T>);

impl<T> Mutex<T> {
    pub(super) const fn new(value: T) -> Self {
        Self(parking_lot::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        Ok(self.0.lock())
    }

    pub(super) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        self.0.try_lock().ok_or(TryLockError::WouldBlock)
    }

    pub(super) fn get_mut(&mut self) -> LockResult<&mut T> {
        Ok(self.0.get_mut())
    }
}

#[derive(Default)]
pub(super) struct Condvar(parking_lot::Condvar);

impl Condvar {
    pub(super) const fn new() -> Self {
        Self(parking_lot::Condvar::new())
    }

    pub(super) fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.0.wait(&mut guard);
        Ok(guard)
    }

    pub(super) fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, parking_lot::WaitTimeoutResult)> {
        let result = self.0.wait_for(&mut guard, timeout);
        Ok((guard, result))
    }

    pub(super) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(super) fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[derive(Default)]
pub(super) struct RwLock<T>(parking_lot::RwLock<T>);

impl<T> RwLock<T> {
    pub(super) fn read(&self) -> LockResult<RwLockReadGuard<'_, T>> {
        Ok(self.0.read())
    }

    pub(super) fn write(&self) -> LockResult<RwLockWriteGuard<'_, T>> {
        Ok(self.0.write())
    }
}
