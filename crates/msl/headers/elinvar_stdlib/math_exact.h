// Functions whose result is exact or correctly rounded.
#pragma once

namespace elinvar {
namespace real {
// Halves away from zero.
ELINVAR_INLINE float round(float x) {
    float whole = __builtin_truncf(x);
    float step = magnitude(x - whole) >= 0.5f ? 1.0f : 0.0f;
    return with_sign(magnitude(whole) + step, x);
}

// x - floor(x), below 1 also where it rounds to that; zero for infinities.
template <class T> ELINVAR_INLINE float fract(float x) {
    constexpr float last = is_same_v<T, half> ? 0x1.ffcp-1f : is_same_v<T, bfloat> ? 0x1.fep-1f : 0x1.fffffep-1f;
    float value = x - __builtin_floorf(x);
    value = value > last ? last : value;
    return magnitude(x) == infinity ? 0.0f : value;
}

ELINVAR_INLINE float fdim(float x, float y) { return x <= y ? 0.0f : x - y; }

// Each step takes 22 bits off the quotient, exactly; most quotients need one step.
ELINVAR_INLINE float fmod(float x, float y) {
    float rest = magnitude(x), b = magnitude(y);
    bool valid = (rest < infinity) & (b > 0.0f);
    float step = b * 0x1p+22f;
    while (valid & (rest >= step)) {
        // A power of two times b that goes at most 2^22 times into the rest.
        int above = int(bits(rest) >> 23) - int(bits(step) >> 23);
        float multiple = scaled(b, above > 0 ? above : 1);
        float quotient = __builtin_truncf(rest / multiple);
        rest = fma(-quotient, multiple, rest);
        rest = rest < 0.0f ? rest + multiple : rest;
    }
    float quotient = __builtin_truncf(rest / b);
    float last = fma(-quotient, b, rest);
    last = last < 0.0f ? last + b : last;
    last = b == infinity ? rest : last;
    return valid ? with_sign(last, x) : nan;
}

// x = mantissa * 2^exponent with a mantissa from 0.5 to 1; zero, infinity and NaN with 0.
ELINVAR_INLINE float frexp(float x, int& exponent) {
    float a = magnitude(x);
    bool subnormal = a < 0x1p-126f, special = !(a < infinity) | (a == 0.0f);
    unsigned b = bits(subnormal ? x * 0x1p+24f : x);
    exponent = special ? 0 : int((b >> 23) & 0xffu) - (subnormal ? 150 : 126);
    return special ? x : from_bits((b & 0x807fffffu) | 0x3f000000u);
}
ELINVAR_INLINE int ilogb(float x) {
    int exponent;
    frexp(x, exponent);
    int special = x == 0.0f ? -2147483647 - 1 : 2147483647;
    return ((x == 0.0f) | !(magnitude(x) < infinity)) ? special : exponent - 1;
}

// The neighbour of x in its own format, in the direction of y.
template <class T, class I> ELINVAR_INLINE T neighbour(T x, T y) {
    I b = __builtin_bit_cast(I, x);
    float from = wide(x), to = wide(y);
    I next = I((from < to) == (from > 0.0f) ? b + 1 : b - 1);
    I least = I(to < 0.0f ? I(I(1) << (sizeof(I) * 8 - 1)) | I(1) : I(1));
    T value = __builtin_bit_cast(T, from == 0.0f ? least : next);
    value = from == to ? y : value;
    return ((from != from) | (to != to)) ? narrow<T>(from + to) : value;
}
template <class T> ELINVAR_INLINE T nextafter(T x, T y) {
    if constexpr (sizeof(T) == 2)
        return neighbour<T, unsigned short>(x, y);
    else
        return neighbour<T, unsigned>(x, y);
}

// The sum of a and b, made odd in its last bit where it is not exact: rounding it to a shorter format
// gives what one rounding of the exact sum gives.
template <class T, class I> ELINVAR_INLINE T odd_sum(T a, T b) {
    T sum = a + b, part = sum - a;
    T rest = (a - (sum - part)) + (b - part);
    I bits = __builtin_bit_cast(I, sum);
    bool inexact = (rest < T(0)) | (rest > T(0));
    I odd = (rest > T(0)) == (sum > T(0)) ? bits + 1 : bits - 1;
    return (inexact & ((bits & 1) == 0)) ? __builtin_bit_cast(T, odd) : sum;
}
ELINVAR_INLINE float odd_float(double a) {
    float near = float(a);
    unsigned b = bits(near);
    bool inexact = (double(near) < a) | (double(near) > a);
    unsigned odd = (double(near) < a) == (a > 0.0) ? b + 1 : b - 1;
    return (inexact & ((b & 1u) == 0u)) ? from_bits(odd) : near;
}
template <class T> ELINVAR_INLINE T fused(T a, T b, T c) {
    if constexpr (is_same_v<T, half>)
        return T(odd_sum<float, unsigned>(float(a) * float(b), float(c)));
    else if constexpr (is_same_v<T, bfloat>)
        return narrow<T>(odd_float(odd_sum<double, unsigned long>(double(wide(a)) * double(wide(b)), wide(c))));
    else if constexpr (is_same_v<T, float>)
        return fma(a, b, c);
    else
        return T(fma(float(a), float(b), float(c)));
}
} // namespace real
} // namespace elinvar
