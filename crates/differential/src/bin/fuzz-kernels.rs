//! Compares random kernels on the CPU with the reference interpreter.
//!
//! `fuzz-kernels [--count N] [--seed S] [--out DIR]`: N kernels from seed S on. Each difference is shrunk, printed,
//! and written to DIR. Exit code 1 when there was one.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use elinvar::Device;
use elinvar_differential::{Kernel, Outcome, check, shrink};

/// Kernels in one source.
const BATCH: u64 = 8;

fn main() -> ExitCode {
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<usize> {
    let (mut count, mut seed, mut folder) = (100u64, 1u64, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--count" => count = value.parse().context("--count takes a number")?,
            "--seed" => seed = value.parse().context("--seed takes a number")?,
            "--out" => folder = Some(std::path::PathBuf::from(value)),
            _ => bail!("usage: fuzz-kernels [--count N] [--seed S] [--out DIR]"),
        }
    }
    let device = Device::cpu()?;
    let (mut different, mut long) = (0, 0);
    let last = seed.checked_add(count).context("seeds beyond 64 bits")?;
    for first in (seed..last).step_by(BATCH as usize) {
        let kernels: Vec<Kernel> = (first..(first + BATCH).min(last)).map(Kernel::random).collect();
        let outcomes = check(&device, &kernels).with_context(|| format!("seeds from {first}"))?;
        for (kernel, outcome) in kernels.iter().zip(outcomes) {
            match outcome {
                Outcome::Same => {}
                Outcome::TooLong => long += 1,
                Outcome::Different(what) => {
                    different += 1;
                    report(&device, kernel, &what, folder.as_deref())?;
                }
            }
        }
        eprintln!("seeds below {}: {different} different, {long} too long", (first + BATCH).min(last));
    }
    println!("{count} kernels from seed {seed}: {different} different, {long} too long");
    Ok(different)
}

fn report(device: &Device, kernel: &Kernel, what: &str, folder: Option<&std::path::Path>) -> Result<()> {
    println!("seed {}: {what}", kernel.seed);
    let smallest = shrink(kernel, &mut |kernel| {
        check(device, std::slice::from_ref(kernel)).is_ok_and(|o| matches!(o[0], Outcome::Different(_)))
    });
    println!("{}", smallest.source());
    if let Some(folder) = folder {
        let path = folder.join(format!("{}.metal", kernel.seed));
        std::fs::write(&path, smallest.source()).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
