#include <metal_stdlib>
using namespace metal;

// c = a * b for row-major a (m by k), b (k by n), c (m by n); one thread per element of c.
kernel void matmul(device const float* a [[buffer(0)]],
                   device const float* b [[buffer(1)]],
                   device float*       c [[buffer(2)]],
                   constant uint&      m [[buffer(3)]],
                   constant uint&      n [[buffer(4)]],
                   constant uint&      k [[buffer(5)]],
                   uint2 position [[thread_position_in_grid]])
{
    if (position.x >= n || position.y >= m) {
        return;
    }
    float sum = 0.0f;
    for (uint i = 0; i < k; ++i) {
        sum += a[position.y * k + i] * b[i * n + position.x];
    }
    c[position.y * n + position.x] = sum;
}
