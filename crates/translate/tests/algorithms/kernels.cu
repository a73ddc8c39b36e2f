// Algorithms of many kinds in CUDA C++: each kernel takes words, gives words, and knows how many there are.
#include <cstdint>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)

struct Csr {
    const uint32_t *offsets, *columns, *values, *x;
    __device__ Csr(const uint32_t *in, uint32_t n)
        : offsets(in), columns(in + n + 1), values(columns + in[n]), x(values + in[n]) {}
};
extern "C" __global__ void spmv(const uint32_t *__restrict__ in, uint32_t *__restrict__ out, uint32_t n) {
    unsigned row = GLOBAL_ID;
    if (row >= n) return;
    Csr m(in, n);
    uint32_t sum{};
    for (auto k = __ldg(m.offsets + row), end = __ldg(m.offsets + row + 1); k != end; k++) sum += m.values[k] * m.x[m.columns[k]];
    out[row] = sum;
}

template <unsigned Slots> struct Counter {
    unsigned keys[Slots], counts[Slots];
    static constexpr unsigned Empty = ~0u;
    __device__ void clear() { for (unsigned i = threadIdx.x; i < Slots; i += blockDim.x) keys[i] = Empty, counts[i] = 0; }
    __device__ static unsigned slot(unsigned key) { return key * 2654435761u % Slots; }
    __device__ void add(unsigned key) {
        unsigned at = slot(key);
        for (unsigned old; (old = atomicCAS(&keys[at], Empty, key)) != Empty && old != key;) at = (at + 1) % Slots;
        atomicAdd(&counts[at], 1);
    }
    __device__ unsigned get(unsigned key) const {
        unsigned at = slot(key);
        while (keys[at] != key) at = (at + 1) % Slots;
        return counts[at];
    }
};
extern "C" __global__ void table(const unsigned *in, unsigned *out, unsigned n) {
    __shared__ Counter<512> counter;
    counter.clear();
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) counter.add(in[i]);
    __syncthreads();
    for (unsigned i = threadIdx.x; i < n; i += blockDim.x) out[i] = counter.get(in[i]);
}

class XorWow {
    unsigned s[4], weyl;
public:
    __device__ XorWow(unsigned seed, unsigned i) : s{seed, 2, 3, i}, weyl(i) {}
    __device__ unsigned operator()() {
        unsigned t = s[3];
        s[3] = s[2]; s[2] = s[1]; s[1] = s[0];
        t ^= t >> 2;
        t ^= t << 1;
        t ^= s[1] ^ (s[1] << 4);
        s[0] = t;
        return t + (weyl += 362437);
    }
};
extern "C" __global__ void rng(const unsigned *in, unsigned *out, unsigned) {
    XorWow next(in[GLOBAL_ID], GLOBAL_ID);
    unsigned last = 0;
#pragma unroll 4
    for (int k = 0; k < 100; ++k) last ^= next();
    out[GLOBAL_ID] = last;
}

__constant__ char pattern[6] = "abcab";
extern "C" __global__ void search(const unsigned char *in, unsigned *out, unsigned n) {
    int i = GLOBAL_ID, j = 0;
    while (j < 5 && i + j < (int)n && in[i + j] == pattern[j]) j++;
    if (i < (int)n) out[i] = j == 5;
}

extern "C" __global__ void lcs(const unsigned char *in, unsigned *out, unsigned n) {
    __shared__ unsigned ring[3 * 64];
    unsigned row = threadIdx.x, *before = ring, *last = ring + 64, *now = ring + 128;
    before[row] = last[row] = now[row] = 0;
    __syncthreads();
    for (int diagonal = 0; diagonal < 127; diagonal++) {
        int column = diagonal - (int)row;
        if (column >= 0 && column < 64) {
            unsigned best = max(row ? last[row - 1] : 0u, column ? last[row] : 0u);
            if (in[row] == in[64 + column]) best = (row && column ? before[row - 1] : 0u) + 1;
            now[row] = best;
            if (column == 63) out[row] = best;
        }
        __syncthreads();
        unsigned *free = before; before = last; last = now; now = free;
    }
}

__device__ __forceinline__ int pixel(const unsigned char *image, int2 size, int x, int y) {
    return image[min(max(y, 0), size.y - 1) * size.x + min(max(x, 0), size.x - 1)];
}
extern "C" __global__ void sobel(const unsigned char *in, unsigned *out, unsigned n) {
    const int2 size = make_int2(n, 32);
    int x = GLOBAL_ID % n, y = GLOBAL_ID / n, gx = 0, gy = 0;
    const int weights[] = {1, 2, 1};
#pragma unroll
    for (int d = -1; d <= 1; ++d) {
        gx += weights[d + 1] * (pixel(in, size, x + 1, y + d) - pixel(in, size, x - 1, y + d));
        gy += weights[d + 1] * (pixel(in, size, x + d, y + 1) - pixel(in, size, x + d, y - 1));
    }
    out[GLOBAL_ID] = min(abs(gx) + abs(gy), 255);
}

__device__ unsigned warp_scan(unsigned value) {
    for (int d = 1; d < warpSize; d <<= 1) {
        unsigned other = __shfl_up_sync(0xffffffff, value, d);
        if ((threadIdx.x & 31) >= d) value += other;
    }
    return value;
}
extern "C" __global__ void scan(const uint2 *in, uint2 *out, unsigned n) {
    __shared__ unsigned sums[2];
    uint2 pair = in[GLOBAL_ID];
    unsigned inclusive = warp_scan(pair.x + pair.y);
    if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = inclusive;
    __syncthreads();
    if (threadIdx.x >= 32) inclusive += sums[0];
    unsigned first = inclusive - pair.x - pair.y;
    out[GLOBAL_ID] = {first, first + pair.x};
}

template <class T> __device__ void exchange(T &a, T &b) { T t = a; a = b; b = t; }
extern "C" __global__ __launch_bounds__(64) void bitonic(const unsigned *in, unsigned *out, unsigned n) {
    __shared__ unsigned data[64];
    auto block = cg::this_thread_block();
    const unsigned i = block.thread_rank();
    data[i] = in[GLOBAL_ID];
    for (unsigned k = 2; k <= 64; k *= 2)
        for (unsigned j = k / 2; j > 0; j /= 2) {
            block.sync();
            unsigned partner = i ^ j;
            if (partner > i && (data[i] > data[partner]) == !(i & k)) exchange(data[i], data[partner]);
        }
    block.sync();
    out[GLOBAL_ID] = data[i];
}

extern "C" __global__ void histogram(const uchar4 *in, unsigned *out, unsigned n) {
    __shared__ unsigned bins[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) bins[i] = 0;
    __syncthreads();
    for (unsigned i = GLOBAL_ID; i < n; i += gridDim.x * blockDim.x) {
        const uchar4 p = in[i];
        atomicAdd(bins + p.x, 1u); atomicAdd(bins + p.y, 1u); atomicAdd(&bins[p.z], 1u); atomicInc(&bins[p.w], ~0u);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(out + i, bins[i]);
}

extern "C" __global__ void life(const unsigned *in, unsigned *out, unsigned n) {
    unsigned y = GLOBAL_ID, low = 0, high = 0, four = 0;
    auto add = [&](unsigned part) {
        unsigned carry = low & part;
        low ^= part;
        four |= high & carry;
        high ^= carry;
    };
    for (int dy = -1; dy <= 1; dy++) {
        unsigned row = in[(y + dy + n) % n];
        add(__funnelshift_l(row, row, 1));
        if (dy) add(row);
        add(__funnelshift_r(row, row, 1));
    }
    out[y] = ~four & high & (low | in[y]);
}

extern "C" __global__ void crc(const uint4 *in, unsigned *out, unsigned n) {
    uint4 block = in[GLOBAL_ID];
    const unsigned words[4] = {block.x, block.y, block.z, block.w};
    unsigned crc = 0xffffffffu;
    for (unsigned word : words)
        for (int byte = 0; byte < 4; byte++) {
            crc ^= __byte_perm(word, 0, 0x4440 + byte);
            for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
        }
    out[GLOBAL_ID] = ~crc;
}

template <int N> __device__ uint32_t rotl(uint32_t x) { return (x << N) | (x >> (32 - N)); }
__device__ void quarter(uint32_t (&x)[16], int a, int b, int c, int d) {
    x[a] += x[b]; x[d] = rotl<16>(x[d] ^ x[a]); x[c] += x[d]; x[b] = rotl<12>(x[b] ^ x[c]);
    x[a] += x[b]; x[d] = rotl<8>(x[d] ^ x[a]); x[c] += x[d]; x[b] = rotl<7>(x[b] ^ x[c]);
}
extern "C" __global__ void chacha(const uint32_t *in, uint32_t *out, uint32_t n) {
    uint32_t start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574}, x[16];
    for (int i = 0; i < 8; i++) start[4 + i] = in[i];
    start[12] = GLOBAL_ID;
    for (int i = 0; i < 3; i++) start[13 + i] = in[8 + i];
    for (int i = 0; i < 16; i++) x[i] = start[i];
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 4; k++) quarter(x, k, 4 + k, 8 + k, 12 + k);
        for (int k = 0; k < 4; k++) quarter(x, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4);
    }
    for (int i = 0; i < 16; i++) out[16 * GLOBAL_ID + i] = x[i] + start[i];
}

extern "C" __global__ void floyd(const unsigned *in, unsigned *out, unsigned n) {
    __shared__ unsigned d[8][8 + 1];
    unsigned x = threadIdx.x & 7, y = threadIdx.x >> 3;
    d[y][x] = in[8 * y + x];
    for (int k = 0; k < 8; k++) {
        __syncthreads();
        unsigned long long way = (unsigned long long)d[y][k] + d[k][x];
        __syncthreads();
        if (way < d[y][x]) d[y][x] = (unsigned)way;
    }
    out[8 * y + x] = d[y][x];
}

static __constant__ unsigned char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
extern "C" __global__ void base64(const uchar3 *in, uchar4 *out, unsigned n) {
    uchar3 p = in[GLOBAL_ID];
    unsigned word = p.x << 16 | p.y << 8 | p.z;
    out[GLOBAL_ID] = make_uchar4(alphabet[word >> 18], alphabet[word >> 12 & 63], alphabet[word >> 6 & 63], alphabet[word & 63]);
}

extern "C" __global__ void mandelbrot(const unsigned *, unsigned *out, unsigned n) {
    int cx = (int)(GLOBAL_ID % n) * 96 - 8192, cy = (int)(GLOBAL_ID / n) * 192 - 3072;
    int2 z{};
    unsigned count = 0;
    do {
        z = make_int2(((z.x * z.x - z.y * z.y) >> 12) + cx, ((z.x * z.y) >> 11) + cy);
    } while (count++ < 50 && unsigned(z.x * z.x) + unsigned(z.y * z.y) < 4u << 24);
    out[GLOBAL_ID] = count;
}
