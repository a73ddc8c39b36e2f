// Exponentials, logarithms and powers.
#pragma once

namespace elinvar {
namespace real {
// e^r * 2^n for r from -0.35 to 0.35.
ELINVAR_INLINE float exp_near_zero(float r, int n) {
    float p = polynomial(r, 0x1.6acfeep-10f, 0x1.123f22p-7f, 0x1.55584ep-5f, 0x1.55548ap-3f, 0x1.fffffcp-2f);
    return __elinvar_scale(1.0f + fma(r * r, p, r), n);
}

// e^x * 2^shift, for a shift of 0 or -1.
ELINVAR_INLINE float exp_shifted(float x, int shift) {
    x = x > 90.0f ? 90.0f : x;
    x = x < -105.0f ? -105.0f : x;
    Nearest n = nearest(x, 0x1.715476p+0f);
    float r = fma(n.value, -0x1.62e43p-1f, x);
    r = fma(n.value, 0x1.05c61p-29f, r);
    return exp_near_zero(r, n.integer + shift);
}
ELINVAR_INLINE float exp(float x) { return exp_shifted(x, 0); }

// 2^(x + rest), for a rest far below 1.
ELINVAR_INLINE float exp2_of_sum(float x, float rest) {
    x = x > 130.0f ? 130.0f : x;
    x = x < -152.0f ? -152.0f : x;
    Nearest n = nearest(x, 1.0f);
    float r = (x - n.value) + rest;
    r = fma(r, 0x1.62e43p-1f, r * -0x1.05c61p-29f);
    return exp_near_zero(r, n.integer);
}
ELINVAR_INLINE float exp2(float x) { return exp2_of_sum(x, 0.0f); }

ELINVAR_INLINE float exp10(float x) {
    x = x > 39.0f ? 39.0f : x;
    x = x < -46.0f ? -46.0f : x;
    Nearest n = nearest(x, 0x1.a934fp+1f);
    float r = fma(n.value, -0x1.344136p-2f, x);
    r = fma(n.value, 0x1.ec10cp-27f, r);
    r = fma(r, 0x1.26bb1cp+1f, r * -0x1.12aabap-25f);
    return exp_near_zero(r, n.integer);
}

// x = (1 + fraction) * 2^exponent for a positive number, 1 + fraction from sqrt(1/2) to sqrt(2).
// For zero, infinity and NaN some value.
struct Parts {
    float fraction;
    int exponent;
};
ELINVAR_INLINE Parts parts(float x) {
    bool subnormal = x < 0x1p-126f;
    unsigned b = bits(subnormal ? x * 0x1p+24f : x) - 0x3f3504f3u;
    return {from_bits((b & 0x7fffffu) + 0x3f3504f3u) - 1.0f, (int(b) >> 23) - (subnormal ? 24 : 0)};
}

// A logarithm's base: the logarithms of e and of 2, each as a float and what it lacks.
struct Base {
    float e, e_rest, two, two_rest;
};
inline constexpr Base natural = {1.0f, 0.0f, 0x1.62e43p-1f, -0x1.05c61p-29f};
inline constexpr Base binary = {0x1.715476p+0f, 0x1.4ae0cp-26f, 1.0f, 0.0f};
inline constexpr Base decimal = {0x1.bcb7b2p-2f, -0x1.5b235ep-27f, 0x1.344136p-2f, -0x1.ec10cp-27f};

// log(1 + f) - f.
ELINVAR_INLINE float log_beyond(float f) {
    float p = polynomial(f, -0x1.39201p-4f, 0x1.08b2f8p-3f, -0x1.0f3dcep-3f, 0x1.226276p-3f, -0x1.5424dcp-3f,
                         0x1.99a498p-3f, -0x1.000436p-2f, 0x1.55555p-2f, -0x1.fffff8p-2f);
    return f * f * p;
}
ELINVAR_INLINE float log_of_parts(float f, int exponent, Base base) {
    float n = float(exponent);
    float low = fma(f, base.e_rest, log_beyond(f) * base.e);
    return fma(n, base.two, fma(n, base.two_rest, fma(f, base.e, low)));
}

// The value for zero, negative numbers, infinity and NaN, and `value` for the rest.
ELINVAR_INLINE float log_or_special(float x, float value) {
    value = x < infinity ? value : x;
    value = x < 0.0f ? nan : value;
    return x == 0.0f ? -infinity : value;
}
ELINVAR_INLINE float log_to(float x, Base base) {
    Parts p = parts(x);
    return log_or_special(x, log_of_parts(p.fraction, p.exponent, base));
}

// log(1 + x), or log(2 x) where `large` is set.
ELINVAR_INLINE float log1p(float x, bool large = false) {
    float w = large ? x : 1.0f + x;
    Parts p = parts(w);
    // What the sum has lost.
    float lost = x > 1.0f ? 1.0f - (w - x) : x - (w - 1.0f);
    float f = p.exponent == 0 ? x : p.fraction + scaled(lost, p.exponent > 126 ? -126 : -p.exponent);
    f = large ? p.fraction : f;
    return log_or_special(w, log_of_parts(f, p.exponent + (large ? 1 : 0), natural));
}

// log2 of a number without sign, to about 45 bits; infinite for zero and infinity.
ELINVAR_INLINE double log2_long(float x) {
    Parts p = parts(x);
    double f = double(p.fraction);
    double s = f / (2.0 + f), z = s * s;
    double c = 0x1.21b88c9cfe89ap-2;
    c = c * z + 0x1.4794d56ede240p-2;
    c = c * z + 0x1.a61a31b6245b3p-2;
    c = c * z + 0x1.2776c28fdba2cp-1;
    c = c * z + 0x1.ec709dc53f074p-1;
    c = c * z + 0x1.71547652b8250p+1;
    double value = s * c + double(p.exponent);
    value = x < infinity ? value : double(x);
    return x == 0.0f ? -double(infinity) : value;
}

// The same to about 27 bits behind the point, as a sum.
struct Sum {
    float value, rest;
};
ELINVAR_INLINE Sum log2_quick(float x) {
    Parts p = parts(x);
    float f = p.fraction, n = float(p.exponent);
    float product = f * binary.e, lost = fma(f, binary.e, -product);
    float high = n + product;
    float low = (product - (high - n)) + (lost + fma(f, binary.e_rest, log_beyond(f) * binary.e));
    float value = high + low, rest = low - (value - high);
    return {log_or_special(x, value), rest};
}

// x^y for x without sign, from exp2(y * log2(x)): NaN for 0^0, infinity^0 and 1^infinity. The error of
// the quick form grows with y.
template <bool Exact> ELINVAR_INLINE float power(float x, float y) {
    if constexpr (Exact) {
        double t = double(y) * log2_long(x);
        t = t > 200.0 ? 200.0 : t;
        t = t < -200.0 ? -200.0 : t;
        float near = float(t);
        return exp2_of_sum(near, float(t - double(near)));
    } else {
        Sum l = log2_quick(x);
        float t = y * l.value;
        float rest = fma(y, l.value, -t) + y * l.rest;
        return exp2_of_sum(t, magnitude(t) < 1000.0f ? rest : 0.0f);
    }
}

template <bool Exact> ELINVAR_INLINE float powr(float x, float y) {
    float value = power<Exact>(magnitude(x), y);
    return x < 0.0f ? nan : value;
}

template <bool Exact> ELINVAR_INLINE float pow(float x, float y) {
    float value = power<Exact>(magnitude(x), y);
    bool whole = __builtin_truncf(y) == y;
    bool odd = whole & (__builtin_truncf(y * 0.5f) * 2.0f != y);
    value = odd ? with_sign(value, x) : value;
    value = ((x < 0.0f) & (x > -infinity) & !whole & (y == y)) ? nan : value;
    bool one = (x == 1.0f) | (y == 0.0f) | ((x == -1.0f) & (magnitude(y) == infinity));
    return one ? 1.0f : value;
}
} // namespace real
} // namespace elinvar
