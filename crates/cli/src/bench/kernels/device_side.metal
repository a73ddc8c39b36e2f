// Work that the device decides: steps with a grid barrier between them.
#include <metal_stdlib>
#include <elinvar/grid>
#include <elinvar/resident>
using namespace metal;

// Steps without memory accesses of their own, with barriers and without.
kernel void barriers(device uint* out, constant uint& steps, uint i [[thread_position_in_grid]]) {
    uint value = i;
    for (uint s = 0; s < steps; ++s) {
        value = value * 1664525u + 1013904223u;
        elinvar::grid_barrier();
    }
    out[i] = value;
}

kernel void loop(device uint* out, constant uint& steps, uint i [[thread_position_in_grid]]) {
    uint value = i;
    for (uint s = 0; s < steps; ++s) value = value * 1664525u + 1013904223u;
    out[i] = value;
}

float next(device const float* from, uint i, uint n) {
    return 0.5f * from[i] + 0.25f * (from[i > 0u ? i - 1u : 0u] + from[min(i + 1u, n - 1u)]);
}

// Diffusion, in one launch for all steps, and in one launch for each.
kernel void diffuse(device float* a, device float* b, constant uint& n, constant uint& steps, uint i [[thread_position_in_grid]]) {
    for (uint s = 0; s < steps; ++s) {
        device float* from = s % 2u == 0u ? a : b;
        device float* to = s % 2u == 0u ? b : a;
        to[i] = next(from, i, n);
        elinvar::grid_barrier();
    }
}

kernel void diffuse_once(device const float* from, device float* to, constant uint& n, uint i [[thread_position_in_grid]]) {
    to[i] = next(from, i, n);
}

// A resident kernel with little work, and the same as a launch.
kernel void square_items(constant elinvar::inbox<uint, uint>& inbox) {
    uint item;
    while (inbox.receive(item)) inbox.complete(item * item);
}

kernel void square_once(device uint* x) { x[0] *= x[0]; }

// Many small launches, encoded by a kernel.
struct Commands { command_buffer commands; compute_pipeline_state shift; };

kernel void encode_shifts(constant Commands& c, device uint* x, constant uint& stride, uint i [[thread_position_in_grid]]) {
    compute_command command(c.commands, i);
    command.reset();
    command.set_compute_pipeline_state(c.shift);
    command.set_kernel_buffer(x + i * stride, 0);
    command.concurrent_dispatch_threads(uint3(stride, 1, 1), uint3(stride, 1, 1));
}

kernel void shift(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = x[i] * 3u + i; }
