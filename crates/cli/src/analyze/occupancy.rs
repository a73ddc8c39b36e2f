//! `--occupancy`: the threadgroups that a core of an NVIDIA GPU holds, by size, as a table and a plot.
//!
//! Registers are those that NVIDIA's assembler allocates, if it is installed; otherwise given, or estimated.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use elinvar::{Error, Source};
use elinvar_analysis::{Analysis, Multiprocessor, Occupancy, occupancies};
use elinvar_code::{max_threads, user_cache};
use elinvar_driver::{Constant, PipelineOptions, Tier};
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
    /// Usage for a target that is not an NVIDIA GPU; those of the compiler, if the assembler is asked.
    pub fn new(
        request: Request,
        source: &Source,
        analysis: &Analysis,
        constants: &[Constant],
    ) -> Result<Self> {
        let Target::Cuda(target) = request.target else {
            let why = "occupancy is known for NVIDIA GPUs, as `cuda:sm_90`";
            return Err(Failure::usage(format!("--occupancy {}: {why}", request.target)));
        };
        let capability = target.capability();
        let core = Multiprocessor::of(capability / 10, capability % 10);
        let core = core
            .ok_or_else(|| Failure::usage(format!("--occupancy {}: no limits are known", request.target)))?;
        let options =
            PipelineOptions { constants: constants.to_vec(), checked: false, tier: Tier::Optimized };
        let (registers, registers_from) = match (request.registers, ptxas()) {
            (Some(registers), _) => (registers, From::Given),
            (None, Some(path)) => {
                let compiler = Compiler::new(user_cache(), source, target)?;
                let ptx = compiler.kernel(&analysis.kernel, &options, Constants::Values)?;
                (assembled(&path, &ptx.text, &target.to_string())?, From::Ptxas)
            }
            (None, None) => {
                let registers = u32::try_from(analysis.live_registers).unwrap_or(u32::MAX);
                (registers.clamp(1, 255), From::Estimate)
            }
        };
        let threadgroup_bytes = analysis.threadgroup_bytes + request.dynamic;
        let mut sizes = occupancies(&core, registers, threadgroup_bytes);
        sizes.retain(|size| size.threads <= max_threads(analysis.signature()));
        Ok(Self { target: request.target.to_string(), registers, registers_from, threadgroup_bytes, sizes })
    }

    pub fn print(&self) -> Result<()> {
        let from = match self.registers_from {
            From::Given => "given",
            From::Ptxas => "by ptxas",
            From::Estimate => "an estimate",
        };
        let Self { target, registers, threadgroup_bytes, .. } = self;
        say(format_args!(
            "  occupancy on {target}: {registers} registers ({from}), {threadgroup_bytes} bytes of threadgroup memory"
        ))?;
        let rows: Vec<Vec<String>> = self
            .sizes
            .iter()
            .filter(|size| size.threads.is_power_of_two())
            .map(|size| {
                vec![
                    format!("    {}", size.threads),
                    size.groups.to_string(),
                    size.simdgroups.to_string(),
                    format!("{:.0} %", size.share * 100.0),
                    super::text::word(&size.limiter),
                ]
            })
            .collect();
        print_table(&["    threads", "threadgroups", "simdgroups", "occupancy", "limit"], &rows)
    }

    /// An SVG image: occupancy over threadgroup size, a bar for each number of simdgroups.
    pub fn plot(&self, kernel: &str) -> String {
        const WIDTH: f64 = 640.0;
        const HEIGHT: f64 = 240.0;
        const LEFT: f64 = 48.0;
        const TOP: f64 = 32.0;
        let step = WIDTH / 32.0;
        let (right, bottom) = (LEFT + WIDTH, TOP + HEIGHT);
        let title = super::escaped(&format!("{kernel} on {}: {} registers", self.target, self.registers));
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
            let x = LEFT + f64::from(size.threads / 32 - 1) * step;
            let height = HEIGHT * size.share;
            let color = match size.limiter {
                elinvar_analysis::Limiter::Warps => "#4c78a8",
                elinvar_analysis::Limiter::Blocks => "#72b7b2",
                elinvar_analysis::Limiter::Registers => "#f58518",
                elinvar_analysis::Limiter::Memory => "#e45756",
            };
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
        let legend =
            [("warps", "#4c78a8"), ("blocks", "#72b7b2"), ("registers", "#f58518"), ("memory", "#e45756")];
        for (index, (name, color)) in legend.iter().enumerate() {
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
