//! The lock of what is also run under a model checker, which replaces this module by its own.

use std::sync::{MutexGuard, PoisonError};

/// A lock without poisoning: nothing panics while one is held.
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(std::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
