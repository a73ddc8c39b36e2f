#include <metal_stdlib>
using namespace metal;

// Mean of each pixel and its neighbors in a row and a column.
kernel void blur(device const float* image [[buffer(0)]], device float* out [[buffer(1)]], constant uint& width [[buffer(2)]],
                 constant uint& height [[buffer(3)]],
                 uint2 at [[thread_position_in_grid]]) {
    uint left = at.x == 0 ? 0 : at.x - 1, right = min(at.x + 1, width - 1);
    uint above = at.y == 0 ? 0 : at.y - 1, below = min(at.y + 1, height - 1);
    uint row = at.y * width;
    out[row + at.x] = (image[row + left] + image[row + right] + image[above * width + at.x] + image[below * width + at.x] + image[row + at.x]) / 5;
}

kernel void tone_map(device const float* image [[buffer(0)]], device float* out [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    out[i] = image[i] / (1 + image[i]);
}

// c = a * b for square row-major matrices.
kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]], device float* c [[buffer(2)]],
                   constant uint& n [[buffer(3)]], uint2 at [[thread_position_in_grid]]) {
    float sum = 0;
    for (uint i = 0; i < n; i++) {
        sum += a[at.y * n + i] * b[i * n + at.x];
    }
    c[at.y * n + at.x] = sum;
}

kernel void relu(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    y[i] = max(x[i], 0.0f);
}

kernel void histogram(device const uint* values [[buffer(0)]], device atomic_uint* counts [[buffer(1)]],
                      uint i [[thread_position_in_grid]]) {
    atomic_fetch_add_explicit(&counts[values[i] % 256], 1, memory_order_relaxed);
}

// y[i] = table[index[i]].
kernel void gather(device const float* table [[buffer(0)]], device const uint* index [[buffer(1)]], device float* y [[buffer(2)]],
                   uint i [[thread_position_in_grid]]) {
    y[i] = table[index[i]];
}

// Logistic map.
kernel void iterate(device const float* x [[buffer(0)]], device float* y [[buffer(1)]], uint i [[thread_position_in_grid]]) {
    float value = x[i];
    for (uint round = 0; round < 2000; round++) {
        value = 3.7f * value * (1 - value);
    }
    y[i] = value;
}

// Stores far behind the end of a buffer.
kernel void wild(device uint* x [[buffer(0)]]) {
    x[1u << 30] = 1;
}
