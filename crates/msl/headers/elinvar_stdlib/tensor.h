// <metal_tensor>: extents, tensors over memory, and the scopes of operations. The header makes these names those of namespace metal.
//
// Dimension 0 is the one whose elements are neighbors in memory unless strides say otherwise (MSL 4 specification, "Tensors"). A tensor is
// a view: pointer, extents, strides. Tensors that the host allocates (tensor_handle) do not exist here.
#pragma once

namespace elinvar {
namespace tensor_names {
inline constexpr size_t dynamic_extent = ~size_t(0);
// The extent of a dimension that an operation takes from its operands.
template <class T> inline constexpr T dynamic_length_v = T(dynamic_extent);

template <class I, size_t... E> struct extents {
    static_assert(metal::is_integral<I>::value, "extents have an integer type");
    static_assert(sizeof...(E) > 0 && sizeof...(E) <= 16, "a tensor has 1 to 16 dimensions");
    using index_type = I;
    using size_type = size_t;
    using rank_type = size_t;
    static constexpr ELINVAR_MEMBER size_t rank() { return sizeof...(E); }
    static constexpr ELINVAR_MEMBER size_t rank_dynamic() { return (size_t(E == dynamic_extent) + ...); }
    static constexpr ELINVAR_MEMBER size_t static_extent(size_t dimension) {
        constexpr size_t fixed[] = {E...};
        return fixed[dimension];
    }

    I values[sizeof...(E)];
    constexpr ELINVAR_MEMBER extents() : values{(E == dynamic_extent ? I(0) : I(E))...} {}
    // The extents of all dimensions, or of the dynamic ones.
    template <class... V, class = metal::enable_if_t<sizeof...(V) != 0 && (sizeof...(V) == sizeof...(E) || sizeof...(V) == rank_dynamic())>>
    constexpr ELINVAR_MEMBER extents(V... given) : values{} {
        const I all[] = {I(given)...};
        for (size_t r = 0, next = 0; r < sizeof...(E); ++r) {
            bool is_dynamic = static_extent(r) == dynamic_extent;
            values[r] = is_dynamic ? all[sizeof...(V) == sizeof...(E) ? r : next] : I(static_extent(r));
            next += is_dynamic;
        }
    }
    constexpr ELINVAR_MEMBER I extent(size_t dimension) const {
        return static_extent(dimension) == dynamic_extent ? values[dimension] : I(static_extent(dimension));
    }
};
} // namespace tensor_names

namespace tensor_detail {
template <class I, size_t Rank, size_t... E> struct dynamic {
    using type = typename dynamic<I, Rank - 1, tensor_names::dynamic_extent, E...>::type;
};
template <class I, size_t... E> struct dynamic<I, 0, E...> {
    using type = tensor_names::extents<I, E...>;
};
// The extents of a slice; all dynamic if none is given.
template <class I, size_t Rank, size_t... E> struct sliced {
    static_assert(sizeof...(E) == Rank, "a slice has an extent for each dimension, or none");
    using type = tensor_names::extents<I, E...>;
};
template <class I, size_t Rank> struct sliced<I, Rank> {
    using type = typename dynamic<I, Rank>::type;
};
template <class...> inline constexpr bool never = false;
} // namespace tensor_detail

namespace tensor_names {
template <class I, size_t Rank> using dextents = typename tensor_detail::dynamic<I, Rank>::type;

struct tensor_handle {};
struct tensor_inline {};
struct tensor_offset {};

template <class T, class Extents, class Descriptor = tensor_handle, class... Tags> struct tensor {
    static_assert(tensor_detail::never<T>, "tensors that the host allocates (tensor_handle) are not supported; construct one over a "
                                           "pointer, with tensor_inline");
};

template <class T, class Extents, class... Tags> struct tensor<T, Extents, tensor_inline, Tags...> {
    static_assert(metal::is_arithmetic<metal::remove_cv_t<T>>::value || floating_scalar<T>, "a tensor has elements of a scalar type");
    using element_type = T;
    using value_type = metal::remove_cv_t<T>;
    using extents_type = Extents;
    using index_type = typename Extents::index_type;
    using size_type = size_t;
    using rank_type = size_t;
    static constexpr ELINVAR_MEMBER size_t get_rank() { return Extents::rank(); }

    T* first;
    Extents shape;
    index_type strides[Extents::rank()];

    // Dense.
    ELINVAR_MEMBER tensor(T* data, const Extents& extents) : first(data), shape(extents) {
        index_type next = 1;
        for (size_t r = 0; r < get_rank(); ++r) {
            strides[r] = next;
            next *= shape.extent(r);
        }
    }
    // With strides in elements.
    template <class S> ELINVAR_MEMBER tensor(T* data, const Extents& extents, const metal::array<S, Extents::rank()>& steps)
        : first(data), shape(extents) {
        for (size_t r = 0; r < get_rank(); ++r) strides[r] = index_type(steps.elements[r]);
    }

    ELINVAR_MEMBER index_type get_extent(size_t dimension) const { return shape.extent(dimension); }
    ELINVAR_MEMBER index_type get_stride(size_t dimension) const { return strides[dimension]; }
    ELINVAR_MEMBER const Extents& extents() const { return shape; }
    ELINVAR_MEMBER const Extents& get_extents() const { return shape; }
    ELINVAR_MEMBER T* data() const { return first; }

    ELINVAR_MEMBER T& operator[](const metal::array<index_type, Extents::rank()>& at) const { return first[offset(at.elements)]; }
    template <class... I> ELINVAR_MEMBER T get(I... at) const {
        static_assert(sizeof...(I) == Extents::rank(), "an element has an index for each dimension");
        const index_type all[] = {index_type(at)...};
        return first[offset(all)];
    }

    // The tensor whose origin is this element. Dynamic extents are what is left of this tensor's.
    template <size_t... E, class... I> ELINVAR_MEMBER auto slice(I... at) const {
        static_assert(sizeof...(I) == Extents::rank(), "a slice has an index for each dimension");
        using Slice = typename tensor_detail::sliced<index_type, Extents::rank(), E...>::type;
        const index_type all[] = {index_type(at)...};
        Slice left;
        metal::array<index_type, Extents::rank()> steps;
        for (size_t r = 0; r < get_rank(); ++r) {
            index_type rest = shape.extent(r) - all[r];
            left.values[r] = rest < 0 ? index_type(0) : rest;
            steps.elements[r] = strides[r];
        }
        return tensor<T, Slice, tensor_inline>(first + offset(all), left, steps);
    }

    ELINVAR_MEMBER long offset(const index_type* at) const {
        long sum = 0;
        for (size_t r = 0; r < get_rank(); ++r) sum += long(at[r]) * long(strides[r]);
        return sum;
    }
};
template <class T, class I, size_t... E> tensor(T*, extents<I, E...>) -> tensor<T, extents<I, E...>, tensor_inline>;
template <class T, class I, size_t... E, class S, size_t N>
tensor(T*, extents<I, E...>, metal::array<S, N>) -> tensor<T, extents<I, E...>, tensor_inline>;

template <class T> struct is_tensor_inline : metal::false_type {};
template <class T, class X, class... Tags> struct is_tensor_inline<tensor<T, X, tensor_inline, Tags...>> : metal::true_type {};
template <class T> inline constexpr bool is_tensor_inline_v = is_tensor_inline<T>::value;

// Which threads execute an operation together.
template <size_t N> struct execution_threads {
    static_assert(N == 1, "an operation is executed by one thread or by whole simdgroups");
};
template <size_t N> struct execution_simdgroups {
    static_assert(N >= 1 && N <= 32, "an operation is executed by 1 to 32 simdgroups");
};
using execution_thread = execution_threads<1>;
using execution_simdgroup = execution_simdgroups<1>;
template <class T> struct is_execution_simdgroups : metal::false_type {};
template <size_t N> struct is_execution_simdgroups<execution_simdgroups<N>> : metal::true_type {};
template <class T> inline constexpr bool is_execution_simdgroups_v = is_execution_simdgroups<T>::value;
template <class T> inline constexpr bool is_execution_thread_v = metal::is_same<T, execution_thread>::value;
} // namespace tensor_names
} // namespace elinvar
