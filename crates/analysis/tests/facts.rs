//! What the analysis says of kernels whose facts are known by reading them.

mod common;

use common::{analyzed, module};
use elinvar_analysis::{Access, Analysis, Class, Kind, Space, Trips};

fn analysis(source: &str, kernel: &str) -> Analysis {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{source}");
    let (module, signature) = module(&text, kernel);
    analyzed(&module, &signature)
}

fn of<'a>(analysis: &'a Analysis, object: &str, kind: Kind) -> &'a Access {
    let mut found =
        analysis.accesses.iter().filter(|a| a.object.as_deref() == Some(object) && a.kind == kind);
    found.next().unwrap_or_else(|| panic!("no {kind:?} of {object} in {:#?}", analysis.accesses))
}

#[test]
fn classes_strides_and_transactions() {
    let analysis = analysis(
        "struct Parameters { uint offset; uint pitch; };
         kernel void k(device const float* same [[buffer(0)]], device const float4* wide [[buffer(1)]],
                       device const float* odd [[buffer(2)]], device const float* rows [[buffer(3)]],
                       device const uint* index [[buffer(4)]], device const float* table [[buffer(5)]],
                       device const float* thirds [[buffer(6)]], device float* out [[buffer(7)]],
                       constant Parameters& p [[buffer(8)]], device const uchar* small [[buffer(9)]],
                       uint id [[thread_position_in_grid]]) {
             float sum = same[p.offset] + wide[id].x + odd[id * 3 + 1] + rows[id * p.pitch] + table[index[id]]
                       + thirds[id / 3] + small[id];
             out[1000 - id] = sum;
         }",
        "k",
    );
    use Class::{Broadcast, Computed, Contiguous, Gather, Strided};
    for (object, class, stride, formula, bytes, sectors) in [
        ("same", Broadcast, Some(0), Some("0"), 4, Some(1)),
        ("odd", Strided, Some(12), Some("12"), 4, Some(12)),
        ("rows", Strided, None, Some("4*p[4]"), 4, Some(32)),
        ("index", Contiguous, Some(4), Some("4"), 4, Some(4)),
        ("table", Gather, None, None, 4, Some(32)),
        ("thirds", Computed, None, None, 4, None),
        ("small", Contiguous, Some(1), Some("1"), 1, Some(1)),
    ] {
        let access = of(&analysis, object, Kind::Load);
        let found = (
            access.class,
            access.lane_stride_bytes,
            access.lane_stride.as_deref(),
            access.bytes,
            access.sectors,
        );
        assert_eq!(found, (class, stride, formula, bytes, sectors), "{object}");
        assert_eq!(access.space, Space::Device);
        let location = access.location.as_ref().expect("a location");
        assert_eq!((location.file.as_str(), location.line >= 10), ("k.metal", true), "{location}");
    }
    let wide = of(&analysis, "wide", Kind::Load);
    assert_eq!(wide.lane_stride_bytes, Some(16), "one component of each vector");
    let out = of(&analysis, "out", Kind::Store);
    assert_eq!((out.class, out.lane_stride_bytes), (Contiguous, Some(-4)));
    assert_eq!(out.offset.as_deref(), Some("-4*thread.x - 4*group.x*group_size.x + 4000"));
    assert_eq!(of(&analysis, "p", Kind::Load).space, Space::Constant);
    assert_eq!(analysis.scalars, ["p"]);
    assert!(analysis.divergent_branches.is_empty() && analysis.loops.is_empty());
}

#[test]
fn trip_counts() {
    let analysis = analysis(
        "kernel void k(device float* a [[buffer(0)]], constant uint& n [[buffer(1)]], device const uint* list [[buffer(2)]],
                       uint id [[thread_position_in_grid]], uint size [[threads_per_grid]]) {
             float sum = 0;
             #pragma unroll 1
             for (uint i = 0; i < 1000; i += 3) sum += a[i];
             #pragma unroll 1
             for (uint i = 0; i < n; ++i) sum += a[i + 1];
             #pragma unroll 1
             for (uint i = id; i < n; i += size) sum += a[i + 2];
             #pragma unroll 1
             for (uint i = id; list[i] != 0; i = list[i]) sum += a[i + 3];
             a[id] = sum;
         }",
        "k",
    );
    let trips: Vec<&Trips> = analysis.loops.iter().map(|l| &l.trips).collect();
    let [Trips::Constant(334), Trips::Uniform(uniform), Trips::Varying(varying), Trips::Unknown] = trips[..]
    else {
        panic!("{trips:?}");
    };
    assert_eq!(uniform, "n");
    assert_eq!(varying, "ceil((-thread.x - group.x*group_size.x + n)/(grid.x))");
    let lines: Vec<u32> = analysis.loops.iter().map(|l| l.location.as_ref().expect("a line").line).collect();
    assert!(lines.windows(2).all(|pair| pair[0] < pair[1]), "{lines:?}");
}

#[test]
fn threadgroup_memory_and_its_banks() {
    let source = |pad: &str| {
        format!(
            "kernel void k(device float* out [[buffer(0)]], uint2 l [[thread_position_in_threadgroup]],
                           uint2 at [[thread_position_in_grid]]) {{
                 threadgroup float tile[32][32{pad}];
                 tile[l.y][l.x] = out[at.x];
                 threadgroup_barrier(mem_flags::mem_threadgroup);
                 out[at.x] = tile[l.x][l.y];
             }}"
        )
    };
    for (pad, conflicts, bytes) in [("", 32.0, 4096), (" + 1", 1.0, 4224)] {
        let analysis = analysis(&source(pad), "k");
        let tile = |kind| of(&analysis, "tile", kind);
        assert_eq!(tile(Kind::Store).bank_conflicts, Some(1.0));
        assert_eq!(tile(Kind::Load).bank_conflicts, Some(conflicts));
        assert_eq!(tile(Kind::Load).sectors, None);
        assert_eq!((analysis.threadgroup_bytes, analysis.barriers.len()), (bytes, 1));
        assert_eq!(analysis.barriers[0].as_ref().map(|l| l.line), Some(7));
    }
}

#[test]
fn operations_by_type() {
    let analysis = analysis(
        "kernel void k(device float* a [[buffer(0)]], device half2* h [[buffer(1)]], device int* i [[buffer(2)]],
                       uint id [[thread_position_in_grid]]) {
             a[id] = sqrt(a[id]) + fma(a[id], 2.0f, 1.0f);
             h[id] = h[id] * h[id];
             i[id] = i[id] * 3 ^ 5;
             a[id] += simd_sum(a[id]);
         }",
        "k",
    );
    let operations = analysis.operations;
    assert_eq!((operations.f32, operations.f16, operations.functions), (4.0, 2.0, 1.0), "{operations:?}");
    assert_eq!(operations.simdgroup, 1.0);
    assert!(operations.integer >= 2.0, "{operations:?}");
}

#[test]
fn divergence_is_of_lanes() {
    let analysis = analysis(
        "kernel void k(device float* a [[buffer(0)]], constant uint& n [[buffer(1)]], uint id [[thread_position_in_grid]],
                       uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
             if (n > 3) { a[n] = 1; }
             if (simdgroup == 0) { a[n + 1] = 1; }
             if (lane < 7) { a[n + 2] = 1; }
             if (a[id] > 0.0f) { a[n + 3] = sqrt(a[id]); }
         }",
        "k",
    );
    let divergent: Vec<(u32, bool)> = analysis
        .divergent_branches
        .iter()
        .map(|b| (b.location.as_ref().expect("a line").line - 2, b.by_data))
        .collect();
    assert_eq!(divergent, [(5, false), (6, true)]);
    assert_eq!(analysis.divergent_branches[1].operations.functions, 1.0);
}

#[test]
fn atomics_and_their_addresses() {
    let analysis = analysis(
        "kernel void k(device atomic_uint* one [[buffer(0)]], device atomic_uint* bins [[buffer(1)]],
                       device const uchar* data [[buffer(2)]], device atomic_uint* own [[buffer(3)]],
                       uint id [[thread_position_in_grid]]) {
             atomic_fetch_add_explicit(one, 1u, memory_order_relaxed);
             atomic_fetch_add_explicit(&bins[data[id]], 1u, memory_order_relaxed);
             atomic_fetch_add_explicit(&own[id], 1u, memory_order_relaxed);
         }",
        "k",
    );
    let classes: Vec<Class> = ["one", "bins", "own"].map(|o| of(&analysis, o, Kind::Atomic).class).to_vec();
    assert_eq!(classes, [Class::Broadcast, Class::Gather, Class::Contiguous]);
}

/// Bad accesses, and their mended twins, of which nothing is said.
#[test]
fn findings_are_not_made_of_what_is_right() {
    let findings = |parameters: &str, body: &str| -> Vec<String> {
        let source = format!(
            "struct P {{ packed_float3 at; float w; }};
             kernel void k(device float* o [[buffer(0)]], device const float* a [[buffer(1)]], {parameters}
                           uint id [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {{ {body} }}"
        );
        analysis(&source, "k").findings().into_iter().map(|finding| finding.rule.name().to_owned()).collect()
    };
    let n = "constant uint& n [[buffer(2)]],";
    let records = "device const P* p [[buffer(2)]],";
    let atomic = "device atomic_uint* c [[buffer(2)]],";
    let tile = |width: u32| {
        format!(
            "threadgroup float t[32 * {width}]; t[id % 32] = a[id]; threadgroup_barrier(mem_flags::mem_threadgroup); o[id] = t[lane * {width}];"
        )
    };
    for (what, parameters, bad, good) in [
        ("uncoalesced", n, "o[id] = a[id * n];".to_owned(), "o[id] = a[id + n];".to_owned()),
        ("uncoalesced", n, "o[id] = a[id * 8];".to_owned(), "o[id] = a[id];".to_owned()),
        // One field of a structure, and all.
        (
            "uncoalesced",
            records,
            "o[id] = p[id].w;".to_owned(),
            "o[id] = p[id].w + p[id].at.x + p[id].at.y + p[id].at.z;".to_owned(),
        ),
        ("bank-conflicts", n, tile(32), tile(33)),
        (
            "contended-atomic",
            atomic,
            "atomic_fetch_add_explicit(c, 1u, memory_order_relaxed);".to_owned(),
            "uint sum = simd_sum(1u); if (lane == 0) atomic_fetch_add_explicit(c, sum, memory_order_relaxed);".to_owned(),
        ),
        (
            "divergent-branch",
            n,
            "if (a[id] > 0.0f) o[id] = exp(a[id]);".to_owned(),
            "if (n > 3) o[id] = exp(a[id]);".to_owned(),
        ),
    ] {
        assert_eq!(findings(parameters, &bad), [what], "{bad}");
        assert_eq!(findings(parameters, &good), [""; 0], "{good}");
    }
}
