//! Bundles on the command line: packing, running without a compiler, and refusal of invalid ones.

mod common;

use common::{Ended, Folder, elinvar, elinvar_with, example};

/// `run` of `vector_add` over 64 threads, without a compiler.
fn run(bundle: &str, more: &[&str]) -> Ended {
    let words = [
        "run",
        bundle,
        "--kernel",
        "vector_add",
        "--grid",
        "64",
        "--device",
        "cpu",
        "--json",
        "--out",
        "out",
    ];
    let args = ["a=f32:64:ramp", "b=f32:64:ones", "out=f32:64:zeros", "n=64u32"];
    let args = args.iter().flat_map(|arg| ["--arg", arg]);
    let words: Vec<&str> = words.into_iter().chain(args).chain(more.iter().copied()).collect();
    elinvar_with(&words, &[("ELINVAR_CLANG", "/nowhere/clang")])
}

#[test]
fn what_was_packed_runs_without_a_compiler() {
    let folder = Folder::new();
    let bundle = folder.file("kernels.bundle").display().to_string();
    let (add, scale) = (example("vector_add"), example("scale"));
    let targets = ["--target", "cpu:x86-64", "--target", "cuda:sm_80", "--group", "32", "--checked"];
    let words = ["pack", &scale, &add, "-o", &bundle];
    if !cfg!(target_arch = "x86_64") {
        elinvar(&[&words[..], &targets].concat()).expect(2, &["unsupported level"]);
        return;
    }
    elinvar(&[&words[..], &targets].concat()).expect(0, &[]);
    for checked in [&[][..], &["--checked"]] {
        let report = run(&bundle, &[checked, &["--group", "32"]].concat()).json();
        assert_eq!(report["outputs"][0]["first"][3], 4.0, "{report}");
        assert_eq!(report["outputs"][0]["max"], 64.0, "{report}");
    }
    run(&bundle, &["--group", "64"]).expect(1, &["no kernel `vector_add` for threadgroups of 64x1x1"]);
}

#[test]
fn kernels_that_are_not_there_and_damage_are_named() {
    let folder = Folder::new();
    let bundle = folder.file("scale.bundle").display().to_string();
    let packed = elinvar(&["pack", &example("scale"), "-o", &bundle, "--json"]).json();
    assert_eq!(packed["kernels"], 1, "{packed}");
    run(&bundle, &[]).expect(1, &["scale.bundle: no kernel `vector_add` in the bundle; it has `scale`"]);
    let mut bytes = std::fs::read(&bundle).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&bundle, &bytes).unwrap();
    run(&bundle, &[]).expect(1, &["scale.bundle", "damaged"]);
    std::fs::write(&bundle, &bytes[..bytes.len() - 1]).unwrap();
    run(&bundle, &[]).expect(1, &["scale.bundle", "the header says"]);
}

#[test]
fn code_for_large_buffers_is_packed_on_request() {
    let folder = Folder::new();
    let bundle = folder.file("add.bundle").display().to_string();
    let words = ["pack", &example("vector_add"), "-o", &bundle, "--target", "cpu", "--group", "32", "--json"];
    let bytes = |more: &[&str]| elinvar(&[&words[..], more].concat()).json()["bytes"].as_u64().unwrap();
    let (without, with) = (bytes(&[]), bytes(&["--large-buffers"]));
    assert!(with > without * 3 / 2, "{without} and {with} bytes");
    run(&bundle, &["--group", "32"]).expect(0, &[]);
}

#[test]
fn what_is_wrong_is_not_packed() {
    let folder = Folder::new();
    let file = folder.write("wrong.metal", b"kernel void k(device int* a) { a[0] = b; }\n");
    let bundle = folder.file("wrong.bundle").display().to_string();
    elinvar(&["pack", &file, "-o", &bundle]).expect(1, &["wrong.metal:1:", "identifier 'b'"]);
    assert!(!std::path::Path::new(&bundle).exists());
    elinvar(&["pack", &file, "-o", &bundle, "--target", "gpu"]).expect(2, &["unknown target `gpu`"]);
}
