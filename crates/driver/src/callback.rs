//! [`Callback`]: marks threads that run a callback of the program, where waits for work are errors.
//!
//! Wakers, destructors of host memory imported by a buffer, and [`crate::Done`] run on threads that complete work: a worker, a
//! driver's polling thread, a thread of the system. A callback that waits could wait for work that its own thread has yet to
//! complete. Callbacks are therefore marked, and a wait that would block in one is an error.

use std::cell::Cell;
use std::marker::PhantomData;

use crate::{Error, Result};

thread_local! {
    /// Callbacks that this thread is in, one within another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Marks this thread as running a callback until it is dropped. Held around calls of the program's code on threads of a driver or
/// the runtime.
#[must_use = "dropping it ends the callback"]
pub struct Callback {
    /// Not to be sent to another thread.
    this_thread: PhantomData<*const ()>,
}

impl Callback {
    /// Marks this thread. Callbacks may nest.
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self { this_thread: PhantomData }
    }

    /// Whether this thread runs a callback.
    pub fn is_running() -> bool {
        DEPTH.get() > 0
    }

    /// Rejects `what`, which is about to block, in a callback.
    ///
    /// # Errors
    /// `WouldDeadlock` if this thread runs a callback.
    pub fn expect_none(what: &str) -> Result<()> {
        if !Self::is_running() {
            return Ok(());
        }
        Err(Error::WouldDeadlock(format!(
            "{what}: this thread runs a callback (a waker, or the destructor of a buffer's memory) and pending work may need it; wait \
             on another thread, or `await` the completion in a task"
        )))
    }
}

impl Drop for Callback {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Event as _, Timeline, end_submission};

    #[test]
    fn it_lasts_as_long_as_the_outermost() {
        assert!(!Callback::is_running() && Callback::expect_none("a wait").is_ok());
        let outer = Callback::enter();
        drop(Callback::enter());
        let text = Callback::expect_none("a wait").unwrap_err().to_string();
        assert!(text.contains("would deadlock: a wait: this thread runs a callback"), "{text}");
        assert!(!std::thread::spawn(Callback::is_running).join().unwrap(), "another thread is in none");
        drop(outer);
        assert!(!Callback::is_running());
    }

    #[test]
    fn ends_and_events_call_back() {
        let event: Arc<Timeline> = Arc::default();
        event.when(1, Box::new(|_| assert!(Callback::is_running())));
        event.signal(1, 0);
        event.when(2, Box::new(|_| assert!(Callback::is_running())));
        event.fail(&Error::Cancelled);
        let (sender, told) = std::sync::mpsc::channel();
        let done = crate::Done::new(move |_| sender.send(Callback::is_running()).unwrap());
        end_submission(Arc::new([]), done, Ok(crate::Timing::default()));
        assert!(told.recv().unwrap() && !Callback::is_running());
        // One that panics has ended, too.
        end_submission(
            Arc::new([]),
            crate::Done::new(|_| panic!("a callback of a test")),
            Err(Error::Cancelled),
        );
        assert!(!Callback::is_running());
    }
}
