//! Readings of the hardware and energy of work: plausible values that agree with one another, or the reason why there are none.

use std::time::{Duration, Instant};

use elinvar::{Device, DeviceKind, Error, Grid, Kernel, Quantity, Readings};

use super::{CaseResult, expect_all, kernel, run};

cases!("readings": plausible, at_work, energy);

const THREADS: usize = 1 << 16;

/// A kernel that computes for a while, and its work: `rounds` steps of a linear congruential generator for each thread.
struct Busy {
    kernel: Kernel,
    rounds: u32,
}

impl Busy {
    fn new(device: &Device) -> elinvar::Result<Self> {
        let body =
            "kernel void busy(device uint* x, constant uint& rounds, uint i [[thread_position_in_grid]]) {
            uint value = x[i];
            for (uint round = 0; round < rounds; round++) { value = value * 1664525u + 1013904223u; }
            x[i] = value;
        }";
        // A GPU has several thousand times as many arithmetic units as a processor.
        let rounds = if device.kind() == DeviceKind::Cuda { 40_000_000 } else { 2_000 };
        Ok(Self { kernel: kernel(device, "busy", body)?, rounds })
    }

    /// Runs it once and compares every element.
    fn run(&self, device: &Device) -> elinvar::Result<()> {
        let mut x = device.buffer_with_data(&(0..THREADS as u32).collect::<Vec<_>>())?;
        run(device, &self.kernel, Grid::threads(THREADS), (&mut x, self.rounds))?;
        // `rounds` steps in one, by squaring: x ↦ a·x + c.
        let (mut factor, mut term, mut a, mut c) = (1_u32, 0_u32, 1_664_525_u32, 1_013_904_223_u32);
        let mut left = self.rounds;
        while left > 0 {
            if left % 2 == 1 {
                (factor, term) = (factor.wrapping_mul(a), term.wrapping_mul(a).wrapping_add(c));
            }
            (a, c) = (a.wrapping_mul(a), a.wrapping_mul(c).wrapping_add(c));
            left /= 2;
        }
        expect_all(&x.to_vec()?, |i| (i as u32).wrapping_mul(factor).wrapping_add(term));
        Ok(())
    }
}

/// The sum of a quantity over its parts that are measured.
fn sum(readings: &Readings, quantity: Quantity) -> f64 {
    readings.of(quantity).filter_map(|reading| reading.value.as_ref().ok()).sum()
}

/// Two readings: what each value may be, and that counters do not go back.
fn plausible(device: &Device) -> CaseResult {
    let [first, second] = [device.readings()?, device.readings()?];
    assert!(!first.list.is_empty());
    for reading in &first.list {
        let (quantity, attributes) = (reading.quantity, &reading.attributes);
        assert_eq!(attributes.len(), quantity.attributes().len(), "{reading:?}");
        let value = match &reading.value {
            Ok(value) => *value,
            Err(Error::Unsupported(reason)) => {
                assert!(!reason.is_empty());
                continue;
            }
            Err(other) => panic!("{quantity:?}: {other}"),
        };
        let range = match quantity {
            Quantity::Temperature | Quantity::TemperatureLimit => -60.0..200.0,
            Quantity::Power | Quantity::PowerLimit => 0.1..1e5,
            Quantity::GpuSpeed | Quantity::GpuSpeedLimit | Quantity::CpuSpeed | Quantity::CpuSpeedLimit => {
                1e7..1e11
            }
            Quantity::PcieGeneration | Quantity::PcieGenerationLimit => 1.0..10.0,
            _ if quantity.unit() == "1" => 0.0..256.0,
            _ => 0.0..f64::INFINITY,
        };
        assert!(range.contains(&value), "{quantity:?} {attributes:?}: {value}");
        if quantity.is_counter() {
            let parts: Vec<&str> = attributes.iter().map(String::as_str).collect();
            let later = second.value(quantity, &parts)?;
            assert!(later >= value, "{quantity:?} {attributes:?}: {value}, then {later}");
        }
    }
    for share in [Quantity::GpuUtilization, Quantity::MemoryInterfaceUtilization, Quantity::StalledRatio] {
        assert!(first.of(share).all(|reading| reading.value.as_ref().map_or(true, |share| *share <= 1.0)));
    }
    let value = |quantity| first.value(quantity, &[]);
    match device.kind() {
        DeviceKind::Cuda => {
            let total = device.caps().limits.total_memory as f64;
            let told = value(Quantity::GpuMemoryLimit)?;
            assert!((total..total * 1.1).contains(&told), "{told} bytes by NVML, {total} by CUDA");
            assert!(value(Quantity::GpuMemoryUsage)? <= told);
            first.value(Quantity::Temperature, &["gpu"])?;
            first.value(Quantity::GpuSpeed, &["sm"])?;
        }
        _ => {
            let total = value(Quantity::SystemMemoryLimit)?;
            assert!(value(Quantity::SystemMemoryAvailable)? <= total);
            assert!(sum(&first, Quantity::CpuTime) > 0.0);
        }
    }
    Ok(())
}

/// Work shows: in the time of the processors, in the utilization and the clocks of a GPU.
fn at_work(device: &Device) -> CaseResult {
    let busy = Busy::new(device)?;
    busy.run(device)?;
    let counts_events = device.count_events().is_ok();
    let before = device.readings()?;
    let begin = Instant::now();
    loop {
        // The utilization is that of the last second; it is read from another thread while a kernel runs.
        let now = std::thread::scope(|scope| {
            let reads = scope.spawn(|| device.readings());
            busy.run(device)?;
            reads.join().expect("it does not panic")
        })?;
        let works = match device.kind() {
            DeviceKind::Cuda => {
                let utilization = now.value(Quantity::GpuUtilization, &[])?;
                utilization > 0.0 && now.value(Quantity::GpuSpeed, &["sm"])? > 1e8
            }
            // Kernels run in this process, or in a worker.
            _ => {
                let own = |readings: &Readings| readings.value(Quantity::ProcessCpuTime, &["user"]);
                let all = |readings: &Readings| readings.value(Quantity::CpuTime, &["user"]);
                match (own(&before), own(&now)) {
                    (Ok(before), Ok(now)) => now > before,
                    _ => all(&now)? > all(&before)?,
                }
            }
        };
        let clock = |readings: &Readings| readings.value(Quantity::ProcessTaskClock, &[]);
        if counts_events {
            assert!(clock(&now)? > clock(&before)?, "{now:?}");
        }
        if works {
            return Ok(());
        }
        // Far longer than any sampling period.
        assert!(begin.elapsed() < Duration::from_secs(60), "a busy device looks idle: {now:?}");
    }
}

/// The energy of launches is positive, bounded by the power limit, and more for more launches.
fn energy(device: &Device) -> CaseResult {
    let busy = Busy::new(device)?;
    busy.run(device)?;
    let one = device.energy_each(0.2, Duration::from_secs(120), || busy.run(device))?;
    assert!(one.joules > 0.0 && one.relative_error() <= 0.2, "{one:?}");
    let limits = device.readings()?;
    let limit = sum(&limits, Quantity::PowerLimit);
    if device.kind() == DeviceKind::Cuda {
        assert!(one.watts() < limit * 1.2, "{} W, limit {limit} W", one.watts());
    }
    let before = sum(&limits, Quantity::Energy);
    let (_, several) = device.energy_of(|| (0..20).try_for_each(|_| busy.run(device)))?;
    let after = sum(&device.readings()?, Quantity::Energy);
    // The counter of the readings is the same.
    assert!(after - before >= several.joules - 1e-3, "{several:?}: {before} J to {after} J");
    assert!(several.joules + several.error > one.joules, "{several:?} {one:?}");
    Ok(())
}
