// seed 7 threads [1, 1, 2] group [7, 1, 1] n 78
#include <metal_stdlib>
using namespace metal;
struct Sk7 { int a; ushort b; uchar4 c; long d; float e; char f; uint2 g; };
static int h0k7(thread int* arr, Sk7 st, int x, long y) { char c = char(x); uchar uc = uchar(y); short s = short(x >> 3); ushort us = 9; int i = x; uint u = uint(y); long l = x; ulong ul = ulong(y); float f = float(x & 15); int4 v = int4(x, int(y), 3, 4); ushort4 w = ushort4(us);
    return i + int(u) + int(l) + int(c) + v.y + int(w.z) + int(f) + int(s) * int(uc) + int(us) + int(ul);
}
static int h1k7(thread int* arr, Sk7 st, int x, long y) { char c = char(x); uchar uc = uchar(y); short s = short(x >> 3); ushort us = 9; int i = x; uint u = uint(y); long l = x; ulong ul = ulong(y); float f = float(x & 15); int4 v = int4(x, int(y), 3, 4); ushort4 w = ushort4(us);
    return i + int(u) + int(l) + int(c) + v.y + int(w.z) + int(f) + int(s) * int(uc) + int(us) + int(ul);
}
kernel void k7(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint3 gid [[thread_position_in_grid]], uint3 grid [[threads_per_grid]],
    uint3 tgid [[threadgroup_position_in_grid]], uint3 size [[threads_per_threadgroup]],
    uint lid [[thread_index_in_threadgroup]]) {
    const uint me = gid.x + grid.x * (gid.y + grid.y * gid.z);
    const uint count = size.x * size.y * size.z;
    threadgroup uint sh[64];
    sh[lid] = in[lid & 255u] ^ me;
    char c = char(me); uchar uc = uchar(in[me & 255u]); short s = short(in[(me + 1u) & 255u]);
    ushort us = ushort(lid); int i = int(in[(me * 3u) & 255u]); uint u = me ^ n;
    long l = long(in[lid & 255u]) << 16; ulong ul = ulong(me) * 0x100000001ul; float f = float(me & 15u);
    int4 v = int4(int(me), i, int(n), 7); ushort4 w = ushort4(us, ushort(s), 3, ushort(i));
    int arr[8] = {1, i, 3, int(u), 5, 6, 7, int(lid)};
    Sk7 st; st.a = i; st.b = us; st.c = uchar4(1, uc, 3, 4); st.d = l; st.e = f; st.f = c; st.g = uint2(u, n);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint q5 = 0; q5 < (n & 3u) + 1u; ++q5) {
        if (int(char(char(me) + char(st.d))) > int(addsat(char(arr[u & 7]), char(arr[ul & 7])))) { out[me * 4u] += 77u; return; }
        for (uint q6 = 0; q6 < (in[n & 255u] & 3u); ++q6) {
            { if (uint(char(char(-75) - char(arr[uc & 7]))) <= uint(ushort(ushort(arr[i & 7]) | ushort(n)))) sh[lid] = uint(short(h1k7(arr, st, int(u), in[(c) & 255]))); threadgroup_barrier(mem_flags::mem_threadgroup); u += sh[uint(uint(uint(w.y) + uint(v.x))) % count]; threadgroup_barrier(mem_flags::mem_threadgroup); }
        }
        if (((tgid.x + n) & 1u) == 1u) break;
        { sh[lid] = uint(uint(uint(arr[u & 7]) << uint(uint(s) ^ uint(us)))); threadgroup_barrier(mem_flags::mem_threadgroup); u += sh[uint(ulong(ulong(arr[s & 7]) >> ulong(ulong(in[(uc) & 255]) ^ ulong(s)))) % count]; threadgroup_barrier(mem_flags::mem_threadgroup); }
    }
    out[me * 4u] += uint(c) * 3u + uint(uc) * 5u + uint(s) * 7u + uint(us) * 11u;
    out[me * 4u + 1u] ^= uint(i) * 13u + u * 17u + uint(l) + uint(l >> 32) * 19u + uint(ul) * 23u + uint(ul >> 32);
    out[me * 4u + 2u] += uint(int(f)) + uint(v.x + v.y * 3 + v.z * 5 + v.w * 7) + uint(w.x + w.y + w.z * 3 + w.w);
    for (int k = 0; k < 8; ++k) out[me * 4u + 3u] = out[me * 4u + 3u] * 31u + uint(arr[k]);
    out[me * 4u + 3u] += uint(st.a) + uint(st.b) + uint(st.c.x + st.c.y * 3 + st.c.w) + uint(st.d) + uint(int(st.e)) + uint(st.f) + st.g.x * 3u + st.g.y;
}
