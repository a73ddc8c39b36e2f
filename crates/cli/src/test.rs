//! `elinvar test`: builds a crate that uses Metal through objc2 for this machine, against our stand-in for the
//! Objective-C runtime and the Metal framework, and runs its tests.
//!
//! It is `cargo test` with this program between cargo and rustc (`compiler`). Build scripts and procedural macros are
//! built as always: only what is compiled for the target, which is named explicitly, is touched.

mod carried;
pub mod compiler;
mod graph;
mod standin;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::failure::{Failure, Result};
use graph::Graph;
use standin::StandIn;

/// The one target that the stand-in is written for.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Run the tests of a crate that uses Metal, without a Mac
#[derive(Args)]
#[command(after_help = "Examples:\n  elinvar test --manifest-path ../kernels/Cargo.toml\n  \
    cargo elinvar test -- gemm --test-threads 1\n  \
    elinvar test --cargo-arg=--release --cargo-arg=--features=metal")]
pub struct Test {
    /// Path of the crate's Cargo.toml
    #[arg(long, value_name = "PATH", default_value = "Cargo.toml")]
    manifest_path: PathBuf,
    /// An argument for `cargo test`, such as `--release` or `--features=NAME`; may be repeated
    #[arg(long = "cargo-arg", value_name = "ARG", allow_hyphen_values = true)]
    cargo: Vec<OsString>,
    /// Compile all crates with this cfg, and only Apple's bindings as for macOS: for workspaces whose crates also
    /// contain code for Linux
    #[arg(long, value_name = "NAME")]
    cfg: Option<String>,
    /// Additional crate to compile as for macOS; may be repeated
    #[arg(long = "crate", value_name = "NAME", conflicts_with = "cfg")]
    crates: Vec<String>,
    /// Build the tests and print the required environment variables without running the tests
    #[arg(long)]
    no_run: bool,
    /// Arguments for the tests
    #[arg(last = true, value_name = "ARGS")]
    args: Vec<OsString>,
}

impl Test {
    pub fn run(self) -> Result<()> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Failure::input(format!("`elinvar test` works on {TARGET} only")));
        }
        let graph = Graph::read(&self.manifest_path)?;
        let standin = StandIn::build()?;
        let status = self.command(&graph, &standin)?.status().map_err(|error| no_cargo(&error))?;
        match status.code() {
            Some(0) => Ok(()),
            Some(code) => Err(Failure::Reported(u8::try_from(code).unwrap_or(1))),
            None => Err(Failure::Machine(format!("cargo was terminated: {status}"))),
        }
    }

    fn command(&self, graph: &Graph, standin: &StandIn) -> Result<Command> {
        let own = std::env::current_exe().map_err(|error| Failure::Machine(error.to_string()))?;
        let mut cargo = cargo();
        cargo.arg("test").arg("--manifest-path").arg(&self.manifest_path).args(["--target", TARGET]);
        cargo.arg("--target-dir").arg(graph.target.join("elinvar-apple"));
        cargo.args(self.no_run.then_some("--no-run")).args(&self.cargo).arg("--").args(&self.args);
        cargo.env("RUSTC_WRAPPER", &own).env_remove("RUSTC_WORKSPACE_WRAPPER").env("RUSTDOC", own);
        // What cargo learns of the target depends on the crate.
        cargo.env("CARGO_CACHE_RUSTC_INFO", "0");
        cargo.env(compiler::FOLDER, &standin.folder);
        cargo.env("ELINVAR_CACHE", compiled_kernels(graph));
        match &self.cfg {
            Some(cfg) => cargo.env("RUSTFLAGS", with_cfg(cfg)),
            None => {
                let mut named = graph.named();
                named.extend(self.crates.iter().map(|name| name.replace('-', "_")));
                cargo.env(compiler::CRATES, named.into_iter().collect::<Vec<_>>().join(","));
                cargo.env(compiler::PROBE, if graph.depends_by_target() { "1" } else { "" })
            }
        };
        Ok(cargo)
    }
}

/// Where the tests keep compiled kernels: where the environment says, else with what cargo builds.
fn compiled_kernels(graph: &Graph) -> PathBuf {
    let chosen = std::env::var_os("ELINVAR_CACHE").map(PathBuf::from);
    chosen.unwrap_or_else(|| graph.target.join("elinvar-cache"))
}

fn with_cfg(cfg: &str) -> OsString {
    let mut flags = std::env::var_os("RUSTFLAGS").unwrap_or_default();
    flags.push(format!(" --cfg {cfg}"));
    flags
}

/// The cargo that started us, or the first of the path.
fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

fn no_cargo(error: &std::io::Error) -> Failure {
    Failure::Machine(format!("cargo cannot be started: {error}"))
}

/// Run cargo to its end and take what it prints.
fn output_of(mut cargo: Command, purpose: &str) -> Result<Vec<u8>> {
    let output = cargo.output().map_err(|error| no_cargo(&error))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(Failure::input(format!("{purpose}: {}", String::from_utf8_lossy(&output.stderr).trim())))
}

/// What went wrong with a file.
fn with_path(path: &Path) -> impl Fn(std::io::Error) -> Failure + '_ {
    move |error| Failure::Machine(format!("{}: {error}", path.display()))
}
