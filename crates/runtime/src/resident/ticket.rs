//! [`Ticket`]: the completion of an item.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use elinvar_driver::{Callback, Result};

use super::persistent_kernel::Shared;
use super::watch;

/// How long a waiting thread spins before it sleeps between polls: the device cannot wake it.
const SPIN: Duration = Duration::from_micros(200);
/// Part of that time in which it does not yield.
const ALONE: Duration = Duration::from_micros(20);
/// Longest sleep between polls.
const NAP: Duration = Duration::from_millis(1);

/// The completion of an item that was submitted to a [`PersistentKernel`](crate::PersistentKernel). Dropping it does not affect the item.
pub struct Ticket<R> {
    pub(super) shared: Arc<Shared>,
    pub(super) number: u64,
    pub(super) submitted: Instant,
    /// Whether a task may be waiting for it.
    pub(super) is_awaited: bool,
    pub(super) result: PhantomData<fn() -> R>,
}

impl<R: Pod> Ticket<R> {
    /// The item's number, from 0, in the order of submission; `inbox.number()` in the kernel.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The result, if the item is complete.
    ///
    /// # Errors
    /// As [`Ticket::wait`].
    pub fn poll(&self) -> Result<Option<R>> {
        match self.shared.poll(self.number)? {
            Some(bytes) => Ok(Some(bytemuck::pod_read_unaligned(&bytes))),
            None => Ok(None),
        }
    }

    /// Waits for the item and returns its result.
    ///
    /// # Errors
    /// `Timeout`, with the kernel and the items that it was processing, if the item is not complete within the kernel's deadline from its
    /// submission on: the kernel is then stopped, where the device can; `Cancelled` if the kernel was stopped before it took the item;
    /// otherwise the error in which the kernel ended, with these items. `WouldDeadlock` in a callback.
    pub fn wait(self) -> Result<R> {
        let deadline = self.submitted + self.shared.deadline;
        let begin = Instant::now();
        let mut nap = Duration::from_micros(20);
        loop {
            // Without the lock.
            if self.shared.may_be_over(self.number)
                && let Some(result) = self.poll()?
            {
                return Ok(result);
            }
            let now = Instant::now();
            let waited = now - begin;
            if waited < ALONE {
                std::hint::spin_loop();
                continue;
            }
            Callback::expect_none("Ticket::wait")?;
            if now > deadline {
                return Err(self.shared.hang(self.number));
            }
            if waited < SPIN {
                std::thread::yield_now();
            } else {
                std::thread::sleep(nap);
                nap = (nap * 2).min(NAP);
            }
        }
    }
}

/// `ticket.await` is the result, as [`Ticket::wait`] returns it. Between polls a thread of the process looks whether the item is complete, at first
/// after 20 µs, at last every millisecond.
impl<R: Pod> Future for Ticket<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let (shared, number) = (self.shared.clone(), self.number);
        let deadline = self.submitted + shared.deadline;
        if let Some(result) = Self::poll(&self).transpose() {
            return Poll::Ready(result);
        }
        if Instant::now() > deadline {
            return Poll::Ready(Err(shared.hang(number)));
        }
        self.is_awaited = true;
        match watch::wake(&shared, number, deadline, context.waker().clone()) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl<R> Drop for Ticket<R> {
    fn drop(&mut self) {
        if self.is_awaited {
            watch::forget(&self.shared, self.number);
        }
        self.shared.forget(self.number);
    }
}

impl<R> fmt::Debug for Ticket<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({} of {})", self.number, self.shared.name)
    }
}
