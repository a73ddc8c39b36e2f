//! [`Doorbell`]: wakes the threads of resident kernels that have found nothing to do.
//!
//! An event count: a thread that is about to sleep takes a [ticket](Doorbell::enter), looks for work once more, and sleeps unless the bell was rung
//! since. Ringing is cheap while nobody is about to sleep. The model of `verify/models` shows that no work is missed.

use std::sync::Arc;
use std::time::Duration;

use crate::sync::{AtomicU64, Condvar, Mutex, Ordering, fence};

/// A sleep without a limit is resumed after this time.
const HOUR: Duration = Duration::from_secs(3600);

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
pub struct Doorbell {
    /// Number of threads between [`Doorbell::enter`] and [`Doorbell::leave`].
    waiting: AtomicU64,
    /// Number of rings that somebody may have waited for.
    rings: Mutex<u64>,
    rung: Condvar,
}

impl Default for Doorbell {
    fn default() -> Self {
        Self { waiting: AtomicU64::new(0), rings: Mutex::new(0), rung: Condvar::default() }
    }
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
            if self.rung.wait_for(&mut rings, most.unwrap_or(HOUR)).timed_out() && most.is_some() {
                return;
            }
        }
    }

    /// Ends what [`Doorbell::enter`] has begun.
    pub fn leave(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
