//! `tidy`: checks the tree and prints every breach of the project's rules.
//!
//! Checks of the compiler and clippy are not repeated. `text` has the rules for Rust files, `folders` those for folders, `manifest` those for
//! `Cargo.toml` files, `errors` those for error types.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::{errors, folders, layers, manifest, text};

/// Files with more lines are listed.
const LONG: usize = 500;

/// Skipped folders: build output and third-party files.
const SKIPPED: [&str; 4] = ["target", ".git", "corpora", "node_modules"];

/// Checks the tree below `root`.
pub fn run(root: &Path) -> Result<()> {
    let mut files = Vec::new();
    collect(root, &mut files)?;
    files.sort();
    let mut breaches = Vec::new();
    let mut long = Vec::new();
    let mut sources = Vec::new();
    let mut runtime = Vec::new();
    let mut checked = 0;
    for path in &files {
        let name = path.strip_prefix(root).unwrap_or(path).display().to_string().replace('\\', "/");
        let read = || std::fs::read_to_string(path).with_context(|| format!("reading {name}"));
        if name.ends_with(".rs") {
            let content = read()?;
            let lines = content.lines().count();
            if lines > LONG && !text::is_generated(&content) {
                long.push(format!("{name}: {lines} lines"));
            }
            breaches.extend(text::check(&name, &content));
            checked += 1;
            if name.starts_with("crates/runtime/src/") {
                runtime.push((name.clone(), content));
            }
            sources.push(name);
        } else if name.ends_with("Cargo.toml")
            && !["Cargo.toml", "verify/fuzz/Cargo.toml"].contains(&name.as_str())
            && !name.contains("/tests/")
        {
            breaches.extend(manifest::check(&name, &read()?));
            checked += 1;
        } else if ["metal", "ll", "sh", "md", "toml"].iter().any(|end| name.ends_with(&format!(".{end}"))) {
            breaches.extend(text::check_blanks(&name, &read()?));
            checked += 1;
        }
    }
    breaches.extend(folders::check(&sources));
    breaches.extend(layers::check(&runtime));
    breaches.extend(errors::check(root)?);
    for line in &long {
        println!("long: {line}");
    }
    for line in &breaches {
        println!("{line}");
    }
    if !breaches.is_empty() {
        bail!("tidy: {} breaches of the rules in {checked} files", breaches.len());
    }
    println!("tidy: {checked} files, {} of them above {LONG} lines", long.len());
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let entry = entry?;
        let kind = entry.file_type()?;
        let name = entry.file_name();
        if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) {
            collect(&entry.path(), files)?;
        } else if kind.is_file() {
            files.push(entry.path());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_tree_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        run(root).unwrap();
    }
}
