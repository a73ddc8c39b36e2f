//! `cargo xtask opencl`: translates published OpenCL C and compiles the results.
//!
//! The corpus is Debian's `hashcat-data`: over a thousand files, whose kernels use macros, included files, vectors and atomics. It is
//! downloaded, never committed; nothing of the package runs. Each translation is checked by the front end, and IR is generated for its first
//! kernel. One that does not compile, or has a warning about address spaces, is a failure; kernels that are refused are counted by reason.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use elinvar_driver::Source;
use elinvar_msl::{Program, Toolchain};
use elinvar_translate::Options;

const PACKAGE: &str = "hashcat-data";

/// Macros that hashcat defines for a CPU without vectors, for a kernel of hash mode 0.
const DEFINES: &[(&str, &str)] = &[
    ("KERNEL_STATIC", "1"),
    ("VENDOR_ID", "64"),
    ("DEVICE_TYPE", "4"),
    ("XM2S(x)", "#x"),
    ("M2S(x)", "XM2S(x)"),
    ("DGST_R0", "0"),
    ("DGST_R1", "3"),
    ("DGST_R2", "2"),
    ("DGST_R3", "1"),
    ("DGST_ELEM", "4"),
    ("KERN_TYPE", "0"),
    ("FIXED_LOCAL_SIZE", "64"),
    ("ATTACK_EXEC", "11"),
    ("ATTACK_KERN", "0"),
    ("LOCAL_MEM_TYPE", "1"),
    ("HAS_VPERM", "0"),
];

/// Result of a file.
#[derive(Default)]
struct Outcome {
    kernels: usize,
    refused: usize,
    reasons: Vec<String>,
    failure: Option<String>,
}

/// Surveys every `--every=N`th file with a part of a name, at `--lanes=N` components.
pub(crate) fn run(root: &Path, words: &[&str]) -> Result<()> {
    let (mut every, mut lanes, mut part) = (16, "1", "");
    for word in words {
        match word.split_once('=') {
            Some(("--every", number)) => every = number.parse().context("--every=N")?,
            Some(("--lanes", number)) => lanes = number,
            _ if word.starts_with("--") => bail!("unknown option {word}"),
            _ => part = word,
        }
    }
    let folder = fetch(&root.join("corpora"))?;
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let is_kernel = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with('m') && name.ends_with(".cl") && name.contains(part)
    };
    files.retain(is_kernel);
    files.sort();
    let files: Vec<PathBuf> = files.into_iter().step_by(every).collect();
    let toolchain = Toolchain::find()?;
    let outcomes = crate::corpus::in_parallel(&files, |file| survey(&toolchain, &folder, file, lanes));
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for (file, outcome) in files.iter().zip(&outcomes) {
        if let Some(failure) = &outcome.failure {
            println!("{}: {failure}", file.display());
        }
        outcome.reasons.iter().for_each(|reason| *reasons.entry(reason.clone()).or_default() += 1);
    }
    let sum = |of: fn(&Outcome) -> usize| outcomes.iter().map(of).sum::<usize>();
    println!(
        "{} files: {} kernels translated and compiled, {} refused",
        files.len(),
        sum(|o| o.kernels),
        sum(|o| o.refused)
    );
    reasons.iter().for_each(|(reason, places)| println!("  {places} places: {reason}"));
    match outcomes.iter().filter(|outcome| outcome.failure.is_some()).count() {
        0 => Ok(()),
        failures => bail!("{failures} files failed"),
    }
}

fn survey(toolchain: &Toolchain, folder: &Path, file: &Path, lanes: &str) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.failure = attempt(toolchain, folder, file, lanes, &mut outcome).err();
    outcome
}

fn attempt(
    toolchain: &Toolchain,
    folder: &Path,
    file: &Path,
    lanes: &str,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let bytes = std::fs::read(file).map_err(|error| error.to_string())?;
    let mut source =
        Source::named(file.display().to_string(), String::from_utf8_lossy(&bytes)).include_dir(folder);
    for (name, value) in DEFINES {
        source = source.define(*name, Some(value));
    }
    let source =
        source.define("INCLUDE_PATH", Some(&folder.display().to_string())).define("VECT_SIZE", Some(lanes));
    let translation = elinvar_translate::opencl(toolchain, &source, &Options::default());
    let translation = translation.map_err(|error| error.to_string())?;
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

/// The folder with the corpus, downloaded if it does not exist.
fn fetch(corpora: &Path) -> Result<PathBuf> {
    let folder = corpora.join(PACKAGE);
    let sources = folder.join("usr/share/hashcat/OpenCL");
    if sources.is_dir() {
        return Ok(sources);
    }
    let partial = tempfile::Builder::new().prefix("elinvar-").tempdir()?;
    let script = format!("chmod 755 . && apt-get download -qq {PACKAGE} && dpkg -x {PACKAGE}_*.deb files");
    let status = Command::new("sh")
        .args(["-ec", &script])
        .current_dir(partial.path())
        .status()
        .context("running sh")?;
    if !status.success() {
        bail!("`{script}` failed; the corpus is a package of Debian");
    }
    std::fs::create_dir_all(corpora)?;
    let copied = Command::new("cp")
        .arg("-r")
        .arg(partial.path().join("files"))
        .arg(&folder)
        .status()
        .context("running cp")?;
    if !copied.success() {
        bail!("the corpus was not copied to {}", folder.display());
    }
    Ok(sources)
}
