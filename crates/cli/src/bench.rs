//! `elinvar bench`: the suites, what is measured of them, and how it is shown.
//!
//! A kernel's time is per iteration over many dispatches in one submission, by the device's clock, and the
//! median over several submissions. Every result of a kernel is compared with its baseline's first.

mod compile;
mod cpu;
mod native;
mod runtime;

use std::collections::BTreeMap;

use clap::Args;
use elinvar::{Device, DeviceKind, Error};
use elinvar_driver::Driver;
use elinvar_msl::Toolchain;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::report::{print_json, print_table, say, time_text};
use crate::select::{Selection, absent};

/// Measure the runtime and the kernels of the suites
#[derive(Args)]
#[command(after_help = "\
Suites: runtime (empty_dispatch_round_trip, submit_batch_of_1000),
compile (compile_vector_add_first with an empty cache, _cold with the precompiled header in it,
_cached with all in it; on the CPU, with the time of each stage),
cpu (vector_add, matmul_naive), checks (vector_add_checked, matmul_naive_checked).

The baseline `native` is the same work in plain safe Rust, written by hand, compiled for the
vector registers of this processor and run on as many threads; `unchecked` is the kernel without
bounds checks. ratio = ours / baseline: below 1
is faster.

Examples:\n  elinvar bench\n  elinvar bench runtime\n  elinvar bench matmul_naive --threads 1 --json")]
pub struct Bench {
    /// Suites or single names; everything when left out
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// cpu, cuda[:N] or metal; the best one there is when left out
    #[arg(long)]
    device: Option<Selection>,
    /// Worker threads of the CPU device, and threads of the baselines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// One thing to measure.
struct Case {
    suite: &'static str,
    name: &'static str,
    run: fn(&Context) -> Result<Measured>,
}

const CASES: [Case; 9] = [
    Case { suite: "runtime", name: "empty_dispatch_round_trip", run: runtime::empty_dispatch },
    Case { suite: "runtime", name: "submit_batch_of_1000", run: runtime::batch_of_1000 },
    Case { suite: "compile", name: "compile_vector_add_first", run: compile::first },
    Case { suite: "compile", name: "compile_vector_add_cold", run: compile::cold },
    Case { suite: "compile", name: "compile_vector_add_cached", run: compile::cached },
    Case { suite: "cpu", name: "vector_add", run: cpu::vector_add },
    Case { suite: "cpu", name: "matmul_naive", run: cpu::matmul_naive },
    Case { suite: "checks", name: "vector_add_checked", run: cpu::vector_add_checked },
    Case { suite: "checks", name: "matmul_naive_checked", run: cpu::matmul_naive_checked },
];

/// Where it is measured.
struct Context {
    device: Device,
    threads: usize,
}

/// What came of it.
#[derive(Default)]
struct Measured {
    /// The fixed size, for people.
    size: String,
    median_ns: u64,
    /// Bytes read and written, and floating-point operations, of one iteration; `None` where it has no meaning.
    bytes: Option<u64>,
    flops: Option<u64>,
    /// Median times of the same work done otherwise.
    baselines: Vec<(&'static str, u64)>,
    /// Median times of its parts.
    stages: Vec<(String, u64)>,
}

impl Bench {
    pub fn run(self) -> Result<()> {
        let cases = self.cases()?;
        let device = self.device()?;
        let threads = device.caps().compute_units as usize;
        let context = Context { device, threads };
        let mut results = Vec::new();
        for case in cases {
            results.push((case, (case.run)(&context)?));
        }
        match self.json {
            true => print_json(
                &json!({ "machine": machine(&context), "results": results_json(&context, &results) }),
            ),
            false => print(&context, &results),
        }
    }

    fn cases(&self) -> Result<Vec<&'static Case>> {
        for name in &self.names {
            if !CASES.iter().any(|case| case.name == name || case.suite == name) {
                let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
                let names = names.join(", ");
                return Err(Failure::usage(format!(
                    "`{name}` is no benchmark; the suites are runtime, compile, cpu and checks, the names {names}"
                )));
            }
        }
        let wanted = |case: &&Case| {
            self.names.is_empty() || self.names.iter().any(|n| case.name == n || case.suite == n)
        };
        Ok(CASES.iter().filter(wanted).collect())
    }

    fn device(&self) -> Result<Device> {
        let Some(threads) = self.threads else {
            return Selection::device(self.device);
        };
        if self.device.is_some_and(|selection| selection.kind() != DeviceKind::Cpu) {
            return Err(Failure::usage("--threads is for the CPU device"));
        }
        let devices = elinvar_driver_cpu::CpuDriver::with_threads(usize::from(threads)).devices()?;
        let first = devices.into_iter().next();
        Ok(first.map(Device::new).ok_or_else(|| absent(DeviceKind::Cpu, 0))?)
    }
}

fn machine(context: &Context) -> Value {
    let caps = context.device.caps();
    json!({
        "name": caps.name,
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory": caps.total_memory,
        "vector_bits": caps.vector_bits,
        "compiler": Toolchain::find().ok().map(|found| found.version().to_owned()),
        "elinvar": env!("CARGO_PKG_VERSION"),
    })
}

fn results_json(context: &Context, results: &[(&Case, Measured)]) -> Vec<Value> {
    let result = |(case, measured): &(&Case, Measured)| {
        let baselines: serde_json::Map<String, Value> = measured
            .baselines
            .iter()
            .map(|(name, ns)| {
                ((*name).into(), json!({ "median_ns": ns, "ratio": ratio(measured.median_ns, *ns) }))
            })
            .collect();
        json!({
            "suite": case.suite,
            "name": case.name,
            "size": measured.size,
            "device": context.device.kind().name(),
            "threads": context.threads,
            "median_ns": measured.median_ns,
            "bytes": measured.bytes,
            "flops": measured.flops,
            "baselines": baselines,
            "stages": measured.stages.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    };
    results.iter().map(result).collect()
}

fn ratio(ours: u64, baseline: u64) -> f64 {
    ours as f64 / baseline.max(1) as f64
}

fn print(context: &Context, results: &[(&Case, Measured)]) -> Result<()> {
    let (kind, threads) = (context.device.kind().name(), context.threads);
    say(format_args!("{kind}: {}, {threads} threads\n", context.device.name()))?;
    let rows: Vec<Vec<String>> = results
        .iter()
        .map(|(case, measured)| {
            let ns = measured.median_ns.max(1) as f64;
            let rate = match (measured.flops, measured.bytes) {
                (Some(flops), _) if flops > measured.bytes.unwrap_or(0) => {
                    format!("{:.2} GFLOP/s", flops as f64 / ns)
                }
                (_, Some(bytes)) => format!("{:.2} GB/s", bytes as f64 / ns),
                _ => String::new(),
            };
            let baseline = |(name, ns): &(&str, u64)| {
                format!("{name} {}, ratio {:.2}", time_text(*ns), ratio(measured.median_ns, *ns))
            };
            let baselines: Vec<String> = measured.baselines.iter().map(baseline).collect();
            let time = time_text(measured.median_ns);
            vec![case.name.into(), measured.size.clone(), time, rate, baselines.join("; ")]
        })
        .collect();
    print_table(&["name", "size", "median", "rate", "baseline (ratio below 1: faster than it)"], &rows)?;
    print_stages(results)
}

/// The stages of what has any, one column for each result.
fn print_stages(results: &[(&Case, Measured)]) -> Result<()> {
    let with: Vec<_> = results.iter().filter(|(_, measured)| !measured.stages.is_empty()).collect();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in with.iter().flat_map(|(_, measured)| &measured.stages) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    if names.is_empty() {
        return Ok(());
    }
    let time = |measured: &Measured, name: &str| {
        let stage = measured.stages.iter().find(|(known, _)| known == name);
        stage.map_or_else(String::new, |(_, ns)| time_text(*ns))
    };
    let row = |name: &&str| {
        std::iter::once((*name).to_owned()).chain(with.iter().map(|(_, m)| time(m, name))).collect()
    };
    let rows: Vec<Vec<String>> = names.iter().map(row).collect();
    let columns: Vec<&str> = std::iter::once("stage").chain(with.iter().map(|(case, _)| case.name)).collect();
    say("")?;
    print_table(&columns, &rows)
}

/// Fails unless the two agree on every element, exactly.
fn compare(name: &str, ours: &[f32], baseline: &[f32]) -> Result<()> {
    let differs = ours.iter().zip(baseline).position(|(a, b)| a != b);
    if ours.len() != baseline.len() || differs.is_some() {
        let at = differs.unwrap_or(0);
        return Err(Error::DeviceLost(format!("{name}: the device's result is wrong at element {at}")).into());
    }
    Ok(())
}
