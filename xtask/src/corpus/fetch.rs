//! Fetches a corpus: `cargo` downloads the crate, and its Metal sources are copied to the corpora folder.
//!
//! The folder is ignored by git: nothing of a corpus becomes part of this repository.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::sources::Corpus;

/// The corpus's folder below `corpora`, fetched if it does not exist.
pub(super) fn fetch(corpora: &Path, corpus: &Corpus) -> Result<PathBuf> {
    let identity = format!("{}-{}", corpus.name, corpus.version);
    let folder = corpora.join(&identity);
    if folder.is_dir() {
        return Ok(folder);
    }
    // `cargo info` downloads and unpacks this crate without its dependencies.
    let spec = format!("{}@{}", corpus.name, corpus.version);
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["info", "--quiet", "--registry", "crates-io", &spec])
        .current_dir(std::env::temp_dir())
        .output()
        .context("cannot run cargo")?;
    if !output.status.success() {
        bail!("`cargo info {spec}` failed:\n{}", String::from_utf8_lossy(&output.stderr).trim_end());
    }
    let unpacked = unpacked(&identity)?;
    let partial = corpora.join(format!("{identity}.partial"));
    if partial.exists() {
        std::fs::remove_dir_all(&partial)?;
    }
    let top = corpus.include_dirs.last().copied().unwrap_or(corpus.folder);
    copy(&unpacked.join(top), &partial.join(top))?;
    std::fs::rename(&partial, &folder).with_context(|| folder.display().to_string())?;
    Ok(folder)
}

/// Folder to which cargo has unpacked a crate.
fn unpacked(identity: &str) -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| {
        let user = std::env::home_dir()?;
        Some(user.join(".cargo"))
    });
    let registries = home.context("neither CARGO_HOME nor a home folder is known")?.join("registry/src");
    for entry in std::fs::read_dir(&registries).with_context(|| registries.display().to_string())? {
        let folder = entry?.path().join(identity);
        if folder.is_dir() {
            return Ok(folder);
        }
    }
    bail!("cargo has not unpacked {identity} below {}", registries.display())
}

/// Copies the Metal sources and headers of a folder.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from).with_context(|| from.display().to_string())? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&source, &target)?;
        } else if source.extension().is_some_and(|e| e == "metal" || e == "h") {
            std::fs::copy(&source, &target).with_context(|| source.display().to_string())?;
        }
    }
    Ok(())
}
