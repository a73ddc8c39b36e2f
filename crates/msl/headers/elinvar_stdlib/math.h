// <metal_math>: functions of float, half and bfloat, scalar and by component. half and bfloat are
// computed in float and rounded once. `fast` and `precise` are the same functions here.
#pragma once

namespace elinvar {
ELINVAR_PURE float fraction(float a) {
    float f = a - __builtin_floorf(a);
    return __builtin_fminf(f, 0x1.fffffep-1f);
}
inline constexpr float pi = 3.14159265358979323846f;
} // namespace elinvar

// `expression` is over floats a, b, c.
#define ELINVAR_MATH1(name, expression)                                                                        \
    template <class T, class = enable_if_t<elinvar::scalars<T>>> ELINVAR_PURE auto name(T x) {                \
        using R = conditional_t<is_integral_v<T>, float, T>;                                                  \
        float a = float(x);                                                                                   \
        return R(expression);                                                                                 \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<T, N> name(vec<T, N> v) {                                      \
        return elinvar::each<T, N>([](T x) { return name(x); }, v);                                           \
    }                                                                                                         \
    ELINVAR_BOTH(name)
#define ELINVAR_MATH2(name, expression)                                                                        \
    template <class A, class B, class = enable_if_t<elinvar::scalars<A, B>>> ELINVAR_PURE auto name(A x, B y) { \
        using T = elinvar::common_t<A, B>;                                                                    \
        using R = conditional_t<is_integral_v<T>, float, T>;                                                  \
        float a = float(x), b = float(y);                                                                     \
        return R(expression);                                                                                 \
    }                                                                                                         \
    template <class A, class B, class V = elinvar::joined_t<A, B>, class = void> ELINVAR_PURE V name(A x, B y) { \
        using T = typename V::value_type;                                                                     \
        return elinvar::each<T, V::size>([](T p, T q) { return name(p, q); }, elinvar::widen<V>(x), elinvar::widen<V>(y)); \
    }                                                                                                         \
    ELINVAR_BOTH(name)

namespace metal {
ELINVAR_MATH1(acos, __builtin_acosf(a))
ELINVAR_MATH1(acosh, __builtin_acoshf(a))
ELINVAR_MATH1(asin, __builtin_asinf(a))
ELINVAR_MATH1(asinh, __builtin_asinhf(a))
ELINVAR_MATH1(atan, __builtin_atanf(a))
ELINVAR_MATH1(atanh, __builtin_atanhf(a))
ELINVAR_MATH1(ceil, __builtin_ceilf(a))
ELINVAR_MATH1(cos, __builtin_cosf(a))
ELINVAR_MATH1(cosh, __builtin_coshf(a))
ELINVAR_MATH1(cospi, __builtin_cosf(a * elinvar::pi))
ELINVAR_MATH1(exp, __builtin_expf(a))
ELINVAR_MATH1(exp2, __builtin_exp2f(a))
ELINVAR_MATH1(exp10, __builtin_exp10f(a))
ELINVAR_MATH1(fabs, __builtin_fabsf(a))
ELINVAR_MATH1(floor, __builtin_floorf(a))
ELINVAR_MATH1(fract, elinvar::fraction(a))
ELINVAR_MATH1(log, __builtin_logf(a))
ELINVAR_MATH1(log2, __builtin_log2f(a))
ELINVAR_MATH1(log10, __builtin_log10f(a))
ELINVAR_MATH1(rint, __builtin_rintf(a))
ELINVAR_MATH1(round, __builtin_roundf(a))
ELINVAR_MATH1(rsqrt, 1.0f / __builtin_sqrtf(a))
ELINVAR_MATH1(sin, __builtin_sinf(a))
ELINVAR_MATH1(sinh, __builtin_sinhf(a))
ELINVAR_MATH1(sinpi, __builtin_sinf(a * elinvar::pi))
ELINVAR_MATH1(sqrt, __builtin_sqrtf(a))
ELINVAR_MATH1(tan, __builtin_tanf(a))
ELINVAR_MATH1(tanh, __builtin_tanhf(a))
ELINVAR_MATH1(tanpi, __builtin_tanf(a * elinvar::pi))
ELINVAR_MATH1(trunc, __builtin_truncf(a))
ELINVAR_MATH2(atan2, __builtin_atan2f(a, b))
ELINVAR_MATH2(copysign, __builtin_copysignf(a, b))
ELINVAR_MATH2(divide, a / b)
ELINVAR_MATH2(fdim, __builtin_fdimf(a, b))
ELINVAR_MATH2(fmod, __builtin_fmodf(a, b))
ELINVAR_MATH2(nextafter, __builtin_nextafterf(a, b))
ELINVAR_MATH2(pow, __builtin_powf(a, b))
ELINVAR_MATH2(powr, __builtin_powf(a, b))

ELINVAR_COMMON3(fma, T(__builtin_fmaf(float(a), float(b), float(c))))
ELINVAR_BOTH(fma)

template <class T, class = enable_if_t<is_floating_point_v<T>>> ELINVAR_PURE T ldexp(T a, int exponent) {
    return T(__builtin_ldexpf(float(a), exponent));
}
template <class T, int N> ELINVAR_PURE vec<T, N> ldexp(vec<T, N> v, vec<int, N> exponents) {
    return elinvar::each<T, N>([](T a, int e) { return ldexp(a, e); }, v, exponents);
}
template <class T, class = enable_if_t<is_floating_point_v<T>>> ELINVAR_INLINE T frexp(T a, int& exponent) {
    return T(__builtin_frexpf(float(a), &exponent));
}
template <class T, class = enable_if_t<is_floating_point_v<T>>> ELINVAR_PURE int ilogb(T a) {
    return __builtin_ilogbf(float(a));
}
template <class T, class = enable_if_t<is_floating_point_v<T>>> ELINVAR_INLINE T modf(T a, T& whole) {
    whole = trunc(a);
    return copysign(__builtin_isinf(float(a)) ? T(0) : T(a - whole), a);
}
template <class T, class = enable_if_t<is_floating_point_v<T>>> ELINVAR_INLINE T sincos(T a, T& cosine) {
    cosine = cos(a);
    return sin(a);
}
template <class T, int N> ELINVAR_INLINE vec<T, N> modf(vec<T, N> v, vec<T, N>& whole) {
    vec<T, N> rest;
    for (int i = 0; i < N; ++i) rest[i] = modf(v[i], whole[i]);
    return rest;
}
template <class T, int N> ELINVAR_INLINE vec<T, N> frexp(vec<T, N> v, vec<int, N>& exponents) {
    vec<T, N> fraction;
    for (int i = 0; i < N; ++i) fraction[i] = frexp(v[i], exponents[i]);
    return fraction;
}
template <class T, int N> ELINVAR_INLINE vec<T, N> sincos(vec<T, N> v, vec<T, N>& cosine) {
    cosine = cos(v);
    return sin(v);
}
} // namespace metal

#undef ELINVAR_MATH1
#undef ELINVAR_MATH2
