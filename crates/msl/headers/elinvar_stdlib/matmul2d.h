// Metal Performance Primitives: matmul2d, products of matrices by the threads of a scope. The header makes these names those of namespace
// mpp::tensor_ops.
//
// Products of floating-point elements are summed in float, of 8-bit integers in int. Factors are read where they are, outside of their
// extents as zero; where the device has better means for factors in device memory, the intrinsic below computes the product.
#pragma once

extern "C" {
// Whether the device computes this product of factors in memory. `kind` is 1 for half, 2 for bfloat, plus 4 and 8 for a left and a right factor
// that is stored transposed, 16 if the product is added to the elements, then 8 bits each for its rows and columns, in units of 8, and for
// the number of simdgroups. Strides are in bytes.
__attribute__((nothrow, const)) bool __elinvar_has_tensor_product(const void* left, long left_stride, const void* right, long right_stride,
                                                                  uint kind);
// The product, in the layout of cooperative tensors. Rows, columns and depth are those within the extents.
ELINVAR_CONVERGENT __attribute__((nothrow, nomerge)) void __elinvar_tensor_product(float* elements, const void* left, long left_stride,
                                                                                   const void* right, long right_stride, int rows,
                                                                                   int columns, int depth, uint kind);
}

namespace elinvar {
namespace tensor_ops_names {
struct matmul2d_descriptor {
    enum class mode { multiply, multiply_accumulate };

    int m, n, k;
    bool transpose_left, transpose_right, relaxed_precision;
    mode matmul_mode;

    constexpr matmul2d_descriptor(int m, int n, int k = int(tensor_names::dynamic_extent), bool transpose_left = false,
                                  bool transpose_right = false, bool relaxed_precision = false, mode matmul_mode = mode::multiply)
        : m(m), n(n), k(k), transpose_left(transpose_left), transpose_right(transpose_right), relaxed_precision(relaxed_precision),
          matmul_mode(matmul_mode) {}
    // As an argument of a template: C++17 has none of a class type.
    constexpr operator ulong() const {
        ulong tile = m > 0 && m < 4096 && n > 0 && n < 4096 ? ulong(m) << 48 | ulong(n) << 36 : 0;
        return tile | ulong(transpose_left) << 35 | ulong(transpose_right) << 34 | ulong(relaxed_precision) << 33 |
               ulong(matmul_mode == mode::multiply_accumulate) << 32 | ulong(uint(k));
    }
    static constexpr matmul2d_descriptor unpack(ulong of) {
        return {int(of >> 48), int(of >> 36 & 4095), int(uint(of)), bool(of >> 35 & 1), bool(of >> 34 & 1), bool(of >> 33 & 1),
                of >> 32 & 1 ? mode::multiply_accumulate : mode::multiply};
    }
};
} // namespace tensor_ops_names

namespace tensor_detail {
template <class T> inline constexpr bool is_byte = metal::is_same<T, char>::value || metal::is_same<T, signed char>::value ||
                                                   metal::is_same<T, uchar>::value;
template <class T> inline constexpr bool is_factor = is_byte<T> || floating_scalar<T>;
// The combinations of Metal Performance Primitives.
template <class A, class B, class C> constexpr bool has_product() {
    if (!is_factor<A> || !is_factor<B>) return false;
    if (is_byte<A> && is_byte<B>) return metal::is_same<C, int>::value || metal::is_same<C, float>::value || metal::is_same<C, half>::value;
    bool wide = metal::is_same<A, float>::value || metal::is_same<B, float>::value;
    bool same = metal::is_same<A, C>::value || metal::is_same<B, C>::value;
    return metal::is_same<C, float>::value || (!wide && same && floating_scalar<C>);
}

// The number of simdgroups of a scope; 0 for a thread, -1 for another type.
template <class S> inline constexpr int simdgroups = -1;
template <size_t N> inline constexpr int simdgroups<tensor_names::execution_simdgroups<N>> = int(N);
template <> inline constexpr int simdgroups<tensor_names::execution_thread> = 0;

// A factor: element (row, column) of the matrix that is multiplied.
template <class Sum, bool Transposed, class T> struct factor {
    const T& of;
    ELINVAR_MEMBER int rows() const { return int(of.shape.extent(Transposed ? 0 : 1)); }
    ELINVAR_MEMBER int columns() const { return int(of.shape.extent(Transposed ? 1 : 0)); }
    ELINVAR_MEMBER long row_stride() const { return long(of.strides[Transposed ? 0 : 1]); }
    ELINVAR_MEMBER long column_stride() const { return long(of.strides[Transposed ? 1 : 0]); }
    ELINVAR_MEMBER Sum at(int row, int column) const { return Sum(of.first[long(row) * row_stride() + long(column) * column_stride()]); }
    ELINVAR_MEMBER Sum at(int row, int column, int rows, int columns) const {
        return row < rows && column < columns ? at(row, column) : Sum(0);
    }
};

// The thread's elements c of block row `rb` of simdgroups' turns, and so on: adds the product of two blocks.
template <class Sum> ELINVAR_INLINE ELINVAR_CONVERGENT void multiply_blocks(Sum& c0, Sum& c1, float a0, float a1, float b0, float b1) {
    if constexpr (metal::is_same<Sum, float>::value) {
        float d0 = __elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, c0, c1, 0);
        float d1 = __elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, c0, c1, 1);
        c0 = d0;
        c1 = d1;
    } else {
        // Eight products of bytes are exact in float.
        c0 += Sum(__elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, 0.0f, 0.0f, 0));
        c1 += Sum(__elinvar_simd_matrix_multiply_accumulate_f32(a0, a1, b0, b1, 0.0f, 0.0f, 1));
    }
}

// Column `c` of the blocks of the product of depth block `k`.
template <class L, bool Checked, class Sum, class B>
ELINVAR_INLINE ELINVAR_CONVERGENT void multiply_column(Sum (&sum)[L::capacity], const float (&left)[L::turns * L::height][2], const B& b,
                                                       int columns, int depth, int k, int c, const typename L::part& part,
                                                       const matrix_place& place) {
    int row = k + int(place.row), column = part.column + c * 8;
    float right0 = float(Checked ? b.at(row, column, depth, columns) : b.at(row, column));
    float right1 = float(Checked ? b.at(row, column + 1, depth, columns) : b.at(row, column + 1));
    ELINVAR_UNROLL
    for (int r = 0; r < L::turns * L::height; ++r) {
        int i = L::block(r / L::height, r % L::height, c);
        multiply_blocks(sum[i], sum[i + 1], left[r][0], left[r][1], right0, right1);
    }
}

// Depth block `k` of the product. Many columns are a loop: the code of each is long.
template <class L, bool Checked, class Sum, class A, class B>
ELINVAR_INLINE ELINVAR_CONVERGENT void multiply_step(Sum (&sum)[L::capacity], const A& a, const B& b, int rows, int columns, int depth,
                                                     int k, const typename L::part& part, const matrix_place& place) {
    float left[L::turns * L::height][2];
    ELINVAR_UNROLL
    for (int r = 0; r < L::turns * L::height; ++r) {
        int row = part.row + L::row(L::block(r / L::height, r % L::height, 0)), column = k + int(place.column);
        left[r][0] = float(Checked ? a.at(row, column, rows, depth) : a.at(row, column));
        left[r][1] = float(Checked ? a.at(row, column + 1, rows, depth) : a.at(row, column + 1));
    }
    if constexpr (L::capacity <= 32) {
        ELINVAR_UNROLL
        for (int c = 0; c < L::width; ++c) multiply_column<L, Checked>(sum, left, b, columns, depth, k, c, part, place);
    } else {
        _Pragma("clang loop unroll(disable)")
        for (int c = 0; c < L::width; ++c) multiply_column<L, Checked>(sum, left, b, columns, depth, k, c, part, place);
    }
}

// The product by simdgroups of factors in memory.
template <class L, class Sum, class A, class B>
ELINVAR_INLINE ELINVAR_CONVERGENT void multiply(Sum (&sum)[L::capacity], const A& a, const B& b, int rows, int columns, int depth) {
    typename L::part part;
    matrix_place place;
    int k = 0;
    if (L::is_full && rows == L::rows && columns == L::columns)
        for (; k + 8 <= depth; k += 8) multiply_step<L, false>(sum, a, b, rows, columns, depth, k, part, place);
    for (; k < depth; k += 8) multiply_step<L, true>(sum, a, b, rows, columns, depth, k, part, place);
}

// The product by simdgroups of cooperative factors, whose depth is constant.
template <class L, class LA, class LB, class Sum, class A, class B>
ELINVAR_INLINE ELINVAR_CONVERGENT void multiply_cooperative(Sum (&sum)[L::capacity], const A& a, const B& b) {
    ELINVAR_UNROLL
    for (int k = 0; k < LA::columns / 8; ++k) {
        ELINVAR_UNROLL
        for (int c = 0; c < L::width; ++c) {
            int j = LB::block(k / LB::height, k % LB::height, c);
            ELINVAR_UNROLL
            for (int r = 0; r < L::turns * L::height; ++r) {
                int i = L::block(r / L::height, r % L::height, c), l = LA::block(r / L::height, r % L::height, k);
                multiply_blocks(sum[i], sum[i + 1], float(a.elements[l]), float(a.elements[l + 1]), float(b.elements[j]),
                                float(b.elements[j + 1]));
            }
        }
    }
}

// The product by one thread.
template <int N, class Sum, int Capacity, class A, class B>
ELINVAR_INLINE void multiply_alone(Sum (&sum)[Capacity], const A& a, const B& b, int rows, int columns, int depth) {
    for (int i = 0; i < Capacity; ++i) {
        if (i / N >= rows || i % N >= columns) continue;
        for (int k = 0; k < depth; ++k) sum[i] += a.at(i / N, k) * b.at(k, i % N);
    }
}
ELINVAR_INLINE int least(int a, int b) { return a < b ? a : b; }
} // namespace tensor_detail

namespace tensor_ops_names {
template <ulong Descriptor, class Scope> class matmul2d {
    static_assert(Descriptor >> 36 != 0, "matmul2d_descriptor: rows and columns of a product are 1 to 4095");
    static_assert(tensor_detail::simdgroups<Scope> >= 0, "the scope of a matmul2d is execution_thread or execution_simdgroups");

  public:
    static constexpr matmul2d_descriptor descriptor = matmul2d_descriptor::unpack(Descriptor);
    using scope = Scope;

  private:
    static constexpr int together = tensor_detail::simdgroups<Scope>;
    static constexpr bool accumulates = descriptor.matmul_mode == matmul2d_descriptor::mode::multiply_accumulate;
    using sums = tensor_detail::layout<descriptor.m, descriptor.n, together>;
    template <class T> using value = typename T::value_type;

    template <int Rows, int Columns, bool Transposed, class T, class Coordinate> struct input {
        static_assert(together == 1, "cooperative factors need a scope of one simdgroup");
        static_assert(descriptor.k > 0 && descriptor.k % 8 == 0 && descriptor.m % 8 == 0 && descriptor.n % 8 == 0,
                      "cooperative factors need rows, columns and a constant depth that are multiples of 8");
        using layout = tensor_detail::layout<Rows, Columns, together>;
        using type = tensor_names::cooperative_tensor<T, tensor_names::extents<int, Transposed ? Rows : Columns, Transposed ? Columns : Rows>,
                                                      tensor_detail::placement<layout, Transposed, Coordinate>>;
    };

  public:
    template <class Left, class Right, class T, class Coordinate = int>
    using cooperative_tensor_destination_t =
        tensor_names::cooperative_tensor<T, tensor_names::extents<int, descriptor.n, descriptor.m>,
                                         tensor_detail::placement<sums, false, Coordinate>>;

    template <class Left, class Right, class T, class Coordinate = int>
    ELINVAR_MEMBER cooperative_tensor_destination_t<Left, Right, T, Coordinate> get_destination_cooperative_tensor() const {
        static_assert(tensor_detail::has_product<value<Left>, value<Right>, T>(), "matmul2d does not have this combination of types");
        return {};
    }
    template <class LeftElement, class RightElement, class T, class Coordinate = int>
    ELINVAR_MEMBER auto get_left_input_cooperative_tensor() const {
        return typename input<descriptor.m, descriptor.k, descriptor.transpose_left, LeftElement, Coordinate>::type{};
    }
    template <class LeftElement, class RightElement, class T, class Coordinate = int>
    ELINVAR_MEMBER auto get_right_input_cooperative_tensor() const {
        return typename input<descriptor.k, descriptor.n, descriptor.transpose_right, RightElement, Coordinate>::type{};
    }

    // Replaces the destination by the product, or adds it. All threads of the scope call it.
    template <class Left, class Right, class Destination>
    ELINVAR_MEMBER ELINVAR_CONVERGENT void run(const Left& left, const Right& right, Destination& destination) const {
        using A = value<Left>;
        using B = value<Right>;
        using C = value<Destination>;
        static_assert(tensor_detail::has_product<A, B, C>(), "matmul2d does not have this combination of types");
        using Sum = metal::conditional_t<tensor_detail::is_byte<A> && tensor_detail::is_byte<B>, int, float>;
        if constexpr (tensor_names::is_cooperative_tensor_v<Destination>) {
            static_assert(metal::is_same<typename Destination::layout, sums>::value,
                          "the destination of a matmul2d is a cooperative tensor of the same operation");
            run<Sum>(left, right, destination.elements);
        } else {
            static_assert(!metal::is_same<const C, typename Destination::element_type>::value, "the destination of a matmul2d is constant");
            auto product = get_destination_cooperative_tensor<Left, Right, C>();
            if constexpr (accumulates) product.load(destination);
            run<Sum>(left, right, product.elements);
            product.store(destination);
        }
    }

  private:
    // The kind of the intrinsic; 0 where it has none.
    template <class A, class B> static constexpr uint kind() {
        bool halves = metal::is_same<A, half>::value, same = metal::is_same<A, B>::value;
        if (!same || !(halves || metal::is_same<A, bfloat>::value) || together < 4 || !sums::is_full) return 0;
        if (descriptor.m % 64 != 0 || descriptor.n % 64 != 0 || descriptor.m > 1024 || descriptor.n > 1024) return 0;
        return (halves ? 1 : 2) | uint(descriptor.transpose_left) << 2 | uint(descriptor.transpose_right) << 3 | uint(accumulates) << 4 |
               uint(descriptor.m / 8) << 8 | uint(descriptor.n / 8) << 16 | uint(together) << 24;
    }

    template <class Sum, class Left, class Right, class C>
    ELINVAR_MEMBER ELINVAR_CONVERGENT void run(const Left& left, const Right& right, C (&elements)[sums::capacity]) const {
        Sum sum[sums::capacity];
        ELINVAR_UNROLL
        for (int i = 0; i < sums::capacity; ++i) sum[i] = accumulates ? Sum(elements[i]) : Sum(0);
        if constexpr (tensor_names::is_cooperative_tensor_v<Left> || tensor_names::is_cooperative_tensor_v<Right>) {
            static_assert(tensor_names::is_cooperative_tensor_v<Left> && tensor_names::is_cooperative_tensor_v<Right>,
                          "the factors of a matmul2d are both cooperative or both in memory");
            tensor_detail::multiply_cooperative<sums, typename Left::layout, typename Right::layout>(sum, left, right);
        } else {
            static_assert(Left::get_rank() == 2 && Right::get_rank() == 2, "the operands of a matmul2d have two dimensions");
            tensor_detail::factor<Sum, descriptor.transpose_left, Left> a{left};
            tensor_detail::factor<Sum, descriptor.transpose_right, Right> b{right};
            int rows = tensor_detail::least(a.rows(), descriptor.m), columns = tensor_detail::least(b.columns(), descriptor.n);
            int depth = tensor_detail::least(a.columns(), b.rows());
            if (descriptor.k > 0) depth = tensor_detail::least(depth, descriptor.k);
            if constexpr (together == 0) {
                tensor_detail::multiply_alone<descriptor.n>(sum, a, b, rows, columns, depth);
            } else if constexpr (kind<value<Left>, value<Right>>() != 0) {
                constexpr uint product = kind<value<Left>, value<Right>>();
                long left_stride = long(left.strides[1]) * 2, right_stride = long(right.strides[1]) * 2;
                // Whole threadgroups, and rows whose elements are neighbors.
                bool whole = __elinvar_threads_per_threadgroup(0) * __elinvar_threads_per_threadgroup(1) *
                                     __elinvar_threads_per_threadgroup(2) ==
                                 uint(together) * 32 &&
                             left.strides[0] == 1 && right.strides[0] == 1;
                if (whole && __elinvar_has_tensor_product(left.first, left_stride, right.first, right_stride, product)) {
                    // Elements of their own: those of the operation stay in registers where the device has no such product.
                    float whole_sum[sums::capacity];
                    if constexpr (accumulates) {
                        ELINVAR_UNROLL
                        for (int i = 0; i < sums::capacity; ++i) whole_sum[i] = sum[i];
                    }
                    __elinvar_tensor_product(whole_sum, left.first, left_stride, right.first, right_stride, rows, columns, depth, product);
                    ELINVAR_UNROLL
                    for (int i = 0; i < sums::capacity; ++i) sum[i] = whole_sum[i];
                } else {
                    // And those are not in memory because this path has a loop over them.
                    float sum_here[sums::capacity];
                    ELINVAR_UNROLL
                    for (int i = 0; i < sums::capacity; ++i) sum_here[i] = sum[i];
                    tensor_detail::multiply<sums>(sum_here, a, b, rows, columns, depth);
                    ELINVAR_UNROLL
                    for (int i = 0; i < sums::capacity; ++i) sum[i] = sum_here[i];
                }
            } else {
                tensor_detail::multiply<sums>(sum, a, b, rows, columns, depth);
            }
        }
        ELINVAR_UNROLL
        for (int i = 0; i < sums::capacity; ++i) elements[i] = C(sum[i]);
    }
};
} // namespace tensor_ops_names
} // namespace elinvar
