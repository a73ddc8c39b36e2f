//! `elinvar translate`: output, report and exit codes.
#![cfg(unix)]

mod common;

use common::{Folder, elinvar};

const KERNELS: &str = "static int dims(void) { return get_work_dim(); }
kernel void good(global int *p, local int *q, int thread) { p[get_global_id(0)] = thread << p[0]; }
kernel void bad(global int *p) { *p = dims(); }
";

#[test]
fn kernels_that_cannot_be_translated_are_errors_and_the_others_are_written() {
    let folder = Folder::new();
    let file = folder.write("k.cl", KERNELS);
    let ended = elinvar(&["translate", "--from", "opencl", &file]);
    ended.expect(1, &["k.cl:1:32: error: `get_work_dim`", "kernel bad: not translated", "thread → thread_"]);
    assert!(ended.stdout.contains("kernel void good(") && !ended.stdout.contains("bad"), "{}", ended.stdout);
    assert!(ended.stdout.contains("#line 2 \""), "{}", ended.stdout);
    let one = elinvar(&["translate", "--from", "opencl", &file, "--kernel", "good", "--no-lines", "--quiet"]);
    one.expect(0, &[]);
    assert!(one.stderr.is_empty() && !one.stdout.contains("#line"), "{}", one.stderr);
    elinvar(&["translate", "--from", "opencl", &file, "--kernel", "goo"])
        .expect(1, &["--kernel goo", "no such kernel"]);
    let json = elinvar(&["translate", "--from", "opencl", &file, "--json"]);
    json.expect(1, &[]);
    let report = json.json();
    assert_eq!((&report["refused"][0], &report["errors"][0]["line"]), (&"bad".into(), &1.into()), "{report}");
    let arguments = report["kernels"][0]["arguments"].as_array().expect("arguments");
    assert_eq!(arguments[1]["msl"], "threadgroup int* q [[threadgroup(0)]]");
    assert_eq!(arguments[2]["msl"], "constant int& thread_ [[buffer(1)]]");
}

#[test]
fn a_file_of_another_encoding() {
    let folder = Folder::new();
    let file = folder.write("k.cl", "");
    std::fs::write(&file, b"// \xa9 1998\nkernel void k(global int *p) { *p = 1; }\n")
        .expect("a written file");
    elinvar(&["translate", "--from", "opencl", &file]).expect(0, &[]);
    std::fs::write(&file, b"kernel void k(global int *p) { *p = \xa9; }\n").expect("a written file");
    elinvar(&["translate", "--from", "opencl", &file]).expect(1, &["k.cl:1:37: error"]);
    elinvar(&["translate", "--from", "wgsl", &file]).expect(1, &["k.cl:1:"]);
    elinvar(&["translate", "--from", "spirv", &file]).expect(1, &["k.cl"]);
    elinvar(&["translate", "--from", "fortran", &file]).expect(2, &["fortran", "opencl"]);
    elinvar(&["translate", "--from", "opencl", "none.cl"]).expect(1, &["none.cl"]);
    elinvar(&["translate", "--from", "opencl", &folder.write("empty.cl", "int f(void);")])
        .expect(1, &["has no kernel"]);
}
