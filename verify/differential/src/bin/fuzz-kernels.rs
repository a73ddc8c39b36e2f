//! Compares random kernels, compiled for the CPU, with the reference interpreter.
//!
//! `fuzz-kernels [--count N] [--seed S] [--out DIR] [--kernels any|indexed|divergent|logging] [--sizes any|static|dynamic] [--barriers any|grid]`: N kernels from
//! seed S on, of any kind, with indices of all widths, with barriers in divergent control flow or with log calls, compiled for their
//! threadgroup size or with the size as a value, with barriers at which threadgroups wait or all of which suspend them. Each difference is reduced, printed, and written to DIR; rejected kernels are listed. The
//! exit code is 1 if there are differences.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use elinvar_differential::{BATCH, Kernel, Outcome, check, shrink};

fn main() -> ExitCode {
    elinvar_spmd::verify_each(true);
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
    let mut made: fn(u64) -> Kernel = Kernel::random;
    let (mut dynamic, mut grid) = (None, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().with_context(|| format!("{word} needs a value"))?;
        match word.as_str() {
            "--count" => count = value.parse().context("--count takes a number")?,
            "--seed" => seed = value.parse().context("--seed takes a number")?,
            "--kernels" => {
                made = match value.as_str() {
                    "any" => Kernel::random,
                    "indexed" => Kernel::indexed,
                    "divergent" => Kernel::divergent,
                    "logging" => Kernel::logging,
                    _ => bail!("--kernels is any, indexed, divergent or logging"),
                }
            }
            "--sizes" => {
                dynamic = match value.as_str() {
                    "any" => None,
                    "static" => Some(false),
                    "dynamic" => Some(true),
                    _ => bail!("--sizes is any, static or dynamic"),
                }
            }
            "--barriers" => {
                grid = match value.as_str() {
                    "any" => false,
                    "grid" => true,
                    _ => bail!("--barriers is any or grid"),
                }
            }
            "--out" => folder = Some(std::path::PathBuf::from(value)),
            _ => bail!(
                "usage: fuzz-kernels [--count N] [--seed S] [--out DIR] [--kernels any|indexed|divergent|logging] [--sizes any|static|dynamic] [--barriers any|grid]"
            ),
        }
    }
    let (mut different, mut refused, mut long) = (0, 0, 0);
    let last = seed.checked_add(count).context("seeds beyond 64 bits")?;
    let mut first = seed;
    while first < last {
        let end = (first - first % BATCH).saturating_add(BATCH).min(last);
        let mut kernels: Vec<Kernel> = (first..end).map(made).collect();
        for kernel in &mut kernels {
            kernel.setting.dynamic = dynamic.unwrap_or(kernel.setting.dynamic);
            kernel.setting.grid |= grid;
        }
        for (kernel, outcome) in kernels.iter().zip(check(&kernels)) {
            match outcome {
                Outcome::Same => {}
                Outcome::TooLong => long += 1,
                Outcome::Refused(why) => {
                    refused += 1;
                    println!("seed {}: {why}", kernel.seed);
                }
                Outcome::Different(what) => {
                    different += 1;
                    report(kernel, &what, folder.as_deref())?;
                }
            }
        }
        eprintln!("seeds below {end}: {different} different, {refused} refused, {long} too long");
        first = end;
    }
    println!("{count} kernels from seed {seed}: {different} different, {refused} refused, {long} too long");
    Ok(different)
}

fn report(kernel: &Kernel, what: &str, folder: Option<&std::path::Path>) -> Result<()> {
    println!("seed {}: {what}", kernel.seed);
    let smallest = shrink(kernel, &mut |kernel| {
        matches!(check(std::slice::from_ref(kernel))[..], [Outcome::Different(_)])
    });
    println!("{}", smallest.source());
    if let Some(folder) = folder {
        let path = folder.join(format!("{}.metal", kernel.seed));
        std::fs::write(&path, smallest.source()).with_context(|| format!("{}", path.display()))?;
    }
    Ok(())
}
