// <metal_pack>: floats in [0, 1] or [-1, 1] as integers of fewer bits, several in one word.
//
// unormN is v * (2^N - 1) rounded to the nearest integer, snormN v * (2^(N-1) - 1); both clamp before,
// NaN is 0. The first component has the lowest bits. 10a2 is three components of 10 bits and one of 2,
// 565 is blue's 5 lowest bits, green's 6 and red's 5; red is the first component.
#pragma once

namespace elinvar {
template <int Bits> ELINVAR_PURE uint to_unorm(float v) {
    return uint(__builtin_rintf(smaller(larger(v, 0.0f), 1.0f) * float((1u << Bits) - 1)));
}
template <int Bits> ELINVAR_PURE uint to_snorm(float v) {
    float most = float((1u << (Bits - 1)) - 1);
    float kept = v == v ? smaller(larger(v, -1.0f), 1.0f) : 0.0f;
    return uint(int(__builtin_rintf(kept * most))) & ((1u << Bits) - 1);
}
template <int Bits> ELINVAR_PURE float from_unorm(uint word, int at) {
    uint mask = (1u << Bits) - 1;
    return float((word >> at) & mask) / float(mask);
}
template <int Bits> ELINVAR_PURE float from_snorm(uint word, int at) {
    int value = int(word << (32 - Bits - at)) >> (32 - Bits);
    return larger(float(value) / float((1 << (Bits - 1)) - 1), -1.0f);
}
ELINVAR_PURE float to_srgb(float v) {
    float kept = smaller(larger(v, 0.0f), 1.0f);
    return kept < 0.0031308f ? 12.92f * kept : 1.055f * real::power<true>(kept, 1.0f / 2.4f) - 0.055f;
}
ELINVAR_PURE float from_srgb(float v) {
    return v <= 0.04045f ? v / 12.92f : real::power<true>((v + 0.055f) / 1.055f, 2.4f);
}
} // namespace elinvar

// The pair of functions for a format, for float and half; `from` is its name in the second.
#define ELINVAR_PACK(format, N, Word, packed, unpacked) ELINVAR_PACK_AS(format, format, N, Word, packed, unpacked)
#define ELINVAR_PACK_AS(format, from, N, Word, packed, unpacked)                                                     \
    ELINVAR_PURE Word pack_float_to_##format(vec<float, N> v) { return Word(packed); }                        \
    ELINVAR_PURE Word pack_half_to_##format(vec<half, N> h) {                                                 \
        vec<float, N> v(h);                                                                                   \
        return Word(packed);                                                                                  \
    }                                                                                                         \
    ELINVAR_PURE vec<float, N> unpack_##from##_to_float(Word w) { return vec<float, N> unpacked; }          \
    ELINVAR_PURE vec<half, N> unpack_##from##_to_half(Word w) {                                             \
        return vec<half, N>(unpack_##from##_to_float(w));                                                   \
    }

namespace metal {
ELINVAR_PACK(unorm4x8, 4, uint,
             elinvar::to_unorm<8>(v.x) | elinvar::to_unorm<8>(v.y) << 8 | elinvar::to_unorm<8>(v.z) << 16 |
                 elinvar::to_unorm<8>(v.w) << 24,
             (elinvar::from_unorm<8>(w, 0), elinvar::from_unorm<8>(w, 8), elinvar::from_unorm<8>(w, 16),
              elinvar::from_unorm<8>(w, 24)))
ELINVAR_PACK(snorm4x8, 4, uint,
             elinvar::to_snorm<8>(v.x) | elinvar::to_snorm<8>(v.y) << 8 | elinvar::to_snorm<8>(v.z) << 16 |
                 elinvar::to_snorm<8>(v.w) << 24,
             (elinvar::from_snorm<8>(w, 0), elinvar::from_snorm<8>(w, 8), elinvar::from_snorm<8>(w, 16),
              elinvar::from_snorm<8>(w, 24)))
ELINVAR_PACK(unorm2x16, 2, uint, elinvar::to_unorm<16>(v.x) | elinvar::to_unorm<16>(v.y) << 16,
             (elinvar::from_unorm<16>(w, 0), elinvar::from_unorm<16>(w, 16)))
ELINVAR_PACK(snorm2x16, 2, uint, elinvar::to_snorm<16>(v.x) | elinvar::to_snorm<16>(v.y) << 16,
             (elinvar::from_snorm<16>(w, 0), elinvar::from_snorm<16>(w, 16)))
ELINVAR_PACK(unorm10a2, 4, uint,
             elinvar::to_unorm<10>(v.x) | elinvar::to_unorm<10>(v.y) << 10 | elinvar::to_unorm<10>(v.z) << 20 |
                 elinvar::to_unorm<2>(v.w) << 30,
             (elinvar::from_unorm<10>(w, 0), elinvar::from_unorm<10>(w, 10), elinvar::from_unorm<10>(w, 20),
              elinvar::from_unorm<2>(w, 30)))
ELINVAR_PACK(unorm565, 3, ushort,
             elinvar::to_unorm<5>(v.z) | elinvar::to_unorm<6>(v.y) << 5 | elinvar::to_unorm<5>(v.x) << 11,
             (elinvar::from_unorm<5>(w, 11), elinvar::from_unorm<6>(w, 5), elinvar::from_unorm<5>(w, 0)))
// The alpha component is not in sRGB.
ELINVAR_PACK_AS(srgb_unorm4x8, unorm4x8_srgb, 4, uint,
             elinvar::to_unorm<8>(elinvar::to_srgb(v.x)) | elinvar::to_unorm<8>(elinvar::to_srgb(v.y)) << 8 |
                 elinvar::to_unorm<8>(elinvar::to_srgb(v.z)) << 16 | elinvar::to_unorm<8>(v.w) << 24,
             (elinvar::from_srgb(elinvar::from_unorm<8>(w, 0)), elinvar::from_srgb(elinvar::from_unorm<8>(w, 8)),
              elinvar::from_srgb(elinvar::from_unorm<8>(w, 16)), elinvar::from_unorm<8>(w, 24)))
} // namespace metal

#undef ELINVAR_PACK
#undef ELINVAR_PACK_AS
