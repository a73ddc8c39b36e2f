//! `elinvar bench`: the benchmark suites, measurement, and output.
//!
//! The time of a kernel is per iteration, over many dispatches in one submission, on the device's clock; the median of several submissions is
//! reported. Each result is first compared with the baseline's. The `cpu` suite is measured with one thread and with all threads; the others
//! once.

mod advice;
mod carried;
mod checks;
mod compile;
mod cpu;
mod cuda;
mod device_side;
mod devices;
pub mod energy;
mod first;
mod launch;
mod record;
mod runtime;
mod table;
mod targets;
mod tiers;
mod traffic;
mod tune;

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use elinvar::{Device, DeviceKind, Error};
use elinvar_driver::Driver;
use elinvar_msl::Toolchain;
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::report::print_json;
use crate::select::{Selection, absent};
use record::Record;

/// Run benchmarks of the runtime, the compilers and whole kernels
#[derive(Args)]
#[command(after_help = "\
Suites:
  launch   vector_add on few threadgroups, from the launch to the end of the host's wait: launch_1_group,
           launch_8_groups, launch_64_groups, launch_after_pause; launch_1000_in_stream (one wait for 1,000
           launches), launch_isolated (launch_1_group on an isolated device), launch_first_prepared (a process's first
           launch, of a prepared kernel)
  runtime  alloc_pooled_1mib, launch_record, dispatch_roundtrip, batch_1000, streams_2, graph_replay, tracing_on,
           trace_roundtrip, trace_batch_1000: empty launches with a trace, compared with none
  compile  compile_vector_add_first (empty cache), _cold (precompiled header cached), _cached (all cached);
           compile_large_first, _optimized: a kernel that is costly to optimize, to the end of its first launch;
           compile_large_replacement: its longest launch while optimized code replaces the other;
           compile_softmax_8_sizes, compile_matmul_tiled_8_sizes: a kernel for eight threadgroup sizes;
           compile_NAME for each kernel of the cpu suite, with the duration of each stage
  device-side  grid_barrier: a step of a loop with a barrier of the whole grid; stencil_1000_steps in one launch;
           indirect_1000_commands: encoded by a kernel and executed; indirect_100_launches: with counts in memory;
           nested_1000_launches: enqueued by kernels;
           resident_round_trip_awake, resident_wake_up: from an item to its result
  checks   vector_add_checked, matmul_naive_checked, matmul_naive_deadline
  cpu      whole kernels, with one thread and with all threads: saxpy_dram, saxpy_l2, matmul_naive,
           matmul_naive_16x16, matmul_tiled, reduce_tree, reduce_simd, mandelbrot, histogram_device,
           histogram_threadgroup, gather, softmax, stencil3d, nbody; if ELINVAR_CANDLE is set, matrix products
           and flash attention of the crate candle-metal-kernels: steel_f32_32x32, steel_f32_64x64,
           steel_f16_32x32, steel_f16_64x64, steel_bf16_32x32, steel_bf16_64x64, attention_candle_f32,
           attention_candle_f16; if ELINVAR_GGML is set, which is the path of llama.cpp's folder ggml/src, flash
           attention and products of quantized matrices with a vector: attention_ggml_f16, mul_mv_q4_0, mul_mv_q4_k
  tensor   operations of elinvar::tensor, with one thread and with all threads: tensor_matmul_*, tensor_conv_*,
           tensor_batch_norm_*, tensor_softmax_*, tensor_attention_f32, tensor_transpose_f32; *_kernel: by kernels,
           not by a library, which is their baseline
  cuda     whole kernels, launches, graphs and copies on an NVIDIA GPU
  targets  the figures that the project promises, with their targets; as first NAME, and figures behind it.
           Not among the suites that run by default. --table FILE replaces the device's table in a Markdown file
  devices  transfers, collectives and data-parallel work on all devices of a kind, against bare calls of CUDA and NCCL,
           and against one device; a row is printed when it is measured. As first NAME, and rows behind it
  advice   each remedy of elinvar analyze: a kernel, its mended twin, and the gain; as first NAME, and remedies behind it.
           Not among the suites that run by default
  tune     threadgroup sizes: the one that Kernel::tune finds against all sizes and the suggested one; as first NAME, and kernels
           behind it, `bench` for those of the cpu suite and `candle` for those of the crate candle-metal-kernels, which are
           measured if ELINVAR_CANDLE is set. Not among the suites that run by default
  traffic  memory traffic that the analysis predicts, against the counters of an NVIDIA GPU, which `ncu` of Nsight Compute
           reads; as first NAME, and kernels behind it. Not among the suites that run by default
  candle   kernels of the crate candle-metal-kernels on an NVIDIA GPU: a sum, softmax, matrix products.
           ELINVAR_CANDLE is the path of its folder src/metal_src, or of a bundle of its files

Baselines run with the same number of threads, alternating with the kernel:
  native       the same work in Rust, vectorized by hand for this CPU (mandelbrot: scalar)
  gemm         the crate of that name
  openblas     OpenBLAS, if installed
  onednn       oneDNN, if installed
  pocl         the same kernel in OpenCL C, if PoCL is installed
  unchecked    the kernel without bounds checks
  loop         the loop without barriers
  commands     a launch for each step, in one command buffer; launches: in one submission each
  endless      the kernel without a deadline
  direct       the addition in Rust, on the waiting thread
  rayon        the addition in Rust, on a thread pool
  fresh        an allocation by the driver, without the pool
  hundredth    the hundredth launch of the process
  unprepared   the first launch without preparation
  singly       one submission and one wait for each launch
  streams_1    the same work on one stream
  relaunch     the launches of the graph, one by one
  tracing_off  the same work without tracing
  nvrtc        the same kernel in CUDA C++, compiled by NVRTC; nvrtc_fast: with --use_fast_math
  bare         the same operations through the CUDA driver API
  copy, peak   memory bandwidth of a copy, and peak arithmetic throughput

ratio is time / baseline time; below 1, Elinvar is faster.

Examples:\n  elinvar bench\n  elinvar bench cpu\n  elinvar bench matmul_naive --threads 1 --json\n  elinvar bench --energy --device cuda\n  elinvar bench targets streams_4 mixed_load\n  elinvar bench cpu --check docs/performance.json")]
pub struct Bench {
    /// Suites or benchmarks; all by default
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// cpu, cuda[:N] or metal; the fastest available device by default
    #[arg(long)]
    device: Option<Selection>,
    /// Number of worker threads of the CPU device and of threads of the baselines; all by default, and for the cpu
    /// suite also one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Fail if a ratio is more than 1.25 times the one recorded in FILE for this processor, in three measurements
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    check: Option<PathBuf>,
    /// Record ratios in FILE if they are better than its own
    #[arg(long, value_name = "FILE", conflicts_with = "check")]
    record: Option<PathBuf>,
    /// Replace the table of ratios in a Markdown FILE
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Measure the energy and the time of two jobs under each power preference, in place of the suites
    #[arg(long, conflicts_with_all = ["names", "check", "record", "table", "require_baselines"])]
    energy: bool,
    /// Fail if a baseline of a row of the tensor suite is not installed
    #[arg(long)]
    require_baselines: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

type Run = fn(&Context) -> Result<Measured>;

/// All suites except `cpu`: suite, name, function.
const CASES: &[(&str, &str, Run)] = &[
    ("launch", "launch_1_group", launch::one_group),
    ("launch", "launch_8_groups", launch::eight_groups),
    ("launch", "launch_64_groups", launch::groups_64),
    ("launch", "launch_isolated", launch::isolated),
    ("launch", "launch_first_prepared", first::prepared),
    ("launch", "launch_after_pause", launch::after_pause),
    ("launch", "launch_1000_in_stream", launch::in_stream),
    ("runtime", "alloc_pooled_1mib", runtime::alloc_pooled),
    ("runtime", "launch_record", runtime::launch_record),
    ("runtime", "dispatch_roundtrip", runtime::dispatch_roundtrip),
    ("runtime", "batch_1000", runtime::batch_1000),
    ("runtime", "streams_2", runtime::streams::<2>),
    ("runtime", "graph_replay", runtime::graph_replay),
    ("runtime", "tracing_on", runtime::tracing_on),
    ("runtime", "trace_roundtrip", runtime::trace_roundtrip),
    ("runtime", "trace_batch_1000", runtime::trace_batch_1000),
    ("compile", "compile_vector_add_first", compile::first),
    ("compile", "compile_vector_add_cold", compile::cold),
    ("compile", "compile_vector_add_cached", compile::cached),
    ("compile", "compile_large_first", tiers::first),
    ("compile", "compile_large_optimized", tiers::optimized),
    ("compile", "compile_large_replacement", tiers::replacement),
    ("compile", "compile_montgomery_254", compile::montgomery),
    ("compile", "compile_poseidon2_254", compile::poseidon2),
    ("compile", "compile_softmax_8_sizes", compile::softmax_sizes),
    ("compile", "compile_matmul_tiled_8_sizes", compile::matmul_tiled_sizes),
    ("device-side", "grid_barrier", device_side::grid_barrier),
    ("device-side", "stencil_1000_steps", device_side::stencil),
    ("device-side", "indirect_1000_commands", device_side::indirect_commands),
    ("device-side", "indirect_100_launches", device_side::indirect_launches),
    ("device-side", "nested_1000_launches", device_side::nested_launches),
    ("device-side", "resident_round_trip_awake", device_side::resident_round_trip_awake),
    ("device-side", "resident_wake_up", device_side::resident_wake_up),
    ("checks", "vector_add_checked", checks::vector_add),
    ("checks", "matmul_naive_checked", checks::matmul_naive),
    ("checks", "matmul_naive_deadline", checks::matmul_naive_deadline),
    ("cuda", "cuda_launch", cuda::launch),
    ("cuda", "cuda_launches_ended", cuda::launches_ended),
    ("cuda", "cuda_graph_1000", cuda::graph),
    ("cuda", "cuda_copy", cuda::copy),
    ("cuda", "cuda_peer", cuda::peer),
    ("candle", "candle_sum", cuda::sum),
    ("candle", "candle_softmax", cuda::softmax),
    ("candle", "candle_matmul_f32", cuda::matmul_f32),
    ("candle", "candle_matmul_f16", cuda::matmul_f16),
];

/// A benchmark.
struct Case {
    suite: &'static str,
    name: String,
    work: Work,
}

enum Work {
    /// Measured once.
    Once(Run),
    /// A kernel of the `cpu` suite, measured in every context.
    Kernel(cpu::Build),
    /// As [`Work::Kernel`], of the crate candle-metal-kernels.
    Candle(Run),
    /// As [`Work::Kernel`], of ggml.
    Ggml(Run),
    /// As [`Work::Kernel`], a tensor operation.
    Tensor(Run),
    /// Compilation of a kernel of the `cpu` suite.
    Compilation(cpu::Build),
    /// A kernel of the `cuda` suite.
    Cuda(cuda::Build),
}

/// All benchmarks, in order of measurement.
fn cases() -> impl Iterator<Item = Case> {
    let once = |(suite, name, run): &(&'static str, &str, Run)| Case {
        suite,
        name: (*name).into(),
        work: Work::Once(*run),
    };
    let compilation = |(name, problem)| {
        let name = format!("compile_{name}");
        Case { suite: "compile", name, work: Work::Compilation(problem) }
    };
    let kernel =
        |(name, problem): (&str, _)| Case { suite: "cpu", name: name.into(), work: Work::Kernel(problem) };
    let on_gpu =
        |(name, problem): (&str, _)| Case { suite: "cuda", name: name.into(), work: Work::Cuda(problem) };
    let kernels = cpu::PROBLEMS.map(kernel).into_iter().chain(cuda::PROBLEMS.map(on_gpu));
    let published = |(name, work): (&str, Work)| Case { suite: "cpu", name: name.into(), work };
    let candle = cpu::published::CANDLE.map(|(name, run)| published((name, Work::Candle(run))));
    let ggml = cpu::published::OF_GGML.map(|(name, run)| published((name, Work::Ggml(run))));
    let all = CASES.iter().map(once).chain(cpu::PROBLEMS.map(compilation)).chain(kernels);
    let tensor = cpu::tensor::ROWS.map(|(name, run)| Case {
        suite: "tensor",
        name: name.into(),
        work: Work::Tensor(run),
    });
    all.chain(candle).chain(ggml).chain(tensor)
}

/// Context of a measurement.
struct Context {
    device: Device,
    threads: usize,
}

/// A measurement: benchmark, number of threads, result.
struct Outcome {
    device: Device,
    suite: &'static str,
    name: String,
    threads: usize,
    measured: Measured,
}

/// Result of a measurement.
#[derive(Default)]
struct Measured {
    /// Problem size, human-readable.
    size: String,
    median_ns: u64,
    /// Bytes read and written, and floating-point operations, per iteration; `None` if not applicable.
    bytes: Option<u64>,
    flops: Option<u64>,
    /// Median times of the baselines.
    baselines: Vec<(&'static str, u64)>,
    /// Baselines of the row that could not be measured, with the reason.
    missing: Vec<(&'static str, String)>,
    /// Median times of its stages.
    stages: Vec<(String, u64)>,
}

impl Bench {
    pub fn run(self) -> Result<()> {
        if self.energy {
            let contexts = self.contexts(self.device)?;
            // The last context is the one with all threads.
            return contexts.last().map_or(Ok(()), |context| energy::run(&context.device, self.json));
        }
        if let Some((_, names)) = self.names.split_first().filter(|(first, _)| *first == "devices") {
            return devices::run(names, self.json);
        }
        if let Some((_, names)) = self.names.split_first().filter(|(first, _)| *first == "targets") {
            if self.check.is_some() || self.record.is_some() {
                return Err(Failure::usage(
                    "targets have no recorded ratios: use them without --check and --record",
                ));
            }
            let contexts = self.contexts(self.device)?;
            let all = contexts.last();
            return all.map_or(Ok(()), |all| targets::run(all, names, self.json, self.table.as_deref()));
        }
        type Suite = fn(&Context, &[String], bool) -> Result<()>;
        let suites: [(&str, Suite); 3] =
            [("advice", advice::run), ("traffic", traffic::run), ("tune", tune::run)];
        for (suite, run) in suites {
            let Some((_, names)) = self.names.split_first().filter(|(first, _)| *first == suite) else {
                continue;
            };
            if self.check.is_some() || self.record.is_some() || self.table.is_some() {
                return Err(Failure::usage(format!(
                    "{suite} has no recorded ratios: use it without --check, --record and --table"
                )));
            }
            let contexts = self.contexts(self.device)?;
            return contexts.last().map_or(Ok(()), |all| run(all, names, self.json));
        }
        let recorded = self.check.as_ref().map(|path| Record::open(path)).transpose()?;
        let mut places: Vec<(Option<Selection>, Vec<Context>)> = Vec::new();
        let (mut outcomes, mut slower) = (Vec::new(), Vec::new());
        let cases = self.cases()?;
        let progress = Progress::new(cases.len());
        for Case { suite, name, work } in cases {
            progress.begin(&name);
            let place = self.device.or(usual(suite));
            let known = places.iter().position(|(known, _)| *known == place);
            let known = match known {
                Some(known) => known,
                None => {
                    places.push((place, self.contexts(place)?));
                    places.len() - 1
                }
            };
            let contexts = &places[known].1;
            // The last context is the one with all threads.
            let start = if matches!(work, Work::Kernel(_) | Work::Candle(_) | Work::Ggml(_) | Work::Tensor(_))
            {
                0
            } else {
                contexts.len() - 1
            };
            for context in &contexts[start..] {
                let measure = || match work {
                    Work::Once(run) | Work::Candle(run) | Work::Ggml(run) | Work::Tensor(run) => run(context),
                    Work::Kernel(problem) => cpu::measure(context, problem),
                    Work::Compilation(problem) => compile::kernel(problem),
                    Work::Cuda(problem) => cuda::measure(context, problem),
                };
                let mut measured = measure()?;
                if let Some(recorded) = &recorded {
                    let (last, row) = recorded.retry((&name, context.threads), measured, measure)?;
                    measured = last;
                    slower.push(row);
                }
                let (device, threads) = (context.device.clone(), context.threads);
                outcomes.push(Outcome { device, suite, name: name.clone(), threads, measured });
            }
            progress.end();
        }
        drop(progress);
        match self.json {
            true => print_json(&json!({ "machine": machine(&outcomes), "results": results(&outcomes) }))?,
            false => table::print(&outcomes)?,
        }
        if let Some(path) = &self.table {
            record::write_table(path, &outcomes)?;
        }
        if let Some(path) = &self.record {
            Record::open(path)?.update(&outcomes)?;
        }
        if self.require_baselines {
            expect_baselines(&outcomes)?;
        }
        recorded.map_or(Ok(()), |recorded| recorded.check(&outcomes, &slower))
    }

    fn cases(&self) -> Result<Vec<Case>> {
        for name in &self.names {
            if !cases().any(|case| case.name == *name || case.suite == name) {
                let names: Vec<String> = cases().map(|case| case.name).collect();
                let names = names.join(", ");
                return Err(Failure::usage(format!(
                    "`{name}` is not a benchmark; the suites are runtime, launch, compile, cpu, checks, device-side, tensor, cuda, candle, targets and devices, the names {names}"
                )));
            }
        }
        let gpus = Device::all()?.iter().filter(|device| device.kind() == DeviceKind::Cuda).count();
        // A benchmark selected by name is always run, and reports what is missing.
        let can = |case: &Case| match case.suite {
            "cuda" => gpus > if case.name == "cuda_peer" { 1 } else { 0 },
            // Metal has no grid barriers.
            "device-side" => {
                !Selection::device(self.device).is_ok_and(|device| device.kind() == DeviceKind::Metal)
            }
            "candle" => gpus > 0 && cuda::is_named(),
            _ if matches!(case.work, Work::Candle(_)) => cuda::is_named(),
            _ if matches!(case.work, Work::Ggml(_)) => cpu::published::is_ggml_named(),
            _ if case.name == "launch_isolated" => cfg!(target_os = "linux"),
            _ => true,
        };
        let wanted = |case: &Case| {
            self.names.contains(&case.name)
                || can(case) && (self.names.is_empty() || self.names.iter().any(|name| case.suite == name))
        };
        Ok(cases().filter(wanted).collect())
    }

    /// Contexts: the CPU device with one thread and with all, or as requested; another device as it is.
    fn contexts(&self, place: Option<Selection>) -> Result<Vec<Context>> {
        if self.threads.is_some() && self.device.is_some_and(|device| device.kind() != DeviceKind::Cpu) {
            return Err(Failure::usage("--threads is for the CPU device"));
        }
        if let Some(threads) = self.threads {
            return Ok(vec![on_cpu(usize::from(threads))?]);
        }
        let device = Selection::device(place)?;
        let threads = device.caps().limits.compute_units as usize;
        let alone = (device.kind() == DeviceKind::Cpu && threads > 1).then(|| on_cpu(1)).transpose()?;
        Ok(alone.into_iter().chain([Context { device, threads }]).collect())
    }
}

/// Fails if a baseline of a row could not be measured, with the reasons.
fn expect_baselines(outcomes: &[Outcome]) -> Result<()> {
    let without = |outcome: &&Outcome| !outcome.measured.missing.is_empty();
    let row = |outcome: &Outcome| {
        let reasons: Vec<String> =
            outcome.measured.missing.iter().map(|(name, why)| format!("{name}: {why}")).collect();
        format!("{}, {} threads: {}", outcome.name, outcome.threads, reasons.join("; "))
    };
    let rows: Vec<String> = outcomes.iter().filter(without).map(row).collect();
    match rows.is_empty() {
        true => Ok(()),
        false => Err(Failure::Machine(format!("rows whose baselines are missing:\n{}", rows.join("\n")))),
    }
}

/// Default device of a suite; `None` for the best one.
fn usual(suite: &str) -> Option<Selection> {
    match suite {
        "cuda" | "candle" => Some(Selection::first(DeviceKind::Cuda)),
        "cpu" | "compile" | "checks" | "tensor" => Some(Selection::first(DeviceKind::Cpu)),
        _ => None,
    }
}

fn on_cpu(threads: usize) -> Result<Context> {
    let devices = elinvar_driver_cpu::CpuDriver::with_threads(threads).devices()?;
    let device = devices.into_iter().next().map(Device::new).ok_or_else(|| absent(DeviceKind::Cpu, 0))?;
    Ok(Context { device, threads })
}

/// The device; a CPU with family and model.
fn machine_name(device: &Device) -> String {
    match device.kind() {
        DeviceKind::Cpu => record::processor(),
        _ => device.name().to_owned(),
    }
}

fn machine(outcomes: &[Outcome]) -> Value {
    let caps = outcomes.last().map(|outcome| outcome.device.caps());
    json!({
        "name": caps.map(|caps| &caps.name),
        "os": std::env::consts::OS,
        "arch": std::env::consts::ARCH,
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "memory": caps.map(|caps| caps.limits.total_memory),
        "vector_bits": caps.and_then(|caps| caps.limits.vector_bits),
        "compiler": Toolchain::find().ok().map(|found| found.version().to_owned()),
        "elinvar": env!("CARGO_PKG_VERSION"),
        "absent": absences(outcomes).into_iter().collect::<BTreeMap<_, _>>(),
    })
}

/// Baselines and kernels that are unavailable on this machine, with the reason.
fn absences(outcomes: &[Outcome]) -> Vec<(&'static str, String)> {
    let has = |suite| outcomes.iter().any(|outcome| outcome.suite == suite);
    let on_cpu = if has("cpu") || has("tensor") { cpu::absences() } else { Vec::new() };
    let published = has("cpu").then(cpu::published::absences).into_iter().flatten();
    let nvrtc = (has("cuda") || has("candle")).then(cuda::absence).flatten().map(|why| ("nvrtc", why));
    on_cpu.into_iter().chain(published).chain(nvrtc).collect()
}

fn results(outcomes: &[Outcome]) -> Vec<Value> {
    let result = |Outcome { device, suite, name, threads, measured }: &Outcome| {
        let baselines: serde_json::Map<String, Value> = measured
            .baselines
            .iter()
            .map(|(name, ns)| {
                ((*name).into(), json!({ "median_ns": ns, "ratio": ratio(measured.median_ns, *ns) }))
            })
            .collect();
        json!({
            "suite": suite,
            "name": name,
            "size": measured.size,
            "device": device.kind().name(),
            "threads": threads,
            "median_ns": measured.median_ns,
            "bytes": measured.bytes,
            "flops": measured.flops,
            "baselines": baselines,
            "missing": measured.missing.iter().cloned().collect::<BTreeMap<_, _>>(),
            "stages": measured.stages.iter().cloned().collect::<BTreeMap<_, _>>(),
        })
    };
    outcomes.iter().map(result).collect()
}

fn ratio(ours: u64, baseline: u64) -> f64 {
    ours as f64 / baseline.max(1) as f64
}

/// Fails unless both agree exactly on every element.
fn compare(name: &str, ours: &[f32], baseline: &[f32]) -> Result<()> {
    let differs = ours.iter().zip(baseline).position(|(a, b)| a != b);
    if ours.len() != baseline.len() || differs.is_some() {
        let at = differs.unwrap_or(0);
        return Err(Error::DeviceLost(format!("{name}: the device's result is wrong at element {at}")).into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_baseline_is_named() {
        let outcome = |baselines: Vec<(&'static str, u64)>, missing: Vec<(&'static str, String)>| Outcome {
            device: on_cpu(1).map(|context| context.device).expect("the CPU"),
            suite: "tensor",
            name: "tensor_row".into(),
            threads: 1,
            measured: Measured { baselines, missing, ..Measured::default() },
        };
        let gone = || vec![("openblas", "not installed".to_owned())];
        assert!(expect_baselines(&[outcome(vec![("onednn", 7)], gone())]).is_err(), "one of two");
        assert!(expect_baselines(&[outcome(Vec::new(), Vec::new())]).is_ok(), "it is compared with nothing");
        let error = expect_baselines(&[outcome(Vec::new(), gone())]).err().map(|error| error.to_string());
        assert!(error.is_some_and(|text| text.contains("tensor_row, 1 threads: openblas: not installed")));
    }
}
