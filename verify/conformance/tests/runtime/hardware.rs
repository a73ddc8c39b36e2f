//! Readings and energy of a simulated device, whose sensors the test plays.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use elinvar::driver::Energy;
use elinvar::{Error, MetricValue, Quantity, Readings, Result};
use elinvar_conformance::sim::Sim;

use crate::support::Bench;

fn unsupported<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Unsupported(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

/// Gives the device a counter that is updated every `update` with the energy at `watts`.
fn run_at(sim: &Sim, watts: f64, update: Duration, power_limit: Option<f64>) {
    run_several_at(sim, 1, watts, update, power_limit);
}

/// As [`run_at`], as the sum of `counters` of which each is updated at its own moments.
fn run_several_at(sim: &Sim, counters: u32, watts: f64, update: Duration, power_limit: Option<f64>) {
    let begun = Instant::now();
    sim.set_energy(move || {
        let elapsed = begun.elapsed();
        let updates =
            (0..counters).map(|at| (elapsed + update * at / counters).as_nanos() / update.as_nanos());
        let joules = watts / f64::from(counters) * update.as_secs_f64() * updates.sum::<u128>() as f64;
        Ok(Energy { joules, resolution: 1e-9, counters, power_limit })
    });
}

#[test]
fn energy_is_within_its_error_whatever_the_work() {
    for (power_limit, update, counters) in
        [(Some(300.0), 3, 1), (None, 3, 1), (Some(120.0), 20, 1), (Some(120.0), 20, 4)]
    {
        let bench = Bench::new();
        let (watts, update) = (100.0, Duration::from_millis(update));
        run_several_at(&bench.sim, counters, watts, update, power_limit);
        for pause in [0, 1, 7, 40] {
            let meter = bench.device.meter().unwrap();
            let begin = Instant::now();
            std::thread::sleep(Duration::from_millis(pause));
            let least = begin.elapsed();
            let used = meter.read().unwrap();
            // At a constant power the energy is that of the time.
            let exact = watts * used.duration.as_secs_f64();
            assert!((used.joules - exact).abs() <= used.error, "{exact} J: {used:?}");
            assert!(used.duration >= least && used.update_interval >= update, "{used:?}");
            let power = power_limit.unwrap_or(watts);
            assert!(used.error >= power * update.as_secs_f64(), "{used:?}");
        }
        let (seven, used) = bench.device.energy_of(|| Ok(7)).unwrap();
        assert!(seven == 7 && used.error > 0.0);
        let failed = bench.device.energy_of(|| Err::<(), _>(Error::invalid("the work")));
        assert!(matches!(failed, Err(Error::InvalidArgument(reason)) if reason == "the work"));
    }
}

#[test]
fn work_is_repeated_until_the_error_is_small() {
    let bench = Bench::new();
    run_at(&bench.sim, 100.0, Duration::from_millis(2), Some(150.0));
    let runs = AtomicU32::new(0);
    let work = || {
        runs.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    };
    let long = Duration::from_secs(600);
    let one = bench.device.energy_each(0.05, long, work).unwrap();
    let runs = runs.load(Ordering::Relaxed);
    assert!(one.relative_error() <= 0.05 && one.joules > 0.0, "{one:?}");
    // 5 % of the energy are more than the steps of the counter: 100 W for 60 ms against 150 W for 2 ms.
    let whole = one.duration * runs;
    assert!(whole >= Duration::from_millis(57), "{runs} runs of {:?}", one.duration);
    assert!(
        (one.watts() - 100.0).abs() <= 100.0 * one.relative_error() / (1.0 - one.relative_error()),
        "{one:?}"
    );
    for share in [0.0, -1.0, f64::NAN] {
        let refused = bench.device.energy_each(share, long, || Ok(()));
        assert!(
            matches!(refused, Err(Error::InvalidArgument(reason)) if reason.contains("above 0")),
            "{share}"
        );
    }
    let late = bench.device.energy_each(1e-9, Duration::from_millis(20), || Ok(())).unwrap_err();
    assert!(
        matches!(&late, Error::Timeout(reason) if reason.contains("the error of the energy is still")),
        "{late}"
    );
    let failed = bench.device.energy_each(0.05, long, || Err(Error::Cancelled));
    assert!(matches!(failed, Err(Error::Cancelled)));
}

#[test]
fn a_counter_that_cannot_be_used_is_none() {
    let bench = Bench::new();
    assert_eq!(unsupported(bench.device.meter()), "the sim device has no sensor");
    bench.sim.set_energy(|| Ok(Energy { joules: 5.0, resolution: 1e-3, counters: 1, power_limit: None }));
    let stuck = unsupported(bench.device.meter());
    assert!(stuck.starts_with("the energy counter of device `sim` made 0 steps in 2 s"), "{stuck}");
    let calls = AtomicU64::new(0);
    bench.sim.set_energy(move || {
        let joules = calls.fetch_add(1, Ordering::Relaxed) as f64;
        Ok(Energy { joules, resolution: 1.0, counters: 1, power_limit: None })
    });
    let meter = bench.device.meter().unwrap();
    assert!(meter.read().is_ok());
    bench.sim.set_energy(|| Ok(Energy { joules: 0.0, resolution: 1.0, counters: 1, power_limit: None }));
    assert_eq!(unsupported(meter.read()), "the energy counter of device `sim` went back");
    bench.sim.set_energy(|| Err(Error::unsupported("the GPU is lost")));
    assert_eq!(unsupported(meter.read()), "the GPU is lost");
}

#[test]
fn a_counter_that_does_not_move_during_work_has_no_relative_error() {
    let bench = Bench::new();
    run_at(&bench.sim, 100.0, Duration::from_millis(1), None);
    let meter = bench.device.meter().unwrap();
    let at = meter.read().unwrap().joules;
    // The counter stands still from here on.
    let frozen = bench.sim.clone();
    let begin = bench.device.meter().unwrap();
    let still = Energy { joules: 1e9, resolution: 1e-3, counters: 1, power_limit: None };
    frozen.set_energy(move || Ok(still));
    let used = begin.read().unwrap();
    assert!(used.joules > at);
    let meter = bench.device.meter().unwrap();
    let used = meter.read().unwrap();
    assert_eq!((used.joules, used.relative_error()), (0.0, f64::INFINITY));
    assert!(used.error > 0.0, "{used:?}");
}

#[test]
fn metrics_have_what_is_measured_and_read_it_ten_times_a_second_at_most() {
    let bench = Bench::new();
    let none = bench.device.metrics();
    assert_eq!(none.get("hw.power", &["gpu"]), None);
    let bench = Bench::new();
    let reads = Arc::new(AtomicU64::new(0));
    let counted = reads.clone();
    bench.sim.set_readings(move || {
        let read = counted.fetch_add(1, Ordering::Relaxed) + 1;
        let mut readings = Readings::default();
        readings.add(Quantity::Energy, &["gpu"], Ok(read as f64 + 0.25));
        readings.add(Quantity::Temperature, &["gpu"], Ok(-3.5));
        readings.add(Quantity::PcieBytes, &["transmit"], Ok(5e9));
        readings.add(Quantity::Power, &["gpu"], Err(Error::unsupported("no sensor")));
        Ok(readings)
    });
    let begin = Instant::now();
    let metrics = bench.device.metrics();
    assert_eq!(metrics.get("hw.energy", &["gpu"]), Some(&MetricValue::Number(1.25)));
    assert_eq!(metrics.get("hw.power", &["gpu"]), None, "it is not measured");
    let again = bench.device.metrics();
    if begin.elapsed() < Duration::from_millis(100) {
        assert_eq!(again.get("hw.energy", &["gpu"]), Some(&MetricValue::Number(1.25)), "the same reading");
    }
    let fresh = bench.device.readings().unwrap().value(Quantity::Energy, &["gpu"]).unwrap();
    assert_eq!(fresh, reads.load(Ordering::Relaxed) as f64 + 0.25, "read now");
    std::thread::sleep(Duration::from_millis(101));
    let later = bench.device.metrics();
    assert!(matches!(later.get("hw.energy", &["gpu"]), Some(MetricValue::Number(joules)) if *joules > fresh));
    let text = metrics.to_openmetrics();
    for line in [
        "# TYPE hw_energy_joules counter",
        "# UNIT hw_energy_joules joules",
        "hw_energy_joules_total{device=\"sim\",index=\"0\",hw_name=\"gpu\"} 1.25",
        "hw_temperature_celsius{device=\"sim\",index=\"0\",hw_name=\"gpu\"} -3.5",
        "hw_gpu_io_bytes_total{device=\"sim\",index=\"0\",network_io_direction=\"transmit\"} 5000000000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
    assert!(!text.contains("hw_power_watts{"));
}
