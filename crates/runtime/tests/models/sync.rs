//! The checker's locks in the form of those that the crate uses.

/// A lock without poisoning.
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("no model panics with a lock held")
    }
}
