// What `elinvar doctor` computes on every device: positions, arithmetic, threadgroup memory with barriers, simdgroups, atomics.
#include <metal_stdlib>
using namespace metal;

kernel void positions(device uint* out, uint i [[thread_position_in_grid]]) { out[i] = i; }

kernel void vector_add(device const float* a, device const float* b, device float* out, uint i [[thread_position_in_grid]]) {
    out[i] = a[i] + b[i];
}

kernel void scale(device const float* in, device float* out, constant float& factor, uint i [[thread_position_in_grid]]) {
    out[i] = in[i] * factor;
}

kernel void double_in_place(device uint* data, uint i [[thread_position_in_grid]]) { data[i] *= 2; }

// Square matrices, in tiles of 16 x 16.
kernel void matmul(device const float* a, device const float* b, device float* out, constant uint& n, uint2 at [[thread_position_in_grid]],
                   uint2 in_tile [[thread_position_in_threadgroup]]) {
    threadgroup float tile_a[16][16], tile_b[16][16];
    float sum = 0;
    for (uint k = 0; k < n; k += 16) {
        tile_a[in_tile.y][in_tile.x] = a[at.y * n + k + in_tile.x];
        tile_b[in_tile.y][in_tile.x] = b[(k + in_tile.y) * n + at.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < 16; ++i) sum += tile_a[in_tile.y][i] * tile_b[i][in_tile.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    out[at.y * n + at.x] = sum;
}

kernel void reduce(device const uint* in, device atomic_uint* sum, uint i [[thread_position_in_grid]],
                   uint lane [[thread_index_in_simdgroup]]) {
    uint part = simd_sum(in[i]);
    if (lane == 0) atomic_fetch_add_explicit(sum, part, memory_order_relaxed);
}
