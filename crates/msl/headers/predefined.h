// Macros that Metal's compiler defines before it reads the first line of a source.
#define __METAL__ 1
// 400 for Metal 4, which `-D` may choose; a source that includes <metal_tensor> is one from there on.
#ifndef __METAL_VERSION__
#define __METAL_VERSION__ 320
#endif
#if __METAL_VERSION__ >= 400
#define __HAVE_TENSOR__ 1
#endif
#ifndef __METAL_IOS__
#define __METAL_MACOS__ 1
#endif
#define __METAL_FAST_MATH__ 1
#define __METAL_FAST_MATH_ONLY__ 1
#define __METAL_PRECISE_MATH__ 0
#define __METAL_MEMORY_SCOPE_SYSTEM__ 4
#if __METAL_VERSION__ >= 310
#define __HAVE_BFLOAT__ 1
#endif
#if __METAL_VERSION__ >= 230
#define __HAVE_SIMDGROUP_MATRIX__ 1
#endif
#define __HALF_MANT_DIG__ 11
#define __HALF_DIG__ 3
#define __HALF_MAX_EXP__ 16
#define __HALF_MIN_EXP__ (-13)
#define __HALF_MAX_10_EXP__ 4
#define __HALF_MIN_10_EXP__ (-4)
#define __HALF_MAX__ ((half)65504.0f)
#define __HALF_MIN__ ((half)0x1.0p-14f)
#define __HALF_EPSILON__ ((half)0x1.0p-10f)
#define __clang__ 1
#define __LITTLE_ENDIAN__ 1
#define __ELINVAR__ 1

// Of clang, for C++17 and a 64-bit target. `long` has 64 bits.
#define __CHAR_BIT__ 8
#define __SCHAR_MAX__ 127
#define __SHRT_MAX__ 32767
#define __SHRT_WIDTH__ 16
#define __INT_MAX__ 2147483647
#define __INT_WIDTH__ 32
#define __LONG_MAX__ 9223372036854775807L
#define __LONG_WIDTH__ 64
#define __LONG_LONG_MAX__ 9223372036854775807LL
#define __BOOL_WIDTH__ 8
#define __INT8_TYPE__ signed char
#define __UINT8_TYPE__ unsigned char
#define __INT8_MAX__ 127
#define __UINT8_MAX__ 255
#define __INT_LEAST8_TYPE__ signed char
#define __UINT_LEAST8_TYPE__ unsigned char
#define __INT_LEAST8_MAX__ 127
#define __UINT_LEAST8_MAX__ 255
#define __INT_FAST8_TYPE__ signed char
#define __UINT_FAST8_TYPE__ unsigned char
#define __INT_FAST8_MAX__ 127
#define __UINT_FAST8_MAX__ 255
#define __INT16_TYPE__ short
#define __UINT16_TYPE__ unsigned short
#define __INT16_MAX__ 32767
#define __UINT16_MAX__ 65535
#define __INT_LEAST16_TYPE__ short
#define __UINT_LEAST16_TYPE__ unsigned short
#define __INT_LEAST16_MAX__ 32767
#define __UINT_LEAST16_MAX__ 65535
#define __INT_FAST16_TYPE__ short
#define __UINT_FAST16_TYPE__ unsigned short
#define __INT_FAST16_MAX__ 32767
#define __UINT_FAST16_MAX__ 65535
#define __INT32_TYPE__ int
#define __UINT32_TYPE__ unsigned int
#define __INT32_MAX__ 2147483647
#define __UINT32_MAX__ 4294967295U
#define __INT_LEAST32_TYPE__ int
#define __UINT_LEAST32_TYPE__ unsigned int
#define __INT_LEAST32_MAX__ 2147483647
#define __UINT_LEAST32_MAX__ 4294967295U
#define __INT_FAST32_TYPE__ int
#define __UINT_FAST32_TYPE__ unsigned int
#define __INT_FAST32_MAX__ 2147483647
#define __UINT_FAST32_MAX__ 4294967295U
#define __INT64_TYPE__ long
#define __UINT64_TYPE__ unsigned long
#define __INT64_MAX__ 9223372036854775807L
#define __UINT64_MAX__ 18446744073709551615UL
#define __INT_LEAST64_TYPE__ long
#define __UINT_LEAST64_TYPE__ unsigned long
#define __INT_LEAST64_MAX__ 9223372036854775807L
#define __UINT_LEAST64_MAX__ 18446744073709551615UL
#define __INT_FAST64_TYPE__ long
#define __UINT_FAST64_TYPE__ unsigned long
#define __INT_FAST64_MAX__ 9223372036854775807L
#define __UINT_FAST64_MAX__ 18446744073709551615UL
#define __INTMAX_TYPE__ long
#define __INTMAX_MAX__ 9223372036854775807L
#define __INTMAX_WIDTH__ 64
#define __INTPTR_TYPE__ long
#define __INTPTR_MAX__ 9223372036854775807L
#define __INTPTR_WIDTH__ 64
#define __PTRDIFF_TYPE__ long
#define __PTRDIFF_MAX__ 9223372036854775807L
#define __PTRDIFF_WIDTH__ 64
#define __UINTMAX_TYPE__ unsigned long
#define __UINTMAX_MAX__ 18446744073709551615UL
#define __UINTMAX_WIDTH__ 64
#define __UINTPTR_TYPE__ unsigned long
#define __UINTPTR_MAX__ 18446744073709551615UL
#define __UINTPTR_WIDTH__ 64
#define __SIZE_TYPE__ unsigned long
#define __SIZE_MAX__ 18446744073709551615UL
#define __SIZE_WIDTH__ 64
#define __SIZEOF_SHORT__ 2
#define __SIZEOF_INT__ 4
#define __SIZEOF_LONG__ 8
#define __SIZEOF_LONG_LONG__ 8
#define __SIZEOF_POINTER__ 8
#define __SIZEOF_PTRDIFF_T__ 8
#define __SIZEOF_SIZE_T__ 8
#define __SIZEOF_FLOAT__ 4
#define __FLT_RADIX__ 2
#define __FLT_MANT_DIG__ 24
#define __FLT_DIG__ 6
#define __FLT_DECIMAL_DIG__ 9
#define __FLT_MAX_EXP__ 128
#define __FLT_MIN_EXP__ (-125)
#define __FLT_MAX_10_EXP__ 38
#define __FLT_MIN_10_EXP__ (-37)
#define __FLT_MAX__ 3.40282347e+38F
#define __FLT_MIN__ 1.17549435e-38F
#define __FLT_EPSILON__ 1.19209290e-7F
#define __FLT_DENORM_MIN__ 1.40129846e-45F
#define __FLT_HAS_DENORM__ 1
#define __FLT_HAS_INFINITY__ 1
#define __FLT_HAS_QUIET_NAN__ 1
#define __ORDER_LITTLE_ENDIAN__ 1234
#define __ORDER_BIG_ENDIAN__ 4321
#define __ORDER_PDP_ENDIAN__ 3412
#define __BYTE_ORDER__ __ORDER_LITTLE_ENDIAN__
#define __POINTER_WIDTH__ 64
#define __cpp_aggregate_bases 201603L
#define __cpp_aggregate_nsdmi 201304L
#define __cpp_alias_templates 200704L
#define __cpp_attributes 200809L
#define __cpp_binary_literals 201304L
#define __cpp_capture_star_this 201603L
#define __cpp_constexpr 201603L
#define __cpp_decltype 200707L
#define __cpp_decltype_auto 201304L
#define __cpp_deduction_guides 201703L
#define __cpp_delegating_constructors 200604L
#define __cpp_digit_separators 201309L
#define __cpp_enumerator_attributes 201411L
#define __cpp_fold_expressions 201603L
#define __cpp_generic_lambdas 201304L
#define __cpp_guaranteed_copy_elision 201606L
#define __cpp_hex_float 201603L
#define __cpp_if_constexpr 201606L
#define __cpp_inheriting_constructors 201511L
#define __cpp_init_captures 201304L
#define __cpp_initializer_lists 200806L
#define __cpp_inline_variables 201606L
#define __cpp_lambdas 200907L
#define __cpp_namespace_attributes 201411L
#define __cpp_nested_namespace_definitions 201411L
#define __cpp_nontype_template_args 201411L
#define __cpp_nontype_template_parameter_auto 201606L
#define __cpp_nsdmi 200809L
#define __cpp_range_based_for 201603L
#define __cpp_return_type_deduction 201304L
#define __cpp_static_assert 201411L
#define __cpp_structured_bindings 201606L
#define __cpp_template_auto 201606L
#define __cpp_variable_templates 201304L
#define __cpp_variadic_templates 200704L
#define __cpp_variadic_using 201611L
