//! The `elinvar` command: parses the command line, runs a verb and returns its exit code.
//!
//! Results go to standard output, errors to standard error. Exit codes: 0 success, 1 wrong kernel or arguments, 2 usage, 3
//! device failure.

mod allocations;
mod analyze;
mod array;
mod bench;
mod binding;
mod check;
mod collectives;
mod constant;
mod devices;
mod diagnostics;
mod doctor;
mod failure;
mod npy;
mod output;
mod pack;
mod parallel;
mod programs;
mod progress;
mod replay;
mod report;
mod run;
mod select;
mod selection;
mod signature;
mod source;
mod stages;
mod summary;
mod target;
mod test;
mod top;
mod translate;
mod value;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Metal compute kernels that run anywhere.
#[derive(Parser)]
#[command(name = "elinvar", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "Exit codes: 0 success, 1 invalid kernel or arguments, 2 invalid usage, \
                          3 device failure.";

#[derive(Subcommand)]
enum Verb {
    /// List the available devices and the compiler
    Devices(devices::Devices),
    /// Prove that each device computes, and say what is missing
    Doctor(doctor::Doctor),
    /// Compile Metal files and print the parameters of their kernels
    Check(check::Check),
    /// Analyze kernels: memory accesses, operations, loops, traffic of a launch
    Analyze(analyze::Analyze),
    /// Run a kernel on arrays and scalars
    Run(run::Run),
    /// Compile Metal files ahead of time into a bundle, for machines without a compiler
    Pack(pack::Pack),
    /// Capture the launches of a program into a file
    Capture(replay::CaptureProgram),
    /// Replay the launches of a capture on a device, and compare every element
    Replay(replay::Replay),
    /// Run benchmarks of the runtime, the compilers and whole kernels
    Bench(bench::Bench),
    /// Run a program that links Elinvar, and write a report of what its devices did
    Profile(programs::profile::Profile),
    /// Start a program several times, as the processes of a job
    Launch(programs::launch::Launch),
    /// Predict the time of collectives, and compare it with measured or simulated times
    Collectives(collectives::Collectives),
    /// Show live what a program does on its devices
    Top(top::Top),
    /// Translate kernels of another language to Metal Shading Language
    Translate(translate::Translate),
    /// Run the tests of a crate that uses Metal, without a Mac
    Test(test::Test),
}

fn main() -> ExitCode {
    elinvar::serve_if_asked();
    if let Some(code) = test::compiler::run() {
        return code;
    }
    progress::handle_interrupts();
    let done = match Cli::parse_from(arguments()).verb {
        Verb::Devices(verb) => verb.run(),
        Verb::Doctor(verb) => verb.run(),
        Verb::Check(verb) => verb.run(),
        Verb::Analyze(verb) => verb.run(),
        Verb::Run(verb) => verb.run(),
        Verb::Pack(verb) => verb.run(),
        Verb::Capture(verb) => verb.run(),
        Verb::Replay(verb) => verb.run(),
        Verb::Bench(verb) => verb.run(),
        Verb::Profile(verb) => verb.run(),
        Verb::Launch(verb) => verb.run(),
        Verb::Collectives(verb) => verb.run(),
        Verb::Top(verb) => verb.run(),
        Verb::Translate(verb) => verb.run(),
        Verb::Test(verb) => verb.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print();
            ExitCode::from(failure.exit_code())
        }
    }
}

/// The command line. Run as `cargo elinvar` (the program `cargo-elinvar`), the first argument is the subcommand's name.
fn arguments() -> impl Iterator<Item = OsString> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    if args.get(1).is_some_and(|first| first == "elinvar") {
        args.remove(1);
    }
    args.into_iter()
}
