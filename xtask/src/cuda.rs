//! `cargo xtask cuda`: translates published CUDA C++ and compiles the results.
//!
//! The corpus is files of packages of crates.io and PyPI, downloaded, never committed; nothing of the packages runs. Each translation is
//! checked by the front end, and IR is generated for its first kernel, with `--all` for every kernel. One that does not compile, or has a warning about address spaces, is a
//! failure; kernels that are refused are counted by reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use elinvar_driver::Source;
use elinvar_msl::{Program, Toolchain};
use elinvar_translate::CudaOptions;

/// A package: its archive, and folders of headers in it.
struct Package {
    name: &'static str,
    url: &'static str,
    /// Folders that are searched for headers, below the archive's.
    include: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package {
        name: "candle-kernels-0.9.1",
        url: "https://static.crates.io/crates/candle-kernels/candle-kernels-0.9.1.crate",
        include: &["src"],
    },
    Package {
        name: "dfdx-0.13.0",
        url: "https://static.crates.io/crates/dfdx/dfdx-0.13.0.crate",
        include: &["src/tensor_ops/utilities"],
    },
    Package {
        name: "cudarc-0.17.3",
        url: "https://static.crates.io/crates/cudarc/cudarc-0.17.3.crate",
        include: &[],
    },
    Package {
        name: "cust-0.3.2",
        url: "https://static.crates.io/crates/cust/cust-0.3.2.crate",
        include: &[],
    },
    Package {
        name: "rustacuda-0.1.3",
        url: "https://static.crates.io/crates/rustacuda/rustacuda-0.1.3.crate",
        include: &[],
    },
];

/// Result of a file.
#[derive(Default)]
struct Outcome {
    kernels: usize,
    refused: usize,
    reasons: Vec<String>,
    failure: Option<String>,
}

/// Surveys the files with a part of a name.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let all = words.contains(&"--all");
    let part = match words.iter().filter(|word| **word != "--all").collect::<Vec<_>>()[..] {
        [] => "",
        [part] if !part.starts_with("--") => part,
        _ => bail!("usage: cargo xtask cuda [PART] [--all]"),
    };
    let toolchain = Toolchain::find()?;
    let mut failures = 0;
    let mut total = Outcome::default();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    println!("{:<28} {:>5} {:>10} {:>7}", "package", "files", "translated", "refused");
    for package in PACKAGES {
        let folder = fetch(&root.join("corpora/cuda"), package)?;
        let mut files = Vec::new();
        find(&folder, &mut files)?;
        files.retain(|file| file.display().to_string().contains(part));
        files.sort();
        let mut sum = Outcome::default();
        for file in &files {
            let outcome = survey(&toolchain, package, &folder, file, all);
            if let Some(failure) = &outcome.failure {
                failures += 1;
                println!("{}: {failure}", file.strip_prefix(&folder).unwrap_or(file).display());
            }
            sum.kernels += outcome.kernels;
            sum.refused += outcome.refused;
            outcome.reasons.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1);
        }
        println!("{:<28} {:>5} {:>10} {:>7}", package.name, files.len(), sum.kernels, sum.refused);
        total.kernels += sum.kernels;
        total.refused += sum.refused;
    }
    println!("{} kernels translated and compiled, {} refused", total.kernels, total.refused);
    reasons.iter().for_each(|(reason, places)| println!("  {places} places: {reason}"));
    if failures > 0 { bail!("{failures} files failed") } else { Ok(()) }
}

fn survey(toolchain: &Toolchain, package: &Package, folder: &Path, file: &Path, all: bool) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.failure = attempt(toolchain, package, folder, file, all, &mut outcome).err();
    outcome
}

fn attempt(
    toolchain: &Toolchain,
    package: &Package,
    folder: &Path,
    file: &Path,
    all: bool,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let mut source = Source::named(file.display().to_string(), String::from_utf8_lossy(&bytes));
    source = source.include_dir(file.parent().unwrap_or(folder)).include_dir(folder);
    for include in package.include {
        source = source.include_dir(folder.join(include));
    }
    let translation = elinvar_translate::cuda(toolchain, &source, &CudaOptions::default());
    let translation = translation.map_err(|error| error.to_string())?;
    outcome.refused = translation.refused.len();
    outcome.reasons = translation.errors.into_iter().map(|error| error.message).collect();
    if translation.kernels.is_empty() {
        return Ok(());
    }
    let msl = Source::named("translation.metal", translation.msl).check_spaces();
    let program = Program::compile(toolchain, &msl).map_err(|error| error.to_string())?;
    if let Some(warning) = program.warnings().first() {
        return Err(warning.to_string());
    }
    for kernel in &translation.kernels {
        if !program.kernels().iter().any(|known| known.name == kernel.name) {
            return Err(format!("kernel `{}` is missing in the translation", kernel.name));
        }
    }
    // Code of one kernel of each file, or of all.
    for kernel in translation.kernels.iter().take(if all { usize::MAX } else { 1 }) {
        program.ir(&kernel.name).map_err(|error| format!("kernel `{}`: {error}", kernel.name))?;
    }
    outcome.kernels = translation.kernels.len();
    Ok(())
}

/// The `.cu` files below a folder.
fn find(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "cu") {
            files.push(path);
        }
    }
    Ok(())
}

/// The folder with a package, downloaded if it does not exist.
fn fetch(corpora: &Path, package: &Package) -> Result<PathBuf> {
    let folder = corpora.join(package.name);
    if folder.is_dir() {
        return Ok(folder);
    }
    std::fs::create_dir_all(corpora)?;
    let partial = tempfile::Builder::new().prefix("elinvar-").tempdir_in(corpora)?;
    let script = format!("curl -sSfL --retry 2 {} | tar xz", package.url);
    let status = Command::new("sh")
        .args(["-ec", &script])
        .current_dir(partial.path())
        .status()
        .context("running sh")?;
    if !status.success() || !partial.path().join(package.name).is_dir() {
        bail!("`{script}` failed");
    }
    std::fs::rename(partial.path().join(package.name), &folder)?;
    Ok(folder)
}
