//! Gives the crate `ELINVAR_COMPILER`: what identifies the compiler whose results lie in the cache.
//!
//! That is the version; in a checkout also a hash of the sources of all crates that take part, so that
//! results of an older state are not found.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

const FOLDERS: [&str; 12] = [
    "src",
    "../cache/src",
    "../driver/src",
    "../driver-cpu/src",
    "../driver-metal/src",
    "../ir/src",
    "../msl/src",
    "../msl/headers",
    "../native/src",
    "../ptx/src",
    "../spmd/src",
    "build.rs",
];

fn main() {
    let mut files = BTreeMap::new();
    for folder in FOLDERS.map(Path::new).into_iter().filter(|folder| folder.exists()) {
        println!("cargo:rerun-if-changed={}", folder.display());
        collect(folder, &mut files);
    }
    let mut hasher = DefaultHasher::new();
    files.hash(&mut hasher);
    let version = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rustc-env=ELINVAR_COMPILER={version}-{:016x}", hasher.finish());
}

fn collect(path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().for_each(|entry| collect(&entry.path(), files)),
        Err(_) => {
            files.insert(path.to_owned(), std::fs::read(path).unwrap_or_default());
        }
    }
}
