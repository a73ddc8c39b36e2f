//! What is said about wrong sources, and where.

use elinvar_driver::{Diagnostic, Severity, Source};
use elinvar_msl::{Error, Program, Toolchain};

fn compile(source: &Source) -> Result<Program, Error> {
    Program::compile(&Toolchain::find().unwrap(), source)
}

fn errors_of(source: &Source) -> Vec<Diagnostic> {
    match compile(source) {
        Err(Error::Compile(found)) => found,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("compiled"),
    }
}

/// The errors of a source as `file:line:column: message`.
fn places(source: &Source) -> Vec<String> {
    let errors = errors_of(source);
    errors
        .iter()
        .filter(|d| d.severity == Severity::Error)
        .map(|d| format!("{}:{}:{}: {}", d.file, d.line, d.column, d.message))
        .collect()
}

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn msl(text: &str) -> Source {
    Source::msl(format!("{HEAD}{text}"))
}

#[test]
fn undefined_name_syntax_error_and_missing_function() {
    assert_eq!(
        places(&msl("kernel void f(device   float*  out [[buffer(0)]]) {\n\tout[0]  =  missing;\n}\n")),
        ["kernel.metal:4:13: use of undeclared identifier 'missing'"]
    );
    assert_eq!(
        places(&msl("kernel void f(device float* out [[buffer(0)]]) {\n    out[0] = 1.0\n}\n")),
        ["kernel.metal:4:17: expected ';' after expression"]
    );
    assert_eq!(
        places(&msl("float g(float x);\nkernel void f(device float* out) { out[0] = g(1.5); }")),
        ["kernel.metal:3:7: function `g` is declared, and neither the source nor its libraries define it"]
    );
}

#[test]
fn columns_behind_rewritten_tokens_macros_and_comments() {
    let text = "#define TWICE(x) ((x) * 2)\n\
                kernel void f(device const float* a [[buffer(0)]], constant uint& n, uint i [[thread_position_in_grid]]) {\n\
                    /* one */ threadgroup float s[4]; device const float *p = a + 1.5 ; float y = TWICE(a[i]) + oops; }\n";
    let line = text.lines().nth(2).unwrap();
    let column = |needle: &str| line.find(needle).unwrap() + 1;
    let found = places(&msl(text));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with(&format!("kernel.metal:5:{}: ", column("+ 1.5"))), "{}", found[0]);
    assert_eq!(found[1], format!("kernel.metal:5:{}: use of undeclared identifier 'oops'", column("oops")));
    let inside =
        msl("#define BAD(x) ((x) + nowhere)\nkernel void f(device float* a) { a[0] = a[1] * BAD(a[2]); }");
    let column = "kernel void f(device float* a) { a[0] = a[1] * BAD(a[2]); }".find("BAD").unwrap() + 1;
    let found = errors_of(&inside);
    assert_eq!((found[0].line, found[0].message.as_str()), (4, "use of undeclared identifier 'nowhere'"));
    assert!((column..column + 10).contains(&(found[0].column as usize)), "{}", found[0]);
}

#[test]
fn diagnostics_show_the_line_as_written() {
    let found = errors_of(&msl("kernel void f(device float* a) {\n    a[0] = b ;  // comment\n}"));
    assert_eq!(found[0].source_line.as_deref(), Some("    a[0] = b ;  // comment"));
    let shown = "kernel.metal:4:12: error: use of undeclared identifier 'b'\n    4 |     a[0] = b ;  // comment\n      |            ^";
    assert_eq!(found[0].to_string(), shown);
}

#[test]
fn types_are_named_as_in_msl() {
    assert_eq!(
        places(&msl("kernel void f(device float4* a, device half3* b) { a[0] = b[0]; }")),
        ["kernel.metal:3:57: no viable overloaded '='"]
    );
    let found = places(&msl("void g(uint4 v);\nkernel void f(device float3* a) { int x = a[0]; }"));
    assert_eq!(found, ["kernel.metal:4:39: no viable conversion from 'float3' to 'int'"]);
}

/// Names that clang shortens, spells in its own way, or leaves out.
#[test]
fn no_word_of_a_message_is_lost() {
    let text = "#include <metal_simdgroup_matrix>\n\
        typedef float f8 __attribute__((ext_vector_type(8)));\n\
        typedef half h8 __attribute__((ext_vector_type(8)));\n\
        void f(float4 v, bfloat4 b, packed_bfloat4 p, float4x3 m, half4x3 n, f8 w, h8 x, array<float, 4> r,\n\
        \x20      simdgroup_half8x8 s, simdgroup_bfloat8x8 t, device float4x4* d, threadgroup packed_half3* q) {\n\
        float2 a = v.xyz;\n\
        thread float2& c = v.xy;\n\
        v = b;\n\
        m = n;\n\
        f8 e = x;\n\
        s = t;\n\
        int i = p;\n\
        auto g = float(w);\n\
        d = q;\n\
        auto h = as_type<float4>(r) + as_type<float>(m);\n\
        array<int, 4> k = r;\n\
        auto l = as_type<simdgroup_half8x8>(s) + s;\n\
        auto o = static_cast<float4>(b.xy);\n\
        float u __attribute__((ext_vector_type(8))); int y = int(u); auto z = decltype(u)(1l);\n\
        }\n";
    let found = places(&msl(text));
    let lost = [
        "[...]",
        "<...>",
        "''",
        "  ",
        ": from",
        "ext_vector<",
        "matrix<",
        "vec<",
        "__b",
        "_Float16",
        "elinvar",
    ];
    for message in &found {
        assert!(!lost.iter().any(|lost| message.contains(lost)), "{message}");
    }
    let expected = [
        "kernel.metal:8:8: no viable conversion from 'float3' to 'float2'",
        "kernel.metal:9:16: non-const lvalue reference to type 'float2' cannot bind to a temporary of type 'float2'",
        "kernel.metal:10:3: no viable overloaded '='",
        "kernel.metal:11:3: no viable overloaded '='",
        "kernel.metal:12:4: no viable conversion from 'half8' to 'float8'",
        "kernel.metal:13:3: no viable overloaded '='",
        "kernel.metal:14:5: no viable conversion from 'packed_bfloat4' to 'int'",
        "kernel.metal:15:10: cannot convert 'f8' (aka 'float8') to 'float' without a conversion operator",
        "kernel.metal:16:5: incompatible pointer types assigning to 'float4x4 *' from 'packed_half3 *'",
        "kernel.metal:17:31: static assertion failed due to requirement 'sizeof(float) == sizeof(float4x3)': as_type needs two types of the same size",
        "kernel.metal:18:15: no viable conversion from 'array<float, 4>' to 'array<int, 4>'",
        "kernel.metal:19:10: as_type destination type must be trivially copyable",
        "kernel.metal:19:40: invalid operands to binary expression ('simdgroup_half8x8' and 'simdgroup_half8x8')",
        "kernel.metal:20:10: no matching conversion for C-style cast from 'bfloat2' to 'float4'",
        "kernel.metal:21:24: 'ext_vector_type' attribute only applies to typedefs",
        "kernel.metal:21:54: cast from vector 'float __attribute__((ext_vector_type(8)))' (vector of 8 'float' values) to scalar 'int' of different size",
    ];
    assert_eq!(found, expected);
}

#[test]
fn notes_belong_to_their_error() {
    let text = "template <typename T> T half_of(T x) { return x.nothing; }\n\
                kernel void f(device float* a) { a[0] = half_of(a[1]); }";
    let found = errors_of(&msl(text));
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].line, found[0].column), (3, 48));
    assert_eq!(found[0].notes.len(), 1);
    let note = &found[0].notes[0];
    assert_eq!((note.severity, note.line, note.column), (Severity::Note, 4, 41));
    assert!(note.message.contains("half_of<float>"), "{}", note.message);
}

#[test]
fn errors_in_the_headers_point_at_the_call() {
    let text = "kernel void f(device float* a) {\n    a[0] = as_type<float>(a[1] > 0);\n}";
    let found = places(&msl(text));
    assert_eq!(
        found,
        [
            "kernel.metal:4:12: static assertion failed due to requirement 'sizeof(float) == sizeof(bool)': as_type needs two types of the same size"
        ]
    );
}

#[test]
fn files_and_includes_have_their_own_names() {
    let mut source = Source::named("first.metal", HEAD);
    source.files.push(elinvar_driver::SourceFile {
        name: "dir/second \"x\".metal".into(),
        text: "\nkernel void f(device float* a) { a[0] = b; }\n".into(),
    });
    assert_eq!(places(&source), ["dir/second \"x\".metal:2:41: use of undeclared identifier 'b'"]);

    let folder = tempfile::tempdir().unwrap();
    let header = folder.path().join("part.h");
    std::fs::write(&header, "// part\ninline float g(float x) { return x + y; }\n").unwrap();
    let text = format!("{HEAD}#include \"part.h\"\nkernel void f(device float* a) {{ a[0] = g(a[0]); }}");
    let source = Source::msl(text).include_dir(folder.path());
    let found = errors_of(&source);
    assert_eq!((found[0].file.as_str(), found[0].line, found[0].column), (header.to_str().unwrap(), 2, 38));
    assert_eq!(found[0].source_line.as_deref(), Some("inline float g(float x) { return x + y; }"));

    std::fs::write(&header, b"inline float g(float x) { return \"\xff\"[0]; }\n").unwrap();
    let found = errors_of(&source);
    assert_eq!(
        (found[0].file.as_str(), found[0].message.as_str()),
        (header.to_str().unwrap(), "the file is not UTF-8")
    );
}

#[test]
fn missing_include_error_directive_and_defines() {
    assert_eq!(
        places(&Source::msl("\n #include <nothing.h>\n")),
        ["kernel.metal:2:11: 'nothing.h' file not found"]
    );
    assert_eq!(
        places(&Source::msl("#include \"Cargo.toml\"\n")),
        ["kernel.metal:1:10: 'Cargo.toml' file not found"]
    );
    let source = msl("#if N != 3\n#error N is wrong\n#endif\nkernel void f(device int* a) { a[0] = N; }");
    assert_eq!(places(&source), ["kernel.metal:4:2: N is wrong"]);
    assert!(compile(&source.define("N", Some("3"))).is_ok());
}

#[test]
fn what_msl_does_not_have() {
    let found = places(&msl("kernel void f(device float* a) {\n    double x = a[0];\n}"));
    assert_eq!(found, ["kernel.metal:4:5: MSL has no type `double`; use `float`"]);
}

#[test]
fn recursion_is_refused_with_its_line() {
    let text = "int odd(int n);\nint even(int n) { return n == 0 ? 1 : odd(n - 1); }\n\
                int odd(int n) { return n == 0 ? 0 : even(n - 1); }\n\
                template <int N> int sum() { return N + sum<N - 1>(); }\ntemplate <> int sum<0>() { return 0; }\n\
                int fib(int n) { return n <= 1 ? 1 : fib(n - 1) + fib(n - 2); }\n\
                kernel void f(device int* a) { a[0] = fib(a[1]); }\n\
                kernel void deep(device int* a) { a[0] = fib(60); }\n\
                kernel void g(device int* a) { a[0] = sum<5>() + even(a[1]) + fib(9); }";
    let program = compile(&msl(text)).unwrap();
    let ir = program.ir("g").unwrap();
    assert!(!ir.contains("__elinvar_recursion"), "{ir}");
    for kernel in ["f", "deep"] {
        let Err(Error::Compile(found)) = program.ir(kernel) else { panic!("compiled") };
        let message = format!(
            "function `fib` calls itself, to a depth that constants do not limit to 32; such recursion is not supported \
             (kernel `{kernel}`)"
        );
        assert_eq!((found[0].line, found[0].message.as_str()), (8, message.as_str()));
        assert!(found[0].source_line.as_deref().unwrap().starts_with("int fib"));
    }
}

#[test]
fn rules_of_function_constants() {
    assert!(compile(&msl("constant bool fast [[function_constant(0)]];")).is_ok());
    let text = "constant bool a [[function_constant(0)]];\nconstant int b [[function_constant(1 - 1)]];\n\
                constant float2x2 c [[function_constant(1)]];\nconstant uint d [[function_constant(-1)]];";
    assert_eq!(
        places(&msl(text)),
        [
            "kernel.metal:4:14: function constant `b` has index 0, already used by `a`",
            "kernel.metal:5:19: function constant `c` has type `float2x2`; it must be a scalar or a vector",
            "kernel.metal:6:15: function constant `d` has index -1; it must be 0 to 65535",
        ]
    );
    assert_eq!(
        places(&msl("constant bool a [[function_constant(0)]], b;")),
        ["kernel.metal:3:19: a function constant is declared as `constant T name [[function_constant(n)]];`"]
    );
}

#[test]
fn what_is_of_other_libraries_and_versions_is_named() {
    let text = "[[visible]] float f(float x);\nextern float g(float x);\nkernel void k(device float* o) { o[0] = f(1) + g(2); }";
    assert_eq!(
        places(&msl(text)),
        [
            "kernel.metal:3:19: function `f` is declared, and neither the source nor its libraries define it",
            "kernel.metal:4:14: function `g` is declared, and neither the source nor its libraries define it",
        ]
    );
    for (header, reason) in [
        (
            "MetalPerformancePrimitives/MPPTensorOpsConvolution2d.h",
            "of Metal Performance Primitives there are products of matrices, in MetalPerformancePrimitives.h",
        ),
        (
            "MetalPerformanceShaders/MetalPerformanceShaders.h",
            "Metal Performance Shaders are functions of the host; Elinvar calls them as primitives",
        ),
    ] {
        let found = places(&Source::msl(format!("#include <metal_stdlib>\n  #include <{header}>\n")));
        assert_eq!(found, [format!("kernel.metal:2:12: `{header}` is not supported: {reason}")]);
    }
}

#[test]
fn overloads_that_differ_by_address_space_only() {
    let same = "int f(device int* a) { return *a; }\nint f(threadgroup int* a) { return *a; }\n";
    assert!(compile(&msl(same)).unwrap().warnings().is_empty());
    let other = "int f(device int* a) { return 1; }\nint f(threadgroup int* a) { return 2; }\n";
    assert!(compile(&msl(other)).unwrap().warnings().is_empty());
    let text = "struct A { A(device int* a) : x(1) {}\n A(thread int* a) : x(2) {} int x; };";
    assert_eq!(
        places(&msl(text)),
        [
            "kernel.metal:4:2: this and the declaration at kernel.metal:3:12 differ by address spaces, which are not part of types \
          here; give it another name"
        ]
    );
}

#[test]
fn calls_whose_address_space_decides() {
    let text = "struct A { device const int* a; constant int* b; };\n\
        int f(device const int* a) { return 1; }\nint f(constant int* a) { return 2; }\n\
        template <typename T> int g(T p) { return 3; }\nint g(threadgroup int* p) { return 4; }\n\
        kernel void known(device int* o, constant int* c) { threadgroup int t[2]; o[0] = f(o) + f(c) + g(t) + g(1); }\n\
        kernel void unknown(device int* o, constant A& a) { o[0] = f(a.a); }\n\
        kernel void other(device int* o) { o[0] = g(o); }\n";
    let program = compile(&msl(text)).unwrap();
    let ir = program.ir("known").unwrap();
    // 1 + 2 + 4 + 3
    assert!(!ir.contains("address_space") && ir.contains("store i32 10, ptr %0"));
    let error = |kernel: &str| match program.ir(kernel) {
        Err(Error::Compile(found)) => found[0].to_string().lines().next().unwrap_or_default().to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(
        error("unknown"),
        "kernel.metal:4:1: error: this function and that at kernel.metal:5:1 differ only by address spaces, and kernel `unknown` has \
         a call for which the address space is not known at compile time, such as of a pointer that it loads from a buffer; give them \
         different names"
    );
    assert_eq!(
        error("other"),
        "kernel.metal:7:1: error: this overload is chosen for a pointer to `device` memory, where Metal chooses another one, such as \
         that at kernel.metal:6:1; types have no address spaces here; give them different names"
    );
    let names = ["known", "other"];
    let both = program.specialize_all(&names, &[], elinvar_msl::InductionVariables::default());
    assert!(both[0].as_ref().unwrap().ir.contains("store i32 10, ptr %0") && both[1].is_err());
}

#[test]
fn rules_of_kernel_parameters() {
    let cases = [
        (
            "float n",
            "15: parameter `n` of type `float` is passed by value without an attribute; pass a value of the launch as \
             `constant float&`, or give it an attribute such as [[thread_position_in_grid]]",
        ),
        (
            "int i [[thread_position_in_grid]]",
            "23: parameter `i` with `[[thread_position_in_grid]]` has type `int`; it must be uint or ushort, or a \
             vector of 2 or 3 of them",
        ),
        (
            "uint2 i [[thread_index_in_simdgroup]]",
            "25: parameter `i` with `[[thread_index_in_simdgroup]]` has type `uint2`; it must be uint or ushort",
        ),
        ("device int* a [[bufer(0)]]", "31: unknown attribute `bufer` on parameter `a`"),
        ("device int* a [[buffer(31)]]", "31: `[[buffer(31)]]`: the index is 31; it must be 0 to 30"),
        ("device int* a [[buffer(-1)]]", "31: `[[buffer(-1)]]`: the index is -1; it must be 0 to 30"),
        ("device int* a [[buffer]]", "31: `[[buffer]]` needs an index"),
        (
            "device int* a [[buffer(2)]], device int* b [[buffer(2)]]",
            "44: buffer index 2 is used twice in kernel `f`",
        ),
        ("float a [[buffer(0)]]", "25: parameter `a` with `[[buffer]]` must be a pointer or a reference"),
        ("int* a", "15: parameter `a` must point to `device`, `constant` or `threadgroup` memory"),
        (
            "device int* a [[threadgroup(0)]]",
            "31: parameter `a` points to device or constant memory and cannot have `[[threadgroup]]`",
        ),
    ];
    for (param, expected) in cases {
        let found = places(&msl(&format!("kernel void f({param}) {{}}")));
        assert_eq!(found, [format!("kernel.metal:3:{expected}")], "{param}");
    }
    assert_eq!(
        places(&msl("kernel int f(device int* a) { return 1; }")),
        ["kernel.metal:3:12: kernel `f` must return void"]
    );
    assert_eq!(
        places(&msl("[[max_total_threads_per_threadgroup(2048)]] kernel void f(device int* a) {}")),
        ["kernel.metal:3:3: max_total_threads_per_threadgroup is 2048; it must be 1 to 1024"]
    );
    // Indices of arguments without one are within the tables too.
    for (space, table) in [("device", "buffer"), ("threadgroup", "threadgroup")] {
        let args =
            |count: usize| (0..count).map(|k| format!("{space} int* a{k}")).collect::<Vec<_>>().join(",");
        assert!(compile(&msl(&format!("kernel void f({}) {{}}", args(31)))).is_ok());
        let found = places(&msl(&format!("kernel void f({}) {{}}", args(32))));
        let column = format!("kernel void f({},", args(31)).len() + 1;
        let why = format!("no {table} index is left for `a31`: the other arguments have 0 to 30");
        assert_eq!(found, [format!("kernel.metal:3:{column}: {why}")]);
    }
    let found = places(&msl("kernel void f(device int* a [[buffer(NOWHERE)]]) {}"));
    assert_eq!(found, ["kernel.metal:3:38: use of undeclared identifier 'NOWHERE'"]);
}

#[test]
fn several_errors_at_once_and_warnings_kept() {
    let found = places(&msl("kernel void f(device int* a) {\n  a[0] = p;\n  a[1] = q;\n}"));
    assert_eq!(found.len(), 2);
    let program = compile(&msl("kernel void f(device int* a) {\n  int x;\n  a[0] = x;\n}")).unwrap();
    let warning = &program.warnings()[0];
    assert_eq!((warning.severity, warning.line, warning.column), (Severity::Warning, 5, 10));
    assert_eq!(warning.notes.len(), 1, "{warning}");
}

#[test]
fn empty_and_odd_sources() {
    assert!(compile(&Source::default()).unwrap().kernels().is_empty());
    assert!(compile(&Source::msl("")).unwrap().kernels().is_empty());
    assert_eq!(
        places(&msl("int g;\nkernel void g(device int* a) {}")),
        ["kernel.metal:4:13: redefinition of 'g' as different kind of symbol"]
    );
    assert_eq!(places(&Source::msl("}")), ["kernel.metal:1:1: extraneous closing brace ('}')"]);
    assert!(!places(&Source::msl("kernel void f(")).is_empty());
    assert!(compile(&Source::msl("\u{feff}int a;\r\nkernel void f(device int* b) {}\r\n")).is_ok());
    assert!(!places(&Source::msl("int \u{1F600}\u{2028} = \"x")).is_empty());
}

/// The warnings about address spaces as `line:column: message`.
fn spaces(text: &str) -> Vec<String> {
    let program = compile(&msl(text).check_spaces()).unwrap();
    let found = program.warnings().iter().inspect(|d| {
        assert_eq!((d.severity, d.file.as_str()), (Severity::Warning, "kernel.metal"));
        assert!(d.source_line.is_some(), "{d}");
    });
    found.map(|d| format!("{}:{}: {}", d.line, d.column, d.message)).collect()
}

const DIFFER: &str = "the address spaces differ, which is an error in Metal";

#[test]
fn pointers_into_the_wrong_space() {
    let text = "device float* returned(threadgroup float* t) {\n    return t; }\n\
        float take(device float* p) { return *p; }\n\
        template <typename T> T take_any(device T* p) { return *p; }\n\
        struct S { device float* p; };\n\
        kernel void k(device float* a, device S* s, constant float& c, uint i [[thread_position_in_grid]]) {\n\
        \x20   threadgroup float tile[64]; float local[4] = {1};\n\
        \x20   device float* p = &tile[i];\n\
        \x20   p = tile;\n\
        \x20   take(tile);\n\
        \x20   take_any(tile);\n\
        \x20   s->p = tile;\n\
        \x20   thread float* q = a;\n\
        \x20   device const float* d = &c;\n\
        \x20   device float& r = tile[0];\n\
        \x20   device float* e = local;\n\
        \x20   float* f = reinterpret_cast<threadgroup float*>(a);\n\
        \x20   a[i] = p[0] + q[0] + d[0] + r + e[0] + f[0]; }";
    let found = spaces(text);
    let expected = [
        "4:12: cannot initialize return object of type 'device float *' with an lvalue of type 'threadgroup float *'",
        "10:19: cannot initialize a variable of type 'device float *' with an rvalue of type 'threadgroup float *'",
        "11:9: assigning to 'device float *' from incompatible type 'threadgroup float[64]'",
        "12:5: no matching function for call to 'take': no known conversion from 'threadgroup float[64]' to 'device \
         float *' for 1st argument",
        "13:5: no matching function for call to 'take_any': deduced type 'device float *' of 1st parameter does not \
         match adjusted type 'threadgroup float *' of argument [with T = float]",
        "14:12: assigning to 'device float *' from incompatible type 'threadgroup float[64]'",
        "15:19: cannot initialize a variable of type 'float *' with an lvalue of type 'device float *'",
        "16:25: cannot initialize a variable of type 'device float const *' with an rvalue of type 'constant float \
         const *'",
        "17:19: binding reference of type 'device float' to value of type 'threadgroup float' changes address space",
        "18:19: cannot initialize a variable of type 'device float *' with an lvalue of type 'float[4]'",
        "19:16: reinterpret_cast from 'device float *' to 'threadgroup float *' is not allowed",
    ];
    assert_eq!(found, expected.map(|e| format!("{e}; {DIFFER}")));
    // They are warnings of this check only.
    assert!(compile(&msl(text)).unwrap().warnings().is_empty());
}

#[test]
fn casts_into_the_wrong_space() {
    let text = "template <typename T> T first(const device T* p) { return *(thread const T*)p; }\n\
        kernel void k(device float* a, constant uint& n, uint i [[thread_position_in_grid]]) {\n\
        \x20   threadgroup float tile[4]; float own[4] = {1}; ulong bits = 16;\n\
        \x20   float* b = (float*)a;\n\
        \x20   threadgroup uint* c = (threadgroup uint*)a;\n\
        \x20   device uint* d = (device uint*)(tile + 1);\n\
        \x20   constant uchar* e = (constant uchar*)&a[1];\n\
        \x20   auto f = (thread int*)tile;\n\
        \x20   device int* g = (device int*)(a + i); device vec<uint, 2>* h = (device vec<uint, 2>*)a;\n\
        \x20   thread uint* j = (thread uint*)own; constant int* l = (constant int*)&n;\n\
        \x20   device float* m = (device float*)bits; threadgroup half* o = (threadgroup half*)tile;\n\
        \x20   a[i] = b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0].x + j[0] + l[0] + m[0] + o[0] + first(a) + (float)(*a); }";
    let found = spaces(text);
    let cast = |at: &str, from: &str, to: &str| {
        format!("{at}: C-style cast from '{from}' to a pointer to '{to}' memory; {DIFFER}")
    };
    let expected = [
        cast("3:77", "device float const *", "thread"),
        "6:16: a cast to a pointer without an address space, which is an error in Metal".to_owned(),
        cast("7:46", "device float *", "threadgroup"),
        cast("8:36", "threadgroup float *", "device"),
        cast("9:42", "device float *", "constant"),
        cast("10:27", "threadgroup float[4]", "thread"),
    ];
    assert_eq!(found, expected);
    assert!(compile(&msl(text)).unwrap().warnings().is_empty());
}

/// Every spurious error of the check is repeated for each instantiation: of a template for all combinations of arguments only so many
/// are checked that each argument occurs.
#[test]
fn spaces_among_combinations_of_template_arguments() {
    let types = ["float", "half", "bfloat", "int", "uint", "short", "char", "uchar"];
    let mut text = "template <int N> struct Wrong { static void f(device int* d, threadgroup int* t) { t[0] = d[0]; } };\n\
        template <> struct Wrong<7> { static void f(device int* d, threadgroup int* t) { device int* x = t; d[0] = x[0]; } };\n\
        template <typename T, int N, int M> kernel void k(device vec<T, 4>* a, device int* d) {\n\
        \x20   threadgroup int t[4]; Wrong<M>::f(d, t);\n"
        .to_owned();
    for i in 0..20 {
        text += &format!("    vec<T, 4> v{i} = a[{i}] + a[N]; a[M] = v{i};\n");
    }
    text += "}\n";
    for (i, (t, n, m)) in
        types.iter().flat_map(|t| (0..8).flat_map(move |n| (0..8).map(move |m| (t, n, m)))).enumerate()
    {
        text += &format!(
            "template [[host_name(\"k{i}\")]] kernel void k<{t}, {n}, {m}>(device vec<{t}, 4>*, device int*);\n"
        );
    }
    let found = spaces(&text);
    let wrong = "4:94: cannot initialize a variable of type 'device int *' with an lvalue of type 'threadgroup int *'";
    assert_eq!(found, [format!("{wrong}; {DIFFER}")]);
}

#[test]
fn spaces_in_templates_name_the_instantiation() {
    let text = "template <typename T> void inner(threadgroup T* t, device T* d) {\n    device T* x = t;\n    d[0] = x[0]; }\n\
                kernel void k(device float* a) { threadgroup float t[4]; inner(t, a); }";
    let program = compile(&msl(text).check_spaces()).unwrap();
    let [warning] = program.warnings() else { panic!("{:?}", program.warnings()) };
    assert_eq!((warning.line, warning.column), (4, 15));
    assert!(
        warning.notes[0].message.contains("instantiation of function template specialization 'inner<float>'")
    );
    assert_eq!((warning.notes[0].line, warning.notes[0].column), (6, 58));
}

#[test]
fn variables_where_metal_has_none() {
    let text = "float plain = 1;\nconstant float right = 2;\nnamespace n { const int also[2] = {1, 2}; }\n\
                static int* pointer;\nconstexpr constant int C = 3;\ntypedef struct { float x; } X;\n\
                template <typename T> constexpr constant T zero = T(0);\nfloat outside() {\n    threadgroup float t[4];\n    return t[0]; }\n\
                kernel void k(device float* a) { threadgroup float t[C]; { threadgroup X u; u.x = t[1]; }\n\
                auto f = [&](float y) { return y + n::also[1]; };\na[0] = f(right) + plain + outside() + zero<float>; }";
    let scope = "a variable at program scope has no address space; Metal requires `constant`";
    let expected = [
        format!("3:1: {scope}"),
        format!("5:15: {scope}"),
        format!("6:1: {scope}"),
        "11:5: a threadgroup variable outside a kernel function, which is an error in Metal".to_owned(),
    ];
    assert_eq!(spaces(text), expected);
}

/// What Metal takes gives no warning: every way in which pointers, references, vectors, structs with functions and
/// templates meet the address spaces.
#[test]
fn right_use_of_spaces_is_silent() {
    let text = "struct P { int n; float d[4]; float at(int i) const device { return d[i]; } };\n\
        struct V { device float* p; device float& operator[](uint i) const { return p[i]; } };\n\
        float sum(device const float* p) { return *p; }\nfloat sum(threadgroup const float* p) { return *p; }\n\
        float sum(thread const float* p) { return *p; }\nfloat sum(constant float* p) { return *p; }\n\
        template <typename T> T any(T p) { return p; }\n\
        template <typename T> void copy(threadgroup T* t, const device T* d) { t[0] = d[0]; }\n\
        constant float table[4] = {1, 2, 3, 4};\n\
        typedef device float* buffer_t;\n\
        uint length(constant const char* text) { uint n = 0; while (text[n]) ++n; return n; }\n\
        uint literal() { return length(\"words\"); }\n\
        device float* pass(device float* p, bool b) { return b ? p : nullptr; }\n\
        kernel void k(device float* a, device float4* v, constant P& p, device P* s, device atomic_uint* n,\n\
                threadgroup half* h [[threadgroup(0)]], device float* device* list, uint i [[thread_position_in_grid]]) {\n\
            threadgroup float t[64]; threadgroup float4 t4[8]; threadgroup atomic_uint m; float l[4] = {1};\n\
            threadgroup array<float, 4> arr;\n\
            copy(t, a); copy(t4, v);\n\
            t4[1] = v[0] + t4[2] * 2.0f; v[i].xy = t4[0].yx; t4[0][1] = 3;\n\
            device float* x = &v[0].x; device float* y = any(a); buffer_t z = pass(a, true); const device float* w = z;\n\
            threadgroup float* q = (threadgroup float*)t4; threadgroup uint* u = reinterpret_cast<threadgroup uint*>(t);\n\
            constant float* c = table; constant int* pn = &p.n; thread float* lp = &l[1]; float* lq = lp;\n\
            threadgroup float& r = t[1]; const float copied = a[0]; device P& ps = s[1]; V view = {a};\n\
            P own = p; own.n = s->n; arr[0] = 2; list[0] = a; list[0][1] = 2;\n\
            atomic_fetch_add_explicit(n, 1u, memory_order_relaxed); atomic_store_explicit(&m, 1u, memory_order_relaxed);\n\
            simdgroup_float8x8 mat; simdgroup_load(mat, t, 8); simdgroup_store(mat, a, 8);\n\
            auto f = [&](device float* k, threadgroup float* g) { return k[0] + g[0]; };\n\
            view[0] = f(a, t) + sum(a) + sum(t) + sum(l) + sum(table) + ps.at(1) + x[0] + y[0] + w[0] + q[0] + u[0] + c[0]\n\
                + *pn + *lq + r + copied + h[0] + max(a[0], t[0]) + dot(v[0], t4[0]); }";
    assert_eq!(spaces(text), [""; 0]);
}

#[test]
fn initializers_that_would_have_to_run() {
    let text = "static float twice(float x) { return x * 2; }\nconstant float FINE = 3 * 2;\n\
                float other(float x) { return x + float(ulong(&twice)); }\nconstant float4 LATE = float4(other(1.5f));\n\
                kernel void f(device float* out) { out[0] = FINE; }\nkernel void g(device float* out) { out[0] = LATE.x; }";
    let program = compile(&msl(text)).unwrap();
    for kernel in ["f", "g"] {
        match program.ir(kernel) {
            Err(Error::Compile(found)) => {
                assert_eq!((found[0].file.as_str(), found[0].line), ("kernel.metal", 6), "{}", found[0]);
                assert!(found[0].message.contains("not a constant expression"), "{}", found[0]);
                assert!(found[0].source_line.as_deref().is_some_and(|l| l.contains("LATE")), "{}", found[0]);
            }
            other => panic!("{other:?}"),
        }
    }
}

/// As many instantiations as are checked in several processes: what is wrong with any is found, and what is worth
/// a warning is said once.
#[test]
fn among_many_instantiations() {
    let instances = |count: usize| -> String {
        let one = |i: usize| {
            format!("template [[host_name(\"k{i}\")]] kernel void f<{i}>(device int* out [[buffer(0)]]);\n")
        };
        (0..count).map(one).collect()
    };
    let text = |wrong: usize| {
        format!(
            "template <int N> struct S {{ int x; }};\ntemplate <> struct S<{wrong}> {{ int y; }};\n\
             template <int N> kernel void f(device int* out [[buffer(0)]]) {{\n    S<N> s; s.x = N;\n    \
             if (N == 170) out[1] == 3;\n    out[0] = s.x;\n}}\n{}",
            instances(200)
        )
    };
    for wrong in [0, 99, 198] {
        let found = places(&msl(&text(wrong)));
        assert_eq!(
            found,
            [
                format!("kernel.metal:6:15: no member named 'x' in 'S<{wrong}>'"),
                format!("kernel.metal:8:16: no member named 'x' in 'S<{wrong}>'")
            ]
        );
    }
    let right = compile(&msl(&text(1000))).unwrap();
    assert_eq!(right.kernels().len(), 200);
    let warnings: Vec<(u32, &str)> = right.warnings().iter().map(|d| (d.line, d.message.as_str())).collect();
    assert_eq!(warnings, [(7, "equality comparison result unused")]);
}

#[test]
fn an_unterminated_literal_is_one_error_in_the_users_file() {
    for text in [
        "kernel void f(device int* a) { int x = \"abc; a[0] = 1; }",
        "kernel void f(device int* a) { a[0] = 1; }\nconstant char s[] = \"abc",
        "kernel void f(device int* a) { a[0] = 'x; }",
        "kernel void f(device int* a) { a[0] = 1;",
    ] {
        let toolchain = elinvar_msl::Toolchain::find().unwrap();
        let source = elinvar_driver::Source::named("k.metal", text);
        match elinvar_msl::Program::compile(&toolchain, &source) {
            Err(elinvar_msl::Error::Compile(found)) => {
                assert!(found.iter().all(|d| d.file == "k.metal"), "{text}: {found:?}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

/// A keyword that is erased would leave another expression: `a ? : b`.
#[test]
fn keywords_are_no_names() {
    let one = |text: &str| {
        let found = places(&msl(text));
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    let keyword =
        |word: &str| format!("`{word}` is a keyword of MSL, for an address space; it cannot be a name");
    assert_eq!(
        one(
            "kernel void f(device int* out, constant int& a,\n    constant int& thread) { out[0] = a ? thread : 7; }"
        ),
        format!("kernel.metal:4:19: {}", keyword("thread"))
    );
    assert_eq!(
        one("struct S { int device; };\nkernel void f(device S* s) { s->device = 1; }"),
        format!("kernel.metal:3:16: {}", keyword("device"))
    );
    assert_eq!(
        one("template <int ray_data> int g(int a) { return a + ray_data; }"),
        format!("kernel.metal:3:15: {}", keyword("ray_data"))
    );
    assert_eq!(
        one("constant struct { kernel int x; } s = {1};"),
        "kernel.metal:3:19: unknown type name 'kernel'"
    );
    assert_eq!(one("vertex float x = 1;"), "kernel.metal:3:1: unknown type name 'vertex'");
    assert_eq!(one("kernel float x = 1;"), "kernel.metal:3:1: unknown type name 'kernel'");
    assert_eq!(one("[[kernel]] float x = 1;"), "kernel.metal:3:1: `[[kernel]]` belongs to no function");
    // These are no keywords, and are names.
    let text = "kernel void f(device int* kernel, constant int& vertex, constant int& fragment, uint coherent [[thread_position_in_grid]]) {\n\
        int visible = kernel[coherent] ? vertex : fragment; kernel[coherent] = visible; }";
    assert_eq!(compile(&msl(text)).unwrap().kernels().len(), 1);
}

#[test]
fn types_are_not_told_apart_by_address_spaces() {
    let text = "template <class T> struct D { enum { v = 0 }; };\n\
        template <class T> struct D<device T*> { enum { v = 1 }; };\n\
        kernel void f(device int* out) { out[0] = D<threadgroup int*>::v + is_same_v<device int*, threadgroup int*>; }";
    let found = places(&msl(text));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().any(|f| f.starts_with("kernel.metal:4:27: `D<device T*>` is specialized for some")),
        "{found:?}"
    );
    assert!(found.iter().any(|f| f.starts_with("kernel.metal:5:68: `is_same_v` of types")), "{found:?}");
}
