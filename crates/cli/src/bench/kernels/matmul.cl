__kernel void matmul_naive(__global const float* a, __global const float* b, __global float* c, uint n)
{
    uint x = get_global_id(0);
    uint y = get_global_id(1);
    if (x >= n || y >= n) {
        return;
    }
    float sum = 0.0f;
    for (uint i = 0; i < n; ++i) {
        sum += a[y * n + i] * b[i * n + x];
    }
    c[y * n + x] = sum;
}

#define TILE 16

__kernel void matmul_tiled(__global const float* a, __global const float* b, __global float* c, uint n)
{
    __local float tile_a[TILE][TILE];
    __local float tile_b[TILE][TILE];
    uint x = get_global_id(0);
    uint y = get_global_id(1);
    uint local_x = get_local_id(0);
    uint local_y = get_local_id(1);
    float sum = 0.0f;
    for (uint start = 0; start < n; start += TILE) {
        tile_a[local_y][local_x] = a[y * n + start + local_x];
        tile_b[local_y][local_x] = b[(start + local_y) * n + x];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = 0; i < TILE; ++i) {
            sum += tile_a[local_y][i] * tile_b[i][local_x];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    c[y * n + x] = sum;
}
