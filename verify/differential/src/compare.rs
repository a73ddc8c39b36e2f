//! Runs kernels in both ways and compares the results.

use std::ffi::c_void;
use std::ops::Range;

use anyhow::{Result, bail};
use elinvar_driver::LogSite;
use elinvar_driver_cpu::Launch;
use elinvar_ir::Module;
use elinvar_reference::{Argument, LogRecord, Options};
use elinvar_spmd::SUSPENDED;
use elinvar_spmd::bounds::FaultRecord;
use elinvar_spmd::nvptx::{self, Extent};

use crate::compile::{self, Built, Case, Interpretable, Runnable, Setting};
use crate::generate::{ACCUMULATORS, INPUTS, Kernel, Shape, WORDS, header, wide};
use crate::logged::{Lines, Logging, message};
use crate::random::Random;

/// Instructions that a kernel may run in the interpreter.
const STEPS: u64 = 800_000;
/// Words behind each buffer that nothing may change, and what they are.
const BEHIND: usize = 64;
const UNTOUCHED: u32 = 0xa5a5_5a5a;
/// Bytes of stack for compiled code: what clang has not optimized needs much.
const STACK: usize = 1 << 28;

/// What running a kernel both ways showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes are the same.
    Same,
    /// It runs longer than a test should.
    TooLong,
    /// The compiler refuses the kernel.
    Refused(String),
    /// What differs.
    Different(String),
}

/// Run kernels both ways. When they do not compile together, each is compiled alone.
pub fn check(kernels: &[Kernel]) -> Vec<Outcome> {
    let text = kernels.iter().fold(header(), |all, k| all + &k.text());
    let case = |k: &Kernel| Case {
        name: k.name(),
        plain: k.plain_name(),
        shape: k.shape,
        n: k.n,
        seed: k.seed,
        setting: k.setting,
    };
    let cases: Vec<Case> = kernels.iter().map(case).collect();
    match (run(&text, &cases), kernels) {
        (Ok(outcomes), _) => outcomes,
        (Err(error), [_]) => vec![Outcome::Different(format!("{error:#}"))],
        (Err(_), all) => all.iter().flat_map(|kernel| check(std::slice::from_ref(kernel))).collect(),
    }
}

/// Run the kernel of a text that [`Kernel::source`] wrote, as its comment says, with vectors of every width, optimized and not.
///
/// # Errors
/// When the text does not compile or its first line is another.
pub fn check_text(text: &str) -> Result<Vec<(u32, Outcome)>> {
    let line = text.lines().next().unwrap_or_default();
    let words = line.split(|c: char| !c.is_ascii_digit()).filter(|w| !w.is_empty());
    let numbers = words.map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [seed, tx, ty, tz, gx, gy, gz, n, ..] = numbers[..] else {
        bail!("`{line}` does not describe a launch");
    };
    let shape = Shape { threads: [tx, ty, tz].map(|t| t as u32), group: [gx, gy, gz].map(|g| g as u32) };
    let case = |lanes, optimized, dynamic| Case {
        name: format!("k{seed}"),
        plain: None,
        shape,
        n: n as u32,
        seed,
        setting: Setting {
            lanes,
            processor: None,
            optimized,
            checked: false,
            stoppable: false,
            large: false,
            dynamic,
            grid: false,
        },
    };
    let widths = [1, 2, 4, 8, 16, 32];
    let options = [(true, false), (false, false), (false, true)];
    let cases = options.map(|(optimized, dynamic)| widths.map(|lanes| case(lanes, optimized, dynamic)));
    let outcomes = run(text, cases.as_flattened())?;
    Ok(cases.as_flattened().iter().map(|case| case.setting.lanes).zip(outcomes).collect())
}

fn run(text: &str, cases: &[Case]) -> Result<Vec<Outcome>> {
    let built = compile::compile(text, cases)?;
    std::thread::scope(|scope| {
        let all = || outcomes(&built, cases);
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, all)?;
        Ok(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The outcomes of cases. Successive cases of one launch, which differ in settings of the compiler, are interpreted once.
fn outcomes(built: &[Built], cases: &[Case]) -> Vec<Outcome> {
    let mut interpreted: Option<(&Case, std::result::Result<Interpreted, Outcome>)> = None;
    let mut outcomes = Vec::new();
    for (built, case) in built.iter().zip(cases) {
        let (_, expected) = match interpreted.take() {
            Some((other, expected)) if other.is_same_launch(case) => interpreted.insert((case, expected)),
            _ => interpreted.insert((case, Interpreted::of(&built.kernel, case))),
        };
        outcomes.push(match (expected, &built.compiled) {
            (Err(outcome), _) => outcome.clone(),
            (Ok(_), Err(refused)) => Outcome::Refused(refused.clone()),
            (Ok(expected), Ok(runnable)) => {
                let actual = compiled(runnable, case, expected.input.clone(), &built.kernel.logs);
                actual.map_or_else(Outcome::Different, |actual| expected.compare(&actual))
            }
        });
    }
    outcomes
}

/// A launch in the interpreter.
struct Interpreted {
    input: Memory,
    output: Memory,
    lines: Lines,
}

impl Interpreted {
    /// Interprets a kernel, and what is prepared for NVPTX, which must do the same.
    fn of(kernel: &Interpretable, case: &Case) -> std::result::Result<Self, Outcome> {
        let input = Memory::random(case.shape, case.seed);
        let (output, lines) = interpreted(&kernel.unoptimized, case, input.clone(), (false, &kernel.logs))?;
        let expected = Self { input, output, lines };
        let prepared = kernel.prepared.as_ref();
        let prepared =
            prepared.map_err(|why| Outcome::Different(format!("on warps: not prepared for NVPTX: {why}")))?;
        let on_warps = interpreted(prepared, case, expected.input.clone(), (true, &kernel.logs));
        match on_warps.map_or_else(|outcome| outcome, |actual| expected.compare(&actual)) {
            Outcome::Same => Ok(expected),
            Outcome::Different(why) => Err(Outcome::Different(format!("on warps: {why}"))),
            outcome => Err(outcome),
        }
    }

    fn compare(&self, (actual, logged): &(Memory, Lines)) -> Outcome {
        match difference(&self.output, actual) {
            Outcome::Same => self.lines.compare(logged),
            other => other,
        }
    }
}

/// The memory of a launch: `out`, `in`, `acc` and `wide`.
#[derive(Clone)]
struct Memory {
    buffers: [Vec<u32>; 4],
}

impl Memory {
    fn random(shape: Shape, seed: u64) -> Memory {
        let mut random = Random::new(!seed);
        let threads: u32 = shape.threads.iter().product();
        let mut words =
            |count: usize| (0..count).map(|_| random.next() as u32 >> (random.below(4) * 8)).collect();
        let [out, given, acc] = [threads as usize * WORDS, INPUTS, ACCUMULATORS].map(&mut words);
        Memory { buffers: [out, given, acc, wide(&mut random)] }
    }
}

/// Run in the interpreter; in `blocks`, of code that was prepared for NVPTX.
fn interpreted(
    module: &Module,
    case: &Case,
    input: Memory,
    (blocks, sites): (bool, &[LogSite]),
) -> std::result::Result<(Memory, Lines), Outcome> {
    let bytes = |words: &[u32]| Argument::Bytes(words.iter().flat_map(|w| w.to_le_bytes()).collect());
    let [out, given, acc, wide] = &input.buffers;
    let mut arguments = vec![bytes(out), bytes(given), bytes(&[case.n]), bytes(acc), bytes(wide)];
    let Shape { mut threads, mut group } = case.shape;
    if blocks {
        let [x, y, z] = threads;
        let block = nvptx::Block::of(group);
        let extent = block.parameter(Extent::of(threads, group));
        arguments.extend([x, y, z, extent, 0, 0].map(Argument::Number));
        if !sites.is_empty() {
            // No ring: the interpreter passes the records on.
            arguments.extend([0, 0].map(Argument::Number));
        }
        threads = std::array::from_fn(|d| threads[d].div_ceil(group[d]) * block.size[d]);
        group = block.size;
    }
    let launch = elinvar_reference::Launch { threads, group, arguments };
    let steps = if blocks { STEPS * 8 } else { STEPS };
    let options = Options { steps, blocks, ..Options::default() };
    let words = |bytes: &[u8]| {
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>()
    };
    let mut lines = Lines::default();
    let mut log = |record: LogRecord| lines.add(record.thread, message(&record, sites));
    match elinvar_reference::run_logged(module, &launch, &options, &mut log) {
        Ok(memory) => Ok((Memory { buffers: [0, 1, 3, 4].map(|at| words(&memory[at])) }, lines)),
        Err(fault) if *fault.problem == elinvar_reference::Problem::Steps(steps) => Err(Outcome::TooLong),
        Err(fault) => Err(Outcome::Different(format!("the interpreter: {fault}"))),
    }
}

/// 64 bytes, aligned as the scratch memory must be.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Block([u8; 64]);

fn compiled(
    runnable: &Runnable,
    case: &Case,
    input: Memory,
    sites: &[LogSite],
) -> std::result::Result<(Memory, Lines), String> {
    let logging = Logging::new(sites);
    let Shape { threads, group } = case.shape;
    let mut memory = input;
    memory.buffers.iter_mut().for_each(|words| words.extend([UNTOUCHED; BEHIND]));
    let n = case.n;
    let pointers = memory.buffers.each_mut().map(|words| words.as_mut_ptr().cast::<c_void>());
    let [out, given, acc, wide] = pointers;
    let args = [out.cast_const(), given, (&raw const n).cast(), acc, wide];
    let bytes = |words: &Vec<u32>| (words.len() - BEHIND) as u64 * 4;
    let [out, given, acc, wide] = memory.buffers.each_ref().map(bytes);
    let sizes = [out, given, 4, acc, wide];
    let groups: [u32; 3] = std::array::from_fn(|d| threads[d].div_ceil(group[d]));
    let mut record = FaultRecord::default();
    let go_on = 0_u8;
    let launch = Launch {
        args: args.as_ptr(),
        threads,
        groups,
        sizes: sizes.as_ptr(),
        record: &raw mut record,
        stop: &raw const go_on,
        group,
        log_kernel: logging.kernel.as_ref().map_or(0, |kernel| kernel.number()),
        log: if sites.is_empty() { std::ptr::null() } else { logging.log.control() },
    };
    let blocks = runnable.made.scratch_bytes as usize / 64 + 1;
    let all = groups.into_iter().map(u64::from).product::<u64>();
    let count = if runnable.made.cooperative { all as usize } else { 1 };
    let mut scratch = vec![Block([0xcd; 64]); blocks * count];
    if runnable.made.cooperative {
        scratch.iter_mut().step_by(blocks).for_each(|first| first.0[..8].fill(0));
    }
    let mut run = |groups: Range<u64>, at: usize| {
        // SAFETY: a kernel of this crate writes only its thread's elements of `out` and `acc[0..6]`, and reads
        // `in` at indices that are within its length; the interpreter has just checked every access. What goes elsewhere
        // does so in code that checks its bounds, which is what is tested. The scratch
        // memory is aligned and as large as the kernel needs, and everything lives until the call has ended.
        #[allow(unsafe_code)]
        unsafe {
            runnable.code.run(&launch, scratch[at * blocks..].as_mut_ptr().cast(), groups)
        }
    };
    let status = if runnable.made.cooperative { rounds(all, &mut run) } else { run(0..all, 0) };
    let site = usize::try_from(status - 1).ok().and_then(|at| runnable.made.faults.get(at));
    if status != 0 {
        return Err(format!("fault {status}: {}", site.map_or("unknown", |site| &site.message)));
    }
    if record.taken != 0 && case.plain.is_none() {
        return Err(format!("an access out of bounds: {record:?}"));
    }
    let behind = |words: &mut Vec<u32>| words.drain(words.len() - BEHIND..).all(|word| word == UNTOUCHED);
    if !memory.buffers.each_mut().into_iter().all(behind) {
        return Err("memory after the end of a buffer was changed".into());
    }
    Ok((memory, logging.end()?))
}

/// Runs threadgroups that suspend, each up to its next barrier in turn, until all have ended or one has a fault.
fn rounds(groups: u64, run: &mut dyn FnMut(Range<u64>, usize) -> i32) -> i32 {
    let mut left: Vec<u64> = (0..groups).collect();
    let mut status = 0;
    while status == 0 && !left.is_empty() {
        left.retain(|group| match run(*group..group + 1, *group as usize) {
            0 => false,
            SUSPENDED => true,
            fault => {
                status = fault;
                true
            }
        });
    }
    status
}

fn difference(expected: &Memory, actual: &Memory) -> Outcome {
    let pairs = expected.buffers.iter().zip(&actual.buffers);
    for (name, (expected, actual)) in ["out", "in", "acc", "wide"].iter().zip(pairs) {
        let differs = expected.iter().zip(actual).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let count = expected.iter().zip(actual).filter(|(a, b)| a != b).count();
            return Outcome::Different(format!(
                "{name}[{at}] is {:#x} compiled and {:#x} in the interpreter ({count} of {} differ)",
                actual[at],
                expected[at],
                expected.len()
            ));
        }
    }
    Outcome::Same
}
