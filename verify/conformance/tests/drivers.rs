//! Runs the suite on every device that is present, one test per case.
//!
//! A case that a device does not support is never a pass. It must be listed below with its reason. It is then an ignored test, and
//! a second test, `…::is_unsupported`, runs it and fails unless the device gives that reason. `suite::unsupported` counts and lists
//! these cases. A case that is unsupported and not listed fails.

#[path = "support/sample.rs"]
mod sample;

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use elinvar::driver::primitive::{DataType, PrimitiveKind};
use elinvar::{Device, DeviceKind, IsolatedOptions};
use elinvar_conformance::suite::{
    Case, Failure, GroupCase, Outcome, PairCase, cases, group_cases, memory_is_short, pair_cases,
};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Cases that a driver does not support, with the reason, which is a part of the error's message.
const UNSUPPORTED: &[(&str, &str, &str)] = &[
    ("cpu", "errors::captures", NO_CAPTURE),
    ("isolated", "callbacks::waits_in_a_destructor", "it is isolated"),
    ("isolated", "errors::captures", NO_CAPTURE),
    ("isolated", "indirect_commands::", "the worker compiles nothing"),
    ("isolated", "memory::flag_of_the_host", "it is isolated"),
    ("isolated", "memory::of_the_host", "it is isolated"),
    ("isolated", "nested_launches::", "the worker compiles nothing"),
    ("isolated_cuda", "barriers::different_barriers_fault", "does not detect that threads"),
    ("isolated_cuda", "callbacks::waits_in_a_destructor", "it is isolated"),
    ("isolated_cuda", "cooperative::a_missed_barrier", "does not detect that threadgroups"),
    ("isolated_cuda", "cooperative::a_deadline_while_groups_wait", "cannot stop a thread within a loop"),
    ("isolated_cuda", "errors::captures", NO_CAPTURE),
    ("isolated_cuda", "indirect_commands::", "the worker compiles nothing"),
    ("isolated_cuda", "memory::flag_of_the_host", "it is isolated"),
    ("isolated_cuda", "memory::of_the_host", "it is isolated"),
    ("isolated_cuda", "nested_launches::", "the worker compiles nothing"),
    ("isolated_cuda", "pipeline::a_deadline_stops_a_long_launch", "cannot stop running work"),
    ("isolated_cuda", "pipeline::a_deadline_stops_endless_loops", "cannot stop a thread within a loop"),
    ("cuda", "errors::captures", NO_CAPTURE),
    ("cuda", "barriers::different_barriers_fault", "does not detect that threads"),
    ("cuda", "cooperative::a_missed_barrier", "does not detect that threadgroups"),
    ("cuda", "cooperative::a_deadline_while_groups_wait", "cannot stop a thread within a loop"),
    ("cuda", "indirect_commands::a_deadline_within_a_command", "cannot stop a thread within a loop"),
    ("cuda", "nested_launches::a_deadline_of_endless_levels", "cannot stop running work"),
    ("cuda", "nested_launches::a_deadline_within_a_child", "cannot stop a thread within a loop"),
    ("cuda", "pipeline::a_deadline_stops_a_long_launch", "cannot stop running work"),
    ("cuda", "pipeline::a_deadline_stops_endless_loops", "cannot stop a thread within a loop"),
    ("cuda", "primitives::convolutions_with_weights_of_f32", "takes weights of the images' type only"),
    ("metal", "accesses::checked_neighbors_at_edges", NO_LAYER),
    ("metal", "barriers::different_barriers_fault", UNDEFINED),
    ("metal", "barriers::divergent_barrier_refused", UNDEFINED),
    ("metal", "bindings::accesses_of_a_part", NO_LAYER),
    ("metal", "bindings::accesses_of_unbound_buffers", NO_LAYER),
    ("metal", "checks::atomics", NO_LAYER),
    ("metal", "checks::barriers_and_early_return", ONLY_BUFFERS),
    ("metal", "checks::before_the_start", NO_LAYER),
    ("metal", "checks::constant_table", ONLY_BUFFERS),
    ("metal", "checks::divergent_barriers", NO_LAYER),
    ("metal", "checks::dynamic_threadgroup_memory", ONLY_BUFFERS),
    ("metal", "checks::empty_buffer", NO_LAYER),
    ("metal", "checks::one_of_two_buffers", NO_LAYER),
    ("metal", "checks::private_array", ONLY_BUFFERS),
    ("metal", "checks::read_past_the_end", NO_LAYER),
    ("metal", "checks::slices_are_bounds", NO_LAYER),
    ("metal", "checks::struct_copy", NO_LAYER),
    ("metal", "checks::threadgroup_variable", ONLY_BUFFERS),
    ("metal", "checks::wide_indices", NO_LAYER),
    ("metal", "checks::within_bounds_nothing_changes", NO_LAYER),
    ("metal", "checks::works_after_a_fault", NO_LAYER),
    ("metal", "checks::write_past_the_end", NO_LAYER),
    ("metal", "cooperative::a_deadline_while_groups_wait", "cannot stop a thread within a loop"),
    ("metal", "cooperative::a_fault_ends_the_launch", NO_LAYER),
    ("metal", "cooperative::a_fault_ends_the_launch", NO_CHECKED_BARRIERS),
    ("metal", "cooperative::a_missed_barrier", "does not detect that threadgroups"),
    ("metal", "cooperative::checked_kernels", NO_LAYER),
    ("metal", "cooperative::checked_kernels", NO_CHECKED_BARRIERS),
    ("metal", "cooperative::conjugate_gradient", "another function of `this_grid`"),
    ("metal", "cooperative::private_values_are_kept", "a pointer to private memory"),
    ("metal", "cooperative::several_barriers", "in a function that is no kernel"),
    ("metal", "cooperative::threadgroup_memory_is_kept", "threadgroup memory, which is not kept"),
    ("metal", "errors::captures", NO_TRACE),
    ("metal", "events::a_failure_goes_on", NO_LAYER),
    ("metal", "function_pointers::refused_tables", NO_TABLES),
    ("metal", "function_pointers::tables", NO_TABLES),
    ("metal", "function_pointers::tables_by_position", NO_TABLES),
    ("metal", "graphs::checked_launches", NO_LAYER),
    ("metal", "graphs::faults_stay_where_they_are", NO_LAYER),
    ("metal", "indirect::checked_kernels", NO_LAYER),
    ("metal", "indirect::counts_beyond_the_limits", "the device alone sees the counts"),
    ("metal", "indirect::errors_reach_what_is_behind", "the device alone sees the counts"),
    ("metal", "indirect_commands::a_deadline_within_a_command", NO_STOP),
    ("metal", "indirect_commands::faults_name_the_command", NO_LAYER),
    ("metal", "indirect_commands::faults_name_the_command", NO_CHECKED_COMMANDS),
    ("metal", "indirect_commands::random_records", NO_LAYER),
    ("metal", "indirect_commands::random_records", NO_CHECKED_COMMANDS),
    ("metal", "large_buffers::checked_accesses_of_4_gib", NO_LAYER),
    ("metal", "large_buffers::checked_accesses_of_12_gib", NO_LAYER),
    ("metal", "libraries::tables_of_functions", NO_TABLES),
    ("metal", "logging::", "Metal has no printf"),
    ("metal", "nested_launches::a_deadline_of_endless_levels", NO_STOP),
    ("metal", "nested_launches::a_deadline_within_a_child", NO_STOP),
    ("metal", "nested_launches::a_fault_in_a_child", NO_LAYER),
    ("metal", "nested_launches::a_fault_in_a_child", NO_CHECKED_COMMANDS),
    ("metal", "pipeline::a_deadline_stops_a_long_launch", NO_STOP),
    ("metal", "pipeline::a_deadline_stops_endless_loops", NO_STOP),
    ("metal", "pipeline::a_fault_names_its_launch", NO_LAYER),
    ("metal", "primitives::products_bf16", "takes matrices without gaps only"),
    ("metal", "readings::", "Metal reports"),
    ("metal", "resident::", "resident kernels on Metal"),
    ("metal", "soundness::bytes_as_bools", ONLY_BUFFERS),
    ("metal", "thread_groups::grids", "another function of `this_grid`"),
    ("metal", "timeline::a_failed_launch_is_in_the_timeline", NO_LAYER),
    ("metal", "soundness::calls_out_of_the_kernel", OWN_COMPILER),
    ("metal", "soundness::const_that_is_cast_away", NO_LAYER),
    ("metal", "soundness::memory_of_others", ONLY_BUFFERS),
    ("metal", "soundness::names_of_the_processor", OWN_COMPILER),
    ("metal", "soundness::pointers_of_one_or_none", ONLY_BUFFERS),
    ("toy", "arguments::aliasing_arguments", "no arguments that overlap"),
    ("toy", "callbacks::waits_in_a_destructor", "of host memory in place"),
    ("toy", "logging::delivered_while_it_runs", "kernels of two streams at once"),
    ("toy", "memory::flag_of_the_host", "of host memory in place"),
    ("toy", "memory::of_the_host", "of host memory in place"),
];

/// Cases that need a primitive of a library.
const OF_A_LIBRARY: &[(&str, PrimitiveKind, DataType)] = &[
    ("primitives::a_beta_of_zero_ignores_what_was_there", PrimitiveKind::MatVec, DataType::F32),
    ("primitives::between_kernels", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::convolutions", PrimitiveKind::Convolution, DataType::F32),
    ("primitives::convolutions_with_weights_of_f32", PrimitiveKind::Convolution, DataType::F16),
    ("primitives::images_beyond_the_limit", PrimitiveKind::Reduction, DataType::F32),
    ("primitives::in_a_graph", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::matrix_and_vector", PrimitiveKind::MatVec, DataType::F32),
    ("primitives::memory_side_by_side", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::pooling", PrimitiveKind::Pooling, DataType::F32),
    ("primitives::products_bf16", PrimitiveKind::MatMul, DataType::BF16),
    ("primitives::products_f16", PrimitiveKind::MatMul, DataType::F16),
    ("primitives::products_f32", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::products_i8", PrimitiveKind::MatMul, DataType::I8),
    ("primitives::products_of_several", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::products_with_bias_and_activation", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::recorded_once", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::reductions", PrimitiveKind::Reduction, DataType::F32),
    ("primitives::shapes_come_again", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::softmax_of_rows", PrimitiveKind::Softmax, DataType::F32),
    ("primitives::streams_side_by_side", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::submitted_one_by_one", PrimitiveKind::MatMul, DataType::F32),
    ("primitives::weights_of_the_same_stream", PrimitiveKind::Convolution, DataType::F32),
    ("tensor::attention_by_the_library", PrimitiveKind::Attention, DataType::F32),
    ("tensor::batch_normalization_by_the_library", PrimitiveKind::BatchNorm, DataType::F32),
    ("tensor::batches_by_the_library", PrimitiveKind::MatMul, DataType::F32),
    ("tensor::integers_by_the_library", PrimitiveKind::MatMul, DataType::I8),
    ("tensor::normalization_by_the_library", PrimitiveKind::Normalization, DataType::F32),
    ("tensor::products_by_the_library", PrimitiveKind::MatMul, DataType::F32),
    ("tensor::softmax_by_the_library", PrimitiveKind::Softmax, DataType::F32),
    ("tensor::transposed_convolutions_by_the_library", PrimitiveKind::VolumeConvolution, DataType::F32),
    ("tensor::volumes_by_the_library", PrimitiveKind::VolumeConvolution, DataType::F32),
    ("tensor::windows_by_the_library", PrimitiveKind::Convolution, DataType::F32),
];

/// Chapters that run on an isolated device: those about devices, memory and queues. All others are about code generation, which is that of
/// the underlying device.
const ISOLATED: [&str; 23] = [
    "argument_buffers::",
    "arguments::",
    "basics::",
    "callbacks::",
    "checks::",
    "constants::",
    "cooperative::",
    "errors::",
    "events::",
    "graphs::",
    "grids::",
    "indirect::",
    "indirect_commands::",
    "large_buffers::",
    "logging::",
    "memory::",
    "nested_launches::",
    "order::",
    "os_log::",
    "pipeline::",
    "readings::",
    "streams::",
    "timeline::",
];

/// Chapters that run on the toy driver.
const TOY: [&str; 8] = [
    "arguments::",
    "callbacks::",
    "events::",
    "indirect::",
    "logging::",
    "memory::",
    "os_log::",
    "overloads::",
];

const UNDEFINED: &str = "Metal leaves undefined what happens at a barrier";
const ONLY_BUFFERS: &str = "Metal's shader validation is documented for buffers only";
/// Does not apply if shader validation is enabled for the process.
const NO_DEVICE_RUNTIME: &str = "libcudadevrt.a";
const NO_CHECKED_BARRIERS: &str = "bounds checks of kernels with grid barriers on Metal";
const NO_CHECKED_COMMANDS: &str = "bounds checks of commands in memory";
const NO_LAYER: &str = "shader validation is off";
const NO_TABLES: &str = "the Metal driver does not support tables of functions";
const OWN_COMPILER: &str = "Metal's own compiler reads the source";
/// As the chapter `large_buffers` says it.
const SHORT: &str = "memory is short";
const NO_STOP: &str = "this device cannot stop";
const NO_CAPTURE: &str = "does not support captures";
/// Does not apply if the process may write GPU traces.
const NO_TRACE: &str = "Metal writes no GPU trace for this process";
const NOT_UNIFIED: &str = "no unified memory";
const NO_LIBRARY: &str = "has no library";

/// Whether a row is for a case: it names the case or its chapter.
fn is_for(row: &str, case: &str) -> bool {
    row == case || (row.ends_with("::") && case.starts_with(row))
}

/// Why the device with index `number` among those of its kind does not support a case; `None` if it must compute it.
fn unsupported((number, device): (usize, &Device), case: &str) -> Option<&'static str> {
    let needs = OF_A_LIBRARY.iter().find(|(name, ..)| *name == case);
    if needs.is_some_and(|(_, kind, data_type)| !has_primitive((number, device), *kind, *data_type)) {
        return Some(NO_LIBRARY);
    }
    if ["indirect_commands::", "nested_launches::"].iter().any(|chapter| case.starts_with(chapter))
        && lacks_device_runtime(device)
    {
        return Some(NO_DEVICE_RUNTIME);
    }
    if let Some(reason) = memory_lacks(device, case).or_else(|| lacks_energy(device, case)) {
        return Some(reason);
    }
    let set = |variable: &str| std::env::var_os(variable).is_some_and(|value| value != "0");
    let mut listed =
        UNSUPPORTED.iter().filter(|(kind, row, _)| *kind == device.kind().name() && is_for(row, case));
    let listed = listed.find(|(_, _, reason)| match *reason {
        NO_LAYER => !set("MTL_SHADER_VALIDATION"),
        NO_TRACE => !set("METAL_CAPTURE_ENABLED"),
        _ => true,
    });
    listed.map(|(_, _, reason)| *reason)
}

/// Whether CUDA's device runtime was not found: the device tells the reason in place of the file.
fn lacks_device_runtime(device: &Device) -> bool {
    let details = device.details();
    let found = details.iter().find(|(name, _)| *name == "device runtime");
    found.is_some_and(|(_, file)| !std::path::Path::new(file).is_file())
}

/// Whether the CPU has no energy counter that this user may read.
fn lacks_energy(device: &Device, case: &str) -> Option<&'static str> {
    let counter = "/sys/class/powercap/intel-rapl:0/energy_uj";
    let lacks = device.kind() == DeviceKind::Cpu
        && case == "readings::energy"
        && std::fs::read_to_string(counter).is_err();
    lacks.then_some("/sys/class/powercap")
}

/// Why a device's memory does not allow a case of the chapter `large_buffers`.
fn memory_lacks(device: &Device, case: &str) -> Option<&'static str> {
    let unified = device.caps().features.unified_memory || !case.starts_with("large_buffers::maps_");
    if unified { memory_is_short(device, case) } else { Some(NOT_UNIFIED) }
}

/// Whether a device must have a primitive. Apple's GPUs have them by Metal Performance Shaders for two types, except for the stand-in's profile
/// of family Apple1, and by MPSGraph from macOS 13 on (12.3, on which the suite is not run); those of NVIDIA GPUs depend on the libraries that are installed.
fn has_primitive((number, device): (usize, &Device), kind: PrimitiveKind, data_type: DataType) -> bool {
    let profiles = if cfg!(elinvar_apple) { std::env::var("ELINVAR_APPLE_PROFILE").ok() } else { None };
    let profile = profiles.as_deref().and_then(|all| all.split(',').nth(number));
    match device.kind() {
        DeviceKind::Metal => {
            use PrimitiveKind::{Attention, BatchNorm, MatMul, Normalization, VolumeConvolution};
            let has_library = profile.is_none_or(|profile| profile.trim() != "apple1");
            let is_float = matches!(data_type, DataType::F16 | DataType::F32);
            let is_new = matches!(kind, VolumeConvolution | BatchNorm | Normalization | Attention);
            let by_shaders = !is_new && is_float;
            let is_of_graph = is_new || kind == MatMul;
            let has_type = is_float || data_type == DataType::BF16 && apple_system() >= 14;
            has_library && (by_shaders || is_of_graph && has_type && apple_system() >= 13)
        }
        DeviceKind::Cuda => device.caps().features.primitives.has(kind, data_type),
        DeviceKind::Cpu => {
            use PrimitiveKind::{Convolution, MatMul, MatVec};
            matches!(kind, MatMul | MatVec | Convolution) && data_type.is_float()
        }
        _ => false,
    }
}

/// The major version of macOS: the stand-in's. On a Mac, one that has all.
fn apple_system() -> u32 {
    let version = if cfg!(elinvar_apple) { std::env::var("ELINVAR_APPLE_OS").ok() } else { None };
    let major = version.as_deref().and_then(|version| version.split('.').next()?.parse().ok());
    major.unwrap_or(u32::MAX)
}

fn main() {
    elinvar::serve_if_asked();
    let mut arguments = Arguments::from_args();
    if cfg!(elinvar_apple) {
        // Leaked objects can be attributed to a case only if no other case runs.
        arguments.test_threads = Some(1);
    }
    let devices = Device::all().unwrap_or_else(|error| panic!("listing devices: {error}"));
    assert!(!devices.is_empty(), "there is no device; the CPU driver always has one");
    let mut trials = Vec::new();
    // A missing device is reported as an ignored test, and never counts as passed.
    for (kind, reason) in Device::absent() {
        eprintln!("skipped: no {} device: {reason}", maker(kind));
        trials.push(Trial::test(format!("{kind}::no_device"), || Ok(())).with_ignored_flag(true));
    }
    // Copies between each two devices, in both directions.
    for (one, ours) in devices.iter().enumerate() {
        for (other, theirs) in devices.iter().enumerate().filter(|(other, _)| *other != one) {
            trials
                .extend(pair_cases().into_iter().map(|case| pair_trial(case, (one, ours), (other, theirs))));
        }
    }
    // Collectives of all devices of a kind, or of one three times.
    for kind in [DeviceKind::Cuda, DeviceKind::Metal, DeviceKind::Cpu] {
        let all: Vec<Device> = devices.iter().filter(|device| device.kind() == kind).cloned().collect();
        let members = if all.len() == 1 { vec![all[0].clone(); 3] } else { all };
        if !members.is_empty() {
            trials.extend(group_cases().into_iter().map(|case| group_trial(case, &members)));
        }
    }
    let mut list = Vec::new();
    for (at, device) in devices.iter().enumerate() {
        let number = devices[..at].iter().filter(|before| before.kind() == device.kind()).count();
        let all = cases();
        let supported = all.iter().filter(|case| unsupported((number, device), case.name).is_none()).count();
        let kind = device.kind().name();
        list.push(format!(
            "{kind} `{}`: {supported} cases compute, {} unsupported",
            device.name(),
            all.len() - supported
        ));
        for case in all {
            let reason = unsupported((number, device), case.name);
            list.extend(reason.map(|reason| format!("  {}: {reason}", case.name)));
            let device = device.clone();
            trials.extend(case_trials(kind, case, move || device.clone(), reason));
        }
    }
    for case in cases().into_iter().filter(|case| TOY.iter().any(|chapter| case.name.starts_with(chapter))) {
        let row = UNSUPPORTED.iter().find(|(kind, name, _)| (*kind, *name) == ("toy", case.name));
        trials.extend(case_trials("toy", case, toy, row.map(|(_, _, reason)| *reason)));
    }
    if cfg!(target_os = "linux") {
        let differs = |case: &Case| ISOLATED.iter().any(|chapter| case.name.starts_with(chapter));
        let isolated = [
            (DeviceKind::Cpu, "isolated", isolated as fn() -> Device),
            (DeviceKind::Cuda, "isolated_cuda", isolated_gpu),
        ];
        for (of, kind, open) in isolated {
            // The inner device has the memory of the same kind of device in this process.
            let Some(inner) = devices.iter().find(|device| device.kind() == of) else { continue };
            for case in cases().into_iter().filter(differs) {
                let mut row =
                    UNSUPPORTED.iter().filter(|(of, name, _)| *of == kind && is_for(name, case.name));
                let listed = row.next().map(|(_, _, reason)| *reason);
                let reason = memory_lacks(inner, case.name).or(lacks_energy(inner, case.name)).or(listed);
                trials.extend(case_trials(kind, case, open, reason));
            }
        }
    }
    trials.push(Trial::test("suite::unsupported", move || lists(&list)));
    let conclusion = libtest_mimic::run(&arguments, sample::sample(trials, 8));
    print_slowest();
    conclusion.exit();
}

/// Times of cases that have run.
static TIMES: Mutex<Vec<(Duration, String)>> = Mutex::new(Vec::new());

/// Prints so many of the slowest cases as `ELINVAR_SLOWEST` says, and the sums of the slowest chapters.
fn print_slowest() {
    let Some(count) = std::env::var("ELINVAR_SLOWEST").ok().and_then(|count| count.parse().ok()) else {
        return;
    };
    let mut times = std::mem::take(&mut *TIMES.lock().unwrap_or_else(PoisonError::into_inner));
    let mut chapters: BTreeMap<String, Duration> = BTreeMap::new();
    for (took, name) in &times {
        let chapter = name.rsplit_once("::").map_or(&**name, |(chapter, _)| chapter);
        *chapters.entry(chapter.to_owned()).or_default() += *took;
    }
    let mut chapters: Vec<(Duration, String)> =
        chapters.into_iter().map(|(name, took)| (took, name)).collect();
    for list in [&mut times, &mut chapters] {
        list.sort_by(|a, b| b.cmp(a));
        list.iter().take(count).for_each(|(took, name)| println!("{:8.2} s  {name}", took.as_secs_f64()));
        println!();
    }
}

fn toy() -> Device {
    static TOY: LazyLock<Device> = LazyLock::new(|| Device::new(elinvar_conformance::toy::device()));
    TOY.clone()
}

fn group_trial(case: GroupCase, members: &[Device]) -> Trial {
    let (name, members) = (format!("{}::{}", members[0].kind().name(), case.name), members.to_vec());
    Trial::test(name, move || counted(false, || computed(case.run(&members))))
}

fn pair_trial(case: PairCase, (one, ours): (usize, &Device), (other, theirs): (usize, &Device)) -> Trial {
    let [from, to] = [ours, theirs].map(|device| device.kind().name());
    let name = format!("{from}::{}_from_{one}_to_{to}_{other}", case.name);
    let (ours, theirs) = (ours.clone(), theirs.clone());
    Trial::test(name, move || counted(false, || computed(case.run(&ours, &theirs))))
}

/// The test of a case. If the case is unsupported, the test is ignored, and a second one expects the reason.
fn case_trials(
    kind: &str,
    case: Case,
    device: impl Fn() -> Device + Send + 'static,
    reason: Option<&'static str>,
) -> Vec<Trial> {
    let name = format!("{kind}::{}", case.name);
    // Calls of CUDA that wait for the device, such as loading a module, wait for a resident kernel as well, and hold up those of its own case.
    let is_alone = kind == "cuda" && case.name.starts_with("resident::");
    let Some(reason) = reason else {
        let full = name.clone();
        let run = move || {
            let (mut skipped, begun) = (None, Instant::now());
            counted(is_alone, || match case.run(&device())? {
                // Others may use the memory that this case needs: it is ignored, with the reason.
                Outcome::Unsupported(text) if text.contains(SHORT) => {
                    skipped = Some(text);
                    Ok(())
                }
                outcome => computed(Ok(outcome)),
            })?;
            TIMES.lock().unwrap_or_else(PoisonError::into_inner).push((begun.elapsed(), full.clone()));
            Ok(skipped.map_or(Completion::Completed, Completion::ignored_with))
        };
        return vec![Trial::ignorable_test(name, run)];
    };
    let refused = Trial::test(format!("{name}::is_unsupported"), move || {
        counted(is_alone, || match case.run(&device())? {
            Outcome::Unsupported(text) if text.contains(reason) => Ok(()),
            Outcome::Unsupported(text) => Err(format!("expected `{reason}`, got: {text}").into()),
            Outcome::Computed => Err(format!("computes, though it is listed as: {reason}").into()),
        })
    });
    let ignored = Trial::ignorable_test(name, move || Ok(Completion::ignored_with(reason)));
    vec![ignored.with_ignored_flag(true), refused]
}

/// The CPU in a worker process; this program is the worker program.
fn isolated() -> Device {
    static DEVICE: LazyLock<Device> =
        LazyLock::new(|| Device::isolated().unwrap_or_else(|error| panic!("an isolated device: {error}")));
    DEVICE.clone()
}

/// The first NVIDIA GPU in a worker process.
fn isolated_gpu() -> Device {
    static DEVICE: LazyLock<Device> = LazyLock::new(|| {
        let options = IsolatedOptions { kind: DeviceKind::Cuda, ..Default::default() };
        Device::isolated_with(&options).unwrap_or_else(|error| panic!("an isolated GPU: {error}"))
    });
    DEVICE.clone()
}

fn computed(outcome: Result<Outcome, Failure>) -> Result<(), Failed> {
    match outcome? {
        Outcome::Computed => Ok(()),
        Outcome::Unsupported(reason) => Err(format!("unsupported, and not listed: {reason}").into()),
    }
}

/// Runs a case, with others or alone; it also fails if it leaks Metal objects, where these are counted.
fn counted(is_alone: bool, case: impl FnOnce() -> Result<(), Failed>) -> Result<(), Failed> {
    static TURNS: RwLock<()> = RwLock::new(());
    if is_alone {
        let _turn = TURNS.write().unwrap_or_else(PoisonError::into_inner);
        case()?;
    } else {
        let _turn = TURNS.read().unwrap_or_else(PoisonError::into_inner);
        case()?;
    }
    #[cfg(elinvar_apple)]
    left::expect_what_devices_keep()?;
    Ok(())
}

/// Prints the supported and unsupported cases of each device; fails if a row of the tables names no case.
fn lists(list: &[String]) -> Result<(), Failed> {
    let known = cases();
    let rows =
        UNSUPPORTED.iter().map(|(_, case, _)| *case).chain(OF_A_LIBRARY.iter().map(|(case, ..)| *case));
    let unknown: Vec<&str> = rows.filter(|row| !known.iter().any(|case| is_for(row, case.name))).collect();
    println!("{}", list.join("\n"));
    if unknown.is_empty() { Ok(()) } else { Err(format!("no such cases: {unknown:?}").into()) }
}

/// Display name of the maker of a driver's devices.
fn maker(kind: &str) -> &str {
    match kind {
        "cuda" => "NVIDIA",
        "metal" => "Apple",
        other => other,
    }
}

/// Live Metal objects at the end of a case, as counted by the stand-ins for Apple's libraries.
#[cfg(elinvar_apple)]
#[allow(unsafe_code)] // calls their C functions
mod left {
    use std::ffi::{CStr, c_char};
    use std::time::{Duration, Instant};

    use elinvar::{Device, DeviceKind};
    use libtest_mimic::Failed;

    unsafe extern "C" {
        fn elinvar_apple_live(name: *const c_char) -> usize;
        fn elinvar_apple_settle(milliseconds: u64) -> bool;
        fn elinvar_apple_without_pool() -> usize;
    }

    /// Waits until all work has ended, and then until the threads that reported it have released their objects.
    fn settle(devices: &[Device]) -> Result<(), Failed> {
        devices.iter().try_for_each(Device::synchronize)?;
        // SAFETY: the function takes an integer and has no preconditions.
        let settled = unsafe { elinvar_apple_settle(600_000) };
        if settled { Ok(()) } else { Err("the stand-in's threads go on".into()) }
    }

    /// How long more objects than devices keep may be alive. A leak is permanent.
    const LONG: Duration = Duration::from_secs(120);

    /// Waits until no more objects are alive than devices keep. The last owner of a queue or kernel may be a thread of the runtime, for
    /// instance that of a recovering stream, which may be scheduled late.
    pub fn expect_what_devices_keep() -> Result<(), Failed> {
        let begin = Instant::now();
        loop {
            match look() {
                Err(_) if begin.elapsed() < LONG => std::thread::sleep(Duration::from_millis(1)),
                result => return result,
            }
        }
    }

    /// Compares the live objects with what a device keeps: its staging buffer, its queue, three kernels, five for commands in memory and
    /// up to four spare indirect command buffers, and up to four MPS kernels for each of 32 cached primitives.
    fn look() -> Result<(), Failed> {
        let devices = Device::all()?;
        settle(&devices)?;
        for device in &devices {
            device.pool().trim(0);
            device.release_tensor_kernels();
            // A trace keeps its kernels alive until the next one starts.
            device.trace().start(1);
            device.trace().stop();
        }
        settle(&devices)?;
        let metal = devices.iter().filter(|device| device.kind() == DeviceKind::Metal).count();
        let kept = [
            (c"MTLBuffer", metal),
            (c"MTLCommandBuffer", 0),
            (c"MTLCommandEncoder", 0),
            (c"MTLCommandQueue", metal),
            (c"MTLLibrary", 0),
            // For the first source with log calls.
            (c"MTLLogState", metal),
            (c"MTLComputePipelineState", 8 * metal),
            (c"MTLIndirectCommandBuffer", 4 * metal),
            (c"MPSKernel", 4 * 32 * metal),
            (c"MPSMatrix", 0),
            (c"MPSVector", 0),
            (c"MPSImage", 0),
            (c"MPSCNNConvolutionWeightsAndBiasesState", 0),
        ];
        let live = |name: &CStr| {
            // SAFETY: the name ends with a zero byte.
            unsafe { elinvar_apple_live(name.as_ptr()) }
        };
        let left = kept.into_iter().map(|(name, most)| (name, live(name), most));
        let left = left.filter(|(_, alive, most)| alive > most);
        let mut left =
            left.map(|(name, alive, most)| format!("{alive} of {name:?} are alive, {most} are kept"));
        // SAFETY: the function has no preconditions.
        let without_pool = unsafe { elinvar_apple_without_pool() };
        match (left.next(), without_pool) {
            (Some(text), _) => Err(text.into()),
            (None, 0) => Ok(()),
            (None, count) => Err(format!("{count} objects were autoreleased without a pool").into()),
        }
    }
}
