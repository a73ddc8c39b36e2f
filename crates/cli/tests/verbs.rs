//! Output, JSON and exit codes of the built command's verbs.

mod common;

use common::{Folder, elinvar, elinvar_with, example};

/// `run` of the example `vector_add` over 64 threads with these arguments.
fn add(args: &[&str], more: &[&str]) -> common::Ended {
    let file = example("vector_add");
    let mut words = vec!["run", &file, "--kernel", "vector_add", "--grid", "64"];
    args.iter().for_each(|arg| words.extend(["--arg", arg]));
    words.extend(more);
    elinvar(&words)
}

const A: &str = "a=f32:64:ramp";
const B: &str = "b=f32:64:ones";
const OUT: &str = "out=f32:64:zeros";
const N: &str = "n=64u32";

#[test]
fn every_verb_has_help_with_examples() {
    for verb in ["devices", "doctor", "check", "run", "pack", "replay", "bench", "translate"] {
        let help = elinvar(&[verb, "--help"]);
        help.expect(0, &[]);
        assert!(help.stdout.contains("Examples:\n  elinvar "), "{}", help.stdout);
        assert!(help.stdout.contains("--json"), "{}", help.stdout);
    }
    let help = elinvar(&["--help"]);
    assert!(help.stdout.contains("Exit codes: 0 success"), "{}", help.stdout);
}

#[test]
fn usage_errors_exit_with_2() {
    elinvar(&[]).expect(2, &["Usage"]);
    elinvar(&["check"]).expect(2, &["<FILE>"]);
    elinvar(&["bench", "nothing"]).expect(2, &["`nothing` is not a benchmark", "matmul_naive"]);
    add(&["a"], &[]).expect(2, &["NAME=VALUE"]);
    add(&["a=7"], &[]).expect(2, &["--arg a=7: `7` is not a value"]);
    add(&[A, B, OUT, N], &["--grid", "1,2,3,4"]).expect(2, &[]);
    add(&[A, B, OUT, N], &["--device", "gpu"]).expect(2, &["unknown device `gpu`"]);
    add(&[A, B, OUT, N], &["--repeat", "0"]).expect(2, &[]);
    add(&[A, B, OUT, N], &["--out", "out="]).expect(2, &["a file name must follow"]);
}

#[test]
#[cfg(target_os = "linux")]
fn an_isolated_run_computes_and_a_crash_is_reported() {
    let ended = add(&[A, B, OUT, N], &["--isolated", "--out", "out", "--json"]);
    ended.expect(0, &[]);
    let report = ended.json();
    assert_eq!(
        (&report["outputs"][0]["min"], &report["outputs"][0]["max"]),
        (&1.0.into(), &64.0.into()),
        "{report}"
    );
    add(&[A, B, OUT, N], &["--isolated", "--device", "cpu"]).expect(0, &[]);
    add(&[A, B, OUT, N], &["--isolated", "--device", "metal"])
        .expect(1, &["only CPU and CUDA devices can be isolated"]);
    let folder = Folder::new();
    let text =
        "kernel void wild(device int* p, constant ulong& at) { *reinterpret_cast<device int*>(at) = 1; }";
    let file = folder.write("wild.metal", text);
    let wild =
        ["run", &file, "--kernel", "wild", "--grid", "1", "--arg", "p=i32:4:zeros", "--arg", "at=8u64"];
    let ended = elinvar(&[&wild[..], &["--isolated"]].concat());
    ended.expect(3, &["device lost", "SIGSEGV", "kernel `wild`"]);
}

#[test]
fn buffers_that_are_not_given_are_unbound() {
    let folder = Folder::new();
    let text = "kernel void layer(device const float* bias, device float* y, constant bool& has_bias, uint i [[thread_position_in_grid]]) {
  y[i] = 2;
  if (has_bias) y[i] += bias[i];
}";
    let file = folder.write("layer.metal", text);
    let words =
        ["run", &file, "--kernel", "layer", "--grid", "8", "--arg", "y=f32:8:zeros", "--out", "y", "--json"];
    let ended = elinvar(&[&words[..], &["--arg", "has_bias=false"]].concat());
    ended.expect(0, &["runs checked, because arguments are unbound: `bias`"]);
    assert_eq!(ended.json()["outputs"][0]["min"], 2.0);
    elinvar(&[&words[..], &["--arg", "has_bias=true"]].concat()).expect(
        1,
        &["layer.metal:3", "read of element 0 of argument 0 `bias` (float, 0 elements, empty or unbound)"],
    );
    let ended = elinvar(&[&words[..], &["--arg", "has_bias=unbound"]].concat());
    ended.expect(0, &["arguments are unbound: `bias`, `has_bias`"]);
    elinvar(&[&words[..]].concat()).expect(1, &["argument `has_bias` is missing"]);
}

/// The memory behind an array cannot be accessed, unless it is padded.
#[test]
#[cfg(target_os = "linux")]
fn accesses_past_the_end_are_reported_or_padded() {
    let folder = Folder::new();
    let text = "kernel void shift(device const float* x, device float* y, constant uint& by, uint i [[thread_position_in_grid]]) {
  y[i] = x[i + by];
}";
    let file = folder.write("shift.metal", text);
    let words = [
        "run",
        &file,
        "--kernel",
        "shift",
        "--grid",
        "8",
        "--arg",
        "x=f32:1024:ones",
        "--arg",
        "y=f32:8:ones",
    ];
    let past = elinvar(&[&words[..], &["--arg", "by=1124u32"]].concat());
    assert!(past.stderr.contains("kernel `shift` has crashed"), "{}", past.stderr);
    assert!(past.stderr.contains("SIGSEGV at address"), "{}", past.stderr);
    assert!(
        past.stderr.contains("400 bytes after the end of argument 0 `x` (4096 bytes)"),
        "{}",
        past.stderr
    );
    let padded = elinvar(
        &[&words[..], &["--arg", "by=1124u32", "--padding", "65536", "--out", "y", "--json"]].concat(),
    );
    padded.expect(0, &[]);
    assert_eq!(padded.json()["outputs"][0]["max"], 0.0);
}

#[test]
fn doctor_proves_that_devices_compute_and_says_what_is_missing() {
    let text = elinvar(&["doctor"]);
    text.expect(0, &[]);
    let said = &text.stdout;
    let kernels = ["positions", "vector_add", "scale", "double_in_place", "matmul", "reduce"];
    for kernel in kernels {
        assert!(said.contains(&format!("ok      {kernel}: ")), "{said}");
    }
    assert!(said.contains("compiler  ") && said.contains("cache  ") && !said.contains("FAILED"), "{said}");
    let json = elinvar(&["doctor", "--json"]).json();
    assert_eq!(json["failures"], 0);
    for device in json["devices"].as_array().expect("devices") {
        let computed = device["kernels"].as_array().expect("kernels").iter();
        let names: Vec<_> =
            computed.filter(|kernel| kernel["elements"].is_u64()).map(|kernel| &kernel["name"]).collect();
        assert_eq!(names, kernels, "{device}");
    }
    // Without a GPU: why there is none, and what one needs.
    if let Some(why) = json["absent"]["cuda"].as_str() {
        assert!(said.contains(&format!("cuda  none\n  {why}")), "{said}");
        assert!(!why.contains("libcuda") || why.ends_with("driver for CUDA 12.0 or later"), "{why}");
    }
}

#[test]
fn doctor_without_a_compiler_or_a_cache() {
    let folder = Folder::new();
    let file = folder.write("file", "");
    let with = |variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_elinvar"));
        let output =
            command.arg("doctor").envs(variables.iter().copied()).output().expect("the program runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    // A cache that does not work is said, and everything computes.
    let (code, said) = with(&[("ELINVAR_CACHE", &file)]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("cache  does not work") && said.contains(&file), "{said}");
    assert!(said.contains("ELINVAR_CACHE can name another folder"), "{said}");
    let (code, said) = with(&[("ELINVAR_CACHE", "off"), ("ELINVAR_CLANG", "/none/clang")]);
    assert_eq!(code, Some(3), "{said}");
    for part in [
        "FAILED  compilation: ELINVAR_CLANG: `/none/clang`",
        "apt-get install clang",
        "compiler  none",
        "cache  off",
    ] {
        assert!(said.contains(part), "`{part}` is missing in {said}");
    }
}

#[test]
fn devices_are_listed() {
    let text = elinvar(&["devices"]);
    text.expect(0, &[]);
    assert!(text.stdout.contains("cpu  ") && text.stdout.contains("compiler  "), "{}", text.stdout);
    let json = elinvar(&["devices", "--json"]).json();
    let of_kind =
        |kind| json["devices"].as_array().and_then(|all| all.iter().find(|device| device["kind"] == kind));
    let cpu = of_kind("cpu").expect("the CPU is always there");
    // A GPU, or the reason why there is none.
    match of_kind("cuda") {
        Some(gpu) => assert!(gpu["details"]["compute capability"].is_string(), "{gpu}"),
        None => {
            assert!(text.stdout.contains("cuda  none\n"), "{}", text.stdout);
            assert!(
                json["absent"]["cuda"].as_str().is_some_and(|reason| reason.contains("NVIDIA")),
                "{json}"
            );
        }
    }
    assert!(cpu["max_threads_per_threadgroup"].as_u64() >= Some(1024), "{cpu}");
    assert!(json["compiler"]["path"].as_str().is_some_and(|path| path.contains("clang")), "{json}");
}

#[test]
fn a_missing_compiler_says_how_to_get_one() {
    let nowhere = [("ELINVAR_CLANG", "/nowhere/clang")];
    let file = example("scale");
    let ended = elinvar_with(&["check", &file], &nowhere);
    ended.expect(3, &["/nowhere/clang", "Debian", "Fedora", "Arch", "macOS"]);
    let devices = elinvar_with(&["devices"], &nowhere);
    devices.expect(0, &[]);
    assert!(devices.stdout.contains("compiler  none\n"), "{}", devices.stdout);
}

#[test]
fn check_prints_signatures() {
    let file = example("reduce");
    let text = elinvar(&["check", &file]);
    text.expect(0, &[]);
    assert!(text.stdout.contains("device atomic_float* total"), "{}", text.stdout);
    let json = elinvar(&["check", &file, &example("matmul"), "--json"]).json();
    let kernel = &json["files"][0]["kernels"][0];
    assert_eq!((&kernel["name"], &kernel["line"]), (&"reduce".into(), &6.into()));
    let arg = |i: usize, field: &str| kernel["args"][i][field].clone();
    assert_eq!(
        (arg(0, "name"), arg(0, "type"), arg(0, "access")),
        ("in".into(), "float".into(), "read".into())
    );
    assert_eq!((arg(1, "access"), arg(1, "kind")), ("read_write".into(), "pointer".into()));
    assert_eq!((arg(2, "kind"), arg(2, "constant")), ("reference".into(), true.into()));
    assert_eq!((arg(3, "kind"), arg(3, "index")), ("threadgroup".into(), 0.into()));
    assert_eq!(kernel["builtins"][0]["attribute"], "thread_position_in_grid");
    assert_eq!((&kernel["code"]["barriers"], &kernel["code"]["atomics"]), (&2.into(), &1.into()));
    assert_eq!(json["files"][1]["kernels"][0]["dimensions"], 2);
}

#[test]
fn check_says_how_long_the_stages_took() {
    let folder = Folder::new();
    let cache = folder.file("cache").display().to_string();
    let file = example("reduce");
    let check = |more: &[&str]| {
        let args = [&["check", &file, "--times"], more].concat();
        elinvar_with(&args, &[("ELINVAR_CACHE", &cache)])
    };
    let text = check(&["--codegen"]);
    text.expect(0, &[]);
    let header = text.stdout.lines().find(|line| line.starts_with("kernel  ")).unwrap();
    let columns: Vec<&str> = header.split_whitespace().collect();
    let all = "kernel cache preprocess header rewrite check spaces entry define optimize parse passes codegen link load total";
    assert_eq!(columns.join(" "), all);
    assert!(text.stdout.contains("\n(source)  ") && text.stdout.contains("\nreduce    "), "{}", text.stdout);

    // Without code generation, the rest is from the cache.
    let stages = |text: &str| text.lines().find_map(|line| line.strip_prefix("kernel  ")).unwrap().to_owned();
    let passes = check(&[]);
    assert_eq!(
        stages(&passes.stdout).split_whitespace().collect::<Vec<_>>(),
        ["cache", "parse", "passes", "total"]
    );

    let json = check(&["--json"]).json();
    let times = json["files"][0]["times"].as_array().unwrap();
    assert_eq!((&times[0]["kernel"], &times[1]["kernel"]), (&().into(), &"reduce".into()));
    for part in times {
        let stages: Vec<&String> = part["stages_ns"].as_object().unwrap().keys().collect();
        assert_eq!(stages, ["cache"], "from the cache");
        assert!(part["total_ns"].as_u64() > part["stages_ns"]["cache"].as_u64(), "{part}");
    }
}

#[test]
fn check_reports_errors_with_their_place() {
    let folder = Folder::new();
    let wrong = folder
        .write("wrong.metal", "#include <metal_stdlib>\nkernel void k(device float* a) { a[0] = y; }\n");
    elinvar(&["check", &wrong]).expect(1, &[&format!("{wrong}:2:41: error:"), "'y'"]);
    let json = elinvar(&["check", &wrong, "--json"]);
    json.expect(1, &[]);
    let diagnostic = &json.json()["files"][0]["diagnostics"][0];
    assert_eq!((&diagnostic["line"], &diagnostic["column"]), (&2.into(), &41.into()));
    assert_eq!((&diagnostic["severity"], &diagnostic["file"]), (&"error".into(), &wrong.as_str().into()));
    // A correct file is checked nevertheless.
    let both = elinvar(&["check", &wrong, &example("scale")]);
    both.expect(1, &["'y'"]);
    assert!(both.stdout.contains("kernel scale"), "{}", both.stdout);
}

#[test]
fn check_reports_what_only_code_generation_refuses() {
    let folder = Folder::new();
    let text = "#include <metal_stdlib>\nusing namespace metal;\n\
                uint deep(uint n)\n{\n  threadgroup_barrier(mem_flags::mem_threadgroup);\n  \
                return n < 2 ? n : deep(n - 1) + deep(n - 2);\n}\n\
                kernel void k(device uint* a, uint id [[thread_position_in_grid]]) { a[id] = deep(id); }\n";
    let file = folder.write("recursive.metal", text);
    elinvar(&["check", &file])
        .expect(1, &["recursive.metal:3", "`deep` calls itself", "such recursion is not supported", "`k`"]);
}

#[test]
fn check_refuses_what_it_cannot_look_at() {
    let folder = Folder::new();
    let file = folder.write("latin.metal", b"// caf\xe9\n");
    elinvar(&["check", &file]).expect(1, &["latin.metal: not UTF-8", "offset 6"]);
    elinvar(&["check", "/nowhere/k.metal"]).expect(1, &["/nowhere/k.metal"]);
    elinvar(&["check", &example("scale"), "--target", "cuda"]).expect(0, &[]);
    elinvar(&["check", &example("scale"), "--target", "cuda:sm_70"]).expect(2, &["compute capability 7.0"]);
    elinvar(&["check", &example("scale"), "--kernel", "other"]).expect(1, &["`other`", "`scale`"]);
}

#[test]
fn a_metal_library_is_for_apples_gpus() {
    let folder = Folder::new();
    let file = folder.write("k.metallib", b"MTLB\x01\x80\x02\0\xff");
    elinvar(&["run", &file, "--kernel", "k", "--grid", "1", "--device", "cpu"])
        .expect(1, &["k.metallib", "is a compiled Metal library, which runs on Apple GPUs only"]);
}

#[test]
fn includes_and_macros_reach_the_compiler() {
    let folder = Folder::new();
    let text = "#include \"value.h\"\nkernel void k(device int* a) { a[0] = VALUE + FROM_FLAG; }\n";
    let file = folder.write("k.metal", text);
    folder.write("value.h", "#define VALUE 40\n");
    let run = |more: &[&str]| {
        let mut words = vec![
            "run",
            &file,
            "--kernel",
            "k",
            "--grid",
            "1",
            "--arg",
            "a=i32:1:zeros",
            "--out",
            "a",
            "--json",
        ];
        words.extend(more);
        elinvar(&words)
    };
    assert_eq!(run(&["-D", "FROM_FLAG=2"]).json()["outputs"][0]["first"][0], 42);
    run(&[]).expect(1, &["FROM_FLAG"]);
    std::fs::rename(folder.file("value.h"), folder.file("moved.h")).expect("a moved file");
    std::fs::create_dir(folder.file("include")).expect("a folder");
    std::fs::rename(folder.file("moved.h"), folder.file("include/value.h")).expect("a moved file");
    run(&["-D", "FROM_FLAG=2"]).expect(1, &["value.h"]);
    let include = folder.file("include");
    let include = include.to_str().expect("a path in UTF-8");
    assert_eq!(run(&["-D", "FROM_FLAG=3", "-I", include]).json()["outputs"][0]["first"][0], 43);
}

#[test]
fn run_prints_its_outputs() {
    let text = add(&[A, B, OUT, N], &["--group", "32", "--out", "out"]);
    text.expect(0, &[]);
    assert!(
        text.stdout.contains("out: f32:64 = 1 2 3 4 5 6 7 8 …\n  min 1  max 64  mean 32.5"),
        "{}",
        text.stdout
    );
    let json = add(&[A, B, OUT, N], &["--group", "32", "--repeat", "3", "--out", "out", "--json"]).json();
    assert_eq!((&json["kernel"], &json["device"]), (&"vector_add".into(), &"cpu".into()));
    assert_eq!(json["grid"], serde_json::json!([64, 1, 1]));
    assert_eq!(json["group"], serde_json::json!([32, 1, 1]));
    assert!(json["median_ns"].is_u64(), "{json}");
    let expected = serde_json::json!({
        "name": "out", "dtype": "f32", "shape": [64], "first": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0],
        "min": 1.0, "max": 64.0, "mean": 32.5, "nan": 0,
    });
    assert_eq!(json["outputs"], serde_json::json!([expected]));
}

#[test]
fn arguments_go_by_name_or_position_in_any_order() {
    let json = add(&["3=64u32", OUT, B, "0=f32:64:2"], &["--out", "2", "--json"]).json();
    assert_eq!(json["outputs"][0]["max"], 3.0);
}

#[test]
fn a_grid_of_zero_does_nothing() {
    let json = add(&[A, B, OUT, N], &["--grid", "0", "--out", "out", "--json"]);
    // `--grid` is given twice.
    json.expect(2, &[]);
    let file = example("thread_ids");
    let words = [
        "run",
        &file,
        "--kernel",
        "thread_ids",
        "--grid",
        "0",
        "--arg",
        "out=u32:4:7",
        "--out",
        "out",
        "--json",
    ];
    assert_eq!(elinvar(&words).json()["outputs"][0]["first"], serde_json::json!([7, 7, 7, 7]));
}

#[test]
fn wrong_arguments_exit_with_1_and_are_named() {
    let takes = "it takes device const float* a, device const float* b, device float* out, constant uint& n";
    add(&[A, B, OUT], &[]).expect(1, &["kernel `vector_add`: argument `n` is missing", takes]);
    add(&["zz=1u32"], &[]).expect(1, &["no argument `zz`", takes]);
    add(&[A, "0=f32:64:ones"], &[]).expect(1, &["argument `0` is given twice", takes]);
    add(&["a=f64:64:ones", B, OUT, N], &[]).expect(1, &["--arg a=f64:64:ones", "no double", "f32"]);
    add(&["a=u32:64:ones", B, OUT, N], &[]).expect(1, &["argument 0 (device const float* a)", "given u32"]);
    add(&[A, B, "out=3f32", N], &[]).expect(1, &["argument 2 (device float* out)", "it takes an array"]);
    add(&[A, B, OUT, "n=threadgroup:64"], &[]).expect(1, &["`n`"]);
    add(&[A, B, OUT, N], &["--out", "n"]).expect(1, &["--out n: the argument is not an array"]);
    add(&[A, B, OUT, N], &["--out", "zz"]).expect(1, &["no argument `zz`"]);
    add(&[A, B, OUT, N], &["--group", "4096"]).expect(1, &["4096", "1024"]);
    add(&[A, B, OUT, N], &["--device", "cuda:99"]).expect(1, &["cuda:99"]);
    add(&["a=@/nowhere/a.npy", B, OUT, N], &[]).expect(1, &["/nowhere/a.npy"]);
}

#[test]
fn numpys_doubles_are_refused_with_the_call_that_converts() {
    let folder = Folder::new();
    folder.array("a.npy", &[64], &[0.5f64; 64]);
    let value = format!("a={}", folder.value("a.npy"));
    let ended = add(&[&value, B, OUT, N], &[]);
    ended.expect(1, &["argument 0 (device const float* a)", "a.npy holds float64", ".astype(np.float32)"]);
    folder.array("a.npy", &[64], &[1i64; 64]);
    add(&[&value, B, OUT, N], &[]).expect(1, &["a.npy holds int64", ".astype(np.float32)"]);
}

#[test]
fn an_output_that_cannot_be_written_exits_with_3() {
    add(&[A, B, OUT, N], &["--out", "out=/nowhere/x.npy"]).expect(3, &["cannot write /nowhere/x.npy"]);
}

const TYPES: &str = "\
#include <metal_stdlib>
using namespace metal;
struct Params { float3 offset; half scale; bool negate; };
kernel void shift(device float3* a, constant Params& p, constant uint3& n, constant bfloat* w,
                  device bool* flags, uint id [[thread_position_in_grid]])
{
    float3 value = a[id] * float(p.scale) + p.offset + float3(n) + float(w[id]);
    a[id] = p.negate ? -value : value;
    flags[id] = p.negate;
}
kernel void spin(device uint* a)
{
    for (ulong i = 0; i < 1000000000000ul; ++i) { a[0] = a[0] * 3 + uint(i); }
}
";

#[test]
fn structs_vectors_bfloat_and_bool() {
    let folder = Folder::new();
    let file = folder.write("types.metal", TYPES);
    // A float3 in the space of four floats, then half, bool and padding.
    let mut params: Vec<u8> = [10.0f32, 20.0, 30.0, 0.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    params.extend(half::f16::from_f32(2.0).to_le_bytes());
    params.extend([1, 0]);
    params.resize(32, 0);
    folder.array("p.npy", &[32], &params);
    let p = format!("p={}", folder.value("p.npy"));
    let mut words =
        vec!["run", &file, "--kernel", "shift", "--grid", "2", "--json", "--out", "a", "--out", "flags"];
    for arg in ["a=f32:2x4:ones", &p, "n=1,2,3u32", "w=bf16:2:0.5", "flags=bool:2:zeros"] {
        words.extend(["--arg", arg]);
    }
    let ended = elinvar(&words);
    ended.expect(0, &[]);
    let json = ended.json();
    let first = json["outputs"][0]["first"].as_array().expect("values").clone();
    // Every fourth float is padding.
    let rows: Vec<Option<f64>> = [0, 1, 2, 4, 5, 6].map(|i: usize| first[i].as_f64()).to_vec();
    assert_eq!(rows, [-13.5, -24.5, -35.5, -13.5, -24.5, -35.5].map(Some));
    assert_eq!(json["outputs"][1]["first"], serde_json::json!([true, true]));
}

#[test]
fn shapes_that_mislead_are_refused() {
    let folder = Folder::new();
    let file = folder.write("types.metal", TYPES);
    let run = |a: &str, p: &str, n: &str| {
        let args = [a, p, n, "w=bf16:4:ones", "flags=bool:4:zeros"];
        let mut words = vec!["run", &file, "--kernel", "shift", "--grid", "2"];
        args.iter().for_each(|arg| words.extend(["--arg", arg]));
        elinvar(&words)
    };
    let (a, p, n) = ("a=f32:4x4:zeros", "p=u8:32:zeros", "n=1,2,3u32");
    run(a, p, n).expect(0, &[]);
    run("a=f32:4x3:zeros", p, n).expect(1, &["rows have three elements", "packed_float3"]);
    run(a, "p=u8:31:zeros", n).expect(1, &["`p`", "32 bytes"]);
    run(a, p, "n=1,2u32").expect(1, &["expected 3 components, given 2"]);
}

#[test]
fn a_run_beyond_its_time_exits_with_3() {
    let folder = Folder::new();
    let file = folder.write("types.metal", TYPES);
    let words =
        ["run", &file, "--kernel", "spin", "--grid", "1", "--arg", "a=u32:1:zeros", "--timeout", "0.05"];
    elinvar(&words).expect(3, &["timed out", "`spin`", "0.05 s"]);
}

#[test]
fn bench_measures_and_reports() {
    let json = elinvar(&["bench", "batch_1000", "saxpy_l2", "--threads", "1", "--json"]).json();
    assert!(json["machine"]["cores"].as_u64() >= Some(1), "{json}");
    let results = json["results"].as_array().expect("results");
    assert_eq!(results.len(), 2);
    for result in results {
        assert_eq!((&result["device"], &result["threads"]), (&"cpu".into(), &1.into()));
        assert!(result["median_ns"].as_u64() > Some(0), "{result}");
    }
    let saxpy = &results[1];
    assert_eq!((&saxpy["name"], &saxpy["bytes"]), (&"saxpy_l2".into(), &(12u64 << 16).into()));
    let native = &saxpy["baselines"]["native"];
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let ratio = number(&saxpy["median_ns"]) / number(&native["median_ns"]);
    // Decimals in JSON may lose the last bit.
    assert!((number(&native["ratio"]) / ratio - 1.0).abs() < 1e-12, "{native} instead of {ratio}");
    // A baseline is measured, or its absence is explained.
    let pocl = saxpy["baselines"].get("pocl").is_some();
    assert_ne!(pocl, json["machine"]["absent"].get("pocl").is_some(), "{json}");
}

#[test]
fn bench_compares_figures_with_their_targets() {
    let names =
        ["pool_hits", "command_buffer_allocations", "nested_launches", "storage_mode", "argument_binding"];
    let bench =
        |words: &[&str]| elinvar(&[&["bench", "targets"], &names[..], &["--device", "cpu"], words].concat());
    let json = bench(&["--json"]).json();
    let rows = json["results"].as_array().expect("results");
    assert_eq!(
        rows.iter().filter_map(|row| row["name"].as_str()).collect::<std::collections::BTreeSet<_>>(),
        names.into()
    );
    for row in rows {
        let name = row["name"].as_str().unwrap_or_default();
        match name {
            // There is one memory.
            "storage_mode" => assert!(row["unsupported"].is_string() && row["median"].is_null(), "{row}"),
            _ => assert_eq!(row["values"].as_array().map(Vec::len), Some(5), "{row}"),
        }
        let (median, least) = (row["median"].as_f64(), row["at_least"].as_f64());
        match name {
            // Counted, not timed.
            "pool_hits" | "command_buffer_allocations" => {
                assert_eq!((row["met"].as_bool(), median >= least), (Some(true), true), "{row}");
            }
            "argument_binding" => assert!(row["met"].is_null() && median.is_some(), "{row}"),
            _ => {}
        }
    }

    let folder = Folder::new();
    let page = folder.file("targets.md").display().to_string();
    let marks = ["<!-- elinvar bench targets: cpu -->", "<!-- elinvar bench targets: end -->"];
    std::fs::write(
        &page,
        format!(
            "{0}\nold\n{1}\nbetween\n<!-- elinvar bench targets: cuda -->\nkept\n{1}\n",
            marks[0], marks[1]
        ),
    )
    .expect("a file");
    bench(&["--table", &page]).expect(0, &[]);
    let text = std::fs::read_to_string(&page).expect("the page");
    assert!(text.contains("\n| `pool_hits` | >= 90 % | ") && !text.contains("old"), "{text}");
    assert!(
        text.ends_with(
            "\nbetween\n<!-- elinvar bench targets: cuda -->\nkept\n<!-- elinvar bench targets: end -->\n"
        ),
        "{text}"
    );

    elinvar(&["bench", "targets", "nothing"]).expect(2, &["`nothing` is not a target", "streams_4"]);
    elinvar(&["bench", "targets", "--check", &page]).expect(2, &["without --check"]);
}

#[test]
fn bench_compares_ratios_with_those_recorded() {
    let folder = Folder::new();
    let record = folder.file("ratios.json").display().to_string();
    let marked = "before\n<!-- elinvar bench: table -->\nold\n<!-- elinvar bench: end -->\nafter\n";
    let table = folder.write("table.md", marked);
    let bench = |words: &[&str]| {
        elinvar(&[&["bench", "saxpy_l2", "gather", "--threads", "1", "--device", "cpu"], words].concat())
    };
    bench(&["--check", &record]).expect(2, &["has none of these rows", "--record"]);
    bench(&["--record", &record, "--table", &table]).expect(0, &[]);
    let text = std::fs::read_to_string(&table).unwrap();
    assert!(text.starts_with("before\n<!-- elinvar bench: table -->\n| kernel |"), "{text}");
    assert!(
        text.ends_with("<!-- elinvar bench: end -->\nafter\n") && text.contains("\n| `gather` | "),
        "{text}"
    );
    // Ratios far from the measured ones, so that noise does not decide.
    let known: serde_json::Value = serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    let write = |factor: f64| {
        let mut known = known.clone();
        let rows = known
            .as_object_mut()
            .unwrap()
            .values_mut()
            .flat_map(|rows| rows.as_object_mut().unwrap().values_mut());
        for ratio in rows.flat_map(|row| row.as_object_mut().unwrap().values_mut()) {
            *ratio = (ratio.as_f64().unwrap() * factor).into();
        }
        std::fs::write(&record, known.to_string()).unwrap();
    };
    write(1000.0);
    let ended = bench(&["--check", &record]);
    ended.expect(0, &[]);
    assert!(ended.stdout.contains("2 of 2 rows compared"), "{}", ended.stdout);
    write(0.001);
    let ended = bench(&["--check", &record]);
    ended.expect(1, &[]);
    let said = ended.stdout.split("compared with").last().unwrap_or_default();
    assert!(["saxpy_l2", "gather", "in each of 3 measurements"].iter().all(|t| said.contains(t)), "{said}");
    std::fs::write(&record, "[]").unwrap();
    bench(&["--check", &record]).expect(2, &["not a record of benchmarks"]);
}

#[test]
fn launches_are_compared_with_a_direct_call_and_a_pool() {
    let json =
        elinvar(&["bench", "launch_8_groups", "launch_1000_in_stream", "--device", "cpu", "--json"]).json();
    let results = json["results"].as_array().expect("results");
    assert_eq!(results.len(), 2);
    for result in results {
        let baselines = result["baselines"].as_object().expect("baselines");
        assert!(result["suite"] == "launch" && baselines.keys().eq(["direct", "rayon"]), "{result}");
        assert!(baselines.values().all(|baseline| baseline["median_ns"].as_u64() > Some(0)), "{result}");
    }
}

#[test]
fn steps_in_one_launch_are_compared_with_launches() {
    let json = elinvar(&["bench", "device-side", "--device", "cpu", "--json"]).json();
    let results = json["results"].as_array().expect("results");
    let names: Vec<_> = results.iter().filter_map(|result| result["name"].as_str()).collect();
    let resident = ["resident_round_trip_awake", "resident_wake_up"];
    let indirect = ["indirect_1000_commands", "indirect_100_launches", "nested_1000_launches"];
    assert_eq!(names, [&["grid_barrier", "stencil_1000_steps"][..], &indirect, &resident].concat());
    let baselines = ["loop", "launches", "commands", "launches", "commands", "launch", "launch"];
    let baselines = baselines.iter().zip(results);
    for (baseline, result) in baselines {
        let [ours, theirs] = [&result["median_ns"], &result["baselines"][baseline]["median_ns"]];
        assert!(ours.as_u64() > Some(0) && theirs.as_u64() > Some(0), "{result}");
    }
    // In one launch, the stencil takes a small part of the time of 1000 launches.
    let stencil = &results[1];
    assert!(
        stencil["median_ns"].as_u64() < stencil["baselines"]["launches"]["median_ns"].as_u64(),
        "{stencil}"
    );
}

#[test]
fn the_cpu_suite_is_measured_with_one_thread_and_with_all() {
    let json = elinvar(&["bench", "gather", "--device", "cpu", "--json"]).json();
    let results = json["results"].as_array().expect("results");
    let threads: Vec<_> = results.iter().filter_map(|result| result["threads"].as_u64()).collect();
    let all = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    assert_eq!(threads, if all > 1 { vec![1, all] } else { vec![1] });
    assert!(results.iter().all(|result| result["suite"] == "cpu" && result["name"] == "gather"), "{json}");
}

#[test]
fn a_checked_run_names_what_is_outside() {
    // One element too few for the last thread; the kernel's check of `n` assumes 8.
    let words = [
        "run",
        &example("vector_add"),
        "--kernel",
        "vector_add",
        "--grid",
        "8",
        "--checked",
        "--arg",
        "a=f32:8:ramp",
        "--arg",
        "b=f32:7:ones",
        "--arg",
        "out=f32:8:zeros",
        "--arg",
        "n=8u32",
    ];
    elinvar(&words).expect(1, &["vector_add.metal:11", "element 7", "argument 1 `b`", "(7, 0, 0)"]);
    let words = words.map(|word| if word == "b=f32:7:ones" { "b=f32:8:ones" } else { word });
    let ended = elinvar(&[&words[..], &["--out", "out"]].concat());
    ended.expect(0, &[]);
    assert!(ended.stdout.contains("out: f32:8 = 1 2 3 4 5 6 7 8"), "{}", ended.stdout);
}

const CONSTANTS: &str = "#include <metal_stdlib>
using namespace metal;
constant uint stride [[function_constant(3)]];
constant bool twice [[function_constant(4)]];
constant uint factor = is_function_constant_defined(twice) && twice ? 2 : 1;
kernel void count(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = i * stride * factor; }
kernel void plain(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = i; }
";

#[test]
fn constants_reach_the_kernel() {
    let folder = Folder::new();
    let file = folder.write("constants.metal", CONSTANTS);
    let run = |constants: &[&str]| {
        let mut words = vec!["run", &file, "--kernel", "count", "--grid", "50", "--arg", "out=u32:50:zeros"];
        constants.iter().for_each(|c| words.extend(["--constant", c]));
        words.extend(["--out", "out", "--json"]);
        elinvar(&words)
    };
    for (constants, step) in
        [(&["stride=3u32"][..], 3), (&["3=5u32", "twice=true"], 10), (&["stride=7u32", "4=false"], 7)]
    {
        let json = run(constants).json();
        assert_eq!(json["outputs"][0]["max"], (49 * step) as f64, "{json}");
    }
    run(&[]).expect(1, &["kernel `count` needs a value for function constant `stride` (index 3, uint)"]);
    run(&["stride=3i32"]).expect(1, &["`stride`"]);
    run(&["other=3u32"]).expect(1, &["no function constant `other`"]);
    run(&["stride"]).expect(2, &["NAME=VALUE"]);
    run(&["stride=u32:4:ones"]).expect(2, &["--constant stride=u32:4:ones: a function constant is a number"]);
}

#[test]
fn check_builds_with_constants_and_says_what_it_did_not_build() {
    let folder = Folder::new();
    let file = folder.write("constants.metal", CONSTANTS);
    let code = |words: &[&str]| {
        let json = elinvar(&[&["check", &file, "--json"], words].concat()).json();
        let kernels = json["files"][0]["kernels"].as_array().expect("kernels").clone();
        let diagnostics = json["files"][0]["diagnostics"].as_array().expect("diagnostics").len();
        (kernels.iter().map(|k| !k["code"].is_null()).collect::<Vec<_>>(), diagnostics)
    };
    assert_eq!(code(&[]), (vec![false, true], 1));
    assert_eq!(code(&["--constant", "stride=3u32"]), (vec![true, true], 0));
    elinvar(&["check", &file])
        .expect(0, &["constants.metal:6: warning: kernel `count` needs a value", "--constant"]);
    elinvar(&["check", &file, "--constant", "3=1.5f32"]).expect(1, &["`stride`"]);
    // A value applies to the files that declare the constant; a constant that no file declares is an error.
    elinvar(&["check", &file, &example("scale"), "--constant", "3=7u32"]).expect(0, &[]);
    elinvar(&["check", &file, "--constant", "5=7u32"]).expect(1, &["--constant 5: no file declares"]);
}

#[test]
fn run_says_which_group_it_used() {
    let group = |more: &[&str]| add(&[A, B, OUT, N], &[more, &["--json"]].concat()).json()["group"].clone();
    assert_eq!(group(&["--group", "16"]), serde_json::json!([16, 1, 1]));
    let chosen = group(&[]);
    assert!(chosen[0].as_u64().is_some_and(|x| (1..=1024).contains(&x)), "{chosen}");
    let again = add(&[A, B, OUT, N], &[]);
    let text = format!("group {}×1×1 (chosen)", chosen[0]);
    assert!(again.stdout.contains(&text), "{}", again.stdout);
}

#[test]
fn check_warns_of_what_metal_refuses() {
    let folder = Folder::new();
    let text = "#include <metal_stdlib>\nkernel void k(device float* a) {\n  threadgroup float t[4];\n  \
                device float* p = t;\n  a[0] = p[0];\n}\n";
    let file = folder.write("spaces.metal", text);
    elinvar(&["check", &file]).expect(
        0,
        &[
            "spaces.metal:4:17: warning: cannot initialize",
            "'threadgroup float[4]'",
            "    4 |   device float* p = t;\n      |                 ^",
        ],
    );
}

#[test]
fn check_annotates_for_github() {
    let folder = Folder::new();
    let text = "#include <metal_stdlib>\nkernel void k(device float* a) {\n  threadgroup float t[4];\n  \
                device float* p = t;\n  a[0] = p[0];\n}\n";
    let (spaces, wrong) = (
        folder.write("spaces.metal", text),
        folder.write("wrong.metal", "kernel void k(device float* a) { a[0] = y; }"),
    );
    let ended = elinvar(&["check", &spaces, &wrong, &example("scale"), "--github"]);
    ended.expect(1, &[]);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.stdout);
    assert!(
        lines[0].starts_with(&format!("::warning file={spaces},line=4,col=17::cannot initialize a variable")),
        "{}",
        lines[0]
    );
    assert_eq!(lines[1], format!("::error file={wrong},line=1,col=41::use of undeclared identifier 'y'"));
    let none = elinvar(&["check", &spaces, "--kernel", "none", "--github"]);
    none.expect(1, &[]);
    assert!(none.stdout.contains(&format!("::error file={spaces}::no kernel `none`")), "{}", none.stdout);
    elinvar(&["check", &spaces, "--github", "--json"]).expect(2, &["--json"]);
}
