//! The `checks` suite: kernels with bounds checks or a deadline, compared with the same kernels without.

use std::time::Duration;

use elinvar::{Arg, Buffer, CommandBuffer, Grid, Stream};

use super::carried::compile;
use super::{Context, Measured, compare};
use crate::failure::Result;
use crate::report::median;

pub(super) const VECTOR_ADD: &str = include_str!("kernels/vector_add.metal");
pub(super) const MATMUL: &str = include_str!("kernels/matmul.metal");

/// Number of submissions, of which the median is reported.
const ROUNDS: usize = 7;
/// A deadline that is never reached.
const DEADLINE: Duration = Duration::from_secs(3600);

/// Device time per dispatch, for a submission of several dispatches that `launch` records.
fn time_launches(
    stream: &Stream,
    dispatches: usize,
    mut launch: impl FnMut(&mut CommandBuffer) -> elinvar::Result<()>,
) -> Result<u64> {
    let mut times = Vec::new();
    for round in 0..=ROUNDS {
        let mut commands = stream.command_buffer();
        for _ in 0..dispatches {
            launch(&mut commands)?;
        }
        let timing = commands.submit()?.wait()?;
        if round > 0 {
            times.push((timing.end_ns - timing.start_ns) / dispatches as u64); // the first one warms up
        }
    }
    Ok(median(times))
}

/// Difference between a launch and its baseline.
#[derive(Clone, Copy, PartialEq)]
enum Check {
    /// Bounds checks.
    Bounds,
    /// A deadline, for which loops check the stop flag.
    Deadline,
}

/// `vector_add` with and without bounds checks.
pub(super) fn vector_add(context: &Context) -> Result<Measured> {
    let n = 16 << 20;
    let device = &context.device;
    let a: Vec<f32> = (0..n).map(|i| (i % 1021) as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| (i % 509) as f32 * 0.5).collect();
    let (a, b) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let source = ("vector_add.metal", VECTOR_ADD);
    let sizes = (Grid::threads(n).group(256), n, 10);
    against_plain(context, Check::Bounds, source, "vector_add", sizes, |out| {
        vec![Arg::from(&a), Arg::from(&b), Arg::from(out), Arg::from(n as u32)]
    })
    .map(|measured| Measured { size: "16777216 floats, group 256".into(), ..measured })
}

/// `matmul_naive` with and without bounds checks.
pub(super) fn matmul_naive(context: &Context) -> Result<Measured> {
    matmul(context, Check::Bounds)
}

/// `matmul_naive` with and without a deadline.
pub(super) fn matmul_naive_deadline(context: &Context) -> Result<Measured> {
    matmul(context, Check::Deadline)
}

fn matmul(context: &Context, check: Check) -> Result<Measured> {
    let n = 512;
    let device = &context.device;
    let a: Vec<f32> = (0..n * n).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..n * n).map(|i| (i % 5) as f32 - 2.0).collect();
    let (a, b) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let source = ("matmul.metal", MATMUL);
    let sizes = (Grid::threads((n, n)).group((32, 8)), n * n, 4);
    against_plain(context, check, source, "matmul_naive", sizes, |out| {
        vec![Arg::from(&a), Arg::from(&b), Arg::from(out), Arg::from(n as u32)]
    })
    .map(|measured| Measured { size: "512x512x512 floats, group 32x8".into(), ..measured })
}

/// Times a kernel that writes one float per thread, with and without the check, and compares the results.
#[allow(unsafe_code)] // launches
fn against_plain(
    context: &Context,
    check: Check,
    (file, text): (&str, &str),
    name: &str,
    (grid, elements, dispatches): (Grid, usize, usize),
    args: impl Fn(&mut Buffer<f32>) -> Vec<Arg>,
) -> Result<Measured> {
    let device = &context.device;
    let stream = device.stream()?;
    let (mut with, mut without) = (device.buffer::<f32>(elements)?, device.buffer::<f32>(elements)?);
    let library = compile(device, file, text)?;
    let kernel = library.kernel(name)?;
    let list = args(&mut with);
    let ours = match check {
        Check::Bounds => {
            let checked = library.checked_kernel(name)?;
            time_launches(&stream, dispatches, |commands| {
                commands.launch_checked(&checked, grid.clone(), &list)
            })?
        }
        Check::Deadline => time_launches(&stream, dispatches, |commands| {
            commands.deadline(DEADLINE)?;
            // SAFETY: the kernel stays below `n`, the size of the buffers.
            unsafe { commands.launch(&kernel, grid.clone(), &list) }
        })?,
    };
    let list = args(&mut without);
    // SAFETY: as above.
    let plain = time_launches(&stream, dispatches, |commands| unsafe {
        commands.launch(&kernel, grid.clone(), &list)
    })?;
    compare(name, &with.to_vec()?, &without.to_vec()?)?;
    let baseline = if check == Check::Bounds { "unchecked" } else { "endless" };
    let baselines = vec![(baseline, plain)];
    Ok(Measured { size: String::new(), median_ns: ours, baselines, ..Measured::default() })
}
