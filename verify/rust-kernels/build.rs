//! Writes random kernels: `ELINVAR_RUST_KERNELS_SEED` and `ELINVAR_RUST_KERNELS_COUNT` choose which and how many.

#[path = "generate/mod.rs"]
mod generate;

use std::path::PathBuf;

fn number(name: &str, default: u64) -> u64 {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=generate");
    let (seed, count) = (number("ELINVAR_RUST_KERNELS_SEED", 1), number("ELINVAR_RUST_KERNELS_COUNT", 40));
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let text = generate::generate(seed, count as usize);
    if let Err(error) = std::fs::write(folder.join("generated.rs"), text) {
        println!("cargo::error=writing the kernels: {error}");
    }
}
