// Reductions along axes. Elements of the input are indexed by kept axes, which are those of the result, and by reduced axes.
//
// `reduce_rows` has a simdgroup or a threadgroup for each result, whose threads step through the reduced axes; `reduce_columns` has a
// thread for each, for inputs that are contiguous along a kept axis. Both can compute a part of the reduced axes only; a second launch
// then reduces the parts.

// 0 sum, 1 mean, 2 product, 3 minimum, 4 maximum, 5 index of the minimum, 6 index of the maximum.
constant uint REDUCTION [[function_constant(0)]];
constant uint TYPE_OUT [[function_constant(1)]];
constant uint TYPE_IN [[function_constant(2)]];
// Numbers of kept axes, and of reduced axes besides the innermost.
constant uint KEPT [[function_constant(3)]];
constant uint OUTER [[function_constant(4)]];
// Stride of the input along the innermost reduced axis (rows) or kept axis (columns): 1, or 2 for any other.
constant uint STEP [[function_constant(5)]];
// Whether a row has a whole threadgroup.
constant bool WIDE [[function_constant(6)]];
// Whether threads step through the innermost reduced axis; otherwise through the others.
constant bool ALONG_INNER [[function_constant(7)]];

struct Reduction {
    // The innermost reduced axis, and the number of indices of the others.
    ulong inner, inner_step, outer;
    // Parts that each of them is divided into.
    ulong inner_parts, outer_parts;
    // The innermost kept axis, of `reduce_columns`.
    ulong kept_step, kept_out_step;
    float divisor;
    uint rows;
};

constant bool IS_INDEX = REDUCTION >= 5;

template <typename C>
struct Partial {
    C value;
    // Index of the value; NONE before the first.
    uint index;
};

constant constexpr uint NONE = 0xffffffff;

template <typename C>
inline C identity();
template <>
inline float identity<float>()
{
    return REDUCTION == 2 ? 1.0f : REDUCTION == 3 ? INFINITY : REDUCTION == 4 ? -INFINITY : 0.0f;
}
template <>
inline int identity<int>()
{
    return REDUCTION == 2 ? 1 : REDUCTION == 3 ? 2147483647 : REDUCTION == 4 ? -2147483647 - 1 : 0;
}

inline float plus(float a, float b) { return a + b; }
inline int plus(int a, int b) { return int(uint(a) + uint(b)); }
inline float times(float a, float b) { return a * b; }
inline int times(int a, int b) { return int(uint(a) * uint(b)); }

// Whether `a` comes before `b`: it is NaN, or more extreme, or equal with a lower index.
template <typename C>
inline bool is_before(Partial<C> a, Partial<C> b)
{
    if (a.index == NONE || b.index == NONE) {
        return b.index == NONE;
    }
    bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) {
        return a_nan && (!b_nan || a.index < b.index);
    }
    if (a.value == b.value) {
        return a.index < b.index;
    }
    return REDUCTION == 5 ? a.value < b.value : a.value > b.value;
}

template <typename C>
inline Partial<C> merge(Partial<C> a, Partial<C> b)
{
    switch (REDUCTION) {
    case 0:
    case 1: return {plus(a.value, b.value), NONE};
    case 2: return {times(a.value, b.value), NONE};
    case 3: return {Smaller()(a.value, b.value), NONE};
    case 4: return {Larger()(a.value, b.value), NONE};
    default: return is_before(a, b) ? a : b;
    }
}

template <typename C>
inline Partial<C> merge_lanes(Partial<C> partial)
{
    for (ushort step = SIMD / 2; step > 0; step /= 2) {
        Partial<C> other = {simd_shuffle_xor(partial.value, step), NONE};
        if (IS_INDEX) {
            other.index = simd_shuffle_xor(partial.index, step);
        }
        partial = merge(partial, other);
    }
    return partial;
}

template <typename C, typename I>
inline void finish(device uchar* out, I index, Partial<C> partial, float divisor)
{
    if (IS_INDEX) {
        store(out, index, TYPE_OUT, int(partial.index));
    } else if (REDUCTION == 1) {
        store(out, index, TYPE_OUT, float(partial.value) / divisor);
    } else {
        store(out, index, TYPE_OUT, partial.value);
    }
}

// The elements of one result and one part that are this thread's.
template <typename C, typename I>
inline Partial<C> reduce_part(device const uchar* in, I base, I step, uint part, uint first, uint threads,
                              constant Axes<1>& reduced, constant Reduction& size)
{
    Partial<C> partial = {identity<C>(), NONE};
    I inner = I(size.inner);
    Walk<I> by = walk<I>(inner, I(size.outer), I(size.inner_parts), I(size.outer_parts), part, first, threads, ALONG_INNER);
    for (I o = by.outer_begin; o < by.outer_end; o += by.outer_step) {
        I offsets[1] = {base};
        add_offsets<I, 1>(o, OUTER, reduced, offsets);
        for (I i = by.inner_begin; i < by.inner_end; i += by.inner_step) {
            Partial<C> next = {load<C>(in, offsets[0] + i * step, TYPE_IN), uint(o * inner + i)};
            partial = merge(partial, next);
        }
    }
    return partial;
}

template <typename C, typename I>
[[kernel]] void reduce_rows(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                            constant Axes<2>& kept [[buffer(2)]], constant Axes<1>& reduced [[buffer(3)]],
                            constant Reduction& size [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                            uint3 groups [[threadgroups_per_grid]],
                            uint local [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]])
{
    threadgroup C values[SIMD];
    threadgroup uint indices[SIMD];
    uint row = group.x + groups.x * group.z;
    row = WIDE ? row : row * simdgroups + simdgroup;
    if (row >= size.rows) {
        return;
    }
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(I(row), KEPT, kept, offsets);
    I step = stride_of<I>(STEP, size.inner_step);
    uint first = WIDE ? local : lane;
    uint threads = WIDE ? simdgroups * SIMD : SIMD;
    Partial<C> partial = reduce_part<C, I>(in, offsets[0], step, group.y, first, threads, reduced, size);
    partial = merge_lanes(partial);
    if (WIDE) {
        if (lane == 0) {
            values[simdgroup] = partial.value;
            indices[simdgroup] = partial.index;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simdgroup == 0) {
            bool has = lane < simdgroups;
            partial.value = has ? values[has ? lane : 0] : identity<C>();
            partial.index = has ? indices[has ? lane : 0] : NONE;
            partial = merge_lanes(partial);
        }
    }
    if (first == 0) {
        finish(out, offsets[1] + I(group.y), partial, size.divisor);
    }
}

template <typename C, typename I>
[[kernel]] void reduce_columns(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                               constant Axes<2>& kept [[buffer(2)]], constant Axes<1>& reduced [[buffer(3)]],
                               constant Reduction& size [[buffer(4)]], uint3 at [[thread_position_in_grid]])
{
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(I(at.y), KEPT, kept, offsets);
    offsets[0] += I(at.x) * stride_of<I>(STEP, size.kept_step);
    offsets[1] += I(at.x) * I(size.kept_out_step);
    Partial<C> partial = reduce_part<C, I>(in, offsets[0], I(size.inner_step), at.z, 0, 1, reduced, size);
    finish(out, offsets[1] + I(at.z), partial, size.divisor);
}

#define REDUCE(NAME, KERNEL, C, I) template [[host_name(NAME)]] [[kernel]] decltype(KERNEL<C, I>) KERNEL<C, I>;
REDUCE("reduce_rows_float_32", reduce_rows, float, uint)
REDUCE("reduce_rows_float_64", reduce_rows, float, ulong)
REDUCE("reduce_rows_int_32", reduce_rows, int, uint)
REDUCE("reduce_rows_int_64", reduce_rows, int, ulong)
REDUCE("reduce_columns_float_32", reduce_columns, float, uint)
REDUCE("reduce_columns_float_64", reduce_columns, float, ulong)
REDUCE("reduce_columns_int_32", reduce_columns, int, uint)
REDUCE("reduce_columns_int_64", reduce_columns, int, ulong)
