// One work-group for each row, with trees in place of sub-groups.
__kernel void softmax(__global const float* input, __global float* out, uint n)
{
    __local float partial[256];
    uint at = get_local_id(0);
    uint size = get_local_size(0);
    __global const float* from = input + get_group_id(0) * n;
    __global float* to = out + get_group_id(0) * n;

    float highest = -INFINITY;
    for (uint i = at; i < n; i += size) {
        highest = fmax(highest, from[i]);
    }
    partial[at] = highest;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (at < step) {
            partial[at] = fmax(partial[at], partial[at + step]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    highest = partial[0];
    barrier(CLK_LOCAL_MEM_FENCE);

    float sum = 0.0f;
    for (uint i = at; i < n; i += size) {
        float value = exp(from[i] - highest);
        to[i] = value;
        sum += value;
    }
    partial[at] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = size / 2; step > 0; step /= 2) {
        if (at < step) {
            partial[at] += partial[at + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    float factor = 1.0f / partial[0];
    for (uint i = at; i < n; i += size) {
        to[i] *= factor;
    }
}
