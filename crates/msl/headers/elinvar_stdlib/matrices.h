// matrix<T, C, R>: C columns of R components.
#pragma once

namespace elinvar {
// A parameter that no argument fits.
template <int N> class unfit {
    unfit(unfit*, unfit*, unfit*, unfit*, unfit*);
};
} // namespace elinvar

namespace metal {
template <class T, int C, int R> struct matrix {
    using column_type = vec<T, R>;
    template <int N> using column_of = conditional_t<C == N, column_type, elinvar::unfit<N>>;
    column_type columns[C];

    matrix() = default;
    // The scalar on the diagonal, zero elsewhere.
    constexpr ELINVAR_MEMBER explicit matrix(T s) : columns{} {
        for (int i = 0; i < (C < R ? C : R); ++i) columns[i][i] = s;
    }
    // Columns may be braced lists.
    constexpr ELINVAR_MEMBER matrix(column_of<2> a, column_of<2> b) : columns{a, b} {}
    constexpr ELINVAR_MEMBER matrix(column_of<3> a, column_of<3> b, column_of<3> c) : columns{a, b, c} {}
    constexpr ELINVAR_MEMBER matrix(column_of<4> a, column_of<4> b, column_of<4> c, column_of<4> d)
        : columns{a, b, c, d} {}
    template <class... V, class = enable_if_t<sizeof...(V) == C && (sizeof...(V) > 1) && (is_convertible_v<V, column_type> && ...) && !(elinvar::arithmetic_scalar<V> && ...)>>
    constexpr ELINVAR_MEMBER matrix(V... v) : columns{column_type(v)...} {}
    template <class... S, class = enable_if_t<sizeof...(S) == C * R && (elinvar::arithmetic_scalar<S> && ...)>, class = void>
    constexpr ELINVAR_MEMBER matrix(S... s) : columns{} {
        T all[] = {T(s)...};
        for (int c = 0; c < C; ++c)
            for (int r = 0; r < R; ++r) columns[c][r] = all[c * R + r];
    }
    template <class U> constexpr ELINVAR_MEMBER explicit matrix(const matrix<U, C, R>& m) : columns{} {
        for (int c = 0; c < C; ++c) columns[c] = column_type(m.columns[c]);
    }

    constexpr ELINVAR_MEMBER column_type& operator[](int c) { return columns[c]; }
    constexpr ELINVAR_MEMBER const column_type& operator[](int c) const { return columns[c]; }
};

template <class T, int C, int R> ELINVAR_PURE matrix<T, C, R> operator+(matrix<T, C, R> a, const matrix<T, C, R>& b) {
    for (int c = 0; c < C; ++c) a.columns[c] += b.columns[c];
    return a;
}
template <class T, int C, int R> ELINVAR_PURE matrix<T, C, R> operator-(matrix<T, C, R> a, const matrix<T, C, R>& b) {
    for (int c = 0; c < C; ++c) a.columns[c] -= b.columns[c];
    return a;
}
template <class T, int C, int R> ELINVAR_PURE matrix<T, C, R> operator-(matrix<T, C, R> a) {
    for (int c = 0; c < C; ++c) a.columns[c] = -a.columns[c];
    return a;
}
template <class T, int C, int R, class S, class = enable_if_t<elinvar::arithmetic_scalar<S>>>
ELINVAR_PURE matrix<T, C, R> operator*(matrix<T, C, R> m, S s) {
    for (int c = 0; c < C; ++c) m.columns[c] *= s;
    return m;
}
template <class T, int C, int R, class S, class = enable_if_t<elinvar::arithmetic_scalar<S>>>
ELINVAR_PURE matrix<T, C, R> operator*(S s, const matrix<T, C, R>& m) {
    return m * s;
}
template <class T, int C, int R> ELINVAR_PURE vec<T, R> operator*(const matrix<T, C, R>& m, vec<T, C> v) {
    vec<T, R> sum = m.columns[0] * v.x;
    for (int c = 1; c < C; ++c) sum += m.columns[c] * v[c];
    return sum;
}
template <class T, int C, int R> ELINVAR_PURE vec<T, C> operator*(vec<T, R> v, const matrix<T, C, R>& m) {
    vec<T, C> out = vec<T, C>(T(0));
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) out[c] += v[r] * m.columns[c][r];
    return out;
}
template <class T, int C, int R, int K>
ELINVAR_PURE matrix<T, C, R> operator*(const matrix<T, K, R>& a, const matrix<T, C, K>& b) {
    matrix<T, C, R> out = {};
    for (int c = 0; c < C; ++c) out.columns[c] = a * b.columns[c];
    return out;
}
template <class T, int C, int R, class U>
ELINVAR_PURE matrix<T, C, R>& operator+=(matrix<T, C, R>& a, const U& b) { return a = a + b; }
template <class T, int C, int R, class U>
ELINVAR_PURE matrix<T, C, R>& operator-=(matrix<T, C, R>& a, const U& b) { return a = a - b; }
template <class T, int C, int R, class U>
ELINVAR_PURE matrix<T, C, R>& operator*=(matrix<T, C, R>& a, const U& b) { return a = a * b; }

template <class T, int C, int R> ELINVAR_PURE matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
    matrix<T, R, C> out = {};
    for (int c = 0; c < C; ++c)
        for (int r = 0; r < R; ++r) out.columns[r][c] = m.columns[c][r];
    return out;
}
template <class T> ELINVAR_PURE T determinant(const matrix<T, 2, 2>& m) {
    return m.columns[0].x * m.columns[1].y - m.columns[0].y * m.columns[1].x;
}
template <class T> ELINVAR_PURE T determinant(const matrix<T, 3, 3>& m) {
    vec<T, 3> a = m.columns[0], b = m.columns[1], c = m.columns[2];
    return a.x * (b.y * c.z - b.z * c.y) - a.y * (b.x * c.z - b.z * c.x) + a.z * (b.x * c.y - b.y * c.x);
}
template <class T> ELINVAR_PURE T determinant(const matrix<T, 4, 4>& m) {
    T sum = T(0);
    for (int c = 0; c < 4; ++c) {
        matrix<T, 3, 3> minor = {};
        for (int k = 0; k < 3; ++k) minor.columns[k] = m.columns[k < c ? k : k + 1].yzw;
        T term = m.columns[c].x * determinant(minor);
        sum = c % 2 == 0 ? sum + term : sum - term;
    }
    return sum;
}
} // namespace metal
