//! Alerts of devices that misbehave: the right one is raised, told by callback and health, and cleared.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use elinvar::driver::{Access, Error, Scalar};
use elinvar::{AlertChange, AlertKind, AlertOptions, Alerts, Component, Grid, Notice, Status, Thermal};
use elinvar_conformance::sim::Op;

use crate::support::{Bench, launch, pointer, signature};

/// Longer than any step takes unless something is broken.
const LONG: Duration = Duration::from_secs(60);

fn options() -> AlertOptions {
    AlertOptions { every: Duration::from_millis(2), growth_window: 2, ..AlertOptions::default() }
}

fn alerts(bench: &Bench) -> (Alerts, Receiver<AlertChange>) {
    let (tell, told) = channel();
    let alerts = bench.device.alerts(&options(), move |change| drop(tell.send(change.clone()))).unwrap();
    (alerts, told)
}

/// Repeats `work` until a change arrives, which is about `kind`.
#[track_caller]
fn change(told: &Receiver<AlertChange>, kind: &AlertKind, is_raised: bool, mut work: impl FnMut()) {
    let end = std::time::Instant::now() + LONG;
    while std::time::Instant::now() < end {
        work();
        if let Ok(change) = told.recv_timeout(Duration::from_millis(1)) {
            assert_eq!(
                (&change.alert().kind, matches!(change, AlertChange::Raised(_))),
                (kind, is_raised),
                "{change:?}"
            );
            return;
        }
    }
    panic!("no change of {kind:?}");
}

#[test]
fn injected_failures_are_raised_and_cleared() {
    let bench = Bench::new();
    let (alerts, told) = alerts(&bench);
    let mut x = bench.device.buffer::<u32>(1).unwrap();
    let kind = AlertKind::SubmissionsFail;
    change(&told, &kind, true, || {
        bench.sim.fail_next(Op::Execute, Error::Environment("injected".into()));
        assert!(bench.stream.fill(&mut x, 1).unwrap().wait().is_err());
        bench.stream.acknowledge();
    });
    assert_eq!(alerts.active().iter().map(|alert| &alert.kind).collect::<Vec<_>>(), [&kind]);
    let health = bench.device.health();
    assert_eq!(health.of(Component::Alerts), Status::Degraded, "{health}");
    change(&told, &kind, false, || _ = bench.stream.fill(&mut x, 1).unwrap().wait().unwrap());
    assert_eq!((alerts.active().len(), bench.device.health().of(Component::Alerts)), (0, Status::Healthy));
    drop(alerts);
    assert_eq!(bench.device.health().of(Component::Alerts), Status::Unknown);
}

#[test]
fn a_kernel_that_slows_down_is_named() {
    let bench = Bench::new();
    let slow = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_slow = slow.clone();
    let x = pointer("x", Scalar::U32, Access::ReadWrite);
    let kernel = bench.declare(signature("steady", vec![x]), move |launch| {
        // On the device's clock.
        launch.take_ns(if is_slow.load(std::sync::atomic::Ordering::Relaxed) {
            5_000_000_000
        } else {
            1_000_000_000
        });
        Ok(())
    });
    let (_alerts, told) = alerts(&bench);
    let mut x = bench.device.buffer::<u32>(1).unwrap();
    let mut run = || _ = launch(&kernel, &bench.stream, Grid::threads(1), (&mut x,)).unwrap().wait().unwrap();
    // A history: at least one launch in each of many samples.
    for _ in 0..200 {
        run();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(told.try_recv().is_err());
    slow.store(true, std::sync::atomic::Ordering::Relaxed);
    let kind = AlertKind::KernelSlower { kernel: "steady".into() };
    change(&told, &kind, true, &mut run);
    slow.store(false, std::sync::atomic::Ordering::Relaxed);
    change(&told, &kind, false, &mut run);
}

#[test]
fn a_leak_and_heat_and_refused_memory_are_told_apart() {
    let bench = Bench::new();
    let (alerts, told) = alerts(&bench);
    let mut leaked = Vec::new();
    change(&told, &AlertKind::MemoryGrows, true, || leaked.push(bench.device.buffer::<u8>(1 << 20).unwrap()));
    leaked.clear();
    change(&told, &AlertKind::MemoryGrows, false, || {});
    bench.device.notice(Notice::Thermal(Thermal::Serious)).unwrap();
    change(&told, &AlertKind::Hot, true, || {});
    bench.device.notice(Notice::Thermal(Thermal::Nominal)).unwrap();
    change(&told, &AlertKind::Hot, false, || {});
    bench.sim.fail_next(Op::Allocate, Error::OutOfMemory { requested: 1, available: 0 });
    bench.sim.fail_next(Op::Allocate, Error::OutOfMemory { requested: 1, available: 0 });
    bench.device.pool().trim(0);
    assert!(bench.device.buffer::<u8>(3 << 20).is_err());
    change(&told, &AlertKind::AllocationsRefused, true, || {});
    change(&told, &AlertKind::AllocationsRefused, false, || {});
    assert!(alerts.active().is_empty());
}

#[test]
fn wrong_options_a_second_guard_and_a_callback_that_panics() {
    let bench = Bench::new();
    let wrong = |options: AlertOptions| bench.device.alerts(&options, |_| {}).unwrap_err().to_string();
    let text = wrong(AlertOptions { failures: [0.1, 0.2], ..options() });
    assert_eq!(text, "alerts: `failures` is [0.1, 0.2]; the second is from 0 to the first");
    let text = wrong(AlertOptions { slower: [f64::NAN, 1.0], ..options() });
    assert_eq!(text, "alerts: `slower` is [NaN, 1]; the second is from 1 to the first");
    let text = wrong(AlertOptions { growth_window: 0, ..options() });
    assert_eq!(text, "alerts: `growth_window` is 0; it is from 1 to 10000");
    let first = bench.device.alerts(&options(), |_| panic!("the program's own")).unwrap();
    assert!(wrong(options()).contains("alerts already"));
    bench.device.notice(Notice::Thermal(Thermal::Serious)).unwrap();
    let end = std::time::Instant::now() + LONG;
    while first.active().is_empty() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
    // It goes on.
    bench.device.notice(Notice::Thermal(Thermal::Nominal)).unwrap();
    while !first.active().is_empty() {
        assert!(std::time::Instant::now() < end);
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(first);
    drop(bench.device.alerts(&options(), |_| {}).unwrap());
}

#[test]
fn failures_are_grouped_by_what_they_have_in_common() {
    let bench = Bench::new();
    let fail = bench.fail();
    let mut x = bench.device.buffer::<u32>(1000).unwrap();
    for threads in [10, 1000, 100] {
        assert!(launch(&fail, &bench.stream, Grid::threads(threads), (&mut x,)).unwrap().wait().is_err());
        // A consequence.
        assert!(bench.stream.fill(&mut x, 1).unwrap().wait().is_err());
        bench.stream.acknowledge();
    }
    for code in 0..2 {
        bench.sim.fail_next(Op::Execute, Error::Environment(format!("bus error {code}")));
        assert!(bench.stream.fill(&mut x, 1).unwrap().wait().is_err());
        bench.stream.acknowledge();
    }
    let [faults, bus] = &bench.device.failures()[..] else { panic!("{:?}", bench.device.failures()) };
    assert_eq!((faults.count, faults.kernel.as_deref(), faults.threads), (3, Some("fail"), Some([10, 1000])));
    assert_eq!((&*faults.message, faults.class.name()), ("kernel `fail`: index # of `data`", "kernel_fault"));
    assert_eq!((bus.count, &bus.kernel, bus.threads, &*bus.message), (2, &None, None, "bus error #"));
    assert!(faults.first < faults.last && faults.last <= bus.first);
    // On a slow machine they may be more than a second apart.
    if bus.last.duration_since(faults.first).unwrap() < Duration::from_secs(1) {
        assert_eq!((&*faults.together, &*bus.together), (&[1][..], &[0][..]));
    }
}
