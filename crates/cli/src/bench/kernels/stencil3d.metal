#include <metal_stdlib>
using namespace metal;

// The seven-point stencil inside of a cube; its faces stay as they are.
kernel void stencil3d(device const float* input [[buffer(0)]], device float* out [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint3 position [[thread_position_in_grid]])
{
    if (any(position == 0) || any(position >= n - 1)) {
        return;
    }
    uint at = (position.z * n + position.y) * n + position.x;
    float around = input[at - 1] + input[at + 1] + input[at - n] + input[at + n] + input[at - n * n]
                 + input[at + n * n];
    out[at] = 0.5f * input[at] + 0.0625f * around;
}
