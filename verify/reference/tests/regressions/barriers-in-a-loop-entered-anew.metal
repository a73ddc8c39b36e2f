// seed 700150226 threads [1, 10, 3] group [1, 5, 1] n 62
#include <metal_stdlib>
using namespace metal;
// Threads that take the inner loop's back edge meet, at its header, threads that left it and enter it anew.
kernel void k700150226(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]],
    device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
    uint3 size [[threads_per_threadgroup]],
    uint lid [[thread_index_in_threadgroup]]) {
    const uint me = gid.x + grid.x * (gid.y + grid.y * gid.z);
    const uint count = size.x * size.y * size.z;
    threadgroup uint sh[160];
    char c = char(me); uchar uc = uchar(in[me & 255u]); short s = short(in[(me + 1u) & 255u]);
    ushort us = ushort(lid); int i = int(in[(me * 3u) & 255u]); uint u = me ^ n;
    long l = long(in[lid & 255u]) << 16; ulong ul = ulong(me) * 0x100000001ul; float f = float(me & 15u);
    half h = half(lid & 7u); bool b = (me & 2u) != 0u;
    for (uint q4 = 0; q4 < 3u; ++q4) {
        for (uint q5 = 0; q5 < (n & 3u) + 1u; ++q5) {
            { sh[lid] = u; threadgroup_barrier(mem_flags::mem_threadgroup); u += sh[me % count]; threadgroup_barrier(mem_flags::mem_threadgroup); }
            if (in[(n + 102u) & 255u] > 0x80000000u) break;
            if (me & 1u) {
                atomic_fetch_and_explicit(&acc[3], uint(ushort(int((((float((s) & 15) * float((s) & 15))) < ((((float((in[(l) & 255]) & 15) - float((l) & 15))) < ((max(f, float((i) & 15)))) ? float(h) : float((u) & 15))) ? floor(float((n) & 15) * 0.5f) : float(half(half((uc) & 3) * half((182) & 3))))))), memory_order_relaxed);
            }
        }
    }
}
