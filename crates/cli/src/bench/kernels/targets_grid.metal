// Steps of a stencil over many elements, with a grid barrier behind each step, and as a launch each.
#include <metal_stdlib>
#include <elinvar/grid>
using namespace metal;

void step(device const float* from, device float* to, uint n, uint s, uint first, uint threads) {
    for (uint i = first; i < n; i += threads) {
        float left = from[i > 0u ? i - 1u : 0u], right = from[min(i + 1u, n - 1u)];
        to[i] = (0.5f * from[i] + 0.25f * (left + right)) * float(s + 1u);
    }
}

kernel void steps_with_barriers(device const float* from, device float* to, constant uint& n, constant uint& steps,
                                uint i [[thread_position_in_grid]], uint threads [[threads_per_grid]])
{
    for (uint s = 0; s < steps; ++s) {
        step(from, to, n, s, i, threads);
        elinvar::grid_barrier();
    }
}

kernel void one_step(device const float* from, device float* to, constant uint& n, constant uint& s,
                     uint i [[thread_position_in_grid]], uint threads [[threads_per_grid]])
{
    step(from, to, n, s, i, threads);
}
