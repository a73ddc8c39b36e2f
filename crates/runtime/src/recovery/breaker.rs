//! [`Breaker`]: a circuit breaker that blocks work for a device that fails repeatedly.
//!
//! States: *closed*, all work is admitted; *open*, none is admitted until the cooldown has passed; *half-open*, one work item, the
//! *probe*, is admitted, and its result closes or reopens the breaker; *terminal*, the process cannot get the device back. The
//! cooldown doubles each time that the breaker reopens before enough work has succeeded.
//!
//! Invariants: there is at most one probe; the result of work that was admitted before the last state change is ignored. Time is
//! passed as an argument; nothing here blocks.

use std::time::{Duration, Instant};

use elinvar_driver::Error;

use crate::locks::Mutex;

/// State of a device's circuit breaker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BreakerState {
    /// All work is admitted.
    Closed,
    /// No work is admitted until the cooldown has passed.
    Open {
        /// End of the cooldown, after which a probe is admitted.
        until: Instant,
    },
    /// A probe is running.
    HalfOpen,
    /// No work is admitted until the device is reset.
    Terminal(Error),
}

impl BreakerState {
    /// Lower-case name, with underscores.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open { .. } => "open",
            Self::HalfOpen => "half_open",
            Self::Terminal(_) => "terminal",
        }
    }
}

/// Limits of a breaker: when it opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// Number of consecutive failures that open the breaker, at least 1. Default: 5.
    pub failures: u32,
    /// Initial cooldown. Default: 1 s. It doubles each time that the breaker opens, and is reset after `failures` consecutive
    /// successes.
    pub cooldown: Duration,
    /// Maximum cooldown. Default: 60 s.
    pub longest: Duration,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures: 5, cooldown: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// State of a breaker that can be saved for another process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerMemory {
    /// Number of failures since the last success.
    pub failures: u32,
    /// Number of times that the breaker has opened since [`BreakerLimits::failures`] consecutive successes.
    pub trips: u32,
    /// Remaining cooldown; zero if the breaker is not open.
    pub open_for: Duration,
}

/// Result of admitted work, as evidence about the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// No evidence about the device.
    Neutral,
}

/// Permission to submit one work item to the device; returned with the result.
#[derive(Debug)]
pub(crate) struct Permit {
    era: u64,
    pub(crate) probe: bool,
}

/// The breaker of a device.
pub struct Breaker {
    inner: Mutex<Inner>,
}

struct Inner {
    limits: BreakerLimits,
    state: BreakerState,
    /// Number of state changes.
    era: u64,
    /// Failures since the last success.
    failures: u32,
    /// Consecutive successes while closed.
    successes: u32,
    /// Number of times that it has opened since enough consecutive successes.
    trips: u32,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        let (limits, state) = (BreakerLimits::default(), BreakerState::Closed);
        Self { inner: Mutex::new(Inner { limits, state, era: 0, failures: 0, successes: 0, trips: 0 }) }
    }

    /// The current state.
    pub fn state(&self) -> BreakerState {
        self.inner.lock().state.clone()
    }

    /// The limits.
    pub fn limits(&self) -> BreakerLimits {
        self.inner.lock().limits
    }

    /// Set the limits. A cooldown that is running is not changed.
    pub fn set_limits(&self, limits: BreakerLimits) {
        self.inner.lock().limits = limits;
    }

    /// Number of times that the breaker has opened since [`BreakerLimits::failures`] consecutive successes.
    pub fn trips(&self) -> u32 {
        self.inner.lock().trips
    }

    /// The state to save for another process. It does not include the loss of the device, because another process may be able to use
    /// the device.
    pub fn memory(&self, now: Instant) -> BreakerMemory {
        let inner = self.inner.lock();
        let open_for = match &inner.state {
            BreakerState::Open { until } => until.saturating_duration_since(now),
            _ => Duration::ZERO,
        };
        BreakerMemory { failures: inner.failures, trips: inner.trips, open_for }
    }

    /// Restore a state that another process saved. Ignored if this breaker has already seen work or a state change. The remaining
    /// cooldown is limited to [`BreakerLimits::longest`].
    pub fn remember(&self, memory: BreakerMemory, now: Instant) {
        let mut inner = self.inner.lock();
        if inner.era > 0 || inner.failures > 0 || inner.successes > 0 {
            return;
        }
        (inner.failures, inner.trips) = (memory.failures, memory.trips);
        let open_for = memory.open_for.min(inner.limits.longest);
        if let Some(until) = now.checked_add(open_for).filter(|_| !open_for.is_zero()) {
            inner.change(BreakerState::Open { until });
        }
    }

    /// Requests a permit for one work item.
    ///
    /// # Errors
    /// `Refused` with the reason while open or half-open; the cause if terminal.
    pub(crate) fn admit(&self, now: Instant) -> Result<Permit, Error> {
        let mut inner = self.inner.lock();
        let refused = |why: String| Err(Error::Refused(why));
        match &inner.state {
            BreakerState::Closed => Ok(Permit { era: inner.era, probe: false }),
            BreakerState::Open { until } if *until <= now => {
                let era = inner.change(BreakerState::HalfOpen);
                Ok(Permit { era, probe: true })
            }
            BreakerState::Open { until } => refused(format!(
                "{} consecutive failures; the next attempt is in {:?}",
                inner.failures,
                *until - now
            )),
            BreakerState::HalfOpen => refused("it has failed repeatedly, and a probe is running".into()),
            BreakerState::Terminal(cause) => Err(cause.clone()),
        }
    }

    /// Returns a permit with the result of its work. Returns the new state if that changes it.
    pub(crate) fn settle(&self, permit: Permit, verdict: Verdict, now: Instant) -> Option<BreakerState> {
        let mut inner = self.inner.lock();
        if permit.era != inner.era {
            return None;
        }
        match (permit.probe, verdict) {
            (true, Verdict::Neutral) => drop(inner.change(BreakerState::Open { until: now })),
            (false, Verdict::Neutral) => {}
            (probe, Verdict::Good) => {
                inner.failures = 0;
                if probe {
                    inner.change(BreakerState::Closed);
                }
                inner.successes = inner.successes.saturating_add(1);
                if inner.successes >= inner.limits.failures {
                    inner.trips = 0;
                }
            }
            (probe, Verdict::Bad) => {
                inner.failures = inner.failures.saturating_add(1);
                inner.successes = 0;
                if probe || inner.failures >= inner.limits.failures {
                    inner.open(now);
                }
            }
        }
        (permit.era != inner.era).then(|| inner.state.clone())
    }

    /// Makes the breaker terminal: the process cannot get the device back. Returns whether it was not.
    pub(crate) fn lose(&self, cause: &Error) -> bool {
        let mut inner = self.inner.lock();
        let is_new = !matches!(inner.state, BreakerState::Terminal(_));
        if is_new {
            inner.change(BreakerState::Terminal(cause.clone()));
        }
        is_new
    }

    /// Closes the breaker after a reset of the device. The number of trips is kept. Returns whether it was not closed.
    pub(crate) fn restore(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.failures = 0;
        let was_closed = matches!(inner.state, BreakerState::Closed);
        inner.change(BreakerState::Closed);
        !was_closed
    }
}

impl Inner {
    /// Returns the new era.
    fn change(&mut self, state: BreakerState) -> u64 {
        self.era += 1;
        self.successes = 0;
        self.state = state;
        self.era
    }

    fn open(&mut self, now: Instant) {
        let BreakerLimits { cooldown, longest, .. } = self.limits;
        let factor = 2u32.saturating_pow(self.trips);
        self.trips = self.trips.saturating_add(1);
        let pause = cooldown.saturating_mul(factor).min(longest);
        // If the clock cannot represent the end, a day is long enough.
        let until = now.checked_add(pause).unwrap_or(now + Duration::from_secs(86_400));
        self.change(BreakerState::Open { until });
    }
}

impl std::fmt::Debug for Breaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Breaker({:?})", self.state())
    }
}
