//! `cargo xtask cuda`: translates published CUDA C++ and compiles the results.
//!
//! The corpus is files of packages of crates.io and PyPI, downloaded, never committed; nothing of the packages runs. Each translation is
//! checked by the front end, and IR is generated for its first kernel, with `--all` for every kernel. One that does not compile, or has a warning about address
//! spaces, is a failure; kernels that are refused are counted by reason. Host code is skipped, and templates without an instance get one of `float` and 1.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use elinvar_driver::Source;
use elinvar_msl::{Program, Toolchain};
use elinvar_translate::CudaOptions;

/// A package, and folders of headers in it.
struct Package {
    /// Name and version.
    name: &'static str,
    /// The part of PyPI's address that is a hash; empty for a package of crates.io.
    hash: &'static str,
    /// Folders that are searched for headers, below the archive's.
    include: &'static [&'static str],
}

const PACKAGES: &[Package] = &[
    Package { name: "candle-kernels-0.9.1", hash: "", include: &["src"] },
    Package { name: "dfdx-0.13.0", hash: "", include: &["src/tensor_ops/utilities"] },
    Package { name: "cudarc-0.17.3", hash: "", include: &[] },
    Package { name: "cust-0.3.2", hash: "", include: &[] },
    Package { name: "rustacuda-0.1.3", hash: "", include: &[] },
    Package { name: "tract-cuda-0.23.9", hash: "", include: &[] },
    Package { name: "mistralrs-core-0.8.1", hash: "", include: &[] },
    Package { name: "mistralrs-paged-attn-0.8.1", hash: "", include: &[] },
    Package { name: "mistralrs-quant-0.8.1", hash: "", include: &[] },
    Package { name: "risc0-sys-5.0.0-rc.1", hash: "", include: &["cxx", "kernels/zkp/cuda"] },
    Package {
        name: "gsplat-1.5.3",
        hash: "6d/94/a0963873708223385ac926112dc3e40ab08297784ac53d95309b4cb5a801",
        include: &["gsplat/cuda/include"],
    },
    Package {
        name: "torch_scatter-2.1.2",
        hash: "f5/ab/2a44ecac0f891dd0d765fc59ac8d277c6283a31907626560e72685df2ed6",
        include: &[],
    },
    Package {
        name: "torch_cluster-1.6.3",
        hash: "54/31/e7f7a28253cd907404eb652607613b35779140b326d15d0636511b7b9438",
        include: &[],
    },
    Package {
        name: "torch_sparse-0.6.18",
        hash: "42/e2/cddf10a8e32a0b214918943e6173672c8ec11000e69c36dad8e6b141cb60",
        include: &[],
    },
    Package {
        name: "auto_gptq-0.7.1",
        hash: "90/e5/b22697903982284fe284568fb2663a2196694a8eee637f5cf4ccfe435a38",
        include: &[],
    },
    Package {
        name: "nerfacc-0.5.3",
        hash: "8a/c3/36c5bf9a77580b4cb2ecac8d41037cc6b5051f91a6c4eaa8d189c50dcbf3",
        include: &[],
    },
    Package {
        name: "mmcv-2.2.0",
        hash: "e9/a2/57a733e7e84985a8a0e3101dfb8170fc9db92435c16afad253069ae3f9df",
        include: &["mmcv/ops/csrc/common/cuda", "mmcv/ops/csrc/common"],
    },
];

/// Result of a file.
#[derive(Default)]
struct Outcome {
    kernels: usize,
    refused: usize,
    /// Templates without an instance.
    templates: usize,
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
    println!("{:<28} {:>5} {:>10} {:>7} {:>9}", "package", "files", "translated", "refused", "templates");
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
            sum.templates += outcome.templates;
            outcome.reasons.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1);
        }
        println!(
            "{:<28} {:>5} {:>10} {:>7} {:>9}",
            package.name,
            files.len(),
            sum.kernels,
            sum.refused,
            sum.templates
        );
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
    for parent in file.ancestors().skip(1).take_while(|parent| parent.starts_with(folder)) {
        source = source.include_dir(parent);
    }
    for include in package.include {
        source = source.include_dir(folder.join(include));
    }
    let translate = |instances: Vec<String>| {
        let options = CudaOptions { skip_host: true, instances, ..CudaOptions::default() };
        elinvar_translate::cuda(toolchain, &source, &options)
    };
    let mut translation = translate(Vec::new()).map_err(|error| error.to_string())?;
    // Instances with `float` and 1, where these are arguments of the template.
    let is_valid = |instance: &String| translate(vec![instance.clone()]).is_ok();
    let instances: Vec<String> = translation.templates.iter().filter(|one| is_valid(one)).cloned().collect();
    outcome.templates = translation.templates.len() - instances.len();
    if !instances.is_empty() {
        translation = translate(instances).map_err(|error| error.to_string())?;
    }
    outcome.refused = translation.refused.len();
    outcome.reasons = translation.errors.into_iter().map(|error| error.message).collect();
    if translation.kernels.is_empty() {
        return Ok(());
    }
    let msl = Source::named("translation.metal", translation.msl).check_spaces();
    let program = Program::compile(toolchain, &msl).map_err(|error| error.to_string())?;
    // A cast in the original may drop `const`, as in C++.
    if let Some(warning) = program.warnings().iter().find(|warning| !warning.message.contains("drops const"))
    {
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
    let name = package.name;
    let url = match package.hash {
        "" => {
            // The version begins with the first digit behind a hyphen.
            let version = name
                .match_indices('-')
                .find(|(at, _)| name[at + 1..].starts_with(|c: char| c.is_ascii_digit()));
            let own = version.map_or(name, |(at, _)| &name[..at]);
            format!("https://static.crates.io/crates/{own}/{name}.crate")
        }
        hash => format!("https://files.pythonhosted.org/packages/{hash}/{name}.tar.gz"),
    };
    let script = format!("curl -sSfL --retry 2 {url} | tar xz");
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
