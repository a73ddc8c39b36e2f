//! `elinvar analyze`: its output in each form, totals of a launch, and what it rejects.

mod common;

use common::{Folder, elinvar, example};
use serde_json::{Value, json};

const COLUMNS: &str = "#include <metal_stdlib>
using namespace metal;
kernel void columns(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                    uint id [[thread_position_in_grid]]) {
    threadgroup float tile[1024];
    tile[id * 32 % 1024] = a[id * n];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[id] = tile[(id * 64) % 1024];
}
kernel void triad(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* out [[buffer(2)]],
                  uint id [[thread_position_in_grid]]) {
    out[id] = a[id] + 3.0f * b[id];
}
";

fn kernel(json: &Value) -> &Value {
    &json["kernels"][0]
}

#[test]
fn accesses_and_totals_as_json() {
    let file = example("vector_add");
    let words = ["analyze", &file, "--kernel", "vector_add", "--json"];
    let json = elinvar(&words).json();
    let accesses = kernel(&json)["accesses"].as_array().expect("accesses");
    let of = |object: &str| accesses.iter().find(|access| access["object"] == object).expect("an access");
    for object in ["a", "b", "out"] {
        let access = of(object);
        assert_eq!((&access["class"], &access["lane_stride_bytes"]), (&json!("contiguous"), &json!(4)));
        assert_eq!((&access["sectors"], &access["efficiency"]), (&json!(4), &json!(1.0)));
        assert_eq!(access["location"]["file"], file);
    }
    assert_eq!(kernel(&json)["launch"], Value::Null);

    let launch =
        ["--grid", "1000", "--group", "64", "--set", "n=900u32", "--peak", "100", "--bandwidth", "10"];
    let json = elinvar(&[&words[..], &launch].concat()).json();
    let totals = &kernel(&json)["launch"];
    // 900 threads access three arrays; all 1000 read `n`.
    assert_eq!(totals["used_bytes"], json!(900.0 * 12.0 + 1000.0 * 4.0), "{totals}");
    assert_eq!((&totals["is_complete"], &totals["is_estimate"]), (&json!(true), &json!(false)));
    assert_eq!(totals["operations"]["f32"], json!(900.0));
    let roofline = &kernel(&json)["roofline"];
    // In whole sectors of 32 bytes: 113 of each array, and one of `n`.
    let bytes = (3.0 * 113.0 + 1.0) * 32.0;
    assert_eq!(totals["footprint_bytes"], json!(bytes));
    let seconds = roofline["seconds"].as_f64().expect("a time");
    assert!((seconds - bytes / 10e9).abs() < 1e-12 && roofline["bound"] == "memory", "{roofline}");
}

#[test]
fn findings_in_each_form() {
    let folder = Folder::new();
    let file = folder.write("columns.metal", COLUMNS);
    let message = "kernel `columns`: lanes are 4*n bytes apart in `a`: a simdgroup along x moves 1024 bytes and uses 128 of them here";

    let github = elinvar(&["analyze", "--github", &file]);
    github.expect(0, &[]);
    assert_eq!(github.stdout, format!("::warning file={file},line=6::{message}\n"));

    let sarif = elinvar(&["analyze", "--sarif", &file]).json();
    let result = &sarif["runs"][0]["results"][0];
    assert_eq!((&sarif["version"], &result["ruleId"]), (&json!("2.1.0"), &json!("uncoalesced")));
    assert_eq!(result["message"]["text"], message);
    assert_eq!(result["locations"][0]["physicalLocation"]["region"]["startLine"], 6);
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(rules.iter().any(|rule| rule["id"] == result["ruleId"]));

    let text = elinvar(&["analyze", &file]);
    assert!(text.stdout.contains("uncoalesced at "), "{}", text.stdout);
    assert!(text.stdout.contains("kernel triad"), "{}", text.stdout);
    let triad = elinvar(&["analyze", "--sarif", &file, "--kernel", "triad"]).json();
    assert_eq!(triad["runs"][0]["results"], json!([]), "nothing to find");
}

#[test]
fn what_is_missing_or_wrong_is_named() {
    let file = example("vector_add");
    let analyze = |words: &[&str]| elinvar(&[&["analyze", &file, "--kernel", "vector_add"], words].concat());
    analyze(&["--grid", "64"])
        .expect(1, &["kernel `vector_add`: addresses, loops or branches depend on `n`: give --set n=VALUE"]);
    analyze(&["--grid", "64", "--set", "n=64u32", "--set", "m=3u32"])
        .expect(1, &["--set m: no address, loop or branch"]);
    analyze(&["--grid", "64", "--set", "n=64"]).expect(2, &["--set n=64"]);
    analyze(&["--grid", "64", "--set", "n=64u32", "--group", "2048"])
        .expect(1, &["1 to 1024 threads are allowed"]);
    analyze(&["--set", "n=64u32"]).expect(2, &["--grid"]);
    analyze(&["--grid", "64", "--set", "n=64u32", "--peak", "0", "--bandwidth", "1"])
        .expect(2, &["--peak: a rate is a number above 0"]);
    elinvar(&["analyze", &file, "--kernel", "vector_ad"]).expect(1, &["no kernel `vector_ad`", "vector_add"]);
    let folder = Folder::new();
    let broken = folder.write("broken.metal", "kernel void k(device float* x) { x[0] = y; }");
    elinvar(&["analyze", &broken]).expect(1, &["use of undeclared identifier 'y'"]);
}

#[test]
fn occupancy_by_size() {
    let folder = Folder::new();
    let file = folder.write("columns.metal", COLUMNS);
    let analyze = |words: &[&str]| elinvar(&[&["analyze", &file, "--kernel", "columns"], words].concat());
    let json = analyze(&["--json", "--occupancy", "cuda:sm_90", "--registers", "37"]).json();
    let found = &kernel(&json)["occupancy"];
    assert_eq!((&found["registers_from"], &found["threadgroup_bytes"]), (&json!("given"), &json!(4096)));
    let sizes = found["sizes"].as_array().expect("sizes");
    let of = |threads: u32| sizes.iter().find(|size| size["threads"] == threads).expect("a size");
    // NVIDIA's Best Practices Guide: 37 registers, 128 and 320 threads.
    assert_eq!(
        (&of(128)["groups"], &of(128)["share"], &of(128)["limiter"]),
        (&json!(12), &json!(0.75), &json!("registers"))
    );
    assert_eq!((&of(320)["groups"], &of(320)["share"]), (&json!(4), &json!(0.625)));
    // 64 KiB and 1 KiB that are reserved, of 100 KiB.
    let json =
        analyze(&["--json", "--occupancy", "cuda:sm_86", "--registers", "16", "--dynamic", "61440"]).json();
    assert_eq!(kernel(&json)["occupancy"]["sizes"][3]["limiter"], "memory");
    assert_eq!(kernel(&json)["occupancy"]["sizes"][3]["groups"], 1);

    let plot = folder.file("occupancy.svg");
    let plot = plot.to_str().expect("a path in UTF-8");
    let text = analyze(&["--occupancy", "cuda:sm_90", "--registers", "37", "--plot", plot]);
    text.expect(0, &[]);
    assert!(
        text.stdout.contains("37 registers (given), 4096 bytes of threadgroup memory"),
        "{}",
        text.stdout
    );
    let svg = std::fs::read_to_string(plot).expect("the plot");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("128 threads: 75 %, registers"), "{svg}");

    // A model of Apple's cores: 32 registers leave 32 simdgroups, 16 threadgroups of 4 KiB fit in 64 KiB.
    let json = analyze(&["--json", "--occupancy", "metal:apple8", "--registers", "32"]).json();
    let found = &kernel(&json)["occupancy"]["sizes"];
    assert_eq!((&found[0]["groups"], &found[0]["limiter"]), (&json!(16), &json!("memory")));
    assert_eq!((&found[3]["groups"], &found[3]["limiter"]), (&json!(8), &json!("simdgroups")));
    for (target, why) in
        [("metal:apple9", "allocated while a kernel runs"), ("metal:apple6", "nobody has published")]
    {
        analyze(&["--occupancy", target]).expect(2, &[target, why]);
    }
    // On a CPU: at least the threadgroup memory, and lanes of a level's vectors.
    let text = "kernel void turn(device float* x, uint i [[thread_position_in_threadgroup]]) {
        threadgroup float t[1024]; t[i] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = t[1023 - i]; }";
    let turn = folder.write("turn.metal", format!("#include <metal_stdlib>\nusing namespace metal;\n{text}"));
    let json = elinvar(&["analyze", &turn, "--json", "--occupancy", "cpu:x86-64-v3"]).json();
    let found = &kernel(&json)["occupancy"];
    assert_eq!(found["registers_from"], "unused");
    let sizes = found["sizes"].as_array().expect("sizes");
    assert_eq!(
        (&sizes[0]["threads"], &sizes[0]["share"], &sizes[0]["limiter"]),
        (&json!(1), &json!(0.125), &json!("lanes"))
    );
    assert_eq!(
        (&sizes[3]["threads"], &sizes[3]["share"], &sizes[3]["limiter"]),
        (&json!(8), &json!(1.0), &json!("core"))
    );
    assert!(sizes.iter().all(|size| size["scratch_bytes"].as_u64() >= Some(4096)), "{sizes:?}");
    // Threadgroup memory that is kept across grid barriers counts once.
    let text = "kernel void turn(device float* x, uint i [[thread_position_in_threadgroup]]) {
        threadgroup float t[1024]; t[i] = x[i]; elinvar::grid_barrier(); x[i] = t[i]; }";
    let head = "#include <metal_stdlib>\n#include <elinvar/grid>\nusing namespace metal;\n";
    let turn = folder.write("turn_grid.metal", format!("{head}{text}"));
    let json = elinvar(&["analyze", &turn, "--json", "--occupancy", "cpu:x86-64-v3"]).json();
    let one = kernel(&json)["occupancy"]["sizes"][0]["scratch_bytes"].as_u64().expect("bytes");
    assert!((4096..6144).contains(&one), "{one}");
    let text = analyze(&["--occupancy", "cpu"]);
    text.expect(0, &[]);
    assert!(text.stdout.contains("scratch bytes") && text.stdout.contains("lanes used"), "{}", text.stdout);
    analyze(&["--occupancy", "cpu", "--registers", "9"]).expect(2, &["does not depend on them"]);
    elinvar(&["analyze", &file, "--occupancy", "cuda", "--registers", "9", "--plot", plot])
        .expect(2, &["--plot shows one kernel, not 2"]);
    // Without the assembler, an estimate.
    let words = ["analyze", &file, "--kernel", "columns", "--json", "--occupancy", "cuda"];
    let json = common::elinvar_with(&words, &[("ELINVAR_PTXAS", "")]).json();
    assert_eq!(kernel(&json)["occupancy"]["registers_from"], "estimate");
}

#[test]
fn advice_in_each_form() {
    let folder = Folder::new();
    let file = folder.write("advice.metal", include_str!("../src/bench/kernels/advice.metal"));
    let words = ["analyze", &file, "--kernel", "columns"];
    let reason = "lanes along x are 4*n bytes apart, lanes along y 4 bytes: exchange x and y, in the kernel and in the launch";

    let json = elinvar(&[&words[..], &["--json"]].concat()).json();
    let advice = &kernel(&json)["advice"][0];
    assert_eq!((&advice["remedy"], &advice["reason"]), (&json!("swap-axes"), &json!(reason)));
    assert_eq!((&advice["gain"], &advice["location"]["line"]), (&json!(8.0), &json!(11)), "{advice}");
    let cpu = elinvar(&[&words[..], &["--json", "--machine", "cpu"]].concat()).json();
    assert!(kernel(&cpu)["advice"][0]["gain"].as_f64().is_some_and(|gain| gain > 8.0), "{cpu}");

    let github = elinvar(&[&words[..], &["--github"]].concat());
    let line = format!("::warning file={file},line=11::kernel `columns`: {reason} (expected gain 8.00)\n");
    assert!(github.stdout.ends_with(&line), "{}", github.stdout);
    let sarif = elinvar(&[&words[..], &["--sarif"]].concat()).json();
    let results = sarif["runs"][0]["results"].as_array().expect("results");
    assert!(results.iter().any(|result| result["ruleId"] == "swap-axes"), "{sarif}");
    let rules = sarif["runs"][0]["tool"]["driver"]["rules"].as_array().expect("rules");
    assert!(rules.iter().any(|rule| rule["id"] == "swap-axes"));
    let text = elinvar(&words);
    assert!(
        text.stdout
            .contains(&format!("advice for a gpu: swap-axes at {file}:11: {reason}; expected gain 8.00")),
        "{}",
        text.stdout
    );

    let launch = ["analyze", &file, "--kernel", "scale", "--grid", "4096", "--group", "8", "--json"];
    assert_eq!(kernel(&elinvar(&launch).json())["advice"][0]["remedy"], "resize-group");
    elinvar(&["analyze", &file, "--machine", "tpu"]).expect(2, &["unknown machine `tpu`"]);
    elinvar(&["bench", "advice", "unknown"]).expect(2, &["`unknown` is not a remedy; they are swap-axes, "]);
    elinvar(&["bench", "tune", "unknown"]).expect(2, &["`unknown` is not among bench (saxpy_dram, "]);
}

#[test]
fn the_roofline_is_a_plot() {
    let folder = Folder::new();
    let file = folder.write(
        "roofline.metal",
        "kernel void add(device const float* a, device const float* b, device float* out, uint i [[thread_position_in_grid]]) {
             out[i] = a[i] + b[i]; }
         kernel void many(device float* x, uint i [[thread_position_in_grid]]) {
             float y = x[i]; for (int k = 0; k < 1000; ++k) y = y * 1.5f + 0.5f; x[i] = y; }
         kernel void none(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = i; }",
    );
    let plot = folder.file("roofline.svg");
    let plot = plot.to_str().expect("a path");
    let words = ["analyze", &file, "--grid", "65536", "--roofline", plot];
    elinvar(&words).expect(2, &["--roofline needs --measure DEVICE, or --peak and --bandwidth"]);
    elinvar(&[&words[..], &["--measure", "cpu", "--peak", "1", "--bandwidth", "1"]].concat())
        .expect(2, &["cannot be used with"]);
    elinvar(&[&words[..], &["--peak", "1000", "--bandwidth", "100"]].concat()).expect(0, &[]);
    let svg = std::fs::read_to_string(plot).expect("the plot");
    // One operation for 12 bytes, below the ridge at 10; and some hundred for 4, which arithmetic bounds.
    for label in [
        "Roofline of a device: 1000 GFLOP/s, 100 GB/s",
        "<title>add: 0.083 FLOP/B, at most 8.3 GFLOP/s, 7.9 µs</title>",
        "at most 1000.0 GFLOP/s",
    ] {
        assert!(svg.contains(label), "{label}: {svg}");
    }
    assert!(!svg.contains("none:"), "no operations, no place: {svg}");
    // Measured: two kernels run.
    elinvar(&[&words[..], &["--measure", "cpu"]].concat()).expect(0, &[]);
    let svg = std::fs::read_to_string(plot).expect("the plot");
    assert!(svg.contains("Roofline of ") && svg.contains("add: 0.083 FLOP/B"), "{svg}");
}
