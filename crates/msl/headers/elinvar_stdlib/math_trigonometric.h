// Sine, cosine and tangent, of angles and of multiples of pi, and their inverses.
#pragma once

namespace elinvar {
namespace real {
// An angle as r, from -pi/4 to pi/4, and a number of quarter turns, of which the last two bits count.
struct Angle {
    float r;
    int quarters;
};

// For angles up to 10^5 exact to a unit in the last place of r; the error grows to 10^-4 at 6 * 10^6.
// Beyond that the angle is some angle: the result of a sine is from -1 to 1, not its value.
ELINVAR_INLINE Angle reduced_quick(float x) {
    Nearest n = nearest(x, 0x1.45f306p-1f);
    float r = fma(n.value, -0x1.921fb4p+0f, x);
    r = fma(n.value, -0x1.4442dp-24f, r);
    r = fma(n.value, -0x1.846988p-48f, r);
    r = r > 1.0f ? 1.0f : r;
    r = r < -1.0f ? -1.0f : r;
    return {x - x == 0.0f ? r : nan, n.integer};
}

// Word number `first` to `first` + 3 of 2/pi, which begins behind 32 zero bits.
ELINVAR_INLINE unsigned two_over_pi(unsigned first, int word) {
    constexpr unsigned words[8] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                   0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    unsigned value = words[word];
    value = first >= 1 ? words[word + 1] : value;
    value = first >= 2 ? words[word + 2] : value;
    value = first >= 3 ? words[word + 3] : value;
    return first >= 4 ? words[word + 4] : value;
}

// For angles from 2^17 to infinity: the product with the bits of 2/pi that matter (Payne and Hanek).
ELINVAR_INLINE Angle reduced_large(float x) {
    unsigned b = bits(x), mantissa = (b & 0x7fffffu) | 0x800000u;
    unsigned start = ((b >> 23) & 0xffu) - 120u;
    unsigned first = (start >> 5) & 7u, shift = start & 31u;
    unsigned long w[3];
    unsigned high = two_over_pi(first, 0);
    for (int i = 0; i < 3; ++i) {
        unsigned low = two_over_pi(first, i + 1);
        w[i] = (((unsigned long)high << 32 | low) << shift) >> 32;
        high = low;
    }
    // The product modulo 4, with 62 bits behind the point.
    unsigned long product = w[1] * mantissa + (w[2] * mantissa >> 32) + ((w[0] * mantissa) << 32);
    unsigned quarters = unsigned((product + 0x2000000000000000ul) >> 62);
    float r = float(double(long(product << 2) >> 2) * 0x1.921fb54442d18p-62);
    bool negative = (b >> 31) != 0u;
    return {x - x == 0.0f ? (negative ? -r : r) : nan, int(negative ? 0u - quarters : quarters)};
}

template <bool Exact> ELINVAR_INLINE Angle reduced(float x) {
    if constexpr (Exact)
        if (magnitude(x) >= 0x1p+17f) return reduced_large(x);
    return reduced_quick(x);
}

// pi * x. Exact but for the last step.
ELINVAR_INLINE Angle reduced_multiple(float x) {
    float turn = fma(-2.0f, __builtin_rintf(x * 0.5f), x);
    Nearest n = nearest(turn, 2.0f);
    float r = fma(-0.5f, n.value, turn);
    return {fma(r, 0x1.921fb6p+1f, r * -0x1.777a5cp-24f), n.integer};
}

struct Wave {
    float sine, cosine;
};
ELINVAR_INLINE Wave wave_near_zero(float r) {
    float z = r * r;
    float s = polynomial(z, 0x1.79c52ap-19f, -0x1.a0516p-13f, 0x1.11116ep-7f, -0x1.555556p-3f);
    float c = polynomial(z, 0x1.998868p-16f, -0x1.6c0ae2p-10f, 0x1.555548p-5f);
    // A zero keeps its sign.
    return {z == 0.0f ? r : fma(r * z, s, r), fma(z, fma(z, c, -0.5f), 1.0f)};
}

ELINVAR_INLINE float sine_of(Angle a) {
    Wave w = wave_near_zero(a.r);
    float value = (a.quarters & 1) != 0 ? w.cosine : w.sine;
    return from_bits(bits(value) ^ (unsigned(a.quarters & 2) << 30));
}
ELINVAR_INLINE float cosine_of(Angle a) { return sine_of({a.r, a.quarters + 1}); }
ELINVAR_INLINE float tangent_of(Angle a) {
    Wave w = wave_near_zero(a.r);
    bool odd = (a.quarters & 1) != 0;
    return (odd ? -w.cosine : w.sine) / (odd ? w.sine : w.cosine);
}

template <bool Exact> ELINVAR_INLINE float sin(float x) { return sine_of(reduced<Exact>(x)); }
template <bool Exact> ELINVAR_INLINE float cos(float x) { return cosine_of(reduced<Exact>(x)); }
template <bool Exact> ELINVAR_INLINE float tan(float x) { return tangent_of(reduced<Exact>(x)); }
template <bool Exact> ELINVAR_INLINE float sincos(float x, float& cosine) {
    Angle a = reduced<Exact>(x);
    cosine = cosine_of(a);
    return sine_of(a);
}

// Zeros have the sign of x for sinpi, none for cospi; tanpi alternates.
ELINVAR_INLINE float sinpi(float x) {
    float value = sine_of(reduced_multiple(x));
    return value == 0.0f ? with_sign(0.0f, x) : value;
}
ELINVAR_INLINE float cospi(float x) {
    // In integers: where a source's own math does not care for the sign of zero, choices do not either.
    unsigned value = bits(cosine_of(reduced_multiple(x)));
    return from_bits(value == 0x80000000u ? 0u : value);
}
ELINVAR_INLINE float tanpi(float x) {
    Angle a = reduced_multiple(x);
    bool odd = (a.quarters & 1) != 0, second = (a.quarters & 2) != 0;
    float zero = with_sign(0.0f, x);
    float limit = odd ? (second ? -infinity : infinity) : (second ? -zero : zero);
    return a.r == 0.0f ? limit : tangent_of(a);
}

// For x from 0 to 1.
ELINVAR_INLINE float atan_near_zero(float x) {
    float z = x * x;
    float p = polynomial(z, -0x1.d7478p-10f, 0x1.65eb4ep-7f, -0x1.fec2b8p-6f, 0x1.da9e58p-5f, -0x1.581efap-4f,
                         0x1.c0905ep-4f, -0x1.2420aap-3f, 0x1.9991e4p-3f, -0x1.55553ep-2f);
    return fma(x * z, p, x);
}
ELINVAR_INLINE float atan(float x) {
    float a = magnitude(x);
    bool large = a > 1.0f;
    float p = atan_near_zero(large ? 1.0f / a : a);
    return with_sign(large ? half_pi - (p - half_pi_rest) : p, x);
}
ELINVAR_INLINE float atan2(float y, float x) {
    float a = magnitude(y), b = magnitude(x);
    bool steep = a > b, behind = __builtin_signbitf(x) != 0;
    float small = steep ? b : a, large = steep ? a : b;
    float ratio = small == large ? 1.0f : small / large;
    ratio = small == 0.0f ? 0.0f : ratio;
    float p = atan_near_zero(ratio);
    p = steep != behind ? -p : p;
    float from = steep ? 1.0f : behind ? 2.0f : 0.0f;
    float value = fma(from, half_pi, fma(from, half_pi_rest, p));
    return ((x != x) | (y != y)) ? x + y : with_sign(value, y);
}

// asin(x), for x from 0 to 0.5 of which z is the square.
ELINVAR_INLINE float asin_near_zero(float x, float z) {
    float p = polynomial(z, 0x1.34c692p-5f, 0x1.d5252ep-7f, 0x1.04d2a8p-5f, 0x1.6ca758p-5f, 0x1.3338acp-4f,
                         0x1.55554cp-3f);
    return fma(x * z, p, x);
}
ELINVAR_INLINE float asin(float x) {
    float a = magnitude(x);
    bool large = a > 0.5f;
    float z = large ? (1.0f - a) * 0.5f : a * a;
    float p = asin_near_zero(large ? __builtin_elementwise_sqrt(z) : a, z);
    return with_sign(large ? half_pi - (2.0f * p - half_pi_rest) : p, x);
}
ELINVAR_INLINE float acos(float x) {
    float a = magnitude(x);
    bool large = a > 0.5f;
    float z = large ? (1.0f - a) * 0.5f : a * a;
    float p = asin_near_zero(large ? __builtin_elementwise_sqrt(z) : x, z);
    float from = large ? (x < 0.0f ? 2.0f : 0.0f) : 1.0f;
    p = large ? (x < 0.0f ? -2.0f * p : 2.0f * p) : -p;
    return fma(from, half_pi, fma(from, half_pi_rest, p));
}
} // namespace real
} // namespace elinvar
