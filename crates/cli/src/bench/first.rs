//! The first launch of a kernel, after [`Kernel::prepare`](elinvar::Kernel::prepare) and without, against the hundredth: medians over
//! processes, since a process has one first launch. Launches of another kernel precede it, so that the data is in the caches, workers are
//! awake, and the clock is that of wide vectors.

use std::process::Command;
use std::time::Instant;

use elinvar::{DeviceKind, Grid, Kernel, Result as Outcome, Source};

use super::{Context, Measured, compare};
use crate::failure::{Failure, Result};
use crate::report::median;

/// Set in the processes that are measured: whether the kernel is prepared.
const CHILD: &str = "ELINVAR_BENCH_FIRST_LAUNCH";
const NAME: &str = "launch_first_prepared";
const PROCESSES: usize = 20;
const N: usize = 1 << 20;
const GROUP: u32 = 256;
const SOURCE: &str = "
kernel void sum(device const float* a, device const float* b, device float* out, uint i [[thread_position_in_grid]]) { out[i] = a[i] + b[i]; }
kernel void difference(device const float* a, device const float* b, device float* out, uint i [[thread_position_in_grid]]) { out[i] = a[i] - b[i]; }
";

pub(super) fn prepared(context: &Context) -> Result<Measured> {
    prepared_in(context, PROCESSES)
}

/// The medians over this many processes.
pub(super) fn prepared_in(context: &Context, processes: usize) -> Result<Measured> {
    if let Some(prepared) = std::env::var_os(CHILD) {
        let [first, hundredth] = launches(context, prepared == "1")?;
        println!("{CHILD} {first} {hundredth}");
        std::process::exit(0);
    }
    let mut times = [(); 3].map(|()| Vec::new());
    for _ in 0..processes {
        let [first, hundredth] = child(context, "1")?;
        let [unprepared, _] = child(context, "0")?;
        for (times, time) in times.iter_mut().zip([first, hundredth, unprepared]) {
            times.push(time);
        }
    }
    let [median_ns, hundredth, unprepared] = times.map(median);
    let size = format!("{N} floats, the kernel's first in a process; medians of {processes} processes");
    let baselines = vec![("hundredth", hundredth), ("unprepared", unprepared)];
    Ok(Measured { size, median_ns, baselines, ..Measured::default() })
}

fn child(context: &Context, prepared: &str) -> Result<[u64; 2]> {
    let failed = |why: String| Failure::Machine(format!("the process of a first launch: {why}"));
    let mut command = Command::new(std::env::current_exe().map_err(|error| failed(error.to_string()))?);
    command.args(["bench", NAME, "--device", context.device.kind().name()]).env(CHILD, prepared);
    if context.device.kind() == DeviceKind::Cpu {
        command.args(["--threads", &context.threads.to_string()]);
    }
    let output = command.output().map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix(CHILD));
    let times: Vec<u64> =
        line.unwrap_or_default().split_whitespace().filter_map(|time| time.parse().ok()).collect();
    times.try_into().map_err(|_| failed(String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Times of the first launch and of the hundredth, from the launch to the end of the wait.
#[allow(unsafe_code)] // launches
fn launches(context: &Context, prepared: bool) -> Result<[u64; 2]> {
    let device = &context.device;
    let library = device.compile(Source::named("first.metal", SOURCE))?;
    let (kernel, other) = (library.kernel("sum")?, library.kernel("difference")?);
    let (a, b) = (device.buffer_with_data(&vec![1.0f32; N])?, device.buffer_with_data(&vec![2.0f32; N])?);
    let mut out = device.buffer_with_data(&vec![0.0f32; N])?;
    let stream = device.stream()?;
    if prepared {
        kernel.prepare(GROUP)?;
    }
    let mut once = |kernel: &Kernel| -> Outcome<u64> {
        let start = Instant::now();
        let grid = Grid::threads(N).group(GROUP);
        // SAFETY: each buffer has `N` elements, one for each thread.
        unsafe { kernel.launch(&stream, grid, (&a, &b, &mut out)) }?.wait()?;
        Ok(start.elapsed().as_nanos() as u64)
    };
    for _ in 0..30 {
        once(&other)?;
    }
    let times = (0..109).map(|_| once(&kernel)).collect::<Outcome<Vec<u64>>>()?;
    compare("sum", &out.to_vec()?, &vec![3.0; N])?;
    // The hundredth with its neighbors, as one launch may be interrupted.
    Ok([times[0], median(times[90..].to_vec())])
}
