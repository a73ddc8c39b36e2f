//! A replacement for Apple's SDK for the linker: text stubs with the permitted symbols of each library.
//!
//! The list is `symbols.txt`: each line is a library and its symbols. A symbol that is not listed does not link, so that every
//! new one is reviewed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const SYMBOLS: &str = include_str!("symbols.txt");

/// Writes the stubs and returns their folder.
pub(super) fn write(folder: &Path) -> Result<PathBuf> {
    let mut libraries: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in SYMBOLS.lines().filter(|line| !line.starts_with('#')) {
        let (library, symbols) = line.split_once(':').with_context(|| format!("symbols.txt: `{line}`"))?;
        libraries.entry(library).or_default().extend(symbols.split_whitespace());
    }
    for (library, symbols) in libraries {
        for (path, install) in places(library) {
            let path = folder.join(path);
            let parent = path.parent().context("a file lies in a folder")?;
            std::fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
            std::fs::write(&path, stub(&install, &symbols)).with_context(|| path.display().to_string())?;
        }
    }
    Ok(folder.to_owned())
}

/// File names of a library, and its install name.
fn places(library: &str) -> Vec<(String, String)> {
    let plain = |names: &[&str], install: &str| {
        names.iter().map(|name| (format!("usr/lib/lib{name}.tbd"), install.to_owned())).collect()
    };
    match library {
        "System" => plain(&["System", "c", "m", "iconv", "resolv"], "/usr/lib/libSystem.B.dylib"),
        "objc" => plain(&["objc"], "/usr/lib/libobjc.A.dylib"),
        framework => {
            let folder = format!("System/Library/Frameworks/{framework}.framework");
            vec![(format!("{folder}/{framework}.tbd"), format!("/{folder}/Versions/A/{framework}"))]
        }
    }
}

/// A text-based stub (TBD version 4) of a library.
fn stub(install: &str, symbols: &[&str]) -> String {
    let mut text = format!(
        "--- !tapi-tbd\ntbd-version: 4\ntargets: [ x86_64-macos, arm64-macos ]\ninstall-name: '{install}'\nexports:\n  \
         - targets: [ x86_64-macos, arm64-macos ]\n    symbols: ["
    );
    for (index, symbol) in symbols.iter().enumerate() {
        // Writing to a string does not fail.
        let _written = write!(text, "{}'{symbol}'", if index == 0 { " " } else { ", " });
    }
    text + " ]\n...\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stub_names_its_symbols() {
        assert!(
            stub("/usr/lib/libobjc.A.dylib", &["_a", "_b$c"]).ends_with("symbols: [ '_a', '_b$c' ]\n...\n")
        );
    }

    #[test]
    fn every_library_has_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let sdk = write(folder.path()).unwrap();
        let metal = sdk.join("System/Library/Frameworks/Metal.framework/Metal.tbd");
        assert!(std::fs::read_to_string(metal).unwrap().contains("'_MTLCopyAllDevices'"));
        let system = std::fs::read_to_string(sdk.join("usr/lib/libSystem.tbd")).unwrap();
        assert!(system.contains("'_malloc'") && sdk.join("usr/lib/libc.tbd").exists());
    }
}
