// seed 8 threads [70, 2, 1] group [32, 2, 1] n 5
#include <metal_stdlib>
using namespace metal;
// Indices `~x & 3`, several of which are extracted at once.
kernel void k8(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]], uint lid [[thread_index_in_threadgroup]]) {
    const uint me = gid.x + grid.x * gid.y;
    threadgroup atomic_uint counts[4];
    if (lid < 4u) atomic_store_explicit(&counts[lid], in[lid + n], memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint u = atomic_load_explicit(&counts[uint(uchar(~uchar(in[me & 255u]))) & 3u], memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&counts[~in[(me + 7u) & 255u] & 3u], me, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u] = u;
    out[me * 4u + 1u] = atomic_load_explicit(&counts[(me ^ n) & 3u], memory_order_relaxed);
}
