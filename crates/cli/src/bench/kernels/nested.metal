// Chains of launches that kernels enqueue.
#include <metal_stdlib>
#include <elinvar/launch>
using namespace metal;

void next_of_chain(device elinvar::launch_queue& queue, device uint* x, uint left, uint size) {
    if (left == 0) return;
    elinvar::launch next(queue);
    next.set_kernel(0);
    next.set_buffer(x, 1);
    next.set_value(left, 2);
    next.dispatch_threads(size, size);
}

kernel void begin_chains(device elinvar::launch_queue& queue, device uint* x, constant uint& left, constant uint& size,
                         uint i [[thread_position_in_grid]]) {
    next_of_chain(queue, x + i * size, left, size);
}

kernel void link(device elinvar::launch_queue& queue, device uint* x, constant uint& left, uint i [[thread_position_in_grid]],
                 uint size [[threads_per_grid]]) {
    x[i] = x[i] * 3u + i;
    if (i == 0) next_of_chain(queue, x, left - 1, size);
}

kernel void shift(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = x[i] * 3u + i; }
