//! `elinvar bench devices`: transfers, collectives and data-parallel work on all devices of a kind, compared with bare calls of the vendor's libraries in
//! the same run, or with one device.
//!
//! Each row is printed when it has been measured. A row that fails is printed with its error, and the rest goes on.

mod bare;
mod collectives;
mod copies;
mod work;

use std::time::{Duration, Instant};

use elinvar::{Device, DeviceKind, Error};
use serde_json::{Value, json};

use super::targets::Goal;
use crate::failure::{Failure, Result};
use crate::report::{median, print_json, say};

/// Samples of each row, of which the median counts.
const ROUNDS: usize = 15;
/// Time after which a row takes no further samples, if it has three.
const ENOUGH: Duration = Duration::from_secs(5);

/// The devices of a row.
struct Setup {
    devices: Vec<Device>,
    /// Of any kind.
    all: Vec<Device>,
}

impl Setup {
    fn is_gpu(&self) -> bool {
        self.devices.iter().all(|device| device.kind() != DeviceKind::Cpu)
    }

    fn is_cuda(&self) -> bool {
        self.devices.iter().all(|device| device.kind() == DeviceKind::Cuda)
    }

    fn count(&self) -> usize {
        self.devices.len()
    }

    /// # Errors
    /// `Unsupported` with fewer than two devices.
    fn expect_several(&self) -> Result<()> {
        match self.count() {
            0 | 1 => Err(Error::unsupported(
                "there is one device only; ELINVAR_CPU_DEVICES=4 divides the CPU into four",
            )
            .into()),
            _ => Ok(()),
        }
    }
}

/// What a row has measured.
struct Figure {
    value: f64,
    unit: &'static str,
    /// What the value is a quotient of, human-readable.
    detail: String,
}

struct Row {
    name: &'static str,
    /// For GPUs; given their number.
    goal: fn(usize) -> Goal,
    how: &'static str,
    measure: fn(&Setup) -> Result<Figure>,
}

const fn none(_: usize) -> Goal {
    Goal::None
}

/// Nine tenths of the number of devices: 3.6 for four.
fn gain(devices: usize) -> Goal {
    Goal::AtLeast(0.9 * devices as f64)
}

fn close(_: usize) -> Goal {
    Goal::AtLeast(0.97)
}

const ROWS: &[Row] = &[
    Row {
        name: "copy_1_mib",
        goal: |_| Goal::AtLeast(1.0 / 1.05),
        how: "bare / ours: 32 copies of 1 MiB to the next device in one stream, from the first submission to the end of the wait",
        measure: |setup| copies::copy(setup, 1 << 20, 32),
    },
    Row {
        name: "copy_16_mib",
        goal: close,
        how: "the same, 32 copies of 16 MiB",
        measure: |setup| copies::copy(setup, 16 << 20, 32),
    },
    Row {
        name: "copy_256_mib",
        goal: close,
        how: "the same, 2 copies of 256 MiB",
        measure: |setup| copies::copy(setup, 256 << 20, 2),
    },
    Row {
        name: "copy_1_mib_alone",
        goal: none,
        how: "the same, one copy of 1 MiB",
        measure: |setup| copies::copy(setup, 1 << 20, 1),
    },
    Row {
        name: "all_reduce",
        goal: close,
        how: "bare / ours: 20 sums (CPU: one) of 64 Mi floats (CPU: 4 Mi) in place on all devices, from the first submission to the end of all waits",
        measure: |setup| collectives::measure(setup, collectives::Kind::AllReduce, collectives::Load::Many),
    },
    Row {
        name: "all_gather",
        goal: close,
        how: "the same, all-gather to 64 Mi floats",
        measure: |setup| collectives::measure(setup, collectives::Kind::AllGather, collectives::Load::Many),
    },
    Row {
        name: "reduce_scatter",
        goal: close,
        how: "the same, reduce-scatter of 64 Mi floats",
        measure: |setup| {
            collectives::measure(setup, collectives::Kind::ReduceScatter, collectives::Load::Many)
        },
    },
    Row {
        name: "broadcast",
        goal: close,
        how: "the same, broadcast of 64 Mi floats",
        measure: |setup| collectives::measure(setup, collectives::Kind::Broadcast, collectives::Load::Many),
    },
    Row {
        name: "all_reduce_alone",
        goal: none,
        how: "the same, one sum of 64 Mi floats",
        measure: |setup| collectives::measure(setup, collectives::Kind::AllReduce, collectives::Load::One),
    },
    Row {
        name: "all_reduce_small",
        goal: none,
        how: "the same, 16 sums of 1024 floats, one after the other",
        measure: |setup| collectives::measure(setup, collectives::Kind::AllReduce, collectives::Load::Small),
    },
    Row {
        name: "halo_exchange",
        goal: |_| Goal::AtMost(1.1),
        how: "a step of a stencil with overlapped exchange, by the larger of the exchange alone and the computation alone; mean of 20 steps",
        measure: work::halo,
    },
    Row {
        name: "nbody",
        goal: gain,
        how: "time of one device / time of all: steps of an n-body simulation, with the all-gather of the positions",
        measure: work::nbody,
    },
    Row {
        name: "nbody_large",
        goal: gain,
        how: "the same with as many bodies on each device as `nbody` has on one",
        measure: work::nbody_large,
    },
    Row {
        name: "product_rows",
        goal: gain,
        how: "time of one device / time of all: a product of matrices, the left one divided by rows",
        measure: work::product,
    },
    Row {
        name: "unlike_devices",
        goal: none,
        how: "time of the fastest device / time with a CPU device beside it: n-body, divided by measured speed",
        measure: work::unlike,
    },
];

/// Median times in nanoseconds of runs that alternate, after one round that is not counted. A run returns its own time.
fn medians(runs: &mut [&mut dyn FnMut() -> Result<u64>]) -> Result<Vec<u64>> {
    for run in runs.iter_mut() {
        run()?;
    }
    let begin = Instant::now();
    let mut times = vec![Vec::new(); runs.len()];
    for round in 0..ROUNDS {
        if round >= 3 && begin.elapsed() > ENOUGH {
            break;
        }
        for (run, times) in runs.iter_mut().zip(&mut times) {
            times.push(run()?);
        }
    }
    Ok(times.into_iter().map(median).collect())
}

/// Time of a call in nanoseconds.
fn timed(run: impl FnOnce() -> Result<()>) -> Result<u64> {
    let begin = Instant::now();
    run()?;
    Ok(begin.elapsed().as_nanos() as u64)
}

pub(super) fn run(names: &[String], as_json: bool) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !ROWS.iter().any(|row| row.name == **name)) {
        let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        let known = known.join(", ");
        return Err(Failure::usage(format!("`{unknown}` is not a row of devices; they are {known}")));
    }
    let all = Device::all()?;
    // The first is the fastest kind.
    let kind = all.first().map(Device::kind);
    let devices = all.iter().filter(|device| Some(device.kind()) == kind).cloned().collect();
    let setup = Setup { devices, all };
    if !as_json {
        for (at, device) in setup.devices.iter().enumerate() {
            say(format_args!("{}:{at}  {}", device.kind().name(), device.name()))?;
        }
        say("\nGoals are those of GPUs.\n")?;
        say(format_args!("{:<18} {:>10} {:>10}  {:<7} ", "row", "measured", "goal", ""))?;
    }
    let mut results = Vec::new();
    for row in ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)) {
        let begin = Instant::now();
        let measured = (row.measure)(&setup);
        let goal = if setup.is_gpu() { (row.goal)(setup.count()) } else { Goal::None };
        if as_json {
            results.push(result(row, goal, &measured));
        } else {
            print(row, goal, &measured, begin.elapsed())?;
        }
    }
    if as_json {
        let devices: Vec<&str> = setup.devices.iter().map(Device::name).collect();
        return print_json(&json!({ "devices": devices, "results": results }));
    }
    say("")?;
    ROWS.iter().try_for_each(|row| say(format_args!("{}: {}", row.name, row.how)))
}

fn print(row: &Row, goal: Goal, measured: &Result<Figure>, took: Duration) -> Result<()> {
    let name = row.name;
    let figure = match measured {
        Ok(figure) => figure,
        Err(error) => return say(format_args!("{name:<18} {error}")),
    };
    let wanted = match goal {
        Goal::AtMost(most) => format!("<= {most:.2}"),
        Goal::AtLeast(least) => format!(">= {least:.2}"),
        Goal::None => String::new(),
    };
    let verdict = goal.is_met(figure.value).map_or("", |met| if met { "met" } else { "missed" });
    let value = format!("{:.3} {}", figure.value, figure.unit);
    say(format_args!(
        "{name:<18} {value:>10} {wanted:>10}  {verdict:<7} {} ({:.1} s)",
        figure.detail,
        took.as_secs_f64()
    ))
}

fn result(row: &Row, goal: Goal, measured: &Result<Figure>) -> Value {
    let mut json = json!({ "name": row.name, "how": row.how });
    match goal {
        Goal::AtMost(most) => json["at_most"] = most.into(),
        Goal::AtLeast(least) => json["at_least"] = least.into(),
        Goal::None => {}
    }
    match measured {
        Ok(Figure { value, unit, detail }) => {
            json["value"] = (*value).into();
            json["unit"] = (*unit).into();
            json["detail"] = detail.as_str().into();
            json["met"] = goal.is_met(*value).into();
        }
        Err(error) => json["error"] = error.to_string().into(),
    }
    json
}
