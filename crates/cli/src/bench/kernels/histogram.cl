__kernel void histogram_device(__global const uchar* data, __global volatile uint* bins)
{
    atomic_inc(&bins[data[get_global_id(0)]]);
}

#define PER_THREAD 16

__kernel void histogram_threadgroup(__global const uchar* data, __global volatile uint* bins)
{
    __local uint counts[256];
    uint at = get_local_id(0);
    uint size = get_local_size(0);
    for (uint i = at; i < 256; i += size) {
        counts[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    uint start = get_group_id(0) * size * PER_THREAD + at;
    for (uint i = 0; i < PER_THREAD; ++i) {
        atomic_inc(&counts[data[start + i * size]]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = at; i < 256; i += size) {
        uint count = counts[i];
        if (count > 0) {
            atomic_add(&bins[i], count);
        }
    }
}
