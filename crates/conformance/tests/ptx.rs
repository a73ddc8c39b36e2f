//! Runs the suite on the CPU and assembles the PTX of every kernel that it asks for, one test per case.

use elinvar::Device;
use elinvar_code::user_cache;
use elinvar_conformance::packing::Packing;
use elinvar_conformance::ptxas::Ptxas;
use elinvar_conformance::suite::{Case, cases};
use elinvar_driver::Driver;
use elinvar_ptx::Target;
use libtest_mimic::{Arguments, Failed, Trial};

/// Kernels that the CPU runs and that have no PTX, by source, with what is said of them.
const REFUSED: &[(&str, &str)] = &[
    // The CPU says so when it is prepared for a size.
    ("follows.metal: follows", "bounds checks for a pointer that does not come from an argument"),
];

fn main() {
    let arguments = Arguments::from_args();
    let trials =
        cases().into_iter().map(|case| Trial::test(format!("ptx::{}", case.name), move || run(case)));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn run(case: Case) -> Result<(), Failed> {
    let ptxas = Ptxas::find(user_cache());
    if ptxas.is_none() && std::env::var_os("ELINVAR_REQUIRE_PTXAS").is_some() {
        return Err("there is no ptxas, and ELINVAR_REQUIRE_PTXAS is set".into());
    }
    let below = elinvar_driver_cpu::driver().devices()?.into_iter().next().ok_or("there is no CPU device")?;
    let device = Packing::new(below, user_cache(), Target::default());
    let packed = device.packed();
    (case.run)(&Device::new(std::sync::Arc::new(device))).map_err(|error| error.to_string())?;
    let packed = packed.lock();
    for (source, error) in &packed.refused {
        let said = error.to_string();
        if !REFUSED.iter().any(|(kernel, why)| kernel == source && said.contains(why)) {
            return Err(format!("{source}: {said}").into());
        }
    }
    let Some(ptxas) = ptxas else {
        println!("skipped: no ptxas; {} kernels are not assembled", packed.kernels.len());
        return Ok(());
    };
    for (source, ptx) in &packed.kernels {
        ptxas.check(ptx).map_err(|error| format!("{source}: {error}"))?;
    }
    Ok(())
}
