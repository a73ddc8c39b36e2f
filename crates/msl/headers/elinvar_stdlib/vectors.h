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
template <class T, class From> struct program_value;

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

// Components that a vector's storage has room for.
constexpr int storage_lanes(int lanes) {
    int room = 1;
    while (room < lanes) room *= 2;
    return room;
}
template <class T> inline constexpr int lanes_of = 1;
template <class T, int N> inline constexpr int lanes_of<metal::vec<T, N>> = N;
template <class T, int N> inline constexpr int lanes_of<metal::packed_vec<T, N>> = N;
// What the attributes `ext_vector_type` and `packed_vector_type` of a source become.
template <class T, int N> using ext_vector = metal::vec<T, N>;
template <class T, int N> using packed_vector = metal::packed_vec<T, N>;

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
    template <class U, class F>
    ELINVAR_MEMBER explicit vec(elinvar::program_value<vec<U, 2>, F> v) : vec(v.get()) {}
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
    template <class U, class F>
    ELINVAR_MEMBER explicit vec(elinvar::program_value<vec<U, 3>, F> v) : vec(v.get()) {}
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

// Vectors of other lengths, of the compiler's `ext_vector_type`.
template <class T, int N> struct alignas(elinvar::storage_lanes(N) * sizeof(T)) vec {
    using value_type = T;
    static constexpr int size = N;
    T components[N];

    vec() = default;
    constexpr ELINVAR_MEMBER vec(T s) : components{} {
        for (int i = 0; i < N; ++i) components[i] = s;
    }
    constexpr ELINVAR_MEMBER vec(std::initializer_list<T> l) : components{} {
        for (int i = 0; i < N; ++i) components[i] = elinvar::listed(l, i);
    }
    template <class U> constexpr ELINVAR_MEMBER explicit vec(vec<U, N> v) : components{} {
        for (int i = 0; i < N; ++i) components[i] = elinvar::convert<T>(v.components[i]);
    }
    // Of scalars and shorter vectors.
    template <class A, class B, class... C,
              class = enable_if_t<((elinvar::lanes_of<A> + elinvar::lanes_of<B>)+... + elinvar::lanes_of<C>) == N>>
    constexpr ELINVAR_MEMBER vec(A a, B b, C... c) : components{} {
        int at = 0;
        put(at, a);
        put(at, b);
        (put(at, c), ...);
    }

    constexpr ELINVAR_MEMBER T& operator[](int i) { return components[i]; }
    constexpr ELINVAR_MEMBER const T& operator[](int i) const { return components[i]; }

#define ELINVAR_COMPONENT(name, i)                                                                             \
    constexpr ELINVAR_MEMBER T get_##name() const { return components[i]; }                                   \
    constexpr ELINVAR_MEMBER T put_##name(T from) { return components[i] = from; }                            \
    __declspec(property(get = get_##name, put = put_##name)) T name;
    ELINVAR_COMPONENT(x, 0) ELINVAR_COMPONENT(y, 1) ELINVAR_COMPONENT(z, 2) ELINVAR_COMPONENT(w, 3)
    ELINVAR_COMPONENT(s0, 0) ELINVAR_COMPONENT(s1, 1) ELINVAR_COMPONENT(s2, 2) ELINVAR_COMPONENT(s3, 3)
    ELINVAR_COMPONENT(s4, 4) ELINVAR_COMPONENT(s5, 5) ELINVAR_COMPONENT(s6, 6) ELINVAR_COMPONENT(s7, 7)
    ELINVAR_COMPONENT(s8, 8) ELINVAR_COMPONENT(s9, 9) ELINVAR_COMPONENT(sa, 10) ELINVAR_COMPONENT(sb, 11)
    ELINVAR_COMPONENT(sc, 12) ELINVAR_COMPONENT(sd, 13) ELINVAR_COMPONENT(se, 14) ELINVAR_COMPONENT(sf, 15)
#undef ELINVAR_COMPONENT

    // Halves: of an odd length, the length before it is one more.
    static constexpr int half_size = N == 1 ? 1 : (N + 1) / 2;
    using part = vec<T, half_size>;
#define ELINVAR_PART(name, first, step)                                                                        \
    constexpr ELINVAR_MEMBER part get_##name() const {                                                        \
        part out(T(0));                                                                                       \
        for (int i = 0; i < half_size && (first) + i * step < N; ++i) out[i] = components[(first) + i * step]; \
        return out;                                                                                           \
    }                                                                                                         \
    constexpr ELINVAR_MEMBER part put_##name(part from) {                                                     \
        for (int i = 0; i < half_size && (first) + i * step < N; ++i) components[(first) + i * step] = from[i]; \
        return from;                                                                                          \
    }                                                                                                         \
    __declspec(property(get = get_##name, put = put_##name)) part name;
    ELINVAR_PART(lo, 0, 1) ELINVAR_PART(hi, half_size, 1) ELINVAR_PART(even, 0, 2) ELINVAR_PART(odd, 1, 2)
#undef ELINVAR_PART

private:
    template <class A> constexpr ELINVAR_MEMBER void put(int& at, A a) {
        if constexpr (elinvar::lanes_of<A> == 1)
            components[at++] = T(a);
        else
            for (int i = 0; i < elinvar::lanes_of<A>; ++i) components[at++] = a[i];
    }
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
