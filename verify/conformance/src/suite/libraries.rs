//! Sources with libraries: functions that a source declares and another defines.

use elinvar::{Arg, Device, Error, Grid, Source};

use super::{CaseResult, expect_all, run};

cases!("libraries": functions, arguments_of_every_space, macros_and_constants_of_their_own, libraries_of_libraries, shared_headers,
    tables_of_functions, undefined_functions, defined_twice, compiled_libraries);

const HEAD: &str = "#include <metal_stdlib>\nusing namespace metal;\n";

fn source(name: &str, text: &str) -> Source {
    Source::named(name, format!("{HEAD}{text}"))
}

/// Runs the kernel `k` over 20 threads; returns the content of its `device uint*`.
fn written(device: &Device, source: &Source) -> elinvar::Result<Vec<u32>> {
    let kernel = device.compile(source)?.kernel("k")?;
    let mut out = device.buffer::<u32>(20)?;
    run(device, &kernel, Grid::threads(20), (&mut out,))?;
    out.to_vec()
}

/// Declared with `extern`, with `[[visible]]`, without either, in a namespace, and overloaded.
fn functions(device: &Device) -> CaseResult {
    let library = source(
        "library.metal",
        "static uint hidden(uint x) { return x + 1; }
         uint twice(uint x) { return 2 * x; }
         float twice(float x) { return 2.5f * x; }
         [[visible]] uint thrice(uint x) { return 3 * hidden(x); }
         namespace n { uint square(uint x) { return x * x; } }
         extern \"C\" uint plain(uint x) { return x ^ 5; }",
    );
    let text = "extern uint twice(uint x);
        extern float twice(float);
        [[visible]] uint thrice(uint x);
        namespace n { uint square(uint); }
        extern \"C\" uint plain(uint x);
        kernel void k(device uint* out, uint i [[thread_position_in_grid]]) {
            out[i] = twice(i) + thrice(i) * 100 + n::square(i) * 10000 + uint(twice(float(i))) + plain(i);
        }";
    let out = written(device, &source("kernel.metal", text).with_library(library))?;
    expect_all(&out, |i| {
        let i = i as u32;
        2 * i + 300 * (i + 1) + 10_000 * i * i + (2.5 * i as f32) as u32 + (i ^ 5)
    });
    Ok(())
}

/// Pointers into every address space, references, structs, and a barrier and a simdgroup function in the library.
fn arguments_of_every_space(device: &Device) -> CaseResult {
    let types = "struct Scale { uint factor; uint2 add; };\n";
    let library = source(
        "library.metal",
        &format!(
            "{types}uint scaled(device const uint* x, constant Scale& s, uint i) {{ return x[i] * s.factor + s.add.y; }}
             uint reversed(threadgroup uint* row, uint i, uint n) {{
                 threadgroup_barrier(mem_flags::mem_threadgroup);
                 return row[n - 1 - i];
             }}
             void store(thread uint& to, uint x) {{ to = simd_sum(x); }}"
        ),
    );
    let declared = "struct Scale;
        uint scaled(device const uint* x, constant Scale& s, uint i);
        uint reversed(threadgroup uint* row, uint i, uint n);
        void store(thread uint& to, uint x);
        kernel void k(device uint* out, device const uint* in, constant Scale& s, uint i [[thread_position_in_grid]],
                      uint t [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
            threadgroup uint row[32];
            row[t] = scaled(in, s, i);
            uint sum;
            store(sum, i);
            out[i] = reversed(row, t, n) * 1000 + sum;
        }";
    let kernel = device.compile(source("kernel.metal", declared).with_library(library))?.kernel("k")?;
    let input: Vec<u32> = (0..64).map(|i| i * i % 17).collect();
    let (given, mut out) = (device.buffer_with_data(&input)?, device.buffer::<u32>(64)?);
    let scale = [3_u32, 0, 1, 7];
    let grid = Grid::threads(64).group(32);
    run(device, &kernel, grid, (&mut out, &given, Arg::bytes(bytemuck::cast_slice(&scale))))?;
    expect_all(&out.to_vec()?, |i| {
        let first = i / 32 * 32;
        let sum: usize = (first..first + 32).sum();
        (input[first + 31 - i % 32] * 3 + 7) * 1000 + sum as u32
    });
    Ok(())
}

/// Macros and `define` of a library do not apply to the source, and those of the source not to the library.
fn macros_and_constants_of_their_own(device: &Device) -> CaseResult {
    let library = source(
        "library.metal",
        "#ifdef SIDE\n#error a macro of the source\n#endif\n#define N 4\n#define OTHER(x) (x)\nconstant uint table[N] = {1, 2, 3, 4};
         uint entry(uint i) { return table[OTHER(i) % N] * FACTOR; }",
    );
    let library = library.define("FACTOR", Some("10"));
    let text = "#if defined(OTHER) || FACTOR != 7 || SIDE != 1\n#error macros of the library\n#endif
        #ifndef N\n#define N 2\n#endif
        uint entry(uint i);
        kernel void k(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = entry(i) * N + FACTOR; }";
    let source = source("kernel.metal", text).define("FACTOR", Some("7")).define("SIDE", None);
    expect_all(&written(device, &source.with_library(library))?, |i| (i as u32 % 4 + 1) * 20 + 7);
    Ok(())
}

/// A library needs another, which the source has as well.
fn libraries_of_libraries(device: &Device) -> CaseResult {
    let base = source("base.metal", "uint one(uint x) { return x + 1; }");
    let middle = source("middle.metal", "extern uint one(uint x); uint two(uint x) { return one(one(x)); }");
    let text = "uint one(uint x); uint two(uint x);
        kernel void k(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = one(two(i)) * 2; }";
    let source = source("kernel.metal", text).with_library(middle.with_library(base.clone()));
    expect_all(&written(device, &source.clone().with_library(base))?, |i| 2 * (i as u32 + 3));
    // What a library needs is linked without being named again.
    expect_all(&written(device, &source)?, |i| 2 * (i as u32 + 3));
    Ok(())
}

/// A header that both include, from a folder of the library's.
fn shared_headers(device: &Device) -> CaseResult {
    let folder = tempfile::tempdir()?;
    let header = "#pragma once\n#define LIMIT 3\nstruct Pair { uint a, b; };\nuint total(Pair p);\n";
    std::fs::write(folder.path().join("pair.h"), header)?;
    let library = source(
        "library.metal",
        "#include \"pair.h\"\nuint total(Pair p) { return p.a + (p.b < LIMIT ? p.b : LIMIT); }",
    );
    let text = "#include \"pair.h\"
        kernel void k(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = total(Pair{i, i}) + LIMIT; }";
    let source = source("kernel.metal", text).with_library(library.include_dir(folder.path()));
    expect_all(&written(device, &source)?, |i| i as u32 + (i as u32).min(3) + 3);
    Ok(())
}

/// Visible functions of a library in a table.
fn tables_of_functions(device: &Device) -> CaseResult {
    let library = source(
        "library.metal",
        "[[visible]] uint add(uint x) { return x + 9; }\n[[visible]] uint mul(uint x) { return x * 9; }",
    );
    let text = "[[visible]] uint own(uint x) { return x ^ 1; }
        kernel void k(device uint* out, visible_function_table<uint(uint)> table, uint i [[thread_position_in_grid]]) {
            out[i] = table[i % table.size()](i);
        }";
    let kernel = device.compile(source("kernel.metal", text).with_library(library))?.kernel("k")?;
    let mut out = device.buffer::<u32>(20)?;
    run(device, &kernel, Grid::threads(20), (&mut out, Arg::functions(["mul", "own", "add"])))?;
    expect_all(&out.to_vec()?, |i| {
        let i = i as u32;
        [i * 9, i ^ 1, i + 9][i as usize % 3]
    });
    Ok(())
}

/// A function that no library defines is an error that names it, with the line; another overload is not it.
fn undefined_functions(device: &Device) -> CaseResult {
    let library = source("library.metal", "uint f(uint x) { return x; }");
    let text = "uint f(float x);\nkernel void k(device uint* out, uint i [[thread_position_in_grid]]) {\n  out[i] = f(1.0f);\n}";
    let source = source("kernel.metal", text);
    for source in [source.clone(), source.with_library(library)] {
        let error = device.compile(source).map(drop).unwrap_err();
        let Error::Compile(diagnostics) = &error else { panic!("{error}") };
        let first = &diagnostics[0];
        assert_eq!((first.file.as_str(), first.line), ("kernel.metal", 3), "{error}");
        assert!(first.message.contains("`f` is declared"), "{error}");
    }
    Ok(())
}

/// What two of the sources define is an error with the place of both.
fn defined_twice(device: &Device) -> CaseResult {
    let library = |name: &str| source(name, "uint f(uint x) { return x; }");
    let text = "uint f(uint x);\nkernel void k(device uint* out) { out[0] = f(1); }";
    let source =
        source("kernel.metal", text).with_library(library("a.metal")).with_library(library("b.metal"));
    let error = device.compile(source).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("b.metal:3:6: error: redefinition of 'f'") && error.contains("a.metal:3"),
        "{error}"
    );
    Ok(())
}

fn compiled_libraries(device: &Device) -> CaseResult {
    let source = source("kernel.metal", "").with_library(Source::metal_library("f.metallib", *b"no library"));
    match device.compile(source).map(drop) {
        Err(Error::Unsupported(why)) => assert!(why.contains("`f.metallib` is compiled"), "{why}"),
        other => panic!("expected a refusal, got {other:?}"),
    }
    Ok(())
}
