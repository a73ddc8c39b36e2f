//! The first launch of a process, after [`Kernel::prepare`](elinvar::Kernel::prepare) and without, against the hundredth: medians over
//! processes, since a process has one first launch.

use std::process::Command;
use std::time::Instant;

use elinvar::{DeviceKind, Grid, Result as Outcome};

use super::carried::compile;
use super::checks::VECTOR_ADD;
use super::{Context, Measured, compare};
use crate::failure::{Failure, Result};
use crate::report::median;

/// Set in the processes that are measured: whether the kernel is prepared.
const CHILD: &str = "ELINVAR_BENCH_FIRST_LAUNCH";
const NAME: &str = "launch_first_prepared";
const PROCESSES: usize = 20;
/// More than the caches hold: the first launch on smaller data waits for the memory, and for the clock of wide vectors.
const N: usize = 1 << 23;
const GROUP: u32 = 256;

pub(super) fn prepared(context: &Context) -> Result<Measured> {
    if let Some(prepared) = std::env::var_os(CHILD) {
        let [first, hundredth] = launches(context, prepared == "1")?;
        println!("{CHILD} {first} {hundredth}");
        std::process::exit(0);
    }
    let mut times = [(); 3].map(|()| Vec::new());
    for _ in 0..PROCESSES {
        let [first, hundredth] = child(context, "1")?;
        let [unprepared, _] = child(context, "0")?;
        for (times, time) in times.iter_mut().zip([first, hundredth, unprepared]) {
            times.push(time);
        }
    }
    let [median_ns, hundredth, unprepared] = times.map(median);
    let size = format!("{N} floats, the first of a process; medians of {PROCESSES} processes");
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
    let kernel = compile(device, "vector_add.metal", VECTOR_ADD)?.kernel("vector_add")?;
    let (a, b) = (device.buffer_with_data(&vec![1.0f32; N])?, device.buffer_with_data(&vec![2.0f32; N])?);
    let mut out = device.buffer_with_data(&vec![0.0f32; N])?;
    let stream = device.stream()?;
    if prepared {
        kernel.prepare(GROUP)?;
    }
    let mut once = || -> Outcome<u64> {
        let start = Instant::now();
        let grid = Grid::threads(N).group(GROUP);
        // SAFETY: each buffer has `N` elements, the size passed to the kernel.
        unsafe { kernel.launch(&stream, grid, (&a, &b, &mut out, N as u32)) }?.wait()?;
        Ok(start.elapsed().as_nanos() as u64)
    };
    let times = (0..109).map(|_| once()).collect::<Outcome<Vec<u64>>>()?;
    compare("vector_add", &out.to_vec()?, &vec![3.0; N])?;
    // The hundredth with its neighbors, as one launch may be interrupted.
    Ok([times[0], median(times[90..].to_vec())])
}
