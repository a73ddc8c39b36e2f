//! Health of a device, and its reaction to notices of the platform.

use crate::support;

use std::thread;
use std::time::Duration;

use elinvar::{
    BreakerLimits, Component, Device, DeviceKind, Error, Notice, PoolLimits, PowerPreference, Pressure,
    RecoveryPolicy, Source, Status, Thermal, WatchOptions,
};
use elinvar_conformance::sim::{Op, Sim};
use support::{Bench, fault};

fn gone() -> Error {
    Error::DeviceLost("gone".into())
}

#[test]
fn a_device_without_troubles_is_healthy() {
    let bench = Bench::new();
    let health = bench.device.health();
    assert_eq!(health.status, Status::Healthy, "{health}");
    let parts: Vec<Component> = health.findings.iter().map(|finding| finding.component).collect();
    use Component::{Alerts, Breaker, Compiler, Latency, Log, Memory, Queues, Temperature};
    assert_eq!(parts, [Memory, Queues, Compiler, Latency, Breaker, Temperature, Alerts, Log]);
    assert!(
        health
            .to_string()
            .starts_with("Healthy\n  Memory: Healthy, pressure Normal, 0 of 4294967296 bytes\n")
    );
}

#[test]
fn what_nothing_measures_is_unknown() {
    let bench = Bench::new();
    let health = bench.device.health();
    for part in
        [Component::Queues, Component::Compiler, Component::Latency, Component::Temperature, Component::Log]
    {
        assert_eq!(health.of(part), Status::Unknown, "{health}");
    }
    assert!(
        health.to_string().contains("Temperature: Unknown, unsupported: the sim device has no sensor"),
        "{health}"
    );
    assert_eq!(health.status, Status::Healthy, "what is unknown does not count");
    bench.sim.set_thermal(Thermal::Serious);
    let health = bench.device.health();
    assert_eq!((health.of(Component::Temperature), health.status), (Status::Degraded, Status::Degraded));
    assert!(health.to_string().contains("Temperature: Degraded, Serious, measured now"), "{health}");
    bench.device.notice(Notice::Thermal(Thermal::Fair)).unwrap();
    let health = bench.device.health().to_string();
    assert!(health.contains("Temperature: Healthy, Fair, as last reported"), "{health}");
}

#[test]
fn failures_of_queues_and_compiler_are_counted_apart() {
    let bench = Bench::new();
    let fill = |error: Option<Error>| {
        error.into_iter().for_each(|error| bench.sim.fail_next(Op::Execute, error));
        let mut data = bench.device.buffer::<u32>(1).unwrap();
        let _ended = bench.stream.fill(&mut data, 1).unwrap().wait();
        bench.stream.acknowledge();
    };
    let queues = || bench.device.health().of(Component::Queues);
    (0..30).for_each(|_| fill(None));
    fill(Some(fault()));
    assert_eq!(queues(), Status::Healthy);
    fill(Some(gone()));
    assert_eq!(queues(), Status::Degraded);
    (0..30).for_each(|_| fill(Some(gone())));
    assert_eq!(queues(), Status::Failing);
    (0..64).for_each(|_| fill(None));
    assert_eq!(queues(), Status::Healthy);
    let compiler = || bench.device.health().of(Component::Compiler);
    for _ in 0..3 {
        bench.sim.fail_next(Op::Compile, Error::Compile(Vec::new()));
        assert!(bench.device.compile(Source::msl("")).is_err());
    }
    assert_eq!(compiler(), Status::Unknown, "the sources were wrong");
    for _ in 0..8 {
        bench.sim.fail_next(Op::Compile, Error::Environment("no compiler".into()));
        assert!(bench.device.compile(Source::msl("")).is_err());
    }
    assert_eq!(
        (compiler(), queues(), bench.device.health().status),
        (Status::Failing, Status::Healthy, Status::Failing)
    );
}

#[test]
fn memory_near_its_end_and_the_breaker_show() {
    let bench = Bench::on(Sim::discrete());
    let device = &bench.device;
    let limits = device.pool().limits();
    device.pool().set_limits(PoolLimits { budget: 100 << 10, ..limits });
    let statuses = [(40, Status::Healthy), (46, Status::Degraded), (10, Status::Failing)];
    let mut buffers = Vec::new();
    for (kib, status) in statuses {
        buffers.push(device.buffer::<u8>(kib << 10).unwrap());
        assert_eq!(device.health().of(Component::Memory), status, "{}", device.health());
    }
    drop(buffers);
    assert_eq!(device.health().of(Component::Memory), Status::Healthy);

    let once = RecoveryPolicy { attempts: 1, resets: 0, ..RecoveryPolicy::of(device) };
    let fail = |error: Error| {
        assert!(device.recover(&once, || -> elinvar::Result<()> { Err(error.clone()) }).is_err())
    };
    let breaker = || device.health().of(Component::Breaker);
    device.breaker().set_limits(BreakerLimits {
        failures: 2,
        cooldown: Duration::ZERO,
        longest: Duration::ZERO,
    });
    (0..2).for_each(|_| fail(Error::Environment("x".into())));
    assert_eq!(breaker(), Status::Failing);
    device.recover(&once, || Ok(())).unwrap();
    assert_eq!(breaker(), Status::Degraded, "closed, not yet trusted");
    device.recover(&once, || Ok(())).unwrap();
    assert_eq!(breaker(), Status::Healthy);
    fail(gone());
    let health = device.health();
    assert_eq!((health.of(Component::Breaker), health.status), (Status::Terminal, Status::Terminal));
    device.reset().unwrap();
    assert_eq!(device.health().status, Status::Healthy);
}

#[test]
fn a_notice_of_memory_pressure_empties_the_pool_until_it_is_over() {
    let bench = Bench::new();
    let device = &bench.device;
    let idle = || {
        drop(device.buffer::<u32>(1000).unwrap());
        device.pool().stats().idle_blocks
    };
    assert_eq!(idle(), 1);
    device.notice(Notice::Memory(Pressure::High)).unwrap();
    assert_eq!((device.pool().stats().idle_blocks, idle()), (0, 0));
    assert_eq!(device.health().of(Component::Memory), Status::Degraded);
    device.notice(Notice::Memory(Pressure::Normal)).unwrap();
    assert_eq!((idle(), device.health().of(Component::Memory)), (1, Status::Healthy));
}

/// Options with files of a folder in place of the system's. The watch polls, as there are no triggers.
#[cfg(target_os = "linux")]
fn watched(folder: &std::path::Path) -> WatchOptions {
    let (memory, thermal) = (vec![folder.join("none"), folder.join("memory")], folder.into());
    WatchOptions { memory, triggers: None, thermal, every: Duration::from_millis(1) }
}

#[test]
#[cfg(target_os = "linux")]
fn a_watch_takes_notice_of_memory_pressure_and_ends_with_its_guard() {
    let bench = Bench::new();
    let pool = bench.device.pool();
    let folder = tempfile::tempdir().unwrap();
    let options = watched(folder.path());
    assert!(matches!(bench.device.watch_memory(&options), Err(Error::Unsupported(_))));
    let stalls = |some: &str| {
        // Renamed into place, so that no partial content is read.
        std::fs::write(folder.path().join("new"), format!("some avg10={some} avg60=0.00")).unwrap();
        std::fs::rename(folder.path().join("new"), folder.path().join("memory")).unwrap();
    };
    stalls("0.00");
    let watch = bench.device.watch_memory(&options).unwrap();
    drop(bench.device.buffer::<u32>(1000).unwrap());
    assert_eq!(pool.stats().idle_blocks, 1);
    stalls("30.00");
    while pool.stats().idle_blocks > 0 {
        thread::yield_now();
    }
    assert_eq!(pool.stats().pressure, Pressure::High);
    stalls("1.00");
    while pool.stats().pressure != Pressure::Normal {
        thread::yield_now();
    }
    // When the drop returns, the watch's thread has ended and released its handle of the device.
    drop(watch);
    stalls("30.00");
    drop(bench.device.buffer::<u32>(1000).unwrap());
    assert_eq!((pool.stats().idle_blocks, pool.stats().pressure), (1, Pressure::Normal));
}

#[test]
#[cfg(target_os = "linux")]
fn a_watch_takes_units_away_while_it_is_too_warm() {
    let bench =
        Bench::on(Sim::with_caps(|caps| (caps.limits.compute_units, caps.kind) = (8, DeviceKind::Cpu)));
    let folder = tempfile::tempdir().unwrap();
    let options = watched(folder.path());
    let refused = bench.device.watch_temperature(&options).unwrap_err();
    assert!(matches!(&refused, Error::Unsupported(text) if text.contains("thermal zone")), "{refused}");
    let zone = warm_zone(folder.path());
    let warm = |temperature: &str| {
        std::fs::write(zone.join("new"), temperature).unwrap();
        std::fs::rename(zone.join("new"), zone.join("temp")).unwrap();
    };
    warm("50000\n");
    let _watch = bench.device.watch_temperature(&options).unwrap();
    for (temperature, units, goal) in [
        ("90000\n", 4, PowerPreference::LowPower),
        ("50000\n", 8, PowerPreference::HighPerformance),
        ("80000\n", 4, PowerPreference::LowPower),
    ] {
        warm(temperature);
        while (bench.sim.units(), bench.device.power_preference()) != (units, goal) {
            thread::yield_now();
        }
    }
}

/// A thermal zone above its `passive` trip point of 80 °C.
#[cfg(target_os = "linux")]
fn warm_zone(folder: &std::path::Path) -> std::path::PathBuf {
    let zone = folder.join("thermal_zone0");
    std::fs::create_dir(&zone).unwrap();
    for (file, text) in
        [("trip_point_0_type", "passive\n"), ("trip_point_0_temp", "80000\n"), ("temp", "90000\n")]
    {
        std::fs::write(zone.join(file), text).unwrap();
    }
    zone
}

#[test]
#[cfg(target_os = "linux")]
fn the_temperature_of_the_machine_is_none_of_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    warm_zone(folder.path());
    let options = watched(folder.path());
    for kind in [DeviceKind::Cuda, DeviceKind::Metal] {
        let bench = Bench::on(Sim::with_caps(|caps| (caps.limits.compute_units, caps.kind) = (8, kind)));
        let refused = bench.device.watch_temperature(&options).unwrap_err();
        assert!(matches!(&refused, Error::Unsupported(text) if text.contains("no sensor")), "{refused}");
        assert_eq!(bench.device.health().of(Component::Temperature), Status::Unknown);
        bench.sim.set_thermal(Thermal::Nominal);
        let _watch = bench.device.watch_temperature(&options).unwrap();
        let temperature = || bench.device.health().of(Component::Temperature);
        for (thermal, status, units) in
            [(Thermal::Critical, Status::Failing, 4), (Thermal::Nominal, Status::Healthy, 8)]
        {
            bench.sim.set_thermal(thermal);
            while (temperature(), bench.sim.units()) != (status, units) {
                thread::yield_now();
            }
        }
    }
}

/// With the kernel's own files, if there are any: the triggers are registered, and the watch ends while it waits for them.
#[test]
fn the_system_is_watched_or_says_why_not() {
    let bench = Bench::new();
    let options = WatchOptions { every: Duration::from_secs(1_000_000), ..WatchOptions::default() };
    for watch in [bench.device.watch_memory(&options), bench.device.watch_temperature(&options)] {
        match watch {
            Ok(watch) => drop(watch),
            Err(error) => assert!(matches!(error, Error::Unsupported(_)), "{error}"),
        }
    }
}

#[test]
fn efficiency_and_heat_take_compute_units_away() {
    let bench = Bench::on(Sim::with_caps(|caps| caps.limits.compute_units = 7));
    let device = &bench.device;
    device.set_power_preference(PowerPreference::LowPower).unwrap();
    assert_eq!((device.power_preference(), bench.sim.units()), (PowerPreference::LowPower, 3));
    device.set_power_preference(PowerPreference::HighPerformance).unwrap();
    assert_eq!((device.power_preference(), bench.sim.units()), (PowerPreference::HighPerformance, 7));
    for (thermal, units, status) in [
        (Thermal::Fair, 7, Status::Healthy),
        (Thermal::Serious, 3, Status::Degraded),
        (Thermal::Critical, 3, Status::Failing),
        (Thermal::Nominal, 7, Status::Healthy),
    ] {
        device.notice(Notice::Thermal(thermal)).unwrap();
        assert_eq!((bench.sim.units(), device.health().of(Component::Temperature)), (units, status));
    }
    bench.sim.fail_next(Op::Units, Error::unsupported("all or nothing"));
    assert!(matches!(device.notice(Notice::Thermal(Thermal::Serious)), Err(Error::Unsupported(_))));
    assert_eq!(
        (device.power_preference(), device.health().of(Component::Temperature)),
        (PowerPreference::HighPerformance, Status::Degraded)
    );
}

#[test]
fn a_preference_that_the_device_does_not_have_is_forgotten() {
    let bench = Bench::on(Sim::with_caps(|caps| caps.limits.compute_units = 7));
    bench.sim.fail_next(Op::Units, Error::unsupported("all or nothing"));
    let refused = bench.device.set_power_preference(PowerPreference::LowPower);
    assert!(matches!(refused, Err(Error::Unsupported(_))), "{refused:?}");
    bench.device.notice(Notice::Thermal(Thermal::Nominal)).unwrap();
    assert_eq!((bench.device.power_preference(), bench.sim.units()), (PowerPreference::HighPerformance, 7));
}

#[test]
fn the_processor_works_with_fewer_workers_too() {
    let device = Device::cpu().unwrap();
    device.set_power_preference(PowerPreference::LowPower).unwrap();
    let kernel = device
        .compile(Source::msl(
            "kernel void square(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = i * i; }",
        ))
        .unwrap()
        .kernel("square")
        .unwrap();
    let mut x = device.buffer::<u32>(100_000).unwrap();
    let streams: Vec<_> = (0..4).map(|_| device.stream().unwrap()).collect();
    for stream in &streams {
        support::launch(&kernel, stream, elinvar::Grid::threads(100_000), (&mut x,)).unwrap().wait().unwrap();
    }
    device.set_power_preference(PowerPreference::HighPerformance).unwrap();
    let expected: Vec<u32> = (0..100_000u32).map(|i| i.wrapping_mul(i)).collect();
    assert_eq!(x.to_vec().unwrap(), expected);
}
