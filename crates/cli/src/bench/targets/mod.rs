//! `elinvar bench targets`: the figures that the project promises, each with its target, measured on one device.
//!
//! A row is measured [`TIMES`] times; the median, the least and the greatest value are reported. What a device cannot do is reported with the
//! reason, and counts neither as met nor as missed.

mod faults;
mod kernels;
mod launches;
mod memory;
mod monitoring;
mod output;

use std::path::Path;

use elinvar::Error;

use super::{Context, compile, first, runtime};
use crate::failure::{Failure, Result};
use crate::progress::Progress;

/// Number of measurements of a row.
const TIMES: usize = 5;

/// What is measured, and its target.
struct Target {
    name: &'static str,
    goal: Goal,
    unit: Unit,
    /// The measurement.
    how: &'static str,
    measure: fn(&Context) -> Result<f64>,
}

#[derive(Clone, Copy)]
pub(super) enum Goal {
    AtMost(f64),
    AtLeast(f64),
    /// The figure is reported, without a target.
    None,
}

impl Goal {
    pub(super) fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::AtMost(most) => Some(value <= most),
            Self::AtLeast(least) => Some(value >= least),
            Self::None => None,
        }
    }
}

#[derive(Clone, Copy)]
enum Unit {
    Milliseconds,
    Microseconds,
    Nanoseconds,
    /// A share of 100; negative if ours is faster than what it is compared with.
    Percent,
    /// How many times as fast.
    Times,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Microseconds => "us",
            Self::Nanoseconds => "ns",
            Self::Percent => "%",
            Self::Times => "x",
        }
    }
}

const TARGETS: [Target; 29] = [
    Target {
        name: "vector_add_1m",
        goal: Goal::AtMost(0.15),
        unit: Unit::Milliseconds,
        how: "vector_add of 1,048,576 floats in device memory, from the launch to the end of the wait",
        measure: launches::vector_add,
    },
    Target {
        name: "matmul_1024",
        goal: Goal::AtMost(0.5),
        unit: Unit::Milliseconds,
        how: "tensor product of two 1024 x 1024 matrices of floats, Route::Auto, from the submission to the end of the wait",
        measure: kernels::matmul,
    },
    Target {
        name: "buffer_1mib",
        goal: Goal::AtMost(0.05),
        unit: Unit::Milliseconds,
        how: "allocation and release of a buffer of 1 MiB, from the pool, without zeroing",
        measure: memory::allocation,
    },
    Target {
        name: "pool_hits",
        goal: Goal::AtLeast(90.0),
        unit: Unit::Percent,
        how: "share of 4,000 allocations of 4 KiB to 4 MiB, at random, that the pool serves; 16 live at a time; the pool is empty at first",
        measure: memory::hits,
    },
    Target {
        name: "command_buffer",
        goal: Goal::None,
        unit: Unit::Microseconds,
        how: "creation of a command buffer and encoding of one launch, without submission",
        measure: launches::command_buffer,
    },
    Target {
        name: "command_buffer_allocations",
        goal: Goal::AtLeast(90.0),
        unit: Unit::Percent,
        how: "heap allocations that reuse saves: of 1,000 command buffers of one launch, one after the other with a wait, against as many that exist at the same time",
        measure: launches::allocations_saved,
    },
    Target {
        name: "command_buffer_reuse",
        goal: Goal::AtLeast(65.0),
        unit: Unit::Percent,
        how: "share of 1,000 command buffers that reused a command list; up to 32 in flight",
        measure: launches::reuse,
    },
    Target {
        name: "argument_binding",
        goal: Goal::None,
        unit: Unit::Nanoseconds,
        how: "validation and binding of one buffer argument: encoding a launch with 16 of them, less one with one of them, by 15",
        measure: launches::binding,
    },
    Target {
        name: "launch",
        goal: Goal::AtMost(100.0),
        unit: Unit::Microseconds,
        how: "vector_add of one threadgroup, from the launch to the end of the wait; promised are 20 to 100 us",
        measure: launches::launch,
    },
    Target {
        name: "batching",
        goal: Goal::AtLeast(60.0),
        unit: Unit::Percent,
        how: "time that one command buffer saves of 1,000 launches with a wait each",
        measure: |context| saved(runtime::batch_1000(context)),
    },
    Target {
        name: "streams_4",
        goal: Goal::AtLeast(2.0),
        unit: Unit::Times,
        how: "4 launches of one thread each on 4 streams, against one stream",
        measure: |context| speedup(runtime::streams::<4>(context)),
    },
    Target {
        name: "streams_6",
        goal: Goal::AtLeast(2.0),
        unit: Unit::Times,
        how: "6 launches of one thread each on 6 streams, against one stream",
        measure: |context| speedup(runtime::streams::<6>(context)),
    },
    Target {
        name: "mixed_load",
        goal: Goal::AtLeast(2.5),
        unit: Unit::Times,
        how: "120 jobs (upload, kernel and download of 256 KiB; a threadgroup that computes; a copy of 1 MiB) on 6 streams, against one stream with a wait behind each command",
        measure: launches::mixed_load,
    },
    Target {
        name: "surviving_work",
        goal: Goal::AtLeast(95.0),
        unit: Unit::Percent,
        how: "share of 300 jobs with right results on a recovering stream of an isolated device, whose worker process is killed 30 times at random moments",
        measure: faults::surviving,
    },
    Target {
        name: "storage_mode",
        goal: Goal::AtLeast(20.0),
        unit: Unit::Percent,
        how: "speedup of vector_add of 16 Mi floats in memory of `HostAccess::Never`, against shared memory, on the device's clock",
        measure: memory::storage_mode,
    },
    Target {
        name: "threadgroup_size",
        goal: Goal::AtLeast(5.0),
        unit: Unit::Percent,
        how: "speedup by `Kernel::tune` against threadgroups of 256, geometric mean over the kernels of `bench cpu` that allow any size",
        measure: kernels::threadgroup_size,
    },
    Target {
        name: "vendor_library_1024",
        goal: Goal::AtLeast(10.0),
        unit: Unit::Times,
        how: "product of 1024 x 1024 floats by the library (Route::Vendor), against the kernel matmul_naive, on the device's clock",
        measure: |context| kernels::library(context, 1024),
    },
    Target {
        name: "vendor_library_2048",
        goal: Goal::AtLeast(10.0),
        unit: Unit::Times,
        how: "the same of 2048 x 2048 floats",
        measure: |context| kernels::library(context, 2048),
    },
    Target {
        name: "upload_overhead",
        goal: Goal::AtMost(5.0),
        unit: Unit::Percent,
        how: "`Buffer::write` of 64 MiB, against memcpy (CPU) or cuMemcpyHtoD of the same memory",
        measure: memory::upload,
    },
    Target {
        name: "download_overhead",
        goal: Goal::AtMost(5.0),
        unit: Unit::Percent,
        how: "`Buffer::read` of 64 MiB, against memcpy (CPU) or cuMemcpyDtoH of the same memory",
        measure: memory::download,
    },
    Target {
        name: "grid_barrier",
        goal: Goal::AtMost(2.0),
        unit: Unit::Percent,
        how: "time that 20 steps of a stencil over 32 Mi floats (256 MiB moved by each) with a grid barrier behind each take more than the steps in a launch each, in one command buffer, on the device's clock",
        measure: kernels::grid_barrier,
    },
    Target {
        name: "nested_launches",
        goal: Goal::AtMost(10.0),
        unit: Unit::Percent,
        how: "time that 64 launches of 262,144 threads, enqueued by a kernel, take more than the same in one command buffer of the host",
        measure: kernels::nested,
    },
    Target {
        name: "compile_cold",
        goal: Goal::None,
        unit: Unit::Milliseconds,
        how: "from the text of a new source to the end of the first launch, on the CPU",
        measure: |context| nanoseconds(compile::cold(context), 1e6),
    },
    Target {
        name: "compile_cached",
        goal: Goal::None,
        unit: Unit::Milliseconds,
        how: "the same for a source in the cache",
        measure: |context| nanoseconds(compile::cached(context), 1e6),
    },
    Target {
        name: "cache_hits",
        goal: Goal::AtLeast(90.0),
        unit: Unit::Percent,
        how: "time that the cache saves of the compilation: compile_cached against compile_cold",
        measure: kernels::cache_saves,
    },
    Target {
        name: "first_launch",
        goal: Goal::None,
        unit: Unit::Times,
        how: "speed of the first launch of a prepared kernel in a process, against the hundredth; medians of 4 processes",
        measure: |context| speedup_against(first::prepared_in(context, 4), "hundredth"),
    },
    Target {
        name: "monitoring",
        goal: Goal::AtMost(1.0),
        unit: Unit::Percent,
        how: "time that a launch of 64 threadgroups takes more while metrics are read as OpenMetrics text every 10 ms and a subscriber receives events of level INFO",
        measure: monitoring::overhead_of_monitoring,
    },
    Target {
        name: "tracing_submissions",
        goal: Goal::AtMost(2.0),
        unit: Unit::Percent,
        how: "time that a launch of 40 us takes more with a trace of submissions",
        measure: |context| overhead_of_stage(runtime::tracing_on(context)),
    },
    Target {
        name: "tracing_launches",
        goal: Goal::AtMost(2.0),
        unit: Unit::Percent,
        how: "time that a launch of 40 us takes more with a trace of launches",
        measure: |context| Ok(-saved(runtime::tracing_on(context))?),
    },
];

/// A measured row: the values of all measurements, or why there are none.
struct Row {
    target: &'static Target,
    values: std::result::Result<Vec<f64>, String>,
}

impl Row {
    /// The least value, the median, and the greatest.
    fn figures(&self) -> Option<[f64; 3]> {
        let mut values = self.values.as_ref().ok()?.clone();
        values.sort_by(f64::total_cmp);
        Some([*values.first()?, values[values.len() / 2], *values.last()?])
    }

    fn is_met(&self) -> Option<bool> {
        self.figures().and_then(|[_, median, _]| self.target.goal.is_met(median))
    }
}

/// Measures the rows of these names, or all, and prints them.
pub(super) fn run(context: &Context, names: &[String], json: bool, table: Option<&Path>) -> Result<()> {
    let known = |name: &String| TARGETS.iter().any(|target| target.name == *name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        return Err(Failure::usage(format!("`{unknown}` is not a target; they are {}", all.join(", "))));
    }
    let wanted = |target: &&Target| names.is_empty() || names.iter().any(|name| name == target.name);
    let targets: Vec<&'static Target> = TARGETS.iter().filter(wanted).collect();
    let progress = Progress::new(targets.len());
    let mut rows = Vec::new();
    for target in targets {
        progress.begin(target.name);
        rows.push(measure(context, target)?);
        progress.end();
    }
    drop(progress);
    output::print(context, &rows, json)?;
    table.map_or(Ok(()), |path| output::write_table(path, context, &rows))
}

fn measure(context: &Context, target: &'static Target) -> Result<Row> {
    let mut values = Vec::with_capacity(TIMES);
    for _ in 0..TIMES {
        match (target.measure)(context) {
            Ok(value) => values.push(value),
            Err(Failure::Runtime(Error::Unsupported(why))) => return Ok(Row { target, values: Err(why) }),
            Err(other) => return Err(other),
        }
    }
    Ok(Row { target, values: Ok(values) })
}

type Measured = Result<super::Measured>;

/// The median time in units of this many nanoseconds.
fn nanoseconds(measured: Measured, unit: f64) -> Result<f64> {
    Ok(measured?.median_ns as f64 / unit)
}

/// How many times as fast as the first baseline it is.
fn speedup(measured: Measured) -> Result<f64> {
    let measured = measured?;
    let (_, baseline) = measured.baselines[0];
    Ok(baseline as f64 / measured.median_ns.max(1) as f64)
}

fn speedup_against(measured: Measured, baseline: &str) -> Result<f64> {
    let mut measured = measured?;
    measured.baselines.retain(|(name, _)| *name == baseline);
    speedup(Ok(measured))
}

/// Share of the first baseline's time that it saves, in percent.
fn saved(measured: Measured) -> Result<f64> {
    Ok(100.0 * (1.0 - 1.0 / speedup(measured)?))
}

/// Time by which its only stage exceeds the first baseline, in percent.
fn overhead_of_stage(measured: Measured) -> Result<f64> {
    let measured = measured?;
    let ((_, baseline), (_, stage)) = (measured.baselines[0], &measured.stages[0]);
    Ok(overhead(*stage, baseline))
}

/// Time by which ours exceeds a baseline, in percent.
fn overhead(ours: u64, baseline: u64) -> f64 {
    100.0 * (ours as f64 / baseline.max(1) as f64 - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_bound() {
        assert_eq!(Goal::AtMost(2.0).is_met(2.0), Some(true));
        assert_eq!(Goal::AtMost(2.0).is_met(2.1), Some(false));
        assert_eq!(Goal::AtLeast(2.0).is_met(2.0), Some(true));
        assert_eq!(Goal::AtLeast(2.0).is_met(1.9), Some(false));
        assert_eq!(Goal::None.is_met(0.0), None);
    }

    #[test]
    fn the_median_decides() {
        let row = |values| Row { target: &TARGETS[0], values };
        let measured = row(Ok(vec![0.9, 0.1, 0.14, 0.2, 0.12]));
        assert_eq!(measured.figures(), Some([0.1, 0.14, 0.9]));
        assert_eq!(measured.is_met(), Some(true));
        assert_eq!(row(Err("not here".into())).is_met(), None);
    }

    #[test]
    fn shares_are_of_the_baseline() {
        let measured = |ours, baseline| {
            Ok(super::super::Measured {
                median_ns: ours,
                baselines: vec![("other", baseline)],
                ..super::super::Measured::default()
            })
        };
        assert!((saved(measured(40, 100)).unwrap_or_default() - 60.0).abs() < 1e-9);
        assert!((speedup(measured(40, 100)).unwrap_or_default() - 2.5).abs() < 1e-9);
        assert!((overhead(102, 100) - 2.0).abs() < 1e-9);
    }
}
