//! Planted folders: values, missing files, and files with something else in them.

use std::path::Path;

use elinvar_driver::{Energy, Quantity, Readings};

use super::HostSensors;

fn plant(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}

const RAPL: &str = "sys/class/powercap";

fn rapl(root: &Path, files: &[(&str, &str)]) {
    for (file, text) in files {
        plant(root, &[(&format!("{RAPL}/{file}"), text)]);
    }
}

fn value(readings: &Readings, quantity: Quantity, attributes: &[&str]) -> f64 {
    readings
        .value(quantity, attributes)
        .unwrap_or_else(|error| panic!("{quantity:?} {attributes:?}: {error}"))
}

fn reason(readings: &Readings, quantity: Quantity, attributes: &[&str]) -> String {
    readings.value(quantity, attributes).unwrap_err().to_string()
}

#[test]
fn nothing_is_measured_without_files_and_everything_has_a_reason() {
    let root = tempfile::tempdir().unwrap();
    let sensors = HostSensors::at(root.path());
    let readings = sensors.readings(&[]);
    let is_event = |quantity| matches!(quantity, Quantity::ProcessEvents | Quantity::ProcessTaskClock);
    for reading in readings.list.iter().filter(|reading| !is_event(reading.quantity)) {
        let reason = reading.value.as_ref().unwrap_err().to_string();
        assert!(reason.starts_with("unsupported: there is no `/"), "{:?}: {reason}", reading.quantity);
    }
    use Quantity as Q;
    for quantity in
        [Q::Energy, Q::Power, Q::Temperature, Q::CpuTime, Q::ProcessMemory, Q::ContainerMemory, Q::Stalled]
    {
        assert!(readings.of(quantity).next().is_some(), "{quantity:?}");
    }
    assert!(sensors.energy().is_err());
}

#[test]
fn energy_is_that_of_packages_and_their_memory() {
    let root = tempfile::tempdir().unwrap();
    let domain = |folder: &str, name: &str, joules: &str| {
        for (file, text) in [("name", name), ("energy_uj", joules), ("max_energy_range_uj", "1000000000\n")] {
            rapl(root.path(), &[(&format!("{folder}/{file}"), text)]);
        }
    };
    domain("intel-rapl:0", "package-0\n", "999999000\n");
    domain("intel-rapl:0:0", "core\n", "5\n");
    domain("intel-rapl:0:1", "dram\n", "7000000\n");
    domain("intel-rapl:1", "psys\n", "9\n");
    domain("intel-rapl-mmio:0", "package-0\n", "11\n");
    let limits = [
        ("intel-rapl:0/constraint_0_name", "long_term\n"),
        ("intel-rapl:0/constraint_0_power_limit_uw", "125000000\n"),
        ("intel-rapl:0/constraint_1_name", "short_term\n"),
        ("intel-rapl:0/constraint_1_power_limit_uw", "241000000\n"),
        ("intel-rapl:0/constraint_2_name", "peak_power\n"),
        ("intel-rapl:0/constraint_2_power_limit_uw", "0\n"),
    ];
    rapl(root.path(), &limits);
    let sensors = HostSensors::at(root.path());
    let begin = sensors.readings(&[]);
    let parts: Vec<_> = begin.of(Quantity::Energy).map(|reading| reading.attributes.join(" ")).collect();
    assert_eq!(parts, ["package-0", "package-0 dram"]);
    assert_eq!(value(&begin, Quantity::PowerLimit, &["package-0"]), 125.0);
    assert!(reason(&begin, Quantity::Power, &["cpu"]).contains("energy only"));
    let before = sensors.energy().unwrap();
    assert_eq!(before.power_limit, None, "the memory has no limit");
    // The package's counter starts again; the memory's goes on.
    domain("intel-rapl:0", "package-0\n", "2000\n");
    domain("intel-rapl:0:1", "dram\n", "7000500\n");
    let after = sensors.energy().unwrap();
    assert!((after.joules - before.joules - 3500e-6).abs() < 1e-9, "{before:?} {after:?}");
    let end = sensors.readings(&[]);
    assert!((value(&end, Quantity::Energy, &["package-0"]) - 3000e-6).abs() < 1e-9);

    rapl(root.path(), &[("intel-rapl:0:1/constraint_0_name", "long_term\n")]);
    rapl(root.path(), &[("intel-rapl:0:1/constraint_0_power_limit_uw", "30000000\n")]);
    let limited = HostSensors::at(root.path()).energy().unwrap();
    assert_eq!(limited, Energy { joules: 0.0, resolution: 2e-6, counters: 2, power_limit: Some(271.0) });

    for hostile in ["", "-5\n", "1e99\n", "18446744073709551616\n", "1000000001\n", "garbage\n"] {
        domain("intel-rapl:0", "package-0\n", hostile);
        assert!(sensors.energy().is_err(), "{hostile:?}");
        assert!(sensors.readings(&[]).value(Quantity::Energy, &["package-0"]).is_err(), "{hostile:?}");
    }
    std::fs::remove_file(root.path().join(RAPL).join("intel-rapl:0/energy_uj")).unwrap();
    assert_eq!(
        sensors.energy().unwrap_err().to_string(),
        "unsupported: there is no `/sys/class/powercap/intel-rapl:0/energy_uj`"
    );
}

#[test]
fn a_class_without_packages_says_so() {
    let root = tempfile::tempdir().unwrap();
    rapl(root.path(), &[("dtpm/name", "dtpm\n"), ("intel-rapl:0/name", "psys\n")]);
    let error = HostSensors::at(root.path()).energy().unwrap_err().to_string();
    assert_eq!(error, "unsupported: `/sys/class/powercap` has no RAPL domain of a processor package");
}

#[test]
fn processor_time_memory_and_pressure_are_read() {
    let root = tempfile::tempdir().unwrap();
    let fields = |utime, stime, rss| {
        format!("7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 {utime} {stime} 16 17 18 19 20 21 22 23 {rss} 25\n")
    };
    // `vsize` is field 23; the name and the state are the second and the third.
    let stat = fields(1234, 66, 10);
    let files = [
        ("proc/stat", "cpu  10 20 30 40 50 60 70 80 90 100\ncpu0 1 2 3\n"),
        ("proc/self/stat", stat.as_str()),
        ("proc/meminfo", "MemTotal:       16000000 kB\nMemFree: 1 kB\nMemAvailable:    8000000 kB\n"),
        ("proc/pressure/cpu", "some avg10=12.50 avg60=1.00 avg300=0.00 total=2500000\n"),
        ("proc/pressure/memory", "some avg10=101.00 total=-1\nfull avg10=x total=\n"),
    ];
    plant(root.path(), &files);
    let readings = HostSensors::at(root.path()).readings(&[]);
    use Quantity as Q;
    let ticks = crate::host::sysconf(libc::_SC_CLK_TCK).unwrap() as f64;
    for (mode, count) in [("user", 10.0), ("idle", 40.0), ("steal", 80.0)] {
        assert_eq!(value(&readings, Q::CpuTime, &[mode]), count / ticks);
    }
    assert_eq!(value(&readings, Q::ProcessCpuTime, &["user"]), 1234.0 / ticks);
    assert_eq!(value(&readings, Q::ProcessCpuTime, &["system"]), 66.0 / ticks);
    assert_eq!(value(&readings, Q::ProcessMemory, &[]), 10.0 * crate::host::page_size() as f64);
    assert_eq!(value(&readings, Q::SystemMemoryLimit, &[]), 16e6 * 1024.0);
    assert_eq!(value(&readings, Q::SystemMemoryAvailable, &[]), 8e6 * 1024.0);
    assert_eq!(value(&readings, Q::Stalled, &["cpu", "some"]), 2.5);
    assert_eq!(value(&readings, Q::StalledRatio, &["cpu", "some"]), 0.125);
    for (attributes, part) in [
        (["cpu", "full"], "has no number `avg10` for `full`"),
        (["memory", "some"], "has 101 % as `avg10`"),
        (["memory", "full"], "has no number `avg10` for `full`"),
        (["io", "some"], "there is no `/proc/pressure/io`"),
    ] {
        let reason = reason(&readings, Q::StalledRatio, &attributes);
        assert!(reason.contains(part), "{reason}");
    }
    assert!(reason(&readings, Q::Stalled, &["memory", "some"]).contains("has no number `total`"));
}

#[test]
fn a_worker_is_measured_in_place_of_this_process() {
    let root = tempfile::tempdir().unwrap();
    let stat = "42 (worker) S 1 2 3 4 5 6 7 8 9 10 300 20 16 17 18 19 20 21 22 23 7 25\n";
    plant(root.path(), &[("proc/42/stat", stat), ("proc/self/stat", "1 (host) S 0\n")]);
    plant(
        root.path(),
        &[
            ("proc/42/task/42/comm", "worker\n"),
            ("proc/42/task/43/comm", "elinvar-cpu-0\n"),
            ("proc/42/task/43/schedstat", "2500000000 500000000 7\n"),
        ],
    );
    let sensors = HostSensors::at(root.path());
    let ticks = crate::host::sysconf(libc::_SC_CLK_TCK).unwrap() as f64;
    let readings = sensors.of_worker(Some(42));
    assert_eq!(value(&readings, Quantity::WorkerTime, &["running", "0"]), 2.5);
    assert_eq!(value(&readings, Quantity::WorkerTime, &["waiting", "0"]), 0.5);
    assert_eq!(readings.of(Quantity::WorkerTime).count(), 2);
    assert_eq!(value(&readings, Quantity::ProcessCpuTime, &["user"]), 300.0 / ticks);
    assert_eq!(value(&readings, Quantity::ProcessMemory, &[]), 7.0 * crate::host::page_size() as f64);
    assert!(reason(&readings, Quantity::ProcessTaskClock, &[]).contains("are not counted"));
    for (worker, part) in [(None, "no worker process is running"), (Some(43), "there is no `/proc/43/stat`")]
    {
        let readings = sensors.of_worker(worker);
        assert!(reason(&readings, Quantity::ProcessCpuTime, &["system"]).contains(part));
        assert!(reason(&readings, Quantity::ProcessMemory, &[]).contains(part));
    }
    let short = reason(&sensors.readings(&[]), Quantity::ProcessCpuTime, &["user"]);
    assert!(short.ends_with("`/proc/self/stat` has no number as field 14"), "{short}");
}

#[test]
fn clocks_are_the_mean_and_the_highest_limit() {
    let root = tempfile::tempdir().unwrap();
    let cpu = "sys/devices/system/cpu";
    plant(root.path(), &[(&format!("{cpu}/cpuidle/x"), ""), (&format!("{cpu}/online"), "0-1")]);
    let none = HostSensors::at(root.path()).readings(&[]);
    assert!(reason(&none, Quantity::CpuSpeed, &[]).ends_with("has no processors"));
    for (cpu_n, now, most) in [("cpu0", "1000000\n", "3000000\n"), ("cpu1", "2000000\n", "4000000\n")] {
        let file = |name: &str| format!("{cpu}/{cpu_n}/cpufreq/{name}");
        plant(root.path(), &[(&file("scaling_cur_freq"), now), (&file("cpuinfo_max_freq"), most)]);
    }
    plant(root.path(), &[(&format!("{cpu}/cpu2/online"), "0")]);
    let readings = HostSensors::at(root.path()).readings(&[]);
    assert_eq!(value(&readings, Quantity::CpuSpeed, &[]), 1.5e9);
    assert_eq!(value(&readings, Quantity::CpuSpeedLimit, &[]), 4e9);
    plant(root.path(), &[(&format!("{cpu}/cpu1/cpufreq/scaling_cur_freq"), "<unknown>\n")]);
    let readings = HostSensors::at(root.path()).readings(&[]);
    assert!(reason(&readings, Quantity::CpuSpeed, &[]).contains("is not a number: `<unknown>`"));
}

#[test]
fn limits_of_control_groups_of_both_versions_are_read() {
    let second = tempfile::tempdir().unwrap();
    let files = [
        ("proc/self/cgroup", "0::/a/b\n"),
        ("sys/fs/cgroup/a/b/memory.max", "max\n"),
        ("sys/fs/cgroup/a/b/memory.current", "4096\n"),
        ("sys/fs/cgroup/a/memory.max", "8192\n"),
        ("sys/fs/cgroup/a/b/cpu.max", "max 100000\n"),
        ("sys/fs/cgroup/a/cpu.max", "250000 100000\n"),
        ("sys/fs/cgroup/cpu.max", "100000 0\n"),
    ];
    plant(second.path(), &files);
    let first = tempfile::tempdir().unwrap();
    let files = [
        ("proc/self/cgroup", "5:cpu,cpuacct:/p\n4:memory:/p\n0::/\n"),
        ("sys/fs/cgroup/unified/x", ""),
        ("sys/fs/cgroup/memory/p/memory.limit_in_bytes", "8192\n"),
        ("sys/fs/cgroup/memory/p/memory.usage_in_bytes", "4096\n"),
        ("sys/fs/cgroup/cpu,cpuacct/p/cpu.cfs_quota_us", "250000\n"),
        ("sys/fs/cgroup/cpu,cpuacct/p/cpu.cfs_period_us", "100000\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
        ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
    ];
    plant(first.path(), &files);
    for root in [&second, &first] {
        let readings = HostSensors::at(root.path()).readings(&[]);
        assert_eq!(value(&readings, Quantity::ContainerMemory, &[]), 4096.0);
        assert_eq!(value(&readings, Quantity::ContainerMemoryLimit, &[]), 8192.0);
        assert_eq!(value(&readings, Quantity::ContainerCpuLimit, &[]), 2.5);
    }
    let free = tempfile::tempdir().unwrap();
    plant(
        free.path(),
        &[
            ("proc/self/cgroup", "4:memory:/\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ],
    );
    let readings = HostSensors::at(free.path()).readings(&[]);
    assert!(
        reason(&readings, Quantity::ContainerMemoryLimit, &[]).contains("no control group limits the memory")
    );
    assert!(
        reason(&readings, Quantity::ContainerCpuLimit, &[])
            .contains("no control group limits the processors")
    );
    assert!(reason(&readings, Quantity::ContainerMemory, &[]).contains("no memory controller"));
}

#[test]
fn zones_have_temperatures_and_trip_points() {
    let root = tempfile::tempdir().unwrap();
    let zone = |file: &str, text: &str| plant(root.path(), &[(&format!("sys/class/thermal/{file}"), text)]);
    zone("cooling_device0/temp", "1");
    let none = HostSensors::at(root.path()).readings(&[]);
    assert!(reason(&none, Quantity::Temperature, &["cpu"]).ends_with("has no thermal zone"));
    zone("thermal_zone0/type", "x86_pkg_temp\n");
    zone("thermal_zone0/temp", "45500\n");
    zone("thermal_zone0/trip_point_0_type", "critical\n");
    zone("thermal_zone0/trip_point_0_temp", "100000\n");
    zone("thermal_zone0/trip_point_1_type", "passive\n");
    zone("thermal_zone0/trip_point_1_temp", "-274000\n");
    zone("thermal_zone1/type", "acpitz\n");
    zone("thermal_zone1/temp", "99999999999\n");
    let readings = HostSensors::at(root.path()).readings(&[]);
    assert_eq!(value(&readings, Quantity::Temperature, &["thermal_zone0 x86_pkg_temp"]), 45.5);
    let limits: Vec<_> =
        readings.of(Quantity::TemperatureLimit).map(|reading| &reading.attributes[0]).collect();
    assert_eq!(limits, ["thermal_zone0 critical 0"], "the other is not set");
    assert_eq!(value(&readings, Quantity::TemperatureLimit, &["thermal_zone0 critical 0"]), 100.0);
    assert!(
        reason(&readings, Quantity::Temperature, &["thermal_zone1 acpitz"]).contains("is not a temperature")
    );
}

#[test]
fn a_file_that_may_not_be_read_or_is_none_is_a_reason() {
    use std::io::{Error, ErrorKind};
    let reason = |kind| super::files::unreadable("sys/x", &Error::from(kind)).to_string();
    assert_eq!(reason(ErrorKind::PermissionDenied), "unsupported: this user may not read `/sys/x`");
    assert_eq!(reason(ErrorKind::NotFound), "unsupported: there is no `/sys/x`");
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(root.path().join("proc/meminfo")).unwrap();
    std::fs::write(root.path().join("proc/stat"), [0xff, 0xfe]).unwrap();
    let readings = HostSensors::at(root.path()).readings(&[]);
    for (quantity, attributes) in [(Quantity::SystemMemoryLimit, vec![]), (Quantity::CpuTime, vec!["user"])] {
        let reason = readings.value(quantity, &attributes).unwrap_err().to_string();
        assert!(reason.contains("cannot be read: "), "{reason}");
    }
}

#[test]
fn this_machine_is_measured_or_says_why_not() {
    let readings = HostSensors::this().readings(&[]);
    if cfg!(target_os = "linux") {
        let used = value(&readings, Quantity::ProcessMemory, &[]);
        assert!((1e5..1e12).contains(&used), "{used}");
        let idle = value(&readings, Quantity::CpuTime, &["idle"]);
        assert!(idle > 0.0);
        assert!(value(&readings, Quantity::SystemMemoryLimit, &[]) > used);
    }
    for reading in readings.list.iter().filter_map(|reading| reading.value.as_ref().err()) {
        assert!(reading.to_string().starts_with("unsupported: "), "{reading}");
    }
}

#[test]
fn workers_are_measured_one_by_one() {
    let root = tempfile::tempdir().unwrap();
    plant(
        root.path(),
        &[
            ("proc/self/task/7/schedstat", "1000000000 250000000 3\n"),
            ("proc/self/task/8/schedstat", "1000000000\n"),
        ],
    );
    let readings = HostSensors::at(root.path()).readings(&[Some(7), Some(8), Some(9), None]);
    assert_eq!(value(&readings, Quantity::WorkerTime, &["running", "0"]), 1.0);
    assert_eq!(value(&readings, Quantity::WorkerTime, &["waiting", "0"]), 0.25);
    for (worker, part) in [
        ("1", "`/proc/self/task/8/schedstat` has no times: `1000000000`"),
        ("2", "there is no `/proc/self/task/9/schedstat`"),
        ("3", "has not started"),
    ] {
        let reason = reason(&readings, Quantity::WorkerTime, &["running", worker]);
        assert!(reason.contains(part), "{reason}");
    }
}
