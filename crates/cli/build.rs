//! Writes `carried.rs`: the sources of the stand-in for Apple's libraries, which an installed `elinvar` builds when it is
//! first asked to test a crate; and `bench_bundle.rs`: the bundle of the benchmarks' kernels that `ELINVAR_BENCH_BUNDLE`
//! names, if it is set (scripts/elinvar.sh).

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// The crates that the stand-in consists of.
const CRATES: [&str; 11] = [
    "apple/metal",
    "apple/objc",
    "crates/cache",
    "crates/code",
    "crates/driver",
    "crates/driver-cpu",
    "crates/gemm",
    "crates/ir",
    "crates/msl",
    "crates/native",
    "crates/spmd",
];

const BENCH_BUNDLE: &str = "ELINVAR_BENCH_BUNDLE";

/// What of a crate is needed to build it.
const PARTS: [&str; 4] = ["Cargo.toml", "build.rs", "src", "headers"];

fn main() -> std::io::Result<()> {
    let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let root = manifest.join("../..").canonicalize()?;
    let mut files = vec![root.join("Cargo.lock")];
    for krate in CRATES {
        for part in PARTS.map(|part| root.join(krate).join(part)) {
            collect(&part, &mut files)?;
        }
    }
    files.sort();
    let mut text = format!("pub const CRATES: [&str; {}] = {CRATES:?};\n", CRATES.len());
    text.push_str("pub const FILES: &[(&str, &[u8])] = &[\n");
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
        let name = file.strip_prefix(&root).unwrap_or(file);
        let _ = writeln!(
            text,
            "    ({:?}, include_bytes!({:?})),",
            name.display().to_string(),
            file.display().to_string()
        );
    }
    text.push_str("];\n");
    println!("cargo:rerun-if-changed={}", root.join("Cargo.toml").display());
    let _ = writeln!(
        text,
        "pub const WORKSPACE: &str = include_str!({:?});",
        root.join("Cargo.toml").display().to_string()
    );
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    std::fs::write(out.join("carried.rs"), text)?;
    std::fs::write(out.join("bench_bundle.rs"), bench_bundle()?)
}

fn bench_bundle() -> std::io::Result<String> {
    println!("cargo:rerun-if-env-changed={BENCH_BUNDLE}");
    let content = match std::env::var_os(BENCH_BUNDLE).filter(|path| !path.is_empty()) {
        None => "&[]".into(),
        Some(path) => {
            let named = |error| std::io::Error::other(format!("{BENCH_BUNDLE}: {path:?}: {error}"));
            let path = PathBuf::from(&path).canonicalize().map_err(named)?;
            println!("cargo:rerun-if-changed={}", path.display());
            format!("include_bytes!({:?})", path.display().to_string())
        }
    };
    Ok(format!("const BENCH_BUNDLE: &[u8] = {content};\n"))
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        println!("cargo:rerun-if-changed={}", path.display());
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else if path.exists() {
        files.push(path.to_owned());
    }
    Ok(())
}
