//! In-place update of a mapped buffer: host and kernel access the same memory.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Result, Source};

/// Runs the kernel twice and compares every element; returns the number of elements.
pub fn run(device: &Device) -> Result<usize> {
    let n = 4097;
    let library =
        device.compile(Source::named("double_in_place.metal", include_str!("double_in_place.metal")))?;
    let kernel = library.kernel("double_in_place")?;
    let mut data = device.buffer::<f32>(n)?;
    for (i, value) in data.map_mut()?.iter_mut().enumerate() {
        *value = i as f32;
    }
    let stream = device.stream()?;

    for _ in 0..2 {
        // SAFETY: thread i reads and writes element i, and there are n of both.
        unsafe { kernel.launch(&stream, Grid::threads(n), (&mut data,)) }?;
    }

    // `map` waits for both launches.
    let values = data.map()?;
    for (i, value) in values.iter().enumerate() {
        assert_eq!(*value, 4.0 * i as f32, "element {i}");
    }
    Ok(values.len())
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("double_in_place on {}: {} values are right", device.name(), run(&device)?);
    Ok(())
}
