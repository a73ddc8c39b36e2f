//! The `runtime` suite: what a launch and a long submission cost.

use std::time::Instant;

use elinvar::{Device, Grid, Kernel, Source, Stream};

use super::{Context, Measured};
use crate::failure::Result;
use crate::report::median;

const EMPTY: &str = "#include <metal_stdlib>\nkernel void empty() {}\n";
const ROUND_TRIPS: usize = 2000;
const BATCHES: usize = 50;
const BATCH: usize = 1000;

fn empty(device: &Device) -> Result<(Kernel, Stream)> {
    let library = device.compile(Source::named("empty.metal", EMPTY))?;
    Ok((library.kernel("empty")?, device.stream()?))
}

fn timed(count: usize, mut run: impl FnMut() -> Result<()>) -> Result<u64> {
    run()?; // builds what the first run needs
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed().as_nanos() as u64);
    }
    Ok(median(times))
}

fn measured(size: String, median_ns: u64) -> Measured {
    Measured { size, median_ns, bytes: None, flops: None, ..Measured::default() }
}

/// Launch of an empty kernel and the wait for it, by the host's clock.
#[allow(unsafe_code)] // launches
pub(super) fn empty_dispatch(context: &Context) -> Result<Measured> {
    let (kernel, stream) = empty(&context.device)?;
    let median = timed(ROUND_TRIPS, || {
        // SAFETY: the kernel touches no memory.
        unsafe { kernel.launch(&stream, Grid::threads(1).group(1), ()) }?.wait()?;
        Ok(())
    })?;
    Ok(measured(format!("1 thread, {ROUND_TRIPS} times"), median))
}

/// A batch of a thousand empty launches: recording, submission and the wait for it, as a whole.
#[allow(unsafe_code)] // launches
pub(super) fn batch_of_1000(context: &Context) -> Result<Measured> {
    let (kernel, stream) = empty(&context.device)?;
    let median = timed(BATCHES, || {
        let mut batch = stream.batch();
        for _ in 0..BATCH {
            // SAFETY: the kernel touches no memory.
            unsafe { batch.launch(&kernel, Grid::threads(1).group(1), ()) }?;
        }
        batch.submit()?.wait()?;
        Ok(())
    })?;
    Ok(measured(format!("{BATCH} launches, {BATCHES} times"), median))
}
