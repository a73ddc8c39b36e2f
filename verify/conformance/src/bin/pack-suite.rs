//! Packs every kernel of the suite into a bundle: `pack-suite BUNDLE [sm_90]`, for machines without a compiler.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use elinvar::Device;
use elinvar_code::user_cache;
use elinvar_conformance::packing::Packing;
use elinvar_conformance::suite::{Failure, Outcome, cases, pair_cases};
use elinvar_driver::Driver;
use elinvar_ptx::Target;

fn main() -> ExitCode {
    match pack() {
        Ok(said) => {
            println!("{said}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pack-suite: {error}");
            ExitCode::FAILURE
        }
    }
}

fn pack() -> Result<String, Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let to = PathBuf::from(arguments.next().ok_or("usage: pack-suite BUNDLE [sm_90]")?);
    let target: Target = match arguments.next() {
        Some(name) => name.to_string_lossy().parse()?,
        None => Target::default(),
    };
    let below = elinvar_driver_cpu::driver().devices()?.into_iter().next().ok_or("there is no CPU device")?;
    let device = Packing::new(below, user_cache(), target);
    let packed = device.packed();
    let device = Device::new(Arc::new(device));
    let (cases, next) = (cases(), AtomicUsize::new(0));
    let failed = AtomicUsize::new(0);
    let unsupported = AtomicUsize::new(0);
    let count = |name: &str, outcome: Result<Outcome, Failure>| match outcome {
        Ok(Outcome::Computed) => {}
        Ok(Outcome::Unsupported(_)) => drop(unsupported.fetch_add(1, Ordering::Relaxed)),
        Err(error) => {
            eprintln!("{name}: {error}");
            failed.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
                    count(case.name, case.run(&device));
                }
            });
        }
    });
    let (pairs, cpu) = (pair_cases(), Device::cpu()?);
    for case in &pairs {
        count(case.name, case.run(&device, &cpu));
    }
    let packed = packed.lock();
    for (source, error) in &packed.refused {
        eprintln!("not packed: {source}: {error}");
    }
    let bytes = packed.bundle.to_bytes();
    std::fs::write(&to, &bytes)?;
    let [failed, unsupported] = [failed, unsupported].map(AtomicUsize::into_inner);
    Ok(format!(
        "{} cases ({failed} failed, {unsupported} unsupported), {} kernels, {} records, {} bytes in {}",
        cases.len() + pairs.len(),
        packed.kernels.len(),
        packed.bundle.len(),
        bytes.len(),
        to.display()
    ))
}
