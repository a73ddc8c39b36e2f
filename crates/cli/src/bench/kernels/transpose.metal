#include <metal_stdlib>
using namespace metal;

constant constexpr uint TILE = 32;
constant constexpr uint ROWS = 8;

// Of a square matrix whose side is a multiple of the tile; threadgroups of TILE by ROWS threads, one for each tile.
kernel void transpose(device const float* input [[buffer(0)]], device float* out [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint2 local [[thread_position_in_threadgroup]],
                      uint2 group [[threadgroup_position_in_grid]])
{
    threadgroup float tile[TILE][TILE + 1];
    uint x = group.x * TILE + local.x;
    uint y = group.y * TILE + local.y;
    for (uint row = 0; row < TILE; row += ROWS) {
        tile[local.y + row][local.x] = input[(y + row) * n + x];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    x = group.y * TILE + local.x;
    y = group.x * TILE + local.y;
    for (uint row = 0; row < TILE; row += ROWS) {
        out[(y + row) * n + x] = tile[local.x][local.y + row];
    }
}
