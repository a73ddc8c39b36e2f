// seed 15 threads [40, 1, 1] group [24, 1, 1] n 45
#include <metal_stdlib>
using namespace metal;
// So many branches and values that the region has only a masked version.
#define STEP(k) uint v##k = in[(me * 7u + k##u) & 255u]; \
    if ((v##k >> (me & 7u)) & 1u) { out[me * 4u] = v##k ^ k##u; v##k = v##k * v##k + me; }
#define MIX(k) hash = (hash * 31u) ^ v##k;
#define TEN(F, k) F(k##0) F(k##1) F(k##2) F(k##3) F(k##4) F(k##5) F(k##6) F(k##7) F(k##8) F(k##9)
#define ALL(F) TEN(F, 1) TEN(F, 2) TEN(F, 3) TEN(F, 4) TEN(F, 5) TEN(F, 6) TEN(F, 7) TEN(F, 8) TEN(F, 9) TEN(F, 10) \
    TEN(F, 11) TEN(F, 12) TEN(F, 13) TEN(F, 14) TEN(F, 15) TEN(F, 16) TEN(F, 17) TEN(F, 18) TEN(F, 19) TEN(F, 20) \
    TEN(F, 21) TEN(F, 22) TEN(F, 23) TEN(F, 24) TEN(F, 25) TEN(F, 26) TEN(F, 27) TEN(F, 28) TEN(F, 29) TEN(F, 30)
kernel void k15(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]],
    uint size [[threads_per_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
    threadgroup uint shared[24];
    shared[lid] = in[me & 255u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid * 2u > n) return;
    ALL(STEP)
    uint hash = 1u;
    for (uint i = 0; i < (in[me & 255u] & 15u) + 1u; i++) {
        hash += shared[(lid + i) % size];
        if ((hash & 63u) == lid) break;
        out[me * 4u + 2u] = hash;
    }
    ALL(MIX)
    out[me * 4u + 1u] = hash;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[lid] = hash;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u + 3u] = shared[lid / 2u];
}
