//! What is malformed or outside the subset is refused with its line and name.

use elinvar_ir::Module;

/// Each line of `body` stands in a function with parameters `%a: i32`, `%p: ptr`, `%x: float`; the first
/// is line 2.
fn in_function(body: &str) -> String {
    format!("define void @f(i32 %a, ptr %p, float %x) {{\n{body}\n  ret void\n}}\n")
}

#[track_caller]
fn refused(text: &str, line: u32, message: &str) {
    match Module::parse(text) {
        Ok(_) => panic!("accepted: {text}"),
        Err(error) => assert_eq!((error.line, error.message.as_str()), (line, message), "{text}"),
    }
}

#[test]
fn at_module_level() {
    let cases = [
        ("module asm \"nop\"", 1, "unsupported `module asm`"),
        ("\n!0 = !name", 2, "expected the content of a metadata node, found the end of the text"),
        ("\n@a = alias i32, ptr @b", 2, "unsupported alias `@a`"),
        ("@i = ifunc void (), ptr @b", 1, "unsupported ifunc `@i`"),
        ("; c\n\nfrobnicate @x", 3, "unknown statement `frobnicate`"),
        ("target endian = \"big\"", 1, "unknown target property `endian`"),
        ("@a = global i32 1, gravity 3", 1, "unknown property `gravity` of a global"),
        ("attributes #0 = { nounwind sparkling }", 1, "unknown attribute `sparkling`"),
        ("%t = type i32", 1, "unsupported alias `%t` of a type that is not a struct"),
        ("%t = type {}\n%t = type {}", 2, "type `%t` is defined twice"),
        ("@a = global x86_fp80 undef", 1, "unsupported type `x86_fp80`"),
        ("@a = global <vscale x 4 x i32> undef", 1, "unsupported scalable vector type"),
        ("@a = global i32* null", 1, "unsupported typed pointer"),
        ("\u{a7}", 1, "unexpected character '\u{a7}'"),
        ("@a = global i8 256", 1, "`256` is not a constant of type `i8`"),
        ("@a = global i8 -129", 1, "`-129` is not a constant of type `i8`"),
        ("@a = global i32 null", 1, "`null` is not a constant of type `i32`"),
        ("@a = global i32 true", 1, "`true` is not a constant of type `i32`"),
        ("@a = global i32 false", 1, "`false` is not a constant of type `i32`"),
        ("@a = global bfloat 0xH3C00", 1, "`0xH3C00` is not a constant of type `bfloat`"),
        ("@a = global half 0xR3F80", 1, "`0xR3F80` is not a constant of type `half`"),
        ("@a = global ptr 1", 1, "`1` is not a constant of type `ptr`"),
        ("@a = global [2 x i8] c\"abc\"", 1, "a string of 3 bytes is not a constant of type `[2 x i8]`"),
        ("@a = global [2 x i8] [i8 1]", 1, "an aggregate is not a constant of type `[2 x i8]`"),
        ("@a = global i64 sub (i64 1, i64 2)", 1, "unsupported constant `sub`"),
        ("@a = global i64 lucky", 1, "unknown constant `lucky`"),
        ("@a = global i32 1, section \"x", 1, "a string without its closing quote"),
        ("declare void @f(i32 shiny)", 1, "unknown parameter attribute `shiny`"),
        ("define void @f() {\n}", 1, "function `@f` has no blocks"),
        ("!0 = !{\n!1", 1, "a bracket without its closing bracket"),
        ("@a = global i32 \u{a7}", 1, "unexpected character '\u{a7}'"),
        ("@\"12\" = global i32 0", 1, "unsupported name `@\"12\"`"),
        ("^0 = module: ()", 1, "unsupported module summary"),
    ];
    for (text, line, message) in cases {
        refused(text, line, message);
    }
}

#[test]
fn in_functions() {
    let cases = [
        ("  invoke void @g() to label %b unwind label %c", "unsupported instruction `invoke`"),
        ("  %r = teleport i32 %a", "unknown instruction `teleport`"),
        ("  %r = va_arg ptr %p, i32", "unsupported instruction `va_arg`"),
        ("  call void asm \"nop\", \"\"()", "unsupported inline assembly"),
        ("  call void @g(metadata i32 %a)", "unsupported metadata of a value"),
        ("  #trace(i32 1)", "unknown record `#trace`"),
        ("  %r = icmp above i32 %a, 1", "unknown predicate `above` of `icmp`"),
        (
            "  %r = atomicrmw fmaximum ptr %p, float %x monotonic",
            "unknown operation `fmaximum` of `atomicrmw`",
        ),
        ("  %r = add exact i32 %a, 1", "expected a type, found `exact`"),
        ("  %r = add i64 %a, 1", "`%a` of type `i32` is used as `i64`"),
        ("  %r = add i32 %missing, 1", "`%missing` is used but not defined"),
        ("  %a = add i32 1, 1", "`%a` is defined twice"),
        ("  %7 = add i32 1, 1\n  %7 = add i32 1, 1", "`%7` is out of order: expected `%8`"),
        ("  br label %nowhere", "block `%nowhere` is used but not defined"),
        ("  br label %a", "value `%a` is used as a block"),
        ("  br i32 %a, label %b, label %c", "a branch on a value of type `i32`"),
        ("  %r = store i32 %a, ptr %p", "`store` has no result to name `%r`"),
        ("  %r = load i32, ptr %p, align 3", "alignment 3 is not a power of two"),
        (
            "  %r = extractvalue [2 x i32] zeroinitializer, 2",
            "the operands of `extractvalue` do not fit its type",
        ),
        (
            "  %r = load atomic i32, ptr %p eventually, align 4",
            "expected a memory ordering, found `eventually`",
        ),
    ];
    for (body, message) in cases {
        let line = if body.contains('\n') { 3 } else { 2 };
        refused(&in_function(body), line, message);
    }
}

#[test]
fn errors_name_the_line() {
    let error = Module::parse("\n\nnonsense").expect_err("refused");
    assert_eq!(error.to_string(), "IR line 3: unknown statement `nonsense`");
}

#[test]
fn deep_nesting_is_an_error() {
    let deep = format!("@a = global {}i8{} zeroinitializer", "[1 x ".repeat(200_000), "]".repeat(200_000));
    refused(&deep, 1, "types or constants nest deeper than 100");
    let node = format!("!0 = {}{}", "!{".repeat(200_000), "}".repeat(200_000));
    assert!(Module::parse(&node).is_ok(), "metadata is text");
}

#[test]
fn constants_at_the_edge_of_their_type_are_taken() {
    for constant in [
        "i8 -128",
        "i8 255",
        "i1 true",
        "i1 false",
        "ptr null",
        "bfloat 0xR3F80",
        "bfloat 1.0",
        "{ i8, i32 } { i8 1, i32 2 }",
        "<{ i8, i32 }> <{ i8 1, i32 2 }>",
        "<2 x i8> <i8 1, i8 2>",
        "half 0xH3C00",
    ] {
        let text = format!("@a = global {constant}\n");
        Module::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
    }
}

#[test]
fn only_an_alignment_has_a_number_behind_it() {
    for (attribute, fits) in [("align 8", true), ("align(8)", true), ("noundef 8", false), ("noundef", true)]
    {
        let text = format!("define void @f(ptr {attribute} %p) {{\n  ret void\n}}\n");
        assert_eq!(Module::parse(&text).is_ok(), fits, "{text}");
    }
}

#[test]
fn an_aggregate_has_the_elements_of_its_type() {
    let constants = [
        "{ i8, i32 } { i8 1, i8 2 }",
        "{ i8, i32 } { i8 1 }",
        "{ i8 } { i8 1, i8 2 }",
        "<2 x i8> <i8 1>",
        "<2 x i8> <i8 1, i16 2>",
        "[2 x i8] [i8 1, i16 2]",
        "[2 x i8] <i8 1, i8 2>",
        "i32 { i32 1 }",
    ];
    for constant in constants {
        assert!(Module::parse(&format!("@a = global {constant}\n")).is_err(), "{constant}");
    }
}
