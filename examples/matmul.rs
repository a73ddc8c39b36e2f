//! Matrix product over a two-dimensional grid, with sizes that are not multiples of the threadgroup size.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Device, Grid, Result, Source};

/// Runs the kernel and compares every element; returns the number of elements.
pub fn run(device: &Device) -> Result<usize> {
    let (m, n, k) = (61, 67, 59);
    // Small integers, so that every sum is exact in f32 in any order.
    let a: Vec<f32> = (0..m * k).map(|i| (i % 7) as f32 - 3.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i % 5) as f32 - 2.0).collect();

    let library = device.compile(Source::named("matmul.metal", include_str!("matmul.metal")))?;
    let kernel = library.kernel("matmul")?;
    let a_buffer = device.buffer_with_data(&a)?;
    let b_buffer = device.buffer_with_data(&b)?;
    let mut c = device.buffer::<f32>(m * n)?;
    let stream = device.stream()?;

    let args = (&a_buffer, &b_buffer, &mut c, m as u32, n as u32, k as u32);
    // SAFETY: the kernel stays within m by k, k by n and m by n elements, which the buffers have.
    let done = unsafe { kernel.launch(&stream, Grid::threads((n, m)).group((16, 16)), args) }?;
    done.wait()?;

    let product = c.to_vec()?;
    for row in 0..m {
        for column in 0..n {
            let expected: f32 = (0..k).map(|i| a[row * k + i] * b[i * n + column]).sum();
            assert_eq!(product[row * n + column], expected, "row {row}, column {column}");
        }
    }
    Ok(product.len())
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("matmul on {}: {} elements are right", device.name(), run(&device)?);
    Ok(())
}
