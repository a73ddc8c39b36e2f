// <metal_integer>: functions on integers, scalar and by component.
#pragma once

namespace elinvar {
template <class T> inline constexpr int bits = int(sizeof(T)) * 8;

// High half of the product of two numbers, for 64 bits from four products of 32 bits.
ELINVAR_PURE ulong high_product(ulong a, ulong b) {
    ulong al = uint(a), ah = a >> 32, bl = uint(b), bh = b >> 32;
    ulong middle = ah * bl + ((al * bl) >> 32);
    ulong other = al * bh + uint(middle);
    return ah * bh + (middle >> 32) + (other >> 32);
}
template <class T> ELINVAR_PURE T multiply_high(T a, T b) {
    if constexpr (sizeof(T) < 8) {
        return T((long(a) * long(b)) >> bits<T>);
    } else {
        ulong high = high_product(ulong(a), ulong(b));
        if constexpr (is_signed_v<T>) high -= (a < 0 ? ulong(b) : 0) + (b < 0 ? ulong(a) : 0);
        return T(high);
    }
}
template <class T> ELINVAR_PURE T reverse(T a) {
    if constexpr (sizeof(T) == 1)
        return T(__builtin_bitreverse8(a));
    else if constexpr (sizeof(T) == 2)
        return T(__builtin_bitreverse16(a));
    else if constexpr (sizeof(T) == 4)
        return T(__builtin_bitreverse32(a));
    else
        return T(__builtin_bitreverse64(a));
}
// a + b, or a - b, kept within the type. The compiler's own functions promote narrow types.
template <class T> ELINVAR_PURE T add_saturated(T a, T b) {
    if constexpr (sizeof(T) < 4) {
        int sum = int(a) + int(b);
        int low = numeric_limits<T>::min(), high = numeric_limits<T>::max();
        return T(sum < low ? low : sum > high ? high : sum);
    } else {
        return __builtin_elementwise_add_sat(a, b);
    }
}
template <class T> ELINVAR_PURE T subtract_saturated(T a, T b) {
    if constexpr (sizeof(T) < 4) {
        int rest = int(a) - int(b);
        int low = numeric_limits<T>::min(), high = numeric_limits<T>::max();
        return T(rest < low ? low : rest > high ? high : rest);
    } else {
        return __builtin_elementwise_sub_sat(a, b);
    }
}
// a * b + c, kept within the type. For 64 bits the exact result is in two words.
template <class T> ELINVAR_PURE T multiply_add_saturated(T a, T b, T c) {
    constexpr T low = numeric_limits<T>::min(), high = numeric_limits<T>::max();
    if constexpr (sizeof(T) < 8 && is_signed_v<T>) {
        long sum = long(a) * long(b) + long(c);
        return T(sum < low ? low : sum > high ? high : sum);
    } else if constexpr (sizeof(T) < 8) {
        ulong sum = ulong(a) * ulong(b) + ulong(c);
        return T(sum > high ? high : sum);
    } else {
        ulong bottom = ulong(a) * ulong(b), sum = bottom + ulong(c);
        T top = T(multiply_high(a, b) + (sum < bottom) + (c < 0 ? -1 : 0));
        if constexpr (is_signed_v<T>)
            return top == T(T(sum) >> 63) ? T(sum) : top < 0 ? low : high;
        else
            return top == 0 ? T(sum) : high;
    }
}
template <class T> ELINVAR_PURE T rotate_left(T a, T by) {
    using U = make_unsigned_t<T>;
    uint k = uint(by) & uint(bits<T> - 1);
    return T(U(U(a) << k) | U(U(a) >> ((bits<T> - k) & uint(bits<T> - 1))));
}
template <class T> ELINVAR_PURE T extract(T value, uint offset, uint count) {
    if (count == 0) return T(0);
    T top = T(value << (bits<T> - offset - count));
    return T(top >> (bits<T> - count));
}
template <class T> ELINVAR_PURE T insert(T base, T bits_to_insert, uint offset, uint count) {
    using U = make_unsigned_t<T>;
    if (count == 0) return base;
    U mask = U(U(U(~U(0)) >> (bits<T> - count)) << offset);
    return T((U(base) & U(~mask)) | (U(U(bits_to_insert) << offset) & mask));
}
} // namespace elinvar

#define ELINVAR_EXACT_INTEGER1(name, T) ELINVAR_PURE T name(T a) { return name<T>(a); }
#define ELINVAR_EXACT_INTEGER2(name, T) ELINVAR_PURE T name(T a, T b) { return name<T>(a, b); }
#define ELINVAR_EXACT_INTEGER3(name, T) ELINVAR_PURE T name(T a, T b, T c) { return name<T>(a, b, c); }
#define ELINVAR_EXACT_INTEGERS(exact, name)                                                                    \
    exact(name, char) exact(name, uchar) exact(name, short) exact(name, ushort) exact(name, int) exact(name, uint) \
        exact(name, long) exact(name, ulong)
#define ELINVAR_INTEGER1(name, expression)                                                                     \
    template <class T, class... Z, class = enable_if_t<elinvar::integral_scalar<T> && sizeof...(Z) == 0>>      \
    ELINVAR_PURE T name(T a, Z...) {                                                                  \
        using U [[maybe_unused]] = make_unsigned_t<T>;                                                        \
        return T(expression);                                                                                 \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<T, N> name(vec<T, N> v) {                                      \
        return elinvar::each<T, N>([](T a) { return name(a); }, v);                                           \
    }                                                                                         \
    ELINVAR_EXACT_INTEGERS(ELINVAR_EXACT_INTEGER1, name)
#define ELINVAR_INTEGER2(name, expression)                                                                     \
    template <class T, class... Z, class = enable_if_t<elinvar::integral_scalar<T> && sizeof...(Z) == 0>>      \
    ELINVAR_PURE T name(T a, T b, Z...) {                                                                  \
        return T(expression);                                                                                 \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<T, N> name(vec<T, N> v, vec<T, N> w) {                         \
        return elinvar::each<T, N>([](T a, T b) { return name(a, b); }, v, w);                                \
    }                                                                                         \
    ELINVAR_EXACT_INTEGERS(ELINVAR_EXACT_INTEGER2, name)
#define ELINVAR_INTEGER3(name, expression)                                                                     \
    template <class T, class... Z, class = enable_if_t<elinvar::integral_scalar<T> && sizeof...(Z) == 0>>      \
    ELINVAR_PURE T name(T a, T b, T c, Z...) {                                                                  \
        return T(expression);                                                                                 \
    }                                                                                                         \
    template <class T, int N> ELINVAR_PURE vec<T, N> name(vec<T, N> u, vec<T, N> v, vec<T, N> w) {            \
        return elinvar::each<T, N>([](T a, T b, T c) { return name(a, b, c); }, u, v, w);                     \
    }                                                                                         \
    ELINVAR_EXACT_INTEGERS(ELINVAR_EXACT_INTEGER3, name)

namespace metal {
ELINVAR_INTEGER1(popcount, __builtin_popcountg(U(a)))
ELINVAR_INTEGER1(clz, __builtin_clzg(U(a), elinvar::bits<T>))
ELINVAR_INTEGER1(ctz, __builtin_ctzg(U(a), elinvar::bits<T>))
ELINVAR_INTEGER1(reverse_bits, elinvar::reverse(a))
ELINVAR_INTEGER2(addsat, elinvar::add_saturated(a, b))
ELINVAR_INTEGER2(subsat, elinvar::subtract_saturated(a, b))
ELINVAR_INTEGER2(hadd, (a & b) + ((a ^ b) >> 1))
ELINVAR_INTEGER2(rhadd, (a | b) - ((a ^ b) >> 1))
ELINVAR_INTEGER2(mulhi, elinvar::multiply_high(a, b))
ELINVAR_INTEGER2(mul24, a * b)
ELINVAR_INTEGER2(rotate, elinvar::rotate_left(a, b))
ELINVAR_INTEGER3(mad24, a * b + c)
ELINVAR_INTEGER3(madhi, T(elinvar::multiply_high(a, b) + c))

template <class T, class = enable_if_t<elinvar::integral_scalar<T>>> ELINVAR_PURE T madsat(T a, T b, T c) {
    return elinvar::multiply_add_saturated(a, b, c);
}
template <class T, int N> ELINVAR_PURE vec<T, N> madsat(vec<T, N> u, vec<T, N> v, vec<T, N> w) {
    return elinvar::each<T, N>([](T a, T b, T c) { return madsat(a, b, c); }, u, v, w);
}

template <class T, class = enable_if_t<elinvar::integral_scalar<T>>> ELINVAR_PURE make_unsigned_t<T> absdiff(T a, T b) {
    using U = make_unsigned_t<T>;
    return a < b ? U(U(b) - U(a)) : U(U(a) - U(b));
}
template <class T, int N> ELINVAR_PURE vec<make_unsigned_t<T>, N> absdiff(vec<T, N> v, vec<T, N> w) {
    return elinvar::each<make_unsigned_t<T>, N>([](T a, T b) { return absdiff(a, b); }, v, w);
}

template <class T, class S, class = enable_if_t<elinvar::integral_scalar<T> && elinvar::integral_scalar<S> && !is_same_v<T, S>>>
ELINVAR_PURE T rotate(T a, S by) { return elinvar::rotate_left(a, T(by)); }

template <class T, class = enable_if_t<elinvar::integral_scalar<T>>> ELINVAR_PURE T extract_bits(T a, uint offset, uint count) {
    return elinvar::extract(a, offset, count);
}
template <class T, int N> ELINVAR_PURE vec<T, N> extract_bits(vec<T, N> v, uint offset, uint count) {
    return elinvar::each<T, N>([=](T a) { return elinvar::extract(a, offset, count); }, v);
}
template <class T, class = enable_if_t<elinvar::integral_scalar<T>>>
ELINVAR_PURE T insert_bits(T base, T insert, uint offset, uint count) {
    return elinvar::insert(base, insert, offset, count);
}
template <class T, int N> ELINVAR_PURE vec<T, N> insert_bits(vec<T, N> v, vec<T, N> w, uint offset, uint count) {
    return elinvar::each<T, N>([=](T a, T b) { return elinvar::insert(a, b, offset, count); }, v, w);
}
} // namespace metal

#undef ELINVAR_INTEGER1
#undef ELINVAR_INTEGER2
#undef ELINVAR_INTEGER3
