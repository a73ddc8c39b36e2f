// seed 9 threads [140, 1, 1] group [70, 1, 1] n 5
#include <metal_stdlib>
using namespace metal;
kernel void k9(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]]) {
    threadgroup uint shared[70];
    uint sum = simd_sum(in[me & 255u]), first = simd_broadcast_first(me), third = simd_shuffle(in[me & 255u], ushort(3));
    shared[lid] = sum ^ me;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u] = sum + shared[(lid + 33u) % 70u] * 3u;
    for (uint i = 0; i < n; ++i) {
        first += n * i;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        shared[lid] = first + i;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        third ^= shared[(lid + i) % 70u];
    }
    out[me * 4u + 1u] = first;
    out[me * 4u + 2u] = third;
}
