// vec<T, N> and packed_vec<T, N>: storage, constructors, conversions, indexing, swizzles.
//
// Swizzles are properties: they take no storage, read as values and can be assigned.
// swizzles_2.h, _3.h and _4.h list those that need no more than 2, need 3 and need 4 components;
// they are generated when the headers are laid out.
#pragma once

namespace metal {
template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;
} // namespace metal

namespace elinvar {
using namespace ::metal;

// half and bfloat do not convert into each other without a detour.
template <class T, class U> ELINVAR_PURE T convert(U value) {
    if constexpr ((__is_same(T, half) && __is_same(U, bfloat)) || (__is_same(T, bfloat) && __is_same(U, half)))
        return T(float(value));
    else
        return T(value);
}

// What `static_cast` to a value becomes in sources with bfloat.
template <class T, class U> ELINVAR_PURE T cast(U&& value) {
    using V = __remove_cvref(U);
    using R = __remove_cv(T);
    if constexpr ((__is_same(R, half) && __is_same(V, bfloat)) || (__is_same(R, bfloat) && __is_same(V, half)))
        return R(float(value));
    else
        return (T)static_cast<U&&>(value);
}
// What `(T) x` becomes there: `cast_to<T>{} ->* x`, which binds as tightly as an operator of two operands can.
template <class T> struct cast_to {};
template <class T, class U> ELINVAR_PURE T operator->*(cast_to<T>, U&& value) { return cast<T>(static_cast<U&&>(value)); }
// `(T) (U) x`: the inner cast comes first.
template <class T, class U> struct casts_to {};
template <class T, class U> ELINVAR_PURE casts_to<T, U> operator->*(cast_to<T>, cast_to<U>) { return {}; }
template <class T, class U, class V> ELINVAR_PURE T operator->*(casts_to<T, U>, V&& value) {
    return cast<T>(cast<U>(static_cast<V&&>(value)));
}

// The components of a list that may be shorter than the vector: the rest is zero.
template <class T> ELINVAR_PURE T listed(std::initializer_list<T> list, unsigned long i) {
    return list.size() > i ? list.begin()[i] : T(0);
}
} // namespace elinvar

// Component number i; `choice` is the same for constant expressions, where components are not an array.
#define ELINVAR_INDEX(choice)                                                                                  \
    template <class I> constexpr ELINVAR_MEMBER T& operator[](I i) {                                          \
        if (__builtin_is_constant_evaluated()) return choice;                                                 \
        return (&x)[i];                                                                                       \
    }                                                                                                         \
    template <class I> constexpr ELINVAR_MEMBER const T& operator[](I i) const {                              \
        if (__builtin_is_constant_evaluated()) return choice;                                                 \
        return (&x)[i];                                                                                       \
    }

#define ELINVAR_GET2(name, a, b)                                                                               \
    constexpr ELINVAR_MEMBER vec<T, 2> get_##name() const { return vec<T, 2>(a, b); }
#define ELINVAR_GET3(name, a, b, c)                                                                            \
    constexpr ELINVAR_MEMBER vec<T, 3> get_##name() const { return vec<T, 3>(a, b, c); }
#define ELINVAR_GET4(name, a, b, c, d)                                                                         \
    constexpr ELINVAR_MEMBER vec<T, 4> get_##name() const { return vec<T, 4>(a, b, c, d); }

// A swizzle that repeats a component can be read only.
#define ELINVAR_READ2(name, a, b)                                                                              \
    ELINVAR_GET2(name, a, b) __declspec(property(get = get_##name)) vec<T, 2> name;
#define ELINVAR_READ3(name, a, b, c)                                                                           \
    ELINVAR_GET3(name, a, b, c) __declspec(property(get = get_##name)) vec<T, 3> name;
#define ELINVAR_READ4(name, a, b, c, d)                                                                        \
    ELINVAR_GET4(name, a, b, c, d) __declspec(property(get = get_##name)) vec<T, 4> name;

#define ELINVAR_SWIZZLE1(name, a)                                                                              \
    constexpr ELINVAR_MEMBER T get_##name() const { return a; }                                               \
    constexpr ELINVAR_MEMBER T put_##name(T from) { return a = from; }                                        \
    __declspec(property(get = get_##name, put = put_##name)) T name;
#define ELINVAR_SWIZZLE2(name, a, b)                                                                           \
    ELINVAR_GET2(name, a, b) constexpr ELINVAR_MEMBER vec<T, 2> put_##name(vec<T, 2> from) {                  \
        a = from.x;                                                                                           \
        b = from.y;                                                                                           \
        return from;                                                                                          \
    }                                                                                                         \
    __declspec(property(get = get_##name, put = put_##name)) vec<T, 2> name;
#define ELINVAR_SWIZZLE3(name, a, b, c)                                                                        \
    ELINVAR_GET3(name, a, b, c) constexpr ELINVAR_MEMBER vec<T, 3> put_##name(vec<T, 3> from) {               \
        a = from.x;                                                                                           \
        b = from.y;                                                                                           \
        c = from.z;                                                                                           \
        return from;                                                                                          \
    }                                                                                                         \
    __declspec(property(get = get_##name, put = put_##name)) vec<T, 3> name;
#define ELINVAR_SWIZZLE4(name, a, b, c, d)                                                                     \
    ELINVAR_GET4(name, a, b, c, d) constexpr ELINVAR_MEMBER vec<T, 4> put_##name(vec<T, 4> from) {               \
        a = from.x;                                                                                           \
        b = from.y;                                                                                           \
        c = from.z;                                                                                           \
        d = from.w;                                                                                           \
        return from;                                                                                          \
    }                                                                                                         \
    __declspec(property(get = get_##name, put = put_##name)) vec<T, 4> name;

namespace metal {
template <class T> struct alignas(2 * sizeof(T)) vec<T, 2> {
    using value_type = T;
    static constexpr int size = 2;
    T x, y;

    vec() = default;
    constexpr ELINVAR_MEMBER vec(T s) : x(s), y(s) {}
    constexpr ELINVAR_MEMBER vec(T x, T y) : x(x), y(y) {}
    constexpr ELINVAR_MEMBER vec(std::initializer_list<T> l)
        : x(elinvar::listed(l, 0)), y(elinvar::listed(l, 1)) {}
    template <class U>
    constexpr ELINVAR_MEMBER explicit vec(vec<U, 2> v) : x(elinvar::convert<T>(v.x)), y(elinvar::convert<T>(v.y)) {}
    template <class U> constexpr ELINVAR_MEMBER explicit vec(packed_vec<U, 2> v) : vec(vec<U, 2>(v.x, v.y)) {}

    ELINVAR_INDEX(i == 0 ? x : y)
    ELINVAR_SWIZZLE1(r, x) ELINVAR_SWIZZLE1(g, y)
#include "swizzles_2.h"
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 3> {
    using value_type = T;
    static constexpr int size = 3;
    T x, y, z;

    vec() = default;
    constexpr ELINVAR_MEMBER vec(T s) : x(s), y(s), z(s) {}
    constexpr ELINVAR_MEMBER vec(T x, T y, T z) : x(x), y(y), z(z) {}
    constexpr ELINVAR_MEMBER vec(vec<T, 2> v, T z) : x(v.x), y(v.y), z(z) {}
    constexpr ELINVAR_MEMBER vec(T x, vec<T, 2> v) : x(x), y(v.x), z(v.y) {}
    constexpr ELINVAR_MEMBER vec(std::initializer_list<T> l)
        : x(elinvar::listed(l, 0)), y(elinvar::listed(l, 1)), z(elinvar::listed(l, 2)) {}
    template <class U>
    constexpr ELINVAR_MEMBER explicit vec(vec<U, 3> v)
        : x(elinvar::convert<T>(v.x)), y(elinvar::convert<T>(v.y)), z(elinvar::convert<T>(v.z)) {}
    template <class U> constexpr ELINVAR_MEMBER explicit vec(packed_vec<U, 3> v) : vec(vec<U, 3>(v.x, v.y, v.z)) {}

    ELINVAR_INDEX(i == 0 ? x : i == 1 ? y : z)
    ELINVAR_SWIZZLE1(r, x) ELINVAR_SWIZZLE1(g, y) ELINVAR_SWIZZLE1(b, z)
#include "swizzles_2.h"
#include "swizzles_3.h"
};

template <class T> struct alignas(4 * sizeof(T)) vec<T, 4> {
    using value_type = T;
    static constexpr int size = 4;
    T x, y, z, w;

    vec() = default;
    constexpr ELINVAR_MEMBER vec(T s) : x(s), y(s), z(s), w(s) {}
    constexpr ELINVAR_MEMBER vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    constexpr ELINVAR_MEMBER vec(vec<T, 2> v, T z, T w) : x(v.x), y(v.y), z(z), w(w) {}
    constexpr ELINVAR_MEMBER vec(T x, vec<T, 2> v, T w) : x(x), y(v.x), z(v.y), w(w) {}
    constexpr ELINVAR_MEMBER vec(T x, T y, vec<T, 2> v) : x(x), y(y), z(v.x), w(v.y) {}
    constexpr ELINVAR_MEMBER vec(vec<T, 2> a, vec<T, 2> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
    constexpr ELINVAR_MEMBER vec(vec<T, 3> v, T w) : x(v.x), y(v.y), z(v.z), w(w) {}
    constexpr ELINVAR_MEMBER vec(T x, vec<T, 3> v) : x(x), y(v.x), z(v.y), w(v.z) {}
    constexpr ELINVAR_MEMBER vec(std::initializer_list<T> l)
        : x(elinvar::listed(l, 0)), y(elinvar::listed(l, 1)), z(elinvar::listed(l, 2)), w(elinvar::listed(l, 3)) {}
    template <class U>
    constexpr ELINVAR_MEMBER explicit vec(vec<U, 4> v)
        : x(elinvar::convert<T>(v.x)), y(elinvar::convert<T>(v.y)), z(elinvar::convert<T>(v.z)),
          w(elinvar::convert<T>(v.w)) {}
    template <class U>
    constexpr ELINVAR_MEMBER explicit vec(packed_vec<U, 4> v) : vec(vec<U, 4>(v.x, v.y, v.z, v.w)) {}

    ELINVAR_INDEX(i == 0 ? x : i == 1 ? y : i == 2 ? z : w)
    ELINVAR_SWIZZLE1(r, x) ELINVAR_SWIZZLE1(g, y) ELINVAR_SWIZZLE1(b, z) ELINVAR_SWIZZLE1(a, w)
#include "swizzles_2.h"
#include "swizzles_3.h"
#include "swizzles_4.h"
};

// Packed vectors have the size and alignment of an array of their scalar.
template <class T> struct packed_vec<T, 2> {
    using value_type = T;
    static constexpr int size = 2;
    T x, y;

    packed_vec() = default;
    constexpr ELINVAR_MEMBER packed_vec(T s) : x(s), y(s) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, T y) : x(x), y(y) {}
    constexpr ELINVAR_MEMBER packed_vec(std::initializer_list<T> l) : packed_vec(vec<T, 2>(l)) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 2> v) : x(v.x), y(v.y) {}
    template <class U> constexpr ELINVAR_MEMBER explicit packed_vec(vec<U, 2> v) : packed_vec(vec<T, 2>(v)) {}
    template <class U> constexpr ELINVAR_MEMBER explicit packed_vec(packed_vec<U, 2> v) : packed_vec(vec<T, 2>(v)) {}
    constexpr ELINVAR_MEMBER operator vec<T, 2>() const { return vec<T, 2>(x, y); }

    ELINVAR_INDEX(i == 0 ? x : y)
    ELINVAR_SWIZZLE1(r, x) ELINVAR_SWIZZLE1(g, y)
#include "swizzles_2.h"
};

template <class T> struct packed_vec<T, 3> {
    using value_type = T;
    static constexpr int size = 3;
    T x, y, z;

    packed_vec() = default;
    constexpr ELINVAR_MEMBER packed_vec(T s) : x(s), y(s), z(s) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, T y, T z) : x(x), y(y), z(z) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 2> v, T z) : x(v.x), y(v.y), z(z) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, vec<T, 2> v) : x(x), y(v.x), z(v.y) {}
    constexpr ELINVAR_MEMBER packed_vec(std::initializer_list<T> l) : packed_vec(vec<T, 3>(l)) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 3> v) : x(v.x), y(v.y), z(v.z) {}
    template <class U> constexpr ELINVAR_MEMBER explicit packed_vec(vec<U, 3> v) : packed_vec(vec<T, 3>(v)) {}
    template <class U> constexpr ELINVAR_MEMBER explicit packed_vec(packed_vec<U, 3> v) : packed_vec(vec<T, 3>(v)) {}
    constexpr ELINVAR_MEMBER operator vec<T, 3>() const { return vec<T, 3>(x, y, z); }

    ELINVAR_INDEX(i == 0 ? x : i == 1 ? y : z)
    ELINVAR_SWIZZLE1(r, x) ELINVAR_SWIZZLE1(g, y) ELINVAR_SWIZZLE1(b, z)
#include "swizzles_2.h"
#include "swizzles_3.h"
};

template <class T> struct packed_vec<T, 4> {
    using value_type = T;
    static constexpr int size = 4;
    T x, y, z, w;

    packed_vec() = default;
    constexpr ELINVAR_MEMBER packed_vec(T s) : x(s), y(s), z(s), w(s) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, T y, T z, T w) : x(x), y(y), z(z), w(w) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 2> v, T z, T w) : x(v.x), y(v.y), z(z), w(w) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, vec<T, 2> v, T w) : x(x), y(v.x), z(v.y), w(w) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, T y, vec<T, 2> v) : x(x), y(y), z(v.x), w(v.y) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 2> a, vec<T, 2> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 3> v, T w) : x(v.x), y(v.y), z(v.z), w(w) {}
    constexpr ELINVAR_MEMBER packed_vec(T x, vec<T, 3> v) : x(x), y(v.x), z(v.y), w(v.z) {}
    constexpr ELINVAR_MEMBER packed_vec(std::initializer_list<T> l) : packed_vec(vec<T, 4>(l)) {}
    constexpr ELINVAR_MEMBER packed_vec(vec<T, 4> v) : x(v.x), y(v.y), z(v.z), w(v.w) {}
    template <class U> constexpr ELINVAR_MEMBER explicit packed_vec(vec<U, 4> v) : packed_vec(vec<T, 4>(v)) {}
    template <class U> constexpr ELINVAR_MEMBER explicit packed_vec(packed_vec<U, 4> v) : packed_vec(vec<T, 4>(v)) {}
    constexpr ELINVAR_MEMBER operator vec<T, 4>() const { return vec<T, 4>(x, y, z, w); }

    ELINVAR_INDEX(i == 0 ? x : i == 1 ? y : i == 2 ? z : w)
    ELINVAR_SWIZZLE1(r, x) ELINVAR_SWIZZLE1(g, y) ELINVAR_SWIZZLE1(b, z) ELINVAR_SWIZZLE1(a, w)
#include "swizzles_2.h"
#include "swizzles_3.h"
#include "swizzles_4.h"
};
} // namespace metal
