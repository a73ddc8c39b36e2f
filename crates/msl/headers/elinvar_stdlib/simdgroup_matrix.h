// <metal_simdgroup_matrix>: 8x8 matrices whose elements are spread over the threads of a simdgroup.
//
// Each thread holds two neighbours of a row, in the layout that Apple's hardware has: the thread with index
// i holds row (i / 16) * 4 + (i / 2) % 4 and the two columns from (i / 8 % 2) * 4 + (i % 2) * 2 on. Products are the
// intrinsic below, in float, so that a compiler sees the whole of them.
#pragma once

// The element (0 or 1) of this thread in a * b + c, where the threads hold the matrices' elements.
extern "C" ELINVAR_CONVERGENT __attribute__((nothrow, const)) float __elinvar_simd_matrix_multiply_accumulate_f32(
    float a0, float a1, float b0, float b1, float c0, float c1, uint element);

namespace metal {
template <class T, int Cols, int Rows = Cols> struct simdgroup_matrix {
    static_assert(Cols == 8 && Rows == 8, "a simdgroup_matrix has 8 columns and 8 rows");
    static_assert(elinvar::floating_scalar<T>, "a simdgroup_matrix has elements of a floating-point type");
    using storage_type = vec<T, 2>;
    storage_type elements;
    simdgroup_matrix() = default;
    // Copied element by element: what clang could copy as bytes it would pass in registers as one vector.
    constexpr ELINVAR_MEMBER simdgroup_matrix(const simdgroup_matrix& m)
        : elements(m.elements.x, m.elements.y) {}
    constexpr ELINVAR_MEMBER simdgroup_matrix& operator=(const simdgroup_matrix& m) {
        elements.x = m.elements.x;
        elements.y = m.elements.y;
        return *this;
    }
    ELINVAR_MEMBER explicit simdgroup_matrix(T diagonal);
    constexpr ELINVAR_MEMBER storage_type& thread_elements() { return elements; }
    constexpr ELINVAR_MEMBER const storage_type& thread_elements() const { return elements; }
};
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
} // namespace metal

namespace elinvar {
// Row and first column of the thread's two elements.
struct matrix_place {
    ulong row, column;
    ELINVAR_INLINE matrix_place() {
        uint i = attribute::thread_index_in_simdgroup::at(0);
        row = i / 16 * 4 + i / 2 % 4;
        column = i / 8 % 2 * 4 + i % 2 * 2;
    }
    ELINVAR_INLINE ulong index(uint element, ulong stride, vec<ulong, 2> origin, bool transposed) const {
        ulong c = column + element;
        return transposed ? (origin.y + c) * stride + origin.x + row : (origin.y + row) * stride + origin.x + c;
    }
};
} // namespace elinvar

namespace metal {
template <class T, int C, int R> ELINVAR_INLINE simdgroup_matrix<T, C, R>::simdgroup_matrix(T diagonal) {
    elinvar::matrix_place place;
    elements = storage_type(place.row == place.column ? diagonal : T(0),
                            place.row == place.column + 1 ? diagonal : T(0));
}
template <class T, int C, int R = C, class S> ELINVAR_INLINE simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(S value) {
    simdgroup_matrix<T, C, R> m;
    m.elements = vec<T, 2>(T(value));
    return m;
}
template <class T, int C, int R = C> ELINVAR_INLINE simdgroup_matrix<T, C, R> make_diagonal_simdgroup_matrix(T value) {
    return simdgroup_matrix<T, C, R>(value);
}
template <class T, int C, int R, class P>
ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_load(simdgroup_matrix<T, C, R>& m, const P* from, ulong stride = C,
                                                      vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transposed = false) {
    elinvar::matrix_place place;
    m.elements = vec<T, 2>(T(from[place.index(0, stride, origin, transposed)]),
                           T(from[place.index(1, stride, origin, transposed)]));
}
template <class T, int C, int R, class P>
ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_store(simdgroup_matrix<T, C, R> m, P* to, ulong stride = C,
                                                       vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool transposed = false) {
    elinvar::matrix_place place;
    to[place.index(0, stride, origin, transposed)] = P(m.elements.x);
    to[place.index(1, stride, origin, transposed)] = P(m.elements.y);
}
template <class D, class A, class B, class E>
ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                                                     simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<E, 8, 8> c) {
    float a0 = float(a.elements.x), a1 = float(a.elements.y), b0 = float(b.elements.x), b1 = float(b.elements.y);
    float c0 = float(c.elements.x), c1 = float(c.elements.y);
    d.elements = vec<D, 2>(D(__elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, c0, c1, 0)),
                           D(__elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, c0, c1, 1)));
}
template <class D, class A, class B>
ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                                          simdgroup_matrix<B, 8, 8> b) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8>(0));
}
template <class T>
ELINVAR_INLINE ELINVAR_CONVERGENT simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b) {
    simdgroup_matrix<T, 8, 8> d;
    simdgroup_multiply(d, a, b);
    return d;
}
} // namespace metal

// The storage of a matrix as sources declare it that access its elements through pointers: the compiler's vector of all 64
// elements, of which a thread holds the first two.
namespace metal {
template <class T> struct vec<T, 64> {
    using value_type = T;
    static constexpr int size = 64;
    alignas(2 * sizeof(T)) T components[2];

    vec() = default;
    constexpr ELINVAR_MEMBER vec(T s) : components{s, s} {}
    constexpr ELINVAR_MEMBER vec(const vec& from) : components{from.components[0], from.components[1]} {}
    constexpr ELINVAR_MEMBER vec& operator=(const vec& from) {
        components[0] = from.components[0];
        components[1] = from.components[1];
        return *this;
    }
    constexpr ELINVAR_MEMBER T& operator[](int i) { return components[i]; }
    constexpr ELINVAR_MEMBER const T& operator[](int i) const { return components[i]; }
};
} // namespace metal
template <class A, class B, class C, class D>
ELINVAR_INLINE ELINVAR_CONVERGENT metal::vec<D, 64> __metal_simdgroup_matrix_8x8_multiply_accumulate(metal::vec<A, 64> a,
                                                                                                  metal::vec<B, 64> b,
                                                                                                  metal::vec<C, 64> c,
                                                                                                  metal::vec<D, 64>) {
    float a0 = float(a[0]), a1 = float(a[1]), b0 = float(b[0]), b1 = float(b[1]), c0 = float(c[0]), c1 = float(c[1]);
    metal::vec<D, 64> d;
    d[0] = D(__elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, c0, c1, 0));
    d[1] = D(__elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, c0, c1, 1));
    return d;
}
template <class T> ELINVAR_INLINE metal::vec<T, 64> __metal_simdgroup_matrix_8x8_init_filled(T value) { return value; }
template <class T> ELINVAR_INLINE metal::vec<T, 64> __metal_simdgroup_matrix_8x8_init_diag(T value) {
    metal::simdgroup_matrix<T, 8, 8> diagonal(value);
    metal::vec<T, 64> d;
    d[0] = diagonal.elements.x;
    d[1] = diagonal.elements.y;
    return d;
}
