// The names of vectors and matrices: float4, packed_half3, float4x4 and the rest.
#pragma once

#define ELINVAR_VECTORS(name, T)                                                                               \
    using name##2 = metal::vec<T, 2>;                                                                         \
    using name##3 = metal::vec<T, 3>;                                                                         \
    using name##4 = metal::vec<T, 4>;
#define ELINVAR_PACKED(name, T)                                                                                \
    using packed_##name##2 = metal::packed_vec<T, 2>;                                                         \
    using packed_##name##3 = metal::packed_vec<T, 3>;                                                         \
    using packed_##name##4 = metal::packed_vec<T, 4>;
#define ELINVAR_MATRICES(name, T)                                                                              \
    using name##2x2 = metal::matrix<T, 2, 2>;                                                                 \
    using name##2x3 = metal::matrix<T, 2, 3>;                                                                 \
    using name##2x4 = metal::matrix<T, 2, 4>;                                                                 \
    using name##3x2 = metal::matrix<T, 3, 2>;                                                                 \
    using name##3x3 = metal::matrix<T, 3, 3>;                                                                 \
    using name##3x4 = metal::matrix<T, 3, 4>;                                                                 \
    using name##4x2 = metal::matrix<T, 4, 2>;                                                                 \
    using name##4x3 = metal::matrix<T, 4, 3>;                                                                 \
    using name##4x4 = metal::matrix<T, 4, 4>;
#define ELINVAR_NAMES                                                                                          \
    ELINVAR_VECTORS(bool, bool)                                                                               \
    ELINVAR_VECTORS(char, char) ELINVAR_PACKED(char, char)                                                    \
    ELINVAR_VECTORS(uchar, unsigned char) ELINVAR_PACKED(uchar, unsigned char)                                \
    ELINVAR_VECTORS(short, short) ELINVAR_PACKED(short, short)                                                \
    ELINVAR_VECTORS(ushort, unsigned short) ELINVAR_PACKED(ushort, unsigned short)                            \
    ELINVAR_VECTORS(int, int) ELINVAR_PACKED(int, int)                                                        \
    ELINVAR_VECTORS(uint, unsigned int) ELINVAR_PACKED(uint, unsigned int)                                    \
    ELINVAR_VECTORS(long, long) ELINVAR_PACKED(long, long)                                                    \
    ELINVAR_VECTORS(ulong, unsigned long) ELINVAR_PACKED(ulong, unsigned long)                                \
    ELINVAR_VECTORS(half, _Float16) ELINVAR_PACKED(half, _Float16)                                            \
    ELINVAR_VECTORS(bfloat, __bf16) ELINVAR_PACKED(bfloat, __bf16)                                            \
    ELINVAR_VECTORS(float, float) ELINVAR_PACKED(float, float)                                                \
    ELINVAR_MATRICES(half, _Float16) ELINVAR_MATRICES(float, float)

ELINVAR_NAMES
namespace metal {
ELINVAR_NAMES
} // namespace metal
using metal::packed_vec;
using metal::vec;

#undef ELINVAR_VECTORS
#undef ELINVAR_PACKED
#undef ELINVAR_MATRICES
#undef ELINVAR_NAMES
