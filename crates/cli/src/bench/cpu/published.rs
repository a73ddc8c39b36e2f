//! Published kernels with the arguments and sizes of their own host code, compared with baselines on the host.
//!
//! The sources are not part of this repository: environment variables name their folders.

use std::path::PathBuf;

use elinvar::{Arg, Constants, Device, Grid, Kernel, Source, Stream};

use super::super::cuda::candle;
use super::super::{Context, Measured};
use super::problem::{Agreement, Argument, Native};
use super::team::Team;
use super::{Contestant, MOST_ITERATIONS, OnHost, ROUND_NS, attention, quantized, steel, take_turns};
use crate::failure::{Failure, Result};
use crate::report::median;

const GGML: &str = "ELINVAR_GGML";

/// Measures one kernel.
pub type Run = fn(&Context) -> Result<Measured>;

/// Kernels of the crate candle-metal-kernels, by name.
pub const CANDLE: [(&str, Run); 8] = [
    ("steel_f32_32x32", steel::f32_32),
    ("steel_f32_64x64", steel::f32_64),
    ("steel_f16_32x32", steel::f16_32),
    ("steel_f16_64x64", steel::f16_64),
    ("steel_bf16_32x32", steel::bf16_32),
    ("steel_bf16_64x64", steel::bf16_64),
    ("attention_candle_f32", attention::candle_f32),
    ("attention_candle_f16", attention::candle_f16),
];

/// Kernels of ggml, by name.
pub const OF_GGML: [(&str, Run); 3] = [
    ("attention_ggml_f16", attention::ggml_f16),
    ("mul_mv_q4_0", quantized::q4_0),
    ("mul_mv_q4_k", quantized::q4_k),
];

/// Kernels whose sources the environment does not name, with the reason.
pub fn absences() -> impl Iterator<Item = (&'static str, String)> {
    let candle = (!candle::is_named()).then_some(("steel_*, attention_candle_*", "ELINVAR_CANDLE"));
    let ggml = (!is_ggml_named()).then_some(("attention_ggml_*, mul_mv_*", GGML));
    candle.into_iter().chain(ggml).map(|(names, variable)| (names, format!("{variable} is not set")))
}

/// Whether the environment names ggml's sources.
pub fn is_ggml_named() -> bool {
    std::env::var_os(GGML).is_some_and(|path| !path.is_empty())
}

/// A kernel of ggml's Metal back end, compiled as its host does.
pub(super) fn ggml(device: &Device, file: &str, name: &str, constants: &Constants) -> Result<Kernel> {
    let root = std::env::var_os(GGML).filter(|path| !path.is_empty()).map(PathBuf::from);
    let root =
        root.ok_or_else(|| Failure::usage(format!("{GGML} is not set; it names the folder ggml/src")))?;
    let metal = root.join("ggml-metal");
    let path = metal.join("kernels").join(file);
    let cannot = |error| Failure::input(format!("{}: {error}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(cannot)?;
    let source = Source::named(path.display().to_string(), text)
        .include_dir(metal.join("kernels"))
        .include_dir(&metal)
        .include_dir(&root)
        .define("GGML_METAL_HAS_BF16", Some("1"));
    Ok(device.compile(source)?.kernel_with(name, constants)?)
}

/// A kernel with its arguments.
pub(super) struct Published<'b> {
    pub kernel: Kernel,
    pub stream: Stream,
    pub grid: Grid,
    pub args: Vec<Arg>,
    /// Reads the result.
    pub result: Box<dyn Fn() -> Result<Vec<f32>> + 'b>,
}

impl Contestant for Published<'_> {
    #[allow(unsafe_code)] // launches
    fn run(&mut self, iterations: u64) -> Result<u64> {
        let mut commands = self.stream.command_buffer();
        for _ in 0..iterations {
            // SAFETY: the kernel's own host code launches it with these sizes.
            unsafe { commands.launch(&self.kernel, self.grid.clone(), &self.args) }?;
        }
        let timing = commands.submit()?.wait()?;
        Ok(timing.end_ns - timing.start_ns)
    }

    fn arguments(&self) -> Result<Vec<Argument>> {
        Ok(vec![Argument::Floats((self.result)()?)])
    }
}

/// The baselines of a kernel.
pub(super) struct Baselines {
    /// By name. The first one's result is the reference.
    pub works: Vec<(&'static str, Native)>,
    pub args: Vec<Argument>,
    /// Position of the result in `args`.
    pub result: usize,
    pub agreement: Agreement,
}

/// Compares each result with the reference, then measures in turns. `work` has the size, the bytes and the operations.
pub(super) fn measure(
    context: &Context,
    ours: Published<'_>,
    baselines: Baselines,
    work: Measured,
) -> Result<Measured> {
    let team = Team::new(context.threads)?;
    let Baselines { works, args, result, agreement } = baselines;
    let mut contestants: Vec<(&'static str, Box<dyn Contestant + '_>)> = vec![("ours", Box::new(ours))];
    for (name, work) in works {
        contestants.push((name, Box::new(OnHost { work, args: args.clone(), team: &team })));
    }
    let (mut results, mut counts) = (Vec::new(), Vec::new());
    for (_, contestant) in &mut contestants {
        contestant.run(1)?;
        results.push(contestant.arguments()?);
        counts.push((ROUND_NS / contestant.run(1)?.max(1)).clamp(1, MOST_ITERATIONS));
    }
    let reference = results[1][result].numbers();
    for ((name, _), args) in contestants.iter().zip(&results) {
        let numbers = args[if *name == "ours" { 0 } else { result }].numbers();
        if let Some(difference) = agreement.difference(&numbers, &reference) {
            let text = format!("{}: the result of {name} is wrong: {difference}", work.size);
            return Err(elinvar::Error::DeviceLost(text).into());
        }
    }
    let times = take_turns(&mut contestants, &counts)?;
    let mut times = contestants.iter().zip(times).map(|((name, _), times)| (*name, median(times)));
    let median_ns = times.next().map_or(0, |(_, ns)| ns);
    Ok(Measured { median_ns, baselines: times.collect(), ..work })
}
