//! The checker's locks in the form of those that the crate uses.

pub use loom::sync::MutexGuard;

/// A lock without poisoning.
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().expect("no model panics with a lock held")
    }
}

/// What threads wait at.
#[derive(Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).expect("no model panics with a lock held")
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}
