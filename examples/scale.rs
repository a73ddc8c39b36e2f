//! Scales a vector by a scalar argument, passed by value.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Result, Source};

/// Runs the kernel and compares every element; returns the number of elements.
pub fn run(device: &Device) -> Result<usize> {
    let xs: Vec<f32> = (0..2048).map(|i| i as f32 - 1024.0).collect();
    let factor = 2.5_f32;

    let library = device.compile(Source::named("scale.metal", include_str!("scale.metal")))?;
    let kernel = library.kernel("scale")?;
    let input = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<f32>(xs.len())?;
    let stream = device.stream()?;

    // SAFETY: thread i reads and writes element i, and there are as many threads as elements.
    let done = unsafe { kernel.launch(&stream, Grid::threads(xs.len()), (&input, &mut out, factor)) }?;
    done.wait()?;

    let scaled = out.to_vec()?;
    for (i, value) in scaled.iter().enumerate() {
        assert_eq!(*value, xs[i] * factor, "element {i}");
    }
    Ok(scaled.len())
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("scale on {}: {} products are right", device.name(), run(&device)?);
    Ok(())
}
