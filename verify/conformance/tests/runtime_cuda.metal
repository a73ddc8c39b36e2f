#include <metal_stdlib>
using namespace metal;
kernel void triple(device const uint* in, device uint* out, constant uint& n, uint i [[thread_position_in_grid]]) {
    if (i < n) out[i] = 3 * in[i];
}
kernel void wild(device uint* x, constant ulong& far, uint i [[thread_position_in_grid]]) {
    *(device uint*)((device char*)x + far) = i;
}
kernel void slow(device uint* out, constant uint& n, uint i [[thread_position_in_grid]]) {
    uint x = i + 1u;
    for (uint k = 0; k < n; ++k) x = x * 1664525u + 1013904223u ^ (x >> 3);
    out[i] = x;
}
