//! Helper functions, structs and small arrays on the default device and on the host.

use elinvar::kernel::Vec3;
use elinvar::{Device, Grid, Result};
use elinvar_rust_kernels::functions::{Node, Samples, change_nodes, matrices, rotate_group, spaces};

#[test]
fn references_into_each_address_space() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let xs: Vec<u32> = (0..64).map(|i| i * 3 % 100).collect();
    let x = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<u32>(384)?;
    let grid = Grid::threads(64).group(32);
    spaces.launch(&stream, grid.clone(), (&x, &mut out))?.wait()?;
    let mut host = vec![0; 384];
    spaces.host(grid, (&xs, &mut host));
    let mut expected = Vec::new();
    for i in 0..64 {
        let group = i / 32 * 32;
        expected.push(xs[i..(i + 4).min(64)].iter().sum());
        expected.push(xs[group..group + 32].iter().map(|x| x + 1).sum());
        expected.push(xs[i] + 3 + 6 + 4);
        expected.push(xs[i].max(50));
        expected.push(if xs[i] > 7 { xs[i] * 2 } else { 15 });
        expected.push(xs[i] * 3 + 13);
    }
    assert_eq!(host, expected);
    assert_eq!(out.to_vec()?, expected);
    Ok(())
}

#[test]
fn structs_with_arrays() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let samples = |i: usize| Samples { values: [i as f32, 2.0, 6.0], count: 2 };
    let given: Vec<Node> =
        (0..9).map(|i| Node { place: Vec3::new(i as f32, 1.0, -1.0), samples: samples(i) }).collect();
    let first = Samples { values: [1.0, 2.0, 4.0], count: 1 };
    for flip in [false, true] {
        let mut buffer = device.buffer_with_data(&given)?;
        change_nodes.launch(&stream, Grid::threads(9), (&mut buffer, flip, 0.5, first))?.wait()?;
        let mut host = given.clone();
        change_nodes.host(Grid::threads(9), (&mut host, flip, 0.5, first));
        let expected: Vec<Node> = (0..9)
            .map(|i| {
                let x = i as f32;
                let (scale, mut values) = if flip { (-0.5, [6.0, 2.0, x]) } else { (0.5, [x, 2.0, 6.0]) };
                values[1] += (values[0] + values[1]) / 2.0 * scale + 1.0;
                let place = Vec3::new(x * scale + 1.0, scale + 2.0, x);
                Node { place, samples: Samples { values, count: 2 } }
            })
            .collect();
        assert_eq!(host, expected);
        assert_eq!(buffer.to_vec()?, expected);
    }
    Ok(())
}

#[test]
fn arrays_of_arrays_and_dynamic_threadgroup_memory() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let xs: Vec<f32> = (0..40).map(|i| i as f32).collect();
    let x = device.buffer_with_data(&xs)?;
    let mut out = device.buffer::<f32>(40)?;
    matrices.launch(&stream, Grid::threads(10), (&x, &mut out))?.wait()?;
    let mut host = vec![0.0; 40];
    matrices.host(Grid::threads(10), (&xs, &mut host));
    let expected: Vec<f32> = xs.chunks(4).flat_map(|m| [-m[2], -m[3], m[0], m[1]]).collect();
    assert_eq!(host, expected);
    assert_eq!(out.to_vec()?, expected);

    let xs: Vec<i32> = (0..48).collect();
    let mut x = device.buffer_with_data(&xs)?;
    let grid = Grid::threads(48).group(16);
    rotate_group.launch(&stream, grid.clone(), (&mut x, 16))?.wait()?;
    let mut host = xs.clone();
    rotate_group.host(grid, (&mut host, 16));
    let expected: Vec<i32> = xs.iter().map(|x| x / 16 * 16 + (x + 1) % 16).collect();
    assert_eq!(host, expected);
    assert_eq!(x.to_vec()?, expected);
    Ok(())
}
