// seed 5 threads [70, 2, 1] group [32, 2, 1] n 5
#include <metal_stdlib>
using namespace metal;
kernel void k5(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]]) {
    const uint me = gid.x + grid.x * gid.y;
    int4 a = int4(in[me & 255u]), b = int4(int(in[(me + 1u) & 255u] & 3u) - 1, 0, -1, 3);
    int4 q = a / b, r = a % b; uchar4 c = uchar4(a.x) / uchar4(b);
    out[me * 4u] = uint(q.x + q.y + q.z + q.w); out[me * 4u + 1u] = uint(r.x + r.y + r.z + r.w);
    out[me * 4u + 2u] = uint(c.x + c.y + c.z * 3 + c.w); out[me * 4u + 3u] = uint((long(a.x) << 33) / long(b.x));
}
