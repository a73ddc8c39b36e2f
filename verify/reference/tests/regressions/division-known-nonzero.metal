// seed 4 threads [70, 2, 1] group [32, 2, 1] n 5
#include <metal_stdlib>
using namespace metal;
kernel void k4(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const uint me = gid.x + grid.x * gid.y;
    int a = int(in[me & 255u]), b = int(in[(me + 1u) & 255u] & 3u) - 1;
    int q = a / b; if (b == 0) q += 1000;
    out[me * 4u] = uint(q);
    uint s = in[(me + 2u) & 255u] & 63u; uint t = 1u << s; if (s > 31u) t += 5000u;
    out[me * 4u + 1u] = t;
    out[me * 4u + 2u] = uint(a % b) + (b == 0 ? 7u : 0u);
    out[me * 4u + 3u] = uint((a << s) >> s);
}
