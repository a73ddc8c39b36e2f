// seed 97500057 threads [79, 2, 1] group [111, 1, 1] n 47
#include <metal_stdlib>
using namespace metal;
kernel void k97500057(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
    uint3 size [[threads_per_threadgroup]],
    uint lid [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    const uint me = gid.x + grid.x * (gid.y + grid.y * gid.z);
    const uint count = size.x * size.y * size.z;
    threadgroup uint sh[160];
    sh[lid] = in[lid & 255u] ^ me;
    uint u = me ^ n, i = in[(me * 3u) & 255u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint q = 0; q < 3u; ++q) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        u += in[lid & 255u];
        if (gid.x != (in[n & 255u] & 63u)) { sh[lid] = u; out[me * 4u + 1u] += u; return; }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        u ^= sh[16u % count];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    out[me * 4u + 1u] ^= i * 13u + u * 17u;
}
