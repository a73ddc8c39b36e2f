#include <metal_stdlib>
using namespace metal;

// One threadgroup of 256 threads for each row.
kernel void softmax(device const float* input [[buffer(0)]], device float* out [[buffer(1)]],
                    constant uint& n [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                    uint local [[thread_index_in_threadgroup]], uint size [[threads_per_threadgroup]],
                    uint lane [[thread_index_in_simdgroup]],
                    uint simdgroup [[simdgroup_index_in_threadgroup]],
                    uint simdgroups [[simdgroups_per_threadgroup]])
{
    threadgroup float partial[32];
    device const float* from = input + row * n;
    device float* to = out + row * n;

    float highest = -INFINITY;
    for (uint i = local; i < n; i += size) {
        highest = max(highest, from[i]);
    }
    highest = simd_max(highest);
    if (lane == 0) {
        partial[simdgroup] = highest;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    highest = simd_max(lane < simdgroups ? partial[lane] : -INFINITY);
    threadgroup_barrier(mem_flags::mem_threadgroup);

    float sum = 0.0f;
    for (uint i = local; i < n; i += size) {
        float value = exp(from[i] - highest);
        to[i] = value;
        sum += value;
    }
    sum = simd_sum(sum);
    if (lane == 0) {
        partial[simdgroup] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);

    float factor = 1.0f / sum;
    for (uint i = local; i < n; i += size) {
        to[i] *= factor;
    }
}
