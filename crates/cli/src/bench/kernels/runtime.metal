#include <metal_stdlib>
kernel void empty() {}
kernel void spin(device uint* out, constant uint& n, uint i [[thread_position_in_grid]]) {
    uint x = i;
    for (uint k = 0; k < n; ++k) x = x * 1664525u + 1013904223u ^ (x >> 3);
    out[i] = x;
}
