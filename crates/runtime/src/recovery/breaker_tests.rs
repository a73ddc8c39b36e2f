//! Single-threaded tests of the breaker; `verify/models` checks it with several threads.

use std::time::{Duration, Instant};

use elinvar_driver::Error;

use super::breaker::{Breaker, BreakerMemory, BreakerState, Permit, Verdict};

const SECOND: Duration = Duration::from_secs(1);

fn bad(breaker: &Breaker, now: Instant) {
    let permit = breaker.admit(now).unwrap();
    breaker.settle(permit, Verdict::Bad, now);
}

fn open_until(breaker: &Breaker) -> Instant {
    match breaker.state() {
        BreakerState::Open { until } => until,
        other => panic!("{other:?}"),
    }
}

#[test]
fn failures_in_a_row_open_it_and_a_probe_closes_it() {
    let (breaker, now) = (Breaker::new(), Instant::now());
    for round in 0..3 {
        (0..4).for_each(|_| bad(&breaker, now));
        let permit = breaker.admit(now).unwrap();
        breaker.settle(permit, Verdict::Good, now);
        assert!(matches!(breaker.state(), BreakerState::Closed), "round {round}: not five in a row");
    }
    (0..5).for_each(|_| bad(&breaker, now));
    let refused = breaker.admit(now + SECOND / 2).unwrap_err().to_string();
    assert_eq!(refused, "refused: 5 consecutive failures; the next attempt is in 500ms");
    let probe = breaker.admit(now + SECOND).unwrap();
    assert!(probe.probe && breaker.admit(now + 9 * SECOND).is_err(), "one at a time");
    breaker.settle(probe, Verdict::Good, now);
    assert!(!breaker.admit(now).unwrap().probe);
}

#[test]
fn it_stays_open_for_longer_when_it_flaps() {
    let (breaker, mut now) = (Breaker::new(), Instant::now());
    (0..5).for_each(|_| bad(&breaker, now));
    let mut pauses = Vec::new();
    for _ in 0..8 {
        pauses.push((open_until(&breaker) - now).as_secs());
        now = open_until(&breaker);
        let probe = breaker.admit(now).unwrap();
        breaker.settle(probe, Verdict::Good, now);
        (0..5).for_each(|_| bad(&breaker, now));
    }
    assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
    now = open_until(&breaker);
    for _ in 0..6 {
        let permit = breaker.admit(now).unwrap();
        breaker.settle(permit, Verdict::Good, now);
    }
    assert_eq!(breaker.trips(), 0, "trusted again");
    (0..5).for_each(|_| bad(&breaker, now));
    assert_eq!(open_until(&breaker) - now, SECOND);
}

#[test]
fn what_was_admitted_before_a_change_changes_nothing() {
    let (breaker, now) = (Breaker::new(), Instant::now());
    let old: Vec<Permit> = (0..6).map(|_| breaker.admit(now).unwrap()).collect();
    let mut old = old.into_iter();
    (0..5).for_each(|_| bad(&breaker, now));
    let probe = breaker.admit(now + SECOND).unwrap();
    breaker.settle(old.next().unwrap(), Verdict::Good, now);
    assert!(matches!(breaker.state(), BreakerState::HalfOpen));
    breaker.settle(probe, Verdict::Good, now);
    old.for_each(|permit| assert!(breaker.settle(permit, Verdict::Bad, now).is_none()));
    assert!(matches!(breaker.state(), BreakerState::Closed));
}

#[test]
fn a_probe_that_says_nothing_is_followed_by_another() {
    let (breaker, now) = (Breaker::new(), Instant::now());
    (0..5).for_each(|_| bad(&breaker, now));
    let probe = breaker.admit(now + SECOND).unwrap();
    breaker.settle(probe, Verdict::Neutral, now + SECOND);
    assert!(breaker.admit(now + SECOND).unwrap().probe);
}

#[test]
fn a_lost_device_is_terminal_until_it_is_reset() {
    let (breaker, now) = (Breaker::new(), Instant::now());
    let probe = breaker.admit(now).unwrap();
    breaker.lose(&Error::DeviceLost("gone".into()));
    breaker.settle(probe, Verdict::Good, now);
    let hour = Duration::from_secs(3600);
    assert_eq!(breaker.admit(now + hour).unwrap_err().to_string(), "device lost: gone");
    breaker.restore();
    assert!(breaker.admit(now).is_ok());
}

#[test]
fn another_process_goes_on_where_this_one_ended() {
    let (breaker, now) = (Breaker::new(), Instant::now());
    (0..5).for_each(|_| bad(&breaker, now));
    let later = now + SECOND / 4;
    let memory = breaker.memory(later);
    assert_eq!(memory, BreakerMemory { failures: 5, trips: 1, open_for: SECOND * 3 / 4 });
    let other = Breaker::new();
    other.remember(memory, now);
    assert!(other.admit(now + SECOND / 2).is_err());
    let probe = other.admit(now + SECOND * 3 / 4).unwrap();
    other.settle(probe, Verdict::Bad, now);
    assert_eq!(open_until(&other) - now, 2 * SECOND, "the second time in a row");
    other.remember(BreakerMemory::default(), now);
    assert_eq!(other.trips(), 2, "it knows better");
    let file_from_anywhere = BreakerMemory { open_for: Duration::MAX, ..memory };
    let other = Breaker::new();
    other.remember(file_from_anywhere, now);
    assert_eq!(open_until(&other) - now, 60 * SECOND);
}
