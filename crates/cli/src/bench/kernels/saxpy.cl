__kernel void saxpy(__global const float* x, __global float* y, float a, uint n)
{
    size_t id = get_global_id(0);
    if (id < n) {
        y[id] = a * x[id] + y[id];
    }
}
