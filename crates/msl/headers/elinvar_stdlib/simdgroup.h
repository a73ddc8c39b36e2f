// <metal_simdgroup> and <metal_quadgroup>: exchange between the threads of a simdgroup.
//
// Every function on scalars is the intrinsic `__elinvar_<function>_<type>`; vectors go by component. The names in
// `metal` are templates, so that overloads of the user's for one type are preferred, and overloads for the types that Metal has.
#pragma once

#define ELINVAR_INTRINSIC(T, name, suffix, ...)                                                                \
    ELINVAR_CONVERGENT __attribute__((nothrow)) T name(__VA_ARGS__) __asm__("__elinvar_" #name "_" #suffix);
// A value and a lane, a distance or a mask.
#define ELINVAR_SHUFFLE(name, T, suffix) ELINVAR_INTRINSIC(T, name, suffix, T, ushort)
// A value alone.
#define ELINVAR_REDUCE(name, T, suffix) ELINVAR_INTRINSIC(T, name, suffix, T)
// Two values, a distance and the number of lanes that take part.
#define ELINVAR_FILL(name, T, suffix) ELINVAR_INTRINSIC(T, name, suffix, T, T, ushort, ushort)

#define ELINVAR_EXCHANGE(group, T, suffix)                                                                     \
    ELINVAR_SHUFFLE(group##_broadcast, T, suffix)                                                             \
    ELINVAR_SHUFFLE(group##_shuffle, T, suffix)                                                               \
    ELINVAR_SHUFFLE(group##_shuffle_up, T, suffix)                                                            \
    ELINVAR_SHUFFLE(group##_shuffle_down, T, suffix)                                                          \
    ELINVAR_SHUFFLE(group##_shuffle_xor, T, suffix)                                                           \
    ELINVAR_SHUFFLE(group##_shuffle_rotate_up, T, suffix)                                                     \
    ELINVAR_SHUFFLE(group##_shuffle_rotate_down, T, suffix)                                                   \
    ELINVAR_REDUCE(group##_broadcast_first, T, suffix)                                                        \
    ELINVAR_FILL(group##_shuffle_and_fill_up, T, suffix)                                                      \
    ELINVAR_FILL(group##_shuffle_and_fill_down, T, suffix)
#define ELINVAR_ARITHMETIC(group, T, suffix)                                                                   \
    ELINVAR_REDUCE(group##_sum, T, suffix)                                                                    \
    ELINVAR_REDUCE(group##_product, T, suffix)                                                                \
    ELINVAR_REDUCE(group##_min, T, suffix)                                                                    \
    ELINVAR_REDUCE(group##_max, T, suffix)                                                                    \
    ELINVAR_REDUCE(group##_prefix_inclusive_sum, T, suffix)                                                   \
    ELINVAR_REDUCE(group##_prefix_exclusive_sum, T, suffix)                                                   \
    ELINVAR_REDUCE(group##_prefix_inclusive_product, T, suffix)                                               \
    ELINVAR_REDUCE(group##_prefix_exclusive_product, T, suffix)
#define ELINVAR_BITWISE(group, T, suffix)                                                                      \
    ELINVAR_REDUCE(group##_and, T, suffix)                                                                    \
    ELINVAR_REDUCE(group##_or, T, suffix)                                                                     \
    ELINVAR_REDUCE(group##_xor, T, suffix)

#define ELINVAR_TYPE_EXCHANGE(T, suffix) ELINVAR_EXCHANGE(simd, T, suffix) ELINVAR_EXCHANGE(quad, T, suffix)
#define ELINVAR_TYPE_NUMBER(T, suffix)                                                                         \
    ELINVAR_TYPE_EXCHANGE(T, suffix) ELINVAR_ARITHMETIC(simd, T, suffix) ELINVAR_ARITHMETIC(quad, T, suffix)
#define ELINVAR_TYPE_INTEGER(T, suffix)                                                                        \
    ELINVAR_TYPE_NUMBER(T, suffix) ELINVAR_BITWISE(simd, T, suffix) ELINVAR_BITWISE(quad, T, suffix)

#define ELINVAR_EXACT_SHUFFLE(name, T)                                                                         \
    ELINVAR_INLINE ELINVAR_CONVERGENT T name(T value, ushort by) { return name<T>(value, by); }
#define ELINVAR_EXACT_REDUCE(name, T)                                                                          \
    ELINVAR_INLINE ELINVAR_CONVERGENT T name(T value) { return name<T>(value); }
#define ELINVAR_EXACT_GROUP(exact, name)                                                                       \
    exact(name, char) exact(name, uchar) exact(name, short) exact(name, ushort) exact(name, int) exact(name, uint)
#define ELINVAR_EXACT_FLOATS_exchangeable(name) ELINVAR_EXACT_REDUCE(name, half) ELINVAR_EXACT_REDUCE(name, float)
#define ELINVAR_EXACT_FLOATS_number(name) ELINVAR_EXACT_FLOATS_exchangeable(name)
#define ELINVAR_EXACT_FLOATS_integer(name)

// The function on scalars, and of a vector by component; the other arguments are the same for all.
#define ELINVAR_GENERAL(name, types, parameters, arguments)                                                           \
    template <class T, class... Z, class = enable_if_t<elinvar::types<T> && sizeof...(Z) == 0>>               \
    ELINVAR_INLINE ELINVAR_CONVERGENT T name parameters {                                                     \
        using E [[maybe_unused]] = elinvar::exchanged_t<T>;                                                   \
        return T(elinvar::intrinsic::name arguments);                                                         \
    }
#define ELINVAR_BY_COMPONENT(name)                                                                             \
    template <class T, int N, class... A>                                                                     \
    ELINVAR_INLINE ELINVAR_CONVERGENT vec<T, N> name(vec<T, N> v, A... rest) {                                \
        return elinvar::each<T, N>([=](T a) ELINVAR_CONVERGENT { return name(a, ushort(rest)...); }, v);      \
    }
#define ELINVAR_BOTH_SHUFFLE(name)                                                                             \
    ELINVAR_GENERAL(name, exchangeable, (T value, ushort by, Z...), (E(value), by)) ELINVAR_BY_COMPONENT(name) \
    ELINVAR_EXACT_GROUP(ELINVAR_EXACT_SHUFFLE, name) ELINVAR_EXACT_SHUFFLE(name, half) ELINVAR_EXACT_SHUFFLE(name, float)
#define ELINVAR_BOTH_REDUCE(name, types)                                                                       \
    ELINVAR_GENERAL(name, types, (T value, Z...), (E(value))) ELINVAR_BY_COMPONENT(name)                      \
    ELINVAR_EXACT_GROUP(ELINVAR_EXACT_REDUCE, name) ELINVAR_EXACT_FLOATS_##types(name)
#define ELINVAR_BOTH_FILL(name)                                                                                \
    ELINVAR_GENERAL(name, exchangeable, (T value, elinvar::same_t<T> fill, ushort by, ushort modulo = 32),                  \
                    (E(value), E(fill), by, modulo))                                                          \
    template <class T, int N>                                                                                 \
    ELINVAR_INLINE ELINVAR_CONVERGENT vec<T, N> name(vec<T, N> v, vec<T, N> fill, ushort by, ushort modulo = 32) { \
        return elinvar::each<T, N>([=](T a, T b) ELINVAR_CONVERGENT { return name(a, b, by, modulo); }, v, fill); \
    }
#define ELINVAR_GROUP(group)                                                                                   \
    ELINVAR_BOTH_SHUFFLE(group##_broadcast)                                                                   \
    ELINVAR_BOTH_REDUCE(group##_broadcast_first, exchangeable)                                                              \
    ELINVAR_BOTH_SHUFFLE(group##_shuffle)                                                                     \
    ELINVAR_BOTH_SHUFFLE(group##_shuffle_up)                                                                  \
    ELINVAR_BOTH_SHUFFLE(group##_shuffle_down)                                                                \
    ELINVAR_BOTH_SHUFFLE(group##_shuffle_xor)                                                                 \
    ELINVAR_BOTH_SHUFFLE(group##_shuffle_rotate_up)                                                           \
    ELINVAR_BOTH_SHUFFLE(group##_shuffle_rotate_down)                                                         \
    ELINVAR_BOTH_FILL(group##_shuffle_and_fill_up)                                                            \
    ELINVAR_BOTH_FILL(group##_shuffle_and_fill_down)                                                          \
    ELINVAR_BOTH_REDUCE(group##_sum, number)                                                                          \
    ELINVAR_BOTH_REDUCE(group##_product, number)                                                                      \
    ELINVAR_BOTH_REDUCE(group##_min, number)                                                                          \
    ELINVAR_BOTH_REDUCE(group##_max, number)                                                                          \
    ELINVAR_BOTH_REDUCE(group##_and, integer)                                                                          \
    ELINVAR_BOTH_REDUCE(group##_or, integer)                                                                           \
    ELINVAR_BOTH_REDUCE(group##_xor, integer)                                                                          \
    ELINVAR_BOTH_REDUCE(group##_prefix_inclusive_sum, number)                                                         \
    ELINVAR_BOTH_REDUCE(group##_prefix_exclusive_sum, number)                                                         \
    ELINVAR_BOTH_REDUCE(group##_prefix_inclusive_product, number)                                                     \
    ELINVAR_BOTH_REDUCE(group##_prefix_exclusive_product, number)

extern "C" {
ELINVAR_CONVERGENT __attribute__((nothrow)) ulong __elinvar_simd_ballot(bool);
ELINVAR_CONVERGENT __attribute__((nothrow)) ulong __elinvar_quad_ballot(bool);
ELINVAR_CONVERGENT __attribute__((nothrow)) bool __elinvar_simd_is_first();
ELINVAR_CONVERGENT __attribute__((nothrow)) bool __elinvar_quad_is_first();
}

namespace elinvar {
namespace intrinsic {
ELINVAR_TYPE_EXCHANGE(bool, b8)
ELINVAR_TYPE_INTEGER(signed char, i8)
ELINVAR_TYPE_INTEGER(uchar, u8)
ELINVAR_TYPE_INTEGER(short, i16)
ELINVAR_TYPE_INTEGER(ushort, u16)
ELINVAR_TYPE_INTEGER(int, i32)
ELINVAR_TYPE_INTEGER(uint, u32)
ELINVAR_TYPE_INTEGER(long, i64)
ELINVAR_TYPE_INTEGER(ulong, u64)
ELINVAR_TYPE_NUMBER(half, f16)
ELINVAR_TYPE_NUMBER(bfloat, bf16)
ELINVAR_TYPE_NUMBER(float, f32)
} // namespace intrinsic

template <class T> inline constexpr bool exchangeable = elinvar::arithmetic_scalar<T>;
template <class T> inline constexpr bool number = elinvar::arithmetic_scalar<T> && !__is_same(T, bool);
template <class T> inline constexpr bool integer = elinvar::integral_scalar<T> && !__is_same(T, bool);
// C++ has several types of one width; each width has one intrinsic.
template <class T> struct exchanged { using type = T; };
template <> struct exchanged<char> { using type = signed char; };
template <> struct exchanged<long long> { using type = long; };
template <> struct exchanged<unsigned long long> { using type = ulong; };
template <class T> using exchanged_t = typename exchanged<T>::type;
// A parameter that takes no part in the deduction of T.
template <class T> struct same { using type = T; };
template <class T> using same_t = typename same<T>::type;
} // namespace elinvar

namespace metal {
ELINVAR_GROUP(simd)
ELINVAR_GROUP(quad)

// The set of threads for which a condition holds.
struct simd_vote {
    using vote_t = ulong;
    vote_t bits;
    constexpr explicit simd_vote(vote_t bits = 0) : bits(bits) {}
    constexpr explicit operator vote_t() const { return bits; }
    constexpr bool all() const { return bits == 0xffffffffu; }
    constexpr bool any() const { return bits != 0; }
};
struct quad_vote {
    using vote_t = uint;
    vote_t bits;
    constexpr explicit quad_vote(vote_t bits = 0) : bits(bits) {}
    constexpr explicit operator vote_t() const { return bits; }
    constexpr bool all() const { return bits == 15; }
    constexpr bool any() const { return bits != 0; }
};
ELINVAR_INLINE ELINVAR_CONVERGENT simd_vote simd_ballot(bool a) { return simd_vote(__elinvar_simd_ballot(a)); }
ELINVAR_INLINE ELINVAR_CONVERGENT simd_vote simd_active_threads_mask() { return simd_ballot(true); }
ELINVAR_INLINE ELINVAR_CONVERGENT bool simd_all(bool a) { return __elinvar_simd_ballot(!a) == 0; }
ELINVAR_INLINE ELINVAR_CONVERGENT bool simd_any(bool a) { return __elinvar_simd_ballot(a) != 0; }
ELINVAR_INLINE ELINVAR_CONVERGENT bool simd_is_first() { return __elinvar_simd_is_first(); }
ELINVAR_INLINE ELINVAR_CONVERGENT quad_vote quad_ballot(bool a) { return quad_vote(uint(__elinvar_quad_ballot(a))); }
ELINVAR_INLINE ELINVAR_CONVERGENT quad_vote quad_active_threads_mask() { return quad_ballot(true); }
ELINVAR_INLINE ELINVAR_CONVERGENT bool quad_all(bool a) { return __elinvar_quad_ballot(!a) == 0; }
ELINVAR_INLINE ELINVAR_CONVERGENT bool quad_any(bool a) { return __elinvar_quad_ballot(a) != 0; }
ELINVAR_INLINE ELINVAR_CONVERGENT bool quad_is_first() { return __elinvar_quad_is_first(); }
} // namespace metal

#undef ELINVAR_INTRINSIC
#undef ELINVAR_SHUFFLE
#undef ELINVAR_REDUCE
#undef ELINVAR_FILL
#undef ELINVAR_EXCHANGE
#undef ELINVAR_ARITHMETIC
#undef ELINVAR_BITWISE
#undef ELINVAR_TYPE_EXCHANGE
#undef ELINVAR_TYPE_NUMBER
#undef ELINVAR_TYPE_INTEGER
#undef ELINVAR_GENERAL
#undef ELINVAR_BY_COMPONENT
#undef ELINVAR_BOTH_SHUFFLE
#undef ELINVAR_BOTH_REDUCE
#undef ELINVAR_BOTH_FILL
#undef ELINVAR_GROUP
