//! `cargo xtask opencl`: translates published OpenCL C and compiles the results.
//!
//! The packages are downloaded, never committed; nothing of them runs. Each translation is checked by the front end, and IR is generated for its
//! first kernel. One that does not compile, or has a warning about address spaces, is a failure; kernels that are refused are counted by reason,
//! and files that are not valid OpenCL C without what their hosts add are counted apart.

mod packages;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use elinvar_driver::Source;
use elinvar_msl::{Program, Toolchain};
use elinvar_translate::{Error, Options};

use self::packages::{PACKAGES, Package};

/// Result of a file.
#[derive(Default)]
struct Outcome {
    kernels: usize,
    refused: usize,
    reasons: Vec<String>,
    failure: Option<String>,
    /// Whether it is not valid without what its host adds.
    is_invalid: bool,
}

/// Surveys every `--every=N`th file of packages, at `--lanes=N` components. A word is a package, or a part of a file's name.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let (mut every, mut lanes, mut part) = (None, "1", "");
    let mut chosen: Vec<&Package> = Vec::new();
    for word in words {
        match word.split_once('=') {
            Some(("--every", number)) => every = Some(number.parse().context("--every=N")?),
            Some(("--lanes", number)) => lanes = number,
            _ if word.starts_with("--") => bail!("unknown option {word}"),
            _ => match PACKAGES.iter().find(|package| package.name == *word) {
                Some(package) => chosen.push(package),
                None => part = word,
            },
        }
    }
    if chosen.is_empty() {
        chosen.extend(PACKAGES);
    }
    let toolchain = Toolchain::find()?;
    let (mut kernels, mut failures) = (0, 0);
    for package in chosen {
        let (own, failed) =
            survey_package(root, &toolchain, package, every.unwrap_or(package.every), lanes, part)?;
        kernels += own;
        failures += failed;
    }
    println!("{kernels} kernels translated and compiled");
    match failures {
        0 => Ok(()),
        failures => bail!("{failures} files failed"),
    }
}

/// Kernels that compile, and files that fail.
fn survey_package(
    root: &Path,
    toolchain: &Toolchain,
    package: &Package,
    every: usize,
    lanes: &str,
    part: &str,
) -> Result<(usize, usize)> {
    let folder = packages::fetch(&root.join("corpora"), package)?;
    let mut files = Vec::new();
    collect(&folder, &mut files)?;
    files.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(package.prefix) && name.contains(part)
    });
    files.sort();
    let files: Vec<PathBuf> = files.into_iter().step_by(every.max(1)).collect();
    let outcomes =
        crate::corpus::in_parallel(&files, |file| survey(toolchain, package, &folder, file, lanes));
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (file, outcome) in files.iter().zip(&outcomes) {
        if let Some(failure) = &outcome.failure {
            println!("{}: {failure}", file.display());
        }
        outcome.reasons.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1);
    }
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    let kernels = sum(|o| o.kernels);
    println!(
        "{}: {} files: {kernels} kernels translated and compiled, {} refused; {} files need macros of their host",
        package.name,
        files.len(),
        sum(|o| o.refused),
        sum(|o| usize::from(o.is_invalid))
    );
    reasons.iter().for_each(|(reason, places)| println!("  {places} places: {reason}"));
    Ok((kernels, outcomes.iter().filter(|outcome| outcome.failure.is_some()).count()))
}

/// The files with kernels below a folder.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "cl") {
            files.push(path);
        }
    }
    Ok(())
}

fn survey(toolchain: &Toolchain, package: &Package, folder: &Path, file: &Path, lanes: &str) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.failure = attempt(toolchain, package, folder, file, lanes, &mut outcome).err();
    outcome
}

fn attempt(
    toolchain: &Toolchain,
    package: &Package,
    folder: &Path,
    file: &Path,
    lanes: &str,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&bytes);
    let mut source = Source::named(file.display().to_string(), text).include_dir(folder);
    for (name, value) in package.defines {
        source = source.define(*name, Some(&value.replace("$FOLDER", &folder.display().to_string())));
    }
    let source = source.define("VECT_SIZE", Some(lanes));
    let translation = elinvar_translate::opencl(toolchain, &source, &Options::default());
    let translation = match translation {
        Err(Error::Compile(_)) => {
            outcome.is_invalid = true;
            return Ok(());
        }
        other => other.map_err(|error| error.to_string())?,
    };
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
    let known = |name: &str| program.kernels().iter().any(|kernel| kernel.name == name);
    if let Some(kernel) = translation.kernels.iter().find(|kernel| !known(&kernel.name)) {
        return Err(format!("kernel `{}` is missing in the translation", kernel.name));
    }
    outcome.kernels = translation.kernels.len();
    // Code of one kernel of each file.
    let first = &translation.kernels[0].name;
    program.ir(first).map_err(|error| format!("kernel `{first}`: {error}"))?;
    Ok(())
}
