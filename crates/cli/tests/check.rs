//! `elinvar check`: the state of every kernel of a file for each target, and the reasons why a target does not support it.

mod common;

use common::{Folder, elinvar};
use serde_json::{Value, json};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";
const FILL: &str =
    "kernel void fill(device float* o, uint i [[thread_position_in_grid]]) {\n  o[i] = 1;\n}\n";
const TEXTURE: &str = "kernel void sharpen(device float* o,\n                    \
                       texture2d<float, access::read> t [[texture(0)]],\n                    \
                       uint2 i [[thread_position_in_grid]]) {\n  o[i.x] = t.read(i).x;\n}\n";
const LAST: &str = "kernel void last(device uint* o, uint i [[thread_position_in_grid]]) {\n  o[i] = i;\n}\n";
const WHY: &str = "kernel `sharpen` takes parameter `t` with `[[texture]]`, which is not supported";

/// Name, line and states of the kernels of the checked file.
fn states(json: &Value) -> Vec<(&str, u64, &Value)> {
    let kernels = json["files"][0]["kernels"].as_array().expect("kernels");
    let row = |k: &'static str| move |kernel: &Value| kernel[k].as_u64().expect("a number");
    kernels
        .iter()
        .map(|kernel| (kernel["name"].as_str().expect("a name"), row("line")(kernel), &kernel["targets"]))
        .collect()
}

#[test]
fn a_kernel_that_takes_a_texture_is_listed_and_fails_the_check() {
    let folder = Folder::new();
    let file = folder.write("sharpen.metal", format!("{HEAD}{TEXTURE}"));
    let ended = elinvar(&["check", &file]);
    ended.expect(1, &[&format!("{file}:4:21: error: {WHY}"), "texture2d<float"]);
    assert!(ended.stdout.contains(&format!("kernel sharpen  ({file}:4)\n      cpu: unsupported: {WHY}\n")));
    assert!(ended.stdout.ends_with(&format!("{file}: 1 kernel, 1 unsupported\n")), "{}", ended.stdout);

    let ended = elinvar(&["check", &file, "--target", "cuda", "--json"]);
    ended.expect(1, &[]);
    let json = ended.json();
    let unsupported = json!({ "cuda:sm_90": { "state": "unsupported", "reason": WHY } });
    assert_eq!(states(&json), [("sharpen", 4, &unsupported)]);
    let (file_json, kernel) = (&json["files"][0], &json["files"][0]["kernels"][0]);
    assert!(kernel["args"].is_null() && file_json["errors"] == json!([]), "{json}");
    assert_eq!(file_json["diagnostics"][0]["message"], WHY);

    let ended = elinvar(&["check", &file, "--github"]);
    ended.expect(1, &[]);
    assert_eq!(ended.stdout, format!("::error file={file},line=4,col=21::{WHY}\n"));
}

#[test]
fn kernels_are_listed_with_their_states_in_the_order_of_the_source() {
    let folder = Folder::new();
    let file = folder.write("three.metal", format!("{HEAD}{FILL}{TEXTURE}{LAST}"));
    // Twice: results from the cache must be the same.
    for _ in 0..2 {
        let ended = elinvar(&["check", &file, "--target", "cpu", "--target", "cuda:sm_80", "--json"]);
        ended.expect(1, &[]);
        let state = |state: &str, why: Option<&str>| {
            let one = json!({ "state": state, "reason": why });
            json!({ "cpu": one, "cuda:sm_80": one })
        };
        let (ok, unsupported) = (state("ok", None), state("unsupported", Some(WHY)));
        let json = ended.json();
        assert_eq!(states(&json), [("fill", 3, &ok), ("sharpen", 7, &unsupported), ("last", 11, &ok)]);
        assert_eq!(json["files"][0]["diagnostics"].as_array().map(Vec::len), Some(1), "told once");
    }
    let ended = elinvar(&["check", &file]);
    ended.expect(1, &[WHY]);
    assert!(ended.stdout.contains("      cpu: ok\n"), "{}", ended.stdout);
    assert!(ended.stdout.ends_with(": 3 kernels, 1 unsupported\n"), "{}", ended.stdout);
    // Only the requested kernels are considered.
    elinvar(&["check", &file, "--kernel", "last"]).expect(0, &[]);
    elinvar(&["check", &file, "--kernel", "sharpen"]).expect(1, &[WHY]);
    elinvar(&["check", &file, "--kernel", "none"]).expect(1, &["no kernel `none`"]);
    let times = elinvar(&["check", &file, "--target", "cpu", "--target", "cuda", "--times"]);
    assert!(times.stdout.contains("(source) for cuda:sm_90"), "{}", times.stdout);
}

/// Errors of the stages after the front end have a location as well.
#[test]
fn a_kernel_that_code_generation_does_not_support_fails_the_check() {
    let folder = Folder::new();
    let text = "[[clang::noinline]] uint one(uint x, ...) { return x + 1; }\n\
                [[clang::noinline]] uint two(uint x, ...) { return x * 3; }\n\
                kernel void either(device uint* o, uint i [[thread_position_in_grid]]) {\n  \
                uint (*f)(uint, ...) = one;\n  \
                for (uint k = 0; k < o[0]; ++k) { o[i] = f(k, 1); f = o[i] & 1 ? one : two; }\n}\n";
    let file = folder.write("either.metal", format!("{HEAD}{text}"));
    let why = "a call through a function pointer (kernel `either`)";
    let ended = elinvar(&["check", &file, "--target", "cuda", "--target", "cpu"]);
    ended.expect(1, &[&format!("{file}:7: error: {why}")]);
    for target in ["cpu", "cuda:sm_90"] {
        let line = format!("      {target}: unsupported: {why}\n");
        assert!(ended.stdout.contains(&line), "{line}: {}", ended.stdout);
    }
    let ended = elinvar(&["check", &file, "--github"]);
    ended.expect(1, &[]);
    assert_eq!(ended.stdout, format!("::error file={file},line=7::{why}\n"));
}

#[test]
fn a_barrier_that_not_all_threads_may_reach_is_a_warning() {
    let folder = Folder::new();
    let kernel = |condition: &str| {
        format!(
            "{HEAD}kernel void k(device uint* o, uint i [[thread_position_in_grid]], uint g [[threadgroup_position_in_grid]]) {{\n  \
             if ({condition}) {{\n    threadgroup_barrier(mem_flags::mem_none);\n  }}\n  o[i] = simd_sum(i);\n}}\n"
        )
    };
    let warning = "5: warning: not all threads of the threadgroup may reach this barrier";
    let file = folder.write("some.metal", kernel("i < 17"));
    // Twice: the second result is from the cache.
    for _ in 0..2 {
        elinvar(&["check", &file, "--target", "cpu", "--target", "cuda"])
            .expect(0, &[&format!("{file}:{warning}")]);
    }
    let ended = elinvar(&["check", &folder.write("all.metal", kernel("g < 17"))]);
    ended.expect(0, &[]);
    assert!(!ended.stderr.contains("warning"), "{}", ended.stderr);
}
