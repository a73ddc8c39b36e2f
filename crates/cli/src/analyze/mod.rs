//! `elinvar analyze`: what kernels do to memory and arithmetic units, from their code, without running them.

mod fix;
mod occupancy;
mod roofline;
mod text;
mod tokens;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use clap::Args;
use elinvar::{Diagnostic, Dim3, ProfileRoofs, Severity, Signature};
use elinvar_analysis::{
    Advice, Analysis, Effort, Launch, LaunchTotals, Location, Machine, Remedy, Roofline, Rule, analyze,
};
use elinvar_code::{Program, max_threads, user_cache};
use elinvar_driver::Constant;
use elinvar_msl::InductionVariables;
use serde_json::{Value as Json, json};

use crate::check::is;
use crate::constant;
use crate::diagnostics::{annotation, sarif};
use crate::failure::{Failure, Result};
use crate::programs::roofs;
use crate::report::{print_json, say};
use crate::select::Selection;
use crate::selection::{KernelPattern, is_selected, unmatched};
use crate::source::{Math, SourceOptions};
use crate::target::Target;
use crate::value::{Value, parse_size, split_pair};

use fix::{Wanted, fix};
use occupancy::{KernelOccupancy, Request};

/// Analyze kernels: memory accesses, operations, loops, traffic of a launch
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar analyze examples/matmul.metal\n  \
    elinvar analyze kernels/*.metal --kernel 'gemm_*' --json\n  \
    elinvar analyze examples/vector_add.metal --kernel vector_add --grid 1048576 --set n=1048576u32\n  \
    elinvar analyze examples/matmul.metal --grid 512,512 --group 16,16 --set n=512u32 --peak 2000 --bandwidth 100\n  \
    elinvar analyze examples/matmul.metal --occupancy cuda:sm_90 --plot occupancy.svg\n  \
    elinvar analyze examples/matmul.metal --grid 512,512 --set n=512u32 --measure cpu --roofline roofline.svg\n  \
    elinvar analyze --github kernels/*.metal\n  \
    elinvar analyze --sarif kernels/*.metal > findings.sarif\n\n\
    Nothing is run, but by --measure. --grid adds totals of a launch; the numbers in `constant` arguments that addresses, loops or\n\
    branches depend on are needed then (--set). Totals that depend on the contents of other memory are estimates,\n\
    and marked so. The exit code is 1 if a kernel cannot be compiled.")]
pub struct Analyze {
    /// Metal source files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    options: SourceOptions,
    /// Analyze only kernels of this name, or whose names match a pattern such as `gemm_*`; may be repeated
    #[arg(long = "kernel", value_name = "K")]
    kernels: Vec<KernelPattern>,
    /// Floating-point math mode
    #[arg(long, value_enum, default_value = "fast")]
    math: Math,
    /// Value of a function constant, such as `7u32` or `true`; may be repeated
    #[arg(long = "constant", value_name = "NAME|INDEX=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    constants: Vec<(String, String)>,
    /// Size of a launch in threads, for its totals
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size)]
    grid: Option<Dim3>,
    /// Threadgroup size in threads
    ///
    /// The default is 256, 32 x 8 or 32 x 4 x 2 threads by the kernel's dimensions.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size, requires = "grid")]
    group: Option<Dim3>,
    /// Numbers in a `constant` argument, such as `n=512u32` or `size=64,64,3u32`; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = split_pair, requires = "grid", allow_hyphen_values = true)]
    scalars: Vec<(String, String)>,
    /// Peak rate of the device in GFLOP/s, for the roofline
    #[arg(long, value_name = "GFLOPS", requires_all = ["grid", "bandwidth"])]
    peak: Option<f64>,
    /// Memory bandwidth of the device in GB/s, for the roofline
    #[arg(long, value_name = "GB/S", requires_all = ["grid", "peak"])]
    bandwidth: Option<f64>,
    /// Measure peak rate and bandwidth on a device of this machine, for the roofline
    #[arg(long, value_name = "DEVICE", requires = "grid", conflicts_with_all = ["peak", "bandwidth"])]
    measure: Option<Selection>,
    /// Write a plot of the roofline, with the place of each kernel
    #[arg(long, value_name = "FILE.svg", requires = "grid")]
    roofline: Option<PathBuf>,
    /// The machine that advice is for: cpu or gpu
    #[arg(long, value_name = "MACHINE", default_value = "gpu")]
    machine: Machine,
    /// Change the files by the advice swap-axes, pad-tile and simdgroup-reduction, where the edit keeps the results
    #[arg(long, conflicts_with_all = ["json", "github", "sarif"])]
    fix: bool,
    /// Print what --fix would change, as a unified diff
    #[arg(long, requires = "fix")]
    dry_run: bool,
    /// Occupancy of a device, which need not be there, by threadgroup size: cpu, cuda:sm_NN, metal:apple7
    ///
    /// For NVIDIA GPUs, registers are those of NVIDIA's assembler, if ELINVAR_PTXAS names it or it is on the path, otherwise an estimate, as for Apple's.
    #[arg(long, value_name = "TARGET")]
    occupancy: Option<Target>,
    /// Registers of a thread, for --occupancy
    #[arg(long, value_name = "N", requires = "occupancy", value_parser = clap::value_parser!(u32).range(1..=255))]
    registers: Option<u32>,
    /// Dynamic threadgroup memory in bytes, for --occupancy
    #[arg(long, value_name = "BYTES", requires = "occupancy", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=1 << 30))]
    dynamic: u64,
    /// Write a plot of the occupancy of one kernel
    #[arg(long, value_name = "FILE.svg", requires = "occupancy")]
    plot: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print only findings, as annotations for GitHub Actions
    #[arg(long, conflicts_with_all = ["json", "sarif"])]
    github: bool,
    /// Print only findings, as a SARIF log
    #[arg(long, conflicts_with = "json")]
    sarif: bool,
}

/// A kernel that was analyzed.
struct Analyzed {
    analysis: Analysis,
    advice: Vec<Advice>,
    totals: Option<LaunchTotals>,
    roofline: Option<Roofline>,
    occupancy: Option<KernelOccupancy>,
}

/// The roofs of a device: its peak rate in FLOP/s and its memory bandwidth in bytes per second.
struct Roofs {
    device: String,
    peak: f64,
    bandwidth: f64,
}

impl Analyze {
    pub fn run(self) -> Result<()> {
        if let Some((name, _)) = [("--peak", self.peak), ("--bandwidth", self.bandwidth)]
            .into_iter()
            .find(|(_, rate)| rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)))
        {
            return Err(Failure::usage(format!("{name}: a rate is a number above 0")));
        }
        let constants = constant::parse(&self.constants)?;
        let scalars = self.scalars.iter().map(scalar).collect::<Result<Vec<_>>>()?;
        let roofs = self.roofs()?;
        let (mut analyzed, mut failures, mut names) = (Vec::new(), Vec::new(), Vec::new());
        for file in &self.files {
            let found = self.file(file, (&constants, &scalars), roofs.as_ref(), &mut names, &mut failures);
            analyzed.extend(found.unwrap_or_else(|failure| {
                failures.push(failure);
                Vec::new()
            }));
        }
        if failures.is_empty() {
            let place = if self.files.len() == 1 {
                "the source".into()
            } else {
                format!("the {} files", self.files.len())
            };
            let known: Vec<&str> = names.iter().map(String::as_str).collect();
            failures.extend(unmatched(&self.kernels, &place, &known).into_iter().map(Failure::input));
        }
        if failures.is_empty() {
            let is_known =
                |name: &str| analyzed.iter().any(|a| a.analysis.scalars.iter().any(|known| known == name));
            if let Some((name, _)) = scalars.iter().find(|(name, _)| !is_known(name)) {
                let why = "no address, loop or branch depends on a `constant` argument of this name";
                failures.push(Failure::input(format!("--set {name}: {why}")));
            }
        }
        if !self.fix {
            self.print(&analyzed)?;
        }
        if failures.is_empty() {
            failures.extend(self.write_plot(&analyzed).err());
            failures.extend(self.write_roofline(roofs.as_ref(), &analyzed).err());
        }
        failures.iter().for_each(Failure::print);
        match failures.iter().map(Failure::exit_code).max() {
            Some(code) => Err(Failure::Reported(code)),
            None => Ok(()),
        }
    }

    /// Analyzes the kernels of a file. Those that fail are added to `failures`.
    fn file(
        &self,
        file: &Path,
        (constants, scalars): (&[Constant], &[(String, Vec<u8>)]),
        roofs: Option<&Roofs>,
        names: &mut Vec<String>,
        failures: &mut Vec<Failure>,
    ) -> Result<Vec<Analyzed>> {
        let source = self.options.load(file, self.math.into())?;
        let program = Program::new(user_cache(), &source, InductionVariables::AsWritten)?;
        let declared = program.declared();
        let own = constants.iter().filter(|given| declared.constants.iter().any(|known| is(known, given)));
        let own: Vec<Constant> = own.cloned().collect();
        names.extend(declared.kernels.iter().map(|kernel| kernel.name.clone()));
        names.extend(declared.unsupported.iter().map(|kernel| kernel.name.clone()));
        let mut all = Vec::new();
        for kernel in declared.kernels.iter().filter(|kernel| is_selected(&self.kernels, &kernel.name)) {
            let analyzed = self.kernel(&program, kernel, (&own, scalars), roofs).and_then(|mut analyzed| {
                if let Some(request) = self.occupancy_request() {
                    let found = KernelOccupancy::new(request, &source, &analyzed.analysis, &own)?;
                    analyzed.occupancy = Some(found);
                }
                Ok(analyzed)
            });
            match analyzed {
                Ok(analyzed) => all.push(analyzed),
                Err(failure) => failures.push(failure),
            }
        }
        if self.fix {
            let wanted: Vec<Wanted<'_>> = all
                .iter()
                .map(|one: &Analyzed| Wanted { kernel: &one.analysis.kernel, advice: &one.advice })
                .collect();
            fix(file, &source, &wanted, self.dry_run)?;
        }
        for kernel in declared.unsupported.iter().filter(|kernel| is_selected(&self.kernels, &kernel.name)) {
            failures.push(elinvar::Error::Compile(vec![kernel.reason.clone()]).into());
        }
        Ok(all)
    }

    /// The roofs that are given, or measured.
    fn roofs(&self) -> Result<Option<Roofs>> {
        if let Some(selection) = self.measure {
            let device = Selection::device(Some(selection))?;
            let ProfileRoofs { flops, bandwidth } = roofs::measure(&device)?;
            return Ok(Some(Roofs { device: device.name().to_owned(), peak: flops, bandwidth }));
        }
        if self.roofline.is_some() && self.peak.is_none() {
            return Err(Failure::usage("--roofline needs --measure DEVICE, or --peak and --bandwidth"));
        }
        let given = self.peak.zip(self.bandwidth);
        Ok(given.map(|(peak, bandwidth)| Roofs {
            device: "a device".into(),
            peak: peak * 1e9,
            bandwidth: bandwidth * 1e9,
        }))
    }

    /// Writes the plot of `--roofline`.
    fn write_roofline(&self, roofs: Option<&Roofs>, analyzed: &[Analyzed]) -> Result<()> {
        let (Some(file), Some(roofs)) = (&self.roofline, roofs) else { return Ok(()) };
        let launches = analyzed.iter().filter_map(|one| Some((one.analysis.kernel.clone(), one.roofline?)));
        let launches: Vec<(String, Roofline)> = launches.collect();
        let (peak, bandwidth) = (roofs.peak / 1e9, roofs.bandwidth / 1e9);
        let title = format!("Roofline of {}: {peak:.0} GFLOP/s, {bandwidth:.0} GB/s", roofs.device);
        let failed = |error| Failure::Machine(format!("{}: {error}", file.display()));
        std::fs::write(file, roofline::plot(&title, roofs.peak, roofs.bandwidth, &launches)).map_err(failed)
    }

    fn occupancy_request(&self) -> Option<Request> {
        let target = self.occupancy?;
        Some(Request { target, registers: self.registers, dynamic: self.dynamic })
    }

    /// Writes the plot of `--plot`.
    fn write_plot(&self, analyzed: &[Analyzed]) -> Result<()> {
        let Some(file) = &self.plot else { return Ok(()) };
        let [Analyzed { analysis, occupancy: Some(occupancy), .. }] = analyzed else {
            return Err(Failure::usage(format!(
                "--plot shows one kernel, not {}; select it by --kernel",
                analyzed.len()
            )));
        };
        let failed = |error| Failure::Machine(format!("{}: {error}", file.display()));
        std::fs::write(file, occupancy.plot(&analysis.kernel)).map_err(failed)
    }

    fn kernel(
        &self,
        program: &Program,
        kernel: &Signature,
        (constants, scalars): (&[Constant], &[(String, Vec<u8>)]),
        roofs: Option<&Roofs>,
    ) -> Result<Analyzed> {
        let thread = program.thread(&kernel.name, constants)?;
        let module = program.module(&thread)?;
        let signature = &thread.origin.signature;
        let analysis = analyze(module, signature)?;
        let Some(grid) = self.grid else {
            let advice = analysis.advice(self.machine, None)?;
            return Ok(Analyzed { analysis, advice, totals: None, roofline: None, occupancy: None });
        };
        let group = self.group.unwrap_or_else(|| default_group(analysis.dimensions, max_threads(signature)));
        let value =
            |name: &str| scalars.iter().find(|(given, _)| given == name).map(|(_, bytes)| bytes.clone());
        let missing: Vec<&str> =
            analysis.scalars.iter().map(String::as_str).filter(|name| value(name).is_none()).collect();
        if let Some(first) = missing.first() {
            let (kernel, all) = (&kernel.name, missing.join("`, `"));
            let why = format!("addresses, loops or branches depend on `{all}`: give --set {first}=VALUE");
            return Err(Failure::input(format!("kernel `{kernel}`: {why}")));
        }
        let args = signature.args.iter().enumerate();
        let given: HashMap<usize, Vec<u8>> =
            args.filter_map(|(index, arg)| Some((index, value(&arg.name)?))).collect();
        let launch = Launch { grid: grid.to_array(), group: group.to_array(), constants: given };
        let totals = analysis.launch(&launch, Effort::default())?;
        let roofline = roofs.map(|roofs| totals.roofline(roofs.peak, roofs.bandwidth));
        let advice = analysis.advice(self.machine, Some(&launch))?;
        Ok(Analyzed { analysis, advice, totals: Some(totals), roofline, occupancy: None })
    }

    fn print(&self, analyzed: &[Analyzed]) -> Result<()> {
        let results: Vec<(&str, Diagnostic)> = analyzed.iter().flat_map(diagnostics).collect();
        if self.json {
            let kernels: Vec<Json> = analyzed.iter().map(to_json).collect();
            print_json(&json!({ "kernels": kernels }))
        } else if self.github {
            results.iter().try_for_each(|(_, diagnostic)| say(annotation::of(diagnostic)))
        } else if self.sarif {
            let rules: Vec<(&str, &str)> = Rule::ALL
                .map(|rule| (rule.name(), rule.description()))
                .into_iter()
                .chain(Remedy::ALL.map(|remedy| (remedy.name(), remedy.description())))
                .collect();
            let results: Vec<(&str, &Diagnostic)> =
                results.iter().map(|(rule, diagnostic)| (*rule, diagnostic)).collect();
            print_json(&sarif::log(&rules, &results))
        } else {
            analyzed.iter().try_for_each(|one| {
                text::print(&one.analysis, one.totals.as_ref(), one.roofline.as_ref())?;
                text::print_advice(self.machine, &one.advice)?;
                one.occupancy.as_ref().map_or(Ok(()), KernelOccupancy::print)?;
                say("")
            })
        }
    }
}

/// Text within XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A `--set`.
fn scalar((name, text): &(String, String)) -> Result<(String, Vec<u8>)> {
    let place = format!("--set {name}={text}");
    match Value::parse(text).map_err(|failure| failure.at(&place))? {
        Value::Number { bytes, .. } => Ok((name.clone(), bytes)),
        _ => Err(Failure::usage(format!("{place}: a number is needed, such as `512u32`"))),
    }
}

fn default_group(dimensions: u32, most: u32) -> Dim3 {
    let most = most.min(256);
    match dimensions {
        1 => Dim3::new(most, 1, 1),
        2 => Dim3::new(most.min(32), (most / 32).max(1), 1),
        _ => Dim3::new(most.min(32), (most / 64).clamp(1, 4), (most / 128).max(1)),
    }
}

/// The findings of a kernel and the advice as warnings, with the name of their rule.
fn diagnostics(analyzed: &Analyzed) -> Vec<(&'static str, Diagnostic)> {
    let analysis = &analyzed.analysis;
    let one = |rule: &'static str, place: Option<&Location>, message: &str| {
        let (file, line, column) = match place {
            Some(place) => (place.file.clone(), place.line, place.column),
            None => (analysis.file.clone(), analysis.line, 0),
        };
        let message = format!("kernel `{}`: {message}", analysis.kernel);
        let diagnostic =
            Diagnostic { severity: Severity::Warning, ..Diagnostic::error(file, line, column, message) };
        (rule, diagnostic)
    };
    let findings = analysis.findings();
    let findings = findings.iter().map(|f| one(f.rule.name(), f.location.as_ref(), &f.message));
    let advice = analyzed.advice.iter().map(|advice| {
        let message = format!("{} (expected gain {:.2})", advice.reason, advice.gain);
        one(advice.remedy.name(), advice.location.as_ref(), &message)
    });
    findings.chain(advice).collect()
}

fn to_json(analyzed: &Analyzed) -> Json {
    let mut kernel = serde_json::to_value(&analyzed.analysis).unwrap_or_default();
    kernel["findings"] = serde_json::to_value(analyzed.analysis.findings()).unwrap_or_default();
    kernel["advice"] = serde_json::to_value(&analyzed.advice).unwrap_or_default();
    kernel["launch"] = serde_json::to_value(&analyzed.totals).unwrap_or_default();
    kernel["occupancy"] = serde_json::to_value(&analyzed.occupancy).unwrap_or_default();
    kernel["roofline"] = serde_json::to_value(analyzed.roofline).unwrap_or_default();
    kernel
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_groups_are_within_the_limit() {
        for dimensions in 1..=3 {
            for most in [1, 31, 32, 64, 100, 128, 256, 1024] {
                let volume = default_group(dimensions, most).volume();
                assert!((1..=u128::from(most)).contains(&volume), "{dimensions} {most}: {volume}");
            }
            assert_eq!(default_group(dimensions, 1024).volume(), 256);
        }
    }
}
