//! What the rewriter makes of texts.

use super::threadgroup::THREADGROUP;
use super::*;

fn body(text: &str) -> String {
    let r = rewrite(text, AddressSpaces::Erased);
    assert!(r.errors.is_empty(), "{:?}", r.errors);
    r.text.text().strip_prefix(BEFORE).unwrap().strip_suffix(AFTER).unwrap().to_owned()
}

#[test]
fn address_spaces_and_literals() {
    assert_eq!(body("constant float K = 1.5;"), "const float K = 1.5f;");
    assert_eq!(body("void f(device int* a, thread float& b);"), "void f( int* a,  float& b);");
    assert_eq!(
        body("x.device + y->kernel + thread_scope::device"),
        "x.device + y->kernel + thread_scope::device"
    );
    let casts = "bfloat b = static_cast<bfloat>(static_cast<device half*>(p)[0]);";
    assert_eq!(body(casts), "bfloat b = elinvar::cast<bfloat>(static_cast< half*>(p)[0]);");
    assert_eq!(body("x = static_cast<int>(y);"), "x = static_cast<int>(y);");
}

#[test]
fn attribute_lists_may_have_blanks_between_their_brackets() {
    let spaced = body(
        "kernel void f(device int* a[ [buffer(2)] ], uint i [\t[thread_position_in_grid]]) { a[i] = 1; }",
    );
    let dense =
        body("kernel void f(device int* a[[buffer(2)]], uint i [[thread_position_in_grid]]) { a[i] = 1; }");
    let words = |text: &str| text.split_whitespace().collect::<String>();
    assert_eq!(words(&spaced), words(&dense));
    assert!(!body("[ [gnu::constructor]] void f();").contains("constructor"));
}

#[test]
fn coherent_objects_are_volatile() {
    assert_eq!(body("coherent(device) device int* p;"), "volatile  int* p;");
    assert_eq!(body("device coherent(system) int* p;"), " volatile int* p;");
    assert_eq!(body("coherent device int* p;"), "volatile  int* p;");
    assert_eq!(body("volatile coherent(system) device uint* p;"), "volatile   uint* p;");
    assert_eq!(body("coherent(system) device const volatile uint* p;"), "  const volatile uint* p;");
    for other in ["int coherent = 1;", "x = coherent(y) + coherent;", "f(coherent);"] {
        assert_eq!(body(other), other);
    }
}

#[test]
fn threadgroup_variables_but_not_pointers() {
    let variable = |text: &str| body(&format!("void f() {{ {text} }}")).contains(THREADGROUP);
    for text in [
        "threadgroup float a[4];",
        "threadgroup vec<float, 4> a, b;",
        "threadgroup alignas(16) char a[4 * 2];",
        "alignas(16) threadgroup char a[4];",
        "int x; threadgroup uint n;",
        "const int y = 1; { threadgroup S s; }",
        "switch (x) { case 1: threadgroup int a; }",
        "switch (x) { default: threadgroup int a; }",
        "threadgroup __attribute__((aligned(16))) float a[4];",
        "__attribute__((aligned(16))) threadgroup float a[4];",
        "threadgroup float a __attribute__((aligned(16)));",
        "threadgroup struct { uint v[2]; } s[64];",
        "threadgroup struct S { uint v; } s;",
        "threadgroup union { uint v; float f; } s, t[2];",
        "threadgroup struct S s;",
        "threadgroup typename T<int>::type a[3];",
        "threadgroup decltype(x) a;",
        "threadgroup uint [[maybe_unused]] a;",
        "threadgroup uint a [[maybe_unused]][4];",
    ] {
        assert!(variable(text), "{text}");
    }
    for text in [
        "threadgroup float* a;",
        "threadgroup const float* a = b;",
        "auto p = (threadgroup float*)q;",
        "g<threadgroup int>(x);",
        "threadgroup S& s = t;",
        "threadgroup int (*p)[4];",
        "switch (x) { case sizeof(threadgroup int*): break; }",
        "alignas threadgroup int a;",
        "threadgroup struct S* s;",
        "threadgroup __attribute__((aligned(16))) float* a;",
    ] {
        assert!(!variable(text), "{text}");
    }
    assert!(!body("struct S { int f() threadgroup { return 1; } };").contains(THREADGROUP));
    let aligned = body("void f() { threadgroup alignas(16) char a[4]; }");
    assert_eq!(aligned, format!("void f() {{  alignas(16) {THREADGROUP} char a[4]; }}"));
}

#[test]
fn threadgroup_variables_at_program_scope_are_errors() {
    for text in ["threadgroup float a[4];", "namespace n { static threadgroup uint a; }"] {
        assert_eq!(rewrite(text, AddressSpaces::Erased).errors.len(), 1, "{text}");
    }
    for text in ["threadgroup float* f(threadgroup float* a) { return a; }", "threadgroup float& g();"] {
        assert_eq!(rewrite(text, AddressSpaces::Erased).errors, [], "{text}");
    }
}

#[test]
fn what_another_namespace_declares_is_not_repeated() {
    let function = "void f(device int* a) { } ";
    for (text, kept) in [
        (format!("{function}namespace n {{ {function}}}"), 2),
        (format!("namespace n {{ {function}}} namespace n {{ {function}}}"), 1),
        (format!("{function}{function}"), 1),
        (format!("namespace n {{ {function}}} {function}"), 2),
    ] {
        assert_eq!(body(&text).matches("void f").count(), kept, "{text}");
    }
}

#[test]
fn members_with_attributes_are_those_of_a_class_with_a_name_outside_of_functions() {
    let attributed = |text: &str| body(text).contains("elinvar_attributed");
    let member = "uint i [[thread_position_in_grid]];";
    assert!(attributed(&format!("struct S {{ {member} }};")));
    assert!(attributed(&format!("namespace n {{ struct A {{ struct B {{ {member} }} b; }}; }}")));
    assert!(!attributed("struct S { uint i; };"));
    for text in [
        format!("void f() {{ struct S {{ {member} }}; }}"),
        format!("template <class T> struct S {{ {member} }};"),
    ] {
        let r = rewrite(&text, AddressSpaces::Erased);
        assert_eq!(r.errors.len(), 1, "{text}");
        assert!(
            r.errors[0].1.contains("`thread_position_in_grid`")
                && !r.text.text().contains("elinvar_attributed")
        );
    }
}

#[test]
fn kernels_and_attributes() {
    let r = rewrite(
        "namespace a { kernel void f(device int* x [[buffer(0)]],\n uint i [[\nid(1)\n]]) {} }",
        AddressSpaces::Erased,
    );
    assert!(
        r.text.text().contains(
            "namespace a { inline __attribute__((always_inline)) void f( int* x  ,\n uint i  \n\n)"
        )
    );
    assert_eq!(r.kernels.len(), 1);
    assert_eq!(r.kernels[0].namespaces, ["a"]);
    let r = rewrite(
        "template<class T> [[kernel]] void f(device T* x [[buffer(3)]]) {}\ntemplate [[host_name(\"g\")]] [[kernel]] void f<int>(device int*);",
        AddressSpaces::Erased,
    );
    let mut kernels = r.kernels.clone();
    assert_eq!(instantiations::complete(&mut kernels, &r.templates, &HashMap::new()), []);
    assert_eq!(kernels[0].name, "g");
    assert_eq!(kernels[0].params[0].name, "x");
    assert_eq!(kernels[0].params[0].attributes[0].argument.as_deref(), Some("3"));
    assert!(r.text.text().contains("ELINVAR_INSTANTIATE     void f<int>( int*);"), "{}", r.text.text());
}

#[test]
fn instantiations_select_by_type() {
    let text = "template <class T> [[kernel]] void f(device T* a [[buffer(2)]]) {}\n\
                template <class T, int N> kernel void f(device T* b, constant T& c) {}\n\
                template <> kernel void f<int>(device int*) {}\n\
                kernel void h(device int*) {} kernel void h(device char*) {} kernel void i(device int*) {}\n\
                template [[host_name(\"a\")]] kernel decltype(f<float, 4>) f<float, 4>;\n\
                template [[host_name(\"b\")]] [[kernel]] void f(\n# 7 \"x\"\ndevice half* x [[buffer(1)]], float = 1.0);";
    let r = rewrite(text, AddressSpaces::Erased);
    assert!(r.errors.is_empty(), "{:?}", r.errors);
    let found: Vec<_> =
        r.kernels.iter().map(|k| (k.callee.as_str(), k.function.as_deref(), &k.candidates[..])).collect();
    let expected = [
        ("h", Some("void(int *)"), &[][..]),
        ("h", Some("void(char *)"), &[]),
        ("i", None, &[]),
        ("f<float, 4>", Some("decltype ( f < float , 4 > )"), &[0, 1, 2]),
        ("f<>", Some("elinvar::type_of<void>(half * x , float = 1.0f)"), &[0, 1, 2]),
    ];
    assert_eq!(found, expected);
    assert!(instantiations::ambiguous(&r.kernels));
    assert!(
        r.text.text().contains("ELINVAR_TEMPLATE(1) void f( int* b")
            || r.text.text().contains("ELINVAR_TEMPLATE(1) void f( T* b")
    );
    let limited: Vec<_> =
        r.templates.iter().filter_map(|t| t.limited.as_ref()).map(|t| t.parameters.as_str()).collect();
    assert_eq!(limited, ["T * a", "T * b , const T & c", "int *"]);

    let mut kernels = r.kernels.clone();
    let errors = instantiations::complete(&mut kernels, &r.templates, &HashMap::from([(3, 1)]));
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(kernels[3].params.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn function_constants() {
    let r = rewrite(
        "namespace a { static constant bool c [[function_constant(2)]]; }\n\
         constant bool d = is_function_constant_defined(a::c) ? a::c : true;\n\
         kernel void f(device int* x [[buffer(0), function_constant(d)]]) {}",
        AddressSpaces::Erased,
    );
    assert!(r.errors.is_empty(), "{:?}", r.errors);
    assert!(r.text.text().contains("{  const bool ELINVAR_CONSTANT_0(c); }"), "{}", r.text.text());
    assert!(r.text.text().contains("const bool d = a::elinvar_defined_c ? a::c : true;"));
    assert_eq!(r.constants[0].path, "a::c");
    assert_eq!(r.kernels[0].params[0].condition().unwrap().argument.as_deref(), Some("d"));
}

#[test]
fn only_names_are_defined_function_constants() {
    let rewritten = |text: &str| rewrite(text, AddressSpaces::Erased).text.text().to_owned();
    let split = rewritten("bool d = is_function_constant_defined(a ::\n b ::\n c);");
    assert!(
        split.contains("a::b::elinvar_defined_c")
            && split.matches('\n').count() == 2 + rewritten("").matches('\n').count(),
        "{split}"
    );
    assert!(rewritten("bool d = is_function_constant_defined(::c);").contains("::elinvar_defined_c"));
    for text in ["V\n-d", "a b", "a::", "", "(a)", "a::b::", "f(a)"] {
        let call = format!("is_function_constant_defined({text})");
        assert!(rewritten(&call).contains(&call), "{text}: {}", rewritten(&call));
    }
}

#[test]
fn specifiers_of_function_constants_in_any_order() {
    for text in [
        "static constant constexpr const bool c [[function_constant(2)]];",
        "constexpr static const constant bool c [[function_constant(2)]];",
        "const constant bool c [[function_constant(2)]];",
        "bool constant static c [[function_constant(2)]];",
    ] {
        let r = rewrite(text, AddressSpaces::Erased);
        assert!(r.errors.is_empty(), "{:?}", r.errors);
        assert_eq!(r.constants.len(), 1, "{text}");
        let left = r.text.text().split_whitespace().any(|word| matches!(word, "static" | "constexpr"));
        assert!(!left, "{}", r.text.text());
    }
}

#[test]
fn names_that_are_no_keywords() {
    for text in [
        "void f(device float* kernel, int n) { kernel[n] = 1; }",
        "constant float kernel[3] = {1, 2, 3};",
        "struct S { device float* kernel; };",
        "int kernel = 3;",
    ] {
        let r = rewrite(text, AddressSpaces::Erased);
        assert!(r.kernels.is_empty() && r.text.text().contains("kernel"), "{text}");
    }
    let r = rewrite("kernel void f(device float* kernel) { *kernel = 1; }", AddressSpaces::Erased);
    assert_eq!((r.kernels.len(), r.kernels[0].params[0].name.as_str()), (1, "kernel"));
}

#[test]
fn what_later_versions_declare() {
    let declared =
        "constexpr constant metal::thread_scope thread_scope_system = static_cast<thread_scope>(3);";
    assert_eq!(body(&format!("namespace metal {{ {declared} int a; }}")), "namespace metal {  int a; }");
    assert!(body(declared).contains("thread_scope_system"));
    assert!(
        body(&format!("namespace metal {{ namespace n {{ {declared} }} }}")).contains("thread_scope_system")
    );
}

#[test]
fn vector_attributes() {
    assert_eq!(
        body("typedef float f8 __attribute__((ext_vector_type(8))); f8 a;"),
        "typedef elinvar::ext_vector<float, 8> f8; f8 a;"
    );
    assert_eq!(
        body("template <class T, int N> struct S<T __attribute__((ext_vector_type(N)))> {};"),
        "template <class T, int N> struct S<elinvar::ext_vector<T, N>> {};"
    );
}

#[test]
fn values_at_program_scope() {
    for (text, of) in [
        ("uint i [[thread_position_in_grid]];", "uint"),
        ("const uint i [[thread_position_in_grid]];", "uint"),
        (
            "constant static const metal::vec<ushort, 2> i [[thread_position_in_grid]];",
            "metal :: vec < ushort , 2 >",
        ),
    ] {
        let expected = format!(
            "static constexpr elinvar::program_value<{of}, elinvar::attribute::thread_position_in_grid> i{{}};"
        );
        assert_eq!(body(text), expected);
    }
    for text in
        ["device float* a [[buffer(0)]];", "uint i [[thread_positions]];", "uint i [[grid_size]] = 3;"]
    {
        let r = rewrite(text, AddressSpaces::Erased);
        assert_eq!(r.errors.len(), 1, "{text}");
    }
}

#[test]
fn what_is_unknown_is_named() {
    let text = "#pragma frobnicate on\n[[kernl]] void f() { [[unrol]] for (;;) {} }\n\
                struct S { int a [[idd(1)]]; int b [[id(2)]]; };\n\
                [[visible]] int g(int a [[whatever]]) { [[function_groups(\"x\")]] return a; }\n\
                #pragma region x\n#pragma mark - y";
    let r = rewrite(text, AddressSpaces::Erased);
    assert!(r.errors.is_empty(), "{:?}", r.errors);
    let warnings: Vec<_> = r.warnings.iter().map(|(_, message)| message.as_str()).collect();
    let expected = [
        "unknown pragma `frobnicate`, which is ignored",
        "unknown attribute `kernl`, which is ignored",
        "unknown attribute `unrol`, which is ignored",
        "unknown attribute `idd` on a member, which is ignored",
    ];
    assert_eq!(warnings, expected);
}

#[test]
fn one_of_each_overload() {
    let text = body("int f(device int* a) { return 1; }\nint f(thread int* a)\n{ return 1; }\nint g;");
    assert_eq!(text, "int f( int* a) { return 1; }\n\n\nint g;");
    let text = body("struct S { public: S() thread = default; S() constant = default; int a; };");
    assert_eq!(text, "struct S { public: S()  = default;  int a; };");
    let text = body("namespace a { void f(device int*) {} } namespace b { void f(thread int*) {} }");
    assert_eq!(text.matches("void f").count(), 2);
}

#[test]
fn overloads_are_dispatched() {
    let text = "int f(device int* a) { return 1; }\nconstexpr int f(thread int* b) { return 2; }\nint f(threadgroup int*) { return 1; }";
    let r = rewrite(text, AddressSpaces::Erased);
    let text = r.text.text();
    let dispatched = "int elinvar_overload_t_f ( int* a); int f( int* a) { if (__elinvar_address_space((const volatile void*)(a), 0, 13) == 8) \
         return elinvar_overload_t_f(a); return 1; }\n int elinvar_overload_t_f( int* b) { return 2; }\n";
    assert!(text.contains(dispatched), "{text}");
    assert!(r.warnings.is_empty() && r.indistinct.is_empty());
    assert_eq!((r.overloads[0].first, r.overloads[0].second), (0, 35));
    for text in [
        "[[kernel]] void k(device int* a) {} [[kernel]] void k(threadgroup int* a) { return; }",
        "template <class T> struct P<device T*> { int x; }; template <class T> struct P<thread T*> { int y; };",
        "struct C { C(device int* a) : x(1) {} C(thread int* a) : x(2) {} int x; };",
        "int f(device int* a, int n = 1) { return n; } int f(thread int* a, int n = 2) { return n; }",
        "int f(device const int* a, int n = 1) { return n; } int f(thread int* a, int n = 2) { return n; }",
        "struct S { int f() const device; int f() const thread { return 1; } };",
        "auto f(device int* a) { return 1; } auto f(thread int* a) { return 2; }",
        "int f(P<device int*> a) { return 1; } int f(P<thread int*> a) { return 2; }",
    ] {
        assert_eq!(rewrite(text, AddressSpaces::Erased).indistinct.len(), 1, "{text}");
        assert!(rewrite(text, AddressSpaces::Annotated).indistinct.is_empty());
    }
}

#[test]
fn refuses_with_a_place() {
    let r = rewrite("int a;\ndouble b;\nconstant bool c [[function_constant(0)]], d;", AddressSpaces::Erased);
    assert_eq!(r.errors.iter().map(|p| p.0).collect::<Vec<_>>(), [7, 35]);
}

/// Found by the fuzzer.
#[test]
fn heads_that_are_none() {
    for text in [
        "(const device T* p, int n = 2) { return p + n; }",
        "<device T> (int a) {}",
        "f(,device int) {} f(,thread int) { ; }",
    ] {
        assert!(rewrite(text, AddressSpaces::Erased).text.text().starts_with(BEFORE), "{text}");
    }
    // A cast among what is taken for parameters of a kernel.
    let text = "template <typename T> kernel void k(device T* a struct S { int x = (const device half*)((b)); } int c) {";
    assert!(rewrite(text, AddressSpaces::Annotated).text.text().contains("(elinvar_pointer_device)((b))"));
}

#[test]
fn every_beginning_of_a_source_is_rewritten() {
    let text = include_str!("../../tests/metal/signatures.metal");
    for end in (0..text.len()).step_by(13) {
        for spaces in [AddressSpaces::Erased, AddressSpaces::Annotated] {
            assert!(rewrite(&text[..end], spaces).text.text().starts_with(BEFORE));
        }
    }
}

#[test]
fn hostile_text_takes_linear_time() {
    for piece in [
        "kernel ",
        "kernel a<",
        "threadgroup ",
        "device ",
        "const ",
        "[[",
        "{",
        "(",
        "template<",
        "[[kernel]] ",
        "struct a { uint b [[grid_size]]; ",
        "struct a { uint b [[grid_size]]; } ",
        "; a ",
    ] {
        let text = piece.repeat(40_000);
        for spaces in [AddressSpaces::Erased, AddressSpaces::Annotated] {
            assert!(rewrite(&text, spaces).text.text().len() > 40_000);
        }
    }
}

#[test]
fn any_text_is_rewritten_and_keeps_its_lines() {
    for text in [
        "kernel",
        "[[kernel",
        "threadgroup",
        "}}}",
        "template<",
        "kernel void f(",
        "[[kernel]]",
        "é \"\n 1.0.0h",
    ] {
        for spaces in [AddressSpaces::Erased, AddressSpaces::Annotated] {
            let r = rewrite(text, spaces);
            let lines = BEFORE.lines().count() + text.matches('\n').count() + 2;
            assert_eq!(r.text.text().matches('\n').count(), lines, "{text}");
        }
    }
}
