// <metal_logging>, and `printf`: a call of an intrinsic with the format, the values' types and the values.
//
// The back ends need the format and the `os_log` as constants; the front end's optimization makes them so.
#pragma once

extern "C" {
// The types are two characters for each value, its element type and its number of components, counted from '0'. Each component is
// an argument of type ulong: integers extended to 64 bits according to their signs, floating-point numbers as the bits of a float.
__attribute__((nomerge, nothrow)) void __elinvar_log(const char* format, const char* types, const char* subsystem,
                                                     const char* category, uint level, uint x, uint y, uint z, ...);
}

namespace elinvar {
namespace logging {
template <class T> constexpr bool is_text = false;
template <> inline constexpr bool is_text<char*> = true;
template <> inline constexpr bool is_text<const char*> = true;

// 0 for what cannot be logged.
template <class T> constexpr char element() {
    if constexpr (is_text<T>)
        return 't';
    else if constexpr (__is_pointer(T) || __is_same(T, decltype(nullptr)))
        return 'p';
    else if constexpr (__is_enum(T))
        return element<__underlying_type(T)>();
    else
        return "\0bcCsSiIlLhBf"[scalar_code<T>()];
}
template <class T> constexpr int lanes = shape<T>::lanes > 0 ? shape<T>::lanes : 1;
template <class T, bool = (shape<T>::lanes > 0)> struct scalar_of {
    using type = T;
};
template <class T> struct scalar_of<T, true> {
    using type = typename shape<T>::scalar;
};
template <class T> constexpr char code = element<typename scalar_of<T>::type>();

template <class... A> struct types {
    char text[2 * sizeof...(A) + 1] = {};
    constexpr types() {
        ulong at = 0;
        ((text[at] = code<A>, text[at + 1] = char('0' + lanes<A>), at += 2), ...);
    }
};
template <class... A> inline constexpr types<A...> types_of{};

template <class T> ELINVAR_INLINE ulong word(T value) {
    if constexpr (__is_pointer(T))
        return (ulong)value;
    else if constexpr (__is_same(T, decltype(nullptr)))
        return 0;
    else if constexpr (__is_enum(T))
        return word((__underlying_type(T))value);
    else if constexpr (__is_same(T, half) || __is_same(T, bfloat) || __is_same(T, float))
        return ulong(__builtin_bit_cast(uint, float(value)));
    else if constexpr (T(-1) < T(0))
        return ulong(long(value));
    else
        return ulong(value);
}
ELINVAR_INLINE ulong word(bool value) { return value ? 1 : 0; }
template <class T> ELINVAR_INLINE void put(ulong*& to, T value) {
    if constexpr (shape<T>::lanes > 0) {
        for (int i = 0; i < lanes<T>; ++i) *to++ = word(typename scalar_of<T>::type(value[i]));
    } else {
        *to++ = word(value);
    }
}

template <class T, T... I> struct indices {};
template <int... I> ELINVAR_INLINE void call(indices<int, I...>, const ulong* words, const char* format, const char* types,
                                             const char* subsystem, const char* category, uint level) {
    __elinvar_log(format, types, subsystem, category, level, attribute::thread_position_in_grid::at(0),
                  attribute::thread_position_in_grid::at(1), attribute::thread_position_in_grid::at(2), words[I]...);
}
template <class... A> ELINVAR_INLINE void write(uint level, const char* subsystem, const char* category, const char* format,
                                                A... values) {
    static_assert(((code<A> != 0) && ...), "a log call takes scalars, vectors, pointers and string literals");
    constexpr int count = (0 + ... + lanes<A>);
    static_assert(count <= 64, "a log call takes at most 64 values, with the components of vectors");
    ulong words[count + 1] = {};
    ulong* to = words;
    (put(to, values), ...);
    call(__make_integer_seq<indices, int, count>(), words, format, types_of<A...>.text, subsystem, category, level);
}
} // namespace logging
} // namespace elinvar

namespace metal {
struct os_log {
    const char* elinvar_subsystem = "";
    const char* elinvar_category = "";
    constexpr os_log() = default;
    constexpr os_log(const char* subsystem, const char* category)
        : elinvar_subsystem(subsystem), elinvar_category(category) {}

#define ELINVAR_LOG(name, level)                                                                               \
    template <class... A> ELINVAR_MEMBER void name(const char* format, A... values) const {                   \
        elinvar::logging::write(level, elinvar_subsystem, elinvar_category, format, values...);               \
    }
    ELINVAR_LOG(log_debug, 0)
    ELINVAR_LOG(log_info, 1)
    ELINVAR_LOG(log, 2)
    ELINVAR_LOG(log_error, 3)
    ELINVAR_LOG(log_fault, 4)
#undef ELINVAR_LOG
};
inline constexpr os_log os_log_default{};
} // namespace metal

template <class... A> ELINVAR_INLINE void printf(const char* format, A... values) {
    elinvar::logging::write(2, "", "", format, values...);
}
