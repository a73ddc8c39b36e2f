// Scalar types and the type traits of <metal_type_traits>.
#pragma once

using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
using half = _Float16;
using bfloat = __bf16;

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using size_t = unsigned long;
using ptrdiff_t = long;
using intptr_t = long;
using uintptr_t = unsigned long;

namespace std {
// The compiler builds one of these for a braced list, as in `float4 v = {1, 2}`.
template <class E> class initializer_list {
    const E* first = nullptr;
    unsigned long count = 0;

public:
    constexpr initializer_list() = default;
    constexpr unsigned long size() const { return count; }
    constexpr const E* begin() const { return first; }
    constexpr const E* end() const { return first + count; }
};
} // namespace std

namespace metal {
using ::bfloat;
using ::half;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::int8_t;
using ::ptrdiff_t;
using ::size_t;
using ::uchar;
using ::uint;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uint8_t;
using ::ulong;
using ::ushort;

template <class T, T V> struct integral_constant {
    using value_type = T;
    using type = integral_constant;
    static constexpr T value = V;
    constexpr operator T() const { return V; }
    constexpr T operator()() const { return V; }
};
template <bool B> using bool_constant = integral_constant<bool, B>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool B, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool B, class T = void> using enable_if_t = typename enable_if<B, T>::type;

template <bool B, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool B, class T, class F> using conditional_t = typename conditional<B, T, F>::type;

#define ELINVAR_TRANSFORM(name, expression)                                                                    \
    template <class T> struct name { using type = expression; };                                              \
    template <class T> using name##_t = expression;
ELINVAR_TRANSFORM(remove_const, __remove_const(T))
ELINVAR_TRANSFORM(remove_volatile, __remove_volatile(T))
ELINVAR_TRANSFORM(remove_cv, __remove_cv(T))
ELINVAR_TRANSFORM(remove_reference, __remove_reference_t(T))
ELINVAR_TRANSFORM(remove_cvref, __remove_cvref(T))
ELINVAR_TRANSFORM(remove_pointer, __remove_pointer(T))
ELINVAR_TRANSFORM(remove_extent, __remove_extent(T))
ELINVAR_TRANSFORM(remove_addrspace, T)
ELINVAR_TRANSFORM(remove_all_extents, __remove_all_extents(T))
ELINVAR_TRANSFORM(add_const, const T)
ELINVAR_TRANSFORM(add_cv, const volatile T)
ELINVAR_TRANSFORM(add_lvalue_reference, __add_lvalue_reference(T))
ELINVAR_TRANSFORM(add_pointer, __add_pointer(T))
ELINVAR_TRANSFORM(add_rvalue_reference, __add_rvalue_reference(T))
ELINVAR_TRANSFORM(add_volatile, volatile T)
ELINVAR_TRANSFORM(decay, __decay(T))
ELINVAR_TRANSFORM(make_signed, __make_signed(T))
ELINVAR_TRANSFORM(make_unsigned, __make_unsigned(T))
ELINVAR_TRANSFORM(underlying_type, __underlying_type(T))
#undef ELINVAR_TRANSFORM

#define ELINVAR_PROPERTY(name, expression)                                                                     \
    template <class T> inline constexpr bool name##_v = expression;                                           \
    template <class T> struct name : bool_constant<expression> {};
ELINVAR_PROPERTY(is_array, __is_array(T))
ELINVAR_PROPERTY(is_class, __is_class(T))
ELINVAR_PROPERTY(is_const, __is_const(T))
ELINVAR_PROPERTY(is_enum, __is_enum(T))
ELINVAR_PROPERTY(is_function, __is_function(T))
ELINVAR_PROPERTY(is_integral, __is_integral(T))
ELINVAR_PROPERTY(is_lvalue_reference, __is_lvalue_reference(T))
ELINVAR_PROPERTY(is_pointer, __is_pointer(T))
ELINVAR_PROPERTY(is_reference, __is_reference(T))
ELINVAR_PROPERTY(is_rvalue_reference, __is_rvalue_reference(T))
ELINVAR_PROPERTY(is_signed, __is_signed(T) || __is_same(__remove_cv(T), half) || __is_same(__remove_cv(T), bfloat))
ELINVAR_PROPERTY(is_trivial, __is_trivial(T))
ELINVAR_PROPERTY(is_trivially_copyable, __is_trivially_copyable(T))
ELINVAR_PROPERTY(is_union, __is_union(T))
ELINVAR_PROPERTY(is_unsigned, __is_unsigned(T))
ELINVAR_PROPERTY(is_void, __is_void(T))
ELINVAR_PROPERTY(is_volatile, __is_volatile(T))
ELINVAR_PROPERTY(is_floating_point,
                 __is_floating_point(T) || __is_same(__remove_cv(T), half) || __is_same(__remove_cv(T), bfloat))
ELINVAR_PROPERTY(is_arithmetic, __is_integral(T) || is_floating_point_v<T>)
ELINVAR_PROPERTY(is_scalar, is_arithmetic_v<T> || __is_pointer(T) || __is_enum(T))
#undef ELINVAR_PROPERTY

#define ELINVAR_RELATION(name, intrinsic)                                                                      \
    template <class A, class B> inline constexpr bool name##_v = intrinsic(A, B);                             \
    template <class A, class B> struct name : bool_constant<intrinsic(A, B)> {};
ELINVAR_RELATION(is_same, __is_same)
ELINVAR_RELATION(is_convertible, __is_convertible_to)
ELINVAR_RELATION(is_base_of, __is_base_of)
#undef ELINVAR_RELATION

template <class T, class... A> inline constexpr bool is_constructible_v = __is_constructible(T, A...);
template <class T, class... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {};

template <class... B> struct conjunction : bool_constant<(bool(B::value) && ...)> {};
template <class... B> struct disjunction : bool_constant<(bool(B::value) || ...)> {};
template <class B> struct negation : bool_constant<!bool(B::value)> {};
template <class... B> inline constexpr bool conjunction_v = conjunction<B...>::value;
template <class... B> inline constexpr bool disjunction_v = disjunction<B...>::value;

template <class T> T&& declval() noexcept;
template <class T> ELINVAR_PURE remove_reference_t<T>&& move(T&& value) noexcept {
    return static_cast<remove_reference_t<T>&&>(value);
}
template <class T> ELINVAR_PURE void swap(T& a, T& b) {
    T old = a;
    a = b;
    b = old;
}

template <class T, size_t N> struct array {
    T elements[N];
    constexpr T& operator[](size_t i) { return elements[i]; }
    constexpr const T& operator[](size_t i) const { return elements[i]; }
    static constexpr size_t size() { return N; }
    static constexpr bool empty() { return N == 0; }
    constexpr T* data() { return elements; }
    constexpr const T* data() const { return elements; }
};
} // namespace metal

// The same bits as another type.
template <class T, class U> ELINVAR_PURE T as_type(U value) {
    static_assert(sizeof(T) == sizeof(U), "as_type needs two types of the same size");
    return __builtin_bit_cast(T, value);
}
namespace metal {
using ::as_type;
}
