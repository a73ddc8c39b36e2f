//! Constant memory, assertions of constants, swizzles, modules and log lines, on the default device and on the host.

use std::sync::{Arc, Mutex};

use elinvar::kernel::{Constant, Vec4};
use elinvar::{Device, Grid, Result};
use elinvar_rust_kernels::language::{Term, evaluate, logs, lookups, swizzles};

#[test]
fn constant_buffers() -> Result<()> {
    assert!(evaluate::MSL.contains("constant float* coefficients [[buffer(0)]]"), "{}", evaluate::MSL);
    assert!(evaluate::MSL.contains("constant Term* terms [[buffer(1)]]"), "{}", evaluate::MSL);
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let coefficients = [0.5f32, -2.0, 0.25, 3.0];
    let terms = [
        Term { factor: 2.0, offset: 1.0 },
        Term { factor: -0.5, offset: 0.0 },
        Term { factor: 1.0, offset: -4.0 },
    ];
    let xs: Vec<f32> = (0..100).map(|i| (i as f32 - 50.0) * 0.25).collect();
    let (c, t) = (device.buffer_with_data(&coefficients)?, device.buffer_with_data(&terms)?);
    let (x, mut out) = (device.buffer_with_data(&xs)?, device.buffer::<f32>(100)?);
    evaluate.launch(&stream, Grid::threads(128), (&c, &t, &x, &mut out))?.wait()?;
    let expected: Vec<f32> = xs
        .iter()
        .map(|x| {
            let polynomial = ((3.0 * x + 0.25) * x - 2.0) * x + 0.5;
            let mut sum: f32 = polynomial;
            for term in &terms {
                sum += term.factor * (x + term.offset);
            }
            sum
        })
        .collect();
    assert_eq!(out.to_vec()?, expected);
    let mut host = vec![0.0; 100];
    evaluate.host(Grid::threads(128), (&coefficients, &terms, &xs, &mut host));
    assert_eq!(host, expected);
    // One thread, as a function.
    evaluate::call(Constant::new(&coefficients), Constant::new(&terms), &xs, &mut host, 3);
    assert_eq!(host, expected);
    Ok(())
}

#[test]
fn constant_buffers_of_kernels_that_wait() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let table: Vec<i32> = (0..16).map(|i| i * i - 7).collect();
    let keys: Vec<u32> = (0..64).map(|i| i * 5 + 3).collect();
    let (t, k) = (device.buffer_with_data(&table)?, device.buffer_with_data(&keys)?);
    let mut out = device.buffer::<i32>(64)?;
    let grid = Grid::threads(64).group(32);
    lookups.launch::<i32, 16>(&stream, grid.clone(), (&t, &k, &mut out))?.wait()?;
    let expected: Vec<i32> = (0..64).map(|i| table[keys[i / 32 * 32 + 31 - i % 32] as usize % 16]).collect();
    assert_eq!(out.to_vec()?, expected);
    let mut host = vec![0; 64];
    lookups.host::<i32, 16>(grid, (&table, &keys, &mut host));
    assert_eq!(host, expected);
    Ok(())
}

#[test]
fn a_read_beyond_a_constant_buffer_is_a_fault() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let table = device.buffer_with_data(&[1i32; 8])?;
    let keys = device.buffer_with_data(&[15u32; 32])?;
    let mut out = device.buffer::<i32>(32)?;
    let launched = lookups.launch::<i32, 16>(&stream, Grid::threads(32).group(32), (&table, &keys, &mut out));
    let result = launched.and_then(|done| done.wait());
    let Err(elinvar::Error::Fault(fault)) = result else { panic!("{result:?}") };
    assert!(fault.to_string().contains("language.rs"), "{fault}");
    stream.acknowledge();
    Ok(())
}

#[test]
fn swizzles_of_each_length() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let xs: Vec<Vec4<f32>> =
        (0..9).map(|i| i as f32).map(|i| Vec4::new(i, 10.0 + i, 20.0 - i, 0.5 * i)).collect();
    let (x, mut out) = (device.buffer_with_data(&xs)?, device.buffer::<Vec4<f32>>(45)?);
    swizzles.launch(&stream, Grid::threads(9), (&x, &mut out))?.wait()?;
    let mut expected = Vec::new();
    for v in &xs {
        let (x, y, z, w) = (v.x, v.y, v.z, v.w);
        expected.push(Vec4::new(w, z, y, x));
        expected.push(Vec4::new(x + w, x + z, y + w, y + z));
        expected.push(Vec4::new(z * x, x * x, z * z, x * z));
        expected.push(Vec4::new(w, z, y, y));
        expected.push(Vec4::splat(x * w + y * z));
    }
    assert_eq!(out.to_vec()?, expected);
    let mut host = vec![Vec4::splat(0.0); 45];
    swizzles.host(Grid::threads(9), (&xs, &mut host));
    assert_eq!(host, expected);
    Ok(())
}

#[test]
fn lines_are_those_of_rust() -> Result<()> {
    assert!(logs::MSL.contains("#include <metal_logging>"), "{}", logs::MSL);
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let lines = Arc::new(Mutex::new(Vec::new()));
    let to = lines.clone();
    let subscription = device.on_log(move |line| to.lock().unwrap().push(line.message.clone()))?;
    let xs: Vec<f32> = (0..8).map(|i| i as f32 * 40.75 - 150.0).collect();
    let wide: Vec<i64> = (0..8).map(|i| (i - 4) * 0x1234_5678_9abc).collect();
    let (x, w) = (device.buffer_with_data(&xs)?, device.buffer_with_data(&wide)?);
    logs.launch(&stream, Grid::threads(8), (&x, &w))?.wait()?;
    drop(subscription);
    let mut found = std::mem::take(&mut *lines.lock().unwrap());
    found.sort();
    let mut expected: Vec<String> = (0..8)
        .map(|i| {
            let (byte, half) = (200u8 + i as u8, xs[i]);
            match i % 2 {
                0 => format!("{i}: 100% \"{}\" {{{:.3}}} {:x}", wide[i], half * 0.5, byte),
                _ => format!("odd {} {:X} {}", -(i as i32), wide[i] as u64, half.clamp(-100.0, 100.0) as i16),
            }
        })
        .collect();
    expected.sort();
    assert_eq!(found, expected);
    logs.host(Grid::threads(8), (&xs, &wide));
    Ok(())
}
