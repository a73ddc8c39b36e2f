// Hyperbolic functions and their inverses.
#pragma once

namespace elinvar {
namespace real {
ELINVAR_INLINE float sinh(float x) {
    float a = magnitude(x), z = a * a;
    float p = polynomial(z, 0x1.756cb4p-19f, 0x1.a022bap-13f, 0x1.1110ep-7f, 0x1.555556p-3f);
    float half = exp_shifted(a, -1);
    // A selection of variables is no branch.
    float small = fma(a * z, p, a), large = half - 0.25f / half;
    return with_sign(a < 1.0f ? small : large, x);
}
ELINVAR_INLINE float cosh(float x) {
    float half = exp_shifted(magnitude(x), -1);
    return half + 0.25f / half;
}
ELINVAR_INLINE float tanh(float x) {
    float a = magnitude(x), z = a * a;
    float p = polynomial(z, 0x1.189a92p-9f, -0x1.0bfc66p-7f, 0x1.639406p-6f, -0x1.b9f046p-5f, 0x1.111076p-3f,
                         -0x1.555554p-2f);
    float small = fma(a * z, p, a), large = 1.0f - 2.0f / (exp(a + a) + 1.0f);
    return with_sign(a < 0.625f ? small : large, x);
}

// From 2^13 on, asinh and acosh are log(2 x).
ELINVAR_INLINE float asinh(float x) {
    float a = magnitude(x), z = a * a;
    bool large = a >= 0x1p+13f;
    float sum = a + z / (1.0f + __builtin_elementwise_sqrt(z + 1.0f));
    return with_sign(log1p(large ? a : sum, large), x);
}
ELINVAR_INLINE float acosh(float x) {
    float t = x - 1.0f;
    bool large = x >= 0x1p+13f;
    float value = log1p(large ? x : t + __builtin_elementwise_sqrt(fma(t, t, t + t)), large);
    return x < 1.0f ? nan : value;
}
ELINVAR_INLINE float atanh(float x) {
    float a = magnitude(x);
    return with_sign(0.5f * log1p((a + a) / (1.0f - a)), x);
}
} // namespace real
} // namespace elinvar
