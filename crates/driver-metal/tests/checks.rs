//! Bounds checks by Metal's shader validation. Validation is enabled for a whole process, so most tests run others in a child process with
//! the environment under test.
#![cfg(elinvar_apple)]

mod support;

use std::process::Command as Process;
use std::sync::Arc;

use elinvar_driver::{
    Binding, Command, Device, Dispatch, Error, Fault, Label, Pipeline, PipelineOptions, Result, Source,
    Storage,
};
use support::{devices, dispatch, memory, read, run, slice, whole, words, write};

const SOURCE: &str = "#include <metal_stdlib>
kernel void shift(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                  constant int& by [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    uint value =
        in[int(i) + by];
    out[i] = value + 1;
}
kernel void picks(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    uint mine[4] = {i, i + 1, i + 2, i + 3};
    x[i] = mine[x[i]];
}
kernel void within(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    uint mine[4] = {i, i + 1, i + 2, i + 3};
    uint sum = 0;
    for (uint k = 0; k < 4; ++k) sum += mine[k];
    x[i] = sum;
}";

fn checked(device: &dyn Device, name: &str) -> Result<Arc<dyn Pipeline>> {
    let options = PipelineOptions { checked: true, ..PipelineOptions::default() };
    device.compile(&Source::named("folder/shift.metal", SOURCE))?.pipeline(name, &options)
}

/// Runs an ignored test in a child process with this environment, and without the `MTL_` variables of this process.
fn with(environment: &[(&str, &str)], test: &str) {
    let mut process = Process::new(std::env::current_exe().unwrap());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("MTL_") {
            process.env_remove(name);
        }
    }
    process.env("ELINVAR_APPLE_PROFILE", "apple9").envs(environment.iter().copied());
    let out = process.args(["--exact", "--ignored", test]).output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(
        out.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

const ON: [(&str, &str); 2] =
    [("MTL_SHADER_VALIDATION", "1"), ("MTL_SHADER_VALIDATION_DEFAULT_STATE", "none")];

/// The message with which a checked kernel is refused.
fn refusal(name: &str) -> String {
    match checked(&*devices()[0], name) {
        Err(Error::Unsupported(text)) => text,
        other => {
            panic!("expected `Unsupported`, got {:?}", other.map(|pipeline| pipeline.signature().clone()))
        }
    }
}

#[test]
fn without_the_layer_there_are_none() {
    with(&[], "says_that_the_process_has_none");
    with(&[("MTL_SHADER_VALIDATION", "0")], "says_that_the_process_has_none");
}

#[test]
#[ignore = "runs in a process without shader validation"]
fn says_that_the_process_has_none() {
    let text = refusal("shift");
    assert!(text.starts_with("bounds checks in kernel `shift`: "), "{text}");
    assert!(text.contains("MTL_SHADER_VALIDATION=1"), "{text}");
}

#[test]
fn before_macos_15_there_are_none() {
    with(&[ON[0], ("ELINVAR_APPLE_OS", "14.5")], "says_that_the_system_has_none");
}

#[test]
#[ignore = "runs in a process of an older system"]
fn says_that_the_system_has_none() {
    assert!(refusal("shift").contains("macOS 15"), "{}", refusal("shift"));
}

#[test]
fn validation_that_is_not_whole_is_none() {
    for (name, value) in [
        ("MTL_SHADER_VALIDATION_FAIL_MODE", "allow"),
        ("MTL_SHADER_VALIDATION_GLOBAL_MEMORY", "0"),
        ("MTL_SHADER_VALIDATION_ENABLE_ERROR_REPORTING", "0"),
    ] {
        with(&[ON[0], ON[1], (name, value)], "names_what_is_switched_off");
    }
}

#[test]
#[ignore = "runs in a process where a part is switched off"]
fn names_what_is_switched_off() {
    assert!(refusal("shift").contains("MTL_SHADER_VALIDATION_"), "{}", refusal("shift"));
}

#[test]
fn with_the_layer_what_is_outside_is_found() {
    with(&ON, "finds_what_is_outside");
    with(&ON[..1], "finds_what_is_outside");
}

fn shift(pipeline: &Arc<dyn Pipeline>, bindings: Vec<Binding>, threads: u32, name: &str) -> Command {
    let Command::Dispatch(plain) = dispatch(pipeline, bindings, threads, 32) else {
        unreachable!("a dispatch")
    };
    Command::Dispatch(Dispatch { label: Some(Arc::new(Label { name: name.into(), id: 1 })), ..plain })
}

#[test]
#[ignore = "runs in a process with shader validation"]
fn finds_what_is_outside() {
    for device in devices() {
        assert!(!device.caps().features.names_accesses);
        expect_bounds_of_arguments(&*device);
        expect_others_are_let_be(&*device);
        expect_refusals(&*device);
    }
}

/// Checks that the bounds are those of the bound slices, regardless of what surrounds them.
fn expect_bounds_of_arguments(device: &dyn Device) {
    let (kernel, queue) = (checked(device, "shift").unwrap(), device.queue().unwrap());
    for storage in [Storage::Shared, Storage::Private, Storage::Managed] {
        let (x, y) = (memory(device, 4000, storage), memory(device, 4000, storage));
        let numbers: Vec<u8> = (0..1000_u32).flat_map(u32::to_ne_bytes).collect();
        write(&x, 0, &numbers);
        let by = |by: i32| Binding::bytes(&by.to_ne_bytes());
        let launch = |from: u64, len: u64, shifted: i32, name: &str| {
            let bindings = vec![
                Binding::Memory(slice(&x, 4 * from, 4 * len)),
                Binding::Memory(slice(&y, 400, 404)),
                by(shifted),
            ];
            shift(&kernel, bindings, 101, name)
        };
        // Two launches in a submission, both within bounds.
        run(&*queue, vec![launch(0, 101, 0, "a"), launch(100, 111, 10, "b")]).unwrap();
        let expect = |from: u32, to: u32| {
            let found = words(&y);
            let right = |(i, word): (usize, &u32)| {
                let inside = (100..201).contains(&i);
                *word
                    == if inside && i as u32 - 100 < to {
                        from + i as u32 - 100 + 1
                    } else {
                        u32::from(inside)
                    }
            };
            assert!(found.iter().enumerate().all(right), "{storage:?}: {:?}", &found[95..205]);
        };
        expect(110, 101);
        // One element too few: the read returns zero, and the fault names the launch and the source line.
        let fills = Command::Fill { target: whole(&y), pattern: vec![0] };
        let commands =
            vec![fills, launch(0, 101, 0, "good"), launch(50, 100, 0, "bad"), launch(0, 101, 0, "last")];
        let failed = run(&*queue, commands[..3].to_vec());
        let Err(Error::Fault(Fault { kernel: name, location, launch: Some(label), .. })) = failed else {
            panic!("expected a fault with the launch's label, got {failed:?}");
        };
        assert_eq!((name.as_str(), &*label.name), ("shift", "bad"));
        assert_eq!(location.as_deref(), Some("folder/shift.metal:5"));
        expect(50, 100);
        assert!(matches!(run(&*queue, vec![launch(0, 101, 0, "behind")]), Err(Error::Poisoned(_))));
        assert!(matches!(queue.acknowledge(), Some(Error::Fault(_))));
        assert_eq!(read(&x), numbers, "what is only read is not written");
        // Before the start of the slice, and in an empty slice.
        for (from, len, shifted) in [(500, 101, -1), (500, 0, 0)] {
            let failed = run(&*queue, vec![launch(from, len, shifted, "c")]);
            assert!(matches!(&failed, Err(Error::Fault(fault)) if fault.kernel == "shift"), "{failed:?}");
            queue.acknowledge().unwrap();
        }
        // An out-of-bounds write is dropped: the last thread's element is behind the slice.
        let bindings = vec![Binding::Memory(slice(&x, 0, 404)), Binding::Memory(slice(&y, 400, 400)), by(0)];
        let before = words(&y)[200];
        assert!(matches!(run(&*queue, vec![shift(&kernel, bindings, 101, "d")]), Err(Error::Fault(_))));
        queue.acknowledge().unwrap();
        assert_eq!(words(&y)[200], before);
    }
}

/// Validation may be on for all kernels; faults of kernels without checks are not reported.
fn expect_others_are_let_be(device: &dyn Device) {
    let checked = checked(device, "shift").unwrap();
    let plain = device.compile(&Source::named("shift.metal", SOURCE)).unwrap();
    let plain = plain.pipeline("shift", &PipelineOptions::default()).unwrap();
    let (x, y) = (memory(device, 4000, Storage::Shared), memory(device, 4000, Storage::Shared));
    // With `by` = 1, reads the word behind its buffer, which is on the same page.
    let launch = |kernel: &Arc<dyn Pipeline>, by: i32, name: &str| {
        let by = Binding::bytes(&by.to_ne_bytes());
        shift(kernel, vec![Binding::Memory(whole(&x)), Binding::Memory(whole(&y)), by], 1000, name)
    };
    let queue = device.queue().unwrap();
    run(&*queue, vec![launch(&plain, 1, "plain"), launch(&checked, 0, "checked")]).unwrap();
    assert!(words(&y).iter().all(|word| *word == 1));
    let failed = run(&*queue, vec![launch(&plain, 1, "plain"), launch(&checked, 1, "checked")]);
    let is_right = |fault: &Fault| fault.launch.as_ref().is_some_and(|label| &*label.name == "checked");
    assert!(matches!(&failed, Err(Error::Fault(fault)) if is_right(fault)), "{failed:?}");
}

fn expect_refusals(device: &dyn Device) {
    let text = refusal("picks");
    assert!(
        text.starts_with(
            "bounds checks in kernel `picks`: folder/shift.metal:10: a private array may be accessed out of bounds"
        ),
        "{text}"
    );
    checked(device, "within").expect("what cannot leave its array is none");
    let (kernel, queue, x) =
        (checked(device, "shift").unwrap(), device.queue().unwrap(), memory(device, 400, Storage::Shared));
    let by = Binding::bytes(&[0; 4]);
    let both = vec![Binding::Memory(slice(&x, 0, 200)), Binding::Memory(slice(&x, 196, 200)), by.clone()];
    let refused = run(&*queue, vec![dispatch(&kernel, both, 10, 10)]).unwrap_err().to_string();
    assert!(refused.contains("arguments `in` and `out` share memory"), "{refused}");
    queue.acknowledge().unwrap();
    let apart = vec![Binding::Memory(slice(&x, 0, 200)), Binding::Memory(slice(&x, 200, 200)), by];
    run(&*queue, vec![dispatch(&kernel, apart, 50, 50)]).unwrap();
    assert!(words(&x)[50..].iter().all(|word| *word == 1));
}
