//! Attention and a residual layer normalization by tensor operations, compared with the same in `f64`.

use elinvar::tensor::{Attention, Map, Normalize};
use elinvar::{Device, Result};

const HEADS: usize = 2;
const LENGTH: usize = 12;
const WIDTH: usize = 8;
const COUNT: usize = HEADS * LENGTH * WIDTH;

/// Runs both and compares every element; returns the number of elements.
pub fn run(device: &Device) -> Result<usize> {
    let x: Vec<f32> = (0..COUNT).map(|i| ((i * 37 % 64) as f32 - 32.0) / 16.0).collect();
    let shape = [1, HEADS, LENGTH, WIDTH];
    let input = device.buffer_with_data(&x)?;
    let (mut mixed, mut out) = (device.buffer::<f32>(COUNT)?, device.buffer::<f32>(COUNT)?);
    let view = input.tensor(&shape)?;
    let layer_norm = Normalize { scale: false, bias: false, ..Normalize::layer(&[3]) };

    let stream = device.stream()?;
    let mut commands = stream.command_buffer();
    commands.tensor(Attention::causal(), &[&view, &view, &view], &mut [&mut mixed.tensor_mut(&shape)?])?;
    let alias = mixed.clone();
    // A map may write one of its operands.
    commands.tensor(Map::ADD, &[&alias.tensor(&shape)?, &view], &mut [&mut mixed.tensor_mut(&shape)?])?;
    commands.tensor(layer_norm, &[&mixed.tensor(&shape)?], &mut [&mut out.tensor_mut(&shape)?])?;
    commands.submit()?.wait()?;

    let out = out.to_vec()?;
    for (row, got) in out.chunks(WIDTH).enumerate() {
        for (got, expected) in got.iter().zip(expected(&x, row)) {
            assert!((f64::from(*got) - expected).abs() < 1e-4, "row {row}: {got}, expected {expected}");
        }
    }
    Ok(out.len())
}

/// A row of the result.
fn expected(x: &[f32], row: usize) -> Vec<f64> {
    let (head, query) = (row / LENGTH, row % LENGTH);
    let of = |position: usize| x[(head * LENGTH + position) * WIDTH..][..WIDTH].iter().map(|x| f64::from(*x));
    let score = |key: usize| of(query).zip(of(key)).map(|(a, b)| a * b).sum::<f64>() / (WIDTH as f64).sqrt();
    let weights: Vec<f64> = (0..=query).map(|key| score(key).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let mut values: Vec<f64> = of(query).collect();
    for (key, weight) in weights.iter().enumerate() {
        values.iter_mut().zip(of(key)).for_each(|(value, x)| *value += weight / sum * x);
    }
    let mean = values.iter().sum::<f64>() / WIDTH as f64;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / WIDTH as f64;
    values.iter().map(|x| (x - mean) / (variance + 1e-5).sqrt()).collect()
}

#[allow(dead_code)] // the demo calls `run` of every example
fn main() -> Result<()> {
    let device = Device::system_default()?;
    println!("tensor on {}: {} elements are right", device.name(), run(&device)?);
    Ok(())
}
