#include <metal_stdlib>
using namespace metal;

kernel void matmul_naive(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                         device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]])
{
    if (position.x >= n || position.y >= n) {
        return;
    }
    float sum = 0.0f;
    for (uint i = 0; i < n; ++i) {
        sum += a[position.y * n + i] * b[i * n + position.x];
    }
    c[position.y * n + position.x] = sum;
}

constant constexpr uint TILE = 16;

// For n that is a multiple of the tile.
kernel void matmul_tiled(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                         device float* c [[buffer(2)]], constant uint& n [[buffer(3)]],
                         uint2 position [[thread_position_in_grid]],
                         uint2 local [[thread_position_in_threadgroup]])
{
    threadgroup float tile_a[TILE][TILE];
    threadgroup float tile_b[TILE][TILE];
    float sum = 0.0f;
    for (uint start = 0; start < n; start += TILE) {
        tile_a[local.y][local.x] = a[position.y * n + start + local.x];
        tile_b[local.y][local.x] = b[(start + local.y) * n + position.x];
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = 0; i < TILE; ++i) {
            sum += tile_a[local.y][i] * tile_b[i][local.x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[position.y * n + position.x] = sum;
}
