//! `--occupancy`: the threadgroups that a core of a GPU holds, or the share of a CPU's core that one uses, by size, as a table and a plot.
//!
//! Registers are those that NVIDIA's assembler allocates, if it is installed; otherwise given, or estimated. A CPU's scratch memory is that of
//! the compiled kernel.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use elinvar::{Error, Source};
use elinvar_analysis::{
    Analysis, AppleFamily, CoreCaches, Limiter, Multiprocessor, Occupancy, apple_occupancy, cpu_occupancy,
    occupancies,
};
use elinvar_code::{max_threads, user_cache};
use elinvar_driver::{Constant, Dim3, PipelineOptions, Tier};
use elinvar_native::{Form, SizeBound};
use elinvar_ptx::{Compiler, Constants};
use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::report::{print_table, say};
use crate::target::Target;

/// Environment variable with the path of NVIDIA's assembler.
const PTXAS: &str = "ELINVAR_PTXAS";

/// Where the number of registers is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// `--registers`.
    Given,
    /// NVIDIA's assembler.
    Ptxas,
    /// [`Analysis::live_registers`].
    Estimate,
    /// The occupancy does not depend on registers.
    Unused,
}

/// The occupancy of a kernel.
#[derive(Debug, Serialize)]
pub struct KernelOccupancy {
    /// The target's name.
    target: String,
    registers: u32,
    registers_from: From,
    threadgroup_bytes: u64,
    sizes: Vec<Occupancy>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub target: Target,
    pub registers: Option<u32>,
    /// Dynamic threadgroup memory in bytes.
    pub dynamic: u64,
}

impl KernelOccupancy {
    /// # Errors
    /// Usage for a target without limits that are known; those of the compiler, if it is asked.
    pub fn new(
        request: Request,
        source: &Source,
        analysis: &Analysis,
        constants: &[Constant],
    ) -> Result<Self> {
        let options =
            PipelineOptions { constants: constants.to_vec(), checked: false, tier: Tier::Optimized };
        let threadgroup_bytes = analysis.threadgroup_bytes + request.dynamic;
        let estimate = u32::try_from(analysis.live_registers).unwrap_or(u32::MAX).clamp(1, 255);
        let given = request.registers.map(|registers| (registers, From::Given));
        let ((registers, registers_from), sizes) = match request.target {
            Target::Cuda(target) => {
                let capability = target.capability();
                let core = Multiprocessor::of(capability / 10, capability % 10).ok_or_else(|| {
                    Failure::usage(format!("--occupancy {}: no limits are known", request.target))
                })?;
                let registers = match (given, ptxas()) {
                    (Some(given), _) => given,
                    (None, Some(path)) => {
                        let compiler = Compiler::new(user_cache(), source, target)?;
                        let ptx = compiler.kernel(&analysis.kernel, &options, Constants::Values)?;
                        (assembled(&path, &ptx.text, &target.to_string())?, From::Ptxas)
                    }
                    (None, None) => (estimate, From::Estimate),
                };
                (registers, occupancies(&core, registers.0, threadgroup_bytes))
            }
            Target::Metal => {
                let registers = given.unwrap_or((estimate, From::Estimate));
                (registers, of_apple(AppleFamily::M1, registers.0, threadgroup_bytes)?)
            }
            Target::Apple(family, _) => {
                let registers = given.unwrap_or((estimate, From::Estimate));
                (registers, of_apple(family, registers.0, threadgroup_bytes)?)
            }
            Target::Cpu(level) => {
                if request.registers.is_some() {
                    return Err(Failure::usage(
                        "--registers: the occupancy of a CPU does not depend on them",
                    ));
                }
                let sizes = of_cpu(level, source, analysis, &options, threadgroup_bytes)?;
                ((0, From::Unused), sizes)
            }
        };
        let most = max_threads(analysis.signature());
        let sizes = sizes.into_iter().filter(|size| size.threads <= most).collect();
        Ok(Self { target: request.target.to_string(), registers, registers_from, threadgroup_bytes, sizes })
    }

    fn is_of_cpu(&self) -> bool {
        self.registers_from == From::Unused
    }

    pub fn print(&self) -> Result<()> {
        let Self { target, registers, threadgroup_bytes, .. } = self;
        let from = match self.registers_from {
            From::Given => format!("{registers} registers (given), "),
            From::Ptxas => format!("{registers} registers (by ptxas), "),
            From::Estimate => format!("{registers} registers (an estimate), "),
            From::Unused => String::new(),
        };
        let model = if target.starts_with("metal") { ", by a model" } else { "" };
        say(format_args!(
            "  occupancy on {target}{model}: {from}{threadgroup_bytes} bytes of threadgroup memory"
        ))?;
        let row = |size: &Occupancy| {
            let second = size.scratch_bytes.unwrap_or_else(|| size.groups.into());
            vec![
                format!("    {}", size.threads),
                second.to_string(),
                size.simdgroups.to_string(),
                format!("{:.0} %", size.share * 100.0),
                super::text::word(&size.limiter),
            ]
        };
        let rows: Vec<Vec<String>> =
            self.sizes.iter().filter(|size| size.threads.is_power_of_two()).map(row).collect();
        let (second, share) =
            if self.is_of_cpu() { ("scratch bytes", "lanes used") } else { ("threadgroups", "occupancy") };
        print_table(&["    threads", second, "simdgroups", share, "limit"], &rows)
    }

    /// An SVG image: occupancy over threadgroup size, a bar for each number of simdgroups.
    pub fn plot(&self, kernel: &str) -> String {
        const WIDTH: f64 = 640.0;
        const HEIGHT: f64 = 240.0;
        const LEFT: f64 = 48.0;
        const TOP: f64 = 32.0;
        let step = WIDTH / 32.0;
        let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
        let title = match self.is_of_cpu() {
            true => format!("{kernel} on {}: lanes used", self.target),
            false => format!("{kernel} on {}: {} registers", self.target, self.registers),
        };
        let title = super::escaped(&title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n<text x=\"{LEFT}\" y=\"18\" font-size=\"13\">{title}</text>\n",
            right + 16.0,
            bottom + 44.0
        );
        for percent in [0, 25, 50, 75, 100] {
            let y = bottom - HEIGHT * f64::from(percent) / 100.0;
            let _ = writeln!(
                svg,
                "<line x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y}\" y2=\"{y}\" stroke=\"#ddd\"/>\
                 <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{percent} %</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
        for size in &self.sizes {
            // A bar begins where the next smaller number of simdgroups ends.
            let x = LEFT + f64::from(size.threads.div_ceil(32) - 1) * step;
            let height = HEIGHT * size.share;
            let color = color(size.limiter);
            let label = format!(
                "{} threads: {:.0} %, {}",
                size.threads,
                size.share * 100.0,
                super::text::word(&size.limiter)
            );
            let _ = writeln!(
                svg,
                "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{height:.1}\" fill=\"{color}\"><title>{label}</title></rect>",
                x + 1.0,
                bottom - height,
                step - 2.0
            );
            if size.threads.is_multiple_of(128) {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                    x + step / 2.0,
                    bottom + 16.0,
                    size.threads
                );
            }
        }
        let mut limiters: Vec<Limiter> = self.sizes.iter().map(|size| size.limiter).collect();
        limiters.sort_unstable_by_key(|limiter| *limiter as u8);
        limiters.dedup();
        for (index, limiter) in limiters.into_iter().enumerate() {
            let (name, color) = (super::text::word(&limiter), color(limiter));
            let x = LEFT + 90.0 * index as f64;
            let y = bottom + 36.0;
            let _ = writeln!(
                svg,
                "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{color}\"/><text x=\"{}\" y=\"{y}\">{name}</text>",
                y - 9.0,
                x + 14.0
            );
        }
        svg + "</svg>\n"
    }
}

/// A color for what limits occupancy.
fn color(limiter: Limiter) -> &'static str {
    match limiter {
        Limiter::Warps | Limiter::Simdgroups | Limiter::Core => "#4c78a8",
        Limiter::Blocks | Limiter::Lanes => "#72b7b2",
        Limiter::Registers | Limiter::L1 => "#f58518",
        Limiter::Memory | Limiter::L2 => "#e45756",
    }
}

/// Sizes of whole simdgroups up to 1024 threads.
fn simdgroups() -> impl Iterator<Item = u32> {
    (1..=32).map(|count| 32 * count)
}

fn of_apple(family: AppleFamily, registers: u32, bytes: u64) -> Result<Vec<Occupancy>> {
    if !(7..=8).contains(&family.number()) {
        let why = if family.number() > 8 {
            "registers and threadgroup memory are allocated while a kernel runs, so that no table of limits holds"
        } else {
            "nobody has published the limits of its cores"
        };
        return Err(Failure::usage(format!(
            "--occupancy metal:{family}: {why}; there is a model of apple7 and apple8"
        )));
    }
    let of = |threads| apple_occupancy(threads, registers, bytes, family.threadgroup_bytes());
    Ok(simdgroups().map(of).collect())
}

/// Sizes along x, each compiled up to machine code. Caches are this machine's, if the code is for it.
fn of_cpu(
    level: Option<&'static str>,
    source: &Source,
    analysis: &Analysis,
    options: &PipelineOptions,
    threadgroup_bytes: u64,
) -> Result<Vec<Occupancy>> {
    let target = level.map_or_else(elinvar_native::Target::from_env, elinvar_native::Target::of)?;
    let caches = if level.is_none() { caches() } else { None };
    // Threads that exchange values are in vectors of a whole simdgroup.
    let code = analysis.signature().code.unwrap_or_default();
    let lanes = if code.simdgroup { 32 } else { target.lanes() };
    // Static threadgroup memory is among the live bytes of a kernel with grid barriers.
    let threadgroup_bytes = match code.grid_barriers {
        0 => threadgroup_bytes,
        _ => threadgroup_bytes.saturating_sub(code.threadgroup_memory),
    };
    let compiler = elinvar_native::Compiler::new(user_cache(), source, target)?;
    let most = max_threads(analysis.signature());
    let sizes = [1, 2, 4, 8, 16].into_iter().chain([32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]);
    let sizes = sizes.filter(|threads| *threads <= most);
    let of = |threads: u32| {
        let form =
            Form { group: Some(Dim3::new(threads, 1, 1)), stoppable: false, objects: SizeBound::DEFAULT };
        let live = compiler.live_bytes(&analysis.kernel, options, form)?;
        Ok(cpu_occupancy(threads, lanes, live + threadgroup_bytes, caches))
    };
    sizes.map(of).collect()
}

/// The caches of the first processor, as Linux tells them.
fn caches() -> Option<CoreCaches> {
    let (mut l1, mut l2) = (None, None);
    for index in 0..8 {
        let read = |file: &str| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}");
            std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
        };
        let size = || read("size")?.strip_suffix('K')?.parse::<u64>().ok().map(|kib| kib << 10);
        match (read("level").as_deref(), read("type").as_deref()) {
            (Some("1"), Some("Data" | "Unified")) => l1 = size(),
            (Some("2"), Some("Data" | "Unified")) => l2 = size(),
            _ => {}
        }
    }
    Some(CoreCaches { l1: l1?, l2: l2? })
}

/// NVIDIA's assembler: that of `ELINVAR_PTXAS`, or the first on the path. An empty value turns it off.
fn ptxas() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(PTXAS) {
        return Some(PathBuf::from(named)).filter(|path| path.is_file());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join("ptxas")).find(|file| file.is_file())
}

/// The registers that the assembler allocates for a thread of a kernel.
fn assembled(path: &PathBuf, text: &str, target: &str) -> Result<u32> {
    let failed = |why: String| Failure::Runtime(Error::Environment(format!("{}: {why}", path.display())));
    let folder = tempfile::tempdir().map_err(|error| failed(error.to_string()))?;
    let file = folder.path().join("kernel.ptx");
    std::fs::write(&file, text).map_err(|error| failed(error.to_string()))?;
    let mut command = Command::new(path);
    command.arg(format!("-arch={target}")).arg("-v").arg("-o").arg(folder.path().join("kernel.cubin"));
    let output =
        command.arg(&file).stdin(Stdio::null()).output().map_err(|error| failed(error.to_string()))?;
    let said =
        String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
    registers(&said).filter(|_| output.status.success()).ok_or_else(|| failed(said))
}

/// The largest number in `Used N registers`, of the assembler's report.
fn registers(report: &str) -> Option<u32> {
    let used =
        report.split("Used ").skip(1).filter_map(|rest| rest.split_once(" registers")?.0.trim().parse().ok());
    used.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_from_the_report() {
        let report = "ptxas info    : Compiling entry function 'elinvar_k' for 'sm_90'\n\
                      ptxas info    : Used 37 registers, used 1 barriers, 4224 bytes smem\n";
        assert_eq!(registers(report), Some(37));
        assert_eq!(registers("ptxas fatal   : unknown\n"), None);
    }
}
