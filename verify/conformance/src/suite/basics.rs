//! Basic kernels: one element per thread, scalars by value, two dimensions, a reduction.

use elinvar::{Device, Grid, Source, Threadgroup};

use super::{CaseResult, expect_all, run};

cases!("basics": thread_ids_10, thread_ids_1000003, vector_add_1024, scale_2048, matmul_64, matmul_odd,
    reduce_4096, reduce_1000003, double_in_place);

fn example(device: &Device, name: &str, text: &str) -> elinvar::Result<elinvar::Kernel> {
    device.compile(Source::named(format!("{name}.metal"), text))?.kernel(name)
}

fn thread_ids_10(device: &Device) -> CaseResult {
    thread_ids(device, 10)
}

fn thread_ids_1000003(device: &Device) -> CaseResult {
    thread_ids(device, 1_000_003)
}

fn thread_ids(device: &Device, n: usize) -> CaseResult {
    let kernel = example(device, "thread_ids", include_str!("../../../../examples/thread_ids.metal"))?;
    let mut out = device.buffer_with_data(&vec![u32::MAX; n])?;
    run(device, &kernel, Grid::threads(n), (&mut out,))?;
    expect_all(&out.to_vec()?, |i| i as u32);
    Ok(())
}

fn vector_add_1024(device: &Device) -> CaseResult {
    let kernel = example(device, "vector_add", include_str!("../../../../examples/vector_add.metal"))?;
    let xs: Vec<f32> = (0..1024).map(|i| i as f32 * 0.37).collect();
    let ys: Vec<f32> = (0..1024).map(|i| 5.0 - i as f32).collect();
    let (a, b) = (device.buffer_with_data(&xs)?, device.buffer_with_data(&ys)?);
    let mut out = device.buffer::<f32>(1024)?;
    run(device, &kernel, Grid::threads(1024).group(256), (&a, &b, &mut out, 1024_u32))?;
    expect_all(&out.to_vec()?, |i| xs[i] + ys[i]);
    Ok(())
}

#[allow(clippy::approx_constant)] // 3.14 is the factor, not a circle
fn scale_2048(device: &Device) -> CaseResult {
    let kernel = example(device, "scale", include_str!("../../../../examples/scale.metal"))?;
    let xs: Vec<f32> = (0..2048).map(|i| i as f32 - 700.0).collect();
    let input = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<f32>(2048)?;
    run(device, &kernel, Grid::threads(2048), (&input, &mut out, 3.14_f32))?;
    expect_all(&out.to_vec()?, |i| xs[i] * 3.14_f32);
    Ok(())
}

fn matmul_64(device: &Device) -> CaseResult {
    matmul(device, 64, 64, 64)
}

fn matmul_odd(device: &Device) -> CaseResult {
    matmul(device, 61, 67, 59)
}

fn matmul(device: &Device, m: usize, n: usize, k: usize) -> CaseResult {
    let kernel = example(device, "matmul", include_str!("../../../../examples/matmul.metal"))?;
    // Small integers: every partial sum is exact, so the order of additions does not matter.
    let a: Vec<f32> = (0..m * k).map(|i| ((i * 31) % 13) as f32 - 6.0).collect();
    let b: Vec<f32> = (0..k * n).map(|i| ((i * 17) % 11) as f32 - 5.0).collect();
    let (a_buffer, b_buffer) = (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?);
    let mut c = device.buffer_with_data(&vec![f32::NAN; m * n])?;
    let args = (&a_buffer, &b_buffer, &mut c, m as u32, n as u32, k as u32);
    run(device, &kernel, Grid::threads((n, m)).group((16, 8)), args)?;
    expect_all(&c.to_vec()?, |e| (0..k).map(|i| a[e / n * k + i] * b[i * n + e % n]).sum());
    Ok(())
}

fn reduce_4096(device: &Device) -> CaseResult {
    reduce(device, 4096)
}

fn reduce_1000003(device: &Device) -> CaseResult {
    reduce(device, 1_000_003)
}

fn reduce(device: &Device, n: usize) -> CaseResult {
    let kernel = example(device, "reduce", include_str!("../../../../examples/reduce.metal"))?;
    // Integers with a sum below 2^24: exact in any order.
    let xs: Vec<f32> = (0..n).map(|i| ((i * 7) % 19) as f32 - 3.0).collect();
    let expected: i64 = xs.iter().map(|x| *x as i64).sum();
    let input = device.buffer_with_data(&xs)?;
    for group in [32_u32, 100, 256, 1024] {
        let mut total = device.buffer::<f32>(1)?;
        let args = (&input, &mut total, n as u32, Threadgroup::of::<f32>(group as usize));
        run(device, &kernel, Grid::threads(n).group(group), args)?;
        assert_eq!(total.to_vec()?, [expected as f32], "group of {group}");
    }
    Ok(())
}

fn double_in_place(device: &Device) -> CaseResult {
    let kernel =
        example(device, "double_in_place", include_str!("../../../../examples/double_in_place.metal"))?;
    let mut data = device.buffer::<f32>(4099)?;
    for (i, value) in data.map_mut()?.iter_mut().enumerate() {
        *value = i as f32 - 2000.0;
    }
    run(device, &kernel, Grid::threads(4099), (&mut data,))?;
    expect_all(&data.map()?, |i| 2.0 * (i as f32 - 2000.0));
    Ok(())
}
