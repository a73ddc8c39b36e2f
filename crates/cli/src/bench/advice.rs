//! `elinvar bench advice`: each remedy by a kernel that its rule finds and its mended twin, measured in turns on one device.
//!
//! The results of both are compared first, element by element. The expected gain is the one that the analysis states for the kernel.

use elinvar::{DeviceKind, Error, KernelOptions, Source, Tier};
use elinvar_analysis::{Analysis, Launch, Machine, Remedy, analyze};
use elinvar_code::{Program, user_cache};
use elinvar_msl::{InductionVariables, Toolchain};
use serde_json::json;

use super::carried::compile;
use super::cpu::problem::{Argument, scattered};
use super::cpu::{Contestant as _, OnDevice};
use super::traffic::{Make, Subject};
use super::{Context, machine_name};
use crate::failure::{Failure, Result};
use crate::report::{print_json, print_table, say, time_text};

/// Rounds of the two, in turns.
const ROUNDS: usize = 41;
/// Target duration of a round.
const ROUND_NS: u64 = 4_000_000;

/// A kernel and the size of its launch.
struct Side {
    kernel: &'static str,
    threads: [usize; 3],
    group: [usize; 3],
}

/// A kernel that a rule finds, and its twin.
struct Pair {
    remedy: Remedy,
    file: (&'static str, &'static str),
    bad: Side,
    mended: Side,
    args: fn() -> Vec<Argument>,
}

const N: usize = 1 << 20;
const SIDE: usize = 2048;
const ADVICE: (&str, &str) = ("advice.metal", include_str!("kernels/advice.metal"));

const fn line(kernel: &'static str, threads: usize, group: usize) -> Side {
    Side { kernel, threads: [threads, 1, 1], group: [group, 1, 1] }
}

const fn plane(kernel: &'static str, threads: [usize; 2], group: [usize; 2]) -> Side {
    Side { kernel, threads: [threads[0], threads[1], 1], group: [group[0], group[1], 1] }
}

fn floats(count: usize) -> Argument {
    Argument::Floats(scattered(count, 8).map(|v| v as f32).collect())
}

fn bits(count: usize) -> Argument {
    Argument::Floats(scattered(count, 2).map(|v| v as f32).collect())
}

fn zeros(count: usize) -> Argument {
    Argument::Floats(vec![0.0; count])
}

static PAIRS: [Pair; 9] = [
    Pair {
        remedy: Remedy::SwapAxes,
        file: ADVICE,
        bad: plane("columns", [SIDE, SIDE], [32, 8]),
        mended: plane("rows", [SIDE, SIDE], [32, 8]),
        args: || vec![floats(SIDE * SIDE), zeros(SIDE * SIDE), Argument::Word(SIDE as u32)],
    },
    Pair {
        remedy: Remedy::Vectorize,
        file: ADVICE,
        bad: line("bytes", 16 * N, 256),
        mended: line("bytes_by_four", 4 * N, 256),
        args: || {
            let bytes = scattered(16 * N, 256).map(|v| v as u8).collect();
            vec![Argument::Bytes(bytes), Argument::Bytes(vec![0; 16 * N])]
        },
    },
    Pair {
        remedy: Remedy::PadTile,
        file: ADVICE,
        bad: plane("tile", [SIDE, SIDE / 4], [32, 8]),
        mended: plane("tile_padded", [SIDE, SIDE / 4], [32, 8]),
        args: || vec![floats(SIDE * SIDE), zeros(SIDE * SIDE), Argument::Word(SIDE as u32)],
    },
    Pair {
        remedy: Remedy::MoveToConstant,
        file: ADVICE,
        bad: line("weights", N, 256),
        mended: line("weights_constant", N, 256),
        args: || vec![bits(N), zeros(16 * N), floats(16), Argument::Word(N as u32)],
    },
    Pair {
        remedy: Remedy::Hoist,
        file: ADVICE,
        bad: line("powers", N, 256),
        mended: line("powers_hoisted", N, 256),
        args: || vec![floats(N), floats(N), zeros(N), Argument::Word(64)],
    },
    Pair {
        remedy: Remedy::SplitBranch,
        file: ADVICE,
        bad: line("alternating", N, 256),
        mended: line("by_simdgroup", N, 256),
        args: || vec![floats(N), zeros(N)],
    },
    Pair {
        remedy: Remedy::SimdgroupReduction,
        file: ("reduce.metal", include_str!("kernels/reduce.metal")),
        bad: line("reduce_tree", N, 256),
        mended: line("reduce_simd", N, 256),
        args: || vec![floats(N), zeros(N / 256)],
    },
    Pair {
        remedy: Remedy::PrivatizeHistogram,
        file: ("histogram.metal", include_str!("kernels/histogram.metal")),
        bad: line("histogram_device", 4 * N, 256),
        mended: line("histogram_threadgroup", N / 4, 256),
        args: || {
            let bytes = scattered(4 * N, 256).map(|v| v as u8).collect();
            vec![Argument::Bytes(bytes), Argument::Words(vec![0; 256])]
        },
    },
    Pair {
        remedy: Remedy::ResizeGroup,
        file: ADVICE,
        bad: line("scale", N, 8),
        mended: line("scale", N, 256),
        args: || vec![floats(N), zeros(N)],
    },
];

/// Shortest times of a pair, per launch, their ratio, and the gain that the analysis expects; `None` if it gives no such advice for the machine.
struct Measured {
    bad_ns: u64,
    mended_ns: u64,
    gain: f64,
    expected: Option<f64>,
}

/// Measures all pairs, or those of the remedies named.
pub fn run(context: &Context, names: &[String], json: bool) -> Result<()> {
    if let Some(unknown) = names.iter().find(|name| !Remedy::ALL.iter().any(|remedy| remedy.name() == **name))
    {
        let all = Remedy::ALL.map(Remedy::name).join(", ");
        return Err(Failure::usage(format!("`{unknown}` is not a remedy; they are {all}")));
    }
    let wanted = |pair: &&Pair| names.is_empty() || names.iter().any(|name| name == pair.remedy.name());
    let mut rows = Vec::new();
    for pair in PAIRS.iter().filter(wanted) {
        rows.push((pair, measure(context, pair)?));
    }
    if json {
        let row = |(pair, times): &(&Pair, Measured)| json!({ "remedy": pair.remedy.name(), "bad": pair.bad.kernel, "mended": pair.mended.kernel, "bad_ns": times.bad_ns, "mended_ns": times.mended_ns, "gain": times.gain, "expected": times.expected });
        let rows: Vec<_> = rows.iter().map(row).collect();
        return print_json(
            &json!({ "device": machine_name(&context.device), "threads": context.threads, "advice": rows }),
        );
    }
    say(format_args!("{}, {} threads", machine_name(&context.device), context.threads))?;
    let row = |(pair, times): &(&Pair, Measured)| {
        vec![
            pair.remedy.name().to_owned(),
            pair.bad.kernel.to_owned(),
            pair.mended.kernel.to_owned(),
            time_text(times.bad_ns),
            time_text(times.mended_ns),
            format!("{:.2}", times.gain),
            times.expected.map_or_else(|| "-".to_owned(), |gain| format!("{gain:.2}")),
        ]
    };
    let rows: Vec<_> = rows.iter().map(row).collect();
    print_table(&["remedy", "kernel", "mended", "time", "mended", "gain", "expected"], &rows)
}

fn measure(context: &Context, pair: &Pair) -> Result<Measured> {
    let library = compile(&context.device, pair.file.0, pair.file.1)?;
    let args = (pair.args)();
    let side = |side: &Side| {
        let kernel = library.kernel_with(side.kernel, KernelOptions::new().tier(Tier::Optimized))?;
        OnDevice::with(&context.device, kernel, side.threads, side.group, &args)
    };
    let (mut bad, mut mended) = (side(&pair.bad)?, side(&pair.mended)?);
    bad.run(1)?;
    mended.run(1)?;
    let (found, expected) = (mended.arguments()?, bad.arguments()?);
    for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let (found, expected) = (found.numbers(), expected.numbers());
        if let Some(at) = found.iter().zip(&expected).position(|(a, b)| a != b) {
            return Err(Error::DeviceLost(format!(
                "{}: element {at} of argument {index} is {}, not {} as that of `{}`",
                pair.mended.kernel, found[at], expected[at], pair.bad.kernel
            ))
            .into());
        }
    }
    let mut both = [bad, mended];
    let mut counts = [1; 2];
    for (side, count) in both.iter_mut().zip(&mut counts) {
        *count = (ROUND_NS / side.run(1)?.max(1)).clamp(1, 200);
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        for ((side, count), times) in both.iter_mut().zip(counts).zip(&mut times) {
            times.push(side.run(count)? / count);
        }
    }
    let [bad_ns, mended_ns] = times.map(|times| times.into_iter().min().unwrap_or(0));
    let gain = bad_ns as f64 / mended_ns.max(1) as f64;
    Ok(Measured { bad_ns, mended_ns, gain, expected: expected_gain(context, pair)? })
}

/// The gain that the analysis expects of the pair's remedy. Needs a compiler; without one there is none.
fn expected_gain(context: &Context, pair: &Pair) -> Result<Option<f64>> {
    let machine = match context.device.kind() {
        DeviceKind::Cpu => Machine::Cpu,
        _ => Machine::Gpu,
    };
    if Toolchain::find().is_err() {
        return Ok(None);
    }
    let (analysis, _) = analyzed(pair.file.0, pair.file.1, pair.bad.kernel)?;
    let sizes = |sizes: [usize; 3]| sizes.map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let launch = Launch { grid: sizes(pair.bad.threads), group: sizes(pair.bad.group), ..Launch::default() };
    let advice = analysis.advice(machine, Some(&launch))?;
    Ok(advice.into_iter().find(|advice| advice.remedy == pair.remedy).map(|advice| advice.gain))
}

/// The analysis of a kernel, and the names of its arguments. Needs a compiler.
pub(super) fn analyzed(file: &str, text: &str, kernel: &str) -> Result<(Analysis, Vec<String>)> {
    let source = Source::named(file, text);
    let program = Program::new(user_cache(), &source, InductionVariables::AsWritten)?;
    let thread = program.thread(kernel, &[])?;
    let signature = &thread.origin.signature;
    let names = signature.args.iter().map(|argument| argument.name.clone()).collect();
    Ok((analyze(program.module(&thread)?, signature)?, names))
}

/// The kernels of all pairs.
pub(super) fn subjects() -> Vec<(&'static str, Make)> {
    let sides = PAIRS.iter().flat_map(|pair| [(pair, &pair.bad), (pair, &pair.mended)]);
    let subject = |(pair, side): (&'static Pair, &'static Side)| -> (_, Make) {
        let make = move || {
            let file = (pair.file.0.to_owned(), pair.file.1);
            Subject {
                kernel: side.kernel,
                file,
                threads: side.threads,
                group: side.group,
                args: (pair.args)(),
            }
        };
        (side.kernel, Box::new(make))
    };
    sides.map(subject).collect()
}
