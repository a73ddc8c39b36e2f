#include <metal_stdlib>
using namespace metal;

// Pairs of kernels with equal results: one that a rule of advice finds, and its mended twin.

// swap-axes: lanes follow x, and x is the row.
kernel void columns(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                    constant uint& n [[buffer(2)]], uint2 at [[thread_position_in_grid]])
{
    uint i = at.x * n + at.y;
    out[i] = a[i] * 2.0f + 1.0f;
}

kernel void rows(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                 constant uint& n [[buffer(2)]], uint2 at [[thread_position_in_grid]])
{
    uint i = at.y * n + at.x;
    out[i] = a[i] * 2.0f + 1.0f;
}

// vectorize: a byte for each thread, and four.
kernel void bytes(device const uchar* a [[buffer(0)]], device uchar* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]])
{
    out[i] = 255 - a[i];
}

kernel void bytes_by_four(device const uchar4* a [[buffer(0)]], device uchar4* out [[buffer(1)]],
                          uint i [[thread_position_in_grid]])
{
    out[i] = 255 - a[i];
}

// pad-tile: a column of a tile is in one bank.
constant constexpr uint TILE = 32;
constant constexpr uint ROWS = 8;

kernel void tile(device const float* a [[buffer(0)]], device float* out [[buffer(1)]], constant uint& n [[buffer(2)]],
                 uint2 local [[thread_position_in_threadgroup]], uint2 group [[threadgroup_position_in_grid]])
{
    threadgroup float t[TILE][TILE];
    uint x = group.x * TILE + local.x;
    uint y = group.y * TILE + local.y;
    for (uint row = 0; row < TILE; row += ROWS) {
        t[local.y + row][local.x] = a[(y + row) * n + x];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = group.y * TILE + local.x;
    y = group.x * TILE + local.y;
    for (uint row = 0; row < TILE; row += ROWS) {
        out[(y + row) * n + x] = t[local.x][local.y + row];
    }
}

kernel void tile_padded(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                        constant uint& n [[buffer(2)]], uint2 local [[thread_position_in_threadgroup]],
                        uint2 group [[threadgroup_position_in_grid]])
{
    threadgroup float t[TILE][TILE + 1];
    uint x = group.x * TILE + local.x;
    uint y = group.y * TILE + local.y;
    for (uint row = 0; row < TILE; row += ROWS) {
        t[local.y + row][local.x] = a[(y + row) * n + x];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = group.y * TILE + local.x;
    y = group.x * TILE + local.y;
    for (uint row = 0; row < TILE; row += ROWS) {
        out[(y + row) * n + x] = t[local.x][local.y + row];
    }
}

// move-to-constant: the stores keep the compiler from keeping the weights.
constant constexpr uint OUTPUTS = 16;
constant constexpr uint WEIGHTS = 16;

kernel void weights(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                    device const float* w [[buffer(2)]], constant uint& n [[buffer(3)]],
                    uint i [[thread_position_in_grid]])
{
    float v = a[i];
    for (uint k = 0; k < OUTPUTS; ++k) {
        float sum = 0.0f;
        for (uint j = 0; j < WEIGHTS; ++j) {
            sum = sum * v + w[j];
        }
        out[k * n + i] = sum + float(k);
    }
}

kernel void weights_constant(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                             constant float* w [[buffer(2)]], constant uint& n [[buffer(3)]],
                             uint i [[thread_position_in_grid]])
{
    float v = a[i];
    for (uint k = 0; k < OUTPUTS; ++k) {
        float sum = 0.0f;
        for (uint j = 0; j < WEIGHTS; ++j) {
            sum = sum * v + w[j];
        }
        out[k * n + i] = sum + float(k);
    }
}

// hoist: `out` may be `a` for all that the compiler knows, so each iteration loads anew.
kernel void powers(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* out [[buffer(2)]], constant uint& m [[buffer(3)]],
                   uint i [[thread_position_in_grid]])
{
    for (uint k = 0; k < m; ++k) {
        out[i] += a[i] * b[i] + float(k);
    }
}

kernel void powers_hoisted(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                           device float* out [[buffer(2)]], constant uint& m [[buffer(3)]],
                           uint i [[thread_position_in_grid]])
{
    float product = a[i] * b[i];
    float sum = out[i];
    for (uint k = 0; k < m; ++k) {
        sum += product + float(k);
    }
    out[i] = sum;
}

// split-branch: neighbors take different ways, of quadratic maps, which no compiler shortens.
inline float even(float v)
{
    for (uint k = 0; k < 256; ++k) {
        v = v * v - 0.6f;
    }
    return v;
}

inline float odd(float v)
{
    for (uint k = 0; k < 256; ++k) {
        v = v * v - 0.4f;
    }
    return v;
}

kernel void alternating(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                        uint i [[thread_position_in_grid]])
{
    if (i % 2 == 0) {
        out[i] = even(a[i]);
    } else {
        out[i] = odd(a[i]);
    }
}

// Of 64 neighboring elements, the first simdgroup takes the even ones, the second the odd ones.
kernel void by_simdgroup(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                         uint i [[thread_position_in_grid]])
{
    uint first = i / 64 * 64 + i % 32 * 2;
    if (i / 32 % 2 == 0) {
        out[first] = even(a[first]);
    } else {
        out[first + 1] = odd(a[first + 1]);
    }
}

// resize-group: threadgroups of 8 threads, and of 256.
kernel void scale(device const float* a [[buffer(0)]], device float* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]])
{
    out[i] = a[i] * 3.0f;
}
