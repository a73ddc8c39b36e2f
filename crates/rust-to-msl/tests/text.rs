//! The text of translations, without a macro: the library is given syntax.

use elinvar_rust_to_msl::{Items, free_names, translate};

fn parse(text: &str) -> syn::ItemFn {
    syn::parse_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The body of the kernel `k` with these statements, without indentation.
fn body(statements: &str) -> String {
    let kernel = parse(&format!(
        "fn k(x: &mut [u32], f: &mut [f32], s: &mut [i32], #[thread_position_in_grid] i: usize) {{ {statements} }}"
    ));
    let translation =
        translate(&kernel, &Items::default()).unwrap_or_else(|errors| panic!("{errors:?}: {statements}"));
    let text = translation.text();
    let start = text.find("[[thread_position_in_grid]]").expect("a parameter");
    let body = &text[start..];
    let lines: Vec<&str> = body.lines().skip(1).map(str::trim).collect();
    lines[..lines.len() - 1].join("\n")
}

fn errors(kernel: &str) -> Vec<String> {
    translate(&parse(kernel), &Items::default())
        .err()
        .unwrap_or_default()
        .into_iter()
        .map(|error| error.message)
        .collect()
}

#[test]
fn arithmetic() {
    assert_eq!(body("x[i] = x[i] * 3 + 1;"), "x[i] = x[i] * 3u + 1u;");
    assert_eq!(body("x[i] += 2;"), "x[i] += 2u;");
    assert_eq!(body("s[i] = s[i] - 1;"), "s[i] = wrapping_sub(s[i], 1);");
    assert_eq!(body("x[i] = x[i] / 4 + x[i] / x[0];"), "x[i] = x[i] / 4u + divide(x[i], x[0u]);");
    assert_eq!(body("x[i] = x[i] << 5;"), "x[i] = x[i] << 5u;");
    assert_eq!(body("s[i] = f[i] as i32;"), "s[i] = saturate_to_int(f[i]);");
    assert_eq!(body("f[i] = f[i].max(0.0).sqrt() * 2.0;"), "f[i] = sqrt(fmax(f[i], 0.0f)) * 2.0f;");
    assert_eq!(
        body("let a = 7u8; x[i] = (a + 1) as u32;"),
        "uchar a = uchar(7);\nx[i] = uint(wrapping_add(a, uchar(1)));"
    );
}

#[test]
fn log_lines() {
    assert_eq!(
        body("printf!(\"{}% {:.2} {:x}\", x[i], f[i], s[0]);"),
        "os_log_default.log(\"%u%% %.2f %x\", x[i], f[i], s[0u]);"
    );
    let of = |statement: &str| {
        errors(&format!("fn k(f: &mut [f32], #[thread_position_in_grid] i: usize) {{ {statement} }}"))
            .join("; ")
    };
    for (statement, expected) in [
        ("printf!(\"{:?}\", f[i]);", "devices do not write `{:?}`: use `{}`, `{:x}`, `{:X}` or `{:.N}`"),
        ("printf!(\"{0}\", f[i]);", "write the values of `printf!` in the order of the format"),
        ("printf!(\"{} {}\", f[i]);", "the format has more places than there are values"),
        ("printf!(\"{}\", f[i], f[0]);", "the format has no place for this value"),
        ("printf!(\"{\", f[i]);", "the braces of the format do not match"),
        ("printf!(\"{:x}\", f[i]);", "`{:x}` is for integers"),
        ("printf!(\"{:.1}\", i);", "`{:.N}` is for floating point"),
        ("printf!(\"{}\", i > 3);", "devices do not print `bool`: print a number, as in `u32::from(b)`"),
        ("printf!(\"{}\", (i, i));", "devices do not print `(usize, usize)`: print its numbers"),
    ] {
        assert_eq!(of(statement), expected, "{statement}");
    }
}

#[test]
fn constant_memory() {
    let kernel = parse(
        "fn k(table: Constant<f32>, out: &mut [f32], #[thread_position_in_grid] i: usize) { out[i] = table[i]; }",
    );
    let text = translate(&kernel, &Items::default()).unwrap_or_else(|errors| panic!("{errors:?}")).text();
    assert!(text.contains("kernel void k(constant float* table [[buffer(0)]],"), "{text}");
    assert_eq!(
        errors("fn k(table: Constant<AtomicU32>) {}"),
        ["atomics are in device memory: write `&[AtomicU32]`"]
    );
    assert_eq!(
        errors("fn k(table: Constant<usize>) {}"),
        ["`usize` has another size on the host: use `u32`"]
    );
}

#[test]
fn literals_are_inferred_from_later_uses() {
    assert_eq!(body("let mut n = 0; n += x[i]; x[i] = n;"), "uint n = 0u;\nn += x[i];\nx[i] = n;");
    assert_eq!(body("let v = 5; s[i] = v;"), "int v = 5;\ns[i] = v;");
}

#[test]
fn statements_in_values() {
    assert_eq!(body("f[i] = if f[i] > 1.0 { 1.0 } else { f[i] };"), "f[i] = f[i] > 1.0f ? 1.0f : f[i];");
    assert_eq!(
        body("x[i] = match x[i] { 0 => 1, 1..=3 | 9 => 2, n if n % 2 == 0 => n, _ => 0 };"),
        "uint matched = x[i];\nuint value;\nuint n = matched;\nif (matched == 0u) {\nvalue = 1u;\n} else if (matched >= 1u && matched <= 3u || matched == 9u) {\n\
         value = 2u;\n} else if (n % 2u == 0u) {\nvalue = n;\n} else {\nvalue = 0u;\n}\nx[i] = value;"
    );
    assert_eq!(
        body("let f2 = |a: u32| a + 1; x[i] = f2(x[i]) * f2(2);"),
        "uint a = x[i];\nuint value = a + 1u;\nuint a_1 = 2u;\nuint value_1 = a_1 + 1u;\nx[i] = value * value_1;"
    );
}

#[test]
fn loops_and_labels() {
    assert_eq!(body("for k in 0..4 { x[k] = 0; }"), "for (uint k = 0u; k < 4u; ++k) {\nx[k] = 0u;\n}");
    assert_eq!(
        body("'a: for k in 0..4 { loop { if x[k] > 3 { continue 'a; } break 'a; } }"),
        "bool break_a = false;\nfor (uint k = 0u; k < 4u; ++k) {\nbool continue_a = false;\nwhile (true) {\nif (x[k] > 3u) {\ncontinue_a = true;\nbreak;\n}\n\
         break_a = true;\nbreak;\n}\nif (break_a) break;\nif (continue_a) continue;\n}"
    );
}

#[test]
fn effects_keep_their_order() {
    assert_eq!(
        body("let mut n = 1u32; x[i] = n + { n += 2; n };"),
        "uint n = 1u;\nuint value = n;\nn += 2u;\nuint value_1 = n;\nx[i] = value + value_1;"
    );
}

#[test]
fn errors_have_spans_and_advice() {
    assert_eq!(
        errors("fn k(x: &mut [f32], n: usize) { x[0] = 1.0; }"),
        [
            "`usize` has another size on the host: take a `u32`, or add the attribute of a position, as in `#[thread_position_in_grid] i: usize`"
        ]
    );
    assert_eq!(
        errors("fn k(x: &mut [f32]) { let v = vec![1.0f32]; x[0] = v[0]; }").len(),
        1,
        "no error that follows"
    );
    assert_eq!(
        errors("fn k(x: &mut [u32]) { fn f(n: u32) -> u32 { f(n) } x[0] = f(1); }"),
        ["`f` calls itself, which devices cannot: use a loop, with an array as the stack"]
    );
    let kernel = parse("fn k(x: &mut [f32]) {\n    x[0] = 1.0;\n    panic!();\n}");
    let errors = translate(&kernel, &Items::default()).expect_err("it panics");
    assert_eq!((errors[0].span.start().line, errors[0].span.start().column), (3, 4));
}

#[test]
fn free_names_are_what_a_macro_asks_for() {
    let item = syn::Item::Fn(parse(
        "fn k(p: &[shapes::Point], n: u32, #[thread_position_in_grid] i: usize) {
            const OWN: u32 = 3;
            fn inner(a: u32) -> u32 { a + OWN + LIMIT }
            let g = |v: f32| math::twist(v) + simd_sum(v);
            let kind = Kind::Round;
            let z = Vec2::new(g(1.0), f32::MAX);
        }",
    ));
    let names: Vec<String> = free_names(&item)
        .iter()
        .map(|path| {
            path.segments.iter().map(|segment| segment.ident.to_string()).collect::<Vec<_>>().join("::")
        })
        .collect();
    assert_eq!(names, ["shapes::Point", "LIMIT", "math::twist", "Kind"]);
}

#[test]
fn lines_name_the_place_in_rust() {
    let kernel = parse("fn k(x: &mut [u32]) {\n    x[0] = 1;\n\n        x[1] = 2;\n}");
    let text = translate(&kernel, &Items::default()).expect("a kernel").text_with_lines("kernel.rs");
    assert!(text.contains("    x[0u] = 1u;\n#line 4 \"kernel.rs\"\n        x[1u] = 2u;"), "{text}");
}
