void tree(__global const float* input, __global float* sums, __local float* partial)
{
    uint at = get_local_id(0);
    partial[at] = input[get_global_id(0)];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = get_local_size(0) / 2; step > 0; step /= 2) {
        if (at < step) {
            partial[at] += partial[at + step];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (at == 0) {
        sums[get_group_id(0)] = partial[0];
    }
}

__kernel void reduce_tree(__global const float* input, __global float* sums)
{
    __local float partial[256];
    tree(input, sums, partial);
}

// Sub-groups are optional in OpenCL; what every driver has is the tree.
__kernel void reduce_simd(__global const float* input, __global float* sums)
{
    __local float partial[256];
    tree(input, sums, partial);
}
