//! `elinvar check --emit`: each form on standard output, the separators between kernels, and errors on standard error.

mod common;

use common::{Folder, elinvar};

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";
const FILL: &str =
    "kernel void fill(device float* o, uint i [[thread_position_in_grid]]) {\n  o[i] = 1;\n}\n";
const TWICE: &str =
    "kernel void twice(device float* o, uint i [[thread_position_in_grid]]) {\n  o[i] *= 2;\n}\n";
const TEXTURE: &str = "kernel void sharpen(device float* o, texture2d<float> t [[texture(0)]],\n                    \
                       uint2 i [[thread_position_in_grid]]) {\n  o[i.x] = t.read(i).x;\n}\n";

/// The lines at which a kernel's code begins.
fn headings<'a>(stdout: &'a str, comment: &str) -> Vec<&'a str> {
    let begin = format!("{comment} kernel ");
    stdout.lines().filter(|line| line.starts_with(&begin)).collect()
}

#[test]
fn each_form_is_printed_without_target_and_group() {
    let folder = Folder::new();
    let file = folder.write("two.metal", format!("{HEAD}{FILL}{TWICE}"));
    let asm = if cfg!(target_arch = "x86_64") { "#" } else { "//" };
    for (form, comment, target, text) in [
        ("ir", ";", "cpu", "@__elinvar_entry(ptr"),
        ("vector-ir", ";", "cpu", "define i32 @elinvar_threadgroups("),
        ("ptx", "//", "cuda:sm_90", ".visible .entry elinvar_fill("),
        ("asm", asm, "cpu", "elinvar_threadgroups:"),
        ("lines", "#", "cpu", "#vector  scalar  line\n"),
    ] {
        let ended = elinvar(&["check", "--emit", form, &file]);
        ended.expect(0, &[]);
        assert_eq!(ended.stderr, "", "{form}");
        let expected = [("fill", 3), ("twice", 6)]
            .map(|(name, line)| format!("{comment} kernel {name} ({file}:{line}), {target}"));
        assert_eq!(headings(&ended.stdout, comment), expected, "{form}");
        assert!(ended.stdout.starts_with(&expected[0]), "{}", ended.stdout);
        assert!(ended.stdout.contains(text), "`{text}` is not in {}", ended.stdout);

        // The code of a single kernel is the same as in the list.
        let one = elinvar(&["check", "--emit", form, &file, "--kernel", "twice"]);
        one.expect(0, &[]);
        assert_eq!(headings(&one.stdout, comment).len(), 1, "{form}");
        assert!(ended.stdout.ends_with(&format!("\n\n{}", one.stdout)), "{form}: {}", ended.stdout);
    }
}

#[test]
fn instructions_are_counted_by_source_line() {
    let folder = Folder::new();
    let file = folder.write("lines.metal", "kernel void f(device float* o, uint i [[thread_position_in_grid]]) {\n  float x = o[i];\n  x = x * x + 1;\n  o[i] = x;\n}\n");
    let ended = elinvar(&["check", "--emit", "lines", &file]);
    ended.expect(0, &[]);
    let sizes = |what: &str| -> Vec<usize> {
        let row = ended.stdout.lines().find(|row| row.ends_with(what)).unwrap();
        row.split_whitespace().take(2).map(|number| number.parse().unwrap()).collect()
    };
    // An addition and a multiplication, or one FMA in each version.
    let product = sizes(&format!("{file}:3"));
    assert!((2..=8).contains(&product[0]) && (1..=2).contains(&product[1]), "{}", ended.stdout);
    let rows = ended.stdout.lines().skip(3).filter(|row| !row.is_empty());
    let rows: Vec<Vec<usize>> =
        rows.map(|row| row.split_whitespace().take(2).map(|n| n.parse().unwrap()).collect()).collect();
    let total: [usize; 2] = [0, 1].map(|at| rows.iter().map(|row| row[at]).sum());
    assert_eq!(sizes("all"), total, "{}", ended.stdout);
    assert!(rows.is_sorted_by(|a, b| a[0] >= b[0]), "{}", ended.stdout);
}

#[test]
fn several_files_follow_one_another() {
    let folder = Folder::new();
    let a = folder.write("a.metal", format!("{HEAD}{FILL}"));
    let b = folder.write("b.metal", format!("{HEAD}{TWICE}"));
    let ended = elinvar(&["check", "--emit", "ptx", "--target", "cuda:sm_80", &a, &b]);
    ended.expect(0, &[]);
    let expected =
        [("fill", &a), ("twice", &b)].map(|(name, file)| format!("// kernel {name} ({file}:3), cuda:sm_80"));
    assert_eq!(headings(&ended.stdout, "//"), expected);
    assert_eq!(ended.stdout.matches(".target sm_80").count(), 2, "{}", ended.stdout);
}

#[test]
fn vector_code_is_made_for_the_group_and_the_target_that_are_given() {
    let folder = Folder::new();
    let file = folder.write("fill.metal", format!("{HEAD}{FILL}"));
    let code = |words: &[&str]| {
        let ended = elinvar(&[&["check", "--emit", "vector-ir", &file], words].concat());
        ended.expect(0, &[]);
        ended.stdout
    };
    assert_eq!(code(&[]), code(&["--group", "256"]));
    assert_ne!(code(&[]), code(&["--group", "16,16"]));
    // Only for a GPU do the loop counters of a thread keep their width in the source.
    let loops = "kernel void add(device float* o, constant uint& n, uint i [[thread_position_in_grid]]) {\n  \
                 for (uint k = 0; k < n; ++k) o[k * 3] += i;\n}\n";
    let file = folder.write("loops.metal", format!("{HEAD}{loops}"));
    let of = |target: &str| elinvar(&["check", "--emit", "ir", "--target", target, &file]).stdout;
    assert_ne!(of("cpu").replace("cpu", "T"), of("cuda").replace("cuda:sm_90", "T"));

    let ended = elinvar(&["check", "--emit", "asm", &file, "--group", "2048"]);
    ended.expect(1, &["cannot have threadgroups of 2048x1x1", "1 to 1024 threads"]);
    assert_eq!(ended.stdout, "");
}

#[test]
fn a_kernel_that_is_not_supported_is_an_error_beside_the_code_of_the_others() {
    let folder = Folder::new();
    let file = folder.write("three.metal", format!("{HEAD}{FILL}{TEXTURE}{TWICE}"));
    let why = "kernel `sharpen` takes parameter `t` with `[[texture]]`, which is not supported";
    for (form, comment) in [("ir", ";"), ("vector-ir", ";"), ("ptx", "//")] {
        let ended = elinvar(&["check", "--emit", form, &file]);
        ended.expect(1, &[&format!("{file}:6:"), why]);
        let found = headings(&ended.stdout, comment);
        assert!(found.len() == 2 && found[1].contains("kernel twice"), "{found:?}");
        let ended = elinvar(&["check", "--emit", form, &file, "--kernel", "sharpen"]);
        ended.expect(1, &[why]);
        assert_eq!(ended.stdout, "");
    }
    let ended = elinvar(&["check", "--emit", "ptx", &file, "--kernel", "none"]);
    ended.expect(1, &["no kernel `none` in the source; it has `fill`, `twice`"]);
}

#[test]
fn errors_of_the_source_go_to_standard_error() {
    let folder = Folder::new();
    let wrong =
        folder.write("wrong.metal", format!("{HEAD}kernel void f(device float* o) {{ o[0] = x; }}\n"));
    let right = folder.write("right.metal", format!("{HEAD}{FILL}"));
    for form in ["ir", "vector-ir", "ptx", "asm"] {
        let ended = elinvar(&["check", "--emit", form, &wrong]);
        ended.expect(1, &[&format!("{wrong}:3:"), "use of undeclared identifier 'x'"]);
        assert_eq!(ended.stdout, "", "{form}");
    }
    // The code of the other file is printed.
    let ended = elinvar(&["check", "--emit", "ir", &wrong, &right]);
    ended.expect(1, &[&wrong]);
    assert_eq!(headings(&ended.stdout, ";").len(), 1);
}

#[test]
fn a_function_constant_without_value_is_an_error() {
    let folder = Folder::new();
    let text = "constant float scale [[function_constant(0)]];\n\
                kernel void f(device float* o, uint i [[thread_position_in_grid]]) { o[i] *= scale; }\n";
    let file = folder.write("constant.metal", format!("{HEAD}{text}"));
    let why = "kernel `f` needs a value for function constant `scale` (index 0, float)";
    let ended = elinvar(&["check", "--emit", "ir", &file]);
    ended.expect(1, &[why]);
    assert_eq!(ended.stdout, "");
    let ended = elinvar(&["check", "--emit", "ir", &file, "--constant", "scale=2f32"]);
    ended.expect(0, &[]);
    assert!(ended.stdout.contains("; kernel f ("), "{}", ended.stdout);
}

#[test]
fn wrong_combinations_are_usage_errors() {
    let folder = Folder::new();
    let file = folder.write("fill.metal", format!("{HEAD}{FILL}"));
    for (words, why) in [
        (&["--emit", "ptx", "--target", "cpu"][..], "--emit ptx is for --target cuda, not cpu"),
        (&["--emit", "asm", "--target", "cuda"], "--emit asm is for --target cpu, not cuda:sm_90"),
        (&["--emit", "ir", "--target", "cpu", "--target", "cuda"], "give --target once"),
        (&["--emit", "ir", "--json"], "cannot be used with"),
        (&["--group", "64"], "--emit"),
        (&["--emit", "llvm"], "possible values: ir, vector-ir, ptx, asm"),
    ] {
        let ended = elinvar(&[&["check", &file], words].concat());
        ended.expect(2, &[why]);
        assert_eq!(ended.stdout, "", "{words:?}");
    }
}
