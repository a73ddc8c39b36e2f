// seed 1 threads [70, 2, 1] group [32, 2, 1] n 5
#include <metal_stdlib>
using namespace metal;
kernel void k1(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const uint me = gid.x + grid.x * gid.y;
    int a = int(in[me & 255u]), b = int(in[(me + 1u) & 255u] & 3u) - 1;
    out[me * 4u] = uint(a / b); out[me * 4u + 1u] = uint(a % b);
    out[me * 4u + 2u] = uint(int(0x80000000u) / b); out[me * 4u + 3u] = in[me & 255u] / uint(b + 1) + in[me & 255u] % uint(b + 1);
}
