// <metal_uniform>: a value that the source asserts to be the same for all threads, which changes no result.
#pragma once

namespace metal {
template <class T> struct uniform {
    using value_type = T;
    T value;

    uniform() = default;
    constexpr ELINVAR_MEMBER uniform(T from) : value(from) {}
    template <class U> constexpr ELINVAR_MEMBER explicit uniform(uniform<U> from) : value(T(from.value)) {}
    constexpr ELINVAR_MEMBER operator T() const { return value; }
};
template <class T> ELINVAR_PURE uniform<T> make_uniform(T value) { return value; }
template <class T> struct is_uniform : false_type {};
template <class T> struct is_uniform<uniform<T>> : true_type {};
template <class T> inline constexpr bool is_uniform_v = is_uniform<__remove_cv(T)>::value;

#define ELINVAR_OPERATOR(op)                                                                                   \
    template <class A, class B> ELINVAR_PURE auto operator op(uniform<A> a, uniform<B> b) {                   \
        return make_uniform(a.value op b.value);                                                              \
    }                                                                                                         \
    template <class A, class B> ELINVAR_PURE auto operator op(uniform<A> a, B b)->decltype(a.value op b) {    \
        return a.value op b;                                                                                  \
    }                                                                                                         \
    template <class A, class B> ELINVAR_PURE auto operator op(A a, uniform<B> b)->decltype(a op b.value) {    \
        return a op b.value;                                                                                  \
    }
ELINVAR_OPERATOR(+)
ELINVAR_OPERATOR(-)
ELINVAR_OPERATOR(*)
ELINVAR_OPERATOR(/)
ELINVAR_OPERATOR(%)
ELINVAR_OPERATOR(&)
ELINVAR_OPERATOR(|)
ELINVAR_OPERATOR(^)
ELINVAR_OPERATOR(<<)
ELINVAR_OPERATOR(>>)
ELINVAR_OPERATOR(<)
ELINVAR_OPERATOR(<=)
ELINVAR_OPERATOR(>)
ELINVAR_OPERATOR(>=)
ELINVAR_OPERATOR(==)
ELINVAR_OPERATOR(!=)
#undef ELINVAR_OPERATOR

#define ELINVAR_OPERATOR(op)                                                                                   \
    template <class A, class B> ELINVAR_PURE uniform<A>& operator op##=(uniform<A>& a, uniform<B> b) {        \
        a.value = A(a.value op b.value);                                                                      \
        return a;                                                                                             \
    }                                                                                                         \
    template <class A, class B> ELINVAR_PURE uniform<A>& operator op##=(uniform<A>& a, B b) {                 \
        a.value = A(a.value op b);                                                                            \
        return a;                                                                                             \
    }
ELINVAR_OPERATOR(+)
ELINVAR_OPERATOR(-)
ELINVAR_OPERATOR(*)
ELINVAR_OPERATOR(/)
ELINVAR_OPERATOR(%)
ELINVAR_OPERATOR(&)
ELINVAR_OPERATOR(|)
ELINVAR_OPERATOR(^)
ELINVAR_OPERATOR(<<)
ELINVAR_OPERATOR(>>)
#undef ELINVAR_OPERATOR

template <class T> ELINVAR_PURE uniform<T> operator-(uniform<T> a) { return make_uniform(T(-a.value)); }
template <class T> ELINVAR_PURE auto operator~(uniform<T> a) { return make_uniform(~a.value); }
template <class T> ELINVAR_PURE auto operator!(uniform<T> a) { return make_uniform(!a.value); }
template <class T> ELINVAR_PURE uniform<T>& operator++(uniform<T>& a) {
    ++a.value;
    return a;
}
template <class T> ELINVAR_PURE uniform<T>& operator--(uniform<T>& a) {
    --a.value;
    return a;
}
template <class T> ELINVAR_PURE uniform<T> operator++(uniform<T>& a, int) {
    uniform<T> old = a;
    ++a.value;
    return old;
}
template <class T> ELINVAR_PURE uniform<T> operator--(uniform<T>& a, int) {
    uniform<T> old = a;
    --a.value;
    return old;
}
} // namespace metal
