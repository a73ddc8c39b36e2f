#include <metal_stdlib>
using namespace metal;

#define BUILTIN(name, T) kernel void name##_##T(device float* out, T v [[name]]) { out[0] = float(any(v != T(0))); }
#define POSITION(name) BUILTIN(name, uint) BUILTIN(name, uint2) BUILTIN(name, uint3) \
    BUILTIN(name, ushort) BUILTIN(name, ushort2) BUILTIN(name, ushort3)
#define INDEX(name) BUILTIN(name, uint) BUILTIN(name, ushort)
POSITION(thread_position_in_grid)
POSITION(thread_position_in_threadgroup)
POSITION(threadgroup_position_in_grid)
POSITION(threads_per_grid)
POSITION(threads_per_threadgroup)
POSITION(dispatch_threads_per_threadgroup)
POSITION(threadgroups_per_grid)
POSITION(grid_size)
POSITION(grid_origin)
INDEX(thread_index_in_threadgroup)
INDEX(thread_index_in_simdgroup)
INDEX(thread_index_in_quadgroup)
INDEX(simdgroup_index_in_threadgroup)
INDEX(quadgroup_index_in_threadgroup)
INDEX(simdgroups_per_threadgroup)
INDEX(quadgroups_per_threadgroup)
INDEX(dispatch_simdgroups_per_threadgroup)
INDEX(dispatch_quadgroups_per_threadgroup)
INDEX(threads_per_simdgroup)
INDEX(thread_execution_width)

kernel void scalars(device bool* a, device char* b, device uchar* c, device short* d, device ushort* e,
                    device int* f, device uint* g, device long* h, device ulong* i, device half* j,
                    device bfloat* k, device float* l) {}

struct Mixed {
    float3 position;
    half weight;
    bool alive;
};
namespace shapes {
template <int N> struct Box { packed_float3 low; int more[N]; };
}
enum Index { first = 3, second };

kernel void elements(device const float3* a [[buffer(first)]], constant packed_half3& b [[buffer(second)]],
                     device atomic_uint& c, const device Mixed* d [[buffer(0)]], constant shapes::Box<2>& e,
                     device float4x4* f, device void* g [[buffer(30)]], volatile device atomic_float* h,
                     constant bool2* , device uint8_t* j) {}

[[max_total_threads_per_threadgroup(16 * 16)]] kernel void
shared(threadgroup float* a [[threadgroup(1)]], device float* b, threadgroup half2* c, threadgroup uint& d, uint2 gid [[thread_position_in_grid]], uint lane [[thread_index_in_simdgroup]]) {}

template <typename T, int N>
[[kernel]] void scale(device T* data [[buffer(1)]], constant T& by [[buffer(0)]], uint i [[thread_position_in_grid]]) {
    data[i] *= by + T(N);
}
template [[host_name("scale_float_2")]] [[kernel]] void scale<float, 2>(
    device float* data [[buffer(1)]], constant float& by [[buffer(0)]], uint i [[thread_position_in_grid]]);
typedef decltype(scale<half, 1>) scale_t;
template [[host_name("scale_half_1")]] kernel scale_t scale<half, 1>;

namespace inner { namespace most {
kernel void spaced(device int* x) { x[0] = 1; }
template <typename T> kernel void general(device T* x) { x[0] = 1; }
template [[host_name("general_int")]] kernel void general<int>(device int*);
} }

kernel void pictures(texture2d<float> picture [[texture(0)]], device float* out) { out[0] = picture.read(uint2(0)).x; }
kernel void prototype(device int* x);
kernel void prototype(device int* x) {}

template <typename T, int N> [[max_total_threads_per_threadgroup(N * 32)]] kernel void limited(device T* x) {}
template [[host_name("limited_4")]] kernel void limited<float, 4>(device float*);
kernel void min(device int* x) { x[0] = metal::min(x[1], 2); }
