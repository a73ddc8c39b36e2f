//! The roofs of a device: the highest rates of arithmetic and of memory that two kernels reach.
//!
//! Arithmetic: fused multiply-adds of 16 independent vectors of four floats in each thread, enough to hide their latency. Memory: a copy of four
//! floats in each thread, larger than the caches. Each is repeated, and the shortest time on the device's clock counts.

use std::collections::{BTreeMap, BTreeSet};

use elinvar::{
    Buffer, Device, Grid, HostAccess, Kernel, ProfileEvent, ProfileLine, ProfileRoofs, Result, Source,
};

const SOURCE: &str = "
#include <metal_stdlib>
using namespace metal;

kernel void peak_arithmetic(device float4* out, constant float& factor, constant uint& rounds,
                            uint i [[thread_position_in_grid]])
{
    float4 sums[16];
    for (uint at = 0; at < 16; at++) sums[at] = float4(i + at);
    for (uint round = 0; round < rounds; round++)
        for (uint at = 0; at < 16; at++) sums[at] = fma(sums[at], float4(factor), float4(factor));
    float4 sum = 0;
    for (uint at = 0; at < 16; at++) sum += sums[at];
    out[i] = sum;
}

kernel void peak_copy(device const float4* from, device float4* to, uint i [[thread_position_in_grid]])
{
    to[i] = from[i];
}";

/// Operations of a thread in each round: 16 vectors of four, two operations each.
const FLOPS: f64 = 16.0 * 4.0 * 2.0;
/// Threads of the arithmetic, for each compute unit of a GPU.
const THREADS_PER_UNIT: usize = 2048;
/// Bytes of each buffer of the copy.
const BYTES: usize = 256 << 20;
const REPEATS: u32 = 7;

/// Adds the roofs of the devices whose kernels' work is known, if they are devices of this machine. What cannot be measured is a warning.
pub fn add(lines: &mut Vec<ProfileLine>) {
    let has_work = |event: &ProfileEvent| match event {
        ProfileEvent::Submission(submission) => {
            submission.commands.iter().any(|command| command.work.is_some_and(|work| work.flops > 0.0))
        }
        _ => false,
    };
    let working: BTreeSet<(u32, usize)> =
        lines.iter().filter(|line| has_work(&line.event)).map(|line| (line.process, line.device)).collect();
    let mut abouts = BTreeMap::new();
    for line in lines.iter().filter(|line| working.contains(&(line.process, line.device))) {
        if let ProfileEvent::About { name, kind, .. } = &line.event {
            abouts.insert((line.process, line.device), (kind.clone(), name.clone()));
        }
    }
    let mut measured: BTreeMap<(String, String), Option<ProfileRoofs>> = BTreeMap::new();
    for ((process, device), (kind, name)) in abouts {
        let roofs = *measured.entry((kind, name)).or_insert_with_key(|(kind, name)| of(kind, name));
        lines.extend(roofs.map(|roofs| ProfileLine { process, device, event: ProfileEvent::Roofs(roofs) }));
    }
}

/// The roofs of the device of this machine with this kind and name.
fn of(kind: &str, name: &str) -> Option<ProfileRoofs> {
    let device = Device::all()
        .ok()?
        .into_iter()
        .find(|device| device.kind().name() == kind && device.name() == name)?;
    let roofs = measure(&device);
    roofs
        .inspect_err(|error| eprintln!("warning: the roofs of device `{name}` are not measured: {error}"))
        .ok()
}

/// Measures the roofs of a device, which takes some tenths of a second.
///
/// # Errors
/// Those of the device.
pub fn measure(device: &Device) -> Result<ProfileRoofs> {
    let library = device.compile(Source::named("roofs.metal", SOURCE))?;
    let stream = device.stream()?;
    let units = device.caps().limits.compute_units as usize;
    let threads = units.max(1) * THREADS_PER_UNIT;
    let mut out: Buffer<[f32; 4]> = device.buffer_for(threads, HostAccess::Never)?;
    let kernel = library.kernel("peak_arithmetic")?;
    // Few rounds tell how many take some milliseconds.
    let mut rounds = 64_u32;
    let seconds = loop {
        let seconds = shortest(&kernel, threads, |kernel, grid| {
            // SAFETY: each thread writes its own element, of as many as there are threads.
            #[allow(unsafe_code)]
            unsafe {
                kernel.launch(&stream, grid, (&mut out, 0.5_f32, rounds))
            }
        })?;
        if seconds > 2e-3 || rounds >= 1 << 20 {
            break seconds;
        }
        rounds *= 4;
    };
    let flops = FLOPS * f64::from(rounds) * threads as f64 / seconds;
    let elements = BYTES / 16;
    let mut from: Buffer<[f32; 4]> = device.buffer_for(elements, HostAccess::Never)?;
    let mut to: Buffer<[f32; 4]> = device.buffer_for(elements, HostAccess::Never)?;
    // Memory that was never written may be one page of zeros.
    stream.fill(&mut from, [1.0; 4])?.wait()?;
    let kernel = library.kernel("peak_copy")?;
    let seconds = shortest(&kernel, elements, |kernel, grid| {
        // SAFETY: each thread reads and writes its own element, of as many as there are threads.
        #[allow(unsafe_code)]
        unsafe {
            kernel.launch(&stream, grid, (&from, &mut to))
        }
    })?;
    Ok(ProfileRoofs { flops, bandwidth: 2.0 * BYTES as f64 / seconds })
}

/// Seconds of the shortest of some launches on the device's clock.
fn shortest(
    kernel: &Kernel,
    threads: usize,
    mut launch: impl FnMut(&Kernel, Grid) -> Result<elinvar::Completion>,
) -> Result<f64> {
    let mut shortest = f64::INFINITY;
    for _ in 0..=REPEATS {
        let timing = launch(kernel, Grid::threads(threads).group(256))?.wait()?;
        shortest = shortest.min(timing.end_ns.saturating_sub(timing.start_ns).max(1) as f64 / 1e9);
    }
    Ok(shortest)
}
