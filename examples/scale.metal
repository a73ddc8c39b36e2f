#include <metal_stdlib>
using namespace metal;

// out = in * factor
kernel void scale(device const float* in     [[buffer(0)]],
                  device float*       out    [[buffer(1)]],
                  constant float&     factor [[buffer(2)]],
                  uint id [[thread_position_in_grid]])
{
    out[id] = in[id] * factor;
}
