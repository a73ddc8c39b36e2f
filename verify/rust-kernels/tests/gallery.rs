//! Each kernel on the default device, on the host, and by an independent reference; every element is compared.

use elinvar::kernel::{AtomicU32, Vec2, Vec4, f16};
use elinvar::{Device, Grid, Pod, Result, Source, Stream};
use elinvar_rust_kernels::{basics, graphs, images, linear_algebra, physics, reductions, signals, sorting};

fn stream() -> Result<(Device, Stream)> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    Ok((device, stream))
}

/// Numbers without a pattern that kernels could rely on.
fn random(count: usize, seed: u32) -> Vec<u32> {
    let mut state = u64::from(seed) * 2 + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as u32 ^ (state >> 11) as u32
    };
    (0..count).map(|_| next()).collect()
}

fn floats(count: usize, seed: u32) -> Vec<f32> {
    random(count, seed).into_iter().map(|x| (x % 20001) as f32 / 10000.0 - 1.0).collect()
}

#[track_caller]
fn equal<T: Pod + PartialEq + std::fmt::Debug>(device: &[T], host: &[T], reference: &[T]) {
    assert_eq!(device.len(), reference.len());
    for (i, expected) in reference.iter().enumerate() {
        assert_eq!(host[i], *expected, "element {i} on the host");
        assert_eq!(device[i], *expected, "element {i} on the device");
    }
}

#[track_caller]
fn close(device: &[f32], host: &[f32], reference: &[f32], tolerance: f32) {
    assert_eq!(device.len(), reference.len());
    for (i, expected) in reference.iter().enumerate() {
        assert!(
            (host[i] - expected).abs() <= tolerance,
            "element {i} on the host: {}, not {expected}",
            host[i]
        );
        assert!(
            (device[i] - expected).abs() <= tolerance,
            "element {i} on the device: {}, not {expected}",
            device[i]
        );
    }
}

#[test]
fn reduce() -> Result<()> {
    let (device, stream) = stream()?;
    let xs: Vec<f32> = random(1000, 1).into_iter().map(|x| (x % 100) as f32).collect();
    let x = device.buffer_with_data(&xs)?;
    let mut sums = device.buffer::<f32>(4)?;
    let grid = Grid::groups(4).group(256);
    reductions::reduce.launch(&stream, grid.clone(), (&x, &mut sums))?.wait()?;
    let mut host = [0.0; 4];
    reductions::reduce.host(grid, (&xs, &mut host));
    let expected: Vec<f32> = xs.chunks(256).map(|chunk| chunk.iter().sum()).collect();
    equal(&sums.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn simd_reduce() -> Result<()> {
    let (device, stream) = stream()?;
    let xs = random(128, 2);
    let x = device.buffer_with_data(&xs)?;
    let mut sums = device.buffer::<u32>(512)?;
    let grid = Grid::threads(128).group(64);
    reductions::simd_reduce.launch(&stream, grid.clone(), (&x, &mut sums))?.wait()?;
    let mut host = vec![0; 512];
    reductions::simd_reduce.host(grid, (&xs, &mut host));
    let mut expected = Vec::new();
    for chunk in xs.chunks(32) {
        for lane in 0..32 {
            let sum = |values: &[u32]| values.iter().fold(0u32, |a, b| a.wrapping_add(*b));
            expected.push(sum(chunk));
            expected.push(*chunk.iter().max().expect("a simdgroup"));
            expected.push(sum(&chunk[..lane]));
            expected.push(if lane == 0 { 0 } else { chunk[lane - 1] });
        }
    }
    equal(&sums.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn scan() -> Result<()> {
    let (device, stream) = stream()?;
    let xs = random(512, 3);
    let mut x = device.buffer_with_data(&xs)?;
    let grid = Grid::threads(512).group(128);
    reductions::scan.launch(&stream, grid.clone(), (&mut x,))?.wait()?;
    let mut host = xs.clone();
    reductions::scan.host(grid, (&mut host,));
    let mut expected = Vec::new();
    for chunk in xs.chunks(128) {
        let mut sum = 0u32;
        expected.extend(chunk.iter().map(|x| {
            sum = sum.wrapping_add(*x);
            sum
        }));
    }
    equal(&x.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn histogram() -> Result<()> {
    let (device, stream) = stream()?;
    let bytes: Vec<u8> = random(5000, 4).into_iter().map(|x| (x % 251) as u8).collect();
    let x = device.buffer_with_data(&bytes)?;
    let mut counts = device.buffer::<u32>(256)?;
    let grid = Grid::groups(3).group(256);
    reductions::histogram.launch(&stream, grid.clone(), (&x, &mut counts))?.wait()?;
    let atomics: Vec<AtomicU32> = (0..256).map(|_| AtomicU32::new(0)).collect();
    reductions::histogram.host(grid, (&bytes, &atomics));
    let host: Vec<u32> = atomics.into_iter().map(AtomicU32::into_inner).collect();
    let mut expected = vec![0u32; 256];
    bytes.iter().for_each(|byte| expected[usize::from(*byte)] += 1);
    equal(&counts.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn softmax() -> Result<()> {
    let (device, stream) = stream()?;
    let xs = floats(10 * 37, 5);
    let x = device.buffer_with_data(&xs)?;
    let mut y = device.buffer::<f32>(xs.len())?;
    reductions::softmax.launch(&stream, Grid::threads(10), (&x, &mut y, 37))?.wait()?;
    let mut host = vec![0.0; xs.len()];
    reductions::softmax.host(Grid::threads(10), (&xs, &mut host, 37));
    let mut expected = Vec::new();
    for row in xs.chunks(37) {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        expected.extend(row.iter().map(|x| (f64::from(*x).exp() / sum) as f32));
    }
    close(&y.to_vec()?, &host, &expected, 1e-6);
    Ok(())
}

#[test]
fn chunks() -> Result<()> {
    let (device, stream) = stream()?;
    let xs: Vec<i32> = random(100, 6).into_iter().map(|x| x as i32).collect();
    let x = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<i32>(39)?;
    reductions::chunks.launch(&stream, Grid::threads(13), (&x, &mut out))?.wait()?;
    let mut host = vec![0; 39];
    reductions::chunks.host(Grid::threads(13), (&xs, &mut host));
    let expected: Vec<i32> = xs
        .chunks(8)
        .flat_map(|chunk| {
            let sum = chunk.iter().map(|x| i64::from(*x)).sum::<i64>() as i32;
            [sum, *chunk.iter().min().expect("a chunk"), *chunk.iter().max().expect("a chunk")]
        })
        .collect();
    equal(&out.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn compact() -> Result<()> {
    let (device, stream) = stream()?;
    let xs = floats(500, 7);
    let x = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<f32>(500)?;
    let mut count = device.buffer::<u32>(1)?;
    reductions::compact.launch(&stream, Grid::threads(500), (&x, 0.25, &mut out, &mut count))?.wait()?;
    let mut host = vec![0.0f32; 500];
    let counted = [AtomicU32::new(0)];
    reductions::compact.host(Grid::threads(500), (&xs, 0.25, &mut host, &counted));
    let mut expected: Vec<f32> = xs.into_iter().filter(|x| *x > 0.25).collect();
    let found = count.to_vec()?[0] as usize;
    assert_eq!(
        (found, counted[0].load(std::sync::atomic::Ordering::Relaxed) as usize),
        (expected.len(), expected.len())
    );
    let sorted = |values: &[f32]| {
        let mut values = values[..found].to_vec();
        values.sort_by(f32::total_cmp);
        values
    };
    expected.sort_by(f32::total_cmp);
    equal(&sorted(&out.to_vec()?), &sorted(&host), &expected);
    Ok(())
}

fn product(a: &[f32], b: &[f32], n: usize) -> Vec<f32> {
    (0..n * n)
        .map(|at| (0..n).fold(0.0f32, |sum, k| a[at / n * n + k].mul_add(b[k * n + at % n], sum)))
        .collect()
}

#[test]
fn matrix_products() -> Result<()> {
    let (device, stream) = stream()?;
    let n = 48;
    let (left, right) = (floats(n * n, 8), floats(n * n, 9));
    let (a, b) = (device.buffer_with_data(&left)?, device.buffer_with_data(&right)?);
    let expected = product(&left, &right, n);
    let mut c = device.buffer::<f32>(n * n)?;
    let grid = Grid::threads((n, n)).group((16, 16));
    linear_algebra::matmul_tiled.launch(&stream, grid.clone(), (&a, &b, &mut c, n as u32))?.wait()?;
    let mut host = vec![0.0; n * n];
    linear_algebra::matmul_tiled.host(grid, (&left, &right, &mut host, n as u32));
    equal(&c.to_vec()?, &host, &expected);
    let mut c = device.buffer::<f32>(n * n)?;
    let grid = Grid::threads((64, 50)).group((32, 8));
    linear_algebra::matmul_naive.launch(&stream, grid.clone(), (&a, &b, &mut c, n as u32))?.wait()?;
    let mut host = vec![0.0; n * n];
    linear_algebra::matmul_naive.host(grid, (&left, &right, &mut host, n as u32));
    equal(&c.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn transpose() -> Result<()> {
    let (device, stream) = stream()?;
    let (width, height) = (37usize, 21usize);
    let xs = random(width * height, 10);
    let x = device.buffer_with_data(&xs)?;
    let mut y = device.buffer::<u32>(xs.len())?;
    let grid = Grid::groups((3, 2)).group((16, 16));
    linear_algebra::transpose.launch(&stream, grid.clone(), (&x, &mut y, 37, 21))?.wait()?;
    let mut host = vec![0; xs.len()];
    linear_algebra::transpose.host(grid, (&xs, &mut host, 37, 21));
    let expected: Vec<u32> = (0..xs.len()).map(|at| xs[at % height * width + at / height]).collect();
    equal(&y.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn attention() -> Result<()> {
    let (device, stream) = stream()?;
    let (queries, keys, d) = (9usize, 20usize, 8usize);
    let (q, k, v) = (floats(queries * d, 11), floats(keys * d, 12), floats(keys * d, 13));
    let mut out = device.buffer::<f32>(queries * d)?;
    let (bq, bk, bv) =
        (device.buffer_with_data(&q)?, device.buffer_with_data(&k)?, device.buffer_with_data(&v)?);
    linear_algebra::attention
        .launch::<8>(&stream, Grid::threads(queries), (&bq, &bk, &bv, &mut out, keys as u32, 0.5))?
        .wait()?;
    let mut host = vec![0.0; queries * d];
    linear_algebra::attention.host::<8>(Grid::threads(queries), (&q, &k, &v, &mut host, keys as u32, 0.5));
    let mut expected = Vec::new();
    for query in 0..queries {
        let score =
            |key: usize| (0..d).map(|i| f64::from(q[query * d + i]) * f64::from(k[key * d + i])).sum::<f64>();
        let weights: Vec<f64> = (0..keys).map(|key| (0.5 * score(key)).exp()).collect();
        let total: f64 = weights.iter().sum();
        for i in 0..d {
            let sum: f64 = (0..keys).map(|key| weights[key] * f64::from(v[key * d + i])).sum();
            expected.push((sum / total) as f32);
        }
    }
    close(&out.to_vec()?, &host, &expected, 1e-5);
    Ok(())
}

/// A graph or sparse matrix: starts of rows, and columns.
fn sparse(rows: usize, seed: u32) -> (Vec<u32>, Vec<u32>) {
    let numbers = random(rows * 8, seed);
    let (mut starts, mut columns) = (vec![0u32], Vec::new());
    for row in 0..rows {
        for k in 0..numbers[row * 8] as usize % 5 {
            columns.push(numbers[row * 8 + 1 + k] % rows as u32);
        }
        starts.push(columns.len() as u32);
    }
    (starts, columns)
}

#[test]
fn spmv() -> Result<()> {
    let (device, stream) = stream()?;
    let (starts, columns) = sparse(60, 14);
    let (values, xs) = (floats(columns.len(), 15), floats(60, 16));
    let (s, c) = (device.buffer_with_data(&starts)?, device.buffer_with_data(&columns)?);
    let (v, x) = (device.buffer_with_data(&values)?, device.buffer_with_data(&xs)?);
    let mut y = device.buffer::<f32>(60)?;
    linear_algebra::spmv.launch(&stream, Grid::threads(60), (&s, &c, &v, &x, &mut y))?.wait()?;
    let mut host = vec![0.0; 60];
    linear_algebra::spmv.host(Grid::threads(60), (&starts, &columns, &values, &xs, &mut host));
    let expected: Vec<f32> = (0..60)
        .map(|row| {
            (starts[row] as usize..starts[row + 1] as usize)
                .fold(0.0, |sum, at| sum + values[at] * xs[columns[at] as usize])
        })
        .collect();
    equal(&y.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn half_axpy() -> Result<()> {
    let (device, stream) = stream()?;
    let xs: Vec<f16> = floats(300, 17).into_iter().map(|x| f16::from_f32(x * 90.0)).collect();
    let bs: Vec<f16> = floats(300, 18).into_iter().map(f16::from_f32).collect();
    let a = f16::from_f32(1.7);
    let mut x = device.buffer_with_data(&xs)?;
    let b = device.buffer_with_data(&bs)?;
    linear_algebra::half_axpy.launch(&stream, Grid::threads(300), (&mut x, a, &b))?.wait()?;
    let mut host = xs.clone();
    linear_algebra::half_axpy.host(Grid::threads(300), (&mut host, a, &bs));
    let expected: Vec<f16> = xs
        .iter()
        .zip(&bs)
        .map(|(x, b)| {
            let product = f16::from_f32(x.to_f32() * a.to_f32());
            let sum = f16::from_f32(product.to_f32() + b.to_f32());
            if sum.to_f32() > 100.0 { f16::from_f32(sum.to_f32() / 2.0) } else { sum }
        })
        .collect();
    assert!(expected.iter().any(|x| x.to_f32() > 60.0), "some sums are halved");
    equal(&x.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn nbody() -> Result<()> {
    use physics::{Body, Step};
    let (device, stream) = stream()?;
    let numbers = floats(40 * 6, 19);
    let bodies: Vec<Body> = numbers
        .chunks(6)
        .map(|n| Body {
            position: Vec4::new(n[0], n[1], n[2], 1.0),
            velocity: Vec4::new(n[3], n[4], n[5], 0.0),
        })
        .collect();
    let step = Step { seconds: 0.01, softening: 0.1 };
    let from = device.buffer_with_data(&bodies)?;
    let mut to = device.buffer::<Body>(40)?;
    physics::nbody.launch(&stream, Grid::threads(40), (&from, &mut to, step))?.wait()?;
    let mut host = bodies.clone();
    physics::nbody.host(Grid::threads(40), (&bodies, &mut host, step));
    let mut expected = Vec::new();
    for me in &bodies {
        let mut force = [0.0f64; 3];
        for other in &bodies {
            let d: [f64; 3] =
                std::array::from_fn(|i| f64::from(other.position[i]) - f64::from(me.position[i]));
            let square = d.iter().map(|d| d * d).sum::<f64>() + 0.1;
            let scale = f64::from(other.position.w) / (square * square.sqrt());
            (0..3).for_each(|i| force[i] += d[i] * scale);
        }
        for (i, force) in force.into_iter().enumerate() {
            let velocity = f64::from(me.velocity[i]) + force * 0.01;
            expected.extend([(f64::from(me.position[i]) + velocity * 0.01) as f32, velocity as f32]);
        }
    }
    let flat = |bodies: &[Body]| -> Vec<f32> {
        bodies.iter().flat_map(|body| (0..3).flat_map(|i| [body.position[i], body.velocity[i]])).collect()
    };
    close(&flat(&to.to_vec()?), &flat(&host), &expected, 1e-5);
    Ok(())
}

#[test]
fn heat_and_life() -> Result<()> {
    let (device, stream) = stream()?;
    let (width, height) = (30usize, 20usize);
    let xs = floats(width * height, 20);
    let from = device.buffer_with_data(&xs)?;
    let mut to = device.buffer::<f32>(xs.len())?;
    let grid = Grid::threads((32, 20)).group((32, 4));
    physics::heat.launch(&stream, grid.clone(), (&from, &mut to, 30, 20, 0.125))?.wait()?;
    let mut host = vec![0.0; xs.len()];
    physics::heat.host(grid, (&xs, &mut host, 30, 20, 0.125));
    let at = |x: i32, y: i32| xs[(y.clamp(0, 19) * 30 + x.clamp(0, 29)) as usize];
    let expected: Vec<f32> = (0..600)
        .map(|i| {
            let (x, y) = (i % 30, i / 30);
            let around = at(x + 1, y) + at(x - 1, y) + at(x, y + 1) + at(x, y - 1);
            at(x, y) + 0.125 * (around - 4.0 * at(x, y))
        })
        .collect();
    equal(&to.to_vec()?, &host, &expected);

    let cells: Vec<u8> = random(width * height, 21).into_iter().map(|x| (x % 3 == 0) as u8).collect();
    let from = device.buffer_with_data(&cells)?;
    let mut to = device.buffer::<u8>(cells.len())?;
    physics::life.launch(&stream, Grid::threads((30, 20)), (&from, &mut to, 30, 20))?.wait()?;
    let mut host = vec![0; cells.len()];
    physics::life.host(Grid::threads((30, 20)), (&cells, &mut host, 30, 20));
    let expected: Vec<u8> = (0..600i32)
        .map(|i| {
            let alive =
                |dx: i32, dy: i32| cells[((i / 30 + dy + 20) % 20 * 30 + (i % 30 + dx + 30) % 30) as usize];
            let count: u8 =
                (-1..=1).flat_map(|y| (-1..=1).map(move |x| (x, y))).map(|(x, y)| alive(x, y)).sum();
            (count == 3 || count == 4 && alive(0, 0) == 1) as u8
        })
        .collect();
    equal(&to.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn mandelbrot() -> Result<()> {
    let (device, stream) = stream()?;
    for most in [50u32, 200] {
        let mut counts = device.buffer::<u32>(40 * 30)?;
        let arguments = (Vec2::new(-0.5, 0.0), 0.08);
        let grid = Grid::threads((40, 30));
        images::mandelbrot
            .launch(&stream, grid.clone(), (&mut counts, 40, 30, arguments.0, arguments.1, most))?
            .wait()?;
        let mut host = vec![0; 40 * 30];
        images::mandelbrot.host(grid, (&mut host, 40, 30, arguments.0, arguments.1, most));
        let expected: Vec<u32> = (0..1200)
            .map(|i| {
                let c = (-0.5 + ((i % 40) as f32 - 20.0) * 0.08, 0.0 + ((i / 40) as f32 - 15.0) * 0.08);
                let mut z = (0.0f32, 0.0f32);
                let mut count = 0;
                while count < most && z.0 * z.0 + z.1 * z.1 <= 4.0 {
                    z = (z.0 * z.0 - z.1 * z.1 + c.0, 2.0 * z.0 * z.1 + c.1);
                    count += 1;
                }
                count
            })
            .collect();
        equal(&counts.to_vec()?, &host, &expected);
    }
    Ok(())
}

#[test]
fn convolve() -> Result<()> {
    let (device, stream) = stream()?;
    let (width, height) = (19i32, 11i32);
    let image = floats((width * height) as usize, 22);
    let weights = floats(25, 23);
    let (i, w) = (device.buffer_with_data(&image)?, device.buffer_with_data(&weights)?);
    for edge in 0..3u32 {
        let mut out = device.buffer::<f32>(image.len())?;
        let size = Vec2::new(width, height);
        let grid = Grid::threads((19, 11));
        images::convolve.launch::<5>(&stream, grid.clone(), (&i, &w, &mut out, size, edge))?.wait()?;
        let mut host = vec![0.0; image.len()];
        images::convolve.host::<5>(grid, (&image, &weights, &mut host, size, edge));
        let read = |x: i32, y: i32| {
            let fold = |at: i32, size: i32| match edge {
                _ if (0..size).contains(&at) => Some(at),
                0 => None,
                1 => Some(at.clamp(0, size - 1)),
                _ => Some(if at < 0 { -at - 1 } else { 2 * size - at - 1 }),
            };
            Some(image[(fold(y, height)? * width + fold(x, width)?) as usize])
        };
        let expected: Vec<f32> = (0..width * height)
            .map(|at| {
                let mut sum = 0.0f32;
                for k in 0..25i32 {
                    if let Some(pixel) = read(at % width + k % 5 - 2, at / width + k / 5 - 2) {
                        sum = pixel.mul_add(weights[k as usize], sum);
                    }
                }
                sum
            })
            .collect();
        equal(&out.to_vec()?, &host, &expected);
    }
    Ok(())
}

#[test]
fn gray_and_median() -> Result<()> {
    let (device, stream) = stream()?;
    let pixels: Vec<Vec4<u8>> = random(200, 24)
        .into_iter()
        .map(|x| Vec4::new(x as u8, (x >> 8) as u8, (x >> 16) as u8, (x >> 24) as u8))
        .collect();
    let p = device.buffer_with_data(&pixels)?;
    let mut out = device.buffer::<u8>(200)?;
    images::gray.launch(&stream, Grid::threads(200), (&p, &mut out))?.wait()?;
    let mut host = vec![0; 200];
    images::gray.host(Grid::threads(200), (&pixels, &mut host));
    let expected: Vec<u8> = pixels
        .iter()
        .map(|p| ((u64::from(p.x) * 13933 + u64::from(p.y) * 46871 + u64::from(p.z) * 4732) / 65536) as u8)
        .collect();
    equal(&out.to_vec()?, &host, &expected);

    let (width, height) = (17usize, 9usize);
    let image: Vec<u16> = random((width + 2) * (height + 2), 25).into_iter().map(|x| x as u16).collect();
    let i = device.buffer_with_data(&image)?;
    let mut out = device.buffer::<u16>(width * height)?;
    images::median.launch(&stream, Grid::threads((width, height)), (&i, &mut out, width as u32))?.wait()?;
    let mut host = vec![0; width * height];
    images::median.host(Grid::threads((width, height)), (&image, &mut host, width as u32));
    let expected: Vec<u16> = (0..width * height)
        .map(|at| {
            let mut nine: Vec<u16> =
                (0..9).map(|k| image[(at / width + k / 3) * (width + 2) + at % width + k % 3]).collect();
            nine.sort_unstable();
            nine[4]
        })
        .collect();
    equal(&out.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn fft64() -> Result<()> {
    let (device, stream) = stream()?;
    let numbers = floats(3 * 64 * 2, 26);
    let xs: Vec<Vec2<f32>> = numbers.chunks(2).map(|n| Vec2::new(n[0], n[1])).collect();
    let mut x = device.buffer_with_data(&xs)?;
    let grid = Grid::groups(3).group(32);
    signals::fft64.launch(&stream, grid.clone(), (&mut x,))?.wait()?;
    let mut host = xs.clone();
    signals::fft64.host(grid, (&mut host,));
    let mut expected = Vec::new();
    for chunk in xs.chunks(64) {
        for k in 0..64 {
            let (mut re, mut im) = (0.0f64, 0.0f64);
            for (n, x) in chunk.iter().enumerate() {
                let (sin, cos) = (-std::f64::consts::TAU * (k * n) as f64 / 64.0).sin_cos();
                re += f64::from(x.x) * cos - f64::from(x.y) * sin;
                im += f64::from(x.x) * sin + f64::from(x.y) * cos;
            }
            expected.extend([re as f32, im as f32]);
        }
    }
    let flat = |values: &[Vec2<f32>]| -> Vec<f32> { values.iter().flat_map(|v| [v.x, v.y]).collect() };
    close(&flat(&x.to_vec()?), &flat(&host), &expected, 2e-5);
    Ok(())
}

#[test]
fn hashes() -> Result<()> {
    let (device, stream) = stream()?;
    let mut bytes = b"123456789".to_vec();
    bytes.extend(b"elinvar..");
    let b = device.buffer_with_data(&bytes)?;
    let mut sums = device.buffer::<u32>(2)?;
    signals::crc32.launch(&stream, Grid::threads(2), (&b, &mut sums, 9))?.wait()?;
    let mut host = [0; 2];
    signals::crc32.host(Grid::threads(2), (&bytes, &mut host, 9));
    // The check value of CRC-32/ISO-HDLC.
    assert_eq!((sums.to_vec()?[0], host[0]), (0xCBF4_3926, 0xCBF4_3926));
    assert_eq!(sums.to_vec()?[1], host[1]);

    // The block of the message "abc", whose digest is in FIPS 180-2.
    let mut block = [0u32; 16];
    (block[0], block[15]) = (0x6162_6380, 24);
    let b = device.buffer_with_data(&block)?;
    let mut digest = device.buffer::<u32>(8)?;
    signals::sha256.launch(&stream, Grid::threads(1), (&b, &mut digest))?.wait()?;
    let mut host = [0; 8];
    signals::sha256.host(Grid::threads(1), (&block, &mut host));
    let expected =
        [0xba7816bfu32, 0x8f01cfea, 0x414140de, 0x5dae2223, 0xb00361a3, 0x96177a9c, 0xb410ff61, 0xf20015ad];
    equal(&digest.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn monte_carlo() -> Result<()> {
    let (device, stream) = stream()?;
    let mut counts = device.buffer::<u32>(64)?;
    signals::monte_carlo.launch(&stream, Grid::threads(64), (&mut counts, 500))?.wait()?;
    let mut host = vec![0; 64];
    signals::monte_carlo.host(Grid::threads(64), (&mut host, 500));
    let counts = counts.to_vec()?;
    assert_eq!(counts, host);
    let pi = 4.0 * f64::from(counts.iter().sum::<u32>()) / 32000.0;
    assert!((pi - std::f64::consts::PI).abs() < 0.05, "{pi}");
    Ok(())
}

#[test]
fn sorts() -> Result<()> {
    let (device, stream) = stream()?;
    let xs: Vec<i32> = random(256, 27).into_iter().map(|x| x as i32).collect();
    let mut x = device.buffer_with_data(&xs)?;
    let mut host = xs.clone();
    let mut block = 2;
    while block <= 256 {
        let mut distance = block / 2;
        while distance > 0 {
            sorting::bitonic.launch(&stream, Grid::threads(256), (&mut x, block, distance))?.wait()?;
            sorting::bitonic.host(Grid::threads(256), (&mut host, block, distance));
            distance /= 2;
        }
        block *= 2;
    }
    let mut expected = xs;
    expected.sort_unstable();
    equal(&x.to_vec()?, &host, &expected);

    let keys = random(640, 28);
    let (mut from, mut host_from) = (device.buffer_with_data(&keys)?, keys.clone());
    for digit in 0..8 {
        let mut to = device.buffer::<u32>(640)?;
        let grid = Grid::groups(1).group(64);
        sorting::radix_pass.launch(&stream, grid.clone(), (&from, &mut to, digit * 4))?.wait()?;
        let mut host_to = vec![0; 640];
        sorting::radix_pass.host(grid, (&host_from, &mut host_to, digit * 4));
        (from, host_from) = (to, host_to);
    }
    let mut expected = keys;
    expected.sort_unstable();
    equal(&from.to_vec()?, &host_from, &expected);

    let mut sorted: Vec<i64> = random(99, 29).into_iter().map(|x| i64::from(x) - (1 << 31)).collect();
    sorted.sort_unstable();
    let mut needles: Vec<i64> = random(50, 30).into_iter().map(|x| i64::from(x) - (1 << 31)).collect();
    needles.extend([sorted[0], sorted[98], i64::MIN, i64::MAX]);
    let (x, n) = (device.buffer_with_data(&sorted)?, device.buffer_with_data(&needles)?);
    let mut found = device.buffer::<u32>(needles.len())?;
    sorting::lower_bound.launch(&stream, Grid::threads(needles.len()), (&x, &n, &mut found))?.wait()?;
    let mut host = vec![0; needles.len()];
    sorting::lower_bound.host(Grid::threads(needles.len()), (&sorted, &needles, &mut host));
    let expected: Vec<u32> =
        needles.iter().map(|n| sorted.iter().filter(|x| *x < n).count() as u32).collect();
    equal(&found.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn bfs() -> Result<()> {
    let (device, stream) = stream()?;
    let (starts, neighbors) = sparse(80, 31);
    let (s, n) = (device.buffer_with_data(&starts)?, device.buffer_with_data(&neighbors)?);
    let mut first = vec![u32::MAX; 80];
    first[0] = 0;
    let mut levels = device.buffer_with_data(&first)?;
    let host: Vec<AtomicU32> = first.iter().map(|level| AtomicU32::new(*level)).collect();
    for level in 0.. {
        let mut changed = device.buffer::<u32>(1)?;
        let grid = Grid::threads(80);
        graphs::bfs.launch(&stream, grid.clone(), (&s, &n, &mut levels, &mut changed, level))?.wait()?;
        graphs::bfs.host(grid, (&starts, &neighbors, &host, &[AtomicU32::new(0)], level));
        if changed.to_vec()?[0] == 0 {
            break;
        }
    }
    let mut expected = first;
    let mut queue = std::collections::VecDeque::from([0usize]);
    while let Some(vertex) = queue.pop_front() {
        for edge in starts[vertex]..starts[vertex + 1] {
            let other = neighbors[edge as usize] as usize;
            if expected[other] == u32::MAX {
                expected[other] = expected[vertex] + 1;
                queue.push_back(other);
            }
        }
    }
    assert!(expected.iter().filter(|level| **level != u32::MAX).count() > 10, "a graph with some edges");
    let host: Vec<u32> = host.into_iter().map(AtomicU32::into_inner).collect();
    equal(&levels.to_vec()?, &host, &expected);
    Ok(())
}

#[test]
fn searches() -> Result<()> {
    let (device, stream) = stream()?;
    let n: Vec<u32> = (0..300).collect();
    let b = device.buffer_with_data(&n)?;
    let mut pairs = device.buffer::<u32>(600)?;
    graphs::two_squares.launch(&stream, Grid::threads(300), (&b, &mut pairs, 30))?.wait()?;
    let mut host = vec![0; 600];
    graphs::two_squares.host(Grid::threads(300), (&n, &mut host, 30));
    let mut expected = Vec::new();
    for n in n {
        let pair = (1..30u32).flat_map(|a| (a..30).map(move |b| [a, b])).find(|[a, b]| a * a + b * b == n);
        expected.extend(pair.unwrap_or([0, 0]));
    }
    equal(&pairs.to_vec()?, &host, &expected);

    let xs: Vec<u64> = (1..200).chain([837_799, 8_400_511]).collect();
    let x = device.buffer_with_data(&xs)?;
    let mut steps = device.buffer::<u32>(xs.len())?;
    graphs::collatz.launch(&stream, Grid::threads(xs.len()), (&x, &mut steps))?.wait()?;
    let mut host = vec![0; xs.len()];
    graphs::collatz.host(Grid::threads(xs.len()), (&xs, &mut host));
    // Known numbers of steps.
    assert_eq!(host[host.len() - 2..], [524, 685]);
    assert_eq!(steps.to_vec()?, host);
    Ok(())
}

/// The text compiles without a warning under the checks for Metal's address spaces.
#[test]
fn the_text_passes_the_strict_check() -> Result<()> {
    let device = Device::system_default()?;
    let texts = [
        ("saxpy", basics::saxpy::MSL),
        ("reverse", basics::reverse::MSL),
        ("bumps", basics::bumps::MSL),
        ("reduce", reductions::reduce::MSL),
        ("simd_reduce", reductions::simd_reduce::MSL),
        ("scan", reductions::scan::MSL),
        ("histogram", reductions::histogram::MSL),
        ("softmax", reductions::softmax::MSL),
        ("chunks", reductions::chunks::MSL),
        ("compact", reductions::compact::MSL),
        ("matmul_tiled", linear_algebra::matmul_tiled::MSL),
        ("matmul_naive", linear_algebra::matmul_naive::MSL),
        ("transpose", linear_algebra::transpose::MSL),
        ("spmv", linear_algebra::spmv::MSL),
        ("half_axpy", linear_algebra::half_axpy::MSL),
        ("nbody", physics::nbody::MSL),
        ("heat", physics::heat::MSL),
        ("life", physics::life::MSL),
        ("mandelbrot", images::mandelbrot::MSL),
        ("gray", images::gray::MSL),
        ("median", images::median::MSL),
        ("fft64", signals::fft64::MSL),
        ("crc32", signals::crc32::MSL),
        ("monte_carlo", signals::monte_carlo::MSL),
        ("sha256", signals::sha256::MSL),
        ("bitonic", sorting::bitonic::MSL),
        ("radix_pass", sorting::radix_pass::MSL),
        ("lower_bound", sorting::lower_bound::MSL),
        ("bfs", graphs::bfs::MSL),
        ("two_squares", graphs::two_squares::MSL),
        ("collatz", graphs::collatz::MSL),
    ];
    for (name, text) in texts {
        let library = device.compile(Source::named(format!("{name}.metal"), text).check_spaces())?;
        assert!(library.warnings().is_empty(), "{name}: {:?}\n{text}", library.warnings());
        assert!(library.unsupported().is_empty() && library.kernels().len() == 1, "{name}");
    }
    Ok(())
}
