// <metal_relational>: questions about floats, and choice between values.
#pragma once

#define ELINVAR_QUESTION(name, expression)                                                                     \
    template <class T, class... Z, class = enable_if_t<elinvar::floating_scalar<T> && sizeof...(Z) == 0>>     \
    ELINVAR_PURE bool name(T x, Z...) {                                                                       \
        float a = float(x);                                                                                   \
        return expression;                                                                                    \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<bool, N> name(vec<T, N> v) {                                   \
        return elinvar::each<bool, N>([](T x) { return name(x); }, v);                                        \
    }                                                                                                         \
    ELINVAR_PURE bool name(float a) { return name<float>(a); }                                                \
    ELINVAR_PURE bool name(half a) { return name<half>(a); }                                                  \
    ELINVAR_BOTH(name)

namespace metal {
ELINVAR_QUESTION(isnan, __builtin_isnan(a))
ELINVAR_QUESTION(isinf, __builtin_isinf(a))
ELINVAR_QUESTION(isfinite, __builtin_isfinite(a))
ELINVAR_QUESTION(signbit, __builtin_signbitf(a) != 0)

// Whether a number is neither zero, subnormal, infinite nor NaN, judged in its own format.
template <class T, class = enable_if_t<elinvar::floating_scalar<T>>> ELINVAR_PURE bool isnormal(T a) {
    float m = __builtin_fabsf(float(a));
    return m >= float(numeric_limits<T>::min()) && m < __builtin_inff();
}
template <class T, int N> ELINVAR_PURE vec<bool, N> isnormal(vec<T, N> v) {
    return elinvar::each<bool, N>([](T a) { return isnormal(a); }, v);
}
template <class T> ELINVAR_PURE auto isunordered(T a, T b) { return isnan(a) || isnan(b); }
template <class T> ELINVAR_PURE auto isordered(T a, T b) { return !isunordered(a, b); }

ELINVAR_PURE bool all(bool a) { return a; }
ELINVAR_PURE bool any(bool a) { return a; }
template <int N> ELINVAR_PURE bool all(vec<bool, N> v) {
    bool result = v.x && v.y;
    if constexpr (N > 2) result = result && v.z;
    if constexpr (N > 3) result = result && v.w;
    return result;
}
template <int N> ELINVAR_PURE bool any(vec<bool, N> v) {
    bool result = v.x || v.y;
    if constexpr (N > 2) result = result || v.z;
    if constexpr (N > 3) result = result || v.w;
    return result;
}

// The second where the condition holds, else the first.
template <class A, class B, class... Z, class = enable_if_t<elinvar::scalars<A, B> && sizeof...(Z) == 0>>
ELINVAR_PURE auto select(A a, B b, bool second, Z...) {
    using T = elinvar::common_t<A, B>;
    return second ? T(b) : T(a);
}
template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE V select(A a, B b, vec<bool, V::size> second) {
    using T = typename V::value_type;
    return elinvar::each<T, V::size>([](T p, T q, bool c) { return c ? q : p; }, elinvar::widen<V>(a),
                                     elinvar::widen<V>(b), second);
}
#define ELINVAR_SELECT(name, T) ELINVAR_PURE T name(T a, T b, bool second) { return second ? b : a; }
ELINVAR_EXACT_NUMBERS(ELINVAR_SELECT, select)
#undef ELINVAR_SELECT
} // namespace metal

#undef ELINVAR_QUESTION
