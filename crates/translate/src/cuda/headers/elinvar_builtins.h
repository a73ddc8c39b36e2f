// CUDA's built-in types, variables and functions, as declarations for the translator. What has a body is translated like the source.
#ifndef ELINVAR_CUDA_BUILTINS
#define ELINVAR_CUDA_BUILTINS

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))
#define __forceinline__ inline
#define __noinline__
#define __inline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __cluster_dims__(...)
#define __CUDACC_VER_MAJOR__ 12
#define __CUDACC_VER_MINOR__ 8
#define __CUDACC_VER_BUILD__ 0
#define __CUDACC_RTC__ 1
#define __NVCC__ 1
#ifndef __CUDACC__
#define __CUDACC__ 1
#endif
#define CUDART_VERSION 12080
#define CUDA_VERSION 12080
#define CUDART_INF_F __builtin_inff()
#define CUDART_NAN_F __builtin_nanf("")
#define CUDART_PI_F 3.141592654f
#define CUDART_MAX_NORMAL_F 3.402823466e+38f
#define warpSize 32
#define assert(...) ((void)0)
#define NULL 0

typedef unsigned long size_t;
typedef long ptrdiff_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef long ssize_t;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef int8_t int_least8_t; typedef int32_t int_fast32_t; typedef uint32_t uint_fast32_t;
#define INT8_MAX 127
#define INT8_MIN (-128)
#define UINT8_MAX 255
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807l
#define INT64_MIN (-9223372036854775807l - 1)
#define UINT64_MAX 18446744073709551615ul
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LLONG_MAX 9223372036854775807ll
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LONG_MAX 9223372036854775807l
#define LONG_MIN (-9223372036854775807l - 1)
#define ULLONG_MAX 18446744073709551615ull
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_BIT 8
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define INFINITY __builtin_inff()
#define HUGE_VALF __builtin_inff()
#define HUGE_VAL __builtin_inf()
#define NAN __builtin_nanf("")
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.434294481903251827651
#define M_LN2 0.693147180559945309417
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.785398163397448309616
#define M_1_PI 0.318309886183790671538
#define M_2_PI 0.636619772367581343076
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.707106781186547524401

#pragma clang force_cuda_host_device begin
typedef _Float16 __half;
typedef _Float16 half;
typedef __bf16 __nv_bfloat16;
typedef __bf16 nv_bfloat16;

struct char1 { signed char x; };
char1 make_char1(signed char x);
struct __attribute__((aligned(2))) char2 { signed char x, y; };
char2 make_char2(signed char x, signed char y);
struct char3 { signed char x, y, z; };
char3 make_char3(signed char x, signed char y, signed char z);
struct __attribute__((aligned(4))) char4 { signed char x, y, z, w; };
char4 make_char4(signed char x, signed char y, signed char z, signed char w);
struct uchar1 { unsigned char x; };
uchar1 make_uchar1(unsigned char x);
struct __attribute__((aligned(2))) uchar2 { unsigned char x, y; };
uchar2 make_uchar2(unsigned char x, unsigned char y);
struct uchar3 { unsigned char x, y, z; };
uchar3 make_uchar3(unsigned char x, unsigned char y, unsigned char z);
struct __attribute__((aligned(4))) uchar4 { unsigned char x, y, z, w; };
uchar4 make_uchar4(unsigned char x, unsigned char y, unsigned char z, unsigned char w);
struct short1 { short x; };
short1 make_short1(short x);
struct __attribute__((aligned(4))) short2 { short x, y; };
short2 make_short2(short x, short y);
struct short3 { short x, y, z; };
short3 make_short3(short x, short y, short z);
struct __attribute__((aligned(8))) short4 { short x, y, z, w; };
short4 make_short4(short x, short y, short z, short w);
struct ushort1 { unsigned short x; };
ushort1 make_ushort1(unsigned short x);
struct __attribute__((aligned(4))) ushort2 { unsigned short x, y; };
ushort2 make_ushort2(unsigned short x, unsigned short y);
struct ushort3 { unsigned short x, y, z; };
ushort3 make_ushort3(unsigned short x, unsigned short y, unsigned short z);
struct __attribute__((aligned(8))) ushort4 { unsigned short x, y, z, w; };
ushort4 make_ushort4(unsigned short x, unsigned short y, unsigned short z, unsigned short w);
struct int1 { int x; };
int1 make_int1(int x);
struct __attribute__((aligned(8))) int2 { int x, y; };
int2 make_int2(int x, int y);
struct int3 { int x, y, z; };
int3 make_int3(int x, int y, int z);
struct __attribute__((aligned(16))) int4 { int x, y, z, w; };
int4 make_int4(int x, int y, int z, int w);
struct uint1 { unsigned int x; };
uint1 make_uint1(unsigned int x);
struct __attribute__((aligned(8))) uint2 { unsigned int x, y; };
uint2 make_uint2(unsigned int x, unsigned int y);
struct uint3 { unsigned int x, y, z; };
uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z);
struct __attribute__((aligned(16))) uint4 { unsigned int x, y, z, w; };
uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w);
struct long1 { long x; };
long1 make_long1(long x);
struct __attribute__((aligned(16))) long2 { long x, y; };
long2 make_long2(long x, long y);
struct long3 { long x, y, z; };
long3 make_long3(long x, long y, long z);
struct __attribute__((aligned(16))) long4 { long x, y, z, w; };
long4 make_long4(long x, long y, long z, long w);
struct ulong1 { unsigned long x; };
ulong1 make_ulong1(unsigned long x);
struct __attribute__((aligned(16))) ulong2 { unsigned long x, y; };
ulong2 make_ulong2(unsigned long x, unsigned long y);
struct ulong3 { unsigned long x, y, z; };
ulong3 make_ulong3(unsigned long x, unsigned long y, unsigned long z);
struct __attribute__((aligned(16))) ulong4 { unsigned long x, y, z, w; };
ulong4 make_ulong4(unsigned long x, unsigned long y, unsigned long z, unsigned long w);
struct longlong1 { long long x; };
longlong1 make_longlong1(long long x);
struct __attribute__((aligned(16))) longlong2 { long long x, y; };
longlong2 make_longlong2(long long x, long long y);
struct longlong3 { long long x, y, z; };
longlong3 make_longlong3(long long x, long long y, long long z);
struct __attribute__((aligned(16))) longlong4 { long long x, y, z, w; };
longlong4 make_longlong4(long long x, long long y, long long z, long long w);
struct ulonglong1 { unsigned long long x; };
ulonglong1 make_ulonglong1(unsigned long long x);
struct __attribute__((aligned(16))) ulonglong2 { unsigned long long x, y; };
ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y);
struct ulonglong3 { unsigned long long x, y, z; };
ulonglong3 make_ulonglong3(unsigned long long x, unsigned long long y, unsigned long long z);
struct __attribute__((aligned(16))) ulonglong4 { unsigned long long x, y, z, w; };
ulonglong4 make_ulonglong4(unsigned long long x, unsigned long long y, unsigned long long z, unsigned long long w);
struct float1 { float x; };
float1 make_float1(float x);
struct __attribute__((aligned(8))) float2 { float x, y; };
float2 make_float2(float x, float y);
struct float3 { float x, y, z; };
float3 make_float3(float x, float y, float z);
struct __attribute__((aligned(16))) float4 { float x, y, z, w; };
float4 make_float4(float x, float y, float z, float w);
struct double1 { double x; };
double1 make_double1(double x);
struct __attribute__((aligned(16))) double2 { double x, y; };
double2 make_double2(double x, double y);
struct double3 { double x, y, z; };
double3 make_double3(double x, double y, double z);
struct __attribute__((aligned(16))) double4 { double x, y, z, w; };
double4 make_double4(double x, double y, double z, double w);
struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
struct __attribute__((aligned(4))) __half2 { __half x, y; };
typedef __half2 half2;
struct __attribute__((aligned(4))) __nv_bfloat162 { __nv_bfloat16 x, y; };
typedef __nv_bfloat162 nv_bfloat162;

__attribute__((device)) extern const uint3 threadIdx, blockIdx;
__attribute__((device)) extern const uint3 blockDim, gridDim;
__attribute__((device)) extern const unsigned int __elinvar_lane, __elinvar_warp, __elinvar_thread;

// The host's side.
typedef struct CUstream_st *cudaStream_t;
typedef enum cudaError { cudaSuccess = 0 } cudaError_t;
int cudaConfigureCall(dim3, dim3, size_t = 0, cudaStream_t = 0);
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
template <class T> T tex1Dfetch(cudaTextureObject_t, int);
template <class T> T tex1D(cudaTextureObject_t, float);
template <class T> T tex2D(cudaTextureObject_t, float, float);
template <class T> T tex3D(cudaTextureObject_t, float, float, float);
template <class T> void surf2Dwrite(T, cudaSurfaceObject_t, int, int);
template <class T> void surf2Dread(T*, cudaSurfaceObject_t, int, int);

// Synchronization.
void __syncwarp(unsigned mask = 0xffffffffu);
void __threadfence();
void __threadfence_block();
void __threadfence_system();
void __elinvar_grid_barrier();
unsigned int atomicAdd(unsigned int*, unsigned int);
inline int __syncthreads_count(int predicate) {
    __attribute__((shared)) static unsigned int count;
    if (__elinvar_thread == 0) count = 0;
    __syncthreads();
    if (predicate) atomicAdd(&count, 1u);
    __syncthreads();
    int result = (int)count;
    __syncthreads();
    return result;
}
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
inline int __syncthreads_and(int predicate) { return __syncthreads_count(!predicate) == 0; }

// Warps. A mask names the lanes that call together; those of Metal are the lanes that are active.
unsigned int __activemask();
unsigned int __elinvar_ballot(bool);
int __elinvar_any(bool);
int __elinvar_all(bool);
template <class T> T __elinvar_shuffle(T value, unsigned int lane);
inline unsigned int __ballot_sync(unsigned int mask, int predicate) { return __elinvar_ballot(predicate != 0) & mask; }
inline int __any_sync(unsigned int mask, int predicate) { return (__elinvar_ballot(predicate != 0) & mask) != 0; }
inline int __all_sync(unsigned int mask, int predicate) { return (__elinvar_ballot(predicate == 0) & mask) == 0; }
inline unsigned int __ballot(int predicate) { return __elinvar_ballot(predicate != 0); }
inline int __any(int predicate) { return __elinvar_any(predicate != 0); }
inline int __all(int predicate) { return __elinvar_all(predicate != 0); }
template <class T> inline T __shfl_sync(unsigned int, T value, int source, int width = 32) {
    return __elinvar_shuffle(value, (__elinvar_lane & ~(unsigned int)(width - 1)) | ((unsigned int)source & (unsigned int)(width - 1)));
}
template <class T> inline T __shfl_up_sync(unsigned int, T value, unsigned int delta, int width = 32) {
    unsigned int inside = __elinvar_lane & (unsigned int)(width - 1);
    return __elinvar_shuffle(value, inside >= delta ? __elinvar_lane - delta : __elinvar_lane);
}
template <class T> inline T __shfl_down_sync(unsigned int, T value, unsigned int delta, int width = 32) {
    unsigned int inside = (__elinvar_lane & (unsigned int)(width - 1)) + delta;
    return __elinvar_shuffle(value, inside < (unsigned int)width ? __elinvar_lane + delta : __elinvar_lane);
}
template <class T> inline T __shfl_xor_sync(unsigned int, T value, int mask, int width = 32) {
    unsigned int lane = __elinvar_lane ^ (unsigned int)mask;
    return __elinvar_shuffle(value, lane < (__elinvar_lane & ~(unsigned int)(width - 1)) + (unsigned int)width ? lane : __elinvar_lane);
}
template <class T> inline T __shfl(T value, int source, int width = 32) { return __shfl_sync(0xffffffffu, value, source, width); }
template <class T> inline T __shfl_up(T value, unsigned int delta, int width = 32) { return __shfl_up_sync(0xffffffffu, value, delta, width); }
template <class T> inline T __shfl_down(T value, unsigned int delta, int width = 32) { return __shfl_down_sync(0xffffffffu, value, delta, width); }
template <class T> inline T __shfl_xor(T value, int mask, int width = 32) { return __shfl_xor_sync(0xffffffffu, value, mask, width); }
template <class T> inline unsigned int __match_any_sync(unsigned int mask, T value) {
    unsigned int same = 0;
    for (unsigned int lane = 0; lane < 32; ++lane) {
        if (__elinvar_shuffle(value, lane) == value) same |= 1u << lane;
    }
    return same & mask;
}
template <class T> inline unsigned int __match_all_sync(unsigned int mask, T value, int* all) {
    bool same = __match_any_sync(mask, value) == mask;
    *all = same;
    return same ? mask : 0u;
}

unsigned int __reduce_add_sync(unsigned int, unsigned int); int __reduce_add_sync(unsigned int, int);
unsigned int __reduce_min_sync(unsigned int, unsigned int); int __reduce_min_sync(unsigned int, int);
unsigned int __reduce_max_sync(unsigned int, unsigned int); int __reduce_max_sync(unsigned int, int);
unsigned int __reduce_and_sync(unsigned int, unsigned int);
unsigned int __reduce_or_sync(unsigned int, unsigned int);
unsigned int __reduce_xor_sync(unsigned int, unsigned int);
// Atomic functions.
int atomicAdd(int*, int);
unsigned int atomicAdd(unsigned int*, unsigned int);
unsigned long long atomicAdd(unsigned long long*, unsigned long long);
float atomicAdd(float*, float);
double atomicAdd(double*, double);
int atomicExch(int*, int);
unsigned int atomicExch(unsigned int*, unsigned int);
unsigned long long atomicExch(unsigned long long*, unsigned long long);
float atomicExch(float*, float);
double atomicExch(double*, double);
__half atomicAdd(__half*, __half); __nv_bfloat16 atomicAdd(__nv_bfloat16*, __nv_bfloat16); __half2 atomicAdd(__half2*, __half2);
int atomicSub(int*, int);
unsigned int atomicSub(unsigned int*, unsigned int);
int atomicMin(int*, int);
unsigned int atomicMin(unsigned int*, unsigned int);
long long atomicMin(long long*, long long);
unsigned long long atomicMin(unsigned long long*, unsigned long long);
int atomicMax(int*, int);
unsigned int atomicMax(unsigned int*, unsigned int);
long long atomicMax(long long*, long long);
unsigned long long atomicMax(unsigned long long*, unsigned long long);
int atomicAnd(int*, int);
unsigned int atomicAnd(unsigned int*, unsigned int);
long long atomicAnd(long long*, long long);
unsigned long long atomicAnd(unsigned long long*, unsigned long long);
int atomicOr(int*, int);
unsigned int atomicOr(unsigned int*, unsigned int);
long long atomicOr(long long*, long long);
unsigned long long atomicOr(unsigned long long*, unsigned long long);
int atomicXor(int*, int);
unsigned int atomicXor(unsigned int*, unsigned int);
long long atomicXor(long long*, long long);
unsigned long long atomicXor(unsigned long long*, unsigned long long);
int atomicCAS(int*, int, int);
unsigned int atomicCAS(unsigned int*, unsigned int, unsigned int);
unsigned long long atomicCAS(unsigned long long*, unsigned long long, unsigned long long);
unsigned short atomicCAS(unsigned short*, unsigned short, unsigned short);
int atomicAdd_block(int*, int);
unsigned int atomicAdd_block(unsigned int*, unsigned int);
unsigned long long atomicAdd_block(unsigned long long*, unsigned long long);
float atomicAdd_block(float*, float);
double atomicAdd_block(double*, double);
int atomicExch_block(int*, int);
unsigned int atomicExch_block(unsigned int*, unsigned int);
unsigned long long atomicExch_block(unsigned long long*, unsigned long long);
float atomicExch_block(float*, float);
double atomicExch_block(double*, double);
__half atomicAdd_block(__half*, __half); __nv_bfloat16 atomicAdd_block(__nv_bfloat16*, __nv_bfloat16); __half2 atomicAdd_block(__half2*, __half2);
int atomicSub_block(int*, int);
unsigned int atomicSub_block(unsigned int*, unsigned int);
int atomicMin_block(int*, int);
unsigned int atomicMin_block(unsigned int*, unsigned int);
long long atomicMin_block(long long*, long long);
unsigned long long atomicMin_block(unsigned long long*, unsigned long long);
int atomicMax_block(int*, int);
unsigned int atomicMax_block(unsigned int*, unsigned int);
long long atomicMax_block(long long*, long long);
unsigned long long atomicMax_block(unsigned long long*, unsigned long long);
int atomicAnd_block(int*, int);
unsigned int atomicAnd_block(unsigned int*, unsigned int);
long long atomicAnd_block(long long*, long long);
unsigned long long atomicAnd_block(unsigned long long*, unsigned long long);
int atomicOr_block(int*, int);
unsigned int atomicOr_block(unsigned int*, unsigned int);
long long atomicOr_block(long long*, long long);
unsigned long long atomicOr_block(unsigned long long*, unsigned long long);
int atomicXor_block(int*, int);
unsigned int atomicXor_block(unsigned int*, unsigned int);
long long atomicXor_block(long long*, long long);
unsigned long long atomicXor_block(unsigned long long*, unsigned long long);
int atomicCAS_block(int*, int, int);
unsigned int atomicCAS_block(unsigned int*, unsigned int, unsigned int);
unsigned long long atomicCAS_block(unsigned long long*, unsigned long long, unsigned long long);
unsigned short atomicCAS_block(unsigned short*, unsigned short, unsigned short);
int atomicAdd_system(int*, int);
unsigned int atomicAdd_system(unsigned int*, unsigned int);
unsigned long long atomicAdd_system(unsigned long long*, unsigned long long);
float atomicAdd_system(float*, float);
double atomicAdd_system(double*, double);
int atomicExch_system(int*, int);
unsigned int atomicExch_system(unsigned int*, unsigned int);
unsigned long long atomicExch_system(unsigned long long*, unsigned long long);
float atomicExch_system(float*, float);
double atomicExch_system(double*, double);
__half atomicAdd_system(__half*, __half); __nv_bfloat16 atomicAdd_system(__nv_bfloat16*, __nv_bfloat16); __half2 atomicAdd_system(__half2*, __half2);
int atomicSub_system(int*, int);
unsigned int atomicSub_system(unsigned int*, unsigned int);
int atomicMin_system(int*, int);
unsigned int atomicMin_system(unsigned int*, unsigned int);
long long atomicMin_system(long long*, long long);
unsigned long long atomicMin_system(unsigned long long*, unsigned long long);
int atomicMax_system(int*, int);
unsigned int atomicMax_system(unsigned int*, unsigned int);
long long atomicMax_system(long long*, long long);
unsigned long long atomicMax_system(unsigned long long*, unsigned long long);
int atomicAnd_system(int*, int);
unsigned int atomicAnd_system(unsigned int*, unsigned int);
long long atomicAnd_system(long long*, long long);
unsigned long long atomicAnd_system(unsigned long long*, unsigned long long);
int atomicOr_system(int*, int);
unsigned int atomicOr_system(unsigned int*, unsigned int);
long long atomicOr_system(long long*, long long);
unsigned long long atomicOr_system(unsigned long long*, unsigned long long);
int atomicXor_system(int*, int);
unsigned int atomicXor_system(unsigned int*, unsigned int);
long long atomicXor_system(long long*, long long);
unsigned long long atomicXor_system(unsigned long long*, unsigned long long);
int atomicCAS_system(int*, int, int);
unsigned int atomicCAS_system(unsigned int*, unsigned int, unsigned int);
unsigned long long atomicCAS_system(unsigned long long*, unsigned long long, unsigned long long);
unsigned short atomicCAS_system(unsigned short*, unsigned short, unsigned short);
inline unsigned int atomicInc(unsigned int* address, unsigned int limit) {
    unsigned int old = *address, assumed;
    do {
        assumed = old;
        old = atomicCAS(address, assumed, assumed >= limit ? 0u : assumed + 1u);
    } while (old != assumed);
    return old;
}
inline unsigned int atomicDec(unsigned int* address, unsigned int limit) {
    unsigned int old = *address, assumed;
    do {
        assumed = old;
        old = atomicCAS(address, assumed, assumed == 0u || assumed > limit ? limit : assumed - 1u);
    } while (old != assumed);
    return old;
}

// Integers.
int __popc(unsigned int); int __popcll(unsigned long long); int __clz(int); int __clzll(long long);
int __elinvar_ctz(unsigned int);
inline int __ffs(int x) { return x == 0 ? 0 : __elinvar_ctz((unsigned int)x) + 1; }
inline int __ffsll(long long x) { return (unsigned int)x != 0 ? __elinvar_ctz((unsigned int)x) + 1 : (x == 0 ? 0 : __elinvar_ctz((unsigned int)(x >> 32)) + 33); }
unsigned int __brev(unsigned int); unsigned long long __brevll(unsigned long long);
int __mulhi(int, int); unsigned int __umulhi(unsigned int, unsigned int);
long long __mul64hi(long long, long long); unsigned long long __umul64hi(unsigned long long, unsigned long long);
int __mul24(int, int); unsigned int __umul24(unsigned int, unsigned int);
int __rhadd(int, int); unsigned int __uhadd(unsigned int, unsigned int); unsigned int __urhadd(unsigned int, unsigned int);
unsigned int __sad(int, int, unsigned int); unsigned int __usad(unsigned int, unsigned int, unsigned int);
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector) {
    unsigned long long both = ((unsigned long long)y << 32) | x;
    unsigned int result = 0;
    for (int k = 0; k < 4; ++k) {
        unsigned int choice = (selector >> (4 * k)) & 15u;
        unsigned int byte = (unsigned int)(both >> (8u * (choice & 7u))) & 255u;
        if (choice & 8u) byte = byte & 128u ? 255u : 0u;
        result |= byte << (8 * k);
    }
    return result;
}
inline unsigned int __funnelshift_l(unsigned int lo, unsigned int hi, unsigned int shift) { return (unsigned int)(((((unsigned long long)hi << 32) | lo) << (shift & 31u)) >> 32); }
inline unsigned int __funnelshift_r(unsigned int lo, unsigned int hi, unsigned int shift) { return (unsigned int)((((unsigned long long)hi << 32) | lo) >> (shift & 31u)); }
inline int __dp4a(int a, int b, int c) {
    return c + (int)(signed char)a * (int)(signed char)b + (int)(signed char)(a >> 8) * (int)(signed char)(b >> 8) + (int)(signed char)(a >> 16) * (int)(signed char)(b >> 16) + (a >> 24) * (b >> 24);
}
inline unsigned int __dp4a(unsigned int a, unsigned int b, unsigned int c) {
    return c + (a & 255u) * (b & 255u) + ((a >> 8) & 255u) * ((b >> 8) & 255u) + ((a >> 16) & 255u) * ((b >> 16) & 255u) + (a >> 24) * (b >> 24);
}
inline unsigned int __vsubss4(unsigned int a, unsigned int b) {
    unsigned int result = 0;
    for (int k = 0; k < 32; k += 8) {
        int d = (int)(signed char)(a >> k) - (int)(signed char)(b >> k);
        d = d > 127 ? 127 : (d < -128 ? -128 : d);
        result |= ((unsigned int)d & 255u) << k;
    }
    return result;
}
inline unsigned int __vsub4(unsigned int a, unsigned int b) {
    unsigned int result = 0;
    for (int k = 0; k < 32; k += 8) result |= (((a >> k) - (b >> k)) & 255u) << k;
    return result;
}
inline unsigned int __vadd4(unsigned int a, unsigned int b) {
    unsigned int result = 0;
    for (int k = 0; k < 32; k += 8) result |= (((a >> k) + (b >> k)) & 255u) << k;
    return result;
}
inline unsigned int __vcmpeq4(unsigned int a, unsigned int b) {
    unsigned int result = 0;
    for (int k = 0; k < 32; k += 8) result |= (((a >> k) ^ (b >> k)) & 255u) == 0u ? 255u << k : 0u;
    return result;
}
inline unsigned int __vcmpne4(unsigned int a, unsigned int b) { return ~__vcmpeq4(a, b); }
int abs(int); long abs(long); long long abs(long long); float abs(float); double abs(double); long labs(long); long long llabs(long long);

int min(int, int);
unsigned int min(unsigned int, unsigned int);
long min(long, long);
unsigned long min(unsigned long, unsigned long);
long long min(long long, long long);
unsigned long long min(unsigned long long, unsigned long long);
float min(float, float);
double min(double, double);
_Float16 min(_Float16, _Float16);
__bf16 min(__bf16, __bf16);
unsigned int min(int, unsigned int); unsigned int min(unsigned int, int);
unsigned long min(long, unsigned long); unsigned long min(unsigned long, long);
unsigned long long min(long long, unsigned long long); unsigned long long min(unsigned long long, long long);
double min(float, double); double min(double, float);
inline long min(int a, long b) { return min((long)a, (long)b); } inline long min(long a, int b) { return min((long)a, (long)b); }
inline unsigned long min(int a, unsigned long b) { return min((unsigned long)a, (unsigned long)b); } inline unsigned long min(unsigned long a, int b) { return min((unsigned long)a, (unsigned long)b); }
inline unsigned long min(unsigned int a, unsigned long b) { return min((unsigned long)a, (unsigned long)b); } inline unsigned long min(unsigned long a, unsigned int b) { return min((unsigned long)a, (unsigned long)b); }
inline long min(unsigned int a, long b) { return min((long)a, (long)b); } inline long min(long a, unsigned int b) { return min((long)a, (long)b); }
inline float min(int a, float b) { return min((float)a, (float)b); } inline float min(float a, int b) { return min((float)a, (float)b); }
unsigned int umin(unsigned int, unsigned int); long long llmin(long long, long long); unsigned long long ullmin(unsigned long long, unsigned long long);
int max(int, int);
unsigned int max(unsigned int, unsigned int);
long max(long, long);
unsigned long max(unsigned long, unsigned long);
long long max(long long, long long);
unsigned long long max(unsigned long long, unsigned long long);
float max(float, float);
double max(double, double);
_Float16 max(_Float16, _Float16);
__bf16 max(__bf16, __bf16);
unsigned int max(int, unsigned int); unsigned int max(unsigned int, int);
unsigned long max(long, unsigned long); unsigned long max(unsigned long, long);
unsigned long long max(long long, unsigned long long); unsigned long long max(unsigned long long, long long);
double max(float, double); double max(double, float);
inline long max(int a, long b) { return max((long)a, (long)b); } inline long max(long a, int b) { return max((long)a, (long)b); }
inline unsigned long max(int a, unsigned long b) { return max((unsigned long)a, (unsigned long)b); } inline unsigned long max(unsigned long a, int b) { return max((unsigned long)a, (unsigned long)b); }
inline unsigned long max(unsigned int a, unsigned long b) { return max((unsigned long)a, (unsigned long)b); } inline unsigned long max(unsigned long a, unsigned int b) { return max((unsigned long)a, (unsigned long)b); }
inline long max(unsigned int a, long b) { return max((long)a, (long)b); } inline long max(long a, unsigned int b) { return max((long)a, (long)b); }
inline float max(int a, float b) { return max((float)a, (float)b); } inline float max(float a, int b) { return max((float)a, (float)b); }
unsigned int umax(unsigned int, unsigned int); long long llmax(long long, long long); unsigned long long ullmax(unsigned long long, unsigned long long);
// Math of float and double.
float sinf(float); double sin(double); float sin(float);
float cosf(float); double cos(double); float cos(float);
float tanf(float); double tan(double); float tan(float);
float asinf(float); double asin(double); float asin(float);
float acosf(float); double acos(double); float acos(float);
float atanf(float); double atan(double); float atan(float);
float sinhf(float); double sinh(double); float sinh(float);
float coshf(float); double cosh(double); float cosh(float);
float tanhf(float); double tanh(double); float tanh(float);
float asinhf(float); double asinh(double); float asinh(float);
float acoshf(float); double acosh(double); float acosh(float);
float atanhf(float); double atanh(double); float atanh(float);
float expf(float); double exp(double); float exp(float);
float exp2f(float); double exp2(double); float exp2(float);
float exp10f(float); double exp10(double); float exp10(float);
float expm1f(float); double expm1(double); float expm1(float);
float logf(float); double log(double); float log(float);
float log2f(float); double log2(double); float log2(float);
float log10f(float); double log10(double); float log10(float);
float log1pf(float); double log1p(double); float log1p(float);
float sqrtf(float); double sqrt(double); float sqrt(float);
float rsqrtf(float); double rsqrt(double); float rsqrt(float);
float cbrtf(float); double cbrt(double); float cbrt(float);
double rcbrt(double);
float erff(float); double erf(double); float erf(float);
float erfcf(float); double erfc(double); float erfc(float);
float sinpif(float); double sinpi(double); float sinpi(float);
float cospif(float); double cospi(double); float cospi(float);
float tanpif(float); double tanpi(double); float tanpi(float);
float fabsf(float); double fabs(double); float fabs(float);
float floorf(float); double floor(double); float floor(float);
float ceilf(float); double ceil(double); float ceil(float);
float truncf(float); double trunc(double); float trunc(float);
float roundf(float); double round(double); float round(float);
float rintf(float); double rint(double); float rint(float);
float nearbyintf(float); double nearbyint(double); float nearbyint(float);
float lgammaf(float); double lgamma(double); float lgamma(float);
float tgammaf(float); double tgamma(double); float tgamma(float);
float erfinvf(float); double erfinv(double); float erfinv(float);
float erfcinvf(float); double erfcinv(double); float erfcinv(float);
double normcdf(double);
float normcdfinvf(float); double normcdfinv(double); float normcdfinv(float);
float erfcxf(float); double erfcx(double); float erfcx(float);
float j0f(float); double j0(double); float j0(float);
float j1f(float); double j1(double); float j1(float);
float y0f(float); double y0(double); float y0(float);
float y1f(float); double y1(double); float y1(float);
float logbf(float); double logb(double); float logb(float);
inline float normcdff(float x) { return 0.5f * erfcf(-0.70710678118654752440f * x); } inline float normcdf(float x) { return normcdff(x); }
inline float rcbrtf(float x) { return 1.0f / cbrtf(x); }
float powf(float, float); double pow(double, double); float pow(float, float);
float atan2f(float, float); double atan2(double, double); float atan2(float, float);
float fmodf(float, float); double fmod(double, double); float fmod(float, float);
float fmaxf(float, float); double fmax(double, double); float fmax(float, float);
float fminf(float, float); double fmin(double, double); float fmin(float, float);
float copysignf(float, float); double copysign(double, double); float copysign(float, float);
float fdimf(float, float); double fdim(double, double); float fdim(float, float);
float hypotf(float, float); double hypot(double, double); float hypot(float, float);
float nextafterf(float, float); double nextafter(double, double); float nextafter(float, float);
float remainderf(float, float); double remainder(double, double); float remainder(float, float);
inline float powif(float x, int n) { return powf(x, (float)n); } inline float pow(float x, int n) { return powf(x, (float)n); } double pow(double, int); double pow(double, float); double pow(float, double);
double fmax(float, double); double fmax(double, float); double fmin(float, double); double fmin(double, float);
float fmaf(float, float, float); double fma(double, double, double); float fma(float, float, float); float ldexpf(float, int); double ldexp(double, int); int ilogbf(float);
inline float scalbnf(float x, int n) { return ldexpf(x, n); }
float frexpf(float, int*); double frexp(double, int*); float modff(float, float*); double modf(double, double*);
void sincosf(float, float*, float*); void sincos(double, double*, double*); void __sincosf(float, float*, float*); void sincospif(float, float*, float*);
bool isnan(float); bool isnan(double); bool isinf(float); bool isinf(double); bool isfinite(float); bool isfinite(double); bool signbit(float); bool signbit(double); int __isnanf(float); int __isinff(float); int __finitef(float); int __signbitf(float);
inline float norm3df(float a, float b, float c) { return sqrtf(a * a + b * b + c * c); } inline float rhypotf(float a, float b) { return 1.0f / hypotf(a, b); }
long lrintf(float); long long llrintf(float); long lroundf(float); long long llroundf(float);
float __expf(float);
float __exp10f(float);
float __logf(float);
float __log2f(float);
float __log10f(float);
float __sinf(float);
float __cosf(float);
float __tanf(float);
float __tanhf(float);
float __saturatef(float);
float __frcp_rn(float);
float __fsqrt_rn(float);
float __frsqrt_rn(float);
float __powf(float, float);
float __fdividef(float, float);
float fdividef(float, float);
float __fadd_rn(float, float);
float __fsub_rn(float, float);
float __fmul_rn(float, float);
float __fdiv_rn(float, float);
float __fadd_rz(float, float);
float __fmul_rz(float, float);
float __fadd_ru(float, float);
float __fadd_rd(float, float);
float __fmul_ru(float, float);
float __fmul_rd(float, float);
float __fsub_rz(float, float);
float __fsub_ru(float, float);
float __fsub_rd(float, float);
float __fdiv_rz(float, float);
float __fdiv_ru(float, float);
float __fdiv_rd(float, float);
float __fmaf_rn(float, float, float); double __dadd_rn(double, double); double __dmul_rn(double, double); double __fma_rn(double, double, double);
int __float_as_int(float); unsigned int __float_as_uint(float); float __int_as_float(int); float __uint_as_float(unsigned int); long long __double_as_longlong(double); double __longlong_as_double(long long); int __double2hiint(double); int __double2loint(double); double __hiloint2double(int, int); double __dsqrt_rn(double);
int __float2int_rn(float); unsigned int __float2uint_rn(float); long long __float2ll_rn(float); int __double2int_rn(double);
int __float2int_rz(float); unsigned int __float2uint_rz(float); long long __float2ll_rz(float); int __double2int_rz(double);
int __float2int_rd(float); unsigned int __float2uint_rd(float); long long __float2ll_rd(float); int __double2int_rd(double);
int __float2int_ru(float); unsigned int __float2uint_ru(float); long long __float2ll_ru(float); int __double2int_ru(double);
float __int2float_rn(int); float __uint2float_rn(unsigned int); float __ll2float_rn(long long); float __ull2float_rn(unsigned long long); float __double2float_rn(double);
template <class T> T __ldg(const T*);
template <class T> T __ldcg(const T*);
template <class T> T __ldca(const T*);
template <class T> T __ldcs(const T*);
template <class T> T __ldlu(const T*);
template <class T> T __ldcv(const T*);
template <class T> void __stwb(T*, T);
template <class T> void __stcg(T*, T);
template <class T> void __stcs(T*, T);
template <class T> void __stwt(T*, T);
long clock(); long long clock64(); void __nanosleep(unsigned int); void __trap(); void __brkpt();
template <class... A> int printf(const char*, A...);
void* malloc(size_t); void free(void*); void* memcpy(void*, const void*, size_t); void* memset(void*, int, size_t);
inline bool __isGlobal(const void*) { return true; }
#pragma clang force_cuda_host_device end
#include "elinvar_half.h"
#endif
