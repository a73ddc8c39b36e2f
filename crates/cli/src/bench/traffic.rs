//! `elinvar bench traffic`: what the analysis predicts of kernels' memory traffic, against the counters of an NVIDIA GPU.
//!
//! Nsight Compute (`ncu`) runs this program again, twice, which then launches each kernel once. The counters are those of the Nsight Compute
//! documentation ("Metrics Decoder"): sectors of 32 bytes that loads, stores and atomic operations of device memory request from the L1
//! cache, and bytes that memory reads and writes. What a kernel writes stays in the L2 cache when it ends. So, where memory is counted, a
//! kernel that reads more than the cache holds runs before each kernel, and behind it, where it writes what the kernel has left.

use std::process::Command;

use elinvar::{DeviceKind, KernelOptions};
use elinvar_analysis::{Effort, Launch};
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
/// Values of the variable: what is counted.
const SECTORS: &str = "sectors";
const MEMORY: &str = "memory";
const SECTOR: f64 = 32.0;
/// Sectors that loads, stores and atomic operations request.
const REQUESTED: [&str; 4] = [
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_atom.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
];
/// Bytes of memory.
const MOVED: [&str; 2] = ["dram__bytes_read.sum", "dram__bytes_write.sum"];

/// Reads more than the cache of any GPU holds, and writes nothing: the numbers are not negative.
const EVICT: &str = "kernel void evict(device const float4* x, device float* out, uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
    float sum = 0.0f;
    for (uint at = 0; at < 64; ++at) { float4 four = x[i + at * n]; sum += four.x + four.y + four.z + four.w; }
    if (sum < 0.0f) { out[0] = sum; }
}";
const EVICT_THREADS: usize = 1 << 19;
/// Launches for each kernel where memory is counted.
const WITH_EVICTION: usize = 3;

/// Does nothing: what memory moves beside its data, such as code, is subtracted.
const NOTHING: &str = "kernel void nothing(device float* out, uint i [[thread_position_in_grid]]) { if (i > 0) { out[0] = 0.0f; } }";
/// Runs in which memory is counted. The least bytes count: the counters have those of everything else on the GPU too.
const ROUNDS: usize = 5;

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
    if let Some(what) = std::env::var_os(CHILD) {
        return launch_all(context, &all, what == MEMORY);
    }
    let expect = |rows: &[Vec<f64>], expected: usize| match rows.len() == expected {
        true => Ok(()),
        false => Err(Failure::Machine(format!("ncu reports {} launches instead of {expected}", rows.len()))),
    };
    let sectors = counters(names, SECTORS, &REQUESTED, &[])?;
    expect(&sectors, all.len())?;
    let mut least = vec![f64::INFINITY; all.len() + 1];
    for _ in 0..ROUNDS {
        // The cache is to hold what the kernel before has left.
        let moved = counters(names, MEMORY, &MOVED, &["--cache-control", "none"])?;
        expect(&moved, WITH_EVICTION * least.len())?;
        for (least, moved) in least.iter_mut().zip(moved.chunks(WITH_EVICTION)) {
            *least = least.min(moved[1].iter().sum::<f64>() + moved[2][1]);
        }
    }
    let counted = sectors.iter().zip(&least[1..]).map(|(sectors, bytes)| Traffic {
        sectors: sectors.iter().sum(),
        bytes: (bytes - least[0]).max(0.0),
    });
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

/// Launches each kernel once. If memory is counted, one that does nothing is the first, and each is between two launches of the one that evicts.
fn launch_all(context: &Context, all: &[(&'static str, Make)], with_eviction: bool) -> Result<()> {
    let device = &context.device;
    let ready = |subject: &Subject| {
        let library = compile(device, subject.file.0.clone(), subject.file.1)?;
        let kernel = library.kernel_with(subject.kernel, KernelOptions::new())?;
        OnDevice::with(device, kernel, subject.threads, subject.group, &subject.args)
    };
    if !with_eviction {
        return all.iter().try_for_each(|(_, make)| ready(&make())?.run(1).map(drop));
    }
    let own = |kernel, text, threads: usize, args: Vec<Argument>| {
        let file = (format!("{kernel}.metal"), text);
        Subject { kernel, file, threads: [threads, 1, 1], group: [threads.min(256), 1, 1], args }
    };
    let numbers = Argument::Floats(vec![0.0; EVICT_THREADS * 64 * 4]);
    let result = || Argument::Floats(vec![0.0]);
    let mut evict = ready(&own("evict", EVICT, EVICT_THREADS, vec![numbers, result()]))?;
    let nothing = || own("nothing", NOTHING, 1, vec![result()]);
    for subject in std::iter::once(nothing()).chain(all.iter().map(|(_, make)| make())) {
        let mut held = ready(&subject)?;
        evict.run(1)?;
        held.run(1)?;
        evict.run(1)?;
    }
    Ok(())
}

/// The traffic that the analysis predicts, and whether it is an estimate. Numbers are passed by value on a GPU, and are not counted.
fn predicted(subject: &Subject) -> Result<(Traffic, bool)> {
    let (analysis, names) = analyzed(&subject.file.0, subject.file.1, subject.kernel)?;
    let sizes = |sizes: [usize; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let is_number = |argument: &Argument| matches!(argument, Argument::Float(_) | Argument::Word(_));
    let numbers = || subject.args.iter().enumerate().filter(|(_, argument)| is_number(argument));
    let constants = numbers().map(|(index, argument)| (index, argument.raw().to_vec())).collect();
    let launch = Launch { grid: sizes(subject.threads), group: sizes(subject.group), constants };
    let totals = analysis.launch(&launch, Effort::default())?;
    let of_numbers = totals.accesses.iter().filter(|total| {
        let object = analysis.accesses[total.access].object.as_ref();
        object.is_some_and(|object| numbers().any(|(index, _)| names.get(index) == Some(object)))
    });
    let by_value: f64 = of_numbers.map(|total| total.sectors).sum();
    let traffic = Traffic { sectors: totals.moved_bytes / SECTOR - by_value, bytes: totals.footprint_bytes };
    Ok((traffic, totals.is_estimate))
}

/// The values of metrics for each launch of a process, by Nsight Compute.
fn counters(names: &[String], what: &str, metrics: &[&str], options: &[&str]) -> Result<Vec<Vec<f64>>> {
    let failed =
        |why: String| Failure::Machine(format!("traffic needs `ncu` of NVIDIA Nsight Compute: {why}"));
    let log = tempfile::NamedTempFile::new().map_err(|error| failed(error.to_string()))?;
    let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new("ncu");
    command.args(["--csv", "--page", "raw", "--print-units", "base", "--metrics", &metrics.join(",")]);
    command.args(options).arg("--force-overwrite").arg("--log-file").arg(log.path()).arg(program);
    command.args(["bench", "traffic", "--device", "cuda"]).args(names).env(CHILD, what);
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let text = std::fs::read_to_string(log.path()).map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        let told = text.lines().filter(|line| line.contains("==ERROR==")).collect::<Vec<_>>().join("\n");
        return Err(failed(format!("{told}\n{}", String::from_utf8_lossy(&output.stderr))));
    }
    parsed(&text, metrics).map_err(failed)
}

/// Reads the table of `ncu --csv --page raw`: a line of names, one of units, and one for each launch.
fn parsed(text: &str, metrics: &[&str]) -> Result<Vec<Vec<f64>>, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix('"')?.strip_suffix('"'));
    let mut lines = lines.map(|line| line.split("\",\"").collect::<Vec<_>>());
    let head = lines.next().ok_or_else(|| format!("it has printed no table: {text}"))?;
    let column = |name: &&str| {
        head.iter().position(|known| known == name).ok_or_else(|| format!("its table has no column {name}"))
    };
    let columns = metrics.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let units = lines.next().ok_or("its table has no line of units")?;
    if let Some(at) = columns.iter().find(|at| !["byte", "sector"].contains(units.get(**at).unwrap_or(&""))) {
        return Err(format!("{} is in {:?}, not in bytes or sectors", head[*at], units.get(*at)));
    }
    let row = |line: Vec<&str>| {
        let number = |at: &usize| -> Result<f64, String> {
            let text = line.get(*at).map(|text| text.replace(',', "")).unwrap_or_default();
            text.parse().map_err(|_| format!("`{text}` in column {} is not a number", head[*at]))
        };
        columns.iter().map(number).collect()
    };
    lines.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_ncu_is_read() {
        let table = |unit: &str, read: &str| {
            format!(
                "==PROF== Profiling\n\"ID\",\"Kernel Name\",\"{}\",\"{}\"\n\"\",\"\",\"{unit}\",\"byte\"\n\"0\",\"saxpy\",\"{read}\",\"3\"\n",
                MOVED[0], MOVED[1]
            )
        };
        assert_eq!(parsed(&table("byte", "4,096"), &MOVED).unwrap(), [[4096.0, 3.0]]);
        assert!(parsed(&table("Kbyte", "4"), &MOVED).is_err_and(|why| why.contains("not in bytes")));
        assert!(parsed(&table("byte", "n/a"), &MOVED).is_err_and(|why| why.contains("`n/a`")));
        assert!(parsed(&table("byte", "1"), &REQUESTED).is_err_and(|why| why.contains("no column")));
        assert!(parsed("==ERROR== ERR_NVGPUCTRPERM", &MOVED).is_err_and(|why| why.contains("no table")));
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
