#include <metal_stdlib>
using namespace metal;

kernel void histogram_device(device const uchar* data [[buffer(0)]], device atomic_uint* bins [[buffer(1)]],
                             uint id [[thread_position_in_grid]])
{
    atomic_fetch_add_explicit(&bins[data[id]], 1u, memory_order_relaxed);
}

constant constexpr uint PER_THREAD = 16;

kernel void histogram_threadgroup(device const uchar* data [[buffer(0)]],
                                  device atomic_uint* bins [[buffer(1)]],
                                  uint local [[thread_index_in_threadgroup]],
                                  uint size [[threads_per_threadgroup]],
                                  uint group [[threadgroup_position_in_grid]])
{
    threadgroup atomic_uint counts[256];
    for (uint i = local; i < 256; i += size) {
        atomic_store_explicit(&counts[i], 0u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint start = group * size * PER_THREAD + local;
    for (uint i = 0; i < PER_THREAD; ++i) {
        atomic_fetch_add_explicit(&counts[data[start + i * size]], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = local; i < 256; i += size) {
        uint count = atomic_load_explicit(&counts[i], memory_order_relaxed);
        if (count > 0) {
            atomic_fetch_add_explicit(&bins[i], count, memory_order_relaxed);
        }
    }
}
