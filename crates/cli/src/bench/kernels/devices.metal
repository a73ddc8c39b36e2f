#include <metal_stdlib>
using namespace metal;

// A step of some of the bodies, which begin at `first` among all of them; positions and, as w, masses.
kernel void nbody_step(device const float4* bodies [[buffer(0)]], device float4* next [[buffer(1)]], constant uint& n [[buffer(2)]],
                       constant uint& first [[buffer(3)]], constant uint& count [[buffer(4)]], uint id [[thread_position_in_grid]])
{
    if (id >= count) {
        return;
    }
    float4 body = bodies[first + id];
    float3 sum = 0.0f;
    for (uint i = 0; i < n; ++i) {
        float4 other = bodies[i];
        float3 way = other.xyz - body.xyz;
        float inverse = rsqrt(dot(way, way) + 0.01f);
        sum += way * (other.w * inverse * inverse * inverse);
    }
    next[id] = float4(body.xyz + sum * 1e-9f, body.w);
}

constant constexpr uint TILE = 16;

// Rows of a product of matrices of n columns; n and the number of rows are multiples of the tile.
kernel void product_rows(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                         constant uint& n [[buffer(3)]], uint2 position [[thread_position_in_grid]],
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

// A cell from those `reach` rows before and behind it. `first` is the first row in both buffers, `row` its number among all `rows`.
kernel void stencil_rows(device const float* now [[buffer(0)]], device float* next [[buffer(1)]], constant uint& width [[buffer(2)]],
                         constant uint& first [[buffer(3)]], constant uint& reach [[buffer(4)]], constant uint& row [[buffer(5)]],
                         constant uint& rows [[buffer(6)]], uint2 at [[thread_position_in_grid]])
{
    ulong i = ulong(first + at.y) * width + at.x;
    ulong far = ulong(reach) * width;
    float above = row + at.y >= reach ? now[i - far] : 0.0f;
    float below = row + at.y + reach < rows ? now[i + far] : 0.0f;
    next[i] = 0.5f * now[i] + 0.25f * (above + below);
}
