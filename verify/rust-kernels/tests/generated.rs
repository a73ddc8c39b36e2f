//! Random kernels (`generate.rs`) on the CPU device and on the host: every element is equal.
//!
//! `ELINVAR_RUST_KERNELS_SEED=7 ELINVAR_RUST_KERNELS_COUNT=500 cargo test -p elinvar-rust-kernels --test generated` for others.

use elinvar::{Device, Grid, Result, Source, SourceFile};

/// rustc knows results that kernels compute from constants.
#[allow(warnings, arithmetic_overflow, unconditional_panic, overflowing_literals)]
#[allow(clippy::all)]
mod kernels {
    use elinvar::{Device, Grid, Result};

    include!(concat!(env!("OUT_DIR"), "/generated.rs"));

    type Host = fn(&[i32], &[u64], &[f32], &mut [u64]);
    type Entry = (&'static str, &'static str, Host);

    pub fn all() -> Vec<Entry> {
        let mut all: Vec<Entry> = Vec::new();
        macro_rules! add {
            ($name:ident) => {
                all.push((stringify!($name), $name::MSL, |a, b, f, out| {
                    $name.host(Grid::threads(out.len() / 64), (a, b, f, out))
                }));
            };
        }
        with_all!(add);
        all
    }
}

const THREADS: usize = 48;
/// Results of a thread.
const SLOTS: usize = 64;

#[test]
fn devices_agree_with_the_host() -> Result<()> {
    let device = Device::system_default()?;
    let stream = device.stream()?;
    let mut state = 0x1234_5678_9abc_def1u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let a: Vec<i32> =
        (0..THREADS).map(|i| if i % 3 == 0 { (i % 16) as i32 } else { next() as i32 }).collect();
    let b: Vec<u64> = (0..THREADS).map(|i| if i % 4 == 0 { i as u64 } else { next() }).collect();
    let special =
        [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-40, -2.5, 1e9, -3e18];
    let f: Vec<f32> = (0..THREADS)
        .map(|i| {
            if i % 2 == 0 { special[i / 2 % special.len()] } else { (next() % 100_000) as f32 / 64.0 - 500.0 }
        })
        .collect();
    let (ba, bb, bf) =
        (device.buffer_with_data(&a)?, device.buffer_with_data(&b)?, device.buffer_with_data(&f)?);
    let mut differences = Vec::new();
    let kernels = kernels::all();
    for (name, text, host) in &kernels {
        let mut expected = vec![0u64; THREADS * SLOTS];
        host(&a, &b, &f, &mut expected);
        let file = SourceFile { name: format!("{name}.metal"), text: (*text).into() };
        let source = Source { files: vec![file], math: elinvar::MathMode::Safe, ..Source::default() };
        let options = elinvar::KernelOptions::new().tier(elinvar::Tier::Quick);
        let kernel =
            match device.compile(source).and_then(|library| library.checked_kernel_with(name, options)) {
                Ok(kernel) => kernel,
                Err(error) => {
                    differences.push(format!("{name}: {error}\n{text}"));
                    continue;
                }
            };
        let mut out = device.buffer::<u64>(THREADS * SLOTS)?;
        let mut arguments: Vec<elinvar::Arg> =
            vec![(&ba).into(), (&bb).into(), (&bf).into(), (&mut out).into()];
        if text.contains("b_len [[buffer(4)]]") {
            arguments.push((THREADS as u32).into());
        }
        if let Err(error) =
            kernel.launch(&stream, Grid::threads(THREADS), arguments).and_then(|done| done.wait())
        {
            stream.acknowledge();
            differences.push(format!("{name}: {error}\n{text}"));
            continue;
        }
        let found = out.to_vec()?;
        if let Some(at) = (0..THREADS * SLOTS).find(|at| found[*at] != expected[*at]) {
            differences.push(format!(
                "{name}: result {} of thread {} is {:#x}, on the host {:#x}\n{text}",
                at % SLOTS,
                at / SLOTS,
                found[at],
                expected[at]
            ));
        }
    }
    assert!(
        differences.is_empty(),
        "{} of {} kernels differ; the first:\n{}",
        differences.len(),
        kernels.len(),
        differences[0]
    );
    println!("{} kernels, no difference", kernels.len());
    Ok(())
}
