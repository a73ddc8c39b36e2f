//! Each thread stores its position in the grid, which shows that every thread has run.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Result, Source};

/// Runs the kernel and compares every element; returns the number of elements.
pub fn run(device: &Device) -> Result<usize> {
    let n = 1_000_003;
    let library = device.compile(Source::named("thread_ids.metal", include_str!("thread_ids.metal")))?;
    let kernel = library.kernel("thread_ids")?;
    let mut out = device.buffer::<u32>(n)?;
    let stream = device.stream()?;

    // SAFETY: thread i writes element i, and there are n of both.
    let done = unsafe { kernel.launch(&stream, Grid::threads(n), (&mut out,)) }?;
    done.wait()?;

    let ids = out.to_vec()?;
    for (i, id) in ids.iter().enumerate() {
        assert_eq!(*id, i as u32, "element {i}");
    }
    Ok(ids.len())
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("thread_ids on {}: {} ids are right", device.name(), run(&device)?);
    Ok(())
}
