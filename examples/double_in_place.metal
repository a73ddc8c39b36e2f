#include <metal_stdlib>
using namespace metal;

// Doubles each value in place.
kernel void double_in_place(device float* data [[buffer(0)]],
                            uint id [[thread_position_in_grid]])
{
    data[id] *= 2.0f;
}
