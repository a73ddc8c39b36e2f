// What the text that is generated behind a source rests on: the intrinsics of a launch, the values of
// kernel attributes, and the description of a kernel's parameters.
#pragma once

extern "C" {
__attribute__((const, nothrow)) uint __elinvar_thread_position_in_threadgroup(uint dimension);
__attribute__((const, nothrow)) uint __elinvar_threadgroup_position_in_grid(uint dimension);
__attribute__((const, nothrow)) uint __elinvar_threads_per_threadgroup(uint dimension);
__attribute__((const, nothrow)) uint __elinvar_dispatch_threads_per_threadgroup(uint dimension);
__attribute__((const, nothrow)) uint __elinvar_threads_per_grid(uint dimension);
__attribute__((const, nothrow)) uint __elinvar_threadgroups_per_grid(uint dimension);

// The address space of what a pointer points to, for functions that are overloaded on it: 1 device, 2 constant, 4 threadgroup,
// 8 thread; the overload's number, and the set of address spaces in question. Of no call is another made, so that each has one answer.
__attribute__((const, nothrow, nomerge)) uint __elinvar_address_space(const volatile void*, uint overload, uint spaces);
// Expects what a pointer points to in this address space, or else the overload is the wrong one.
__attribute__((nothrow, nomerge)) void __elinvar_expect_address_space(const volatile void*, uint overload, uint space);
}

namespace elinvar {
// One component of each attribute. Attributes without direction have the dimension 0 only.
namespace attribute {
#define ELINVAR_ATTRIBUTE(name, expression)                                                                    \
    struct name {                                                                                             \
        static ELINVAR_INLINE uint at(uint d) { return expression; }                                          \
    };
ELINVAR_ATTRIBUTE(thread_position_in_threadgroup, __elinvar_thread_position_in_threadgroup(d))
ELINVAR_ATTRIBUTE(threadgroup_position_in_grid, __elinvar_threadgroup_position_in_grid(d))
ELINVAR_ATTRIBUTE(threads_per_threadgroup, __elinvar_threads_per_threadgroup(d))
ELINVAR_ATTRIBUTE(dispatch_threads_per_threadgroup, __elinvar_dispatch_threads_per_threadgroup(d))
ELINVAR_ATTRIBUTE(threads_per_grid, __elinvar_threads_per_grid(d))
ELINVAR_ATTRIBUTE(threadgroups_per_grid, __elinvar_threadgroups_per_grid(d))
ELINVAR_ATTRIBUTE(thread_position_in_grid,
                  __elinvar_thread_position_in_threadgroup(d) +
                      __elinvar_threadgroup_position_in_grid(d) * __elinvar_dispatch_threads_per_threadgroup(d))
ELINVAR_ATTRIBUTE(grid_size, __elinvar_threads_per_grid(d))
ELINVAR_ATTRIBUTE(grid_origin, 0 * d)

ELINVAR_ATTRIBUTE(thread_index_in_threadgroup,
                  __elinvar_thread_position_in_threadgroup(0) +
                      __elinvar_threads_per_threadgroup(0) *
                          (__elinvar_thread_position_in_threadgroup(1) +
                           __elinvar_threads_per_threadgroup(1) * __elinvar_thread_position_in_threadgroup(2)))
// The place of a thread in a full threadgroup, which decides its simdgroup, quadgroup and lane: those of a group at
// the grid's edge miss lanes.
ELINVAR_INLINE uint nominal_index(uint x, uint y, uint z) {
    return x + __elinvar_dispatch_threads_per_threadgroup(0) *
                   (y + __elinvar_dispatch_threads_per_threadgroup(1) * z);
}
ELINVAR_INLINE uint nominal_index() {
    return nominal_index(__elinvar_thread_position_in_threadgroup(0), __elinvar_thread_position_in_threadgroup(1),
                         __elinvar_thread_position_in_threadgroup(2));
}
ELINVAR_INLINE uint last_nominal_index() {
    return nominal_index(__elinvar_threads_per_threadgroup(0) - 1, __elinvar_threads_per_threadgroup(1) - 1,
                         __elinvar_threads_per_threadgroup(2) - 1);
}
ELINVAR_INLINE uint nominal_threads() {
    return __elinvar_dispatch_threads_per_threadgroup(0) * __elinvar_dispatch_threads_per_threadgroup(1) *
           __elinvar_dispatch_threads_per_threadgroup(2);
}
ELINVAR_ATTRIBUTE(thread_index_in_simdgroup, (nominal_index() + 0 * d) & 31)
ELINVAR_ATTRIBUTE(simdgroup_index_in_threadgroup, (nominal_index() + 0 * d) >> 5)
ELINVAR_ATTRIBUTE(simdgroups_per_threadgroup, ((last_nominal_index() + 0 * d) >> 5) + 1)
ELINVAR_ATTRIBUTE(dispatch_simdgroups_per_threadgroup, (nominal_threads() + 31 + 0 * d) >> 5)
ELINVAR_ATTRIBUTE(threads_per_simdgroup, 32 + 0 * d)
ELINVAR_ATTRIBUTE(thread_execution_width, 32 + 0 * d)
ELINVAR_ATTRIBUTE(thread_index_in_quadgroup, (nominal_index() + 0 * d) & 3)
ELINVAR_ATTRIBUTE(quadgroup_index_in_threadgroup, (nominal_index() + 0 * d) >> 2)
ELINVAR_ATTRIBUTE(quadgroups_per_threadgroup, ((last_nominal_index() + 0 * d) >> 2) + 1)
ELINVAR_ATTRIBUTE(dispatch_quadgroups_per_threadgroup, (nominal_threads() + 3 + 0 * d) >> 2)
#undef ELINVAR_ATTRIBUTE
} // namespace attribute

// A type, for declarators that need parentheses otherwise.
template <class T> using type_of = T;

// The parameter types of a function.
template <class F> struct function;
template <class R, class... A> struct function<R (*)(A...)> {
    using result = R;
    static constexpr unsigned long count = sizeof...(A);
};
template <unsigned long I, class F> struct parameter;
template <unsigned long I, class R, class... A> struct parameter<I, R (*)(A...)> {
    using type = __type_pack_element<I, A...>;
};
template <unsigned long I, class F> using parameter_t = typename parameter<I, F>::type;

// The argument for a pointer or reference parameter.
template <class A> ELINVAR_INLINE A memory(void* address) {
    if constexpr (__is_reference(A))
        return *(__remove_reference_t(A)*)address;
    else
        return (A)address;
}

// The parameter of an entry for an argument that depends on a function constant. An absent one has no
// size and takes no place in the call.
struct absent {
    int nothing[0];
};
template <bool B> using optional = metal::conditional_t<B, void*, absent>;
template <class A> ELINVAR_INLINE A memory(absent) { return memory<A>((void*)0); }

// Says the address space of an argument, as __elinvar_address_space does.
__attribute__((nothrow)) void argument_space(void* address, uint space) __asm__("__elinvar_argument_space");
ELINVAR_INLINE void argument_space(absent, uint) {}

// The argument for a parameter with an attribute.
template <class A, class From> ELINVAR_INLINE A builtin() {
    if constexpr (shape<A>::lanes == 2)
        return A(typename A::value_type(From::at(0)), typename A::value_type(From::at(1)));
    else if constexpr (shape<A>::lanes == 3)
        return A(typename A::value_type(From::at(0)), typename A::value_type(From::at(1)),
                 typename A::value_type(From::at(2)));
    else
        return A(From::at(0));
}

// A variable at program scope with the value of an attribute: it is read wherever it is named.
template <class T, class From> struct program_value {
    ELINVAR_MEMBER operator T() const { return builtin<T, From>(); }
};
template <class S, int N, class From> struct program_value<metal::vec<S, N>, From> {
    using value_type = S;
    static constexpr int size = N;
    ELINVAR_MEMBER metal::vec<S, N> get() const { return builtin<metal::vec<S, N>, From>(); }
    ELINVAR_MEMBER operator metal::vec<S, N>() const { return get(); }
    ELINVAR_MEMBER S operator[](int i) const { return S(From::at(uint(i))); }
#define ELINVAR_VALUE(name, type, expression)                                                                  \
    ELINVAR_MEMBER type get_##name() const { return expression; }                                             \
    __declspec(property(get = get_##name)) type name;
    ELINVAR_VALUE(x, S, S(From::at(0)))
    ELINVAR_VALUE(y, S, S(From::at(1)))
    ELINVAR_VALUE(z, S, S(From::at(2)))
#define ELINVAR_PAIR metal::vec<S, 2>
#define ELINVAR_TRIPLE metal::vec<S, 3>
    ELINVAR_VALUE(xy, ELINVAR_PAIR, ELINVAR_PAIR(S(From::at(0)), S(From::at(1))))
    ELINVAR_VALUE(yx, ELINVAR_PAIR, ELINVAR_PAIR(S(From::at(1)), S(From::at(0))))
    ELINVAR_VALUE(xz, ELINVAR_PAIR, ELINVAR_PAIR(S(From::at(0)), S(From::at(2))))
    ELINVAR_VALUE(yz, ELINVAR_PAIR, ELINVAR_PAIR(S(From::at(1)), S(From::at(2))))
    ELINVAR_VALUE(xyz, ELINVAR_TRIPLE, ELINVAR_TRIPLE(S(From::at(0)), S(From::at(1)), S(From::at(2))))
#undef ELINVAR_PAIR
#undef ELINVAR_TRIPLE
#undef ELINVAR_VALUE
};
template <class S, int N, class From> struct shape<program_value<metal::vec<S, N>, From>> {
    static constexpr int lanes = N;
    using scalar = S;
};

// The number of a struct whose members have attributes, from 1; 0 for any other type.
template <class T, class = void> struct attributed { static constexpr ulong number = 0; };
template <class T> struct attributed<T, decltype((void)T::elinvar_attributed)> {
    static constexpr ulong number = T::elinvar_attributed;
};

// What the compiler driver reads back about a parameter.
struct description {
    ulong passed;   // 1 pointer, 2 reference, 3 value
    ulong size;     // of the element: what is pointed to, or the value; 0 for void
    ulong align;
    ulong constant; // whether the element is const
    ulong scalar;   // see scalar_code
    ulong lanes;    // 0 for no vector
    ulong form;     // 0 plain, 1 packed, 2 atomic; 3 inbox and 4 queue, with two sizes from bits 8 and 32 on
    ulong members;  // see attributed
    const char* name;
};

template <class T> constexpr ulong scalar_code() {
    return __is_same(T, bool)                                        ? 1
           : __is_same(T, char) || __is_same(T, signed char)         ? 2
           : __is_same(T, unsigned char)                             ? 3
           : __is_same(T, short)                                     ? 4
           : __is_same(T, unsigned short)                            ? 5
           : __is_same(T, int)                                       ? 6
           : __is_same(T, unsigned int)                              ? 7
           : __is_same(T, long) || __is_same(T, long long)           ? 8
           : __is_same(T, unsigned long) || __is_same(T, unsigned long long) ? 9
           : __is_same(T, half)                                      ? 10
           : __is_same(T, bfloat)                                    ? 11
           : __is_same(T, float)                                     ? 12
                                                                     : 0;
}
template <class T> struct element_form {
    using scalar = typename shape<T>::scalar;
    static constexpr ulong form = 0;
};
template <class T, int N> struct element_form<packed_vec<T, N>> {
    using scalar = T;
    static constexpr ulong form = 1;
};
template <class T> struct element_form<metal::_atomic<T>> {
    using scalar = T;
    static constexpr ulong form = 2;
};

template <class T> constexpr const char* type_name() { return __PRETTY_FUNCTION__; }

template <class A> constexpr description describe() {
    constexpr bool pointer = __is_pointer(A), reference = __is_reference(A);
    using Target = metal::conditional_t<pointer, __remove_pointer(A), __remove_reference_t(A)>;
    using T = __remove_cv(Target);
    constexpr ulong passed = pointer ? 1 : reference ? 2 : 3;
    constexpr ulong constant = __is_const(Target);
    if constexpr (__is_void(T)) {
        return {passed, 0, 1, constant, 0, 0, 0, 0, type_name<T>()};
    } else {
        using Form = element_form<T>;
        constexpr ulong lanes = shape<T>::lanes > 0 ? shape<T>::lanes : 0;
        return {passed, sizeof(T), alignof(T), constant, scalar_code<typename Form::scalar>(),
                lanes,  Form::form, attributed<T>::number, type_name<T>()};
    }
}
// Worked out once for each type.
template <class A> inline constexpr description described = describe<A>();
} // namespace elinvar
