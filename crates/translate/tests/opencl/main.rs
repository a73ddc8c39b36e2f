//! Translations of OpenCL C against an OpenCL driver: builtin functions and published kernels.
//!
//! The driver is PoCL, which `scripts/setup.sh opencl` installs on Debian. Without one the cases are ignored and the reason is printed; with
//! `ELINVAR_REQUIRE_OPENCL=1`, which `make test` sets where PoCL is installed, they fail.

#[path = "../support/mod.rs"]
mod support;

#[path = "../../../../verify/conformance/tests/support/sample.rs"]
mod sample;

mod builtins;
mod control;
mod piglit;
mod published;
mod random;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};

use libtest_mimic::{Arguments, Failed, Trial};

/// A case, and why it cannot run here.
struct Case {
    name: String,
    run: Box<dyn FnOnce() + Send>,
    absence: Option<String>,
    /// Whether it fails where it cannot run, if `ELINVAR_REQUIRE_OPENCL` is set.
    required: bool,
}

/// Published kernels whose results have been compared, in this process.
static COMPARED: AtomicUsize = AtomicUsize::new(0);

fn main() -> ExitCode {
    let driver = support::pocl::absence();
    let required = std::env::var("ELINVAR_REQUIRE_OPENCL").is_ok_and(|value| value == "1");
    let cases = [builtins::cases, control::cases, random::cases, published::cases, piglit::cases]
        .into_iter()
        .flat_map(|all| all(&driver));
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let trials = cases.map(|case| {
        let is_ignored = case.absence.is_some() && !(required && case.required);
        case.absence.iter().for_each(|why| *reasons.entry(why.clone()).or_default() += 1);
        let run = move || match case.absence {
            Some(why) => Err(Failed::from(why)),
            None => {
                (case.run)();
                Ok(())
            }
        };
        Trial::test(case.name, run).with_ignored_flag(is_ignored)
    });
    let trials: Vec<Trial> = trials.collect();
    reasons.iter().for_each(|(why, count)| eprintln!("{count} cases are ignored: {why}"));
    let code = libtest_mimic::run(&Arguments::from_args(), sample::sample(trials, 16)).exit_code();
    let compared = COMPARED.load(Ordering::Relaxed);
    if compared > 0 {
        eprintln!("{compared} published kernels have the results of the driver");
    }
    code
}
