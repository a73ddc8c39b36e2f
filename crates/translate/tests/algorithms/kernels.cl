// Algorithms of many kinds in OpenCL C: each kernel takes words, gives words, and knows how many there are.

__kernel void spmv(__global const uint *in, __global uint *out, uint n) {
    const size_t row = get_global_id(0);
    if (row >= n) return;
    __global const uint *offsets = in;
    const uint count = offsets[n];
    __global const uint *columns = in + n + 1, *values = columns + count, *x = values + count;
    uint sum = 0;
    for (uint k = offsets[row]; k < offsets[row + 1]; ++k) sum = mad24(values[k] & 0xffff, x[columns[k]] & 0xff, sum);
    out[row] = sum;
}

#define SLOTS 512
static inline uint slot_of(uint key) { return (key * 2654435761u) >> 23; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1))) void table(__global const uint *in, __global uint *out, uint n) {
    __local volatile uint keys[SLOTS], counts[SLOTS];
    const uint lid = get_local_id(0);
    for (uint i = lid; i < SLOTS; i += get_local_size(0)) { keys[i] = UINT_MAX; counts[i] = 0; }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = lid; i < n; i += get_local_size(0)) {
        uint at = slot_of(in[i]);
        for (;;) {
            uint old = atomic_cmpxchg(&keys[at], UINT_MAX, in[i]);
            if (old == UINT_MAX || old == in[i]) break;
            at = (at + 1) % SLOTS;
        }
        atomic_inc(counts + at);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = lid; i < n; i += get_local_size(0)) {
        uint at = slot_of(in[i]);
        while (keys[at] != in[i]) at = (at + 1) & (SLOTS - 1);
        out[i] = counts[at];
    }
}

typedef struct { uint4 state; uint weyl; } Rng;
static uint next_random(Rng *rng) {
    uint t = rng->state.w;
    rng->state.yzw = rng->state.xyz;
    t ^= t >> 2;
    t ^= t << 1;
    t ^= rng->state.y ^ (rng->state.y << 4);
    rng->state.x = t;
    return t + (rng->weyl += 362437u);
}
__kernel void rng(__global const uint *in, __global uint *out, uint n) {
    uint i = get_global_id(0);
    Rng own = { (uint4)(in[i], 2u, 3u, i), i };
    uint last = 0;
    for (int k = 0; k < 100; k++) last ^= next_random(&own);
    out[i] = last;
}

__constant char pattern[] = "abcab";
__kernel void search(__global const uchar *in, __global uint *out, uint n) {
    int i = get_global_id(0), j = 0;
    const int length = sizeof(pattern) - 1, total = (int)n;
    while (j < length && i + j < total && in[i + j] == pattern[j]) ++j;
    if (i < total) out[i] = j == length;
}

__kernel void lcs(__global const uchar *in, __global uint *out, uint n) {
    __local uint lines[3][65];
    uint row = get_local_id(0), *mine;
    __local uint *before = lines[0], *last = lines[1], *now = lines[2];
    for (int k = 0; k < 3; k++) { lines[k][row] = 0; if (row == 0) lines[k][64] = 0; }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint diagonal = 0; diagonal < 127; diagonal++) {
        int column = (int)diagonal - (int)row;
        if (column >= 0 && column < 64) {
            uint best = max(row ? last[row - 1] : 0u, column ? last[row] : 0u);
            if (in[row] == in[64 + column]) best = (row && column ? before[row - 1] : 0u) + 1u;
            now[row] = best;
            if (column == 63) out[row] = best;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        __local uint *free = before; before = last; last = now; now = free;
    }
}

static int pixel(__global const uchar *image, int2 size, int2 at) {
    at = clamp(at, (int2)(0), size - 1);
    return image[at.y * size.x + at.x];
}
__kernel void sobel(__global const uchar *in, __global uint *out, uint n) {
    int2 size = (int2)(n, 32), at = (int2)(get_global_id(0) % n, get_global_id(0) / n);
    int gx = 0, gy = 0;
    for (int d = -1; d <= 1; ++d) {
        int weight = d ? 1 : 2;
        gx += weight * (pixel(in, size, at + (int2)(1, d)) - pixel(in, size, at + (int2)(-1, d)));
        gy += weight * (pixel(in, size, at + (int2)(d, 1)) - pixel(in, size, at + (int2)(d, -1)));
    }
    out[get_global_id(0)] = convert_uchar_sat(abs(gx) + abs(gy));
}

__kernel void scan(__global const uint *in, __global uint *out, uint n) {
    __local uint temp[128];
    uint lid = get_local_id(0), base = get_group_id(0) * 128, offset = 1;
    temp[2 * lid] = in[base + 2 * lid];
    temp[2 * lid + 1] = in[base + 2 * lid + 1];
    for (uint d = 64; d > 0; d >>= 1) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid < d) temp[offset * (2 * lid + 2) - 1] += temp[offset * (2 * lid + 1) - 1];
        offset *= 2;
    }
    if (!lid) temp[127] = 0;
    for (uint d = 1; d < 128; d *= 2) {
        offset >>= 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid < d) {
            uint a = offset * (2 * lid + 1) - 1, b = a + offset, t = temp[a];
            temp[a] = temp[b];
            temp[b] += t;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    vstore2(vload2(lid, temp), lid, out + base);
}

__kernel void bitonic(__global const uint *in, __global uint *out, uint n) {
    __local uint data[64];
    uint i = get_local_id(0), g = get_global_id(0);
    data[i] = in[g];
    for (uint k = 2; k <= 64; k <<= 1)
        for (uint j = k >> 1, partner; j; j >>= 1) {
            barrier(CLK_LOCAL_MEM_FENCE);
            if ((partner = i ^ j) > i && (data[i] > data[partner]) == !(i & k)) {
                uint t = data[i]; data[i] = data[partner]; data[partner] = t;
            }
        }
    barrier(CLK_LOCAL_MEM_FENCE);
    out[g] = data[i];
}

__kernel void histogram(__global const uchar4 *in, __global uint *out, uint n) {
    __local uint bins[256];
    for (uint i = get_local_id(0); i < 256; i += get_local_size(0)) bins[i] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_global_id(0); i < n; i += get_global_size(0)) {
        uchar4 p = in[i];
        atomic_inc(&bins[p.x]); atomic_inc(&bins[p.s1]); atomic_inc(&bins[p.hi.x]); atomic_inc(&bins[p.odd.y]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = get_local_id(0); i < 256; i += get_local_size(0))
        if (bins[i]) atomic_add(&out[i], bins[i]);
}

__kernel void life(__global const uint *in, __global uint *out, uint n) {
    uint y = get_global_id(0), low = 0, high = 0, four = 0;
    for (int dy = -1; dy <= 1; dy++) {
        uint row = in[(y + dy + n) % n];
        uint parts[3] = { rotate(row, 1u), row, rotate(row, 31u) };
        for (int k = 0; k < 3; k++) {
            if (dy == 0 && k == 1) continue;
            uint carry = low & parts[k];
            low ^= parts[k];
            four |= high & carry;
            high ^= carry;
        }
    }
    out[y] = ~four & high & (low | in[y]);
}

__kernel void crc(__global const uchar *in, __global uint *out, uint n) {
    uint i = get_global_id(0), crc = ~0u;
    for (__global const uchar *p = in + 16 * i, *end = p + 16; p != end; ++p) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ (0xedb88320 & -(crc & 1));
    }
    out[i] = ~crc;
}

#define QUARTER(a, b, c, d) \
    a += b; d = rotate(d ^ a, 16u); c += d; b = rotate(b ^ c, 12u); a += b; d = rotate(d ^ a, 8u); c += d; b = rotate(b ^ c, 7u)
__kernel void chacha(__global const uint *in, __global uint16 *out, uint n) {
    uint16 start = (uint16)(0x61707865u, 0x3320646eu, 0x79622d32u, 0x6b206574u, vload8(0, in), get_global_id(0), vload3(0, in + 8));
    uint16 x = start;
    for (int i = 0; i < 10; i++) {
        QUARTER(x.s0, x.s4, x.s8, x.sc); QUARTER(x.s1, x.s5, x.s9, x.sd); QUARTER(x.s2, x.s6, x.sa, x.se); QUARTER(x.s3, x.s7, x.sb, x.sf);
        QUARTER(x.s0, x.s5, x.sa, x.sf); QUARTER(x.s1, x.s6, x.sb, x.sc); QUARTER(x.s2, x.s7, x.s8, x.sd); QUARTER(x.s3, x.s4, x.s9, x.se);
    }
    out[get_global_id(0)] = x + start;
}

__kernel void floyd(__global const uint *in, __global uint *out, uint n) {
    __local uint d[8][8];
    uint x = get_local_id(0) % 8, y = get_local_id(0) / 8;
    d[y][x] = in[8 * y + x];
    for (uint k = 0; k < 8; k++) {
        barrier(CLK_LOCAL_MEM_FENCE);
        uint way = add_sat(d[y][k], d[k][x]);
        barrier(CLK_LOCAL_MEM_FENCE);
        d[y][x] = min(d[y][x], way);
    }
    out[8 * y + x] = d[y][x];
}

__constant uchar alphabet[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
__kernel void base64(__global const uchar *in, __global uint *out, uint n) {
    uint i = get_global_id(0);
    uchar3 p = vload3(i, in);
    uint word = p.x << 16 | p.y << 8 | p.z;
    out[i] = as_uint((uchar4)(alphabet[word >> 18], alphabet[word >> 12 & 63], alphabet[word >> 6 & 63], alphabet[word & 63]));
}

__kernel void mandelbrot(__global const uint *in, __global uint *out, uint n) {
    int cx = (int)(get_global_id(0) % n) * 96 - 8192, cy = (int)(get_global_id(0) / n) * 192 - 3072, x = 0, y = 0;
    uint count = 0;
    do {
        int next = ((x * x - y * y) >> 12) + cx;
        y = ((x * y) >> 11) + cy;
        x = next;
    } while (count++ < 50 && (uint)(x * x) + (uint)(y * y) < 4u << 24);
    out[get_global_id(0)] = count;
}
