//! [`Meter`]: the energy of work, by the device's energy counter, with its error.
//!
//! The hardware updates the counter in steps: RAPL about every millisecond (Intel SDM, volume 3, "RAPL Interfaces"), NVML every 20 to 100 ms. What was
//! used since the last step is not in the counter yet, at the begin and at the end. With steps of `U` seconds and at most `P` watts, the
//! difference of two values is therefore within ± `P`·`U` of the energy between them, whatever the work does. `U` is measured. The energy of
//! a CPU is the sum of several counters, with steps at different moments.

use std::time::{Duration, Instant};

use elinvar_driver::{Energy, Error, Result};

use crate::Device;

/// Steps of each counter that are measured.
const STEPS: u32 = 5;
/// Time in which a counter must have made them.
const PATIENCE: Duration = Duration::from_secs(2);
/// Pause between two readings of a counter while its steps are measured.
const PAUSE: Duration = Duration::from_micros(100);

/// Steps of an energy counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The longest of some.
    interval: Duration,
    /// The highest power during one.
    watts: f64,
}

/// Energy that a device has used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Consumption {
    /// Energy in joules, of the whole device: idle power and other processes are included.
    pub joules: f64,
    /// Bound of its error in joules, by the steps of the counter and the power limit. The accuracy of the sensors themselves is not
    /// included.
    pub error: f64,
    /// Smallest difference that the counter shows, in joules; part of the error.
    pub resolution: f64,
    /// Time between begin and end.
    pub duration: Duration,
    /// The longest observed interval between two updates of the counter.
    pub update_interval: Duration,
}

impl Consumption {
    /// Mean power in watts.
    pub fn watts(&self) -> f64 {
        self.joules / self.duration.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The error as a share of the energy; infinite if the counter has not moved.
    pub fn relative_error(&self) -> f64 {
        if self.joules > 0.0 { self.error / self.joules } else { f64::INFINITY }
    }

    /// The share of one of `count` equal parts.
    pub fn per(&self, count: u32) -> Self {
        let count = count.max(1);
        let part = |joules: f64| joules / f64::from(count);
        Self {
            joules: part(self.joules),
            error: part(self.error),
            resolution: part(self.resolution),
            duration: self.duration / count,
            update_interval: self.update_interval,
        }
    }
}

/// Measures the energy of the work since it was created; see [`Device::meter`].
#[derive(Debug)]
pub struct Meter {
    device: Device,
    step: Step,
    energy: Energy,
    /// When the counter had been read, and how long that took.
    begun: Instant,
    took: Duration,
}

impl Meter {
    /// The energy since the meter was created. Can be called again.
    ///
    /// # Errors
    /// `Unsupported` if the counter can no longer be read.
    pub fn read(&self) -> Result<Consumption> {
        let duration = self.begun.elapsed();
        let (energy, took) = timed(&self.device)?;
        let joules = energy.joules - self.energy.joules;
        if joules < 0.0 {
            let name = self.device.name();
            return Err(Error::unsupported(format!("the energy counter of device `{name}` went back")));
        }
        let mean = joules / duration.as_secs_f64().max(f64::MIN_POSITIVE);
        let limit = energy.power_limit.or(self.energy.power_limit);
        let watts = limit.unwrap_or(0.0).max(mean).max(self.step.watts);
        let stale = self.step.interval + took.max(self.took);
        let error = watts * stale.as_secs_f64() + energy.resolution;
        let (resolution, update_interval) = (energy.resolution, self.step.interval);
        Ok(Consumption { joules, error, resolution, duration, update_interval })
    }
}

/// The counter, and how long it took to read it.
fn timed(device: &Device) -> Result<(Energy, Duration)> {
    let begin = Instant::now();
    let energy = device.driver().energy()?;
    Ok((energy, begin.elapsed()))
}

/// Measures the steps of a device's counter.
fn step(device: &Device) -> Result<Step> {
    let begin = Instant::now();
    let first = device.driver().energy()?;
    let (mut value, counters) = (first.joules, first.counters.max(1));
    let wanted = STEPS.saturating_mul(counters);
    // The last step: when the counter had its value before, when it had its new one, and that value.
    let mut last: Option<(Instant, Instant, f64)> = None;
    let (mut interval, mut watts, mut steps) = (Duration::ZERO, 0.0_f64, 0_u32);
    let mut unchanged = begin;
    while begin.elapsed() < PATIENCE && steps < wanted {
        let before = Instant::now();
        let joules = device.driver().energy()?.joules;
        let now = Instant::now();
        if joules == value {
            unchanged = before;
            std::thread::sleep(PAUSE);
            continue;
        }
        if let Some((earliest, latest, known)) = last.replace((unchanged, now, joules)) {
            // The steps are at most as far apart as their earliest and latest moments.
            interval = interval.max(now - earliest);
            watts = watts.max((joules - known) / (now - latest).as_secs_f64().max(f64::MIN_POSITIVE));
            steps += 1;
        }
        value = joules;
        unchanged = before;
    }
    if steps == wanted {
        // As many consecutive steps of the sum as there are counters take at least as long as one of each.
        return Ok(Step { interval: interval * counters, watts });
    }
    let (name, seconds) = (device.name(), PATIENCE.as_secs());
    Err(Error::unsupported(format!(
        "the energy counter of device `{name}` made {steps} steps in {seconds} s; {wanted} are needed to know its error"
    )))
}

impl Device {
    /// Begins a measurement of energy: of an NVIDIA GPU by NVML, of the CPU with its memory by RAPL. The first one of a device
    /// measures the steps of its counter, which takes some of them.
    ///
    /// ```
    /// # fn main() -> elinvar::Result<()> {
    /// let device = elinvar::Device::system_default()?;
    /// match device.meter() {
    ///     Ok(meter) => {
    ///         // … launches, and a wait for their end …
    ///         let used = meter.read()?;
    ///         println!("{} J ± {} J, {} W", used.joules, used.error, used.watts());
    ///     }
    ///     Err(reason) => println!("{reason}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` with the reason if the device's energy is not measured.
    pub fn meter(&self) -> Result<Meter> {
        let step = match self.hardware().step.get() {
            Some(step) => *step,
            None => {
                let step = step(self)?;
                *self.hardware().step.get_or_init(|| step)
            }
        };
        let (energy, took) = timed(self)?;
        Ok(Meter { device: self.clone(), step, energy, begun: Instant::now(), took })
    }

    /// Energy of work: of everything that the device does until `work` returns, which should wait for its launches.
    ///
    /// # Errors
    /// As [`Device::meter`]; those of `work`.
    pub fn energy_of<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, Consumption)> {
        let meter = self.meter()?;
        let result = work()?;
        Ok((result, meter.read()?))
    }

    /// Energy of one execution of `work`, which is repeated until the error is at most `share` of the energy: 0.05 for 5 %. `work` should
    /// wait for its launches.
    ///
    /// # Errors
    /// As [`Device::meter`]; those of `work`; `InvalidArgument` for a share that is not above 0; `Timeout` if the error is
    /// larger after `longest`.
    pub fn energy_each(
        &self,
        share: f64,
        longest: Duration,
        mut work: impl FnMut() -> Result<()>,
    ) -> Result<Consumption> {
        if share.is_nan() || share <= 0.0 {
            return Err(Error::invalid(format!("a relative error of {share}: it must be above 0")));
        }
        let meter = self.meter()?;
        let (mut runs, mut next) = (0_u32, Duration::ZERO);
        loop {
            work()?;
            runs = runs.saturating_add(1);
            let elapsed = meter.begun.elapsed();
            if elapsed < next {
                continue;
            }
            let used = meter.read()?;
            if used.relative_error() <= share {
                return Ok(used.per(runs));
            }
            if elapsed > longest {
                let percent = used.relative_error() * 100.0;
                return Err(Error::Timeout(format!(
                    "the error of the energy is still {percent:.1} % after {elapsed:.1?}"
                )));
            }
            // Readings are few, so that they cost little beside the work.
            next = elapsed + elapsed / 8;
        }
    }
}
