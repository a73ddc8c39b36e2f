//! Missing barriers: found where two threads meet at one address, with the line, and nowhere else.

mod common;

use elinvar_analysis::{AppleFamily, Violation, violations};

const SUM: &str = "device float* o [[buffer(0)]], constant uint& n [[buffer(1)]], uint i [[thread_position_in_grid]], \
    uint t [[thread_index_in_threadgroup]], uint size [[threads_per_threadgroup]]";
const TILE: &str = "device float* o [[buffer(0)]], constant uint& n [[buffer(1)]], uint2 t [[thread_position_in_threadgroup]], \
    uint2 g [[thread_position_in_grid]]";

/// The missing barriers of a kernel whose body begins in line 4.
fn found(parameters: &str, body: &str) -> Vec<Violation> {
    let text = format!(
        "#include <metal_stdlib>\nusing namespace metal;\nkernel void k({parameters}) {{\n{body}\n}}"
    );
    let (module, signature) = common::module(&text, "k");
    violations(AppleFamily::M1, &module, &signature)
}

fn line(violation: &Violation) -> u32 {
    violation.location.as_ref().map_or(0, |place| place.line)
}

#[test]
fn a_load_of_what_another_thread_stores_needs_a_barrier() {
    for (parameters, body, at, what) in [
        // Reversed, shifted, by another thread of the same simdgroup.
        (
            SUM,
            "threadgroup float s[256]; s[t] = o[i];\no[i] = s[255 - t];",
            5,
            "thread 0 loads byte 1020 of `s`, which thread 255 stores in line 4 with",
        ),
        (
            SUM,
            "threadgroup float s[257]; s[t] = o[i];\no[i] = s[t + 1];",
            5,
            "thread 0 loads byte 4 of `s`, which thread 1 stores",
        ),
        (
            SUM,
            "threadgroup float s2[128]; s2[t] = o[i];\no[i] = s2[t ^ 1];",
            5,
            "thread 0 loads byte 4 of `s2`, which thread 1",
        ),
        (
            SUM,
            "threadgroup float s[64]; s[t] = o[i];\no[i] = s[(t * 5 + 1) % 64];",
            5,
            "thread 0 loads byte 4",
        ),
        // Without a loop, some threads only.
        (
            SUM,
            "threadgroup float s; if (t == 0) s = o[0];\no[i] = s;",
            5,
            "thread 1 loads byte 0 of `s`, which thread 0 stores in line 4",
        ),
        (
            SUM,
            "threadgroup float s[64]; s[t] = o[i];\nif (t < 32) o[i] = s[t + 32];",
            5,
            "thread 0 loads byte 128 of `s`, which thread 32 stores",
        ),
        (
            SUM,
            "threadgroup float s[8]; float x = simd_sum(o[i]); if (t % 32 == 0) s[t / 32] = x;\nif (t < 8) o[i] = s[t];",
            5,
            "thread 1 loads byte 4 of `s`, which thread 32 stores",
        ),
        // On the two ways of a branch.
        (
            SUM,
            "threadgroup float s[64]; s[t] = n; threadgroup_barrier(mem_flags::mem_threadgroup); if (t < 32) s[t] = o[i];\nelse o[i] = s[t - 32];",
            5,
            "thread 32 loads byte 0 of `s`, which thread 0 stores in line 4",
        ),
        // The barrier is at another place.
        (
            SUM,
            "threadgroup float s[64]; threadgroup_barrier(mem_flags::mem_threadgroup); s[t] = o[i];\no[i] = s[63 - t]; threadgroup_barrier(mem_flags::mem_threadgroup);",
            5,
            "thread 0 loads",
        ),
        // The last steps of a tree without barriers.
        (
            SUM,
            "threadgroup float s[64]; s[t] = o[i]; threadgroup_barrier(mem_flags::mem_threadgroup);\nif (t < 32) { s[t] += s[t + 32];\ns[t] += s[t + 16]; }\n if (t == 0) o[0] = s[0];",
            6,
            "thread 0 loads byte 64 of `s`, which thread 16 stores in line 6",
        ),
        // A tile that is loaded while others still read the one before.
        (
            SUM,
            "threadgroup float s[64]; float x = 0; for (uint k = 0; k < n; k++) { s[t] = o[k * 64 + t]; threadgroup_barrier(mem_flags::mem_threadgroup);\nx += s[63 - t]; } o[i] = x;",
            5,
            "thread 0 loads byte 252 of `s`, which thread 63 stores in line 4 of another iteration",
        ),
        // Two dimensions, and sizes of the launch.
        (
            TILE,
            "threadgroup float s[16][17]; s[t.y][t.x] = o[g.y * n + g.x];\no[g.x * n + g.y] = s[t.x][t.y];",
            5,
            "in a threadgroup of 16 x 16 x 1, thread 1 loads byte 68 of `s`, which thread 16 stores",
        ),
        (
            SUM,
            "threadgroup float s[512]; s[t] = o[i];\no[i] = s[size - 1 - t];",
            5,
            "thread 0 loads byte 2044 of `s`, which thread 511 stores",
        ),
        // A branch on arguments is taken by all threads.
        (SUM, "threadgroup float s[64]; if (n > 5) { s[t] = o[i];\no[i] = s[63 - t]; }", 5, "thread 0 loads"),
    ] {
        let found = found(parameters, body);
        assert_eq!(found.len(), 1, "{body}: {found:?}");
        assert!(found[0].reason.starts_with("missing barrier: "), "{body}: {found:?}");
        assert!(found[0].reason.contains(what), "{body}: {found:?}");
        assert_eq!(line(&found[0]), at, "{body}: {found:?}");
    }
}

#[test]
fn what_cannot_be_proved_is_not_reported() {
    const B: &str = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    for (parameters, body) in [
        (SUM, format!("threadgroup float s[256]; s[t] = o[i]; {B} o[i] = s[255 - t];")),
        (SUM, "threadgroup float s[256]; s[t] = o[i]; simdgroup_barrier(mem_flags::mem_threadgroup); o[i] = s[t ^ 1];".into()),
        // A thread's own elements.
        (SUM, "threadgroup float s[256]; s[t] = o[i]; if (n > 2) s[t] = 3; o[i] = s[t];".into()),
        (SUM, "threadgroup float s[1024]; for (uint k = 0; k < 4; k++) s[t * 4 + k] = o[i + k]; o[i] = s[t * 4 + n % 4];".into()),
        (SUM, "threadgroup float s[1024]; for (uint k = 0; k < 4; k++) s[k * 256 + t] = o[i + k]; o[i] = s[3 * 256 + t] + s[t];".into()),
        (SUM, "threadgroup float s[256]; s[t] = o[i]; if (t == 0) o[0] = s[0];".into()),
        (SUM, "threadgroup float s[256]; if (t >= 32) s[t] = o[i]; if (t < 32) o[i] = s[t];".into()),
        (
            SUM,
            "threadgroup float s[1024]; s[t] = o[i]; s[t + 256] = o[i + n]; s[t + 512] = 2; s[t + 768] = 3; o[i] = s[t] + s[t + 256] * s[t + 768] + s[t + 512];".into(),
        ),
        (SUM, "threadgroup float s[2048]; s[t] = o[i]; s[t + 256] = o[i + n]; o[i] = s[t] * s[t + 256];".into()),
        (SUM, "threadgroup float s[1024]; s[t] = o[i]; for (uint k = 0; k < n; k++) s[k * 256 + t] = o[i + k]; o[i] = s[t + 256];".into()),
        // A barrier on some ways, or by arguments that the host knows.
        (SUM, format!("threadgroup float s[64]; s[t] = o[i]; if (n > 3) {B} o[i] = s[63 - t];")),
        (SUM, format!("threadgroup float s[64]; s[t] = o[i]; for (uint k = 0; k < n; k++) {B} o[i] = s[63 - t];")),
        // All threads take the one way or the other.
        (SUM, format!("threadgroup float s[64]; s[t] = i; {B} if (n > 3) s[t] = o[i]; else o[i] = s[63 - t];")),
        // Addresses and branches by data, or a size that the host chooses.
        (SUM, "threadgroup float s[64]; s[t] = o[i]; o[i] = s[uint(o[i]) % 64];".into()),
        (SUM, "threadgroup float s[64]; if (o[i] > 0) s[t] = o[i]; o[i] = s[63 - t];".into()),
        (SUM, "threadgroup float s[64]; if (i < n) s[t] = o[i]; o[i] = s[63 - t];".into()),
        ("device float* o [[buffer(0)]], threadgroup float* s [[threadgroup(0)]], uint t [[thread_index_in_threadgroup]]", "s[t] = o[t]; o[t] = s[t ^ 1];".into()),
        (SUM, "threadgroup float s[64]; s[t] = o[i]; o[i] = s[t + n];".into()),
        // A threadgroup of 512 threads would leave the variable.
        (SUM, "threadgroup float s[512]; s[t] = o[i]; o[i] += s[t + 256];".into()),
        ("device atomic_uint* o [[buffer(0)]], uint t [[thread_index_in_threadgroup]]", "threadgroup atomic_uint s[64]; atomic_store_explicit(&s[t], 1, memory_order_relaxed); \
            atomic_fetch_add_explicit(&o[t], atomic_load_explicit(&s[t ^ 1], memory_order_relaxed), memory_order_relaxed);".into()),
        // Trees, tiles, double buffers, simdgroups' results.
        (SUM, format!("threadgroup float s[256]; s[t] = o[i]; for (uint k = 128; k > 0; k >>= 1) {{ {B} if (t < k) s[t] += s[t + k]; }} if (t == 0) o[i] = s[0];")),
        (SUM, format!("threadgroup float s[256]; s[t] = o[i]; {B} for (uint k = size / 2; k > 0; k /= 2) {{ if (t < k) s[t] += s[t + k]; {B} }} if (t == 0) o[i] = s[0];")),
        (TILE, format!("threadgroup float s[16][17]; float x = 0; for (uint k = 0; k < n; k += 16) {{ s[t.y][t.x] = o[g.y * n + k + t.x]; {B} \
            for (uint j = 0; j < 16; j++) x += s[t.y][j] * s[j][t.x]; {B} }} o[g.y * n + g.x] = x;")),
        (SUM, format!("threadgroup float s[2][256]; s[0][t] = o[i]; {B} for (uint k = 1, p = 0; k < n; k <<= 1, p ^= 1) {{ s[p ^ 1][t] = s[p][t] + (t >= k ? s[p][t - k] : 0.0f); {B} }} o[i] = s[0][t];")),
        (SUM, format!("threadgroup float s[32]; float x = simd_sum(o[i]); if (t % 32 == 0) s[t / 32] = x; {B} if (t < 32) {{ x = simd_sum(s[t]); if (t == 0) o[0] = x; }}")),
        (SUM, format!("threadgroup float s[64]; float x = 0; for (uint k = 0; k < n; k++) {{ s[t] = o[k * 64 + t]; {B} x += s[63 - t]; {B} }} o[i] = x;")),
    ] {
        let found = found(parameters, &body);
        assert!(found.is_empty(), "{body}: {found:?}");
    }
}
