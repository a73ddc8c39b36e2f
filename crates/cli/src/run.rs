//! `elinvar run`: launches one kernel with arguments from files, fills and numbers; prints or writes its results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use elinvar::{
    Bundle, CheckedKernel, Completion, Constants, Consumption, Device, DeviceKind, Dim3, Error, Grid, Kernel,
    KernelOptions, Library, MathMode, ProfileLine, Signature, Stream, TraceDetail,
};
use elinvar_driver::similar_names;
use elinvar_telemetry::{chrome, perfetto, report_of};
use serde::Serialize;

use crate::bench::energy;
use crate::binding::{Bound, Given};
use crate::constant;
use crate::failure::{Failure, Result};
use crate::npy;
use crate::output;
use crate::programs::roofs;
use crate::report::{energy_json, energy_text, median, print_json, say, time_text};
use crate::select::Selection;
use crate::source::{Math, SourceOptions, TierName};
use crate::summary::Summary;
use crate::value::{Value, parse_size, split_pair};

const AFTER_HELP: &str = "\
VALUE is one of
  @a.npy                 array from a NumPy file
  f32:1024:ramp          new array, type:shape:fill, with a shape such as 64x64 or 8x8x8.
                         Types: bool i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32.
                         Fills: zeros, ones, ramp (0, 1, 2, …), a number, random[:SEED] (floats
                         in [0, 1), integers in the whole range of the type).
  3.14f32  64u32  true   scalar with its type; 1,2,3u32 for a vector
  threadgroup:1024       threadgroup memory, in bytes
  functions:f,g          functions of a visible_function_table
  unbound                no memory; a reference is to zeros. A pointer that is not given is unbound, too. The kernel runs
                         checked: accesses by the null pointer are errors
NAME is the parameter's name or its index in the kernel's parameter list, from 0.
NumPy has no bfloat16 type, so bfloat arrays are read from and written to uint16 files. For a
struct, any array with enough bytes is passed without conversion.

Examples:
  elinvar run examples/vector_add.metal --kernel vector_add --grid 1024 --group 256 \\
      --arg a=f32:1024:ramp --arg b=f32:1024:ones --arg out=f32:1024:zeros --arg n=1024u32 --out out
  elinvar run examples/matmul.metal --kernel matmul --grid 67,61 --arg a=@a.npy --arg b=@b.npy \\
      --arg c=f32:61x67:zeros --arg m=61u32 --arg n=67u32 --arg k=59u32 --out c=c.npy
  elinvar run k.metal --kernel k --grid 64 --arg out=f32:64:zeros --constant use_bias=true --constant 3=0.5f32
  elinvar run examples/reduce.metal --kernel reduce --grid 4096 --group 256 --arg in=f32:4096:ones \\
      --arg total=f32:1:zeros --arg n=4096u32 --arg part=threadgroup:1024 --out total --json";

/// Run a kernel on arrays and scalars
#[derive(Args)]
#[command(after_help = AFTER_HELP)]
pub struct Run {
    /// Metal source file, compiled Metal library (`.metallib`, Apple GPUs only), or bundle from `elinvar pack`. A bundle contains native code: run
    /// only bundles that you trust
    file: PathBuf,
    /// Name of the kernel
    #[arg(long, value_name = "K")]
    kernel: String,
    /// Size of the grid, in threads
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size)]
    grid: Dim3,
    /// Size of a threadgroup, in threads; chosen for the grid by default
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = parse_size)]
    group: Option<Dim3>,
    /// An argument of the kernel
    #[arg(long = "arg", value_name = "NAME=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    args: Vec<(String, String)>,
    /// Print an array after the run, or write it to a file with the type and shape of its --arg
    #[arg(long, value_name = "NAME[=F.npy]")]
    out: Vec<String>,
    /// cpu, cuda[:N] or metal; the fastest available device by default
    #[arg(long)]
    device: Option<Selection>,
    /// Number of runs on the same arrays; the median device time is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Value of a function constant, such as `7u32` or `true`; may be repeated
    #[arg(long = "constant", value_name = "NAME|INDEX=VALUE", value_parser = split_pair, allow_hyphen_values = true)]
    constants: Vec<(String, String)>,
    #[command(flatten)]
    options: SourceOptions,
    /// Floating-point math mode: fast, or for a bundle that in which the kernel was packed
    #[arg(long, value_enum)]
    math: Option<Math>,
    /// When the kernel is optimized: `adaptive` starts kernels that are costly to optimize unoptimized
    #[arg(long, value_enum, default_value = "adaptive")]
    tier: TierName,
    /// Check the bounds of each memory access; the first access out of bounds is reported with argument, element,
    /// thread and line
    #[arg(long)]
    checked: bool,
    /// Memory after each array, for kernels that access elements past the end
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    padding: u64,
    /// Measure the energy of a run: repeat it, on the same arrays, until the error is below 5 %. Results are those before
    #[arg(long)]
    energy: bool,
    /// Run the kernel in a separate process, so that a crash is reported as an error; on the CPU unless --device is given
    #[arg(long)]
    isolated: bool,
    /// Time limit of a run
    #[arg(long, value_name = "SECONDS", value_parser = parse_seconds)]
    timeout: Option<Duration>,
    /// Write a trace of the launches: JSON for Chrome's trace viewer if the name ends in `.json`, else for https://ui.perfetto.dev.
    /// It is written also if the kernel fails
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Write a report of the launches, an HTML file that works offline. It is written also if the kernel fails
    #[arg(long, value_name = "FILE.html")]
    profile: Option<PathBuf>,
    /// Print JSON; infinities and NaN become null
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    kernel: &'a str,
    device: String,
    grid: [u32; 3],
    /// Given or chosen; `None` when the grid is empty.
    group: Option<[u32; 3]>,
    median_ns: u64,
    outputs: Vec<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy: Option<serde_json::Value>,
}

/// Events of a trace for each run: those of a launch, and of decisions.
const TRACED: usize = 32;

/// An output: argument position, name, and file.
type Output = (usize, String, Option<PathBuf>);

impl Run {
    /// The file's kernels, compiled; of a bundle those of the source that has the wanted one.
    fn library(&self, device: &Device) -> Result<Library> {
        if !Bundle::is_at(&self.file) {
            let source = self
                .options
                .load_any(&self.file, self.math.map_or_else(MathMode::default, MathMode::from))?;
            return Ok(device.compile(&source)?);
        }
        // SAFETY: the file is named on the command line, whose help says what that means.
        #[allow(unsafe_code)]
        let bundle = unsafe { Bundle::open(&self.file) }?;
        let mut known = Vec::new();
        for name in bundle.sources() {
            let source = match self.math {
                Some(math) => bundle.source_with(name, math.into()),
                None => bundle.source(name),
            };
            let library = device.compile(&source?)?;
            if library.kernels().iter().any(|kernel| kernel.name == self.kernel) {
                return Ok(library);
            }
            known.extend(library.kernels().iter().map(|kernel| kernel.name.clone()));
        }
        let (file, kernel) = (self.file.display(), &self.kernel);
        Err(Failure::input(format!(
            "{file}: no kernel `{kernel}` in the bundle; {}",
            similar_names("kernels", kernel, known.iter().map(String::as_str))
        )))
    }

    pub fn run(self) -> Result<()> {
        let given = self.values()?;
        let constants = self.constants()?;
        let device =
            if self.isolated { Selection::isolated(self.device)? } else { Selection::device(self.device)? };
        device.pool().set_padding(self.padding);
        // A device whose kernels cannot log rejects those that do.
        let _log = device.on_log(|line| eprintln!("{line}")).ok();
        let library = self.library(&device)?;
        for warning in library.warnings() {
            eprintln!("{warning}");
        }
        let options = KernelOptions::new().constants(&constants).tier(self.tier.into());
        let mut kernel = Runnable::of(&library, &self.kernel, options.clone(), self.checked)?;
        let bound = Bound::new(&device, kernel.signature(), given)?;
        if !self.checked && !bound.unbound.is_empty() {
            let unbound = bound.unbound.join(", ");
            eprintln!(
                "warning: kernel `{}` runs checked, because arguments are unbound: {unbound}",
                self.kernel
            );
            kernel = Runnable::of(&library, &self.kernel, options, true)?;
        }
        let outputs = self.outputs(&kernel, &bound)?;
        if self.trace.is_some() || self.profile.is_some() {
            device.trace().start_with(TRACED * self.repeat as usize, TraceDetail::Arguments);
        }
        let times = self.dispatch(&device, &kernel, &bound);
        if let Some(file) = &self.trace {
            write_trace(&device, file)?;
        }
        if let Some(file) = &self.profile {
            device.trace().stop();
            let mut lines = ProfileLine::of(0, &device.trace().timeline(), &device.metrics());
            roofs::add(&mut lines);
            output::replace_with(file, report_of(&lines))?;
        }
        let lost = device.lost_log_lines();
        if lost > 0 {
            eprintln!("{lost} log lines were lost");
        }
        let times = times?;
        let mut summaries = Vec::new();
        for (position, name, file) in &outputs {
            let array = bound.content(*position)?;
            if let Some(file) = file {
                npy::write(file, &array)?;
            }
            summaries.push(Summary::of(name, &array));
        }
        let energy = self.energy.then(|| self.energy(&device, &kernel, &bound)).transpose()?;
        let report = Report {
            kernel: &self.kernel,
            device: device_name(&device),
            grid: self.grid.to_array(),
            group: kernel.group(self.grid())?.map(Dim3::to_array),
            median_ns: median(times),
            outputs: summaries,
            energy: energy.as_ref().map(|energy| energy_json(energy.as_ref().map_err(String::as_str))),
        };
        if self.json {
            return print_json(&report);
        }
        self.print(&report, &outputs)?;
        match energy {
            Some(Ok(used)) => say(format_args!("energy {} a run", energy_text(&used))),
            Some(Err(why)) => say(format_args!("energy unsupported: {why}")),
            None => Ok(()),
        }
    }

    /// The energy of a run, or why it is not measured.
    fn energy(
        &self,
        device: &Device,
        kernel: &Runnable,
        bound: &Bound,
    ) -> Result<std::result::Result<Consumption, String>> {
        let stream = device.stream()?;
        let mut failed = None;
        let run = || match kernel.launch(&stream, self.grid(), bound).and_then(|done| self.wait(&done)) {
            Ok(_) => Ok(()),
            Err(failure) => {
                failed = Some(failure);
                Err(Error::Cancelled)
            }
        };
        let used = device.energy_each(energy::ERROR, energy::LONGEST, run);
        match (used, failed) {
            (_, Some(failure)) => Err(failure),
            (Ok(used), None) => Ok(Ok(used)),
            (Err(Error::Unsupported(why) | Error::Timeout(why)), None) => Ok(Err(why)),
            (Err(error), None) => Err(error.into()),
        }
    }

    fn constants(&self) -> Result<Constants> {
        let list = constant::parse(&self.constants)?;
        Ok(list.into_iter().fold(Constants::new(), |all, one| all.set_bytes(one.key, one.scalar, one.bytes)))
    }

    fn grid(&self) -> Grid {
        // A kernel with grid barriers has no other launches.
        let grid = Grid::threads(self.grid).cooperative();
        match self.group {
            Some(group) => grid.group(group),
            None => grid,
        }
    }

    fn values(&self) -> Result<Vec<Given>> {
        let parse = |(name, text): &(String, String)| {
            let value = Value::parse(text).map_err(|failure| failure.at(&format!("--arg {name}={text}")))?;
            Ok((name.clone(), value))
        };
        self.args.iter().map(parse).collect()
    }

    fn outputs(&self, kernel: &Runnable, bound: &Bound) -> Result<Vec<Output>> {
        let output = |text: &String| {
            let (name, file) = match text.split_once('=') {
                Some((_, "")) => {
                    return Err(Failure::usage(format!("--out {text}: a file name must follow `=`")));
                }
                Some((name, file)) => (name, Some(file.into())),
                None => (text.as_str(), None),
            };
            Ok((bound.output(kernel.signature(), name)?, name.to_owned(), file))
        };
        let outputs = self.out.iter().map(output).collect::<Result<Vec<Output>>>()?;
        let files = outputs.iter().filter_map(|(_, _, file)| file.as_deref());
        match output::twice(files.chain(self.trace.as_deref()).chain(self.profile.as_deref())) {
            Some((one, other)) => {
                let (one, other) = (one.display(), other.display());
                Err(Failure::usage(format!(
                    "--out, --trace, --profile: `{one}` and `{other}` are the same file"
                )))
            }
            None => Ok(outputs),
        }
    }

    /// Run the kernel. Returns the device's time of each run.
    fn dispatch(&self, device: &Device, kernel: &Runnable, bound: &Bound) -> Result<Vec<u64>> {
        let stream = device.stream()?;
        let mut times = Vec::new();
        for _ in 0..self.repeat {
            let done = kernel.launch(&stream, self.grid(), bound)?;
            times.push(self.wait(&done)?);
        }
        Ok(times)
    }

    fn wait(&self, done: &Completion) -> Result<u64> {
        let timing = match self.timeout {
            None => done.wait()?,
            Some(timeout) => done.wait_timeout(timeout)?.ok_or_else(|| {
                let (kernel, seconds) = (&self.kernel, timeout.as_secs_f64());
                Error::Timeout(format!("kernel `{kernel}` timed out after {seconds} s"))
            })?,
        };
        Ok(timing.end_ns.saturating_sub(timing.start_ns))
    }

    fn print(&self, report: &Report, outputs: &[Output]) -> Result<()> {
        let group = match report.group {
            Some(group) if self.group.is_none() => format!("{} (chosen)", Dim3::from(group)),
            Some(group) => Dim3::from(group).to_string(),
            None => "none, there are no threads".to_owned(),
        };
        say(format_args!("{} on {}: grid {}, group {group}", report.kernel, report.device, self.grid))?;
        let runs = if self.repeat > 1 { format!(", median of {}", self.repeat) } else { String::new() };
        say(format_args!("{}{runs}", time_text(report.median_ns)))?;
        if let Some(file) = &self.trace {
            say(format_args!("trace written to {}", file.display()))?;
        }
        if let Some(file) = &self.profile {
            say(format_args!("report written to {}", file.display()))?;
        }
        for (summary, (_, name, file)) in report.outputs.iter().zip(outputs) {
            match file {
                Some(file) => say(format_args!("{name} written to {}", file.display()))?,
                None => say(format_args!("{summary}"))?,
            }
        }
        Ok(())
    }
}

/// Writes the trace of a device, in the format that the file's name says.
fn write_trace(device: &Device, file: &Path) -> Result<()> {
    device.trace().stop();
    let timelines = [device.trace().timeline()];
    let content = match file.extension() {
        Some(json) if json.eq_ignore_ascii_case("json") => chrome::to_json(&timelines).into_bytes(),
        _ => perfetto::encode(&timelines),
    };
    output::replace_with(file, &content)
}

/// A kernel, with or without bounds checks.
enum Runnable {
    Plain(Kernel),
    Checked(CheckedKernel),
}

impl Runnable {
    fn of(library: &Library, name: &str, options: KernelOptions, checked: bool) -> Result<Self> {
        Ok(match checked {
            true => Self::Checked(library.checked_kernel_with(name, options)?),
            false => Self::Plain(library.kernel_with(name, options)?),
        })
    }

    fn signature(&self) -> &Signature {
        match self {
            Self::Plain(kernel) => kernel.signature(),
            Self::Checked(kernel) => kernel.signature(),
        }
    }

    fn group(&self, grid: Grid) -> Result<Option<Dim3>> {
        Ok(match self {
            Self::Plain(kernel) => kernel.threadgroup_size(grid)?,
            Self::Checked(kernel) => kernel.threadgroup_size(grid)?,
        })
    }

    #[allow(unsafe_code)] // runs what the user asks for
    fn launch(&self, stream: &Stream, grid: Grid, bound: &Bound) -> Result<Completion> {
        Ok(match self {
            // SAFETY: that kernel and arguments suit one another is the user's word: a kernel that leaves its
            // arrays can harm this process, which holds nothing else.
            Self::Plain(kernel) => unsafe { kernel.launch(stream, grid, &bound.args) }?,
            Self::Checked(kernel) => kernel.launch(stream, grid, &bound.args)?,
        })
    }
}

/// `cpu`, or `cuda:1` if there can be several.
fn device_name(device: &Device) -> String {
    match device.kind() {
        DeviceKind::Cpu => "cpu".into(),
        kind => format!("{} ({})", kind.name(), device.name()),
    }
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}
