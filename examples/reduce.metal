#include <metal_stdlib>
using namespace metal;

// total += sum of the n values of in. Tree reduction in each threadgroup: the upper half is added to the lower one
// until one value is left; the first thread adds it to the total.
kernel void reduce(device const float*  in    [[buffer(0)]],
                   device atomic_float* total [[buffer(1)]],
                   constant uint&       n     [[buffer(2)]],
                   threadgroup float*   part  [[threadgroup(0)]],
                   uint id      [[thread_position_in_grid]],
                   uint local   [[thread_position_in_threadgroup]],
                   uint threads [[threads_per_threadgroup]])
{
    part[local] = id < n ? in[id] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint count = threads;
    while (count > 1) {
        uint lower = (count + 1) / 2;
        if (local + lower < count) {
            part[local] += part[local + lower];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        count = lower;
    }
    if (local == 0) {
        atomic_fetch_add_explicit(total, part[0], memory_order_relaxed);
    }
}
