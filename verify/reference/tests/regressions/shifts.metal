// seed 2 threads [70, 2, 1] group [32, 2, 1] n 5
#include <metal_stdlib>
using namespace metal;
kernel void k2(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const uint me = gid.x + grid.x * gid.y;
    uint a = in[me & 255u], b = in[(me + 1u) & 255u] & 63u;
    out[me * 4u] = a << b; out[me * 4u + 1u] = a >> b; out[me * 4u + 2u] = uint(int(a) >> b);
    out[me * 4u + 3u] = uint((ulong(a) << (b * 2u)) >> 7);
}
