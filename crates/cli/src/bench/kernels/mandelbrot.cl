__kernel void mandelbrot(__global uint* out, uint size, uint limit)
{
    uint column = get_global_id(0);
    uint row = get_global_id(1);
    float cx = -2.0f + 3.0f * (float)column / (float)size;
    float cy = -1.5f + 3.0f * (float)row / (float)size;
    float x = 0.0f;
    float y = 0.0f;
    uint count = 0;
    while (count < limit && x * x + y * y <= 4.0f) {
        float next = x * x - y * y + cx;
        y = 2.0f * x * y + cy;
        x = next;
        ++count;
    }
    out[row * size + column] = count;
}
