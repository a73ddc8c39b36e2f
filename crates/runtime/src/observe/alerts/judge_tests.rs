use std::collections::BTreeMap;

use elinvar_driver::{Error, Thermal};

use super::judge::{Judge, Sample};
use super::{AlertChange, AlertKind, AlertOptions};
use crate::recovery::BreakerState;

/// A program, sample by sample.
struct Program {
    judge: Judge,
    sample: Sample,
    /// Of a linear congruential generator.
    random: u64,
    /// Changes with the number of their sample.
    changes: Vec<(usize, AlertChange)>,
    samples: usize,
}

impl Program {
    fn new() -> Self {
        let sample = Sample {
            succeeded: 1000,
            failed: 7,
            kernels: BTreeMap::new(),
            live: 100 << 20,
            refused: 2,
            breaker: BreakerState::Closed,
            thermal: Some(Thermal::Nominal),
        };
        let judge = Judge::new(AlertOptions::default());
        Self { judge, sample, random: 1, changes: Vec::new(), samples: 0 }
    }

    /// From 0 to 1.
    fn random(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 40) as f64 / (1 << 24) as f64
    }

    /// Ten seconds: 1000 submissions, of which one in a thousand fails; two kernels, whose durations vary by 30 %; memory that goes up and down.
    fn calm(&mut self, change: impl FnOnce(&mut Sample)) {
        let failed = u64::from(self.random() < 0.6) + u64::from(self.random() < 0.4);
        self.sample.succeeded += 1000 - failed;
        self.sample.failed += failed;
        for (kernel, ns) in [("add", 5e3), ("product", 2e6)] {
            let (launches, noise) = (self.random() * 50.0, self.random());
            let duration = (ns * (0.85 + 0.3 * noise)) as u64;
            let total = self.sample.kernels.entry(kernel.into()).or_default();
            *total = (total.0 + launches as u64, total.1 + launches as u64 * duration);
        }
        self.sample.live = ((60.0 + 80.0 * self.random()) * 1e6) as u64;
        change(&mut self.sample);
        let changes = self.judge.take(&self.sample);
        self.changes.extend(changes.into_iter().map(|change| (self.samples, change)));
        self.samples += 1;
    }

    fn calm_for(&mut self, samples: usize) {
        (0..samples).for_each(|_| self.calm(|_| {}));
    }

    /// The sample numbers at which the only alert was raised and cleared.
    #[track_caller]
    fn only(&self, kind: &AlertKind) -> Vec<(usize, bool)> {
        let changes = self.changes.iter().map(|(at, change)| {
            assert_eq!(&change.alert().kind, kind, "{:?}", self.changes);
            (*at, matches!(change, AlertChange::Raised(_)))
        });
        changes.collect()
    }
}

#[test]
fn a_calm_day_raises_nothing() {
    let mut program = Program::new();
    program.calm_for(8640);
    assert_eq!(program.changes, []);
}

#[test]
fn a_burst_of_errors_is_raised_once_and_cleared() {
    let mut program = Program::new();
    program.calm_for(100);
    (0..20).for_each(|_| program.calm(|sample| sample.failed += 150));
    program.calm_for(100);
    let [raised, cleared] = program.only(&AlertKind::SubmissionsFail)[..] else {
        panic!("{:?}", program.changes)
    };
    assert!(raised.1 && (100..106).contains(&raised.0), "{raised:?}");
    assert!(!cleared.1 && (120..127).contains(&cleared.0), "{cleared:?}");
}

#[test]
fn a_share_between_the_thresholds_changes_nothing() {
    let mut program = Program::new();
    program.calm_for(50);
    // 3.5 %.
    (0..100).for_each(|_| program.calm(|sample| sample.failed += 36));
    assert_eq!(program.changes, []);
    (0..10).for_each(|_| program.calm(|sample| sample.failed += 150));
    (0..100).for_each(|_| program.calm(|sample| sample.failed += 36));
    assert_eq!(program.only(&AlertKind::SubmissionsFail).len(), 1, "raised, and not cleared");
}

#[test]
fn few_failures_of_few_submissions_are_none() {
    let mut program = Program::new();
    program.sample.succeeded = 0;
    let mut judge = Judge::new(AlertOptions::default());
    judge.take(&program.sample);
    program.sample.failed += 2;
    assert_eq!(judge.take(&program.sample), []);
    program.sample.failed += 1;
    assert_eq!(judge.take(&program.sample).len(), 1);
}

/// Adds launches of `add` that take so many nanoseconds.
fn launches(sample: &mut Sample, count: u64, ns: u64) {
    let total = sample.kernels.get_mut("add").unwrap();
    *total = (total.0 + count, total.1 + count * ns);
}

#[test]
fn a_kernel_that_slows_down_is_raised_and_its_new_duration_accepted() {
    let mut program = Program::new();
    program.calm_for(100);
    (0..20).for_each(|_| program.calm(|sample| launches(sample, 10_000, 11_000)));
    program.calm_for(20);
    let kind = AlertKind::KernelSlower { kernel: "add".into() };
    let [raised, cleared] = program.only(&kind)[..] else { panic!("{:?}", program.changes) };
    assert!(raised == (102, true) && cleared == (122, false), "{raised:?} {cleared:?}");
    let AlertChange::Raised(alert) = &program.changes[0].1 else { panic!() };
    assert!(alert.reason.starts_with("kernel `add` takes 1"), "{alert}");
    // For good.
    program.changes.clear();
    (0..200).for_each(|_| program.calm(|sample| launches(sample, 10_000, 11_000)));
    let [raised, cleared] = program.only(&kind)[..] else { panic!("{:?}", program.changes) };
    assert!(raised == (142, true) && cleared == (199, false), "{raised:?} {cleared:?}");
}

#[test]
fn single_outliers_of_a_kernel_are_none() {
    let mut program = Program::new();
    program.calm_for(50);
    for _ in 0..50 {
        program.calm(|sample| launches(sample, 10_000, 50_000));
        program.calm(|sample| launches(sample, 10_000, 50_000));
        program.calm_for(3);
    }
    assert_eq!(program.changes, []);
}

#[test]
fn a_leak_is_raised_and_a_plateau_is_none() {
    let mut program = Program::new();
    program.calm_for(400);
    let mut leaked = 0;
    // 1 MB every ten seconds, for two hours; then it stays.
    for at in 0..1500 {
        leaked += if at < 720 { 1_000_000 } else { 0 };
        program.calm(|sample| sample.live += leaked);
    }
    let [raised, cleared] = program.only(&AlertKind::MemoryGrows)[..] else {
        panic!("{:?}", program.changes)
    };
    assert!(raised.1 && (400..620).contains(&raised.0), "{raised:?}");
    assert!(!cleared.1 && (1120..1300).contains(&cleared.0), "{cleared:?}");
}

#[test]
fn states_are_raised_and_cleared_with_hysteresis() {
    let mut program = Program::new();
    program.calm_for(10);
    program.calm(|sample| sample.thermal = Some(Thermal::Critical));
    program.calm(|sample| sample.thermal = Some(Thermal::Fair));
    assert_eq!(program.changes, [], "one sample");
    for thermal in [
        Thermal::Serious,
        Thermal::Critical,
        Thermal::Nominal,
        Thermal::Serious,
        Thermal::Fair,
        Thermal::Fair,
    ] {
        program.calm(|sample| sample.thermal = Some(thermal));
    }
    assert_eq!(program.only(&AlertKind::Hot), [(13, true), (17, false)]);
    program.changes.clear();
    program.calm(|sample| sample.thermal = None);
    program.calm(|sample| sample.breaker = BreakerState::HalfOpen);
    program.calm(|sample| sample.breaker = BreakerState::Closed);
    assert_eq!(program.only(&AlertKind::BreakerOpen), [(19, true), (20, false)]);
    program.changes.clear();
    program.calm(|sample| sample.refused += 1);
    program.calm_for(1);
    assert_eq!(program.only(&AlertKind::AllocationsRefused), [(21, true), (22, false)]);
    program.changes.clear();
    program.calm(|sample| sample.breaker = BreakerState::Terminal(Error::DeviceLost("unplugged".into())));
    let [(_, AlertChange::Raised(alert))] = &program.changes[..] else { panic!("{:?}", program.changes) };
    assert_eq!(alert.to_string(), "device_lost: device lost: unplugged");
    assert_eq!(program.judge.active().count(), 1);
}
