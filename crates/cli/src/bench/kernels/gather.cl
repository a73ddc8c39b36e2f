__kernel void gather(__global const uint* index, __global const float* table, __global float* out)
{
    size_t id = get_global_id(0);
    out[id] = table[index[id]];
}
