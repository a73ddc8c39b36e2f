// The kernels of the driver's tests. In a file of their own, so that they can be compiled ahead.
#include <metal_stdlib>
using namespace metal;

kernel void outside(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]])
{
    x[i] = i + 1;
}

kernel void add(device const uint* a [[buffer(0)]], device const uint* b [[buffer(1)]],
                device uint* c [[buffer(2)]], constant uint& n [[buffer(3)]], uint i [[thread_position_in_grid]])
{
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}

kernel void take(constant uint* table [[buffer(0)]], device uint* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]])
{
    out[i] = table[i % 100] + i;
}

kernel void count(device atomic_uint* out [[buffer(0)]], constant uint3& n [[buffer(1)]],
                  uint3 p [[thread_position_in_grid]], uint3 g [[threadgroup_position_in_grid]],
                  uint3 t [[threads_per_grid]])
{
    uint at = (p.z * n.y + p.y) * n.x + p.x;
    bool right = g.x == p.x / 2 && g.y == p.y / 2 && g.z == p.z && t.x == n.x && t.y == n.y && t.z == n.z;
    atomic_fetch_add_explicit(&out[at], right ? 1u : 100u, memory_order_relaxed);
}

kernel void size(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]],
                 uint n [[threads_per_threadgroup]], uint full [[dispatch_threads_per_threadgroup]])
{
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = n * 1000 + full;
}

kernel void turn(device uint* data [[buffer(0)]], threadgroup uint* a [[threadgroup(0)]],
                 threadgroup uint* b [[threadgroup(1)]], uint i [[thread_index_in_threadgroup]],
                 uint n [[threads_per_threadgroup]])
{
    for (uint k = i; k < 20000; k += n) {
        a[k] = data[k];
    }
    for (uint k = i; k < 5000; k += n) {
        b[k] = 1;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = i; k < 20000; k += n) {
        data[k] = a[19999 - k] + b[k % 5000];
    }
}

kernel void step_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]], uint i [[thread_position_in_grid]])
{
    x[i] = x[i] * 3u + k;
}

kernel void wild(device uint* x [[buffer(0)]], constant ulong& far [[buffer(1)]],
                 uint i [[thread_position_in_grid]])
{
    *(device uint*)((device char*)x + far) = i;
}

kernel void tame(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]])
{
    x[i] += 1;
}

// Each threadgroup takes the next ticket when it begins, and then computes for a while.
kernel void tickets(device atomic_uint* next [[buffer(0)]], device uint* own [[buffer(1)]],
                    device uint* sink [[buffer(2)]], uint group [[threadgroup_position_in_grid]],
                    uint i [[thread_index_in_threadgroup]])
{
    if (i == 0) {
        own[group] = atomic_fetch_add_explicit(next, 1u, memory_order_relaxed);
    }
    uint x = group * 1024u + i;
    for (uint k = 0; k < 20000; ++k) {
        x = (x * 1664525u + 1013904223u) ^ (x >> 3);
    }
    sink[i] = x;
}
