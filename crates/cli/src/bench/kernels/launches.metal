#include <metal_stdlib>
using namespace metal;

kernel void empty() {}

kernel void step_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    x[i] = x[i] * 3u + k;
}
