#include <metal_stdlib>
using namespace metal;
kernel void add(device uint* out, device const uint* in, constant uint& k, uint i [[thread_position_in_grid]]) {
    out[i] = in[i] + k;
}
kernel void put(device uint* out, device const uint* in, constant uint& at, uint i [[thread_position_in_grid]]) {
    out[at + i] = in[i];
}
kernel void shift(device uint* data, constant uint& at, uint i [[thread_position_in_grid]]) {
    data[at + i] = data[i] + 1;
}
