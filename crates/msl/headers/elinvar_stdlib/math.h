// <metal_math>: functions of float, half and bfloat, scalar and by component.
//
// half and bfloat are computed in float and rounded once. `fast` and `precise` differ for sine, cosine,
// tangent and powers; the source's math mode says which of them a plain name is. Contraction and
// rearranging are off for this code in every mode.
#pragma once

#pragma float_control(precise, on, push)
#pragma clang fp contract(off)

#include "math_core.h"
#include "math_exp.h"
#include "math_trigonometric.h"
#include "math_hyperbolic.h"
#include "math_exact.h"

namespace elinvar {
// The type of a function of T, and whether its precise form goes through the exact algorithm: every half is
// within the range of the quick one.
template <class T> using float_for = conditional_t<elinvar::integral_scalar<T>, float, T>;
template <class T> inline constexpr bool exact = !is_same_v<T, half>;
} // namespace elinvar

// `expression` is over floats a, b; T is the type of the function, Exact the form.
#define ELINVAR_MATH1(name, expression)                                                                        \
    template <class A, class... Z, class = enable_if_t<elinvar::scalars<A> && sizeof...(Z) == 0>>              \
    ELINVAR_PURE auto name(A x, Z...) {                                                                        \
        using T = elinvar::float_for<A>;                                                                       \
        float a = elinvar::real::wide(x);                                                                      \
        return elinvar::real::narrow<T>(expression);                                                           \
    }                                                                                                          \
    template <class T, int N> ELINVAR_PURE vec<T, N> name(vec<T, N> v) {                                       \
        return elinvar::each<T, N>([](T x) { return name(x); }, v);                                            \
    }                                                                                                          \
    ELINVAR_EXACT1(name, float) ELINVAR_EXACT1(name, half)
#define ELINVAR_MATH2(name, expression)                                                                        \
    template <class A, class B, class... Z, class = enable_if_t<elinvar::scalars<A, B> && sizeof...(Z) == 0>>  \
    ELINVAR_PURE auto name(A x, B y, Z...) {                                                                   \
        using T = elinvar::float_for<elinvar::common_t<A, B>>;                                                 \
        float a = elinvar::real::wide(x), b = elinvar::real::wide(y);                                          \
        return elinvar::real::narrow<T>(expression);                                                           \
    }                                                                                                          \
    template <class A, class B, class V = elinvar::joined_t<A, B>, class = void> ELINVAR_PURE V name(A x, B y) { \
        using T = typename V::value_type;                                                                      \
        return elinvar::each<T, V::size>([](T p, T q) { return name(p, q); }, elinvar::widen<V>(x), elinvar::widen<V>(y)); \
    }                                                                                                          \
    ELINVAR_EXACT2(name, float) ELINVAR_EXACT2(name, half)
#define ELINVAR_SINCOS(form)                                                                                   \
    template <class T, class = enable_if_t<elinvar::floating_scalar<T>>> ELINVAR_INLINE T sincos(T x, T& cosine) {  \
        float c, s = elinvar::real::sincos<form>(elinvar::real::wide(x), c);                                   \
        cosine = elinvar::real::narrow<T>(c);                                                                  \
        return elinvar::real::narrow<T>(s);                                                                    \
    }                                                                                                          \
    template <class T, int N> ELINVAR_INLINE vec<T, N> sincos(vec<T, N> v, vec<T, N>& cosine) {                \
        vec<T, N> sine;                                                                                        \
        for (int i = 0; i < N; ++i) sine[i] = sincos(v[i], cosine[i]);                                         \
        return sine;                                                                                           \
    }
// The functions that have two forms.
#define ELINVAR_FORMS(form)                                                                                    \
    ELINVAR_MATH1(sin, elinvar::real::sin<form>(a))                                                            \
    ELINVAR_MATH1(cos, elinvar::real::cos<form>(a))                                                            \
    ELINVAR_MATH1(tan, elinvar::real::tan<form>(a))                                                            \
    ELINVAR_MATH2(pow, elinvar::real::pow<form>(a, b))                                                         \
    ELINVAR_MATH2(powr, elinvar::real::powr<form>(a, b))                                                       \
    ELINVAR_SINCOS(form)

namespace metal {
namespace fast {
ELINVAR_FORMS(false)
} // namespace fast
namespace precise {
ELINVAR_FORMS(elinvar::exact<T>)
} // namespace precise
#ifdef ELINVAR_SAFE_MATH
#define ELINVAR_FORM precise
#else
#define ELINVAR_FORM fast
#endif
using ELINVAR_FORM::sin;
using ELINVAR_FORM::cos;
using ELINVAR_FORM::tan;
using ELINVAR_FORM::pow;
using ELINVAR_FORM::powr;
using ELINVAR_FORM::sincos;

#define ELINVAR_ONE1(name, expression) ELINVAR_MATH1(name, expression) ELINVAR_BOTH(name)
#define ELINVAR_ONE2(name, expression) ELINVAR_MATH2(name, expression) ELINVAR_BOTH(name)
ELINVAR_ONE1(acos, elinvar::real::acos(a))
ELINVAR_ONE1(acosh, elinvar::real::acosh(a))
ELINVAR_ONE1(asin, elinvar::real::asin(a))
ELINVAR_ONE1(asinh, elinvar::real::asinh(a))
ELINVAR_ONE1(atan, elinvar::real::atan(a))
ELINVAR_ONE1(atanh, elinvar::real::atanh(a))
ELINVAR_ONE1(ceil, __builtin_ceilf(a))
ELINVAR_ONE1(cosh, elinvar::real::cosh(a))
ELINVAR_ONE1(cospi, elinvar::real::cospi(a))
ELINVAR_ONE1(exp, elinvar::real::exp(a))
ELINVAR_ONE1(exp2, elinvar::real::exp2(a))
ELINVAR_ONE1(exp10, elinvar::real::exp10(a))
ELINVAR_ONE1(fabs, __builtin_fabsf(a))
ELINVAR_ONE1(floor, __builtin_floorf(a))
ELINVAR_ONE1(fract, elinvar::real::fract<T>(a))
ELINVAR_ONE1(log, elinvar::real::log_to(a, elinvar::real::natural))
ELINVAR_ONE1(log2, elinvar::real::log_to(a, elinvar::real::binary))
ELINVAR_ONE1(log10, elinvar::real::log_to(a, elinvar::real::decimal))
ELINVAR_ONE1(rint, __builtin_rintf(a))
ELINVAR_ONE1(round, elinvar::real::round(a))
ELINVAR_ONE1(rsqrt, 1.0f / __builtin_elementwise_sqrt(a))
ELINVAR_ONE1(sinh, elinvar::real::sinh(a))
ELINVAR_ONE1(sinpi, elinvar::real::sinpi(a))
ELINVAR_ONE1(sqrt, __builtin_elementwise_sqrt(a))
ELINVAR_ONE1(tanh, elinvar::real::tanh(a))
ELINVAR_ONE1(tanpi, elinvar::real::tanpi(a))
ELINVAR_ONE1(trunc, __builtin_truncf(a))
ELINVAR_ONE2(atan2, elinvar::real::atan2(a, b))
ELINVAR_ONE2(copysign, __builtin_copysignf(a, b))
ELINVAR_ONE2(divide, a / b)
ELINVAR_ONE2(fdim, elinvar::real::fdim(a, b))
ELINVAR_ONE2(fmod, elinvar::real::fmod(a, b))
ELINVAR_ONE2(nextafter, elinvar::real::wide(elinvar::real::nextafter(T(x), T(y))))

ELINVAR_COMMON3(fma, elinvar::real::fused(a, b, c))
ELINVAR_BOTH(fma)

template <class T, class = enable_if_t<elinvar::floating_scalar<T>>> ELINVAR_PURE T ldexp(T a, int exponent) {
    return elinvar::real::narrow<T>(elinvar::real::ldexp(elinvar::real::wide(a), exponent));
}
template <class T, int N> ELINVAR_PURE vec<T, N> ldexp(vec<T, N> v, vec<int, N> exponents) {
    return elinvar::each<T, N>([](T a, int e) { return ldexp(a, e); }, v, exponents);
}
template <class T, class = enable_if_t<elinvar::floating_scalar<T>>> ELINVAR_INLINE T frexp(T a, int& exponent) {
    return elinvar::real::narrow<T>(elinvar::real::frexp(elinvar::real::wide(a), exponent));
}
template <class T, int N> ELINVAR_INLINE vec<T, N> frexp(vec<T, N> v, vec<int, N>& exponents) {
    vec<T, N> fraction;
    for (int i = 0; i < N; ++i) fraction[i] = frexp(v[i], exponents[i]);
    return fraction;
}
template <class T, class = enable_if_t<elinvar::floating_scalar<T>>> ELINVAR_PURE int ilogb(T a) {
    return elinvar::real::ilogb(elinvar::real::wide(a));
}
template <class T, int N> ELINVAR_PURE vec<int, N> ilogb(vec<T, N> v) {
    return elinvar::each<int, N>([](T a) { return ilogb(a); }, v);
}
template <class T, class = enable_if_t<elinvar::floating_scalar<T>>> ELINVAR_INLINE T modf(T a, T& whole) {
    float x = elinvar::real::wide(a), integral = __builtin_truncf(x);
    whole = elinvar::real::narrow<T>(integral);
    float rest = __builtin_fabsf(x) == __builtin_inff() ? 0.0f : x - integral;
    return elinvar::real::narrow<T>(__builtin_copysignf(rest, x));
}
template <class T, int N> ELINVAR_INLINE vec<T, N> modf(vec<T, N> v, vec<T, N>& whole) {
    vec<T, N> rest;
    for (int i = 0; i < N; ++i) rest[i] = modf(v[i], whole[i]);
    return rest;
}
ELINVAR_BOTH(ldexp)
ELINVAR_BOTH(frexp)
ELINVAR_BOTH(ilogb)
ELINVAR_BOTH(modf)
} // namespace metal

#undef ELINVAR_MATH1
#undef ELINVAR_MATH2
#undef ELINVAR_SINCOS
#undef ELINVAR_FORMS
#undef ELINVAR_FORM
#undef ELINVAR_ONE1
#undef ELINVAR_ONE2
#pragma float_control(pop)
