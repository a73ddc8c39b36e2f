// seed 99400107 threads [32, 1, 1] group [32, 1, 1] n 95
// lanes 4 processor x86-64 optimized false checked false stoppable false large true dynamic false
#include <metal_stdlib>
using namespace metal;
#define READ_INSIDE(p, at, n, i) (((ulong(i) + at) << 2) < ulong(n) << 2 ? (p)[i] : 0u)
#define READ_PLAIN(p, at, n, i) ((p)[i])
#define WRITE_INSIDE(p, n, i, v) if ((ulong(i) << 2) < ulong(n) << 2) (p)[i] = (v)
#define WRITE_PLAIN(p, n, i, v) (p)[i] = (v)
struct Sk99400107 { int a; ushort b; uchar4 c; long d; float e; char f; uint2 g; };
kernel void k99400107(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]],
    device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
    uint3 tgid [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],
    uint lid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint me = gid.x + grid.x * (gid.y + grid.y * gid.z);
    const uint count = size.x * size.y * size.z;
    const uint out_words = grid.x * grid.y * grid.z * 4u;
    threadgroup uint sh[160];
    sh[lid] = in[lid & 255u] ^ me;
    threadgroup atomic_uint ta[4];
    if (lid == 0u) { atomic_store_explicit(&ta[0], 0u, memory_order_relaxed);atomic_store_explicit(&ta[1], 1u, memory_order_relaxed);atomic_store_explicit(&ta[2], 2u, memory_order_relaxed);atomic_store_explicit(&ta[3], 3u, memory_order_relaxed); }
    char c = char(me); uchar uc = uchar(in[me & 255u]); short s = short(in[(me + 1u) & 255u]);
    ushort us = ushort(lid); int i = int(in[(me * 3u) & 255u]); uint u = me ^ n;
    long l = long(in[lid & 255u]) << 16; ulong ul = ulong(me) * 0x100000001ul; float f = float(me & 15u);
    half h = half(lid & 7u); bool b = (me & 2u) != 0u;
    int4 v = int4(int(me), i, int(n), 7); ushort4 w = ushort4(us, ushort(s), 3, ushort(i));
    int arr[8] = {1, i, 3, int(u), 5, 6, 7, int(lid)};
    Sk99400107 st; st.a = i; st.b = us; st.c = uchar4(1, uc, 3, 4); st.d = l; st.e = f; st.f = c; st.g = uint2(u, n);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    { int q1 = 0; do { ++q1;
        switch (max(lid, 2u) & 3u) {
        case 0: {
           u += in[us + ((u > c + w.y) ? 0 : 5)];
            if (in[me & 255u] > u) continue;
        } break;
        case 1: {
            out[me * 4u] = u;
        }
        case 2: {
            i += simd_max(i);
        } break;
        }
        if (char(n) < char(me)) break;
    } while (q1 < 3 && (arr[uc & 7] & 1) != 0); }
    i += simd_sum(i);
    out[me * 4u + 1u] ^= uint(i) * 13u + u * 17u;
}
