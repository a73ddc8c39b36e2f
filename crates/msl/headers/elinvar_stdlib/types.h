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
ELINVAR_TRANSFORM(underlying_type, __underlying_type(T))
#undef ELINVAR_TRANSFORM

template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;
} // namespace metal

namespace elinvar {
// The scalar of a vector, and whether the type is one. Metal's vectors are types of the compiler, to which most traits apply as
// to their scalars.
template <class T> struct vector_traits {
    using scalar = T;
    static constexpr bool is_vector = false;
    template <class S> using with = S;
};
template <class T, int N> struct vector_traits<metal::vec<T, N>> {
    using scalar = T;
    static constexpr bool is_vector = true;
    template <class S> using with = metal::vec<S, N>;
};
template <class T, int N> struct vector_traits<metal::packed_vec<T, N>> {
    using scalar = T;
    static constexpr bool is_vector = true;
    template <class S> using with = metal::packed_vec<S, N>;
};
template <class T> using scalar_of = typename vector_traits<__remove_cv(T)>::scalar;
template <class T> inline constexpr bool is_vector = vector_traits<__remove_cv(T)>::is_vector;
template <class T> inline constexpr bool integral_scalar = __is_integral(T);
template <class T>
inline constexpr bool floating_scalar =
    __is_floating_point(T) || __is_same(__remove_cv(T), half) || __is_same(__remove_cv(T), bfloat);
template <class T> inline constexpr bool arithmetic_scalar = integral_scalar<T> || floating_scalar<T>;
// The integer of the same size with or without sign; floating-point types stay as they are.
template <bool S, class T, bool F> struct with_sign { using type = T; };
template <class T> struct with_sign<true, T, false> { using type = __make_signed(T); };
template <class T> struct with_sign<false, T, false> { using type = __make_unsigned(T); };
template <bool S, class T>
using with_sign_t =
    typename vector_traits<__remove_cv(T)>::template with<typename with_sign<S, scalar_of<T>, floating_scalar<scalar_of<T>>>::type>;
} // namespace elinvar

namespace metal {
// The variable is that of the class template, which a source may specialize.
#define ELINVAR_PROPERTY(name, expression)                                                                     \
    template <class T> struct name : bool_constant<(expression)> {};                                          \
    template <class T> inline constexpr bool name##_v = name<T>::value;
ELINVAR_PROPERTY(is_array, __is_array(T))
ELINVAR_PROPERTY(is_class, __is_class(T) && !elinvar::is_vector<T>)
ELINVAR_PROPERTY(is_const, __is_const(T))
ELINVAR_PROPERTY(is_enum, __is_enum(T))
ELINVAR_PROPERTY(is_function, __is_function(T))
ELINVAR_PROPERTY(is_integral, __is_integral(elinvar::scalar_of<T>))
ELINVAR_PROPERTY(is_lvalue_reference, __is_lvalue_reference(T))
ELINVAR_PROPERTY(is_pointer, __is_pointer(T))
ELINVAR_PROPERTY(is_reference, __is_reference(T))
ELINVAR_PROPERTY(is_rvalue_reference, __is_rvalue_reference(T))
ELINVAR_PROPERTY(is_signed, __is_signed(elinvar::scalar_of<T>) || elinvar::floating_scalar<elinvar::scalar_of<T>>)
ELINVAR_PROPERTY(is_trivial, __is_trivial(T))
ELINVAR_PROPERTY(is_trivially_copyable, __is_trivially_copyable(T))
ELINVAR_PROPERTY(is_union, __is_union(T))
ELINVAR_PROPERTY(is_unsigned, __is_unsigned(elinvar::scalar_of<T>))
ELINVAR_PROPERTY(is_vector, elinvar::is_vector<T>)
ELINVAR_PROPERTY(is_void, __is_void(T))
ELINVAR_PROPERTY(is_volatile, __is_volatile(T))
ELINVAR_PROPERTY(is_floating_point, elinvar::floating_scalar<elinvar::scalar_of<T>>)
ELINVAR_PROPERTY(is_arithmetic,
                 elinvar::arithmetic_scalar<elinvar::scalar_of<T>>)
ELINVAR_PROPERTY(is_scalar, elinvar::arithmetic_scalar<T> || __is_pointer(T) || __is_enum(T))
#undef ELINVAR_PROPERTY

template <class T> struct make_scalar { using type = elinvar::scalar_of<T>; };
template <class T> using make_scalar_t = elinvar::scalar_of<T>;
template <class T> struct make_signed { using type = elinvar::with_sign_t<true, T>; };
template <class T> using make_signed_t = elinvar::with_sign_t<true, T>;
template <class T> struct make_unsigned { using type = elinvar::with_sign_t<false, T>; };
template <class T> using make_unsigned_t = elinvar::with_sign_t<false, T>;

#define ELINVAR_RELATION(name, intrinsic)                                                                      \
    template <class A, class B> inline constexpr bool name##_v = intrinsic(A, B);                             \
    template <class A, class B> struct name : bool_constant<intrinsic(A, B)> {};
ELINVAR_RELATION(is_same, __is_same)
ELINVAR_RELATION(is_convertible, __is_convertible_to)
ELINVAR_RELATION(is_base_of, __is_base_of)
#undef ELINVAR_RELATION

template <class T, class... A> inline constexpr bool is_constructible_v = __is_constructible(T, A...);
template <class T, class... A> struct is_constructible : bool_constant<__is_constructible(T, A...)> {};

// The first that decides, or the last one.
template <class... B> struct _conjunction : true_type {};
template <class B> struct _conjunction<B> : B {};
template <class B, class... C>
struct _conjunction<B, C...> : conditional_t<bool(B::value), _conjunction<C...>, B> {};
template <class... B> struct _disjunction : false_type {};
template <class B> struct _disjunction<B> : B {};
template <class B, class... C>
struct _disjunction<B, C...> : conditional_t<bool(B::value), B, _disjunction<C...>> {};
template <class B> struct _negation : bool_constant<!bool(B::value)> {};
template <class... B> using conjunction = _conjunction<B...>;
template <class... B> using disjunction = _disjunction<B...>;
template <class B> using negation = _negation<B>;
template <class... B> inline constexpr bool conjunction_v = _conjunction<B...>::value;
template <class... B> inline constexpr bool disjunction_v = _disjunction<B...>::value;
template <class B> inline constexpr bool negation_v = _negation<B>::value;

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
    using value_type = T;
    constexpr T& operator[](size_t i) { return elements[i]; }
    constexpr const T& operator[](size_t i) const { return elements[i]; }
    static constexpr size_t size() { return N; }
    static constexpr size_t max_size() { return N; }
    static constexpr bool empty() { return N == 0; }
    constexpr T* data() { return elements; }
    constexpr const T* data() const { return elements; }
    constexpr T* begin() { return elements; }
    constexpr const T* begin() const { return elements; }
    constexpr T* end() { return elements + N; }
    constexpr const T* end() const { return elements + N; }
    constexpr T& front() { return elements[0]; }
    constexpr const T& front() const { return elements[0]; }
    constexpr T& back() { return elements[N - 1]; }
    constexpr const T& back() const { return elements[N - 1]; }
};

// A view of elements that are stored elsewhere.
template <class T> struct array_ref {
    using value_type = T;
    constexpr array_ref() = default;
    constexpr array_ref(const T& element) : first(&element), count(1) {}
    constexpr array_ref(const T* data, size_t size) : first(data), count(size) {}
    constexpr array_ref(const T* begin, const T* end) : first(begin), count(size_t(end - begin)) {}
    template <size_t N> constexpr array_ref(const array<T, N>& of) : first(of.elements), count(N) {}
    template <size_t N> constexpr array_ref(const T (&of)[N]) : first(of), count(N) {}
    constexpr size_t size() const { return count; }
    constexpr bool empty() const { return count == 0; }
    constexpr const T& operator[](size_t i) const { return first[i]; }
    constexpr const T* data() const { return first; }
    constexpr const T* begin() const { return first; }
    constexpr const T* end() const { return first + count; }
    constexpr const T& front() const { return first[0]; }
    constexpr const T& back() const { return first[count - 1]; }

private:
    const T* first = nullptr;
    size_t count = 0;
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
