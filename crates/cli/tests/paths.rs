//! Temporary and cache folders whose names contain characters that are special to tools.
#![cfg(target_os = "linux")]

mod common;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Output};

use common::Folder;

const HEADER: &str = "inline float scaled(float x) { return x * 3.0f; }\n";
const TEXT: &str = "#include <metal_stdlib>\n#include \"scaled.h\"\nusing namespace metal;\n\
    kernel void scale(device float* x, uint i [[thread_position_in_grid]]) { x[i] = scaled(x[i]) + FROM; }\n";

/// `elinvar run` of the source in `folder`, with a cache in `odd`.
fn run(folder: &Path, odd: &Path, from: &str, temporary: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elinvar"));
    command.args([
        "run",
        "--kernel",
        "scale",
        "--grid",
        "5",
        "--group",
        "5",
        "--device",
        "cpu",
        "--arg",
        "x=f32:5:ramp",
    ]);
    command.args(["--json", &format!("-DFROM={from}")]).arg(folder.join("scale.metal"));
    command.arg("--out").arg({
        let mut word = OsString::from("x=");
        word.push(folder.join("out.npy"));
        word
    });
    command.env("TMPDIR", temporary).env("ELINVAR_CACHE", odd.join("cache"));
    command.output().expect("elinvar runs")
}

fn compute_in(name: &OsStr) {
    let parent = Folder::new();
    let odd = parent.path().join(name);
    std::fs::create_dir_all(odd.join("tmp")).expect("a folder of that name");
    std::fs::write(odd.join("scaled.h"), HEADER).expect("written");
    std::fs::write(odd.join("scale.metal"), TEXT).expect("written");
    // Compiled, found in the cache, and compiled with the cached headers.
    for from in ["1", "1", "2"] {
        let ended = run(&odd, &odd, from, &odd.join("tmp"));
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{name:?}: {said}");
        let bytes = std::fs::read(odd.join("out.npy")).expect("an output");
        let npy = npyz::NpyFile::new(&bytes[..]).expect("a .npy file");
        let from: f32 = from.parse().expect("a number");
        assert_eq!(npy.into_vec::<f32>().expect("floats"), [0, 1, 2, 3, 4].map(|k| k as f32 * 3.0 + from));
    }
    // Notes about declarations in the cached headers are not shown to the user.
    let ended = run(&odd, &odd, "min(1, 2.0f, clamp(1))", &odd.join("tmp"));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{name:?}: {said}");
    assert!(said.contains("scale.metal:4:") && !said.contains("elinvar_stdlib"), "{name:?}: {said}");
    let left = std::fs::read_dir(odd.join("tmp")).expect("the folder").count();
    assert_eq!(left, 0, "{name:?} has temporary files left");
}

#[test]
fn quotes_and_lines() {
    compute_in(OsStr::new("a \"double\" 'single' \\ back\nline\ttab $x `y` ;#"));
}

#[test]
fn placeholders_of_the_linker() {
    compute_in(OsStr::new("100%d %%%%%% %p"));
}

#[test]
fn other_characters() {
    compute_in(OsStr::new("é ü 漢字 *?[a] {b} !~ (c) <d> |&^ a,b @e -x"));
}

#[test]
fn bytes_that_are_not_text() {
    let parent = Folder::new();
    let odd = parent.path().join(OsStr::from_bytes(b"\xff\xfe \x80"));
    std::fs::create_dir_all(odd.join("tmp")).expect("a folder of that name");
    parent.write("scaled.h", HEADER);
    parent.write("scale.metal", TEXT);
    let said = |ended: Output| String::from_utf8_lossy(&ended.stderr).into_owned();
    let refused = run(parent.path(), &odd, "1", &odd.join("tmp"));
    assert!(!refused.status.success());
    let why = said(refused);
    assert!(why.contains("temporary directory") && why.contains("is not UTF-8"), "{why}");
    // The cache may have any path.
    for _ in 0..2 {
        let ended = run(parent.path(), &odd, "1", parent.path());
        assert!(ended.status.success(), "{}", said(ended));
    }
}
