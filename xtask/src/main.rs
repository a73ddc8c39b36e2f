//! `cargo xtask`: chores of the workspace that are no tests of a crate.

mod apple;
mod corpus;
mod manifest;
mod numerics;
mod text;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

const USAGE: &str = "\
usage: cargo xtask tidy | apple [run] [TARGET...] | corpus [NAME...] [--json] [--run | --checked]
       | numerics [FUNCTION...] [--json] [--samples N]
  apple    build the Metal driver's tests for Apple's systems, on Linux; run what can be run
  tidy     check the rules of the house
  corpus   compile published Metal sources, run kernels of them and write docs/compatibility.md;
           --run runs the kernels only, --checked likewise with bounds checks compiled in
  numerics measure the float functions on the CPU and write docs/numerics.md";

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

fn run(words: &[&str]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask lies in the workspace")?;
    match words {
        ["tidy"] => tidy::run(root),
        ["apple", rest @ ..] => apple::run(root, rest),
        ["numerics", rest @ ..] => numerics::run(root, rest),
        ["corpus", rest @ ..] => corpus::run(root, rest),
        _ => bail!("{USAGE}"),
    }
}
