//! Fetches a corpus: the registry's client downloads the package, and its Metal sources are copied to the corpora folder.
//!
//! The folder is ignored by git: nothing of a corpus becomes part of this repository. Nothing of a package runs: crates are unpacked
//! by `cargo info`, wheels are archives.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::sources::{Corpus, Registry};

/// The corpus's folder below `corpora`, fetched if it does not exist.
pub(super) fn fetch(corpora: &Path, corpus: &Corpus) -> Result<PathBuf> {
    let identity = format!("{}-{}", corpus.name, corpus.version);
    let folder = corpora.join(&identity);
    if folder.is_dir() {
        return Ok(folder);
    }
    let partial = corpora.join(format!("{identity}.partial"));
    if partial.exists() {
        std::fs::remove_dir_all(&partial)?;
    }
    let unpacked = match corpus.registry {
        Registry::Crates => unpacked_crate(corpus)?,
        Registry::PyPi { python, platform, sha256 } => {
            unpacked_wheel(corpus, &partial.join("wheel"), &Wheel { python, platform, sha256 })?
        }
    };
    let sources = partial.join("sources");
    for top in tops(corpus) {
        copy(&unpacked.join(top), &sources.join(top))?;
    }
    for host in corpus.strings {
        extract(&unpacked.join(host), &sources.join(host))?;
    }
    std::fs::rename(&sources, &folder).with_context(|| folder.display().to_string())?;
    std::fs::remove_dir_all(&partial)?;
    Ok(folder)
}

/// Folders of the package that are copied: of its sources, and those searched for `#include`.
fn tops(corpus: &Corpus) -> impl Iterator<Item = &str> {
    let all = || std::iter::once(corpus.folder).chain(corpus.include_dirs.iter().copied());
    all().filter(move |folder| !all().any(|other| folder.starts_with(&format!("{other}/"))))
}

/// Folder to which cargo has unpacked the crate. `cargo info` does it without the crate's dependencies.
fn unpacked_crate(corpus: &Corpus) -> Result<PathBuf> {
    let spec = format!("{}@{}", corpus.name, corpus.version);
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(cargo, &["info", "--quiet", "--registry", "crates-io", &spec])?;
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let user = std::env::home_dir()?;
        Some(user.join(".cargo"))
    });
    let registries = home.context("neither CARGO_HOME nor a home folder is known")?.join("registry/src");
    let identity = format!("{}-{}", corpus.name, corpus.version);
    for entry in std::fs::read_dir(&registries).with_context(|| registries.display().to_string())? {
        let folder = entry?.path().join(&identity);
        if folder.is_dir() {
            return Ok(folder);
        }
    }
    bail!("cargo has not unpacked {identity} below {}", registries.display())
}

/// Tags and checksum of a wheel.
struct Wheel {
    python: &'static str,
    platform: &'static str,
    sha256: &'static str,
}

/// Downloads a wheel to a folder with pip, which compares the checksum, and unpacks it there.
fn unpacked_wheel(corpus: &Corpus, folder: &Path, wheel: &Wheel) -> Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let requirement = folder.join("requirements.txt");
    std::fs::write(
        &requirement,
        format!("{}=={} --hash=sha256:{}\n", corpus.name, corpus.version, wheel.sha256),
    )?;
    let (download, list) = (folder.display().to_string(), requirement.display().to_string());
    let pip = ["-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"];
    let tags = ["--only-binary=:all:", "--python-version", wheel.python, "--platform", wheel.platform];
    let from = ["--require-hashes", "--dest", &download, "--requirement", &list];
    run("python3".into(), &[&pip[..], &tags, &from].concat())?;
    let archive = std::fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_some_and(|extension| extension == "whl"))
        .context("pip has downloaded no wheel")?;
    let unpacked = folder.join("unpacked");
    let (archive, target) = (archive.display().to_string(), unpacked.display().to_string());
    run("python3".into(), &["-m", "zipfile", "--extract", &archive, &target])?;
    Ok(unpacked)
}

/// Runs a program; its errors are part of the error.
fn run(program: OsString, arguments: &[&str]) -> Result<()> {
    let name = program.to_string_lossy().into_owned();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(std::env::temp_dir())
        .output()
        .with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("`{name} {}` failed:\n{}", arguments.join(" "), errors.trim_end());
    }
    Ok(())
}

/// Writes the raw strings of a host file that define kernels to files beside `target`, in order.
fn extract(host: &Path, target: &Path) -> Result<()> {
    let text = std::fs::read_to_string(host).with_context(|| host.display().to_string())?;
    let (open, close) =
        if host.extension().is_some_and(|e| e == "py") { ("r\"\"\"", "\"\"\"") } else { ("r#\"", "\"#") };
    let found: Vec<&str> =
        raw_strings(&text, open, close).filter(|text| text.contains("kernel void ")).collect();
    if found.is_empty() {
        bail!("{}: no raw string defines a kernel", host.display());
    }
    if let Some(folder) = target.parent() {
        std::fs::create_dir_all(folder)?;
    }
    for (number, text) in found.into_iter().enumerate() {
        std::fs::write(target.with_extension(format!("{number}.metal")), text)?;
    }
    Ok(())
}

/// The strings between two delimiters.
fn raw_strings<'a>(text: &'a str, open: &'a str, close: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(open).skip(1).filter_map(move |rest| Some(rest.split_once(close)?.0))
}

/// Copies the Metal sources and headers of a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else if source.extension().is_some_and(|e| e == "metal" || e == "msl" || e == "h") {
            std::fs::copy(&source, &target).with_context(|| source.display().to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_of_host_files() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("shaders.py");
        let text = "A = r\"\"\"kernel void a(){}\"\"\"\nB = r\"\"\"no\"\"\"\nC = f(r\"\"\"\nkernel void \\\nc(){}\"\"\")";
        std::fs::write(&host, text).unwrap();
        extract(&host, &folder.path().join("sub/shaders.py")).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join("sub").join(name)).unwrap();
        assert_eq!(
            (read("shaders.0.metal"), read("shaders.1.metal")),
            ("kernel void a(){}".into(), "\nkernel void \\\nc(){}".into())
        );
        let rust = folder.path().join("lib.rs");
        std::fs::write(&rust, "const K: &str = r#\"kernel void k(){}\"#; fn f() {}").unwrap();
        extract(&rust, &rust).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("lib.0.metal")).unwrap(), "kernel void k(){}");
        std::fs::write(&host, "A = 1").unwrap();
        assert!(extract(&host, &host).unwrap_err().to_string().contains("no raw string"));
    }
}
