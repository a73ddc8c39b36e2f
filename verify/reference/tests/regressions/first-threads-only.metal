// seed 11 threads [300, 1, 1] group [160, 1, 1] n 45
#include <metal_stdlib>
using namespace metal;
kernel void k11(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]],
    uint size [[threads_per_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
    threadgroup uint shared[160];
    uint kept = in[me & 255u];
    shared[lid] = kept;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (lid < step) shared[lid] += shared[lid + step];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (lid == 0) out[me * 4u] = shared[0];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid >= n) shared[lid] = lid;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Each thread has a value of its own behind the barrier.
    kept ^= in[(me + 1u) & 255u];
    if (lid / 4u <= group) shared[lid] += kept;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u + 1u] = kept + shared[(lid + 7u) % size];
    if (lid * 2u > n) return;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (int(lid) < int(group) * 20 - 3) shared[lid] = 5u;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u + 2u] = shared[lid % 20u];
}
