// <simd/simd.h>: the names that sources shared with the host use.
#include <elinvar_stdlib_macros.h>
#ifndef ELINVAR_SIMD
#define ELINVAR_SIMD

namespace simd = metal;

#define ELINVAR_SHARED(name)                                                                                   \
    using simd_##name##2 = metal::name##2;                                                                    \
    using simd_##name##3 = metal::name##3;                                                                    \
    using simd_##name##4 = metal::name##4;                                                                    \
    using vector_##name##2 = metal::name##2;                                                                  \
    using vector_##name##3 = metal::name##3;                                                                  \
    using vector_##name##4 = metal::name##4;
ELINVAR_SHARED(char)
ELINVAR_SHARED(uchar)
ELINVAR_SHARED(short)
ELINVAR_SHARED(ushort)
ELINVAR_SHARED(int)
ELINVAR_SHARED(uint)
ELINVAR_SHARED(float)
ELINVAR_SHARED(half)
#undef ELINVAR_SHARED

using simd_float2x2 = metal::float2x2;
using simd_float3x3 = metal::float3x3;
using simd_float4x4 = metal::float4x4;
using matrix_float2x2 = metal::float2x2;
using matrix_float3x3 = metal::float3x3;
using matrix_float4x4 = metal::float4x4;
#endif
