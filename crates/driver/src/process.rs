//! [`Process`]: identifies the process that created an object; [`PerProcess`]: a global that each process initializes for itself.
//!
//! After `fork` a child has the parent's memory and one thread. Threads of drivers do not exist in it, and locks that they held
//! remain held. Objects of the parent are therefore invalid in the child, which their [`Process`] detects; globals are created
//! again ([`PerProcess`]).
//!
//! On Linux a process is identified by a counter that each child of `fork(3)` increments (`pthread_atfork`, POSIX.1-2017), so
//! that a test costs one load; elsewhere by its process ID. A child created without the C library (`clone(2)`) is not detected.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{Error, Result};

/// Identifies the process that created an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The current process.
    #[inline]
    pub fn this() -> Self {
        Self(number::this())
    }

    /// Whether it is the current process.
    #[inline]
    pub fn is_this(self) -> bool {
        self == Self::this()
    }

    /// Rejects `what`, a use of an object of another process.
    ///
    /// # Errors
    /// `DeviceLost` if this process is a child of the one that created the object.
    #[inline]
    pub fn expect_this(self, what: &dyn std::fmt::Display) -> Result<()> {
        if self.is_this() { Ok(()) } else { Err(Self::other(what)) }
    }

    #[cold]
    fn other(what: &dyn std::fmt::Display) -> Error {
        Error::DeviceLost(format!(
            "{what}: the device was created before this process ({}) was forked, and its threads do not exist here; create a \
             new device, with its own buffers, kernels and streams",
            std::process::id()
        ))
    }
}

#[cfg(target_os = "linux")]
mod number {
    use std::sync::Once;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// Number of forks between the process that initialized the counter and this one.
    static FORKS: AtomicU32 = AtomicU32::new(0);
    static COUNTED: Once = Once::new();

    #[inline]
    pub(super) fn this() -> u32 {
        if !COUNTED.is_completed() {
            COUNTED.call_once(count);
        }
        FORKS.load(Ordering::Relaxed)
    }

    #[cold]
    #[allow(unsafe_code)] // calls a function of the C library
    fn count() {
        extern "C" fn in_child() {
            FORKS.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: the handler is async-signal-safe: it changes an atomic. If the registration fails for lack of memory, forks are
        // not detected.
        let _registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

#[cfg(not(target_os = "linux"))]
mod number {
    pub(super) fn this() -> u32 {
        std::process::id()
    }
}

/// A global that each process initializes on first use, without a lock that another thread could hold at a fork. The parent's
/// value remains in the child's memory.
pub struct PerProcess<T: 'static> {
    made: AtomicPtr<(Process, T)>,
    make: fn() -> T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// Creates an uninitialized global. `make` may be called by several threads concurrently; the first result is kept.
    pub const fn new(make: fn() -> T) -> Self {
        Self { made: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// The value of this process; initializes it on first use.
    #[allow(unsafe_code)] // an address that is shared
    pub fn get(&'static self) -> &'static T {
        let this = Process::this();
        // SAFETY: a published value is initialized and never freed.
        let of = |made: *mut (Process, T)| unsafe { made.as_ref() }.filter(|(process, _)| *process == this);
        let mut seen = self.made.load(Ordering::Acquire);
        if let Some((_, known)) = of(seen) {
            return known;
        }
        let mine = Box::into_raw(Box::new((this, (self.make)())));
        loop {
            match self.made.compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: allocated above and now published, so never freed.
                Ok(_) => return unsafe { &(*mine).1 },
                Err(other) => match of(other) {
                    Some((_, known)) => {
                        // SAFETY: allocated above and not published.
                        drop(unsafe { Box::from_raw(mine) });
                        return known;
                    }
                    None => seen = other,
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::Mutex;

    #[test]
    fn a_process_is_itself() {
        let this = Process::this();
        assert!(this.is_this() && this.expect_this(&"a launch").is_ok());
        let text = Process(this.0 + 1).expect_this(&"a launch").unwrap_err().to_string();
        assert!(text.contains("a launch") && text.contains("fork") && text.contains("new device"), "{text}");
    }

    #[test]
    fn threads_that_are_first_together_have_one() {
        static ONE: PerProcess<Mutex<u32>> = PerProcess::new(|| Mutex::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| *ONE.get().lock() += 1);
            }
        });
        assert_eq!(*ONE.get().lock(), 8);
    }

    /// `cargo test --release -p elinvar-driver --lib -- --ignored --nocapture look_timed`.
    #[test]
    #[ignore = "a measurement"]
    fn look_timed() {
        const LOOKS: u32 = 10_000_000;
        let made = Process::this();
        let start = std::time::Instant::now();
        for _ in 0..LOOKS {
            assert!(std::hint::black_box(made).is_this());
        }
        println!("{:.2} ns for a look", start.elapsed().as_nanos() as f64 / f64::from(LOOKS));
    }
}
