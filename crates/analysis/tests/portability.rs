//! Limits and features by GPU family, compared with Apple's Metal Feature Set Tables of October 20, 2025.

mod common;

use elinvar_analysis::{AppleFamily, violations};

fn families() -> impl Iterator<Item = (u32, AppleFamily)> {
    (2..=10).map(|number| (number, format!("apple{number}").parse().expect("a family")))
}

fn reasons(family: AppleFamily, parameters: &str, body: &str) -> Vec<String> {
    let text = format!(
        "#include <metal_stdlib>\nusing namespace metal;\nkernel void k({parameters}, uint i [[thread_position_in_grid]]) {{ {body} }}"
    );
    let (module, signature) = common::module(&text, "k");
    violations(family, &module, &signature).into_iter().map(|violation| violation.reason).collect()
}

/// "Metal feature availability by GPU family": the first family of a feature.
#[test]
fn features_begin_with_the_family_of_the_tables() {
    const FLOATS: &str = "device float* x [[buffer(0)]]";
    for (first, name, parameters, body) in [
        (2, "no feature", FLOATS, "x[i] += 1.0f; simdgroup_barrier(mem_flags::mem_none);"),
        (4, "quad-group permute operations", FLOATS, "x[i] = quad_shuffle_xor(x[i], ushort(1));"),
        (6, "SIMD-group permute operations", FLOATS, "x[i] = simd_shuffle_xor(x[i], ushort(1));"),
        (6, "`bfloat`", "device bfloat* x [[buffer(0)]]", "x[i] = x[i] * x[i];"),
        (7, "quad-group reductions", FLOATS, "x[i] = quad_sum(x[i]);"),
        (7, "SIMD-group reductions", FLOATS, "x[i] = simd_sum(x[i]);"),
        (7, "SIMD-group reductions", FLOATS, "x[i] = simd_prefix_inclusive_sum(x[i]);"),
        (
            7,
            "SIMD-group matrix operations",
            FLOATS,
            "simdgroup_float8x8 a, b, c; simdgroup_load(a, x); simdgroup_load(b, x); simdgroup_multiply(c, a, b); simdgroup_store(c, x);",
        ),
        (
            7,
            "floating-point atomics",
            "device atomic_float* x [[buffer(0)]]",
            "atomic_fetch_add_explicit(x, 1.0f, memory_order_relaxed);",
        ),
        (8, "SIMD-group shift and fill", FLOATS, "x[i] = simd_shuffle_and_fill_up(x[i], 1.0f, ushort(1));"),
        (
            9,
            "64-bit atomics",
            "device atomic_ulong* x [[buffer(0)]]",
            "atomic_max_explicit(x, ulong(i), memory_order_relaxed);",
        ),
    ] {
        for (number, family) in families() {
            let found = reasons(family, parameters, body);
            let is_named = found.iter().any(|reason| {
                reason.starts_with(name) && reason.contains(&format!("apple{first} on, not {family}"))
            });
            assert_eq!(is_named, number < first, "{name} on {family}: {found:?}");
            assert!(is_named || found.is_empty(), "{name} on {family}: {found:?}");
        }
    }
}

/// "GPU implementation limits by family": maximum threads per threadgroup, maximum total threadgroup memory allocation.
#[test]
fn limits_are_those_of_the_tables() {
    for (number, family) in families() {
        let threads = if number < 4 { 512 } else { 1024 };
        let bytes = match number {
            2 => 16_352,
            3 => 16 << 10,
            _ => 32 << 10,
        };
        assert_eq!((family.max_threads(), family.threadgroup_bytes()), (threads, bytes), "{family}");
        for (size, fits) in [(bytes / 4, true), (bytes / 4 + 1, false)] {
            let body = format!(
                "threadgroup float t[{size}]; t[i % {size}] = x[i]; threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = t[i / 2];"
            );
            let found = reasons(family, "device float* x [[buffer(0)]]", &body);
            assert_eq!(found.is_empty(), fits, "{size} floats on {family}: {found:?}");
        }
    }
    assert!("apple1".parse::<AppleFamily>().is_err() && "apple11".parse::<AppleFamily>().is_err());
}

/// Variables and the least that arguments have, by 16 bytes, count together.
#[test]
fn arguments_of_threadgroup_memory_count() {
    const ARGS: &str = "device float* x [[buffer(0)]], threadgroup float4* a [[threadgroup(0)]], threadgroup float* b [[threadgroup(1)]]";
    let body = |floats: u32, use_b: bool| {
        let b = if use_b { "b[i] = 1; x[i + 1] = b[i];" } else { "" };
        format!(
            "threadgroup float t[{floats}]; t[i] = x[i]; a[i] = t[i]; {b} threadgroup_barrier(mem_flags::mem_threadgroup); x[i] = a[i ^ 1].x + t[i ^ 1];"
        )
    };
    for (floats, use_b, reason) in [
        (8184, true, None),
        (8188, false, None),
        (
            8185,
            true,
            Some("32752 bytes of threadgroup memory and at least 32 of its arguments, 32768 at most"),
        ),
        (
            8189,
            false,
            Some("32768 bytes of threadgroup memory and at least 16 of its argument, 32768 at most"),
        ),
        (8193, true, Some("32784 bytes of threadgroup memory, 32768 at most")),
    ] {
        let found = reasons(AppleFamily::M1, ARGS, &body(floats, use_b));
        let expected: Vec<String> =
            reason.map(|why| format!("{why} (GPU family apple7)")).into_iter().collect();
        assert_eq!(found, expected, "{floats} floats, {use_b}");
    }
}

/// Metal Shading Language Specification, "Atomic Modify Functions (64 Bits)": minimum and maximum of `atomic_ulong`.
#[test]
fn other_64_bit_atomics_are_on_no_family() {
    for (ty, call, has) in [
        ("ulong", "atomic_max_explicit(x, ulong(i), memory_order_relaxed);", true),
        ("ulong", "atomic_min_explicit(x, ulong(i), memory_order_relaxed);", true),
        ("ulong", "atomic_fetch_add_explicit(x, ulong(i), memory_order_relaxed);", false),
        ("ulong", "atomic_exchange_explicit(x, ulong(i), memory_order_relaxed);", false),
        ("long", "atomic_fetch_max_explicit(x, long(i), memory_order_relaxed);", false),
        (
            "ulong",
            "ulong e = 0; atomic_compare_exchange_weak_explicit(x, &e, 1ul, memory_order_relaxed, memory_order_relaxed);",
            false,
        ),
    ] {
        for number in [8, 9, 10] {
            let family: AppleFamily = format!("apple{number}").parse().expect("a family");
            let found = reasons(family, &format!("device atomic<{ty}>* x [[buffer(0)]]"), call);
            match (has, number) {
                (true, 9..) => assert!(found.is_empty(), "{call} on {family}: {found:?}"),
                (true, _) => {
                    assert!(found[0].contains("from GPU family apple9 on"), "{call} on {family}: {found:?}")
                }
                (false, _) => assert_eq!(
                    found,
                    ["64-bit atomics: Metal has minimum and maximum of `atomic_ulong`, and no others"],
                    "{call} on {family}"
                ),
            }
        }
    }
}
