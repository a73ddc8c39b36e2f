//! `cargo xtask`: workspace tasks that are not tests of a crate.

mod apple;
mod corpus;
mod coverage;
mod cuda;
mod errors;
mod folders;
mod layers;
mod manifest;
mod mutants;
mod numerics;
mod opencl;
mod text;
mod tidy;
mod wgsl;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask tidy | book | apple [run] [TARGET...] | corpus [NAME...] [--json] [--run | --checked | --tune [--kernels=PART] | --cost [--all | --kernels=PART]]
       [--sample=N] [--device=cpu|cuda] [--pack=BUNDLE]
       | coverage [SELECTION...] | mutants [summary] [CRATE...] [--shard K/N] [--seed N] [--again] [--own-tests-only]
       | numerics [FUNCTION...] [--json] [--samples N] | cuda [PART] [--all] | opencl [PACKAGE...] [PART] [--every=N] [--lanes=N]
       | wgsl [PART]
  apple    build the Metal driver's tests for Apple's systems, on Linux; run what can be run
  book     build the book from docs/ into target/book
  tidy     check the rules of the house
  corpus   compile published Metal sources, run kernels of them and write docs/compatibility.md;
           --run runs the kernels only, --checked likewise with bounds checks compiled in; --tune measures threadgroup sizes; --cost measures code size
           and compilation time of a sample of kernels, of --all, or of those with PART in their name, and holds the budget for them
  coverage lines that the tests run, by crate; SELECTION as for `cargo nextest run`
  mutants  whether the tests notice faults put into the code, on a sample; goes on where it was stopped
  cuda     translate published CUDA C++ of the packages, files with PART in their name, and compile the results, with --all every kernel
  numerics measure the float functions on the CPU and write docs/numerics.md
  opencl   translate published OpenCL C and compile the results: every Nth file with PART in its name, with vectors of N (1) components
  wgsl     translate published compute shaders in WGSL, those with PART in their name, and compile the results";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match run(&words) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The book is built by a separate crate, so that the other tasks do not have to compile mdBook.
fn book(root: &Path) -> Result<()> {
    let mut cargo = std::process::Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let status = cargo.current_dir(root).args(["run", "--quiet", "--package", "elinvar-book"]).status();
    match status.context("running cargo")?.success() {
        true => Ok(()),
        false => bail!("the book was not built"),
    }
}

fn run(words: &[&str]) -> Result<()> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    // On another machine than the one it was built on, the workspace is the current folder.
    let root = if built.is_dir() { built } else { Path::new(".") };
    match words {
        ["tidy"] => tidy::run(root),
        ["book"] => book(root),
        ["apple", rest @ ..] => apple::run(root, rest),
        ["coverage", rest @ ..] => coverage::run(root, rest),
        ["mutants", rest @ ..] => mutants::run(root, rest),
        ["cuda", rest @ ..] => cuda::run(root, rest),
        ["numerics", rest @ ..] => numerics::run(root, rest),
        ["opencl", rest @ ..] => opencl::run(root, rest),
        ["wgsl", rest @ ..] => wgsl::run(root, rest),
        ["corpus", rest @ ..] => corpus::run(root, rest),
        _ => bail!("{USAGE}"),
    }
}
