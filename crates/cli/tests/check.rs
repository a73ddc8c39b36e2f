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
fn log_calls_are_listed() {
    let folder = Folder::new();
    let log = "constant os_log own(\"com.example\", \"lines\");\nkernel void k(device int* o) {\n  own.log_error(\"%d\\n\", o[0]);\n  \
               printf(\"done\");\n}\n";
    let file = folder.write("log.metal", format!("{HEAD}{log}{FILL}"));
    let ended = elinvar(&["check", &file]);
    ended.expect(0, &[]);
    let lines = format!(
        "\n      log error \"%d\\n\" at {file}:5\n      log notice \"done\" at {file}:6\n      cpu: ok\n"
    );
    assert!(ended.stdout.contains(&lines), "{}", ended.stdout);
    let json = elinvar(&["check", &file, "--target", "cuda", "--json"]).json();
    let kernels = &json["files"][0]["kernels"];
    let entry = |level: &str, subsystem: &str, category: &str, format: &str, line: u32| json!({ "level": level, "subsystem": subsystem, "category": category, "format": format, "file": file, "line": line });
    let expected =
        json!([entry("error", "com.example", "lines", "%d\n", 5), entry("notice", "", "", "done", 6)]);
    assert_eq!((&kernels[0]["logs"], &kernels[1]["logs"]), (&expected, &json!([])));
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

/// Kernels are compiled for two simdgroups, and are accepted if they are right for one.
#[test]
fn barriers_at_which_two_simdgroups_do_not_meet_are_a_warning() {
    let folder = Folder::new();
    let kernel = |name: &str, attribute: &str| {
        format!(
            "{attribute} kernel void {name}(device uint* o, uint s [[simdgroup_index_in_threadgroup]], uint i [[thread_position_in_grid]]) {{\n  \
             if (s == 0) {{\n    threadgroup_barrier(mem_flags::mem_threadgroup);\n    o[i] = 1;\n  }} else {{\n    \
             threadgroup_barrier(mem_flags::mem_threadgroup);\n    o[i] = 2;\n  }}\n}}\n"
        )
    };
    let one = kernel("one", "[[max_total_threads_per_threadgroup(32)]]");
    let file = folder.write("two.metal", format!("{HEAD}{}{one}", kernel("two", "")));
    let what = "threadgroup_barrier in kernel `two` under control flow that differs between the simdgroups of a threadgroup; \
                threadgroups of one simdgroup are accepted";
    let warning = format!("{file}:5: warning: {what}");
    for target in ["cpu", "cuda"] {
        for codegen in [&[][..], &["--codegen"]] {
            // Twice: only what is right for two simdgroups is kept in the cache.
            for _ in 0..2 {
                let ended = elinvar(&[&["check", &file, "--target", target], codegen].concat());
                ended.expect(0, &[&warning]);
                let ok = ended.stdout.matches(&format!("\n      {target}")).count();
                assert_eq!((ok, ended.stderr.matches("kernel `one`").count()), (2, 0), "{}", ended.stderr);
            }
        }
    }
}

/// A barrier of the grid by hand, and a decoupled look-back, have warnings with the line of the load; other uses of atomics have none.
#[test]
fn loops_that_wait_for_other_threadgroups_are_a_warning() {
    let folder = Folder::new();
    let counter =
        "kernel void counter(device atomic_uint* c, device uint* x, uint i [[thread_position_in_grid]],
        uint l [[thread_position_in_threadgroup]], uint n [[threadgroups_per_grid]]) {
        if (l == 0) {
            atomic_fetch_add_explicit(c, 1u, memory_order_relaxed);
            while (atomic_load_explicit(c, memory_order_relaxed) < n) {}
        }
        threadgroup_barrier(mem_flags::mem_device);
        x[i] += x[0];
    }\n";
    let look_back = "kernel void look_back(device atomic_uint* state, device uint* sums, uint l [[thread_position_in_threadgroup]],
        uint group [[threadgroup_position_in_grid]]) {
        if (l > 0) return;
        uint sum = 0;
        for (int j = int(group) - 1; j >= 0;) {
            uint seen = atomic_load_explicit(&state[j], memory_order_relaxed);
            if (seen == 0u) continue;
            sum += seen >> 2;
            if ((seen & 3u) == 2u) break;
            --j;
        }
        sums[group] = sum;
    }\n";
    let fine = "kernel void add(device atomic_uint* x, device atomic_uint* next, device uint* out, constant uint& n,
        uint i [[thread_position_in_grid]]) {
        uint old = atomic_load_explicit(x, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(x, &old, old * 3u, memory_order_relaxed, memory_order_relaxed)) {}
        for (uint at; (at = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed)) < n;) out[at] = i;
    }
    kernel void find(device atomic_uint* table, device uint* out, uint i [[thread_position_in_grid]]) {
        uint at = i & 63u;
        for (uint key; (key = atomic_load_explicit(&table[at], memory_order_relaxed)) != 0u && key != i;) at = (at + 1u) & 63u;
        out[i] = at;
    }\n";
    let warning = "this loop waits for another thread";
    for (name, text, line) in [("counter", counter, 7), ("look_back", look_back, 8)] {
        let file = folder.write(&format!("{name}.metal"), format!("{HEAD}{text}"));
        for target in ["cpu", "cuda"] {
            let ended = elinvar(&["check", &file, "--target", target]);
            ended.expect(0, &[&format!("{file}:{line}: warning: {warning}")]);
        }
    }
    let ended = elinvar(&["check", &folder.write("fine.metal", format!("{HEAD}{fine}"))]);
    ended.expect(0, &[]);
    assert!(!ended.stderr.contains("warning"), "{}", ended.stderr);
}

/// Names of the listed kernels.
fn names(json: &Value) -> Vec<&str> {
    states(json).into_iter().map(|(name, ..)| name).collect()
}

#[test]
fn kernels_are_selected_by_name_and_by_pattern() {
    let folder = Folder::new();
    let kernel = |name: &str| format!("kernel void {name}(device uint* o) {{ o[0] = 1; }}\n");
    let names_of = ["affine_f4", "affine_f8", "affine_f16", "gemm_nn", "gemm_nt", "softmax"];
    let text: String = names_of.iter().map(|name| kernel(name)).collect();
    let file = folder.write("many.metal", format!("{HEAD}{text}"));
    let listed = |patterns: &[&str]| {
        let patterns: Vec<&str> = patterns.iter().flat_map(|pattern| ["--kernel", pattern]).collect();
        let ended = elinvar(&[&["check", &file, "--json"], &patterns[..]].concat());
        ended.expect(0, &[]);
        names(&ended.json()).join(" ")
    };
    assert_eq!(listed(&["affine_f?"]), "affine_f4 affine_f8");
    assert_eq!(listed(&["softmax", "gemm_*"]), "gemm_nn gemm_nt softmax");
    assert_eq!(listed(&["*[!0-9]"]), "gemm_nn gemm_nt softmax");
    let ended = elinvar(&["check", "--emit", "ir", &file, "--kernel", "gemm_*", "--kernel", "affine_f4"]);
    ended.expect(0, &[]);
    assert_eq!(ended.stdout.matches("; kernel ").count(), 3, "{}", ended.stdout);

    // Short, with what may have been meant, and for several files once.
    let other = folder.write("other.metal", format!("{HEAD}{}", kernel("other")));
    let ended = elinvar(&["check", &file, "--kernel", "gemn_nt", "--kernel", "softmax"]);
    ended.expect(1, &["error: no kernel `gemn_nt` in the source; of its 6 kernels, the most similar are `gemm_nt`, `gemm_nn`,"]);
    assert!(ended.stdout.contains("kernel softmax"), "{}", ended.stdout);
    let ended = elinvar(&["check", &file, &other, "--kernel", "x*", "--kernel", "other"]);
    ended.expect(1, &["error: no kernel in the 2 files matches `x*`; of its 7 kernels"]);
    assert_eq!(ended.stderr.matches("matches `x*`").count(), 1, "{}", ended.stderr);
    elinvar(&["check", &file, "--kernel", "k["]).expect(2, &["invalid pattern `k[`"]);
}

#[test]
fn a_check_of_the_syntax_lists_declarations_and_compiles_no_kernel() {
    let folder = Folder::new();
    // Code generation does not support the call of a variadic function through a pointer.
    let text = "constant uint N [[function_constant(3)]];\n\
        uint one(uint x, ...) { return x; }\nuint two(uint x, ...) { return 2 * x; }\n\
        kernel void pointer(device uint* o [[buffer(2)]], uint i [[thread_position_in_grid]]) {\n\
        uint (*g)(uint, ...) = one;\nfor (uint k = 0; k < o[0]; ++k) { o[i] = g(k, 1); g = o[i] & 1 ? one : two; }\n}\n\
        kernel void needs(device uint* o, constant float& x) { o[0] = N * x; }\n\
        template <typename T> kernel void t(device T* o) { o[0] = 1; }\n\
        template [[host_name(\"t_half\")]] kernel void t<half>(device half*);\n";
    let file = folder.write("a.metal", format!("{HEAD}{text}"));
    let ended = elinvar(&["check", &file, "--syntax-only"]);
    ended.expect(0, &[]);
    for line in [
        &format!("kernel pointer  ({file}:6, 1-D)\n   0  device uint* o"),
        "constant float& x",
        "kernel t_half",
        "\nfunction constant uint N  function_constant(3)\n",
        &format!("{file}: 3 kernels, no errors\n"),
    ] {
        assert!(ended.stdout.contains(line), "{line}: {}", ended.stdout);
    }
    assert!(!ended.stdout.contains("cpu:") && !ended.stdout.contains("barriers"), "{}", ended.stdout);
    let json = elinvar(&["check", &file, "--syntax-only", "--json", "--kernel", "t_*"]).json();
    assert_eq!(states(&json), [("t_half", 11, &json!({}))]);
    let constants = json!([{ "name": "N", "index": 3, "type": "uint" }]);
    assert_eq!(json["files"][0]["constants"], constants);
    assert_eq!(json["files"][0]["kernels"][0]["args"][0]["type"], "half");
    // With errors and unsupported kernels.
    let file = folder.write("b.metal", format!("{HEAD}{TEXTURE}{LAST}"));
    let ended = elinvar(&["check", &file, "--syntax-only"]);
    ended.expect(1, &[&format!("{file}:4:21: error: {WHY}")]);
    let rows = format!("kernel sharpen  ({file}:4)\n      unsupported: {WHY}\n\nkernel last");
    assert!(ended.stdout.contains(&rows), "{}", ended.stdout);
    let file = folder.write("c.metal", format!("{HEAD}kernel void k(device int* o) {{ o[0] = x; }}\n"));
    elinvar(&["check", &file, "--syntax-only"])
        .expect(1, &["c.metal:3:39: error: use of undeclared identifier 'x'"]);
    for flag in [&["--target", "cpu"][..], &["--codegen"], &["--emit", "ir"], &["--constant", "N=1u32"]] {
        elinvar(&[&["check", &file, "--syntax-only"], flag].concat()).expect(2, &["cannot be used with"]);
    }
}

#[test]
fn the_math_mode_is_that_of_the_check() {
    let folder = Folder::new();
    let text = "#if __FAST_MATH__\nkernel void fast_only(device float* o) { o[0] = 1; }\n#endif\n\
        kernel void sum(device float* o) { o[0] = o[1] + o[2] + o[3]; }\n";
    let file = folder.write("math.metal", format!("{HEAD}{text}"));
    for (math, listed, reassociated) in
        [("safe", &["sum"][..], false), ("relaxed", &["sum"], true), ("fast", &["fast_only", "sum"], true)]
    {
        let json = elinvar(&["check", &file, "--math", math, "--json"]).json();
        assert_eq!(names(&json), listed);
        let ir = elinvar(&["check", &file, "--math", math, "--emit", "ir", "--kernel", "sum"]).stdout;
        assert_eq!(ir.contains("fadd reassoc"), reassociated, "{math}: {ir}");
    }
    elinvar(&["check", &file, "--math", "quick"]).expect(2, &["[possible values: safe, relaxed, fast]"]);
}

/// Each limit and feature at its edge: what a family has is accepted, what it lacks is the reason.
#[test]
fn families_of_apple_gpus_have_limits_and_features() {
    let folder = Folder::new();
    let kernel = |name: &str, args: &str, body: &str| {
        format!(
            "kernel void {name}(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]{args}) {{ {body} }}\n"
        )
    };
    let array = |bytes: u32| {
        format!(
            "threadgroup uchar t[{bytes}]; t[i] = 1; threadgroup_barrier(mem_flags::mem_threadgroup); o[i] = t[i ^ 1];"
        )
    };
    let atomic = |name: &str, ty: &str, one: &str| {
        kernel(
            name,
            &format!(", device {ty}* a [[buffer(1)]]"),
            &format!("atomic_fetch_add_explicit(a, {one}, memory_order_relaxed);"),
        )
    };
    let wait = kernel(
        "wait",
        ", device atomic_uint* a [[buffer(1)]]",
        "while (atomic_load_explicit(a, memory_order_relaxed) == 0u) {} o[i] = 1;",
    );
    let text = [
        kernel("plain", "", "o[i] = 1;"),
        kernel("small", "", &array(16384)),
        kernel("large", "", &array(32768)),
        kernel("larger", "", &array(32784)),
        kernel("sum", "", "o[i] = simd_sum(o[i]);"),
        kernel("shuffle", "", "o[i] = simd_shuffle_xor(o[i], 1);"),
        kernel("fill", "", "o[i] = simd_shuffle_and_fill_up(o[i], 0.0f, 1);"),
        kernel("quad", "", "o[i] = quad_shuffle_xor(o[i], 1);"),
        atomic("floats", "atomic_float", "1.0f"),
        wait,
    ];
    let file = folder.write("apple.metal", format!("{HEAD}{}", text.concat()));
    let families = ["metal:apple3", "metal:apple4", "metal:apple6", "metal:apple7", "metal:apple8", "metal"];
    let targets: Vec<&str> = families.iter().flat_map(|family| ["--target", family]).collect();
    let ended = elinvar(&[&["check", "--json", &file][..], &targets].concat());
    ended.expect(1, &[]);
    let json = ended.json();
    // By kernel: a text of the reason, and the families that accept it.
    for (kernel, reason, accepted) in [
        ("plain", "", &families[..]),
        ("small", "", &families),
        ("large", "32768 bytes of threadgroup memory, 16384 at most", &families[1..]),
        ("larger", "32784 bytes of threadgroup memory", &[]),
        ("sum", "SIMD-group reductions: from GPU family apple7 on", &families[3..]),
        ("shuffle", "SIMD-group permute operations: from GPU family apple6 on", &families[2..]),
        ("fill", "SIMD-group shift and fill: from GPU family apple8 on", &families[4..5]),
        ("quad", "quad-group permute operations: from GPU family apple4 on", &families[1..]),
        ("floats", "floating-point atomics: from GPU family apple7 on", &families[3..]),
        ("wait", "Metal does not promise", &[]),
    ] {
        let states = states(&json);
        let (_, _, targets) = states.iter().find(|(name, ..)| *name == kernel).expect("the kernel is listed");
        for family in families {
            let (state, why) = (&targets[family]["state"], &targets[family]["reason"]);
            match accepted.contains(&family) {
                true => assert_eq!((state, why), (&json!("ok"), &Value::Null), "{kernel} for {family}"),
                false => {
                    assert_eq!(state, "unsupported", "{kernel} for {family}");
                    assert!(why.as_str().expect("a reason").contains(reason), "{kernel} for {family}: {why}");
                }
            }
        }
    }
    elinvar(&["check", &file, "--kernel", "plain", "--target", "metal"]).expect(0, &[]);
    let sum = elinvar(&["check", &file, "--kernel", "sum", "--target", "metal:apple6", "--github"]);
    sum.expect(1, &[]);
    assert!(
        sum.stdout.starts_with(&format!("::error file={file},line=7::SIMD-group reductions")),
        "{}",
        sum.stdout
    );
    elinvar(&["check", &file, "--target", "metal:apple1"]).expect(2, &["expected apple2 to apple10"]);
    elinvar(&["check", &file, "--target", "metal", "--emit", "ir"]).expect(2, &["for --target cpu or cuda"]);
}

/// A system's version of the language decides which features there are, with the line, and which macros are defined.
#[test]
fn systems_have_their_version_of_the_language() {
    let folder = Folder::new();
    let text = "#include <metal_stdlib>\nusing namespace metal;\n\
        kernel void brain(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n    float x = o[i];\n    o[i] = float(bfloat(x));\n}\n\
        kernel void plain(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = 1; }\n\
        #ifdef __HAVE_BFLOAT__\nkernel void guarded(device bfloat* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = 1.0bf; }\n#endif\n\
        #if __METAL_VERSION__ == 310\nkernel void exactly(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = 1; }\n#endif\n\
        #ifdef __METAL_IOS__\nkernel void phone(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = 1; }\n#endif\n\
        #ifdef __METAL_MACOS__\nkernel void computer(device float* o [[buffer(0)]], uint i [[thread_position_in_grid]]) { o[i] = 1; }\n#endif\n";
    let file = folder.write("systems.metal", text);
    for (target, accepted) in [
        ("metal", &["brain", "plain", "guarded", "computer"][..]),
        ("metal:macos14", &["brain", "plain", "guarded", "exactly", "computer"]),
        ("metal:apple9:ios17", &["brain", "plain", "guarded", "exactly", "phone"]),
        ("metal:macos13", &["plain", "computer"]),
        ("metal:ios16", &["plain", "phone"]),
        ("metal:msl3.0", &["plain", "computer"]),
    ] {
        let ended = elinvar(&["check", "--json", &file, "--target", target]);
        let is_early = !accepted.contains(&"brain");
        ended.expect(u8::from(is_early).into(), &[]);
        let json = ended.json();
        let kernels = json["files"][0]["kernels"].as_array().expect("kernels");
        let with = |state: &str| -> Vec<&str> {
            let has = |kernel: &&Value| {
                kernel["targets"].as_object().is_some_and(|all| all.values().all(|one| one["state"] == state))
            };
            kernels.iter().filter(has).filter_map(|kernel| kernel["name"].as_str()).collect()
        };
        assert_eq!(with("ok"), accepted, "{target}");
        assert_eq!(with("unsupported"), if is_early { &["brain"][..] } else { &[] }, "{target}");
    }
    let early = elinvar(&["check", &file, "--kernel", "brain", "--target", "metal:macos13"]);
    let line = format!("{file}:5: error: `bfloat`: from MSL 3.1 on (macOS 14, iOS 17), not in 3.0 (macos13)");
    early.expect(1, &[&line]);
    elinvar(&[
        "check",
        &file,
        "--target",
        "metal:msl3.0",
        "-D",
        "__METAL_VERSION__=310",
        "--kernel",
        "exactly",
    ])
    .expect(0, &[]);
    elinvar(&["check", &file, "--target", "metal:macos16"])
        .expect(2, &["unknown system `macos16`", "macos26"]);
}
