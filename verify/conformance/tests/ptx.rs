//! Runs the suite on the CPU and assembles the PTX of every kernel that it compiles, one test per case.
//!
//! Cases without kernels are ignored tests, listed below. Without NVIDIA's `ptxas` all are ignored, or fail if
//! `ELINVAR_REQUIRE_PTXAS` is set, and the `ptx::translates` tests only generate PTX.

#[path = "support/sample.rs"]
mod sample;

use elinvar::Device;
use elinvar_code::user_cache;
use elinvar_conformance::packing::Packing;
use elinvar_conformance::ptxas::Ptxas;
use elinvar_conformance::suite::{Case, cases};
use elinvar_driver::Driver;
use elinvar_ptx::{Ptx, Target};
use libtest_mimic::{Arguments, Failed, Trial};

/// Kernels that run on the CPU and have no PTX, by source, with a part of the error.
const REFUSED: &[(&str, &str)] = &[
    // The CPU refuses it when it is prepared for a threadgroup size.
    ("follows.metal: follows", "bounds checks for a pointer that does not come from an argument"),
];

/// Cases that request no kernel, or none that the CPU accepts, besides those that request the vendor's library.
const WITHOUT_KERNELS: &[&str] = &[
    "attributes::wrong_structs",
    "callbacks::streams_are_dropped_in_a_waker",
    "callbacks::waits_in_a_destructor",
    "callbacks::waits_in_a_waker",
    "callbacks::waits_in_a_waker_of_a_stream_that_recovers",
    "callbacks::waits_in_a_waker_that_the_host_calls",
    "constants::listed",
    "constants::refused",
    "errors::captures",
    "errors::double_in_source",
    "errors::missing_entry_point",
    "errors::syntax_error",
    "errors::texture_is_unsupported",
    "errors::undefined_name",
    "events::another_device",
    "large_buffers::copies_and_fills_of_12_gib",
    "large_buffers::copies_and_fills_of_4_gib",
    "libraries::compiled_libraries",
    "libraries::defined_twice",
    "libraries::undefined_functions",
    "logging::formats_that_do_not_fit",
    "memory::facts",
    "overloads::unresolved",
    "primitives::a_beta_of_zero_ignores_what_was_there",
    "primitives::a_refusal_changes_nothing",
    "primitives::buffers_that_do_not_fit",
    "primitives::convolutions",
    "primitives::convolutions_with_weights_of_f32",
    "primitives::images_beyond_the_limit",
    "primitives::matrix_and_vector",
    "primitives::memory_side_by_side",
    "primitives::memory_that_is_shared",
    "primitives::pooling",
    "primitives::products_bf16",
    "primitives::products_f16",
    "primitives::products_f32",
    "primitives::products_i8",
    "primitives::products_of_several",
    "primitives::products_with_bias_and_activation",
    "primitives::reductions",
    "primitives::shapes_come_again",
    "primitives::shapes_that_are_wrong",
    "primitives::softmax_of_rows",
    "primitives::streams_side_by_side",
    "readings::plausible",
    "soundness::names_of_the_processor",
    "sources::implied_indices",
    "sources::metal_libraries",
    "sources::only_the_given_folders",
    "tensor::refused_attention",
    "tensor::refused_convolutions",
    "tensor::refused_normalization",
    "tensor::refused_pooling",
    "tensor::reshapes",
    "tensor::shapes_that_do_not_fit",
    "tensor::views",
    "tensor::views_beyond_their_buffer",
    "tensor_operations::wrong_operations",
];

fn has_no_kernels(name: &str) -> bool {
    WITHOUT_KERNELS.contains(&name) || name.ends_with("_by_the_library")
}

fn main() {
    let arguments = Arguments::from_args();
    let present = Ptxas::find(user_cache()).is_some();
    let required = std::env::var_os("ELINVAR_REQUIRE_PTXAS").is_some();
    let left_out = !present && !required;
    if left_out {
        eprintln!("ignored: assembling, as {NO_PTXAS}");
    }
    let mut trials = Vec::new();
    for case in cases() {
        let name = case.name;
        let none = has_no_kernels(name);
        if left_out && !none {
            let translates = move || translate(case).map(drop);
            trials.push(Trial::test(format!("ptx::translates::{name}"), translates));
        }
        let assembles = Trial::test(format!("ptx::{name}"), move || assemble(case));
        trials.push(assembles.with_ignored_flag(none || left_out));
    }
    trials.push(Trial::test("ptx::without_kernels", without_kernels));
    libtest_mimic::run(&arguments, sample::sample(trials, 16)).exit();
}

const NO_PTXAS: &str = "there is no ptxas: run `scripts/setup.sh numpy FOLDER`, which brings it on Linux, and set \
    ELINVAR_PTXAS=FOLDER/bin/ptxas";

/// Checks the list above: every name is a case, and no case without kernels requests one.
fn without_kernels() -> Result<(), Failed> {
    let all = cases();
    if let Some(name) = WITHOUT_KERNELS.iter().find(|name| !all.iter().any(|case| case.name == **name)) {
        return Err(format!("there is no case {name}").into());
    }
    for case in all.into_iter().filter(|case| has_no_kernels(case.name)) {
        let name = case.name;
        let device = device()?;
        let packed = device.packed();
        case.run(&Device::new(std::sync::Arc::new(device)))?;
        let packed = packed.lock();
        if !packed.kernels.is_empty() || !packed.refused.is_empty() {
            return Err(format!("{name} has kernels, and is listed as without").into());
        }
    }
    Ok(())
}

fn device() -> Result<Packing, Failed> {
    let below = elinvar_driver_cpu::driver().devices()?.into_iter().next().ok_or("there is no CPU device")?;
    Ok(Packing::new(below, user_cache(), Target::default()))
}

fn assemble(case: Case) -> Result<(), Failed> {
    let ptxas = Ptxas::find(user_cache()).ok_or(NO_PTXAS)?;
    for (source, ptx) in translate(case)? {
        ptxas.check(&ptx).map_err(|error| format!("{source}: {error}"))?;
    }
    Ok(())
}

/// Runs a case; returns the PTX of its kernels, each with its source.
fn translate(case: Case) -> Result<Vec<(String, Ptx)>, Failed> {
    let device = device()?;
    let packed = device.packed();
    // If the case needs what the CPU does not support, the kernels that it has requested until then are assembled.
    case.run(&Device::new(std::sync::Arc::new(device)))?;
    let mut packed = packed.lock();
    if packed.kernels.is_empty() && packed.refused.is_empty() {
        return Err("it has no kernel, and is not listed in WITHOUT_KERNELS".into());
    }
    // The chapter `soundness` tests which kernels are refused, and the messages.
    let refusals = if case.name.starts_with("soundness::") { &[][..] } else { &packed.refused[..] };
    for (source, error) in refusals {
        let said = error.to_string();
        if !REFUSED.iter().any(|(kernel, why)| kernel == source && said.contains(why)) {
            return Err(format!("{source}: {said}").into());
        }
    }
    Ok(std::mem::take(&mut packed.kernels))
}
