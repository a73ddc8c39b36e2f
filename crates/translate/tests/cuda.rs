//! Kernels in CUDA C++: their translations compute what is computed here.
#![allow(unsafe_code)] // a launch is unsafe: the kernel must stay within its arguments' bounds

use elinvar::{Args, Buffer, Device, Grid, Kernel, Source, Threadgroup, bf16, f16};
use elinvar_msl::Toolchain;
use elinvar_translate::{CudaOptions, Translation};

fn translated(text: &str, options: &CudaOptions) -> Translation {
    let source = elinvar_driver::Source::named("test.cu", text);
    let translation = elinvar_translate::cuda(&Toolchain::find().expect("clang"), &source, options);
    let translation = translation.unwrap_or_else(|error| panic!("{error}"));
    assert!(translation.errors.is_empty(), "{:#?}", translation.errors);
    translation
}

struct Program {
    device: Device,
    library: elinvar::Library,
    msl: String,
}

fn program(text: &str) -> Program {
    let translation = translated(text, &CudaOptions::default());
    let device = Device::cpu().expect("a CPU");
    let source = Source::named("test.metal", translation.msl.as_str()).check_spaces();
    let library = device.compile(source).unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    assert!(library.warnings().is_empty(), "{:?}\n{}", library.warnings(), translation.msl);
    Program { device, library, msl: translation.msl }
}

impl Program {
    fn kernel(&self, name: &str) -> Kernel {
        self.library.kernel(name).unwrap_or_else(|error| panic!("{error}\n{}", self.msl))
    }

    fn run(&self, name: &str, groups: (u32, u32, u32), group: u32, args: impl Args) {
        let stream = self.device.stream().expect("a stream");
        let grid =
            Grid::groups((groups.0 as usize, groups.1 as usize, groups.2 as usize)).group(group as usize);
        // SAFETY: the tests' kernels stay within their arguments.
        let done = unsafe { self.kernel(name).launch(&stream, grid, args) };
        done.and_then(|done| done.wait()).unwrap_or_else(|error| panic!("{error}\n{}", self.msl));
    }

    fn buffer<T: elinvar::Pod>(&self, values: &[T]) -> Buffer<T> {
        self.device.buffer_with_data(values).expect("memory")
    }
}

/// Numbers without a pattern, small enough that their sums are exact in `float`.
fn numbers(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| ((i.wrapping_mul(2_654_435_761) >> 20) % 513) as f32 - 256.0).collect()
}

#[test]
fn positions_and_templates() {
    let text = "
template <typename T, int N> __device__ __forceinline__ T times(T x) { return x * N; }
__device__ int place(dim3 size) {
    return (blockIdx.y * gridDim.x + blockIdx.x) * size.x + threadIdx.x;
}
// Writes N times its index.
template <typename T, int N> __global__ void fill(T *out, int n) {
    int i = place(blockDim);
    if (i < n) out[i] = times<T, N>((T)i);
}
template __global__ void fill<float, 3>(float *, int);
template __global__ void fill<unsigned long long, 5>(unsigned long long *, int);
void start(short *p) { fill<short, -7><<<1, 1>>>(p, 1); }";
    let program = program(text);
    let mut floats = program.buffer(&[9.0f32; 26]);
    program.run("fill_float_3", (3, 2, 1), 4, (&mut floats, 23i32));
    let expected: Vec<f32> = (0..26).map(|i| if i < 23 { 3.0 * i as f32 } else { 9.0 }).collect();
    assert_eq!(floats.to_vec().unwrap(), expected);
    let mut longs = program.buffer(&[0u64; 8]);
    program.run("fill_ulong_long_5", (2, 1, 1), 4, (&mut longs, 8i32));
    assert_eq!(longs.to_vec().unwrap(), (0..8).map(|i| 5 * i).collect::<Vec<u64>>());
    let mut shorts = program.buffer(&[0i16; 8]);
    program.run("fill_short_m7", (2, 1, 1), 4, (&mut shorts, 8i32));
    assert_eq!(shorts.to_vec().unwrap(), (0..8).map(|i| -7 * i).collect::<Vec<i16>>());
}

#[test]
fn shared_memory_in_functions_and_of_the_launch() {
    let text = "
template <class T> __device__ T block_sum(T x) {
    __shared__ T part[32];
    for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_down_sync(0xffffffff, x, offset);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = x;
    __syncthreads();
    x = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : T(0);
    if (threadIdx.x < 32) for (int mask = 16; mask > 0; mask >>= 1) x += __shfl_xor_sync(~0u, x, mask);
    __syncthreads();
    return x;
}
extern \"C\" __global__ void sums(const float *in, float *out, int *count) {
    extern __shared__ float copy[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    copy[threadIdx.x] = in[i];
    __syncthreads();
    float mirrored = copy[blockDim.x - 1 - threadIdx.x];
    float total = block_sum(mirrored);
    int positive = __syncthreads_count(mirrored > 0.0f);
    int any = __syncthreads_or(mirrored > 250.0f), all = __syncthreads_and(mirrored > -300.0f);
    float index = block_sum(threadIdx.x * mirrored);
    if (threadIdx.x == 0) {
        out[2 * blockIdx.x] = total; out[2 * blockIdx.x + 1] = index;
        count[3 * blockIdx.x] = positive; count[3 * blockIdx.x + 1] = any; count[3 * blockIdx.x + 2] = all;
    }
}";
    let program = program(text);
    let input = numbers(3 * 128);
    let (data, mut out, mut count) =
        (program.buffer(&input), program.buffer(&[0f32; 6]), program.buffer(&[0i32; 9]));
    program.run("sums", (3, 1, 1), 128, (&data, &mut out, &mut count, Threadgroup::bytes(512)));
    let (out, count) = (out.to_vec().unwrap(), count.to_vec().unwrap());
    for (block, values) in input.chunks(128).enumerate() {
        assert_eq!(out[2 * block], values.iter().sum::<f32>());
        let index: f32 = values.iter().rev().enumerate().map(|(i, x)| i as f32 * x).sum();
        assert_eq!(out[2 * block + 1], index);
        assert_eq!(count[3 * block], values.iter().filter(|x| **x > 0.0).count() as i32);
        assert_eq!(count[3 * block + 1], i32::from(values.iter().any(|x| *x > 250.0)));
        assert_eq!(count[3 * block + 2], 1);
    }
}

#[test]
fn warps_with_masks_and_widths() {
    let text = "
__global__ void warps(const int *in, int *out) {
    int i = threadIdx.x, x = in[i];
    int *o = out + 16 * i;
    o[0] = __shfl_sync(0xffffffff, x, 35);
    o[1] = __shfl_sync(0xffffffff, x, 3, 8);
    o[2] = __shfl_up_sync(0xffffffff, x, 3);
    o[3] = __shfl_up_sync(0xffffffff, x, 3, 16);
    o[4] = __shfl_down_sync(0xffffffff, x, 5, 8);
    o[5] = __shfl_xor_sync(0xffffffff, x, 9);
    o[6] = (int)__ballot_sync(0xffffffff, x > 0);
    o[7] = __any_sync(0xffffffff, x == 7) + 2 * __all_sync(0xffffffff, x < 1000);
    o[8] = (int)__activemask();
    if (i % 32 < 8) o[9] = (int)__ballot_sync(0xff, x > 0) + __popc(0xf0f0u) + __clz(1000) + __ffs(48) + (int)__brev(1u);
    o[10] = (int)__match_any_sync(0xffffffff, x % 3);
    o[11] = __reduce_max_sync(0xffffffff, x);
    o[12] = (int)(__shfl_sync(0xffffffff, (long long)x << 33, 1) >> 33);
    __syncwarp();
    o[13] = (int)__byte_perm(0x33221100, 0x77665544, 0x7250);
    o[14] = __mulhi(x << 20, 3000);
    o[15] = (int)__funnelshift_l(0x80000001u, 7u, 1);
}";
    let program = program(text);
    let input: Vec<i32> = (0..64).map(|i| (i * 37) % 101 - 50).collect();
    let (data, mut out) = (program.buffer(&input), program.buffer(&[0i32; 64 * 16]));
    program.run("warps", (1, 1, 1), 64, (&data, &mut out));
    let out = out.to_vec().unwrap();
    for i in 0..64 {
        let (warp, lane) = (i / 32 * 32, i % 32);
        let at = |lane: usize| input[warp + lane];
        let ballot: u32 = (0..32).filter(|k| at(*k) > 0).map(|k| 1 << k).sum();
        let values = &input[warp..warp + 32];
        let expected = [
            at(3),
            at(lane / 8 * 8 + 3),
            at(if lane >= 3 { lane - 3 } else { lane }),
            at(if lane % 16 >= 3 { lane - 3 } else { lane }),
            at(if lane % 8 + 5 < 8 { lane + 5 } else { lane }),
            at(lane ^ 9),
            ballot as i32,
            i32::from(values.contains(&7)) + 2,
            -1,
            if lane < 8 { ((ballot & 255) as i32 + 8 + 22 + 5).wrapping_add(i32::MIN) } else { 0 },
            (0..32).filter(|k| at(*k) % 3 == at(lane) % 3).fold(0u32, |mask, k| mask | 1 << k) as i32,
            *values.iter().max().unwrap(),
            at(1),
            0x7722_5500,
            ((i64::from(at(lane) << 20) * 3000) >> 32) as i32,
            15,
        ];
        assert_eq!(out[16 * i..16 * (i + 1)], expected, "thread {i}");
    }
}

#[test]
fn atomics_of_device_and_shared_memory() {
    let text = "
__device__ unsigned total;
__global__ void count(const unsigned *in, unsigned *bins, int *least, float *sum, __half *halves) {
    __shared__ unsigned own[8];
    __shared__ float part;
    __shared__ int most;
    unsigned x = in[blockIdx.x * blockDim.x + threadIdx.x];
    if (threadIdx.x < 8) own[threadIdx.x] = 0;
    if (threadIdx.x == 0) { part = 0; most = -1; }
    __syncthreads();
    atomicAdd(&own[x & 7], 1u);
    atomicAdd(&part, (float)(x & 15));
    atomicMax(&most, (int)(x & 0xffff));
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(bins + threadIdx.x, own[threadIdx.x]);
    if (threadIdx.x == 0) {
        atomicAdd(sum, part); atomicMax(least + 1, most); atomicExch(sum + 1, 2.5f);
        atomicInc(bins + 9, 2u); atomicDec(bins + 10, 5u); atomicCAS(bins + 11, 7u, 8u);
    }
    atomicMin(least, (int)(x & 0xffff)); atomicOr(bins + 8, x & 0x11u); atomicXor(bins + 12, x); atomicAnd(bins + 13, x | 0xffu);
    atomicSub(least + 2, 3);
    atomicAdd(&total, x & 1u);
    atomicAdd(halves + (x & 1u), (__half)1.0f);
}";
    let program = program(text);
    let input: Vec<u32> = (0..256u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> 3).collect();
    let data = program.buffer(&input);
    let mut bins = program.buffer(&[0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 7, 0, u32::MAX]);
    let (mut least, mut sum) = (program.buffer(&[70000i32, -5, 10]), program.buffer(&[1.0f32, 0.0]));
    let (mut halves, mut total) = (program.buffer(&[f16::from_f32(0.0); 2]), program.buffer(&[100u32]));
    program.run("count", (4, 1, 1), 64, (&data, &mut bins, &mut least, &mut sum, &mut halves, &mut total));
    let bins = bins.to_vec().unwrap();
    for (bin, found) in bins.iter().enumerate().take(8) {
        assert_eq!(*found as usize, input.iter().filter(|x| **x & 7 == bin as u32).count());
    }
    let low = || input.iter().map(|x| (x & 0xffff) as i32);
    assert_eq!(bins[8], input.iter().fold(0, |a, x| a | x & 0x11));
    // Wraps from 2 to 0, then counts 1, 2, 0; downward 5, 4, 3, 2.
    assert_eq!((bins[9], bins[10], bins[11]), (0, 2, 8));
    assert_eq!(bins[12], input.iter().fold(0, |a, x| a ^ x));
    assert_eq!(bins[13], input.iter().fold(u32::MAX, |a, x| a & (x | 0xff)));
    assert_eq!(least.to_vec().unwrap(), [low().min().unwrap(), low().max().unwrap(), 10 - 3 * 256]);
    assert_eq!(sum.to_vec().unwrap(), [1.0 + input.iter().map(|x| (x & 15) as f32).sum::<f32>(), 2.5]);
    let odd = input.iter().filter(|x| **x & 1 == 1).count();
    assert_eq!(total.to_vec().unwrap(), [100 + odd as u32]);
    let halves: Vec<f32> = halves.to_vec().unwrap().into_iter().map(f32::from).collect();
    assert_eq!(halves, [(256 - odd) as f32, odd as f32]);
}

#[test]
fn vectors_halves_and_structs() {
    let text = "
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Pair { float a; int b[2]; };
struct Complex {
    float re, im;
    __host__ __device__ Complex(float re, float im = 0) : re(re), im(im) {}
    __device__ Complex operator*(const Complex &o) const { return Complex(re * o.re - im * o.im, re * o.im + im * o.re); }
    __device__ Complex &operator+=(const Complex &o) { re += o.re; im += o.im; return *this; }
    __device__ float size() const { return re * re + im * im; }
};
struct Base { int kind; __device__ int doubled() const { return 2 * kind; } };
struct Derived : Base { int extra; __device__ int sum() const { return doubled() + extra; } };
__device__ float4 operator+(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }
__device__ void change(float &x, float *y) { x += 1.0f; *y *= 2.0f; }
extern \"C\" __global__ void __launch_bounds__(64) mixed(const float4 *in, float4 *out, float3 *three, Pair pair, __half *h, __nv_bfloat16 *b) {
    int i = threadIdx.x;
    float4 v = in[i] + in[i];
    change(v.x, &v.y);
    v.z = reinterpret_cast<const float *>(in)[4 * i + 2] * pair.b[1];
    Complex c(v.x, 1.0f), d = c * Complex(2.0f);
    d += c;
    pair.a += i;
    v.w = d.size() + pair.a;
    out[i] = v;
    Derived derived; derived.kind = i; derived.extra = 5;
    three[i] = make_float3(derived.sum(), v.x, 0.5 * v.x);
    h[i] = __hadd(h[i], __float2half(1.5f)) * __half(0.5);
    __half2 two = __halves2half2(h[i], h[i]);
    two = __hmul2(two, two);
    h[i] = __low2half(two);
    b[i] = b[i] * b[i] + (__nv_bfloat16)1.0f;
    auto twice = [&](float x) { return x + v.x; };
    three[i].z += twice(1.0f);
}";
    let program = program(text);
    let input: Vec<[f32; 4]> = numbers(64 * 4).chunks(4).map(|v| [v[0], v[1], v[2], v[3]]).collect();
    let data = program.buffer(input.as_flattened());
    let (mut out, mut three) = (program.buffer(&[0f32; 256]), program.buffer(&[0f32; 192]));
    let halves: Vec<f16> = (0..64).map(|i| f16::from_f32(i as f32 * 0.3)).collect();
    let bfloats: Vec<bf16> = (0..64).map(|i| bf16::from_f32(i as f32 * 0.3)).collect();
    let (mut h, mut b) = (program.buffer(&halves), program.buffer(&bfloats));
    let pair =
        elinvar::Arg::bytes([0.25f32.to_le_bytes(), 7i32.to_le_bytes(), (-3i32).to_le_bytes()].concat());
    program.run("mixed", (1, 1, 1), 64, (&data, &mut out, &mut three, pair, &mut h, &mut b));
    let (out, three) = (out.to_vec().unwrap(), three.to_vec().unwrap());
    let (h, b) = (h.to_vec().unwrap(), b.to_vec().unwrap());
    for i in 0..64 {
        let [x, y, z, _] = input[i];
        let x = 2.0 * x + 1.0;
        // (x + i) · 2 + (x + i) = 3 (x + i)
        let w = 9.0 * x * x + 9.0 + 0.25 + i as f32;
        assert_eq!(out[4 * i..4 * i + 4], [x, 4.0 * y, z * -3.0, w], "thread {i}");
        assert_eq!(three[3 * i..3 * i + 3], [(2 * i + 5) as f32, x, 0.5 * x + (1.0 + x)]);
        let half = f16::from_f32(f16::from_f32(halves[i].to_f32() + 1.5).to_f32() * 0.5);
        assert_eq!(h[i], f16::from_f32(half.to_f32() * half.to_f32()));
        let square = bf16::from_f32(bfloats[i].to_f32() * bfloats[i].to_f32());
        assert_eq!(b[i], bf16::from_f32(square.to_f32() + 1.0));
    }
}

#[test]
fn constants_branches_and_loops() {
    let text = "
#include <type_traits>
constexpr int N = 4;
const float scale = 0.25f;
__constant__ float weights[2][N];
static __device__ const int table[3] = {10, 20, 30};
enum Mode { Plain, Squared = 5, Cubed };
template <Mode mode, class T> __device__ T apply(T x) {
    if constexpr (mode == Squared) return x * x;
    else if constexpr (std::is_same<T, float>::value) return x * scale;
    else return x + 1;
}
template <class F> __device__ int each(const int (&values)[3], F f) {
    int sum = 0;
    for (int value : values) sum += f(value);
    return sum;
}
__global__ void everything(float *out, int *whole, unsigned n) {
    int i = threadIdx.x;
    float x = 0;
    for (int k = 0, j = 1; k < N; k++, j *= 2) {
        if (k == 1) continue;
        x += weights[i & 1][k] * j;
    }
    do { x += 1; } while (x < 0);
    while (n-- > 2) x *= 2;
    switch (i % 4) {
    case Plain: x = apply<Plain>(x); break;
    case 1: x = apply<Squared>(x);  // falls through
    case 2: x += 1; break;
    default: x = -x;
    }
    out[i] = x > 1e9 ? 0.0f : i == 3 ? 1.0f / 3 : x;
    whole[i] = each(table, [=](int v) { return v * i; }) + apply<Cubed>(i) + (int)sizeof(float2) + (i > 5 && i != 7);
}";
    let program = program(text);
    let weights: Vec<f32> = (1..=8).map(|i| i as f32).collect();
    let (mut out, mut whole) = (program.buffer(&[0f32; 8]), program.buffer(&[0i32; 8]));
    let constants = program.buffer(&weights);
    program.run("everything", (1, 1, 1), 8, (&mut out, &mut whole, 4u32, &constants));
    let (out, whole) = (out.to_vec().unwrap(), whole.to_vec().unwrap());
    for i in 0..8usize {
        let row = &weights[4 * (i & 1)..];
        let x = (row[0] + 4.0 * row[2] + 8.0 * row[3] + 1.0) * 4.0;
        let x = [x * 0.25, x * x + 1.0, x + 1.0, -x][i % 4];
        let x = if i == 3 { 1.0 / 3.0 } else { x };
        assert_eq!(out[i], x, "thread {i}");
        assert_eq!(whole[i], 60 * i as i32 + i as i32 + 1 + 8 + i32::from(i > 5 && i != 7));
    }
}

#[test]
fn cooperative_groups() {
    let text = "
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void groups(const int *in, int *out) {
    cg::thread_block block = cg::this_thread_block();
    auto tile = cg::tiled_partition<8>(block);
    int x = in[block.thread_rank()];
    int *o = out + 6 * block.thread_rank();
    o[0] = cg::reduce(tile, x, cg::plus<int>());
    o[1] = tile.shfl(x, 2) + tile.thread_rank() * 1000;
    o[2] = (int)tile.ballot(x > 0);
    o[3] = (int)(tile.meta_group_rank() * 100 + block.size());
    o[4] = cg::inclusive_scan(tile, x, cg::plus<int>());
    o[5] = 0;
    if (x > 0) { auto active = cg::coalesced_threads(); o[5] = active.thread_rank() * 100 + active.size(); }
    block.sync();
}
__global__ void steps(int *data, int *sums, int rounds) {
    cg::grid_group grid = cg::this_grid();
    unsigned i = grid.thread_rank(), n = grid.size();
    for (int r = 0; r < rounds; r++) {
        int next = data[(i + 1) % n];
        grid.sync();
        data[i] += next;
        grid.sync();
    }
    sums[i] = data[(i + n / 2) % n];
}";
    let program = program(text);
    let input: Vec<i32> = (0..64).map(|i| (i * 29) % 41 - 20).collect();
    let (data, mut out) = (program.buffer(&input), program.buffer(&[0i32; 64 * 6]));
    program.run("groups", (1, 1, 1), 64, (&data, &mut out));
    let out = out.to_vec().unwrap();
    for i in 0..64 {
        let tile = &input[i / 8 * 8..i / 8 * 8 + 8];
        let warp = &input[i / 32 * 32..i / 32 * 32 + 32];
        let active = |upto: usize| warp[..upto].iter().filter(|x| **x > 0).count() as i32;
        let expected = [
            tile.iter().sum(),
            tile[2] + (i % 8) as i32 * 1000,
            (0..8).filter(|k| tile[*k] > 0).map(|k| 1 << k).sum(),
            (i / 8 * 100 + 64) as i32,
            tile[..=i % 8].iter().sum(),
            if input[i] > 0 { active(i % 32) * 100 + active(32) } else { 0 },
        ];
        assert_eq!(out[6 * i..6 * i + 6], expected, "thread {i}");
    }
    let mut model: Vec<i32> = (0..128).collect();
    let (mut data, mut sums) = (program.buffer(&model), program.buffer(&[0i32; 128]));
    let stream = program.device.stream().unwrap();
    let grid = Grid::groups((4, 1, 1)).group(32);
    // SAFETY: each thread reads and writes elements of its arguments.
    let done =
        unsafe { program.kernel("steps").launch_cooperative(&stream, grid, (&mut data, &mut sums, 3i32)) };
    done.unwrap().wait().unwrap();
    for _ in 0..3 {
        model = (0..128).map(|i| model[i] + model[(i + 1) % 128]).collect();
    }
    assert_eq!(sums.to_vec().unwrap(), (0..128).map(|i| model[(i + 64) % 128]).collect::<Vec<_>>());
}

#[test]
fn double_where_float_gives_the_same() {
    let text = "
__global__ void f(const float *in, float *out, float *more) {
    float x = in[threadIdx.x];
    out[threadIdx.x] = 1.0 / x;
    more[threadIdx.x] = x > 0.1 ? (float)(0.3 * 0.5) : 0.5 * x;
}";
    let program = program(text);
    let input: Vec<f32> = (1..65).map(|i| i as f32 * 0.013).collect();
    let (data, mut out, mut more) =
        (program.buffer(&input), program.buffer(&[0f32; 64]), program.buffer(&[0f32; 64]));
    let refused = translate_errors("__global__ void f(float *p) { *p = 0.1 * *p + 1.0; }");
    assert!(refused[0].contains("`double`"), "{refused:?}");
    program.run("f", (1, 1, 1), 64, (&data, &mut out, &mut more));
    let (out, more) = (out.to_vec().unwrap(), more.to_vec().unwrap());
    for (i, x) in input.iter().enumerate() {
        assert_eq!(more[i], if f64::from(*x) > 0.1 { (0.3f64 * 0.5) as f32 } else { 0.5 * x });
        assert_eq!(out[i], (1.0 / f64::from(*x)) as f32);
    }
}

fn translate_errors(text: &str) -> Vec<String> {
    let source = elinvar_driver::Source::named("test.cu", text);
    let translation =
        elinvar_translate::cuda(&Toolchain::find().unwrap(), &source, &CudaOptions::default()).unwrap();
    translation.errors.iter().map(ToString::to_string).collect()
}

#[test]
fn faults_name_the_line_of_the_source() {
    let text = "#include <cuda_fp16.h>
// Adds.

template <class T>
__device__ void store(T *p, unsigned i, T value) {

    p[i] = value;
}
extern \"C\" __global__ void past(float *out) {
    store(out, threadIdx.x + 1000, 1.0f);
}";
    let program = program(text);
    let kernel = program.library.checked_kernel("past").unwrap();
    let mut out = program.device.buffer::<f32>(8).unwrap();
    let stream = program.device.stream().unwrap();
    let done = kernel.launch(&stream, Grid::groups((1, 1, 1)).group(8), (&mut out,)).unwrap();
    let error = done.wait().unwrap_err().to_string();
    assert!(error.contains("test.cu:7"), "{error}");
}

#[test]
fn bytes_are_copied_and_set_between_all_memories() {
    let text = "
struct Pair { float a; int b; };
__global__ void copy(const float *in, unsigned char *packed, Pair *pairs, int *out) {
    static_assert(sizeof(Pair) == 8, \"no padding\");
    __shared__ float tile[32];
    int i = threadIdx.x;
    memcpy(&tile[i], in + i, sizeof(float));
    __syncthreads();
    unsigned bits;
    memcpy(&bits, &tile[31 - i], 4);
    // At any alignment.
    memcpy(packed + 1 + 4 * i, &bits, sizeof bits);
    Pair pair;
    memset(&pair, 0, sizeof(Pair));
    pair.b = i;
    memcpy(pairs + i, &pair, sizeof(Pair));
    int values[4];
    memset(values, -1, 2 * sizeof(int));
    memset(values + 2, 0x101 + i, 2 * sizeof(int));
    for (int k = 0; k < 4; k++) out[4 * i + k] = values[k];
}";
    let program = program(text);
    let values = numbers(32);
    let input = program.buffer(&values);
    let mut packed = program.buffer(&[0xAAu8; 130]);
    let mut pairs = program.buffer(&[[7u32; 2]; 32]);
    let mut out = program.buffer(&[7i32; 128]);
    program.run("copy", (1, 1, 1), 32, (&input, &mut packed, &mut pairs, &mut out));
    let mut expected = vec![0xAAu8];
    expected.extend(values.iter().rev().flat_map(|value| value.to_le_bytes()));
    expected.push(0xAA);
    expected.resize(130, 0xAA);
    assert_eq!(packed.to_vec().expect("results"), expected);
    assert_eq!(pairs.to_vec().expect("results"), (0..32).map(|i| [0, i]).collect::<Vec<_>>());
    let byte = |i: i32| i32::from_le_bytes([(0x101 + i) as u8; 4]);
    let expected: Vec<i32> = (0..32).flat_map(|i| [-1, -1, byte(i), byte(i)]).collect();
    assert_eq!(out.to_vec().expect("results"), expected);
}

#[test]
fn atomic_functions_of_64_bits_without_results() {
    let text = "
typedef unsigned long long u64;
__global__ void fold(const u64 *in, u64 *out) {
    __shared__ u64 sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    u64 x = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&sum, x);
    atomicAdd(out + 0, x);
    atomicAdd(out + 1, (u64)1 << 31);
    atomicMin(out + 2, x);
    (void)atomicMax(out + 3, x);
    atomicAnd(out + 4, x);
    atomicOr(out + 5, x);
    atomicXor(out + 6, x);
    __syncthreads();
    if (threadIdx.x == 0) atomicXor(out + 7, sum);
}";
    let program = program(text);
    let value = |i: u64| i.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let values: Vec<u64> = (0..1024).map(value).collect();
    let input = program.buffer(&values);
    let begin = [5u64, 0, u64::MAX, 0, u64::MAX, 0, 0, 0];
    let mut out = program.buffer(&begin);
    program.run("fold", (8, 1, 1), 128, (&input, &mut out));
    let sum = |values: &[u64]| values.iter().fold(0u64, |sum, x| sum.wrapping_add(*x));
    let expected = [
        sum(&values).wrapping_add(5),
        1024 << 31,
        *values.iter().min().expect("values"),
        *values.iter().max().expect("values"),
        values.iter().fold(u64::MAX, |all, x| all & x),
        values.iter().fold(0, |all, x| all | x),
        values.iter().fold(0, |all, x| all ^ x),
        values.chunks(128).map(sum).fold(0, |all, x| all ^ x),
    ];
    assert_eq!(out.to_vec().expect("results"), expected);
}

#[test]
fn types_of_classes_in_their_member_functions() {
    let text = "
template <class Acc> struct Sum {
    using acc_t = Acc;
    static __device__ acc_t identity() { return acc_t(0); }
    static __device__ acc_t combine(acc_t a, acc_t b) { return a + b; }
};
template <class Acc> struct Most {
    using acc_t = Acc;
    static __device__ acc_t identity() { return -__builtin_inff(); }
    static __device__ acc_t combine(acc_t a, acc_t b) { return a > b ? a : b; }
};
struct Item { int x; };
template <class T> struct Boxed {
    using value_t = T;
    value_t item;
    __device__ value_t get() const { return item; }
};
template <template <class> class Op, class T> __global__ void reduce(const T *in, T *out, int n) {
    using acc_t = typename Op<T>::acc_t;
    acc_t all = Op<T>::identity();
    for (int i = 0; i < n; i++) all = Op<T>::combine(all, in[i]);
    Boxed<Item> boxed;
    boxed.item.x = 3;
    out[threadIdx.x] = all + (T)boxed.get().x;
}
template __global__ void reduce<Sum, float>(const float *, float *, int);
template __global__ void reduce<Sum, int>(const int *, int *, int);
template __global__ void reduce<Most, float>(const float *, float *, int);
";
    let translation = translated(text, &CudaOptions::default());
    let names: Vec<&str> = translation.kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    let program = program(text);
    let values = [3.0f32, -7.0, 12.5, 4.0];
    let input = program.buffer(&values);
    let whole = program.buffer(&[3i32, -7, 12, 4]);
    let (mut float, mut int) = (program.buffer(&[0.0f32]), program.buffer(&[0i32]));
    program.run(names[0], (1, 1, 1), 1, (&input, &mut float, 4i32));
    assert_eq!(float.to_vec().expect("results"), [15.5]);
    program.run(names[1], (1, 1, 1), 1, (&whole, &mut int, 4i32));
    assert_eq!(int.to_vec().expect("results"), [15]);
    program.run(names[2], (1, 1, 1), 1, (&input, &mut float, 4i32));
    assert_eq!(float.to_vec().expect("results"), [15.5]);
}

#[test]
fn constant_variables_of_the_device() {
    let text = "
struct Lens { float scale; int offset; };
__device__ __constant__ float taps[3];
__constant__ __device__ Lens lens;
static __device__ __constant__ unsigned char table[4] = {3, 1, 4, 1};
namespace inner { __device__ __constant__ int shift = 2; }
__constant__ int later = 1;  // cudaMemcpyToSymbol(later, &one, 4)
template <class T> __device__ T weighted(const T *values, const float *factors, int n) {
    T sum = 0;
    for (int k = 0; k < n; k++) sum += values[k] * factors[k];
    return sum;
}
__device__ float bent(float x) { return x * lens.scale + lens.offset; }
__global__ void both(const float *in, float *out, int *whole) {
    int i = threadIdx.x;
    const float *own = taps;
    out[i] = bent(weighted(in + i, own, 3));
    whole[i] = (table[i & 3] << inner::shift) + (int)sizeof(taps) + later;
}
__global__ void neither(int *whole) { whole[threadIdx.x] += table[threadIdx.x & 3]; }";
    let program = program(text);
    let input = [1.0f32, -2.0, 4.0, 8.0, 0.5, -16.0];
    let (data, taps) = (program.buffer(&input), program.buffer(&[0.5f32, 2.0, -1.0]));
    let lens = elinvar::Arg::bytes([3.0f32.to_le_bytes(), (-7i32).to_le_bytes()].concat());
    let (mut out, mut whole) = (program.buffer(&[0f32; 4]), program.buffer(&[0i32; 4]));
    program.run("both", (1, 1, 1), 4, (&data, &mut out, &mut whole, &taps, lens, 100i32));
    program.run("neither", (1, 1, 1), 4, (&mut whole,));
    let sum = |x: &[f32]| (x[0] * 0.5 + x[1] * 2.0 - x[2]) * 3.0 - 7.0;
    assert_eq!(out.to_vec().unwrap(), input.windows(3).map(sum).collect::<Vec<_>>());
    assert_eq!(whole.to_vec().unwrap(), [3, 1, 4, 1].map(|x| (x << 2) + 112 + x));
}
