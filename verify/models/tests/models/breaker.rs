//! Model of the circuit breaker: probes, late completions and a flapping device, in every interleaving.

use std::time::{Duration, Instant};

use elinvar_driver::Error;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;

use crate::breaker_source::{Breaker, BreakerLimits, BreakerState, Verdict};
use crate::model;

/// A breaker that opens after one failure, for a pause of 0.
fn breaker() -> Arc<Breaker> {
    let breaker = Breaker::new();
    breaker.set_limits(BreakerLimits { failures: 1, cooldown: Duration::ZERO, longest: Duration::ZERO });
    Arc::new(breaker)
}

fn open(breaker: &Breaker, now: Instant) {
    let permit = breaker.admit(now).unwrap();
    breaker.settle(permit, Verdict::Bad, now);
}

#[test]
fn one_probe_is_out_at_a_time() {
    let now = Instant::now();
    model(move || {
        let breaker = breaker();
        open(&breaker, now);
        let (out, probes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let (breaker, out, probes) = (breaker.clone(), out.clone(), probes.clone());
                thread::spawn(move || {
                    if let Ok(permit) = breaker.admit(now) {
                        assert!(permit.probe && out.fetch_add(1, Ordering::SeqCst) == 0, "two are out");
                        probes.fetch_add(1, Ordering::SeqCst);
                        out.fetch_sub(1, Ordering::SeqCst);
                        breaker.settle(permit, Verdict::Bad, now);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let probes = probes.load(Ordering::SeqCst);
        assert!((1..=2).contains(&probes));
        assert_eq!(breaker.trips() as usize, 1 + probes, "each probe has opened it again");
        assert!(matches!(breaker.state(), BreakerState::Open { .. }));
    });
}

/// Work admitted before the breaker opened fails while a probe succeeds.
#[test]
fn a_late_answer_does_not_undo_the_probe() {
    let now = Instant::now();
    model(move || {
        let breaker = breaker();
        let late = breaker.admit(now).unwrap();
        open(&breaker, now);
        let other = thread::spawn({
            let breaker = breaker.clone();
            move || breaker.settle(late, Verdict::Bad, now)
        });
        let probe = breaker.admit(now).unwrap();
        breaker.settle(probe, Verdict::Good, now);
        other.join().unwrap();
        assert!(matches!(breaker.state(), BreakerState::Closed));
    });
}

/// One thread submits work that succeeds or fails, one loses the device, one restores it.
#[test]
fn flapping_ends_in_a_state_that_somebody_chose() {
    let now = Instant::now();
    model(move || {
        let breaker = breaker();
        let works = thread::spawn({
            let breaker = breaker.clone();
            move || {
                for verdict in [Verdict::Bad, Verdict::Neutral, Verdict::Good] {
                    if let Ok(permit) = breaker.admit(now) {
                        breaker.settle(permit, verdict, now);
                    }
                }
            }
        });
        let loses = thread::spawn({
            let breaker = breaker.clone();
            move || breaker.lose(&Error::DeviceLost("gone".into()))
        });
        works.join().unwrap();
        loses.join().unwrap();
        assert!(matches!(breaker.state(), BreakerState::Terminal(_)), "nothing that was out brings it back");
        assert!(matches!(breaker.admit(now), Err(Error::DeviceLost(_))));
        breaker.restore();
        let permit = breaker.admit(now).unwrap();
        breaker.settle(permit, Verdict::Good, now);
        assert!(matches!(breaker.state(), BreakerState::Closed));
    });
}
