// seed 3 threads [70, 2, 1] group [32, 2, 1] n 5
#include <metal_stdlib>
using namespace metal;
kernel void k3(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const uint me = gid.x + grid.x * gid.y;
    uchar a = uchar(in[me & 255u]); ushort b = ushort(in[(me + 1u) & 255u] & 63u);
    out[me * 4u] = uint(uchar(a << b)); out[me * 4u + 1u] = (uint3(a, b, 7) << uint3(b)).x;
    out[me * 4u + 2u] = uint((uchar4(a) >> uchar4(b)).y); out[me * 4u + 3u] = uint((ushort2(b) << ushort2(b)).y);
}
