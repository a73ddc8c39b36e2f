// numeric_limits of the scalar types.
#pragma once

namespace metal {
template <class T> struct _numeric_limits_impl {
    static constexpr bool is_specialized = false;
};
template <class T> struct numeric_limits : _numeric_limits_impl<__remove_cv(T)> {};

#define ELINVAR_INTEGER(type)                                                                                  \
    template <> struct _numeric_limits_impl<type> {                                                           \
        using T = type;                                                                                       \
        static constexpr bool is_specialized = true, is_integer = true, is_exact = true;                      \
        static constexpr bool is_signed = T(-1) < T(0), has_infinity = false, has_quiet_NaN = false;          \
        static constexpr int digits = __is_same(T, bool) ? 1 : int(sizeof(T)) * 8 - is_signed;                \
        static constexpr int digits10 = digits * 30103 / 100000, max_digits10 = 0, radix = 2;                 \
        static constexpr T max() {                                                                            \
            return is_signed ? T((1ul << (sizeof(T) * 8 - 1)) - 1) : T(~0ul);                                 \
        }                                                                                                     \
        static constexpr T min() { return is_signed ? T(1ul << (sizeof(T) * 8 - 1)) : T(0); }                 \
        static constexpr T lowest() { return min(); }                                                         \
        static constexpr T epsilon() { return T(0); }                                                         \
        static constexpr T infinity() { return T(0); }                                                        \
        static constexpr T quiet_NaN() { return T(0); }                                                       \
    };
ELINVAR_INTEGER(bool)
ELINVAR_INTEGER(char)
ELINVAR_INTEGER(signed char)
ELINVAR_INTEGER(unsigned char)
ELINVAR_INTEGER(short)
ELINVAR_INTEGER(unsigned short)
ELINVAR_INTEGER(int)
ELINVAR_INTEGER(unsigned int)
ELINVAR_INTEGER(long)
ELINVAR_INTEGER(unsigned long)
ELINVAR_INTEGER(long long)
ELINVAR_INTEGER(unsigned long long)
#undef ELINVAR_INTEGER

#define ELINVAR_FLOATING(T, bits, decimal, largest, smallest, step, denormal, low, high)                       \
    template <> struct _numeric_limits_impl<T> {                                                              \
        static constexpr bool is_specialized = true, is_integer = false, is_exact = false;                    \
        static constexpr bool is_signed = true, has_infinity = true, has_quiet_NaN = true;                    \
        static constexpr int digits = bits, digits10 = decimal, radix = 2;                                    \
        static constexpr int max_digits10 = 2 + bits * 30103 / 100000;                                        \
        static constexpr int min_exponent = low, max_exponent = high;                                         \
        static constexpr T max() { return T(largest); }                                                       \
        static constexpr T lowest() { return T(-largest); }                                                   \
        static constexpr T min() { return T(smallest); }                                                      \
        static constexpr T epsilon() { return T(step); }                                                      \
        static constexpr T denorm_min() { return T(denormal); }                                               \
        static constexpr T infinity() { return T(__builtin_inff()); }                                         \
        static constexpr T quiet_NaN() { return T(__builtin_nanf("")); }                                      \
        static constexpr T signaling_NaN() { return T(__builtin_nansf("")); }                                 \
    };
ELINVAR_FLOATING(float, 24, 6, 0x1.fffffep127f, 0x1p-126f, 0x1p-23f, 0x1p-149f, -125, 128)
ELINVAR_FLOATING(half, 11, 3, 65504.0f, 0x1p-14f, 0x1p-10f, 0x1p-24f, -13, 16)
ELINVAR_FLOATING(bfloat, 8, 2, 0x1.fep127f, 0x1p-126f, 0x1p-7f, 0x1p-133f, -125, 128)
#undef ELINVAR_FLOATING
} // namespace metal
