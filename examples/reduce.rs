//! Tree reduction of a vector in threadgroup memory, with one atomic addition per threadgroup.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Result, Source, Threadgroup};

/// Runs the kernel and compares the sum; returns the number of values.
pub fn run(device: &Device) -> Result<usize> {
    let n = 1_000_003;
    // Integers whose sum is below 2^24, so it is exact in f32 in any order.
    let xs: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();

    let library = device.compile(Source::named("reduce.metal", include_str!("reduce.metal")))?;
    let kernel = library.kernel("reduce")?;
    let input = device.buffer_with_data(&xs)?;
    let mut total = device.buffer::<f32>(1)?;
    let stream = device.stream()?;

    let args = (&input, &mut total, n as u32, Threadgroup::of::<f32>(256));
    // SAFETY: the kernel reads elements below n, and its threadgroup memory has one element per thread.
    let done = unsafe { kernel.launch(&stream, Grid::threads(n).group(256), args) }?;
    done.wait()?;

    let expected: f64 = xs.iter().map(|x| f64::from(*x)).sum();
    assert_eq!(f64::from(total.to_vec()?[0]), expected);
    Ok(n)
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("reduce on {}: the sum of {} values is right", device.name(), run(&device)?);
    Ok(())
}
