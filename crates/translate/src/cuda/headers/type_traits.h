// The parts of the C++ standard library that kernels use.
#ifndef ELINVAR_TYPE_TRAITS
#define ELINVAR_TYPE_TRAITS
#pragma clang force_cuda_host_device begin
namespace std {
using ::size_t; using ::ptrdiff_t; using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t; using ::uintptr_t; using ::intptr_t;
typedef decltype(nullptr) nullptr_t;
template <class T, T v> struct integral_constant { static constexpr T value = v; typedef T value_type; typedef integral_constant type; constexpr operator T() const { return v; } };
template <bool b> using bool_constant = integral_constant<bool, b>;
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { typedef T type; };
template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;
template <bool b, class A, class B> struct conditional { typedef A type; };
template <class A, class B> struct conditional<false, A, B> { typedef B type; };
template <bool b, class A, class B> using conditional_t = typename conditional<b, A, B>::type;
template <class T> struct remove_const { typedef T type; };
template <class T> struct remove_const<const T> { typedef T type; };
template <class T> struct remove_volatile { typedef T type; };
template <class T> struct remove_volatile<volatile T> { typedef T type; };
template <class T> struct remove_cv { typedef typename remove_const<typename remove_volatile<T>::type>::type type; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_reference { typedef T type; };
template <class T> struct remove_reference<T&> { typedef T type; };
template <class T> struct remove_reference<T&&> { typedef T type; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_pointer { typedef T type; };
template <class T> struct remove_pointer<T*> { typedef T type; };
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct decay { typedef typename remove_cv<typename remove_reference<T>::type>::type type; };
template <class T> using decay_t = typename decay<T>::type;
template <class T> inline constexpr bool is_floating_point_v = is_same_v<remove_cv_t<T>, float> || is_same_v<remove_cv_t<T>, double>;
template <class T> struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T> inline constexpr bool is_integral_v = __is_integral(T);
template <class T> struct is_integral : bool_constant<__is_integral(T)> {};
template <class T> struct is_signed : bool_constant<__is_signed(T)> {};
template <class T> struct is_unsigned : bool_constant<__is_unsigned(T)> {};
template <class T> inline constexpr bool is_signed_v = __is_signed(T);
template <class T> inline constexpr bool is_unsigned_v = __is_unsigned(T);
template <class T> struct is_arithmetic : bool_constant<__is_arithmetic(T)> {};
template <class T> inline constexpr bool is_arithmetic_v = __is_arithmetic(T);
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> struct is_trivially_copyable : bool_constant<__is_trivially_copyable(T)> {};
template <class T> inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class A, class B> struct is_convertible : bool_constant<__is_convertible_to(A, B)> {};
template <class B, class D> struct is_base_of : bool_constant<__is_base_of(B, D)> {};
template <class T> struct make_unsigned { typedef __make_unsigned(T) type; };
template <class T> struct make_signed { typedef __make_signed(T) type; };
template <class T> using make_unsigned_t = typename make_unsigned<T>::type;
template <class T> T declval();
template <class T> constexpr T&& forward(remove_reference_t<T>& x) { return static_cast<T&&>(x); }
template <class T> constexpr remove_reference_t<T>&& move(T&& x) { return static_cast<remove_reference_t<T>&&>(x); }
template <class T> inline void swap(T& a, T& b) { T c = a; a = b; b = c; }
template <class T> constexpr const T& min(const T& a, const T& b) { return b < a ? b : a; }
template <class T> constexpr const T& max(const T& a, const T& b) { return a < b ? b : a; }
template <class A, class B> struct pair { A first; B second; };
template <class T, size_t N> struct array {
    T _M_elems[N];
    constexpr T& operator[](size_t i) { return _M_elems[i]; }
    constexpr const T& operator[](size_t i) const { return _M_elems[i]; }
    constexpr size_t size() const { return N; }
};
template <class T> struct numeric_limits;
template <> struct numeric_limits<signed char> { static constexpr bool is_integer = true, has_infinity = false, is_signed = true; static constexpr signed char min() { return -128; } static constexpr signed char lowest() { return -128; } static constexpr signed char max() { return 127; } };
template <> struct numeric_limits<char> { static constexpr bool is_integer = true, has_infinity = false, is_signed = true; static constexpr char min() { return -128; } static constexpr char lowest() { return -128; } static constexpr char max() { return 127; } };
template <> struct numeric_limits<unsigned char> { static constexpr bool is_integer = true, has_infinity = false, is_signed = false; static constexpr unsigned char min() { return 0; } static constexpr unsigned char lowest() { return 0; } static constexpr unsigned char max() { return 255; } };
template <> struct numeric_limits<short> { static constexpr bool is_integer = true, has_infinity = false, is_signed = true; static constexpr short min() { return -32768; } static constexpr short lowest() { return -32768; } static constexpr short max() { return 32767; } };
template <> struct numeric_limits<unsigned short> { static constexpr bool is_integer = true, has_infinity = false, is_signed = false; static constexpr unsigned short min() { return 0; } static constexpr unsigned short lowest() { return 0; } static constexpr unsigned short max() { return 65535; } };
template <> struct numeric_limits<int> { static constexpr bool is_integer = true, has_infinity = false, is_signed = true; static constexpr int min() { return INT_MIN; } static constexpr int lowest() { return INT_MIN; } static constexpr int max() { return INT_MAX; } };
template <> struct numeric_limits<unsigned int> { static constexpr bool is_integer = true, has_infinity = false, is_signed = false; static constexpr unsigned int min() { return 0u; } static constexpr unsigned int lowest() { return 0u; } static constexpr unsigned int max() { return UINT_MAX; } };
template <> struct numeric_limits<long> { static constexpr bool is_integer = true, has_infinity = false, is_signed = true; static constexpr long min() { return LONG_MIN; } static constexpr long lowest() { return LONG_MIN; } static constexpr long max() { return LONG_MAX; } };
template <> struct numeric_limits<unsigned long> { static constexpr bool is_integer = true, has_infinity = false, is_signed = false; static constexpr unsigned long min() { return 0ul; } static constexpr unsigned long lowest() { return 0ul; } static constexpr unsigned long max() { return 18446744073709551615ul; } };
template <> struct numeric_limits<long long> { static constexpr bool is_integer = true, has_infinity = false, is_signed = true; static constexpr long long min() { return LLONG_MIN; } static constexpr long long lowest() { return LLONG_MIN; } static constexpr long long max() { return LLONG_MAX; } };
template <> struct numeric_limits<unsigned long long> { static constexpr bool is_integer = true, has_infinity = false, is_signed = false; static constexpr unsigned long long min() { return 0ull; } static constexpr unsigned long long lowest() { return 0ull; } static constexpr unsigned long long max() { return ULLONG_MAX; } };
template <> struct numeric_limits<bool> { static constexpr bool is_integer = true, has_infinity = false, is_signed = false; static constexpr bool min() { return false; } static constexpr bool lowest() { return false; } static constexpr bool max() { return true; } };
template <> struct numeric_limits<float> {
    static constexpr bool is_integer = false, has_infinity = true, is_signed = true;
    static constexpr float min() { return FLT_MIN; }
    static constexpr float lowest() { return -FLT_MAX; }
    static constexpr float max() { return FLT_MAX; }
    static constexpr float epsilon() { return FLT_EPSILON; }
    static constexpr float infinity() { return INFINITY; }
    static constexpr float quiet_NaN() { return NAN; }
};
template <> struct numeric_limits<double> {
    static constexpr bool is_integer = false, has_infinity = true, is_signed = true;
    static constexpr double min() { return DBL_MIN; }
    static constexpr double lowest() { return -DBL_MAX; }
    static constexpr double max() { return DBL_MAX; }
    static constexpr double epsilon() { return DBL_EPSILON; }
    static constexpr double infinity() { return HUGE_VAL; }
    static constexpr double quiet_NaN() { return __builtin_nan(""); }
};
using ::sin; using ::cos; using ::tan; using ::asin; using ::acos; using ::atan; using ::sinh; using ::cosh; using ::tanh; using ::exp; using ::exp2; using ::expm1; using ::log; using ::log2; using ::log10; using ::log1p; using ::sqrt; using ::cbrt; using ::erf; using ::erfc; using ::fabs; using ::floor; using ::ceil; using ::trunc; using ::round; using ::rint; using ::pow; using ::atan2; using ::fmod; using ::fmax; using ::fmin; using ::copysign; using ::hypot; using ::fma; using ::ldexp; using ::isnan; using ::isinf; using ::isfinite; using ::signbit; using ::abs;
}
#pragma clang force_cuda_host_device end
#endif
