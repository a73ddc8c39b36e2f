#include <metal_stdlib>
using namespace metal;

// Each thread stores its position in the grid.
kernel void thread_ids(device uint* out [[buffer(0)]],
                       uint id [[thread_position_in_grid]])
{
    out[id] = id;
}
