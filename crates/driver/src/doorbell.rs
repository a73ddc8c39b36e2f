//! [`Doorbell`]: wakes the threads of resident kernels that have found nothing to do.
//!
//! An event count: a thread that is about to sleep takes a [ticket](Doorbell::enter), looks for work once more, and sleeps unless the bell was rung
//! since. Ringing is cheap while nobody is about to sleep. The model of `verify/models` shows that no work is missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

/// How the threads of a resident kernel sleep, on a device where the host wakes them.
#[derive(Clone, Default)]
pub struct ResidentThreads {
    /// Wakes them.
    pub doorbell: Arc<Doorbell>,
    /// How long they look for work before they sleep.
    pub sleep_after: Duration,
    /// How long they sleep at most, if work may come without a ring.
    pub longest_sleep: Option<Duration>,
}

/// A doorbell.
#[derive(Default)]
pub struct Doorbell {
    /// Number of threads between [`Doorbell::enter`] and [`Doorbell::leave`].
    waiting: AtomicUsize,
    /// Number of rings that somebody may have waited for.
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Doorbell {
    /// Wakes all threads that wait. Called after the work was made visible.
    pub fn ring(&self) {
        // With the fence in `enter`: either the thread that enters finds the work, or it is seen here.
        fence(Ordering::SeqCst);
        if self.waiting.load(Ordering::Relaxed) > 0 {
            *self.rings.lock() += 1;
            self.rung.notify_all();
        }
    }

    /// Announces a thread that will wait unless it finds work. Returns a ticket for [`Doorbell::wait`].
    pub fn enter(&self) -> u64 {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        *self.rings.lock()
    }

    /// Sleeps until the bell was rung after the ticket was taken, or for `most`.
    pub fn wait(&self, ticket: u64, most: Option<Duration>) {
        let mut rings = self.rings.lock();
        while *rings == ticket {
            match most {
                None => self.rung.wait(&mut rings),
                Some(most) if self.rung.wait_for(&mut rings, most).timed_out() => return,
                Some(_) => {}
            }
        }
    }

    /// Ends what [`Doorbell::enter`] has begun.
    pub fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
