// The kernels of the `cuda` suite in CUDA C++, as somebody would write them who knows the Metal ones.

typedef unsigned int uint;
typedef unsigned char uchar;
#define ALL 0xffffffffu

extern "C" __global__ void saxpy(const float* x, float* y, float a, uint n)
{
    uint id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id < n) {
        y[id] = a * x[id] + y[id];
    }
}

extern "C" __global__ void vector_add(const float* a, const float* b, float* out, uint n)
{
    uint id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id < n) {
        out[id] = a[id] + b[id];
    }
}

extern "C" __global__ void matmul_naive(const float* a, const float* b, float* c, uint n)
{
    uint x = blockIdx.x * blockDim.x + threadIdx.x;
    uint y = blockIdx.y * blockDim.y + threadIdx.y;
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

extern "C" __global__ void matmul_tiled(const float* a, const float* b, float* c, uint n)
{
    __shared__ float tile_a[TILE][TILE];
    __shared__ float tile_b[TILE][TILE];
    uint x = blockIdx.x * blockDim.x + threadIdx.x;
    uint y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    for (uint start = 0; start < n; start += TILE) {
        tile_a[threadIdx.y][threadIdx.x] = a[y * n + start + threadIdx.x];
        tile_b[threadIdx.y][threadIdx.x] = b[(start + threadIdx.y) * n + x];
        __syncthreads();
        for (uint i = 0; i < TILE; ++i) {
            sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];
        }
        __syncthreads();
    }
    c[y * n + x] = sum;
}

extern "C" __global__ void reduce_tree(const float* input, float* sums)
{
    __shared__ float partial[256];
    uint local = threadIdx.x;
    partial[local] = input[blockIdx.x * blockDim.x + local];
    __syncthreads();
    for (uint step = blockDim.x / 2; step > 0; step /= 2) {
        if (local < step) {
            partial[local] += partial[local + step];
        }
        __syncthreads();
    }
    if (local == 0) {
        sums[blockIdx.x] = partial[0];
    }
}

__device__ float warp_sum(float value)
{
    for (uint step = 16; step > 0; step /= 2) {
        value += __shfl_xor_sync(ALL, value, step);
    }
    return value;
}

__device__ float warp_max(float value)
{
    for (uint step = 16; step > 0; step /= 2) {
        value = fmaxf(value, __shfl_xor_sync(ALL, value, step));
    }
    return value;
}

extern "C" __global__ void reduce_simd(const float* input, float* sums)
{
    __shared__ float partial[32];
    uint lane = threadIdx.x % 32;
    uint warp = threadIdx.x / 32;
    uint warps = blockDim.x / 32;
    float sum = warp_sum(input[blockIdx.x * blockDim.x + threadIdx.x]);
    if (lane == 0) {
        partial[warp] = sum;
    }
    __syncthreads();
    if (warp == 0) {
        sum = warp_sum(lane < warps ? partial[lane] : 0.0f);
        if (lane == 0) {
            sums[blockIdx.x] = sum;
        }
    }
}

extern "C" __global__ void softmax(const float* input, float* out, uint n)
{
    __shared__ float partial[32];
    uint local = threadIdx.x;
    uint size = blockDim.x;
    uint lane = local % 32;
    uint warp = local / 32;
    uint warps = size / 32;
    const float* from = input + blockIdx.x * n;
    float* to = out + blockIdx.x * n;

    float highest = -__int_as_float(0x7f800000);
    for (uint i = local; i < n; i += size) {
        highest = fmaxf(highest, from[i]);
    }
    highest = warp_max(highest);
    if (lane == 0) {
        partial[warp] = highest;
    }
    __syncthreads();
    highest = warp_max(lane < warps ? partial[lane] : -__int_as_float(0x7f800000));
    __syncthreads();

    float sum = 0.0f;
    for (uint i = local; i < n; i += size) {
        float value = expf(from[i] - highest);
        to[i] = value;
        sum += value;
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        partial[warp] = sum;
    }
    __syncthreads();
    sum = warp_sum(lane < warps ? partial[lane] : 0.0f);

    float factor = 1.0f / sum;
    for (uint i = local; i < n; i += size) {
        to[i] *= factor;
    }
}

extern "C" __global__ void histogram_device(const uchar* data, uint* bins)
{
    atomicAdd(&bins[data[blockIdx.x * blockDim.x + threadIdx.x]], 1u);
}

#define PER_THREAD 16

extern "C" __global__ void histogram_threadgroup(const uchar* data, uint* bins)
{
    __shared__ uint counts[256];
    uint local = threadIdx.x;
    uint size = blockDim.x;
    for (uint i = local; i < 256; i += size) {
        counts[i] = 0;
    }
    __syncthreads();
    uint start = blockIdx.x * size * PER_THREAD + local;
    for (uint i = 0; i < PER_THREAD; ++i) {
        atomicAdd(&counts[data[start + i * size]], 1u);
    }
    __syncthreads();
    for (uint i = local; i < 256; i += size) {
        uint count = counts[i];
        if (count > 0) {
            atomicAdd(&bins[i], count);
        }
    }
}

#define SIDE 32
#define ROWS 8

extern "C" __global__ void transpose(const float* input, float* out, uint n)
{
    __shared__ float tile[SIDE][SIDE + 1];
    uint x = blockIdx.x * SIDE + threadIdx.x;
    uint y = blockIdx.y * SIDE + threadIdx.y;
    for (uint row = 0; row < SIDE; row += ROWS) {
        tile[threadIdx.y + row][threadIdx.x] = input[(y + row) * n + x];
    }
    __syncthreads();
    x = blockIdx.y * SIDE + threadIdx.x;
    y = blockIdx.x * SIDE + threadIdx.y;
    for (uint row = 0; row < SIDE; row += ROWS) {
        out[(y + row) * n + x] = tile[threadIdx.x][threadIdx.y + row];
    }
}

extern "C" __global__ void stencil3d(const float* input, float* out, uint n)
{
    uint x = blockIdx.x * blockDim.x + threadIdx.x;
    uint y = blockIdx.y * blockDim.y + threadIdx.y;
    uint z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x == 0 || y == 0 || z == 0 || x >= n - 1 || y >= n - 1 || z >= n - 1) {
        return;
    }
    uint at = (z * n + y) * n + x;
    float around = input[at - 1] + input[at + 1] + input[at - n] + input[at + n] + input[at - n * n]
                 + input[at + n * n];
    out[at] = 0.5f * input[at] + 0.0625f * around;
}

extern "C" __global__ void nbody(const float4* bodies, float4* accelerations, uint n, float softening)
{
    uint id = blockIdx.x * blockDim.x + threadIdx.x;
    float4 here = bodies[id];
    float3 sum = make_float3(0.0f, 0.0f, 0.0f);
    for (uint i = 0; i < n; ++i) {
        float4 other = bodies[i];
        float3 way = make_float3(other.x - here.x, other.y - here.y, other.z - here.z);
        float inverse = rsqrtf(way.x * way.x + way.y * way.y + way.z * way.z + softening);
        float weight = other.w * inverse * inverse * inverse;
        sum.x += way.x * weight;
        sum.y += way.y * weight;
        sum.z += way.z * weight;
    }
    accelerations[id] = make_float4(sum.x, sum.y, sum.z, 0.0f);
}

extern "C" __global__ void empty()
{
}

// What the card can do at most: products and sums in registers. Nothing is ever written.

extern "C" __global__ void peak_float(float* out, uint steps)
{
    float sums[16];
    for (uint i = 0; i < 16; ++i) {
        sums[i] = threadIdx.x + i;
    }
    float by = 1.0f + 1e-7f * threadIdx.x;
    for (uint step = 0; step < steps; ++step) {
        #pragma unroll
        for (uint i = 0; i < 16; ++i) {
            sums[i] = sums[i] * by + by;
        }
    }
    float sum = 0.0f;
    for (uint i = 0; i < 16; ++i) {
        sum += sums[i];
    }
    if (sum == -1.0f) {
        *out = sum;
    }
}

// Eight chains of products of tensor cores, each of a 16x16 and a 16x8 matrix of halves.
extern "C" __global__ void peak_half(float* out, uint steps)
{
    float sums[8][4] = {};
    uint a = 0x3c003c00u + threadIdx.x;
    for (uint step = 0; step < steps; ++step) {
        #pragma unroll
        for (uint i = 0; i < 8; ++i) {
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, "
                         "{%4, %4}, {%0, %1, %2, %3};"
                         : "+f"(sums[i][0]), "+f"(sums[i][1]), "+f"(sums[i][2]), "+f"(sums[i][3]) : "r"(a));
        }
    }
    float sum = 0.0f;
    for (uint i = 0; i < 8; ++i) {
        sum += sums[i][0] + sums[i][1] + sums[i][2] + sums[i][3];
    }
    if (sum == -1.0f) {
        *out = sum;
    }
}
