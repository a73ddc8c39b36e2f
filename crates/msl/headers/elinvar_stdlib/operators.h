// Operators on vectors, and the machinery that applies a function to each component.
#pragma once

namespace elinvar {
// What a type contributes to an operation between vectors.
template <class T> struct shape {
    static constexpr int lanes = elinvar::arithmetic_scalar<T> || __is_enum(T) ? 0 : -1;
    using scalar = T;
};
template <class T, int N> struct shape<vec<T, N>> {
    static constexpr int lanes = N;
    using scalar = T;
};
template <class T, int N> struct shape<packed_vec<T, N>> {
    static constexpr int lanes = N;
    using scalar = T;
};

// The vector type of an operation on A and B, at least one of which is a vector: a scalar takes the
// component type of the vector; two vectors agree in component type and length.
template <class A, class B, int M = shape<A>::lanes, int N = shape<B>::lanes> struct joined {};
template <class A, class B, int N> struct joined<A, B, N, N> : enable_if<(N > 0) && is_same_v<typename shape<A>::scalar, typename shape<B>::scalar>, vec<typename shape<A>::scalar, (N > 0 ? N : 2)>> {};
template <class A, class B> struct joined<A, B, 0, 0> {};
template <class A, class B, int N> struct joined<A, B, N, 0> : enable_if<(N > 0), vec<typename shape<A>::scalar, (N > 0 ? N : 2)>> {};
template <class A, class B, int N> struct joined<A, B, 0, N> : enable_if<(N > 0), vec<typename shape<B>::scalar, (N > 0 ? N : 2)>> {};
template <class A, class B> using joined_t = typename joined<A, B>::type;

template <class R, class A> ELINVAR_PURE R widen(A a) {
    if constexpr (shape<A>::lanes > 0)
        return a;
    else
        return R(convert<typename R::value_type>(a));
}

// f of each component (of one vector, of the components that stand at the same place in several).
template <class R, int N, class F, class... V> ELINVAR_PURE vec<R, N> each(F f, V... v) {
    if constexpr (N == 2)
        return vec<R, 2>(f(v.x...), f(v.y...));
    else if constexpr (N == 3)
        return vec<R, 3>(f(v.x...), f(v.y...), f(v.z...));
    else if constexpr (N == 4)
        return vec<R, 4>(f(v.x...), f(v.y...), f(v.z...), f(v.w...));
    else {
        vec<R, N> out(R(0));
        for (int i = 0; i < N; ++i) out[i] = f(v[i]...);
        return out;
    }
}
} // namespace elinvar

#define ELINVAR_COMPONENTS(R, S, op)                                                                           \
    if constexpr (V::size == 2)                                                                               \
        return R(S(l.x op r.x), S(l.y op r.y));                                                               \
    else if constexpr (V::size == 3)                                                                          \
        return R(S(l.x op r.x), S(l.y op r.y), S(l.z op r.z));                                                \
    else if constexpr (V::size == 4)                                                                          \
        return R(S(l.x op r.x), S(l.y op r.y), S(l.z op r.z), S(l.w op r.w));                                 \
    else {                                                                                                    \
        R out(S(0));                                                                                          \
        for (int i = 0; i < V::size; ++i) out[i] = S(l[i] op r[i]);                                           \
        return out;                                                                                           \
    }
#define ELINVAR_ARITHMETIC(op)                                                                                 \
    template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE V operator op(A a, B b) {     \
        using S = typename V::value_type;                                                                     \
        V l = elinvar::widen<V>(a), r = elinvar::widen<V>(b);                                                 \
        ELINVAR_COMPONENTS(V, S, op)                                                                          \
    }                                                                                                         \
    ELINVAR_ASSIGNMENT(op)
// Only the low bits of a shift count matter, as many as the component's width needs.
#define ELINVAR_SHIFT(op)                                                                                      \
    template <class A, class B, class V = elinvar::joined_t<A, B>> ELINVAR_PURE V operator op(A a, B b) {     \
        using S = typename V::value_type;                                                                     \
        V l = elinvar::widen<V>(a);                                                                           \
        V r = elinvar::each<S, V::size>([](S by) { return S(by & S(sizeof(S) * 8 - 1)); }, elinvar::widen<V>(b)); \
        ELINVAR_COMPONENTS(V, S, op)                                                                          \
    }                                                                                                         \
    ELINVAR_ASSIGNMENT(op)
#define ELINVAR_ASSIGNMENT(op)                                                                                 \
    template <class T, int N, class B, class V = elinvar::joined_t<vec<T, N>, B>>                             \
    ELINVAR_PURE vec<T, N>& operator op##=(vec<T, N>& a, B b) {                                               \
        return a = a op b;                                                                                    \
    }                                                                                                         \
    template <class T, int N, class B, class V = elinvar::joined_t<vec<T, N>, B>>                             \
    ELINVAR_PURE packed_vec<T, N>& operator op##=(packed_vec<T, N>& a, B b) {                                 \
        return a = a op b;                                                                                    \
    }
#define ELINVAR_COMPARISON(op)                                                                                 \
    template <class A, class B, class V = elinvar::joined_t<A, B>>                                            \
    ELINVAR_PURE vec<bool, V::size> operator op(A a, B b) {                                                   \
        using R = vec<bool, V::size>;                                                                         \
        V l = elinvar::widen<V>(a), r = elinvar::widen<V>(b);                                                 \
        ELINVAR_COMPONENTS(R, bool, op)                                                                       \
    }
#define ELINVAR_UNARY(op, R)                                                                                   \
    template <class T, int N> ELINVAR_PURE vec<R, N> operator op(vec<T, N> v) {                               \
        return elinvar::each<R, N>([](T a) { return R(op a); }, v);                                           \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<R, N> operator op(packed_vec<T, N> v) {                        \
        return op vec<T, N>(v);                                                                               \
    }

namespace metal {
ELINVAR_ARITHMETIC(+)
ELINVAR_ARITHMETIC(-)
ELINVAR_ARITHMETIC(*)
ELINVAR_ARITHMETIC(/)
ELINVAR_ARITHMETIC(%)
ELINVAR_ARITHMETIC(&)
ELINVAR_ARITHMETIC(|)
ELINVAR_ARITHMETIC(^)
ELINVAR_SHIFT(<<)
ELINVAR_SHIFT(>>)
ELINVAR_COMPARISON(==)
ELINVAR_COMPARISON(!=)
ELINVAR_COMPARISON(<)
ELINVAR_COMPARISON(<=)
ELINVAR_COMPARISON(>)
ELINVAR_COMPARISON(>=)
ELINVAR_COMPARISON(&&)
ELINVAR_COMPARISON(||)
ELINVAR_UNARY(-, T)
ELINVAR_UNARY(+, T)
ELINVAR_UNARY(~, T)
ELINVAR_UNARY(!, bool)

template <class T, int N> ELINVAR_PURE vec<T, N>& operator++(vec<T, N>& v) { return v += T(1); }
template <class T, int N> ELINVAR_PURE vec<T, N>& operator--(vec<T, N>& v) { return v -= T(1); }
template <class T, int N> ELINVAR_PURE vec<T, N> operator++(vec<T, N>& v, int) {
    vec<T, N> old = v;
    v += T(1);
    return old;
}
template <class T, int N> ELINVAR_PURE vec<T, N> operator--(vec<T, N>& v, int) {
    vec<T, N> old = v;
    v -= T(1);
    return old;
}
} // namespace metal

#undef ELINVAR_COMPONENTS
#undef ELINVAR_ARITHMETIC
#undef ELINVAR_ASSIGNMENT
#undef ELINVAR_SHIFT
#undef ELINVAR_COMPARISON
#undef ELINVAR_UNARY
