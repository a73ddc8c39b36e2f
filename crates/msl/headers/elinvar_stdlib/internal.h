// Undocumented names of Metal's own headers that published sources use.
#pragma once

namespace metal {
// The number of components; 1 for a scalar.
template <class T> struct vec_elements : integral_constant<int, 1> {};
template <class T, int N> struct vec_elements<vec<T, N>> : integral_constant<int, N> {};
template <class T, int N> struct vec_elements<packed_vec<T, N>> : integral_constant<int, N> {};
} // namespace metal

// Whether values of a type can be exchanged between the threads of a simdgroup.
template <class T> struct __is_valid_simdgroup_type : metal::bool_constant<elinvar::arithmetic_scalar<T> && !__is_same(T, bool)> {};
template <class T, int N> struct __is_valid_simdgroup_type<metal::vec<T, N>> : __is_valid_simdgroup_type<T> {};

// The last argument of the mathematical ones chooses a math mode, which the whole source has here.
#define ELINVAR_ALIAS1(name, function)                                                                         \
    template <class T> ELINVAR_INLINE T __metal_##name(T a, int = 0) { return metal::function(a); }
#define ELINVAR_ALIAS2(name, function)                                                                         \
    template <class T> ELINVAR_INLINE T __metal_##name(T a, T b, int = 0) { return metal::function(a, b); }
#define ELINVAR_ALIAS3(name, function)                                                                         \
    template <class T> ELINVAR_INLINE T __metal_##name(T a, T b, T c, int = 0) { return metal::function(a, b, c); }
ELINVAR_ALIAS1(acos, acos)
ELINVAR_ALIAS1(acosh, acosh)
ELINVAR_ALIAS1(asin, asin)
ELINVAR_ALIAS1(asinh, asinh)
ELINVAR_ALIAS1(atan, atan)
ELINVAR_ALIAS1(atanh, atanh)
ELINVAR_ALIAS1(ceil, ceil)
ELINVAR_ALIAS1(cos, cos)
ELINVAR_ALIAS1(cosh, cosh)
ELINVAR_ALIAS1(cospi, cospi)
ELINVAR_ALIAS1(exp, exp)
ELINVAR_ALIAS1(exp2, exp2)
ELINVAR_ALIAS1(exp10, exp10)
ELINVAR_ALIAS1(fabs, fabs)
ELINVAR_ALIAS1(floor, floor)
ELINVAR_ALIAS1(fract, fract)
ELINVAR_ALIAS1(log, log)
ELINVAR_ALIAS1(log2, log2)
ELINVAR_ALIAS1(log10, log10)
ELINVAR_ALIAS1(rint, rint)
ELINVAR_ALIAS1(round, round)
ELINVAR_ALIAS1(rsqrt, rsqrt)
ELINVAR_ALIAS1(sin, sin)
ELINVAR_ALIAS1(sinh, sinh)
ELINVAR_ALIAS1(sinpi, sinpi)
ELINVAR_ALIAS1(sqrt, sqrt)
ELINVAR_ALIAS1(tan, tan)
ELINVAR_ALIAS1(tanh, tanh)
ELINVAR_ALIAS1(tanpi, tanpi)
ELINVAR_ALIAS1(trunc, trunc)
ELINVAR_ALIAS2(atan2, atan2)
ELINVAR_ALIAS2(copysign, copysign)
ELINVAR_ALIAS2(divide, divide)
ELINVAR_ALIAS2(fdim, fdim)
ELINVAR_ALIAS2(fmax, fmax)
ELINVAR_ALIAS2(fmin, fmin)
ELINVAR_ALIAS2(fmod, fmod)
ELINVAR_ALIAS2(nextafter, nextafter)
ELINVAR_ALIAS2(pow, pow)
ELINVAR_ALIAS2(powr, powr)
ELINVAR_ALIAS3(fma, fma)
ELINVAR_ALIAS3(fmax3, max3)
ELINVAR_ALIAS3(fmedian3, median3)
ELINVAR_ALIAS3(fmin3, min3)
#undef ELINVAR_ALIAS1
#undef ELINVAR_ALIAS2
#undef ELINVAR_ALIAS3
template <class T> ELINVAR_INLINE T __metal_ldexp(T a, int k, int = 0) { return metal::ldexp(a, k); }
template <class T> ELINVAR_INLINE T __metal_frexp(T a, int* exponent) { return metal::frexp(a, *exponent); }

#define ELINVAR_ALIAS(name)                                                                                    \
    template <class... A> ELINVAR_INLINE ELINVAR_CONVERGENT auto __metal_simd_##name(A... a) {                \
        return metal::simd_##name(a...);                                                                      \
    }
ELINVAR_ALIAS(broadcast)
ELINVAR_ALIAS(broadcast_first)
ELINVAR_ALIAS(max)
ELINVAR_ALIAS(min)
ELINVAR_ALIAS(sum)
ELINVAR_ALIAS(product)
ELINVAR_ALIAS(prefix_exclusive_product)
ELINVAR_ALIAS(prefix_exclusive_sum)
ELINVAR_ALIAS(prefix_inclusive_product)
ELINVAR_ALIAS(prefix_inclusive_sum)
ELINVAR_ALIAS(shuffle)
ELINVAR_ALIAS(shuffle_and_fill_down)
ELINVAR_ALIAS(shuffle_and_fill_up)
ELINVAR_ALIAS(shuffle_down)
ELINVAR_ALIAS(shuffle_up)
ELINVAR_ALIAS(shuffle_rotate_down)
ELINVAR_ALIAS(shuffle_rotate_up)
ELINVAR_ALIAS(shuffle_xor)
#undef ELINVAR_ALIAS
// Those on bits take floats as well, by their bits.
#define ELINVAR_ALIAS(name)                                                                                    \
    template <class T> ELINVAR_INLINE ELINVAR_CONVERGENT T __metal_simd_##name(T a) {                         \
        if constexpr (__is_same(T, float))                                                                    \
            return as_type<float>(metal::simd_##name(as_type<uint>(a)));                                      \
        else                                                                                                  \
            return metal::simd_##name(a);                                                                     \
    }
ELINVAR_ALIAS(and)
ELINVAR_ALIAS(or)
ELINVAR_ALIAS(xor)
#undef ELINVAR_ALIAS
template <class T> constexpr T __metal_get_simdgroup_size(T) { return 32; }
template <class T> ELINVAR_INLINE T __metal_get_thread_index_in_simdgroup(T) {
    return T(elinvar::attribute::thread_index_in_simdgroup::at(0));
}
