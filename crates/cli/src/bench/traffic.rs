//! `elinvar bench traffic`: what the analysis predicts of kernels' memory traffic, against the counters of an NVIDIA GPU.
//!
//! Nsight Compute (`ncu`) runs this program again, which then launches each kernel once. The counters are those of the Nsight Compute
//! documentation ("Metrics Decoder"): sectors of 32 bytes that loads, stores and atomic operations of device memory request from the L1
//! cache, bytes that memory delivers, and sectors that are written to the L2 cache. Written sectors stay in the L2 cache when the kernel
//! ends; each has to move to memory once.

use std::process::Command;

use elinvar::DeviceKind;
use elinvar::KernelOptions;
use elinvar_analysis::{Effort, Kind, Launch, LaunchTotals, Space};
use serde_json::json;

use super::advice::{self, analyzed};
use super::carried::compile;
use super::cpu::problem::Argument;
use super::cpu::{Contestant as _, OnDevice, PROBLEMS};
use super::{Context, machine_name};
use crate::failure::{Failure, Result};
use crate::report::{print_json, print_table, say};

/// Set in the process that is measured.
const CHILD: &str = "ELINVAR_BENCH_TRAFFIC";
const SECTOR: f64 = 32.0;
/// Sectors that loads, stores and atomic operations request.
const REQUESTED: [&str; 4] = [
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
];
/// Bytes.
const READ: &str = "dram__bytes_read.sum";
/// Sectors.
const WRITTEN: &str = "lts__t_sectors_op_write.sum";

/// A kernel and its launch.
pub(super) struct Subject {
    pub(super) kernel: &'static str,
    /// Name and text.
    pub(super) file: (String, &'static str),
    pub(super) threads: [usize; 3],
    pub(super) group: [usize; 3],
    pub(super) args: Vec<Argument>,
}

/// Traffic of a launch.
struct Traffic {
    /// Sectors of accesses of buffers.
    sectors: f64,
    /// Bytes that memory has to move.
    bytes: f64,
}

struct Row {
    name: &'static str,
    kernel: &'static str,
    predicted: Traffic,
    measured: Traffic,
    /// Whether branches or addresses depend on data.
    is_estimate: bool,
}

impl Row {
    fn ratios(&self) -> [f64; 2] {
        let of = |by: fn(&Traffic) -> f64| by(&self.predicted) / by(&self.measured).max(1.0);
        [of(|traffic| traffic.sectors), of(|traffic| traffic.bytes)]
    }
}

/// Makes a subject.
pub(super) type Make = Box<dyn Fn() -> Subject>;

/// The benchmarks' kernels and those of the advice, by a name for each launch.
fn subjects() -> Vec<(&'static str, Make)> {
    let problem = |build: fn() -> super::cpu::problem::Problem| -> Make {
        Box::new(move || {
            let problem = build();
            Subject {
                kernel: problem.kernel,
                file: (format!("{}.metal", problem.file), problem.metal),
                threads: problem.threads,
                group: problem.group,
                args: problem.args,
            }
        })
    };
    let mut all: Vec<(&'static str, Make)> =
        PROBLEMS.into_iter().map(|(name, build)| (name, problem(build))).collect();
    for (kernel, make) in advice::subjects() {
        if !all.iter().any(|(name, _)| *name == kernel) {
            all.push((kernel, make));
        }
    }
    all
}

/// Measures the kernels of these names, or all.
pub fn run(context: &Context, names: &[String], json: bool) -> Result<()> {
    let all = subjects();
    if let Some(unknown) = names.iter().find(|name| !all.iter().any(|(known, _)| known == name)) {
        let known: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        return Err(Failure::usage(format!("`{unknown}` is not among {}", known.join(", "))));
    }
    if context.device.kind() != DeviceKind::Cuda {
        let device = machine_name(&context.device);
        return Err(Failure::usage(format!(
            "traffic is measured on an NVIDIA GPU (--device cuda), not on {device}"
        )));
    }
    let all: Vec<_> =
        all.into_iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name)).collect();
    if std::env::var_os(CHILD).is_some() {
        return all.iter().try_for_each(|(_, make)| launch_once(context, &make()));
    }
    let counted = counters(names)?;
    if counted.len() != all.len() {
        let (found, expected) = (counted.len(), all.len());
        return Err(Failure::Machine(format!("ncu reports {found} launches instead of {expected}")));
    }
    let mut rows = Vec::new();
    for ((name, make), measured) in all.into_iter().zip(counted) {
        let subject = make();
        let (predicted, is_estimate) = predicted(&subject)?;
        rows.push(Row { name, kernel: subject.kernel, predicted, measured, is_estimate });
    }
    print(context, &rows, json)
}

fn print(context: &Context, rows: &[Row], json: bool) -> Result<()> {
    if json {
        let traffic = |of: &Traffic| json!({ "sectors": of.sectors, "bytes": of.bytes });
        let row = |row: &Row| json!({ "name": row.name, "kernel": row.kernel, "is_estimate": row.is_estimate, "predicted": traffic(&row.predicted), "measured": traffic(&row.measured) });
        let rows: Vec<_> = rows.iter().map(row).collect();
        return print_json(&json!({ "device": machine_name(&context.device), "kernels": rows }));
    }
    say(format_args!("{}", machine_name(&context.device)))?;
    let row = |row: &Row| {
        let [sectors, bytes] = row.ratios().map(|ratio| format!("{ratio:.3}"));
        vec![
            row.name.to_owned(),
            format!("{:.0}", row.predicted.sectors),
            format!("{:.0}", row.measured.sectors),
            sectors,
            format!("{:.0}", row.predicted.bytes),
            format!("{:.0}", row.measured.bytes),
            bytes,
            if row.is_estimate { "by data" } else { "" }.to_owned(),
        ]
    };
    let cells: Vec<Vec<String>> = rows.iter().map(row).collect();
    let head = ["kernel", "sectors", "measured", "ratio", "memory", "measured", "ratio", ""];
    print_table(&head, &cells)
}

fn launch_once(context: &Context, subject: &Subject) -> Result<()> {
    let library = compile(&context.device, subject.file.0.clone(), subject.file.1)?;
    let kernel = library.kernel_with(subject.kernel, KernelOptions::new())?;
    OnDevice::with(&context.device, kernel, subject.threads, subject.group, &subject.args)?.run(1).map(drop)
}

/// The traffic that the analysis predicts, and whether it is an estimate. Numbers are passed by value on a GPU, and are not counted.
fn predicted(subject: &Subject) -> Result<(Traffic, bool)> {
    let analysis = analyzed(&subject.file.0, subject.file.1, subject.kernel)?;
    let sizes = |sizes: [usize; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let is_number = |argument: &Argument| matches!(argument, Argument::Float(_) | Argument::Word(_));
    let numbers = subject.args.iter().enumerate().filter(|(_, argument)| is_number(argument));
    let constants = numbers.map(|(index, argument)| (index, argument.raw().to_vec())).collect();
    let launch = Launch { grid: sizes(subject.threads), group: sizes(subject.group), constants };
    let totals: LaunchTotals = analysis.launch(&launch, Effort::default())?;
    let of_buffers = totals.accesses.iter().filter(|total| {
        let access = &analysis.accesses[total.access];
        access.space == Space::Device || access.kind != Kind::Load
    });
    let sectors = of_buffers.map(|total| total.sectors).sum();
    Ok((Traffic { sectors, bytes: totals.footprint_bytes }, totals.is_estimate))
}

/// The counters of each launch, by Nsight Compute.
fn counters(names: &[String]) -> Result<Vec<Traffic>> {
    let failed =
        |why: String| Failure::Machine(format!("traffic needs `ncu` of NVIDIA Nsight Compute: {why}"));
    let log = tempfile::NamedTempFile::new().map_err(|error| failed(error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let metrics = REQUESTED.into_iter().chain([READ, WRITTEN]).collect::<Vec<_>>().join(",");
    let mut command = Command::new("ncu");
    command.args(["--csv", "--page", "raw", "--print-units", "base", "--metrics", &metrics]);
    command.arg("--log-file").arg(log.path()).arg(program);
    command.args(["bench", "traffic", "--device", "cuda"]).args(names).env(CHILD, "1");
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let text = std::fs::read_to_string(log.path()).map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let told = text.lines().filter(|line| line.contains("==ERROR==")).collect::<Vec<_>>().join("\n");
        return Err(failed(format!("{told}\n{}", String::from_utf8_lossy(&output.stderr))));
    }
    parsed(&text).map_err(failed)
}

/// Reads the table of `ncu --csv --page raw`: a line of names, one of units, and one for each launch.
fn parsed(text: &str) -> Result<Vec<Traffic>, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let mut lines = lines.map(|line| line.split("\",\"").collect::<Vec<_>>());
    let head = lines.next().ok_or_else(|| format!("it has printed no table: {text}"))?;
    let column = |name: &str| {
        head.iter().position(|known| *known == name).ok_or_else(|| format!("its table has no column {name}"))
    };
    let requested = REQUESTED.into_iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let (read, written) = (column(READ)?, column(WRITTEN)?);
    let units = lines.next().ok_or("its table has no line of units")?;
    if units.get(read) != Some(&"byte") {
        return Err(format!("{READ} is in {:?}, not in bytes", units.get(read)));
    }
    lines
        .map(|line| {
            let number = |at: usize| -> Result<f64, String> {
                let text = line.get(at).map(|text| text.replace(',', "")).unwrap_or_default();
                text.parse().map_err(|_| format!("`{text}` in column {} is not a number", head[at]))
            };
            let sectors = requested.iter().map(|at| number(*at)).sum::<Result<f64, _>>()?;
            Ok(Traffic { sectors, bytes: number(read)? + SECTOR * number(written)? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_ncu_is_read() {
        let names = REQUESTED.into_iter().chain([READ, WRITTEN]).collect::<Vec<_>>().join("\",\"");
        let table = |unit: &str, read: &str| {
            format!(
                "==PROF== Profiling\n\"ID\",\"Kernel Name\",\"{names}\"\n\"\",\"\",\"sector\",\"sector\",\"sector\",\"sector\",\"{unit}\",\"sector\"\n\
                 \"0\",\"saxpy\",\"1,024\",\"512\",\"2\",\"1\",\"{read}\",\"3\"\n"
            )
        };
        let [row] = <[Traffic; 1]>::try_from(parsed(&table("byte", "4,096")).unwrap()).ok().unwrap();
        assert_eq!((row.sectors, row.bytes), (1539.0, 4096.0 + 96.0));
        assert!(parsed(&table("Kbyte", "4")).is_err_and(|why| why.contains("not in bytes")));
        assert!(parsed(&table("byte", "n/a")).is_err_and(|why| why.contains("`n/a`")));
        assert!(parsed("==ERROR== ERR_NVGPUCTRPERM").is_err_and(|why| why.contains("no table")));
    }

    #[test]
    fn kernels_have_a_prediction() {
        let few = ["saxpy_l2", "matmul_tiled", "reduce_simd", "tile_padded", "scale"];
        for (name, make) in subjects().into_iter().filter(|(name, _)| few.contains(name)) {
            let (traffic, _) = predicted(&make()).unwrap();
            assert!(traffic.sectors > 0.0 && traffic.bytes > 0.0, "{name}");
        }
    }
}
