// What <metal_stdlib> and every other Metal header give during preprocessing: macros, and nothing else.
// The declarations arrive when the text is compiled, so that the rewriter never sees them.
#ifndef ELINVAR_STDLIB_MACROS
#define ELINVAR_STDLIB_MACROS

#define METAL_FUNC inline __attribute__((__always_inline__))
#define METAL_CONST constant
#define METAL_INTERNAL

#define NULL 0
#define offsetof(type, member) __builtin_offsetof(type, member)
#define assert(condition) ((void)0)
#define ATOMIC_VAR_INIT(value) {value}
#define ATOMIC_FLAG_INIT {0}

#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))
#define HUGE_VALF (__builtin_inff())
#define HUGE_VALH ((half)__builtin_inff())
#define HUGE_VALBF ((bfloat)__builtin_inff())
#define MAXFLOAT 0x1.fffffep127f
#define MAXHALF ((half)65504.0f)

#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_MAX_10_EXP +38
#define FLT_MAX_EXP +128
#define FLT_MIN_10_EXP -37
#define FLT_MIN_EXP -125
#define FLT_RADIX 2
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define FP_ILOGB0 (-2147483647 - 1)
#define FP_ILOGBNAN 2147483647

#define HALF_DIG 3
#define HALF_MANT_DIG 11
#define HALF_MAX_10_EXP +4
#define HALF_MAX_EXP +16
#define HALF_MIN_10_EXP -4
#define HALF_MIN_EXP -13
#define HALF_RADIX 2
#define HALF_MAX ((half)65504.0f)
#define HALF_MIN ((half)0x1.0p-14f)
#define HALF_EPSILON ((half)0x1.0p-10f)

#define M_E_F 2.71828182845904523536f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LOG10E_F 0.43429448190325182765f
#define M_LN2_F 0.69314718055994530942f
#define M_LN10_F 2.30258509299404568402f
#define M_PI_F 3.14159265358979323846f
#define M_PI_2_F 1.57079632679489661923f
#define M_PI_4_F 0.78539816339744830962f
#define M_1_PI_F 0.31830988618379067154f
#define M_2_PI_F 0.63661977236758134308f
#define M_2_SQRTPI_F 1.12837916709551257390f
#define M_SQRT2_F 1.41421356237309504880f
#define M_SQRT1_2_F 0.70710678118654752440f

#define M_E_H ((half)2.71828182845904523536f)
#define M_LOG2E_H ((half)1.44269504088896340736f)
#define M_LOG10E_H ((half)0.43429448190325182765f)
#define M_LN2_H ((half)0.69314718055994530942f)
#define M_LN10_H ((half)2.30258509299404568402f)
#define M_PI_H ((half)3.14159265358979323846f)
#define M_PI_2_H ((half)1.57079632679489661923f)
#define M_PI_4_H ((half)0.78539816339744830962f)
#define M_1_PI_H ((half)0.31830988618379067154f)
#define M_2_PI_H ((half)0.63661977236758134308f)
#define M_2_SQRTPI_H ((half)1.12837916709551257390f)
#define M_SQRT2_H ((half)1.41421356237309504880f)
#define M_SQRT1_2_H ((half)0.70710678118654752440f)

#define CHAR_BIT 8
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define LONG_MAX 9223372036854775807L
#define LONG_MIN (-9223372036854775807L - 1)
#define ULONG_MAX 18446744073709551615UL
#define INT8_MAX 127
#define INT8_MIN (-128)
#define UINT8_MAX 255
#define INT16_MAX 32767
#define INT16_MIN (-32768)
#define UINT16_MAX 65535
#define INT32_MAX 2147483647
#define INT32_MIN (-2147483647 - 1)
#define UINT32_MAX 4294967295u
#define INT64_MAX 9223372036854775807L
#define INT64_MIN (-9223372036854775807L - 1)
#define UINT64_MAX 18446744073709551615UL

#endif
