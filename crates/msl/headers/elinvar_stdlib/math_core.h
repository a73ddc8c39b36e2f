// What the float functions are made of: bits, polynomials, powers of two.
//
// The functions of these files use nothing but IEEE operations (with fma, square root and rounding to
// integers) and integer arithmetic, so that they give the same bits on every machine. math.h switches
// rearranging and contraction off around them, whatever the math mode.
#pragma once

// a * 2^n, rounded once, for a from 0.5 to 2 and n from -252 to 254; NaN for NaN. By one instruction, where the processor has it.
extern "C" __attribute__((nothrow, const)) float __elinvar_scale(float a, int n);

namespace elinvar {
namespace real {
inline constexpr float infinity = __builtin_inff();
inline constexpr float nan = __builtin_nanf("");
inline constexpr float half_pi = 0x1.921fb6p+0f, half_pi_rest = -0x1.777a5cp-25f;

ELINVAR_PURE unsigned bits(float a) { return __builtin_bit_cast(unsigned, a); }
ELINVAR_PURE float from_bits(unsigned a) { return __builtin_bit_cast(float, a); }
ELINVAR_PURE float magnitude(float a) { return __builtin_fabsf(a); }
ELINVAR_PURE float with_sign(float a, float sign) { return __builtin_copysignf(a, sign); }
ELINVAR_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }

// A scalar as a float, and a float rounded to a type. For bfloat in integers: instructions for it, where a
// processor has them, take subnormal numbers for zero.
template <class T> ELINVAR_PURE float wide(T a) {
    if constexpr (is_same_v<T, bfloat>)
        return from_bits(unsigned(__builtin_bit_cast(unsigned short, a)) << 16);
    else
        return float(a);
}
template <class T> ELINVAR_PURE T narrow(float a) {
    if constexpr (is_same_v<T, bfloat>) {
        unsigned b = bits(a), rounded = (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
        return __builtin_bit_cast(bfloat, (unsigned short)(a == a ? rounded : (b >> 16) | 0x40u));
    } else {
        return T(a);
    }
}

// A polynomial by Horner's rule, from the highest coefficient to the constant one.
template <class... C> ELINVAR_INLINE float polynomial(float x, float highest, C... lower) {
    float sum = highest;
    ((sum = fma(sum, x, lower)), ...);
    return sum;
}

// The integer nearest to a * b, for products below 2^22: as a float, and modulo 2^22 as an integer.
// Other products, and NaN, give some value.
struct Nearest {
    float value;
    int integer;
};
ELINVAR_INLINE Nearest nearest(float a, float b) {
    float shifted = fma(a, b, 0x1.8p+23f);
    return {shifted - 0x1.8p+23f, int(bits(shifted)) - 0x4b400000};
}

// a * 2^n for n from -252 to 254, rounded once when a is from 0.5 to 2.
ELINVAR_INLINE float scaled(float a, int n) {
    int first = n >> 1;
    return a * from_bits(unsigned(first + 127) << 23) * from_bits(unsigned(n - first + 127) << 23);
}

// a * 2^n for any n, rounded once.
ELINVAR_INLINE float ldexp(float a, int n) {
    n = n < -300 ? -300 : n;
    n = n > 300 ? 300 : n;
    double power = __builtin_bit_cast(double, (unsigned long)(n + 1023) << 52);
    return float(double(a) * power);
}
} // namespace real
} // namespace elinvar
