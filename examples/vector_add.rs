//! Element-wise addition of two vectors.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Result, Source};

/// Runs the kernel and compares every element; returns the number of elements.
pub fn run(device: &Device) -> Result<usize> {
    let n = 1_000_003;
    let xs: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let ys: Vec<f32> = (0..n).map(|i| 1000.0 - i as f32).collect();

    let library = device.compile(Source::named("vector_add.metal", include_str!("vector_add.metal")))?;
    let add = library.kernel("vector_add")?;
    let a = device.buffer_with_data(&xs)?;
    let b = device.buffer_with_data(&ys)?;
    let mut out = device.buffer::<f32>(n)?;
    let stream = device.stream()?;

    // SAFETY: the kernel reads and writes only elements below n, and each buffer has n.
    let done = unsafe { add.launch(&stream, Grid::threads(n).group(256), (&a, &b, &mut out, n as u32)) }?;
    done.wait()?;

    let sums = out.to_vec()?;
    for (i, sum) in sums.iter().enumerate() {
        assert_eq!(*sum, xs[i] + ys[i], "element {i}");
    }
    Ok(sums.len())
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("vector_add on {}: {} sums are right", device.name(), run(&device)?);
    Ok(())
}
