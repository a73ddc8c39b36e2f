//! Sources: files, macros, included files, declarations and names of kernels.

use elinvar::driver::SourceFile;
use elinvar::{Device, DeviceKind, Error, Grid, MathMode, Source};

use super::{CaseResult, expect_all, run};

cases!("sources": pieces_are_one_text, macros, macros_of_the_math_mode, float_pragmas, included_files, only_the_given_folders,
    forms_of_kernels, implied_indices, guarded_headers, metal_libraries);

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

/// Runs `kernel` over 20 threads; returns the content of its `device uint*`.
fn written(device: &Device, source: &Source, kernel: &str) -> elinvar::Result<Vec<u32>> {
    let kernel = device.compile(source)?.kernel(kernel)?;
    let mut out = device.buffer::<u32>(20)?;
    run(device, &kernel, Grid::threads(20), (&mut out,))?;
    out.to_vec()
}

const WRITE: &str = "kernel void k(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = ";

fn pieces_are_one_text(device: &Device) -> CaseResult {
    let mut source =
        Source::named("types.metal", format!("{HEAD}struct S {{ uint a; }};\n#define TWICE(x) (2 * (x))\n"));
    let mut add = |name: &str, text: String| source.files.push(SourceFile { name: name.into(), text });
    add("functions.metal", "static uint f(S s) { return TWICE(s.a); }".into());
    add("kernel.metal", format!("{WRITE}f(S{{i}}) + __LINE__; }}"));
    expect_all(&written(device, &source, "k")?, |i| 2 * i as u32 + 1);
    source.files[2].text.push_str("\nfloat wrong = missing;");
    let error = device.compile(&source).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("kernel.metal:2:15: error: use of undeclared identifier"), "{error}");
    Ok(())
}

fn macros(device: &Device) -> CaseResult {
    let text = format!(
        "{HEAD}#ifdef EMPTY\n#define A EMPTY + 1\n#endif\n#if VALUE > 3 && !defined(NOT)\n{WRITE}uint(NAME(i)) A; }}\n#endif"
    );
    let source = Source::msl(text)
        .define("EMPTY", Some(""))
        .define("VALUE", Some("4"))
        .define("NAME(x)", Some("((x) * 3)"));
    expect_all(&written(device, &source, "k")?, |i| 3 * i as u32 + 1);
    // A macro without a value is 1.
    let source = Source::msl(format!("{HEAD}{WRITE}FLAG + __METAL__ * 10; }}")).define("FLAG", None);
    expect_all(&written(device, &source, "k")?, |_| 11);
    Ok(())
}

fn macros_of_the_math_mode(device: &Device) -> CaseResult {
    let text = format!(
        "{HEAD}#ifdef __FAST_MATH__\nconstant uint FAST = __FAST_MATH__;\n#else\nconstant uint FAST = 0;\n#endif\n\
         {WRITE}FAST * 1000 + __METAL_MAYBE_FAST_MATH__ * 100 + __METAL_FAST_MATH__ * 10 + __METAL_PRECISE_MATH__; }}"
    );
    for (math, expected) in [(MathMode::Fast, 1110), (MathMode::Relaxed, 10), (MathMode::Safe, 10)] {
        let source = Source::msl(text.clone()).math(math);
        assert_eq!(written(device, &source, "k")?, [expected; 20], "{math:?}");
    }
    Ok(())
}

/// `#pragma METAL fp` for a source, a function and a block in fast math: the error of a sum, which reassociation makes zero, and a product
/// minus its rounding, which contraction makes its error.
fn float_pragmas(device: &Device) -> CaseResult {
    const SUM: &str = "float s = a + b; float t = s - a; out[i] = (a - (s - t)) + (b - t);";
    const PRODUCT: &str = "out[i] = a * b - in[i].z;";
    let head = |name: &str| {
        format!(
            "kernel void {name}(device const float4* in, device float* out, uint i [[thread_position_in_grid]]) {{
            float a = in[i].x, b = in[i].y;"
        )
    };
    let text = format!(
        "{HEAD}
        {function} {{
        #pragma METAL fp math_mode(safe)
        {SUM} }} }}
        template <typename T>
        void add(T a, T b, device T* out, uint i) {{
        #pragma METAL fp math_mode(safe)
            {SUM} }}
        {called} add(a, b, out, i); }}
        {forbidden} {{
        #pragma METAL fp contract(off)
        {PRODUCT} }} }}
        #pragma METAL fp contract(off)
        #pragma METAL fp math_mode(safe)
        {sums} {SUM} }}
        {products} {PRODUCT} }}
        #pragma METAL fp math_mode(relaxed)
        {relaxed} {PRODUCT} }}",
        function = head("function"),
        called = head("called"),
        forbidden = head("forbidden"),
        sums = head("sums"),
        products = head("products"),
        relaxed = head("relaxed"),
    );
    let library = device.compile(Source::msl(text))?;
    let pair = |i: usize| (1.0 + i as f32 * 0.37, 1e-4 * (i as f32 + 1.3));
    let input: Vec<[f32; 4]> = (0..64).map(|i| (i, pair(i))).map(|(_, (a, b))| [a, b, a * b, 0.0]).collect();
    let input = device.buffer_with_data(&input)?;
    for name in ["function", "called", "sums", "forbidden", "products", "relaxed"] {
        let mut out = device.buffer_with_data(&[7_f32; 64])?;
        run(device, &library.kernel(name)?, Grid::threads(64), (&input, &mut out))?;
        let is_sum = matches!(name, "function" | "called" | "sums");
        expect_all(&out.to_vec()?, |i| {
            let (a, b) = pair(i);
            // The sum is exact in f64.
            if is_sum { (f64::from(a) + f64::from(b) - f64::from(a + b)) as f32 } else { 0.0 }
        });
    }
    let wrong = Source::msl(format!("{HEAD}#pragma METAL fp math_mode(quick)\n{WRITE}i; }}"));
    let error = device.compile(wrong).map(drop).unwrap_err().to_string();
    assert!(error.contains("unknown mode `quick` of `math_mode`"), "{error}");
    Ok(())
}

fn included_files(device: &Device) -> CaseResult {
    let (first, second) = (tempfile::tempdir()?, tempfile::tempdir()?);
    std::fs::create_dir(first.path().join("inner"))?;
    let write = |path: std::path::PathBuf, text: &str| std::fs::write(path, text);
    write(
        first.path().join("a.h"),
        "#pragma once\n#include \"inner/b.h\"\nstatic uint a(uint x) { return b(x) + 1; }\n",
    )?;
    // Included files are searched beside the including file, then in the folders in order.
    write(
        first.path().join("inner/b.h"),
        "#pragma once\n#include \"c.h\"\n#include <d.h>\nstatic uint b(uint x) { return C * x + D; }\n",
    )?;
    write(first.path().join("inner/c.h"), "#define C 5\n")?;
    write(second.path().join("c.h"), "#define C 6\n")?;
    write(second.path().join("d.h"), "#define D 100\n")?;
    write(second.path().join("a.h"), "#error \"the second folder comes second\"\n")?;
    let source = Source::msl(format!("{HEAD}#include \"a.h\"\n#include <a.h>\n{WRITE}a(i); }}"));
    let source = source.include_dir(first.path()).include_dir(second.path());
    expect_all(&written(device, &source, "k")?, |i| 5 * i as u32 + 101);
    Ok(())
}

fn only_the_given_folders(device: &Device) -> CaseResult {
    let folder = tempfile::tempdir()?;
    std::fs::write(folder.path().join("outside.h"), "#define OUTSIDE 1\n")?;
    let name = folder.path().file_name().and_then(|n| n.to_str()).unwrap_or_default();
    for file in [
        "outside.h".to_owned(),
        "stdio.h".into(),
        "cstdint".into(),
        "Cargo.toml".into(),
        format!("tmp/{name}/outside.h"),
    ] {
        for include in [format!("\"{file}\""), format!("<{file}>")] {
            let source = Source::msl(format!("{HEAD}#include {include}\n{WRITE}1; }}"));
            let result = device.compile(&source).map(drop);
            match result {
                Err(Error::Compile(found)) => {
                    let first = &found[0];
                    assert_eq!((first.file.as_str(), first.line), ("kernel.metal", 3), "{first}");
                    assert!(first.message.contains(&file), "{first}");
                }
                other => return Err(format!("{include}: {other:?}").into()),
            }
        }
    }
    Ok(())
}

/// All ways to declare and name a kernel, with the output of the kernel of each name.
fn forms_of_kernels(device: &Device) -> CaseResult {
    let text = format!(
        "{HEAD}#define P (device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]])
        kernel void plain P {{ out[i] = 1; }}
        [[kernel]] void brackets P {{ out[i] = 2; }}
        [[host_name(\"renamed\")]] kernel void before P {{ out[i] = 3; }}
        kernel [[host_name(\"between\")]] void middle P {{ out[i] = 4; }}
        [[kernel, host_name(\"listed\")]] void together P {{ out[i] = 5; }}
        extern \"C\" kernel void linked P {{ out[i] = 6; }}
        extern \"C\" {{ kernel void linked_too P {{ out[i] = 7; }} }}
        static kernel void local P {{ out[i] = 8; }}
        namespace a {{ kernel void inside P {{ out[i] = 9; }}
            namespace b {{ template <typename T, int N> kernel void general(device T* out, uint i [[thread_position_in_grid]]) {{ out[i] = T(N); }} }}
            template [[host_name(\"nested\")]] kernel void b::general<uint, 10>(device uint*, uint); }}
        template [[host_name(\"typed\")]] [[kernel]] decltype(a::b::general<uint, 11>) a::b::general<uint, 11>;
        template [[host_name(\"jo\" \"ined\")]] kernel void a::b::general<uint, 12>(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]);
        #define MAKE(n) template [[host_name(\"made_\" #n)]] kernel void a::b::general<uint, n>(device uint*, uint);
        MAKE(13) MAKE(14)
        kernel void declared P;
        kernel void declared P {{ out[i] = 15; }}
        kernel void limited [[max_total_threads_per_threadgroup(16)]] P {{ out[i] = 16; }}
        "
    );
    let source = Source::msl(text);
    let names = [
        "plain",
        "brackets",
        "renamed",
        "between",
        "listed",
        "linked",
        "linked_too",
        "local",
        "inside",
        "nested",
        "typed",
        "joined",
        "made_13",
        "made_14",
        "declared",
        "limited",
    ];
    let library = device.compile(&source)?;
    let known: Vec<&str> = library.kernels().iter().map(|k| k.name.as_str()).collect();
    assert_eq!(known, names);
    for (name, expected) in names.iter().zip(1..) {
        assert_eq!(written(device, &source, name)?, [expected; 20], "{name}");
    }
    assert_eq!(library.kernels()[15].max_threads_per_threadgroup, Some(16));
    Ok(())
}

/// Parameters without an index take the lowest free one, separately for buffers and threadgroup memory.
fn implied_indices(device: &Device) -> CaseResult {
    let text = format!(
        "{HEAD}kernel void k(device uint* a, constant uint& b [[buffer(1)]], uint i [[thread_position_in_grid]], device uint* c,
            device const uint* d [[buffer(0)]], threadgroup uint* e, threadgroup uint* f [[threadgroup(0)]], device uint* g,
            constant uint& h [[buffer(30)]], device uint* j [[buffer(3)]]) {{ a[i] = b; c[i] = d[i]; g[i] = h; j[i] = 1; e[0] = f[0]; }}"
    );
    let library = device.compile(Source::msl(text))?;
    let indices: Vec<(&str, u32)> =
        library.kernels()[0].args.iter().map(|a| (a.name.as_str(), a.index)).collect();
    let expected =
        [("a", 2), ("b", 1), ("c", 4), ("d", 0), ("e", 1), ("f", 0), ("g", 5), ("h", 30), ("j", 3)];
    assert_eq!(indices, expected);
    Ok(())
}

/// A header shared by host and kernel.
fn guarded_headers(device: &Device) -> CaseResult {
    let folder = tempfile::tempdir()?;
    let shared = "#ifndef SHARED_H\n#define SHARED_H\n#ifdef __METAL_VERSION__\n#define CONSTANT constant\n#else\n\
                  #include <stdint.h>\n#define CONSTANT\n#endif\n#include <simd/simd.h>\n\
                  typedef struct { simd_float3 a; vector_uint2 b; uint32_t c; } Shared;\nCONSTANT uint32_t COUNT = 3;\n#endif\n";
    std::fs::write(folder.path().join("shared.h"), shared)?;
    let text = format!("{HEAD}#include \"shared.h\"\n{WRITE}COUNT * i + sizeof(Shared); }}");
    let source = Source::msl(text).include_dir(folder.path());
    expect_all(&written(device, &source, "k")?, |i| 3 * i as u32 + 32);
    Ok(())
}

/// Only Apple GPUs run metal libraries; an invalid library is an error there too.
fn metal_libraries(device: &Device) -> CaseResult {
    let refused = device.compile(Source::metal_library("k.metallib", *b"no library")).map(drop);
    match refused {
        Err(Error::InvalidArgument(text)) if device.kind() == DeviceKind::Metal => {
            assert!(text.contains("`k.metallib`"), "{text}");
        }
        Err(Error::Unsupported(text)) if device.kind() != DeviceKind::Metal => {
            assert!(text.contains("`k.metallib`") && text.contains("Apple GPUs"), "{text}");
        }
        other => panic!("expected an error of its own, got {other:?}"),
    }
    Ok(())
}
