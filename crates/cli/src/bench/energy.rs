//! `elinvar bench --energy`: energy and time of a job under each power preference, and what [`PowerPreference::LowPower`] saves and costs.
//!
//! The energy is that of the device's counter, of one job of as many as make its error small; where there is none, the reason. The time is that
//! from the launch to the end of the wait.

use std::time::{Duration, Instant};

use elinvar::{Arg, Consumption, Device, Error, Grid, Kernel, Notice, PowerPreference, Stream, Thermal};
use serde_json::{Value, json};

use super::carried::compile;
use super::checks::{MATMUL, VECTOR_ADD};
use crate::failure::Result;
use crate::report::{energy_json, energy_text, median, print_json, print_table, say, time_text};

/// Largest error of an energy, as a share of it.
pub const ERROR: f64 = 0.05;
/// Time after which a measurement of energy gives up.
pub const LONGEST: Duration = Duration::from_secs(60);
/// Number of jobs whose median time is reported, behind one that warms up.
const ROUNDS: usize = 9;

/// A value, or the reason why it is not measured.
type Measured<T> = std::result::Result<T, String>;

/// A kernel with its arguments.
struct Job {
    name: &'static str,
    size: &'static str,
    kernel: Kernel,
    stream: Stream,
    grid: Grid,
    args: Vec<Arg>,
}

impl Job {
    #[allow(unsafe_code)] // launches
    fn run(&self) -> elinvar::Result<()> {
        // SAFETY: both kernels stay below `n`, for which their buffers were made.
        unsafe { self.kernel.launch(&self.stream, self.grid.clone(), &self.args) }?.wait().map(drop)
    }
}

/// One that computes, and one that moves memory.
fn jobs(device: &Device) -> elinvar::Result<[Job; 2]> {
    let floats =
        |count: usize| device.buffer_with_data(&(0..count).map(|i| (i % 7) as f32 - 3.0).collect::<Vec<_>>());
    let kernel = |file, text, name| compile(device, file, text)?.kernel(name);
    let (side, count) = (1024, 64 << 20);
    let (a, b, mut c) = (floats(side * side)?, floats(side * side)?, floats(side * side)?);
    let computes = Job {
        name: "matmul_naive",
        size: "1024x1024x1024 floats",
        kernel: kernel("matmul.metal", MATMUL, "matmul_naive")?,
        stream: device.stream()?,
        grid: Grid::threads((side, side)).group((32, 8)),
        args: vec![Arg::from(&a), Arg::from(&b), Arg::from(&mut c), Arg::from(side as u32)],
    };
    let (a, b, mut out) = (floats(count)?, floats(count)?, floats(count)?);
    let moves = Job {
        name: "vector_add",
        size: "67108864 floats",
        kernel: kernel("vector_add.metal", VECTOR_ADD, "vector_add")?,
        stream: device.stream()?,
        grid: Grid::threads(count).group(256),
        args: vec![Arg::from(&a), Arg::from(&b), Arg::from(&mut out), Arg::from(count as u32)],
    };
    Ok([computes, moves])
}

/// What the device is told.
#[derive(Clone, Copy)]
enum Setting {
    Preference(PowerPreference),
    Notice(Thermal),
}

const SETTINGS: [(&str, Setting); 3] = [
    ("HighPerformance", Setting::Preference(PowerPreference::HighPerformance)),
    ("LowPower", Setting::Preference(PowerPreference::LowPower)),
    ("Thermal::Serious", Setting::Notice(Thermal::Serious)),
];

impl Setting {
    fn set(self, device: &Device) -> elinvar::Result<()> {
        match self {
            Self::Preference(preference) => device.set_power_preference(preference),
            Self::Notice(thermal) => device.notice(Notice::Thermal(thermal)),
        }
    }
}

/// Back to all compute units, whatever failed.
struct Restored<'d>(&'d Device);

impl Drop for Restored<'_> {
    fn drop(&mut self) {
        let _all_units = self.0.notice(Notice::Thermal(Thermal::Nominal));
        let _all_units = self.0.set_power_preference(PowerPreference::HighPerformance);
    }
}

/// A job under a setting: its time and its energy, or the reason why the device does not have the setting.
struct Row {
    job: &'static str,
    size: &'static str,
    setting: &'static str,
    measured: Measured<(u64, Measured<Consumption>)>,
}

/// The reason why something is not measured; any other error is the caller's.
fn reason<T>(result: elinvar::Result<T>) -> Result<Measured<T>> {
    match result {
        Ok(value) => Ok(Ok(value)),
        Err(Error::Unsupported(reason) | Error::Timeout(reason)) => Ok(Err(reason)),
        Err(other) => Err(other.into()),
    }
}

fn measure(device: &Device, job: &Job, setting: Setting) -> Result<Measured<(u64, Measured<Consumption>)>> {
    let _restored = Restored(device);
    if let Err(why) = reason(setting.set(device))? {
        return Ok(Err(why));
    }
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let begin = Instant::now();
        job.run()?;
        if round > 0 {
            times.push(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        }
    }
    let energy = reason(device.energy_each(ERROR, LONGEST, || job.run()))?;
    Ok(Ok((median(times), energy)))
}

/// Measures both jobs on a device and prints the rows.
pub fn run(device: &Device, json: bool) -> Result<()> {
    let mut rows = Vec::new();
    for job in jobs(device)? {
        for (setting, what) in SETTINGS {
            let measured = measure(device, &job, what)?;
            rows.push(Row { job: job.name, size: job.size, setting, measured });
        }
    }
    if json {
        let results: Vec<Value> = rows.iter().map(|row| row.json(&rows)).collect();
        return print_json(
            &json!({ "device": device.name(), "kind": device.kind().name(), "results": results }),
        );
    }
    say(format_args!("{}: {}", device.kind().name(), device.name()))?;
    let cells: Vec<Vec<String>> = rows.iter().map(|row| row.cells(&rows)).collect();
    print_table(&["job", "setting", "time", "/ all units", "energy", "/ all units", "size"], &cells)?;
    let mut reasons: Vec<&str> = Vec::new();
    for row in &rows {
        let why = match &row.measured {
            Err(why) | Ok((_, Err(why))) => why.as_str(),
            Ok((_, Ok(_))) => continue,
        };
        if !reasons.contains(&why) {
            reasons.push(why);
        }
    }
    reasons.into_iter().try_for_each(|why| say(format_args!("unsupported: {why}")))
}

impl Row {
    /// Time and energy as shares of those with all units.
    fn shares(&self, rows: &[Self]) -> (Option<f64>, Option<f64>) {
        let all = rows.iter().find(|row| row.job == self.job && row.setting == SETTINGS[0].0);
        let (Ok((ns, energy)), Some(Ok((all_ns, all_energy)))) =
            (&self.measured, all.map(|row| &row.measured))
        else {
            return (None, None);
        };
        let energy = energy.as_ref().ok().zip(all_energy.as_ref().ok());
        (Some(*ns as f64 / (*all_ns).max(1) as f64), energy.map(|(own, all)| own.joules / all.joules))
    }

    fn cells(&self, rows: &[Self]) -> Vec<String> {
        let (time, energy) = match &self.measured {
            Ok((ns, Ok(used))) => (time_text(*ns), energy_text(used)),
            Ok((ns, Err(_))) => (time_text(*ns), "unsupported".into()),
            Err(_) => ("unsupported".into(), "unsupported".into()),
        };
        let (of_time, of_energy) = self.shares(rows);
        let share = |share: Option<f64>| share.map_or_else(String::new, |share| format!("{share:.2}"));
        vec![
            self.job.into(),
            self.setting.into(),
            time,
            share(of_time),
            energy,
            share(of_energy),
            self.size.into(),
        ]
    }

    fn json(&self, rows: &[Self]) -> Value {
        let (of_time, of_energy) = self.shares(rows);
        let mut json = json!({ "job": self.job, "size": self.size, "setting": self.setting });
        match &self.measured {
            Ok((ns, energy)) => {
                json["median_ns"] = (*ns).into();
                json["time_ratio"] = of_time.into();
                json["energy"] = energy_json(energy.as_ref().map_err(String::as_str));
                json["energy_ratio"] = of_energy.into();
            }
            Err(why) => json["unsupported"] = why.as_str().into(),
        }
        json
    }
}
