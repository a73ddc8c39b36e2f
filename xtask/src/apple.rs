//! `cargo xtask apple`: builds the Metal driver and the conformance suite for Apple's systems, on Linux.
//!
//! They are type-checked and linked for both of Apple's architectures, against stubs with the permitted symbols of Apple's libraries
//! (`sdk`). Linking verifies only those symbols: classes and methods are looked up at run time. A compiler with the standard library for
//! these targets is used as is; otherwise Debian's `rustc-web`, which builds it from source.
//!
//! `run` also runs the x86-64 programs on Linux, with the loader of `apple/loader` and the stand-ins for Apple's libraries. A panic ends
//! the process there, and with it the run.

mod sdk;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

const TARGETS: [&str; 2] = ["aarch64-apple-darwin", "x86_64-apple-darwin"];

/// Names of LLVM's Mach-O linker.
const LINKERS: [&str; 12] = [
    "ld64.lld-19",
    "ld64.lld-20",
    "ld64.lld-21",
    "ld64.lld-22",
    "ld64.lld-23",
    "ld64.lld-24",
    "ld64.lld-25",
    "ld64.lld-26",
    "ld64.lld-27",
    "ld64.lld-28",
    "ld64.lld-29",
    "ld64.lld",
];

/// Path of Debian's compiler.
const DEBIANS: &str = "/usr/bin";
const DEBIANS_SOURCE: &str = "/usr/lib/rustlib/src/rust/library/std";

/// Cargo options that select the test programs to build, which run on a device.
const TESTS: [&str; 8] =
    ["-p", "elinvar-conformance", "-p", "elinvar-driver-metal", "--test", "drivers", "--test", "memory"];

/// The target whose programs this machine can run.
const RUN: &str = "x86_64-apple-darwin";

/// Builds for the given targets, or all; with `run`, also runs those that can be run.
pub fn run(root: &Path, words: &[&str]) -> Result<()> {
    let (run, words): (Vec<&str>, Vec<&str>) = words.iter().partition(|word| **word == "run");
    if let Some(unknown) = words.iter().find(|word| !TARGETS.contains(word)) {
        bail!("`{unknown}` is neither `run` nor one of {}", TARGETS.join(", "));
    }
    let folder = root.join("target/apple");
    let sdk = sdk::write(&folder.join("sdk"))?;
    let linker = linker()?;
    for target in TARGETS.iter().filter(|target| words.is_empty() || words.contains(target)) {
        let toolchain = Toolchain::find(target)?;
        let mut cargo = toolchain.cargo(target);
        cargo.current_dir(root).env("CARGO_TARGET_DIR", &folder).env("SDKROOT", &sdk);
        // Of programs for Apple's systems, rustc strips debug information by a program that only those systems' toolchains have.
        cargo.env("CARGO_PROFILE_DEV_STRIP", "none");
        cargo.env(variable(target, "LINKER"), &linker);
        // Bind by name, as the loader requires.
        let flags = "-Clinker-flavor=ld64.lld -Clink-arg=--error-limit=0 -Clink-arg=-no_fixup_chains";
        cargo.env(variable(target, "RUSTFLAGS"), flags);
        let programs = build(cargo).with_context(|| format!("building for {target}"))?;
        for program in &programs {
            println!("apple: {target}: {}", program.display());
        }
        ensure!(programs.len() >= 2, "cargo has built {} programs for {target}", programs.len());
        if *target == RUN && !run.is_empty() {
            run_all(root, &programs)?;
        }
    }
    Ok(())
}

/// Runs programs on the stand-in; of the suite, only the cases on Metal devices.
fn run_all(root: &Path, programs: &[PathBuf]) -> Result<()> {
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["build", "--quiet", "-p", "elinvar-apple", "-p", "elinvar-apple-loader"]);
    let status = cargo.status().context("running cargo")?;
    ensure!(status.success(), "the stand-in or the loader could not be built");
    let own = std::env::current_exe()?;
    let built = own.parent().context("this program lies in a folder")?;
    for program in programs {
        let mut loader = Command::new(built.join("elinvar-macho"));
        loader.arg(built.join("libelinvar_apple.so")).arg(program).current_dir(root);
        if program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("drivers")) {
            loader.arg("metal::");
        }
        let status = loader.status().context("running the loader")?;
        ensure!(status.success(), "{} ended with {status}", program.display());
    }
    Ok(())
}

fn variable(target: &str, name: &str) -> String {
    format!("CARGO_TARGET_{}_{name}", target.to_uppercase().replace('-', "_"))
}

/// A compiler for a target.
enum Toolchain {
    /// The active compiler, if it has the target's standard library.
    Own,
    /// Debian's, with the standard library's source.
    Debians,
}

impl Toolchain {
    fn find(target: &str) -> Result<Self> {
        let print = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
        let print = print.context("running rustc")?;
        let folder = PathBuf::from(String::from_utf8_lossy(&print.stdout).trim());
        if print.status.success() && folder.is_dir() {
            return Ok(Self::Own);
        }
        if Path::new(DEBIANS_SOURCE).is_dir() && Path::new(DEBIANS).join("cargo").is_file() {
            return Ok(Self::Debians);
        }
        bail!(
            "no compiler for {target}: run `scripts/setup.sh apple`, or `rustup target add {target}` where that is possible"
        )
    }

    /// The command `cargo test --no-run`. Without optimization, because performance is irrelevant.
    fn cargo(&self, target: &str) -> Command {
        let (mut cargo, std) = match self {
            Self::Own => (Command::new("cargo"), None),
            Self::Debians => {
                let folder = Path::new(DEBIANS);
                let mut cargo = Command::new(folder.join("cargo"));
                cargo.env("RUSTC", folder.join("rustc")).env("RUSTC_BOOTSTRAP", "1");
                (cargo, Some("-Zbuild-std=core,alloc,std,panic_abort"))
            }
        };
        cargo.env_remove("CARGO").env_remove("RUSTUP_TOOLCHAIN").env("CARGO_INCREMENTAL", "0");
        cargo.args(["test", "--no-run", "--message-format=json-render-diagnostics", "--target", target]);
        cargo.args([
            "--config",
            "profile.dev.opt-level=0",
            "--config",
            "profile.dev.package.'*'.opt-level=0",
        ]);
        cargo.args(TESTS).args(std);
        cargo
    }
}

fn linker() -> Result<OsString> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let found = LINKERS.iter().find(|name| folders.iter().any(|folder| folder.join(name).is_file()));
    let found = found.context("no ld64.lld on the PATH: run `scripts/setup.sh apple`")?;
    Ok(found.into())
}

/// Runs cargo and returns the test programs that it has built.
fn build(mut cargo: Command) -> Result<Vec<PathBuf>> {
    let output = cargo.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().context("starting cargo")?;
    let output = output.wait_with_output().context("running cargo")?;
    ensure!(
        output.status.success(),
        "cargo ended with {}; add a missing symbol of Apple's libraries to xtask/src/apple/symbols.txt",
        output.status
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let messages = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter(|message| message["profile"]["test"] == Value::Bool(true));
    Ok(programs.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).collect())
}
