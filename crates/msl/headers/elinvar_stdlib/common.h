// <metal_common> and the functions that integers and floats share: min, max, clamp, abs and their kin.
// fmin and fmax of floats give the other argument when one is NaN.
#pragma once

namespace elinvar {
template <class T> inline constexpr bool floating = elinvar::floating_scalar<T>;

// The scalar type of an operation on several scalars; the type itself when they agree.
template <class A, class... B> struct common {
    using type = conditional_t<(is_same_v<A, B> && ...), A, decltype((A() + ... + B()))>;
};
template <class... A> using common_t = typename common<A...>::type;
template <class... A> inline constexpr bool scalars = (elinvar::arithmetic_scalar<A> && ...);

template <class T> ELINVAR_PURE T smaller(T a, T b) {
    if constexpr (is_same_v<T, float>)
        return __builtin_fminf(a, b);
    else if constexpr (floating<T>)
        return T(__builtin_fminf(float(a), float(b)));
    else
        return b < a ? b : a;
}
template <class T> ELINVAR_PURE T larger(T a, T b) {
    if constexpr (is_same_v<T, float>)
        return __builtin_fmaxf(a, b);
    else if constexpr (floating<T>)
        return T(__builtin_fmaxf(float(a), float(b)));
    else
        return a < b ? b : a;
}
template <class T> ELINVAR_PURE T magnitude(T a) {
    if constexpr (is_same_v<T, float>)
        return __builtin_fabsf(a);
    else if constexpr (floating<T>)
        return T(__builtin_fabsf(float(a)));
    else if constexpr (is_unsigned_v<T>)
        return a;
    else
        return T(a < 0 ? -a : a);
}
template <class T> ELINVAR_PURE T sign_of(T a) {
    return a > T(0) ? T(1) : a < T(0) ? T(-1) : a == a ? a : T(0);
}
template <class T> ELINVAR_PURE T smooth(T from, T to, T a) {
    T t = smaller(larger(T((a - from) / (to - from)), T(0)), T(1));
    return T(t * t * (T(3) - T(2) * t));
}
} // namespace elinvar

// Metal's functions are overloads for each type, which are preferred to a template of the source's. So that this holds here,
// there is one for each type beside the template; and the template has an empty pack of parameters, which makes one of the
// source's more specialized where no such overload fits.
#define ELINVAR_EXACT1(name, T) ELINVAR_PURE T name(T a) { return name<T>(a); }
#define ELINVAR_EXACT2(name, T) ELINVAR_PURE T name(T a, T b) { return name<T, T>(a, b); }
#define ELINVAR_EXACT3(name, T) ELINVAR_PURE T name(T a, T b, T c) { return name<T, T, T>(a, b, c); }
#define ELINVAR_EXACT_NUMBERS(exact, name)                                                                     \
    ELINVAR_EXACT_INTEGERS(exact, name) exact(name, half) exact(name, float)

// Scalars of any mix of types, vectors, and vectors with scalars; `expression` is over a, b, c of type T.
#define ELINVAR_COMMON1(name, expression)                                                                      \
    template <class T, class... Z, class = enable_if_t<elinvar::scalars<T> && sizeof...(Z) == 0>>             \
    ELINVAR_PURE T name(T a, Z...) {                                                                          \
        return T(expression);                                                                                 \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<T, N> name(vec<T, N> v) {                                      \
        return elinvar::each<T, N>([](T a) { return T(expression); }, v);                                     \
    }                                                                                                         \
    ELINVAR_EXACT_NUMBERS(ELINVAR_EXACT1, name)
#define ELINVAR_COMMON2(name, expression)                                                                      \
    template <class A, class B, class... Z, class = enable_if_t<elinvar::scalars<A, B> && sizeof...(Z) == 0>> \
    ELINVAR_PURE auto name(A p, B q, Z...) {                                                                  \
        using T = elinvar::common_t<A, B>;                                                                    \
        T a = T(p), b = T(q);                                                                                 \
        return T(expression);                                                                                 \
    }                                                                                                         \
    template <class A, class B, class V = elinvar::joined_t<A, B>, class = void> ELINVAR_PURE V name(A p, B q) { \
        using T = typename V::value_type;                                                                     \
        return elinvar::each<T, V::size>([](T a, T b) { return T(expression); }, elinvar::widen<V>(p), elinvar::widen<V>(q)); \
    }                                                                                                         \
    ELINVAR_EXACT_NUMBERS(ELINVAR_EXACT2, name)
#define ELINVAR_COMMON3(name, expression)                                                                      \
    template <class A, class B, class C, class... Z, class = enable_if_t<elinvar::scalars<A, B, C> && sizeof...(Z) == 0>> \
    ELINVAR_PURE auto name(A p, B q, C r, Z...) {                                                             \
        using T = elinvar::common_t<A, B, C>;                                                                 \
        T a = T(p), b = T(q), c = T(r);                                                                       \
        return T(expression);                                                                                 \
    }                                                                                                         \
    template <class A, class B, class C, class V = elinvar::joined_t<elinvar::joined3_t<A, B>, C>, class = void> \
    ELINVAR_PURE V name(A p, B q, C r) {                                                                      \
        using T = typename V::value_type;                                                                     \
        return elinvar::each<T, V::size>([](T a, T b, T c) { return T(expression); }, elinvar::widen<V>(p),   \
                                         elinvar::widen<V>(q), elinvar::widen<V>(r));                         \
    }                                                                                                         \
    ELINVAR_EXACT_NUMBERS(ELINVAR_EXACT3, name)

namespace elinvar {
// The first two of three arguments: their vector type, or the scalar when both are scalars.
template <class A, class B, class = void> struct joined3 {
    using type = A;
};
template <class A, class B> struct joined3<A, B, enable_if_t<(shape<A>::lanes > 0) || (shape<B>::lanes > 0)>> : joined<A, B> {};
template <class A, class B> using joined3_t = typename joined3<A, B>::type;
} // namespace elinvar

namespace metal {
ELINVAR_COMMON1(abs, elinvar::magnitude(a))
ELINVAR_COMMON1(saturate, elinvar::smaller(elinvar::larger(a, T(0)), T(1)))
ELINVAR_COMMON1(sign, elinvar::sign_of(a))
ELINVAR_COMMON2(min, elinvar::smaller(a, b))
ELINVAR_COMMON2(max, elinvar::larger(a, b))
ELINVAR_COMMON2(fmin, elinvar::smaller(a, b))
ELINVAR_COMMON2(fmax, elinvar::larger(a, b))
ELINVAR_COMMON2(step, b < a ? T(0) : T(1))
ELINVAR_COMMON3(clamp, elinvar::smaller(elinvar::larger(a, b), c))
ELINVAR_COMMON3(mix, a + (b - a) * c)
ELINVAR_COMMON3(smoothstep, elinvar::smooth(a, b, c))
ELINVAR_COMMON3(min3, elinvar::smaller(a, elinvar::smaller(b, c)))
ELINVAR_COMMON3(max3, elinvar::larger(a, elinvar::larger(b, c)))
ELINVAR_COMMON3(fmin3, elinvar::smaller(a, elinvar::smaller(b, c)))
ELINVAR_COMMON3(fmax3, elinvar::larger(a, elinvar::larger(b, c)))
ELINVAR_COMMON3(median3, elinvar::larger(elinvar::smaller(a, b), elinvar::smaller(elinvar::larger(a, b), c)))
ELINVAR_COMMON3(fmedian3, elinvar::larger(elinvar::smaller(a, b), elinvar::smaller(elinvar::larger(a, b), c)))

#define ELINVAR_BOTH(name)                                                                                     \
    namespace fast {                                                                                          \
    using metal::name;                                                                                        \
    }                                                                                                         \
    namespace precise {                                                                                       \
    using metal::name;                                                                                        \
    }
ELINVAR_BOTH(abs)
ELINVAR_BOTH(saturate)
ELINVAR_BOTH(min)
ELINVAR_BOTH(max)
ELINVAR_BOTH(fmin)
ELINVAR_BOTH(fmax)
ELINVAR_BOTH(clamp)
ELINVAR_BOTH(mix)
} // namespace metal
