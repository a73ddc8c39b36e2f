#include <metal_stdlib>
using namespace metal;

kernel void mandelbrot(device uint* out [[buffer(0)]], constant uint& size [[buffer(1)]],
                       constant uint& limit [[buffer(2)]], uint2 position [[thread_position_in_grid]])
{
    float cx = -2.0f + 3.0f * float(position.x) / float(size);
    float cy = -1.5f + 3.0f * float(position.y) / float(size);
    float x = 0.0f;
    float y = 0.0f;
    uint count = 0;
    while (count < limit && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        ++count;
    }
    out[position.y * size + position.x] = count;
}
