// Launches that a kernel enqueues.
#include <metal_stdlib>
#include <elinvar/launch>
using namespace metal;

kernel void enqueue_parts(device elinvar::launch_queue& queue, device uint* x, constant uint& size, uint i [[thread_position_in_grid]])
{
    elinvar::launch part(queue);
    part.set_kernel(0);
    part.set_buffer(x + i * size, 0);
    part.dispatch_threads(size, 256u);
}

kernel void part(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = x[i] * 3u + i; }
