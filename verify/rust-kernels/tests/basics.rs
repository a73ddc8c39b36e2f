//! First kernels on the CPU.

use elinvar::{Device, Grid, Result};
use elinvar_rust_kernels::basics::{bumps, powers, reverse, saxpy};

#[test]
fn saxpy_computes() -> Result<()> {
    println!("{}\n{}\n{}\n{}", saxpy::MSL, reverse::MSL, bumps::MSL, powers::MSL);
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let xs: Vec<f32> = (0..1000).map(|i| i as f32 * 0.25).collect();
    let ys: Vec<f32> = (0..1000).map(|i| 3.0 - i as f32).collect();
    let x = device.buffer_with_data(&xs)?;
    let mut y = device.buffer_with_data(&ys)?;
    saxpy.launch(&stream, Grid::threads(1024).group(256), (&x, &mut y, 1.5))?.wait()?;
    let mut host = ys.clone();
    saxpy.host(Grid::threads(1024).group(256), (&xs, &mut host, 1.5));
    let expected: Vec<f32> = xs.iter().zip(&ys).map(|(x, y)| 1.5f32.mul_add(*x, *y)).collect();
    assert_eq!(y.to_vec()?, expected);
    assert_eq!(host, expected);
    Ok(())
}

#[test]
fn others() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let xs: Vec<u32> = (0..160).collect();
    let mut x = device.buffer_with_data(&xs)?;
    let grid = Grid::threads(160).group(64);
    reverse.launch(&stream, grid.clone(), (&mut x,))?.wait()?;
    let mut host = xs.clone();
    reverse.host(grid, (&mut host,));
    let expected: Vec<u32> = (0..64).rev().chain((64..128).rev()).chain((128..160).rev()).collect();
    assert_eq!(x.to_vec()?, expected);
    assert_eq!(host, expected);

    let mut x = device.buffer_with_data(&[0i32, 5, 6, 7, -4])?;
    bumps.launch(&stream, Grid::threads(5), (&mut x, 7))?.wait()?;
    assert_eq!(x.to_vec()?, [3, 7, 7, 7, -1]);

    let mut x = device.buffer_with_data(&[1.0f32, 2.0])?;
    powers.launch::<f32, 3>(&stream, Grid::threads(2), (&mut x, 2.0))?.wait()?;
    assert_eq!(x.to_vec()?, [8.0, 16.0]);
    let mut x = device.buffer_with_data(&[1i32, 2])?;
    powers.launch::<_, 40>(&stream, Grid::threads(2), (&mut x, 3))?.wait()?;
    assert_eq!(x.to_vec()?, [3i32.wrapping_pow(40), 3i32.wrapping_pow(40).wrapping_mul(2)]);
    Ok(())
}
