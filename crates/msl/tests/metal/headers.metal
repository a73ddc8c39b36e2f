// Static checks of the headers: sizes, alignments, constructors, swizzles, conversions, limits, functions.
#include <metal_stdlib>
#include <simd/simd.h>
using namespace metal;

#define SIZE(T, size, align) static_assert(sizeof(T) == size && alignof(T) == align, #T)
SIZE(bool, 1, 1);
SIZE(char, 1, 1);
SIZE(uchar, 1, 1);
SIZE(short, 2, 2);
SIZE(ushort, 2, 2);
SIZE(int, 4, 4);
SIZE(uint, 4, 4);
SIZE(long, 8, 8);
SIZE(ulong, 8, 8);
SIZE(half, 2, 2);
SIZE(bfloat, 2, 2);
SIZE(float, 4, 4);
SIZE(size_t, 8, 8);
SIZE(bool2, 2, 2);
SIZE(bool3, 4, 4);
SIZE(bool4, 4, 4);
SIZE(char2, 2, 2);
SIZE(uchar3, 4, 4);
SIZE(short2, 4, 4);
SIZE(ushort3, 8, 8);
SIZE(half2, 4, 4);
SIZE(half3, 8, 8);
SIZE(half4, 8, 8);
SIZE(bfloat4, 8, 8);
SIZE(int2, 8, 8);
SIZE(uint3, 16, 16);
SIZE(float2, 8, 8);
SIZE(float3, 16, 16);
SIZE(float4, 16, 16);
SIZE(long2, 16, 16);
SIZE(ulong3, 32, 32);
SIZE(packed_char3, 3, 1);
SIZE(packed_half3, 6, 2);
SIZE(packed_float2, 8, 4);
SIZE(packed_float3, 12, 4);
SIZE(packed_uint4, 16, 4);
SIZE(packed_long2, 16, 8);
SIZE(float2x2, 16, 8);
SIZE(float3x3, 48, 16);
SIZE(float4x4, 64, 16);
SIZE(float2x3, 32, 16);
SIZE(half4x3, 32, 8);
SIZE(atomic_int, 4, 4);
SIZE(atomic_uint, 4, 4);
SIZE(atomic_float, 4, 4);
SIZE(atomic_bool, 1, 1);
SIZE(atomic<uint>, 4, 4);

struct Mixed {
    float3 position;
    half weight;
    bool alive;
};
SIZE(Mixed, 32, 16);
struct Tight {
    packed_float3 a;
    uchar b;
};
SIZE(Tight, 16, 4);

#define SAME(A, B) static_assert(is_same_v<A, B>, #A)
SAME(decltype(1.0), float);
SAME(decltype(1.0h), half);
SAME(decltype(2h), half);
SAME(decltype(1.5bf), bfloat);
SAME(decltype(1f), float);
SAME(decltype(half(1) * half(2)), half);
SAME(decltype(half(1) * 1.0f), float);
SAME(decltype(bfloat(1) + bfloat(2)), bfloat);
SAME(decltype(float2() * 2), float2);
SAME(decltype(2.0 * half3()), half3);
SAME(decltype(float3() < float3()), bool3);
SAME(decltype(packed_float3() + float3()), float3);
SAME(decltype(int2() << 1), int2);
SAME(decltype(float4().xyz), float3);
SAME(simd::float4, float4);

// Constructors.
constexpr float4 abcd = float4(1, 2, 3, 4);
static_assert(all(abcd == float4(float2(1, 2), 3, 4)), "");
static_assert(all(abcd == float4(1, float2(2, 3), 4)), "");
static_assert(all(abcd == float4(1, 2, float2(3, 4))), "");
static_assert(all(abcd == float4(float2(1, 2), float2(3, 4))), "");
static_assert(all(abcd == float4(float3(1, 2, 3), 4)), "");
static_assert(all(abcd == float4(1, float3(2, 3, 4))), "");
static_assert(all(float3(float2(1, 2), 3) == float3(1, float2(2, 3))), "");
static_assert(all(float2(3) == float2(3, 3)), "");
constexpr float4 listed = {5};
static_assert(all(listed == float4(5, 0, 0, 0)), "");
constexpr int3 list3 = {1, 2, 3};
static_assert(list3.z == 3 && list3.b == 3 && list3.r == 1 && list3.g == 2, "");
static_assert(all(int4(float4(1.9, -1.9, 0, 7)) == int4(1, -1, 0, 7)), "");
static_assert(all(float2(packed_float2(1, 2)) == float2(1, 2)), "");
static_assert(all(half2(bfloat2(1, 2)) == half2(1, 2)), "");
static_assert(all(float3(packed_half3(1, 2, 3)) == float3(1, 2, 3)), "");

static_assert(static_cast<half>(bfloat(2)) == half(2) && static_cast<bfloat>(half(2)) == bfloat(2), "");
static_assert(static_cast<int>(2.5) == 2 && static_cast<float2>(int2(1, 2)).y == 2, "");

// Swizzles.
static_assert(all(abcd.wzyx == float4(4, 3, 2, 1)), "");
static_assert(all(abcd.bgr == float3(3, 2, 1)), "");
static_assert(all(abcd.xx == float2(1, 1)) && all(abcd.yyyy == float4(2)), "");
constexpr float4 assigned() {
    float4 v = float4(0);
    v.xy = float2(1, 2);
    v.zw = v.yx;
    v.wx += 10;
    v.a *= 2;
    return v;
}
static_assert(all(assigned() == float4(11, 2, 2, 22)), "");

// Arithmetic.
static_assert(all(-int2(1, -2) == int2(-1, 2)) && all(~uint2(0) == uint2(0xffffffffu)), "");
static_assert(all(int2(7, 9) / 2 == int2(3, 4)) && all(7 % int2(4, 5) == int2(3, 2)), "");
static_assert(all((int2(1, 2) & 1) == int2(1, 0)) && all((uint2(1, 2) << 3) == uint2(8, 16)), "");
static_assert(any(int2(0, 1) != 0) && !all(int2(0, 1) != 0), "");
static_assert(all((char2(100) + char2(100)) == char2(-56)), "");
static_assert(all(!bool2(true, false) == bool2(false, true)), "");

// Limits and macros.
static_assert(numeric_limits<int>::max() == INT_MAX && numeric_limits<int>::min() == INT_MIN, "");
static_assert(numeric_limits<uchar>::max() == 255 && numeric_limits<char>::lowest() == -128, "");
static_assert(numeric_limits<float>::max() == FLT_MAX && numeric_limits<float>::lowest() == -FLT_MAX, "");
static_assert(numeric_limits<half>::max() == HALF_MAX && numeric_limits<half>::epsilon() == HALF_EPSILON, "");
static_assert(__HALF_MAX__ == HALF_MAX && __HALF_EPSILON__ == HALF_EPSILON && __HALF_MANT_DIG__ == 11, "");
static_assert(numeric_limits<float>::infinity() == INFINITY && NAN != NAN, "");
static_assert(__METAL_VERSION__ == 320, "");

// Functions.
static_assert(min(3, 4) == 3 && max(-1, 1) == 1 && clamp(7, 0, 5) == 5 && abs(-3) == 3, "");
static_assert(min(1.0f, 2) == 1.0f && max(half(1), half(2)) == half(2), "");
static_assert(clamp(float2(-1, 2), 0, 1).y == 1 && all(min(int2(1, 5), 3) == int2(1, 3)), "");
static_assert(mix(2.0, 4.0, 0.5) == 3 && step(1.0, 0.5) == 0 && sign(-2.0) == -1, "");
static_assert(popcount(0xf0u) == 4 && clz(uchar(1)) == 7 && ctz(8) == 3 && clz(0) == 32, "");
static_assert(reverse_bits(uchar(1)) == 128 && reverse_bits(1u) == 0x80000000u, "");
static_assert(mulhi(0x80000000u, 4u) == 2 && mulhi(-1, 1) == -1, "");
static_assert(mulhi(0x8000000000000000ul, 4ul) == 2 && mulhi(-1l, 1l) == -1 && mulhi(-3l, -5l) == 0, "");
static_assert(mulhi(0xfffffffffffffffful, 0xfffffffffffffffful) == 0xfffffffffffffffeul, "");
static_assert(rotate(0x80000001u, 4u) == 0x18u && rotate(uchar(0x81), uchar(1)) == 3, "");
static_assert(hadd(7, 4) == 5 && rhadd(7, 4) == 6 && hadd(INT_MAX, INT_MAX) == INT_MAX && absdiff(2u, 5u) == 3, "");
static_assert(extract_bits(0xabcdu, 4, 8) == 0xbc && extract_bits(0x80, 4, 4) == -8, "");
static_assert(insert_bits(0u, 0xffu, 8, 4) == 0xf00 && insert_bits(7u, 0u, 0, 32) == 0, "");
static_assert(mad24(3, 4, 5) == 17, "");
static_assert(median3(3, 1, 2) == 2 && max3(1, 3, 2) == 3 && min3(3, 1, 2) == 1, "");
static_assert(dot(float3(1, 2, 3), float3(4, 5, 6)) == 32, "");
static_assert(all(cross(float3(1, 0, 0), float3(0, 1, 0)) == float3(0, 0, 1)), "");
static_assert(all(select(int2(1, 2), int2(3, 4), bool2(true, false)) == int2(3, 2)) && select(1, 2, false) == 1, "");
static_assert(isnan(NAN) && !isnan(1.0) && isinf(INFINITY) && isfinite(1.0h), "");
static_assert(isnormal(1.0) && !isnormal(0.0) && !isnormal(1e-40), "");
static_assert(as_type<uint>(1.0f) == 0x3f800000u && all(as_type<ushort2>(0x00020001u) == ushort2(1, 2)), "");
static_assert(determinant(float3x3(2.0)) == 8 && determinant(float4x4(float4(1, 0, 0, 0), float4(0, 2, 0, 0), float4(0, 0, 3, 0), float4(0, 0, 0, 4))) == 24, "");
static_assert(all(float2x2(1, 2, 3, 4) * float2(1, 1) == float2(4, 6)), "");
static_assert(all(float2(1, 1) * float2x2(1, 2, 3, 4) == float2(3, 7)), "");
static_assert(all(transpose(float2x3(1, 2, 3, 4, 5, 6))[1] == float2(2, 5)), "");

// Everything that is not a constant at least compiles, for each type.
template <typename T> T functions(T a, T b) {
    a = exp(a) + exp2(a) + exp10(a) + log(a) + log2(a) + log10(a) + sin(a) + cos(a) + tan(a);
    a += asin(a) + acos(a) + atan(a) + atan2(a, b) + sinh(a) + cosh(a) + tanh(a) + asinh(a) + acosh(a) + atanh(a);
    a += pow(a, b) + powr(a, b) + sqrt(a) + rsqrt(a) + fabs(a) + fract(a) + rint(a) + round(a) + fmod(a, b);
    a += fma(a, b, a) + fmin(a, b) + fmax(a, b) + fdim(a, b) + copysign(a, b) + divide(a, b) + saturate(a);
    a += sinpi(a) + cospi(a) + tanpi(a) + smoothstep(a, b, a) + mix(a, b, a) + fast::exp(a) + precise::sin(a);
    T c;
    a += sincos(a, c) + c;
    a += modf(a, c) + c;
    return a;
}
template float functions(float, float);
template half functions(half, half);
template float2 functions(float2, float2);
template half3 functions(half3, half3);
template float4 functions(float4, float4);

float geometry(float3 a, float3 b, packed_float3 p) {
    return length(a) + distance(a, b) + dot(p, a) + length_squared(b) + normalize(a).x + reflect(a, b).y +
           refract(a, b, 0.5).z + faceforward(a, b, a).x + length(p);
}

float exchange(float a, uint b, half4 c, bool d) {
    a = simd_sum(a) + simd_shuffle_down(a, 1) + simd_broadcast(a, 0) + simd_prefix_inclusive_sum(a) + quad_max(a);
    b = simd_or(b) + simd_min(b) + simd_shuffle_xor(b, b) + simd_shuffle_and_fill_up(b, 0u, 1);
    c = simd_sum(c) + simd_shuffle(c, ushort(3));
    d = simd_all(d) || simd_any(d) || simd_is_first() || quad_all(d);
    return a + b + c.x + d + popcount(ulong(simd_ballot(d)));
}
