//! Versions of the Metal Shading Language that kernels need, compared with Apple's specification.

mod common;

use elinvar_analysis::{System, language_violations};

const FLOATS: &str = "device float* x [[buffer(0)]]";

fn found(system: &str, parameters: &str, body: &str) -> Vec<(Option<u32>, String)> {
    let text = format!(
        "#include <metal_stdlib>\n#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>\nusing namespace metal;\n\
         kernel void k({parameters}, uint i [[thread_position_in_grid]]) {{\n{body}\n}}"
    );
    let (module, signature) = common::module(&text, "k");
    let system: System = system.parse().expect("a system");
    let found = language_violations(system, &module, &signature).into_iter();
    found.map(|one| (one.location.map(|place| place.line), one.reason)).collect()
}

/// Each feature is reported for the systems before its first, with line 5, and for no other; code without it is not.
#[test]
fn features_begin_with_the_version_of_the_specification() {
    for (name, [before, first], parameters, body) in [
        ("`bfloat`", ["msl3.0", "msl3.1"], "device bfloat* x [[buffer(0)]]", "x[i] = x[i] * x[i];"),
        ("`bfloat`", ["macos13", "macos14"], FLOATS, "x[i] = float(bfloat(x[i]));"),
        ("`bfloat`", ["ios16", "ios17"], FLOATS, "x[i] = float(bfloat(x[i]));"),
        (
            "floating-point atomics",
            ["msl2.4", "msl3.0"],
            "device atomic_float* x [[buffer(0)]]",
            "atomic_fetch_add_explicit(x, 1.0f, memory_order_relaxed);",
        ),
        (
            "64-bit atomics",
            ["msl2.3", "msl2.4"],
            "device atomic_ulong* x [[buffer(0)]]",
            "atomic_max_explicit(x, ulong(i), memory_order_relaxed);",
        ),
        (
            "SIMD-group matrices",
            ["macos10.15", "macos11"],
            FLOATS,
            "simdgroup_float8x8 a, b, c; simdgroup_load(a, x); simdgroup_load(b, x); simdgroup_multiply(c, a, b); simdgroup_store(c, x);",
        ),
        (
            "SIMD-group and quad-group shift and fill",
            ["ios14", "ios15"],
            FLOATS,
            "x[i] = simd_shuffle_and_fill_up(x[i], 1.0f, ushort(1));",
        ),
        (
            "SIMD-group and quad-group reductions",
            ["macos10.13", "macos10.14"],
            FLOATS,
            "x[i] = simd_sum(x[i]);",
        ),
        ("SIMD-group and quad-group reductions", ["ios13", "ios14"], FLOATS, "x[i] = quad_sum(x[i]);"),
        ("SIMD-group and quad-group reductions", ["msl2.2", "msl2.3"], FLOATS, "x[i] = simd_sum(x[i]);"),
        (
            "SIMD-group permute functions",
            ["ios12", "ios13"],
            FLOATS,
            "x[i] = simd_shuffle_xor(x[i], ushort(1));",
        ),
        (
            "SIMD-group and quad-group votes and first lanes",
            ["macos10.13", "macos10.14"],
            FLOATS,
            "x[i] = simd_any(x[i] > 1) ? 1 : 0;",
        ),
        (
            "SIMD-group and quad-group rotations",
            ["macos10.13", "macos10.14"],
            FLOATS,
            "x[i] = simd_shuffle_rotate_up(x[i], ushort(1));",
        ),
        (
            "`atomic_thread_fence`",
            ["macos14", "macos15"],
            FLOATS,
            "x[i] = 1; atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst); x[i + 1] = 2;",
        ),
        ("logging", ["ios17", "ios18"], FLOATS, "os_log_default.log(\"%d\", i); x[i] = 1;"),
    ] {
        let early = found(before, parameters, body);
        let [(line, reason)] = &early[..] else { panic!("{name} on {before}: {early:?}") };
        assert!(reason.starts_with(&format!("{name}: from MSL ")) && reason.contains(before), "{reason}");
        assert_eq!(*line, Some(5), "{reason}");
        assert_eq!(found(first, parameters, body), [], "{name} on {first}");
    }
}

/// Whatever code they become, and each once: tiles that `wgmma` has and others, the products of a thread, tensors without a product.
#[test]
fn tensors_need_metal_4() {
    let parameters =
        "device half* a [[buffer(0)]], device half* b [[buffer(1)]], device float* c [[buffer(2)]]";
    let tensors = "auto l = tensor(a, dextents<int, 2>(64, 128)); auto r = tensor(b, dextents<int, 2>(256, 64)); auto x = tensor(c, dextents<int, 2>(256, 128));";
    let product = |rows: u32, columns: u32, scope: &str| {
        format!(
            "{tensors} mpp::tensor_ops::matmul2d<mpp::tensor_ops::matmul2d_descriptor({rows}, {columns}), {scope}> op; op.run(l, r, x);"
        )
    };
    for body in [
        product(128, 256, "execution_simdgroups<8>"),
        product(32, 32, "execution_simdgroups<4>"),
        product(16, 24, "execution_simdgroup"),
        product(8, 8, "execution_thread"),
        format!("{tensors} x[array<int, 2>{{int(i), 0}}] = float(l[array<int, 2>{{0, int(i)}}]);"),
    ] {
        for (before, first) in [("msl3.2", "msl4.0"), ("macos15", "macos26"), ("ios18", "ios26")] {
            let early = found(before, parameters, &body);
            let [(Some(5), reason)] = &early[..] else { panic!("{body} on {before}: {early:?}") };
            assert!(reason.starts_with("tensor operations: from MSL 4.0 on"), "{reason}");
            assert!(reason.contains(before), "{reason}");
            assert_eq!(found(first, parameters, &body), [], "{body} on {first}");
        }
    }
}

/// A parameter alone needs the version of its type.
#[test]
fn parameters_count() {
    const UNUSED: &str = "if (i == 0) return;";
    for (name, [before, first], parameters) in [
        ("`bfloat`", ["msl3.0", "msl3.1"], "device const bfloat4* x [[buffer(0)]]"),
        ("floating-point atomics", ["macos12", "macos13"], "device atomic_float* x [[buffer(0)]]"),
        ("64-bit atomics", ["macos11", "macos12"], "device atomic_ulong* x [[buffer(0)]]"),
        ("`atomic_bool`", ["ios14", "ios15"], "device atomic_bool* x [[buffer(0)]]"),
        (
            "`visible_function_table`",
            ["macos10.15", "macos11"],
            "visible_function_table<float(float)> x [[buffer(0)]]",
        ),
    ] {
        let early = found(before, parameters, UNUSED);
        let [(None, reason)] = &early[..] else { panic!("{name} on {before}: {early:?}") };
        assert!(reason.starts_with(&format!("{name}: from MSL ")), "{reason}");
        assert_eq!(found(first, parameters, UNUSED), [], "{name} on {first}");
    }
}

/// What all versions have is reported on none.
#[test]
fn plain_kernels_run_everywhere() {
    for body in [
        "x[i] = sqrt(x[i]) + float(half(x[i]));",
        "threadgroup float t[32]; t[i % 32] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = t[(i + 1) % 32];",
        "threadgroup atomic_uint n; atomic_fetch_add_explicit(&n, 1u, memory_order_relaxed); x[i] = float(i);",
        "x[i] = quad_shuffle_xor(x[i], ushort(1));",
    ] {
        for system in ["msl2.0", "macos10.13", "ios11"] {
            assert_eq!(found(system, FLOATS, body), [], "{body} on {system}");
        }
    }
}
