//! [`Breaker`]: stops giving work to a device that fails again and again.
//!
//! It is closed, and everything is admitted; open, and nothing is, for a while; half-open, and one piece of work, the
//! *probe*, is out to find out; or terminal, for a device that the process cannot get back. How a probe ends decides what comes
//! next. A device that fails soon after it was taken back stays away for twice as long each time.
//!
//! Invariants: at most one probe is out; what was admitted before the last change of state changes nothing. Time is an
//! argument, and nothing here waits.

use std::time::{Duration, Instant};

use elinvar_driver::Error;

use crate::locks::Mutex;

/// Whether a device is given work by streams that recover.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum BreakerState {
    /// It is.
    Closed,
    /// Not before this moment.
    Open {
        /// When one piece of work is tried.
        until: Instant,
    },
    /// One piece of work is out, and decides.
    HalfOpen,
    /// Never, unless it is reset.
    Terminal(Error),
}

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerLimits {
    /// So many failures in a row open it, at least one. At first 5.
    pub failures: u32,
    /// How long it is open the first time. At first a second. It doubles each time that it opens again, until as much work
    /// in a row as `failures` has ended well.
    pub cooldown: Duration,
    /// How long it is open at most. At first a minute.
    pub longest: Duration,
}

impl Default for BreakerLimits {
    fn default() -> Self {
        Self { failures: 5, cooldown: Duration::from_secs(1), longest: Duration::from_secs(60) }
    }
}

/// What a breaker knows of its device that another process can use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BreakerMemory {
    /// Failures since the last that ended well.
    pub failures: u32,
    /// How often it has opened since it was last trusted.
    pub trips: u32,
    /// How long it is yet to be open; zero if it is not.
    pub open_for: Duration,
}

/// How admitted work ended, as the device's fault or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    Bad,
    /// It says nothing of the device.
    Neutral,
}

/// Leave to give the device one piece of work, to be handed back with how it ended.
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
    /// Counts changes of state.
    era: u64,
    /// Since the last that ended well.
    failures: u32,
    /// In a row, while closed.
    successes: u32,
    /// How often it has opened since it was last trusted.
    trips: u32,
}

impl Breaker {
    pub(crate) fn new() -> Self {
        let (limits, state) = (BreakerLimits::default(), BreakerState::Closed);
        Self { inner: Mutex::new(Inner { limits, state, era: 0, failures: 0, successes: 0, trips: 0 }) }
    }

    /// What it is now.
    pub fn state(&self) -> BreakerState {
        self.inner.lock().state.clone()
    }

    /// When it opens, and for how long.
    pub fn limits(&self) -> BreakerLimits {
        self.inner.lock().limits
    }

    /// Change when it opens, and for how long from the next time on.
    pub fn set_limits(&self, limits: BreakerLimits) {
        self.inner.lock().limits = limits;
    }

    /// How often it has opened since it was last trusted: since as much work in a row as opens it has ended well.
    pub fn trips(&self) -> u32 {
        self.inner.lock().trips
    }

    /// What is worth to be kept for another process. That the device is lost is not: another may well get it.
    pub fn memory(&self, now: Instant) -> BreakerMemory {
        let inner = self.inner.lock();
        let open_for = match &inner.state {
            BreakerState::Open { until } => until.saturating_duration_since(now),
            _ => Duration::ZERO,
        };
        BreakerMemory { failures: inner.failures, trips: inner.trips, open_for }
    }

    /// Take over what another process knew, as long as this one knows nothing of its own. It opens for no longer than its
    /// limits allow.
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

    /// Leave for one piece of work.
    ///
    /// # Errors
    /// `Refused` with the reason; `DeviceLost` once it is terminal.
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
                "it has failed {} times in a row and is tried again in {:?}",
                inner.failures,
                *until - now
            )),
            BreakerState::HalfOpen => {
                refused("it has failed before, and one piece of work is out to try it".into())
            }
            BreakerState::Terminal(cause) => Err(cause.clone()),
        }
    }

    /// Hand a permit back.
    pub(crate) fn settle(&self, permit: Permit, verdict: Verdict, now: Instant) {
        let mut inner = self.inner.lock();
        if permit.era != inner.era {
            return;
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
    }

    /// The process cannot get the device back.
    pub(crate) fn lose(&self, cause: &Error) {
        let mut inner = self.inner.lock();
        if !matches!(inner.state, BreakerState::Terminal(_)) {
            inner.change(BreakerState::Terminal(cause.clone()));
        }
    }

    /// The device was reset. How often it has opened is not forgotten.
    pub(crate) fn restore(&self) {
        let mut inner = self.inner.lock();
        inner.failures = 0;
        inner.change(BreakerState::Closed);
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
        // Beyond what the clock can say is as good as for a day.
        let until = now.checked_add(pause).unwrap_or(now + Duration::from_secs(86_400));
        self.change(BreakerState::Open { until });
    }
}

impl std::fmt::Debug for Breaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Breaker({:?})", self.state())
    }
}
