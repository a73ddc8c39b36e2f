#include <metal_stdlib>
using namespace metal;

kernel void gather(device const uint* index [[buffer(0)]], device const float* table [[buffer(1)]],
                   device float* out [[buffer(2)]], uint id [[thread_position_in_grid]])
{
    out[id] = table[index[id]];
}
