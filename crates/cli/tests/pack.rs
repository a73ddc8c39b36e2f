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
fn a_loaded_bundle_has_all_kernels_ready() {
    let folder = Folder::new();
    let bundle = folder.file("kernels.bundle").display().to_string();
    let targets = ["--target", "cpu", "--target", "cuda:sm_80", "--group", "32", "--checked"];
    elinvar(&[&["pack", &example("scale"), &example("vector_add"), "-o", &bundle][..], &targets].concat())
        .expect(0, &[]);
    // SAFETY: it has just been packed.
    #[allow(unsafe_code)]
    let bundle = unsafe { elinvar::Bundle::open(&bundle) }.unwrap();
    let device = elinvar::Device::cpu().unwrap();
    let loaded = bundle.load(&device).unwrap();
    assert!(loaded.unsupported().is_empty(), "{:?}", loaded.unsupported());
    // Each with and without bounds checks.
    let mut names: Vec<_> = loaded.kernels().iter().map(|kernel| kernel.signature().name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["scale", "scale", "vector_add", "vector_add"]);
    for kernel in loaded.kernels() {
        assert_eq!(kernel.is_optimized(32).unwrap(), Some(true));
    }
    let library = loaded.library(&example("vector_add")).unwrap();
    let kernel = library.kernel("vector_add").unwrap();
    assert_eq!(kernel.is_optimized(32).unwrap(), Some(true));
    let a = device.buffer_with_data(&[1.0f32, 2.0, 3.0]).unwrap();
    let mut out = device.buffer::<f32>(3).unwrap();
    let grid = elinvar::Grid::threads(3).group(32);
    // SAFETY: each buffer has three elements, the size passed to the kernel.
    #[allow(unsafe_code)]
    unsafe { kernel.launch(&device.stream().unwrap(), grid, (&a, &a, &mut out, 3u32)) }
        .unwrap()
        .wait()
        .unwrap();
    assert_eq!(out.to_vec().unwrap(), [2.0, 4.0, 6.0]);
    assert!(loaded.library("other").unwrap_err().to_string().contains("vector_add"));
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
fn code_for_other_sizes_is_packed_on_request() {
    let folder = Folder::new();
    let bundle = folder.file("add.bundle").display().to_string();
    let words =
        ["pack", &example("vector_add"), "-o", &bundle, "--target", "cpu", "--group", "32", "--any-group"];
    elinvar(&words).expect(0, &[]);
    for group in ["32", "64", "1000"] {
        run(&bundle, &["--group", group]).expect(0, &[]);
    }
    run(&bundle, &["--group", "1"]).expect(1, &["no kernel `vector_add` for threadgroups of 1x1x1"]);
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

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";
const KERNELS: &str = "constant uint N [[function_constant(3)]];\n\
    constant bool twice [[function_constant(0)]];\n\
    constant float2 scale [[function_constant(7)]];\n\
    kernel void fill_a(device float* out, uint i [[thread_position_in_grid]]) { out[i] = (twice ? 2 : 1) * N; }\n\
    kernel void fill_b(device float* out, uint i [[thread_position_in_grid]]) { out[i] = N + scale.x + scale.y; }\n\
    kernel void sum(device float* out, uint i [[thread_position_in_grid]]) { out[i] = out[i] + i; }\n";

/// Runs a kernel of a bundle over 4 threads without a compiler, and returns its output.
fn first(bundle: &str, kernel: &str, more: &[&str]) -> Vec<f64> {
    let ended = launch(bundle, kernel, more);
    ended.expect(0, &[]);
    let json = ended.json();
    json["outputs"][0]["first"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn launch(bundle: &str, kernel: &str, more: &[&str]) -> Ended {
    let words =
        ["run", bundle, "--kernel", kernel, "--grid", "4", "--group", "4", "--device", "cpu", "--json"];
    let words = [&words[..], &["--arg", "out=f32:4:zeros", "--out", "out"], more].concat();
    elinvar_with(&words, &[("ELINVAR_CLANG", "/nowhere/clang")])
}

#[test]
fn a_manifest_packs_several_specializations_into_one_bundle() {
    let folder = Folder::new();
    let file = folder.write("fill.metal", format!("{HEAD}{KERNELS}"));
    let other = folder.write("other.metal", format!("{HEAD}{}", KERNELS.replace("(twice ? 2 : 1)", "100")));
    let manifest = folder.write(
        "kernels.toml",
        "[[kernel]]\nname = \"fill_?\"\nfile = \"fill.metal\"\nconstants = { N = 5, twice = true, 7 = [0.5, 1] }\n\
         [[kernel]]\nname = \"fill_a\"\nfile = \"fill.metal\"\nconstants = { N = 6, twice = false }\nmath = \"safe\"\n\
         [[kernel]]\nname = \"fill_a\"\nfile = \"other.metal\"\nconstants = { 3 = 6 }\ngroups = [8, 4]\n\
         [[kernel]]\nname = \"sum\"\nfile = \"fill.metal\"\nchecked = true\n",
    );
    let bundle = folder.file("k.bundle").display().to_string();
    let words =
        ["pack", &file, &other, "-o", &bundle, "--manifest", &manifest, "--target", "cpu", "--group", "4"];
    let packed = elinvar(&[&words[..], &["--target", "cuda", "--target", "metal", "--json"]].concat());
    packed.expect(0, &[]);
    assert_eq!(packed.json()["kernels"], 3 * 5, "{}", packed.stdout);
    assert_eq!(packed.json()["missing"], serde_json::json!([]));

    let five = ["--constant", "N=5u32", "--constant", "twice=true", "--constant", "scale=0.5,1f32"];
    assert_eq!(first(&bundle, "fill_a", &five), [10.0; 4]);
    assert_eq!(first(&bundle, "fill_b", &five), [6.5; 4]);
    // By index, in another order.
    let same = ["--constant", "7=0.5,1f32", "--constant", "0=true", "--constant", "3=5u32"];
    assert_eq!(first(&bundle, "fill_a", &same), [10.0; 4]);
    let six = ["--constant", "twice=false", "--constant", "N=6u32", "--math", "safe"];
    assert_eq!(first(&bundle, "fill_a", &six), [6.0; 4]);
    assert_eq!(first(&bundle, "sum", &["--checked"]), [0.0, 1.0, 2.0, 3.0]);
    // What is not there.
    launch(&bundle, "fill_a", &six[..4])
        .expect(1, &["the bundle has no kernel `fill_a` for the CPU, with these constants"]);
    launch(&bundle, "fill_b", &["--constant", "N=5u32"]).expect(1, &["with these constants"]);
    launch(&bundle, "sum", &["--math", "relaxed"])
        .expect(1, &["not in math mode relaxed; it was packed in fast, safe"]);
    launch(&bundle, "fill", &[])
        .expect(1, &["no kernel `fill` in the bundle; of its 6 kernels, the most similar are `fill_a`"]);
}

#[test]
fn what_compiles_is_packed_and_the_rest_is_reported() {
    let folder = Folder::new();
    let more = "kernel void textured(texture2d<float> t [[texture(0)]], device float* out) { out[0] = 1; }\n\
        [[clang::noinline]] uint one(uint x, ...) { return x + 1; }\n\
        [[clang::noinline]] uint two(uint x, ...) { return x * 3; }\n\
        kernel void pointer(device uint* o, uint i [[thread_position_in_grid]]) {\n\
        uint (*f)(uint, ...) = one;\nfor (uint k = 0; k < o[0]; ++k) { o[i] = f(k, 1); f = o[i] & 1 ? one : two; }\n}\n";
    let file = folder.write("fill.metal", format!("{HEAD}{KERNELS}{more}"));
    let wrong = folder.write("wrong.metal", "kernel void wrong(device int* a) { a[0] = b; }\n");
    let bundle = folder.file("k.bundle").display().to_string();
    let words =
        ["pack", &file, &wrong, "-o", &bundle, "--target", "cpu", "--group", "4", "--constant", "N=5u32"];
    let ended = elinvar(&[&words[..], &["--constant", "twice=true"]].concat());
    let lines = [
        "wrong.metal:1:43: error: use of undeclared identifier 'b'",
        &format!("{file}:7: warning: kernel `fill_b` needs a value for function constant `scale`"),
        "not packed: kernel `textured` for cpu: ",
        "not packed: kernel `pointer` for cpu: ",
        "a call through a function pointer",
        &format!("not packed: {wrong}: 1 error\n"),
    ];
    ended.expect(1, &lines);
    assert_eq!(ended.stderr.matches("not packed: ").count(), 3, "{}", ended.stderr);
    assert!(
        ended.stdout.ends_with(" bytes, 3 not packed\n") && ended.stdout.contains(": 2 kernels, "),
        "{}",
        ended.stdout
    );
    let constants = ["--constant", "N=5u32", "--constant", "twice=true"];
    assert_eq!(first(&bundle, "fill_a", &constants), [10.0; 4]);
    assert_eq!(first(&bundle, "sum", &constants), [0.0, 1.0, 2.0, 3.0]);

    // A kernel that is asked for is missing without its constants.
    let ended = elinvar(&[&words[..], &["--kernel", "fill_*", "--kernel", "sum", "--json"]].concat());
    ended.expect(
        1,
        &["not packed: kernel `fill_a` for cpu: kernel `fill_a` needs a value for function constant `twice`"],
    );
    let json = ended.json();
    assert_eq!((&json["kernels"], json["missing"].as_array().unwrap().len()), (&1.into(), 3), "{json}");
    assert_eq!(
        (&json["missing"][0]["kernel"], &json["missing"][0]["target"]),
        (&"fill_a".into(), &"cpu".into())
    );
}

#[test]
fn errors_of_a_manifest_have_its_lines() {
    let folder = Folder::new();
    let file = folder.write("fill.metal", format!("{HEAD}{KERNELS}"));
    let bundle = folder.file("k.bundle").display().to_string();
    let pack = |text: &str| {
        let manifest = folder.write("m.toml", text);
        elinvar(&["pack", &file, "-o", &bundle, "--target", "metal", "--manifest", &manifest])
    };
    pack("[[kernel]]\nname = \"sum\"\n[[kernel]]\nname = \"fil_*\"\n")
        .expect(1, &["m.toml:4: no kernel in the source matches `fil_*`; it has `fill_a`, `fill_b`, `sum`"]);
    assert!(std::path::Path::new(&bundle).exists(), "the other is packed");
    std::fs::remove_file(&bundle).unwrap();
    pack("[[kernel]]\nname = \"fill_a\"\nconstants = { N = 1,\n twice = 1 }\n").expect(
        1,
        &[
            "not packed: kernel `fill_a` for metal: ",
            "m.toml:4: function constant `twice` (index 0) is `bool`; given `1`",
            "no kernel was packed, so it is not written",
        ],
    );
    assert!(!std::path::Path::new(&bundle).exists());
    pack("[[kernel]]\nname = \"sum\"\nfile = \"other.metal\"\n")
        .expect(1, &["m.toml:2: `other.metal` is none of the files to pack"]);
    let two = folder.write("two.metal", format!("{HEAD}kernel void two(device int* o) {{ o[0] = 1; }}\n"));
    let manifest = folder.write("two.toml", "[[kernel]]\nname = \"two\"\nfile = \"fill.metal\"\n");
    elinvar(&["pack", &file, &two, "-o", &bundle, "--target", "metal", "--manifest", &manifest])
        .expect(1, &["two.toml:2: no kernel `two` in `fill.metal`; it has `fill_a`, `fill_b`, `sum`"]);
    pack("[[kernel]]\nkernel = \"sum\"\n").expect(1, &["m.toml:2: unknown field `kernel`"]);
    elinvar(&["pack", &file, "-o", &bundle, "--manifest", "x.toml", "--kernel", "sum"])
        .expect(2, &["cannot be used with"]);
    elinvar(&["pack", &file, "-o", &bundle, "--manifest", "/none.toml"]).expect(1, &["/none.toml: "]);
}

#[test]
fn a_bundle_for_metal_has_the_text_or_the_library() {
    let folder = Folder::new();
    let file = folder.write("fill.metal", format!("#include \"more.h\"\n{HEAD}{KERNELS}"));
    folder.write("more.h", "// from more.h\n");
    let other =
        folder.write("other.metal", format!("{HEAD}kernel void other(device int* o) {{ o[0] = 1; }}\n"));
    let library = folder.write("fill.metallib", "MTLB and so on");
    let bundle = folder.file("k.bundle").display().to_string();
    let has = |text: &str| {
        let bytes = std::fs::read(&bundle).unwrap();
        bytes.windows(text.len()).any(|part| part == text.as_bytes())
    };
    let words =
        ["pack", &file, &other, "-o", &bundle, "--target", "metal", "--kernel", "sum", "--kernel", "other"];
    elinvar(&words).expect(0, &[]);
    assert!(has("// from more.h") && has("kernel void sum(") && has("kernel void other("));
    elinvar(&[&words[..], &["--metallib", &library]].concat()).expect(0, &[]);
    assert!(has("MTLB and so on") && !has("kernel void sum(") && has("kernel void other("));
    // It has no code for another device.
    launch(&bundle, "sum", &[]).expect(1, &["the bundle has no kernel `sum` for the CPU"]);

    let unknown = folder.write("unknown.metallib", "MTLB");
    elinvar(&[&words[..], &["--metallib", &unknown]].concat())
        .expect(2, &["unknown.metallib: no file on the command line"]);
    elinvar(&[&words[..], &["--metallib", &library, "--metallib", &library]].concat())
        .expect(2, &["has another library"]);
    elinvar(&["pack", &file, "-o", &bundle, "--metallib", &library])
        .expect(2, &["--metallib needs --target metal"]);
    elinvar(&["check", &file, "--target", "metal"])
        .expect(0, &["kernel `fill_a` needs a value for function constant `twice`"]);
    elinvar(&["pack", &file, "-o", &bundle, "--target", "metal:apple7"])
        .expect(1, &["for all families: `--target metal`"]);
}

#[test]
fn libraries_are_packed_with_their_source() {
    let folder = Folder::new();
    let library = folder.write("half.metal", "float halved(float x) { return 0.5f * x; }\n");
    let text = "extern float halved(float x);\n\
                kernel void halves(device float* x, uint i [[thread_position_in_grid]]) { x[i] = halved(x[i]); }\n";
    let file = folder.write("halves.metal", text);
    let bundle = folder.file("halves.bundle").display().to_string();
    elinvar(&["pack", &file, "--library", &library, "-o", &bundle, "--target", "cpu", "--group", "4"])
        .expect(0, &[]);
    let words = ["run", &bundle, "--kernel", "halves", "--grid", "4", "--group", "4"];
    let run = elinvar(&[&words[..], &["--arg", "x=f32:4:ramp", "--out", "x"]].concat());
    run.expect(0, &[]);
    assert!(run.stdout.contains("x: f32:4 = 0 0.5 1 1.5"), "{}", run.stdout);
    elinvar(&["pack", &file, "-o", &bundle])
        .expect(1, &["halves.metal:1:14: error: function `halved` is declared"]);
}
