//! [`Process`]: which process something was made in, and [`PerProcess`]: what each process makes anew.
//!
//! After `fork` a child has the parent's memory and one thread. Threads of drivers are not in it, nor what they were about to do, and
//! locks that they held stay held. What was made before is therefore of no use in the child, and known by its [`Process`]; what
//! is global is made again ([`PerProcess`]).
//!
//! On Linux a process is told apart by a count that grows in each child of `fork(3)` (`pthread_atfork`, POSIX.1-2017), which costs one
//! load to look at; elsewhere by its number. A child that is made without the C library (`clone(2)`) is not noticed.

use std::sync::atomic::{AtomicPtr, Ordering};

use crate::{Error, Result};

/// A process, as what was made in it remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// This one.
    #[inline]
    pub fn this() -> Self {
        Self(number::this())
    }

    /// Whether it is this one.
    #[inline]
    pub fn is_this(self) -> bool {
        self == Self::this()
    }

    /// To be called before `what` uses something that was made in it.
    ///
    /// # Errors
    /// `DeviceLost` in a child of it.
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

    /// How many forks this process is away from the one that first asked.
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
        // SAFETY: the function does only what it may in a child: it changes an atomic. If it cannot be had for want of memory, a child
        // is taken for its parent, which is as without it.
        let _registered = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    }
}

#[cfg(not(target_os = "linux"))]
mod number {
    pub(super) fn this() -> u32 {
        std::process::id()
    }
}

/// A global that each process makes when it first asks for it, without a lock that another thread could hold at a fork. What the
/// parent had stays in the child's memory.
pub struct PerProcess<T: 'static> {
    made: AtomicPtr<(Process, T)>,
    make: fn() -> T,
}

impl<T: Send + Sync> PerProcess<T> {
    /// `make` may be called by several threads that are first at a time, of which one's is taken.
    pub const fn new(make: fn() -> T) -> Self {
        Self { made: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// This process's.
    #[allow(unsafe_code)] // an address that is shared
    pub fn get(&'static self) -> &'static T {
        let this = Process::this();
        // SAFETY: what is published here is whole, and never freed.
        let of = |made: *mut (Process, T)| unsafe { made.as_ref() }.filter(|(process, _)| *process == this);
        let mut seen = self.made.load(Ordering::Acquire);
        if let Some((_, known)) = of(seen) {
            return known;
        }
        let mine = Box::into_raw(Box::new((this, (self.make)())));
        loop {
            match self.made.compare_exchange(seen, mine, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: made above, and never freed from now on.
                Ok(_) => return unsafe { &(*mine).1 },
                Err(other) => match of(other) {
                    Some((_, known)) => {
                        // SAFETY: made above, and nobody else has its address.
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
