// seed 12 threads [240, 1, 1] group [80, 1, 1] n 45
#include <metal_stdlib>
using namespace metal;
kernel void k12(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]]) {
    threadgroup uint shared[80];
    uint u = in[me & 255u];
    shared[lid] = u;
    for (uint round = 0; round < 3u; ++round) {
        { threadgroup_barrier(mem_flags::mem_threadgroup); if (lid / 4u == 5u + round) { shared[lid] = u; out[me * 4u + 1u] += u; return; } threadgroup_barrier(mem_flags::mem_threadgroup); u ^= shared[(u + round) % 80u]; threadgroup_barrier(mem_flags::mem_threadgroup); }
        shared[lid] = u;
    }
    out[me * 4u] = u;
}
