//! [`Patience`]: how a member waits for others: it spins, yields, then sleeps for longer and longer, and looks now and then whether they are alive.

use std::time::{Duration, Instant};

/// Number of rounds without a pause, enough for a partner on another core that is about to answer.
const SPINS: u32 = 100;
/// Number of rounds that give way to other threads, which may be the partner.
const YIELDS: u32 = 200;
/// Longest pause.
const LONGEST: Duration = Duration::from_millis(1);
/// Interval at which it is checked whether the others are alive.
const CHECK: Duration = Duration::from_millis(5);

pub(crate) struct Patience {
    rounds: u32,
    since: Instant,
    checked: Instant,
}

impl Patience {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self { rounds: 0, since: now, checked: now }
    }

    /// Begins anew, after progress.
    pub(crate) fn reset(&mut self) {
        if self.rounds > 0 {
            (self.rounds, self.since) = (0, Instant::now());
        }
    }

    /// Pauses. Returns whether it is time to check on the others.
    pub(crate) fn pause(&mut self) -> bool {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds < SPINS {
            std::hint::spin_loop();
            return false;
        }
        if self.rounds < YIELDS {
            std::thread::yield_now();
            return false;
        }
        let longer = 1 << ((self.rounds - YIELDS) / 16).min(6);
        std::thread::sleep((Duration::from_micros(20) * longer).min(LONGEST));
        self.is_due()
    }

    /// Gives way to other threads, and sleeps when the wait is long. Does not count as a look at the others.
    pub(crate) fn rest(&self) {
        match self.since.elapsed() < CHECK {
            true => std::thread::yield_now(),
            false => std::thread::sleep(Duration::from_micros(50)),
        }
    }

    /// Whether it is time to check on the others, without a pause.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let due = now.duration_since(self.checked) >= CHECK;
        if due {
            self.checked = now;
        }
        due
    }

    /// Whether there has been no progress for this long.
    pub(crate) fn is_over(&self, timeout: Duration) -> bool {
        self.since.elapsed() >= timeout
    }
}
