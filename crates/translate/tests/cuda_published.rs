//! Published kernels in CUDA C++ that nobody here wrote: each translation's results against values computed here in Rust, and against the
//! original's on a GPU, compiled by NVRTC.
//!
//! The files are those of `candle-kernels`, `dfdx`, `cudarc` and `cust`, which `cargo xtask cuda` downloads: ELINVAR_CUDA_CORPUS names
//! `corpora/cuda`. Without it the cases are ignored, and those with NVRTC also without a GPU or NVRTC; the reason is printed. Integers, and
//! floats where no tolerance is given, must be equal bit by bit; a tolerance is in units in the last place.
#![allow(unsafe_code)] // launches

#[path = "support/cuda_cases/mod.rs"]
mod cuda_cases;
#[path = "support/nvrtc.rs"]
mod nvrtc;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cuda_cases::{Case, Kind};
use elinvar::driver::ElementType;
use elinvar::{Arg, Device, Grid, Source, Threadgroup};
use elinvar_msl::Toolchain;
use elinvar_translate::CudaOptions;
use libtest_mimic::{Arguments, Failed, Trial};
use nvrtc::Value;

fn includes(corpus: &Path, file: &Path) -> Vec<PathBuf> {
    let mut folders = vec![file.parent().unwrap_or(corpus).to_owned()];
    folders.push(corpus.join("dfdx-0.13.0/src/tensor_ops/utilities"));
    folders
}

/// Memory of the arguments after the translation has run on a device.
fn translated(case: &Case, corpus: &Path, device: &Device) -> Result<Vec<Vec<u8>>, String> {
    let path = corpus.join(case.file);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut source = elinvar_driver::Source::named(path.display().to_string(), text);
    for folder in includes(corpus, &path) {
        source = source.include_dir(folder);
    }
    let toolchain = Toolchain::find().map_err(|error| error.to_string())?;
    let options = CudaOptions { kernels: vec![case.kernel.to_owned()], ..CudaOptions::default() };
    let translation =
        elinvar_translate::cuda(&toolchain, &source, &options).map_err(|error| error.to_string())?;
    if let Some(error) = translation.errors.first() {
        return Err(error.to_string());
    }
    let source = Source::named("translation.metal", translation.msl.as_str()).check_spaces();
    let library = device.compile(source).map_err(|error| format!("{error}\n{}", translation.msl))?;
    if let Some(warning) = library.warnings().first() {
        return Err(format!("{warning}\n{}", translation.msl));
    }
    let kernel = library.kernel(case.kernel).map_err(|error| error.to_string())?;
    let mut buffers = Vec::new();
    let mut args: Vec<Arg> = Vec::new();
    for (arg, declared) in case.args.iter().zip(&kernel.signature().args) {
        match arg {
            Value::Memory(bytes) => {
                let mut buffer = device.buffer_with_data(bytes).map_err(|error| error.to_string())?;
                let memory = Arg::from(&mut buffer);
                args.push(match declared.element {
                    ElementType::Scalar(scalar) => memory.of(scalar),
                    _ => memory,
                });
                buffers.push(buffer);
            }
            Value::Number(bytes) => args.push(Arg::bytes(bytes)),
        }
    }
    if case.shared > 0 {
        args.push(Threadgroup::bytes(case.shared as usize).into());
    }
    let stream = device.stream().map_err(|error| error.to_string())?;
    let size = |n: [u32; 3]| (n[0] as usize, n[1] as usize, n[2] as usize);
    let grid = Grid::groups(size(case.groups)).group(size(case.group));
    // SAFETY: the case's arguments are those of the kernel, which stays within them.
    let done = unsafe { kernel.launch(&stream, grid, args) }.and_then(|done| done.wait());
    done.map_err(|error| format!("{error}\n{}", translation.msl))?;
    buffers.iter().map(|buffer| buffer.to_vec().map_err(|error| error.to_string())).collect()
}

/// Compares the elements of the results; `expected` has the memory of all arguments, or that of the one with the results.
fn compare(case: &Case, found: &[Vec<u8>], expected: &[u8]) -> Result<(), String> {
    let found = &found[case.result];
    if found.len() != expected.len() {
        return Err(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let size = case.kind.size();
    let pairs = found.chunks(size).zip(expected.chunks(size));
    for (index, (a, b)) in pairs.enumerate() {
        let distance = case.kind.distance(a, b);
        if distance > u64::from(case.ulp) {
            let (a, b) = (case.kind.show(a), case.kind.show(b));
            return Err(format!(
                "element {index} is {a} instead of {b}: {distance} ulp, allowed are {}",
                case.ulp
            ));
        }
    }
    Ok(())
}

fn reference(case: &Case, corpus: &Path, device: &Device) -> Result<(), Failed> {
    let found = translated(case, corpus, device)?;
    let initial = case
        .args
        .iter()
        .filter_map(|arg| if let Value::Memory(bytes) = arg { Some(bytes) } else { None })
        .nth(case.result);
    if initial.is_some_and(|bytes| *bytes == case.expected) {
        return Err("the case expects what is there before".into());
    }
    Ok(compare(case, &found, &case.expected)?)
}

fn original(case: &Case, corpus: &Path, device: &Device) -> Result<(), Failed> {
    let file = corpus.join(case.file);
    let theirs = nvrtc::run(
        &file,
        &includes(corpus, &file),
        case.kernel,
        [case.groups, case.group],
        case.shared,
        &case.args,
    )?;
    let ours = translated(case, corpus, device)?;
    // Both have errors of their own.
    let both = Case { ulp: 2 * case.ulp, ..case.clone() };
    Ok(compare(&both, &ours, &theirs[case.result])?)
}

fn main() -> ExitCode {
    let corpus = std::env::var_os("ELINVAR_CUDA_CORPUS").map(PathBuf::from);
    let corpus = corpus.and_then(|folder| std::fs::canonicalize(folder).ok());
    let missing =
        "ELINVAR_CUDA_CORPUS does not name the folder `corpora/cuda`: run `cargo xtask cuda`".to_owned();
    let absence = corpus.is_none().then_some(missing);
    let without = absence.clone().or_else(nvrtc::absence);
    for why in [&absence, &without].into_iter().flatten().collect::<std::collections::BTreeSet<_>>() {
        eprintln!("cases with published kernels are ignored: {why}");
    }
    let devices = Device::all().unwrap_or_default();
    let corpus = corpus.unwrap_or_default();
    let mut trials = Vec::new();
    for case in cuda_cases::all() {
        for device in &devices {
            let kind = format!("{:?}", device.kind()).to_lowercase();
            let (one, folder, at) = (case.clone(), corpus.clone(), device.clone());
            let run = move || reference(&one, &folder, &at);
            trials.push(
                Trial::test(format!("{}::reference::{kind}", case.name()), run)
                    .with_ignored_flag(absence.is_some()),
            );
            let (one, folder, at) = (case.clone(), corpus.clone(), device.clone());
            let run = move || original(&one, &folder, &at);
            trials.push(
                Trial::test(format!("{}::nvrtc::{kind}", case.name()), run)
                    .with_ignored_flag(without.is_some()),
            );
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

impl Kind {
    /// Units in the last place between two elements; 0 for two NaNs.
    fn distance(self, a: &[u8], b: &[u8]) -> u64 {
        let order = |bits: i64, width: u32| {
            if bits >> (width - 1) & 1 == 1 { (1 << (width - 1)) - bits } else { bits }
        };
        match self {
            Self::Exact(_) => u64::from(a != b) * u64::from(u32::MAX) * 2,
            Self::F32 => {
                let bits = |x: &[u8]| i64::from(u32::from_le_bytes([x[0], x[1], x[2], x[3]]));
                let nan = |x: &[u8]| f32::from_bits(bits(x) as u32).is_nan();
                if nan(a) && nan(b) { 0 } else { order(bits(a), 32).abs_diff(order(bits(b), 32)) }
            }
            Self::F16 | Self::BF16 => {
                let bits = |x: &[u8]| i64::from(u16::from_le_bytes([x[0], x[1]]));
                order(bits(a), 16).abs_diff(order(bits(b), 16))
            }
        }
    }

    fn show(self, bytes: &[u8]) -> String {
        match self {
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).to_string(),
            _ => format!("{bytes:?}"),
        }
    }

    fn size(self) -> usize {
        match self {
            Self::Exact(size) => size,
            Self::F32 => 4,
            Self::F16 | Self::BF16 => 2,
        }
    }
}
