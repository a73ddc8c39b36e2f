//! A kernel run both ways.

use anyhow::{Context, Result, bail};
use elinvar::{Args, Device, Grid, Source};
use elinvar_ir::Module;
use elinvar_msl::{Program, Toolchain};
use elinvar_reference::{Argument, Launch, Options};

use crate::generate::{ACCUMULATORS, HEADER, INPUTS, Kernel, Shape, WORDS};
use crate::random::Random;

/// Instructions that a kernel may run in the interpreter.
const STEPS: u64 = 2_000_000;

/// What running a kernel both ways showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All bytes are the same.
    Same,
    /// It runs longer than a test should.
    TooLong,
    /// What differs.
    Different(String),
}

/// Run kernels of one source both ways.
///
/// # Errors
/// When the source does not compile.
pub fn check(device: &Device, kernels: &[Kernel]) -> Result<Vec<Outcome>> {
    let text = kernels.iter().fold(HEADER.to_owned(), |all, k| all + &k.text());
    let runs: Vec<_> = kernels.iter().map(|k| (k.name(), k.shape, k.n, k.seed)).collect();
    run_all(device, &text, &runs)
}

/// Run the first kernel of a text that [`Kernel::source`] wrote, as its comment says.
///
/// # Errors
/// When the text does not compile or its first line is another.
pub fn check_text(device: &Device, text: &str) -> Result<Outcome> {
    let line = text.lines().next().unwrap_or_default();
    let words = line.split(|c: char| !c.is_ascii_digit()).filter(|w| !w.is_empty());
    let numbers = words.map(str::parse).collect::<std::result::Result<Vec<u64>, _>>()?;
    let [seed, tx, ty, tz, gx, gy, gz, n] = numbers[..] else {
        bail!("`{line}` does not say how to launch the kernel");
    };
    let shape = Shape { threads: [tx, ty, tz].map(|t| t as u32), group: [gx, gy, gz].map(|g| g as u32) };
    let name = format!("k{seed}");
    let outcomes = run_all(device, text, &[(name, shape, n as u32, seed)])?;
    outcomes.into_iter().next().context("one kernel has one outcome")
}

type Run = (String, Shape, u32, u64);

fn run_all(device: &Device, text: &str, runs: &[Run]) -> Result<Vec<Outcome>> {
    let source = Source::named("random.metal", text);
    let library = device.compile(&source)?;
    let program = Program::compile(&Toolchain::find()?, &source)?;
    let mut outcomes = Vec::new();
    for (name, shape, n, seed) in runs {
        let input = Input::random(*shape, *seed);
        let expected = match interpreted(&program, name, *shape, *n, &input)? {
            Ok(expected) => expected,
            Err(outcome) => {
                outcomes.push(outcome);
                continue;
            }
        };
        let actual = compiled(device, &library, name, *shape, *n, &input);
        outcomes.push(match actual {
            Ok(actual) => difference(&expected, &actual),
            Err(error) => Outcome::Different(format!("the device: {error}")),
        });
    }
    Ok(outcomes)
}

/// What a launch starts from: `out`, `in` and `acc`.
struct Input {
    buffers: [Vec<u32>; 3],
}

impl Input {
    fn random(shape: Shape, seed: u64) -> Input {
        let mut random = Random::new(!seed);
        let threads: u32 = shape.threads.iter().product();
        let mut words =
            |count: usize| (0..count).map(|_| random.next() as u32 >> (random.below(4) * 8)).collect();
        Input { buffers: [words(threads as usize * WORDS), words(INPUTS), words(ACCUMULATORS)] }
    }
}

type Words = [Vec<u32>; 2];

fn interpreted(
    program: &Program,
    name: &str,
    shape: Shape,
    n: u32,
    input: &Input,
) -> Result<std::result::Result<Words, Outcome>> {
    let module = Module::parse(&program.ir_unoptimized(name)?)?;
    let bytes = |words: &[u32]| Argument::Bytes(words.iter().flat_map(|w| w.to_le_bytes()).collect());
    let [out, given, acc] = &input.buffers;
    let arguments = vec![bytes(out), bytes(given), bytes(&[n]), bytes(acc)];
    let launch = Launch { threads: shape.threads, group: shape.group, arguments };
    let options = Options { steps: STEPS, ..Options::default() };
    let words = |bytes: &[u8]| {
        bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>()
    };
    Ok(match elinvar_reference::run_with(&module, &launch, &options) {
        Ok(memory) => Ok([words(&memory[0]), words(&memory[3])]),
        Err(fault) if *fault.problem == elinvar_reference::Problem::Steps(STEPS) => Err(Outcome::TooLong),
        Err(fault) => Err(Outcome::Different(format!("the interpreter: {fault}"))),
    })
}

fn compiled(
    device: &Device,
    library: &elinvar::Library,
    name: &str,
    shape: Shape,
    n: u32,
    input: &Input,
) -> Result<Words> {
    let kernel = library.kernel(name)?;
    let [out, given, acc] = &input.buffers;
    let mut out = device.buffer_from(out)?;
    let given = device.buffer_from(given)?;
    let mut acc = device.buffer_from(acc)?;
    let grid = Grid::threads(shape.threads).group(shape.group);
    launch(&kernel, &device.stream()?, grid, (&mut out, &given, n, &mut acc))?.wait()?;
    Ok([out.to_vec()?, acc.to_vec()?])
}

fn launch(
    kernel: &elinvar::Kernel,
    stream: &elinvar::Stream,
    grid: Grid,
    args: impl Args,
) -> elinvar::Result<elinvar::Completion> {
    // SAFETY: a kernel of this crate writes only its thread's elements of `out` and `acc[0..6]`, and reads
    // `in` at indices that are cut to its length; the interpreter has just checked every access.
    #[allow(unsafe_code)]
    unsafe {
        kernel.launch(stream, grid, args)
    }
}

fn difference(expected: &Words, actual: &Words) -> Outcome {
    for (name, expected, actual) in [("out", &expected[0], &actual[0]), ("acc", &expected[1], &actual[1])] {
        let differs = expected.iter().zip(actual).position(|(a, b)| a != b);
        if let Some(at) = differs {
            let count = expected.iter().zip(actual).filter(|(a, b)| a != b).count();
            return Outcome::Different(format!(
                "{name}[{at}] is {:#x} on the device and {:#x} in the interpreter ({count} of {} differ)",
                actual[at],
                expected[at],
                expected.len()
            ));
        }
    }
    Outcome::Same
}
