// seed 16 threads [48, 1, 1] group [16, 1, 1] n 45
#include <metal_stdlib>
using namespace metal;
// Functions with barriers that are not inlined for their size or by their attribute.
#define STEP(k) hash = (hash * 31u) ^ shared[(lid + k##u + hash) % size]; if (hash & 64u) hash += k##u;
#define TEN(k) STEP(k##0) STEP(k##1) STEP(k##2) STEP(k##3) STEP(k##4) STEP(k##5) STEP(k##6) STEP(k##7) STEP(k##8) STEP(k##9)
#define HUNDRED(k) TEN(k##0) TEN(k##1) TEN(k##2) TEN(k##3) TEN(k##4) TEN(k##5) TEN(k##6) TEN(k##7) TEN(k##8) TEN(k##9)
static uint large(threadgroup uint* shared, uint lid, uint size, uint hash) {
    HUNDRED(1) HUNDRED(2)
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[lid] = hash;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    HUNDRED(3)
    return hash;
}
__attribute__((noinline)) uint exchange(threadgroup uint* shared, uint lid, uint size) {
    uint mine = shared[lid] + 1u;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    shared[size - 1u - lid] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return shared[lid];
}
kernel void k16(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]],
    uint size [[threads_per_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
    threadgroup uint shared[16];
    shared[lid] = in[me & 255u];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint hash = exchange(shared, lid, size);
    if (n > 40u) hash ^= large(shared, lid, size, hash);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u] = large(shared, lid, size, hash);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[me * 4u + 1u] = exchange(shared, lid, size);
}
