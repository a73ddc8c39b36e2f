//! What cannot be translated is an error with its place, and hostile sources end in errors, too.

use elinvar_driver::Source;
use elinvar_msl::Toolchain;
use elinvar_translate::{Error, Options, Translation};

fn translate(source: &Source, options: &Options) -> Result<Translation, Error> {
    elinvar_translate::opencl(&Toolchain::find().unwrap(), source, options)
}

fn of(text: &str) -> Translation {
    translate(&Source::named("k.cl", text), &Options::default()).unwrap()
}

/// The only error, as text.
fn refused(text: &str) -> String {
    let translation = of(text);
    assert!(translation.kernels.is_empty(), "{}", translation.msl);
    let [error] = &translation.errors[..] else { panic!("{text}: {:#?}", translation.errors) };
    assert!(error.source_line.is_some());
    format!("{}:{}:{}: {}", error.file, error.line, error.column, error.message)
}

#[test]
fn what_metal_does_not_have_is_refused_with_its_place() {
    for (text, expected) in [
        (
            "int f(int n) { return n < 2 ? n : f(n - 1); }\nkernel void k(global int *p) { *p = f(*p); }",
            "k.cl:1:35: recursion: `f` calls itself",
        ),
        (
            "kernel void k(global int *p) {\n  goto end;\n  if (*p) { end: *p = 1; }\n}",
            "k.cl:2:3: Metal has no `goto`; its label is in another block",
        ),
        ("kernel void k(global int *p) {\n  __asm__(\"nop\"); }", "k.cl:2:3: inline assembly"),
        ("kernel void k(global int *p) {\n  *p = get_work_dim(); }", "k.cl:2:8: `get_work_dim`"),
        (
            "int g(int);\nkernel void k(global int *p) { *p = g(1); }",
            "k.cl:2:37: function `g` is declared and not defined",
        ),
        (
            "kernel void l(global int *p) { *p = 1; }\nkernel void k(global int *p) { l(p); }",
            "k.cl:2:32: `l` is a kernel",
        ),
        ("kernel void k(global int *p, uint f) { barrier(f); }", "k.cl:1:48: the flags"),
        ("kernel void k(global int8 *p) { printf(\"%v8d\", *p); }", "k.cl:1:48: `printf` of a vector of 8"),
    ] {
        if text.contains("void l(") {
            let translation = of(text);
            assert_eq!(translation.refused, ["k"]);
            assert_eq!(translation.kernels.len(), 1);
            let error = &translation.errors[0];
            let error = format!("{}:{}:{}: {}", error.file, error.line, error.column, error.message);
            assert!(error.starts_with(expected), "{error}");
            continue;
        }
        let error = refused(text);
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn invalid_sources_have_clangs_errors() {
    for (text, line, column, part) in [
        ("#define X(a) a +\nkernel void k(global int *p) {\n  *p = X(1) ;\n}", 3, 13, "expected expression"),
        ("kernel void k(global double *p) { }", 1, 22, "double"),
        ("typedef void (*F)(void);\nkernel void k(F f) { }", 1, 16, "pointers to functions"),
        ("#include \"none.h\"", 1, 10, "none.h"),
        ("kernel void k(global int *p) { *p = \u{fffd}; }", 1, 37, "unexpected character"),
    ] {
        let Err(Error::Compile(errors)) = translate(&Source::named("k.cl", text), &Options::default()) else {
            panic!("{text}");
        };
        let error = &errors[0];
        assert_eq!((error.file.as_str(), error.line), ("k.cl", line), "{error}");
        assert!(error.message.contains(part) && error.column.abs_diff(column) <= 4, "{error}");
    }
}

#[test]
fn files_are_included_from_the_folders_only() {
    let folder = tempfile::tempdir().unwrap();
    let inside = folder.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("k.h"), "// From k.h\ntypedef struct { int unused; } Unused;\nstatic int one(void) { return 1; }\nstatic int two(void) { return 2.0 / 0; }\n").unwrap();
    std::fs::write(folder.path().join("secret.h"), "secret").unwrap();
    let source = |text: &str| Source::named("k.cl", text).include_dir(&inside);
    let text = "#include \"k.h\"\nkernel void k(global int *p) { *p = one(); }";
    let msl = translate(&source(text), &Options::default()).unwrap().msl;
    assert!(msl.contains("one()") && !msl.contains("two") && !msl.contains("Unused"), "{msl}");
    assert!(msl.contains(&format!("#line 3 \"{}\"", inside.join("k.h").display())), "{msl}");
    let outside = source("#include \"../secret.h\"\nkernel void k(global int *p) {}");
    let Err(error) = translate(&outside, &Options::default()) else { panic!("it was included") };
    assert!(error.to_string().contains("outside the include folders"), "{error}");
}

#[test]
fn comments_survive_and_lines_are_kept() {
    let text = "/* License\n * of the file */\n\n// Doubles.\nkernel void k(global int *p, // the data\n              int n) {\n    /* i */ int i = get_global_id(0); // mine\n    p[i] = p[i] * 2; // twice\n}\n// the end";
    let translation = of(text);
    for part in [
        "/* License\n * of the file */",
        "// Doubles.",
        "// the data",
        "/* i */ int i",
        "// mine",
        "// twice",
    ] {
        assert!(translation.msl.contains(part), "{part}: {}", translation.msl);
    }
    let without =
        translate(&Source::named("k.cl", text), &Options { lines: false, kernels: vec![] }).unwrap();
    assert!(!without.msl.contains("#line"), "{}", without.msl);
    assert_eq!(translation.msl.matches("#line").count(), 1, "{}", translation.msl);
}

#[test]
fn only_the_kernels_that_are_named() {
    let text = "static int f(void) { return get_work_dim(); }\nkernel void a(global int *p) { *p = f(); }\nkernel void b(global int *p) { *p = 2; }";
    let all = of(text);
    assert_eq!((all.kernels.len(), all.refused.len()), (1, 1));
    let one =
        translate(&Source::named("k.cl", text), &Options { kernels: vec!["b".into()], lines: true }).unwrap();
    assert!(
        one.errors.is_empty() && one.kernels[0].name == "b" && !one.msl.contains("void a"),
        "{}",
        one.msl
    );
}

#[test]
fn deep_and_large_sources() {
    let sum = vec!["*p"; 1500].join(" + ");
    assert_eq!(of(&format!("kernel void k(global int *p) {{ *p = {sum}; }}")).kernels.len(), 1);
    let functions: String = (0..3000).map(|i| format!("int f{i}(int x) {{ return x + {i}; }}\n")).collect();
    assert_eq!(of(&format!("{functions}kernel void k(global int *p) {{ *p = f7(1); }}")).kernels.len(), 1);
    let deep = format!("{}1{}", "(".repeat(250), ")".repeat(250));
    assert_eq!(of(&format!("kernel void k(global int *p) {{ *p = {deep}; }}")).kernels.len(), 1);
    let sum = vec!["*p"; 60_000].join(" + ");
    let result = translate(
        &Source::named("k.cl", format!("kernel void k(global int *p) {{ *p = {sum}; }}")),
        &Options::default(),
    );
    assert!(result.is_err(), "an error, and no crash");
}

#[test]
fn random_bytes_are_errors() {
    let text =
        "kernel void k(global int *p) { int4 v = (int4)(1, 2, 3, 4); p[get_global_id(0)] = v.s3 << p[0]; }";
    let mut state = 1_u64;
    for _ in 0..60 {
        let mut bytes = text.as_bytes().to_vec();
        for _ in 0..3 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = (state >> 33) as usize % bytes.len();
            bytes[at] = b" (){}[];,.*&<>=+-~!?:\"'\\#/1a_\n"[(state >> 20) as usize % 30];
        }
        let source = Source::named("k.cl", String::from_utf8_lossy(&bytes));
        // Whatever it is, it ends.
        let _ended = translate(&source, &Options::default());
    }
}
