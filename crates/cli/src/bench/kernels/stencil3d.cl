__kernel void stencil3d(__global const float* input, __global float* out, uint n)
{
    uint x = get_global_id(0);
    uint y = get_global_id(1);
    uint z = get_global_id(2);
    if (x == 0 || y == 0 || z == 0 || x >= n - 1 || y >= n - 1 || z >= n - 1) {
        return;
    }
    uint at = (z * n + y) * n + x;
    float around = input[at - 1] + input[at + 1] + input[at - n] + input[at + n] + input[at - n * n]
                 + input[at + n * n];
    out[at] = 0.5f * input[at] + 0.0625f * around;
}
