// Kernels of `elinvar bench targets`.
#include <metal_stdlib>
using namespace metal;

kernel void one_buffer(device uint* a) { a[0] = 1; }

kernel void sixteen_buffers(device uint* a, device uint* b, device uint* c, device uint* d, device uint* e, device uint* f, device uint* g,
                            device uint* h, device uint* i, device uint* j, device uint* k, device uint* l, device uint* m, device uint* n,
                            device uint* o, device uint* p)
{
    a[0] = b[0] + c[0] + d[0] + e[0] + f[0] + g[0] + h[0] + i[0] + j[0] + k[0] + l[0] + m[0] + n[0] + o[0] + p[0];
}
