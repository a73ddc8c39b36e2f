// <metal_cooperative_tensor>: matrices whose elements are distributed over the threads of an operation's scope.
//
// A scope of simdgroups holds blocks of 8x8 elements, each as a simdgroup_matrix. A simdgroup has two blocks of a column that follow one
// another, then those of the next column; simdgroups follow one another down the rows, and along the columns if there are more of them
// than rows. Four simdgroups then hold 64 rows as the instructions of NVIDIA's Hopper do, apart from the order of lanes.
#pragma once

namespace elinvar {
namespace tensor_detail {
// The place of the elements of a matrix with `Rows` rows. `Simdgroups` is 0 for a single thread.
template <int Rows, int Columns, int Simdgroups> struct layout {
    static constexpr int rows = Rows, columns = Columns, simdgroups = Simdgroups;
    static constexpr int round(int n, int to) { return (n + to - 1) / to * to; }
    // Rows of blocks of a simdgroup that follow one another.
    static constexpr int height = Rows % 16 == 0 ? 2 : 1;
    static constexpr int down() {
        int most = 1;
        for (int d = 1; d <= Simdgroups; ++d)
            if (Simdgroups % d == 0 && d * height * 8 <= round(Rows, height * 8)) most = d;
        return most;
    }
    static constexpr int across() { return Simdgroups / down(); }
    // How often the simdgroups follow one another down the rows; blocks of a simdgroup in a row.
    static constexpr int turns = round(Rows, height * 8 * down()) / (height * 8 * down());
    static constexpr int width = round(round(Columns, 8) / 8, across()) / across();
    static constexpr int capacity = turns * width * height * 2;

    // The thread's part: row and column of its first element.
    struct part {
        int row, column;
        ELINVAR_INLINE part() {
            matrix_place place;
            int simdgroup = Simdgroups == 1 ? 0 : int(attribute::simdgroup_index_in_threadgroup::at(0));
            row = simdgroup % down() * height * 8 + int(place.row);
            column = simdgroup / down() % across() * width * 8 + int(place.column);
        }
    };
    static constexpr ELINVAR_MEMBER int row(int i) { return i / (2 * height * width) * down() * height * 8 + i / 2 % height * 8; }
    static constexpr ELINVAR_MEMBER int column(int i) { return i / (2 * height) % width * 8 + i % 2; }
    // The first element of the thread's block.
    static constexpr ELINVAR_MEMBER int block(int turn, int h, int c) { return ((turn * width + c) * height + h) * 2; }
    static constexpr bool is_full = Rows % (height * 8 * down()) == 0 && Columns % (8 * across()) == 0;
};
template <int Rows, int Columns> struct layout<Rows, Columns, 0> {
    static constexpr int rows = Rows, columns = Columns, simdgroups = 0, capacity = Rows * Columns;
    struct part {
        int row = 0, column = 0;
    };
    static constexpr ELINVAR_MEMBER int row(int i) { return i / Columns; }
    static constexpr ELINVAR_MEMBER int column(int i) { return i % Columns; }
    static constexpr bool is_full = true;
};
// A layout whose dimension 0 is the rows: of transposed factors.
template <class L, bool Transposed, class Coordinate> struct placement {
    using layout = L;
    using coordinate = Coordinate;
    static constexpr bool transposed = Transposed;
};
} // namespace tensor_detail

namespace tensor_names {
// Made by an operation. `Extents` are those of the whole matrix, dimension 0 first.
template <class T, class Extents, class Placement> struct cooperative_tensor {
    using layout = typename Placement::layout;
    using element_type = T;
    using value_type = T;
    using extents_type = Extents;
    using index_type = typename Placement::coordinate;
    using index = metal::array<index_type, 2>;

    T elements[layout::capacity];

    static constexpr ELINVAR_MEMBER size_t get_rank() { return 2; }
    static constexpr ELINVAR_MEMBER ushort get_capacity() { return layout::capacity; }
    // Dimension 0, then dimension 1 of the thread's element.
    ELINVAR_MEMBER index get_multidimensional_index(ushort i) const {
        typename layout::part part;
        index_type row = index_type(part.row + layout::row(i)), column = index_type(part.column + layout::column(i));
        if constexpr (Placement::transposed)
            return index{{row, column}};
        else
            return index{{column, row}};
    }
    // Whether the element is one of the matrix: threads at its edges have fewer.
    ELINVAR_MEMBER bool is_valid_element(ushort i) const {
        if (layout::is_full) return true;
        typename layout::part part;
        return part.row + layout::row(i) < layout::rows && part.column + layout::column(i) < layout::columns;
    }
    ELINVAR_MEMBER bool get_mask(ushort i) const { return is_valid_element(i); }
    ELINVAR_MEMBER T& operator[](ushort i) { return elements[i]; }
    ELINVAR_MEMBER const T& operator[](ushort i) const { return elements[i]; }
    ELINVAR_MEMBER T get(ushort i) const { return elements[i]; }
    template <class V> ELINVAR_MEMBER void set(ushort i, V value) { elements[i] = T(value); }

    // Element by element; elements outside of `from` are zero.
    template <class E, class X, class... Tags> ELINVAR_MEMBER void load(const tensor<E, X, tensor_inline, Tags...>& from) {
        static_assert(X::rank() == 2, "a matrix is loaded from a tensor of two dimensions");
        ELINVAR_UNROLL
        for (int i = 0; i < layout::capacity; ++i) {
            index at = get_multidimensional_index(ushort(i));
            elements[i] = contains(from, at, i) ? T(from.first[place(from, at)]) : T(0);
        }
    }
    // Elements outside of `to` are not stored.
    template <class E, class X, class... Tags> ELINVAR_MEMBER void store(const tensor<E, X, tensor_inline, Tags...>& to) const {
        static_assert(X::rank() == 2, "a matrix is stored to a tensor of two dimensions");
        if constexpr (layout::simdgroups != 0 && layout::is_full && !Placement::transposed) {
            // The two elements of a block are neighbors.
            bool is_inside = long(to.shape.extent(0)) >= layout::columns && long(to.shape.extent(1)) >= layout::rows;
            if (is_inside && to.strides[0] == 1 && to.strides[1] % 2 == 0 && ulong(to.first) % (2 * sizeof(E)) == 0) {
                ELINVAR_UNROLL
                for (int i = 0; i < layout::capacity; i += 2) {
                    E* first = to.first + place(to, get_multidimensional_index(ushort(i)));
                    *(metal::vec<E, 2>*)first = metal::vec<E, 2>(E(elements[i]), E(elements[i + 1]));
                }
                return;
            }
        }
        ELINVAR_UNROLL
        for (int i = 0; i < layout::capacity; ++i) {
            index at = get_multidimensional_index(ushort(i));
            if (contains(to, at, i)) to.first[place(to, at)] = E(elements[i]);
        }
    }

    // The thread's elements, valid or not.
    struct iterator {
        cooperative_tensor* of;
        ushort at;
        ELINVAR_MEMBER T& operator*() const { return of->elements[at]; }
        ELINVAR_MEMBER T* operator->() const { return &of->elements[at]; }
        ELINVAR_MEMBER iterator& operator++() {
            ++at;
            return *this;
        }
        ELINVAR_MEMBER iterator operator++(int) { return {of, at++}; }
        ELINVAR_MEMBER bool operator==(iterator other) const { return at == other.at; }
        ELINVAR_MEMBER bool operator!=(iterator other) const { return at != other.at; }
        ELINVAR_MEMBER index get_multidimensional_index() const { return of->get_multidimensional_index(at); }
        ELINVAR_MEMBER bool is_valid() const { return of->is_valid_element(at); }
    };
    ELINVAR_MEMBER iterator begin() { return {this, 0}; }
    ELINVAR_MEMBER iterator end() { return {this, layout::capacity}; }

  private:
    template <class E> static ELINVAR_MEMBER long place(const E& of, index at) {
        return long(at.elements[0]) * long(of.strides[0]) + long(at.elements[1]) * long(of.strides[1]);
    }
    template <class E> ELINVAR_MEMBER bool contains(const E& of, index at, int i) const {
        return is_valid_element(ushort(i)) && long(at.elements[0]) < long(of.shape.extent(0)) &&
               long(at.elements[1]) < long(of.shape.extent(1));
    }
};

template <class T> struct is_cooperative_tensor : metal::false_type {};
template <class T, class X, class P> struct is_cooperative_tensor<cooperative_tensor<T, X, P>> : metal::true_type {};
template <class T> inline constexpr bool is_cooperative_tensor_v = is_cooperative_tensor<T>::value;
} // namespace tensor_names
} // namespace elinvar
