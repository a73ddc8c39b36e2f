#include <metal_stdlib>
using namespace metal;

// Each writes one sum per threadgroup of 256 threads.

kernel void reduce_tree(device const float* input [[buffer(0)]], device float* sums [[buffer(1)]],
                        uint id [[thread_position_in_grid]], uint local [[thread_index_in_threadgroup]],
                        uint size [[threads_per_threadgroup]], uint group [[threadgroup_position_in_grid]])
{
    threadgroup float partial[256];
    partial[local] = input[id];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (local < step) {
            partial[local] += partial[local + step];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (local == 0) {
        sums[group] = partial[0];
    }
}

kernel void reduce_simd(device const float* input [[buffer(0)]], device float* sums [[buffer(1)]],
                        uint id [[thread_position_in_grid]], uint group [[threadgroup_position_in_grid]],
                        uint lane [[thread_index_in_simdgroup]],
                        uint simdgroup [[simdgroup_index_in_threadgroup]],
                        uint simdgroups [[simdgroups_per_threadgroup]])
{
    threadgroup float partial[32];
    float sum = simd_sum(input[id]);
    if (lane == 0) {
        partial[simdgroup] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (simdgroup == 0) {
        sum = simd_sum(lane < simdgroups ? partial[lane] : 0.0f);
        if (lane == 0) {
            sums[group] = sum;
        }
    }
}
