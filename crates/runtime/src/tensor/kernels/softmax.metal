// Softmax along one axis, with the maximum subtracted, so that no exponential overflows.
//
// `softmax_rows` has a simdgroup or a threadgroup for each row along the axis; `softmax_columns` has a thread, or one in each simdgroup of a
// threadgroup, for tensors that are contiguous along another axis. `softmax_pipelined_rows` and `softmax_blocks_of_columns` are for CPUs.

constant bool LOGARITHM [[function_constant(0)]];
constant uint TYPE_OUT [[function_constant(1)]];
constant uint TYPE_IN [[function_constant(2)]];
// Number of the other axes (rows), or of those besides the innermost of them (columns).
constant uint KEPT [[function_constant(3)]];
// Strides of input and output along the axis (rows), or along the innermost other axis (columns): 1, or 2 for any other.
constant uint STEP_IN [[function_constant(4)]];
constant uint STEP_OUT [[function_constant(5)]];
// Whether a row has a whole threadgroup.
constant bool WIDE [[function_constant(6)]];
// Number of threads that share a column: 1, or that of the simdgroups of a threadgroup.
constant uint PARTS [[function_constant(7)]];
constant constexpr uint MOST_PARTS = 32;
// Number of elements that a thread keeps in registers, so that memory is read once, or up to which a CPU's thread keeps the exponentials
// in private memory; 0 for none. Without registers memory is read twice.
constant uint HELD [[function_constant(8)]];
constant constexpr uint MOST_HELD = 32;
// Number of threads of a row.
constant uint THREADS [[function_constant(9)]];
// Whether the threads of a row or column hold as many elements as it has.
constant bool WHOLE [[function_constant(10)]];
// Number of elements that a thread loads at once where it keeps none.
constant constexpr uint AT_ONCE = 8;

// Whether exponentials are kept in the output until their sum is known; otherwise they are computed twice.
constant bool KEEPS = !LOGARITHM && TYPE_OUT == F32;

struct SoftmaxSize {
    ulong count, in_step, out_step;
    ulong kept_in_step, kept_out_step;
    ulong rows;
    // Of `softmax_pipelined_rows`: consecutive rows of a simdgroup.
    ulong together;
};

// The larger number. A NaN is left out, and found by the sum of the exponentials.
struct LargerNumber {
    float operator()(float x, float most) const { return x > most ? x : most; }
};

// Combines the values of the threads of a row. `none` is that of no element.
struct RowFold {
    threadgroup float* partial;
    uint simdgroup, simdgroups, lane;

    template <typename F>
    float operator()(float value, F f, float none) const
    {
        value = fold_simd(value, f);
        if (WIDE) {
            threadgroup_barrier(mem_flags::mem_threadgroup);
            partial[simdgroup] = value;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            value = fold_simd(lane < simdgroups ? partial[lane] : none, f);
        }
        return value;
    }
};

// Combines the values of the threads of a column, one in each simdgroup.
struct ColumnFold {
    threadgroup float* partial;
    uint part, lane;

    template <typename F>
    float operator()(float value, F f, float) const
    {
        if (PARTS == 1) {
            return value;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        partial[part * SIMD + lane] = value;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        value = partial[lane];
        for (uint other = 1; other < PARTS; ++other) {
            value = f(value, partial[other * SIMD + lane]);
        }
        return value;
    }
};

// Bytes of an element of a float type.
inline ulong bytes_of(uint type) { return type == F32 ? 4 : 2; }

// e^x times 2^64, for a number that is not positive, or NaN. Up to -105; results that are that far below a sum are 0.
constant constexpr float FAR_BELOW = 0x1p-64f;
inline float exp_scaled(float x)
{
    // The lowest bits of a sum with it are the nearest integer.
    constexpr float rounds = 0x1.8p+23f;
    x = x < -105.0f ? -105.0f : x;
    float shifted = fma(x, 0x1.715476p+0f, rounds), n = shifted - rounds;
    float r = fma(n, 0x1.05c61p-29f, fma(n, -0x1.62e43p-1f, x));
    float p = fma(r, 0x1.6acfeep-10f, 0x1.123f22p-7f);
    p = fma(fma(fma(p, r, 0x1.55584ep-5f), r, 0x1.55548ap-3f), r, 0x1.fffffcp-2f);
    return (1.0f + fma(r * r, p, r)) * as_type<float>((as_type<uint>(shifted) << 23) + (191u << 23));
}

// Elements `first`, `first + threads`, … of `count`, in registers.
template <typename I, typename Fold>
inline void softmax_held(device const uchar* in, device uchar* out, I in_at, I out_at, I in_step, I out_step, I first,
                         I threads, I count, Fold fold)
{
    float x[MOST_HELD], most = -INFINITY, sum = 0.0f;
    // At constant distances from the first.
    device const uchar* from = in + ulong(in_at + first * in_step) * bytes_of(TYPE_IN);
    device uchar* to = out + ulong(out_at + first * out_step) * bytes_of(TYPE_OUT);
#pragma clang loop unroll(full)
    for (uint k = 0; k < HELD; ++k) {
        I i = first + k * threads;
        if (WHOLE || k < HELD / 2) {
            x[k] = load<float>(from, k * threads * in_step, TYPE_IN);
        } else {
            // Loads without a condition are not waited for one by one.
            float value = load<float>(in, in_at + min(i, count - 1) * in_step, TYPE_IN);
            x[k] = i < count ? value : -INFINITY;
        }
    }
    // A NaN is left out, and found by the sum.
#pragma clang loop unroll(full)
    for (uint k = 0; k < HELD; ++k) {
        most = fmax(most, x[k]);
    }
    most = fold(most, LargerNumber(), -INFINITY);
#pragma clang loop unroll(full)
    for (uint k = 0; k < HELD; ++k) {
        float e = exp_scaled(x[k] - most);
        sum += e;
        x[k] = LOGARITHM ? x[k] : e;
    }
    sum = fold(sum, Plus(), 0.0f);
    float by = 1.0f / sum, less = log(sum * FAR_BELOW);
#pragma clang loop unroll(full)
    for (uint k = 0; k < HELD; ++k) {
        I i = first + k * threads;
        if (WHOLE || k < HELD / 2 || i < count) {
            store(to, k * threads * out_step, TYPE_OUT, LOGARITHM ? x[k] - most - less : x[k] * by);
        }
    }
}

// Elements `first`, `first + threads`, …, minus infinity behind the last of `count`. Loads without a condition are not waited for one by one.
template <typename I>
inline void load_at_once(device const uchar* in, I in_at, I in_step, I first, I threads, I count, thread float* x)
{
#pragma clang loop unroll(full)
    for (uint k = 0; k < AT_ONCE; ++k) {
        I i = first + k * threads;
        float value = load<float>(in, in_at + min(i, count - 1) * in_step, TYPE_IN);
        x[k] = i < count ? value : -INFINITY;
    }
}

template <typename I, typename Fold>
inline void softmax(device const uchar* in, device uchar* out, I in_at, I out_at, I in_step, I out_step, I first,
                    I threads, I count, Fold fold)
{
    if (HELD > 0) {
        softmax_held(in, out, in_at, out_at, in_step, out_step, first, threads, count, fold);
        return;
    }
    // The maximum so far, and the sum of exponentials without it; a block of elements at a time, which changes it at most once.
    float most = -INFINITY, sum = 0.0f;
    for (I i = first; i < count; i += AT_ONCE * threads) {
        float x[AT_ONCE], larger = most;
        load_at_once(in, in_at, in_step, i, threads, count, x);
#pragma clang loop unroll(full)
        for (uint k = 0; k < AT_ONCE; ++k) {
            larger = fmax(larger, x[k]);
        }
        // Minus infinity alone adds nothing.
        float from = larger == -INFINITY ? 0.0f : larger;
        sum *= exp(most - from);
        most = larger;
#pragma clang loop unroll(full)
        for (uint k = 0; k < AT_ONCE; ++k) {
            sum += exp_scaled(x[k] - from);
        }
    }
    float own = most;
    most = fold(most, LargerNumber(), -INFINITY);
    sum = fold(sum * exp(own - most), Plus(), 0.0f);
    float by = 1.0f / sum, less = log(sum * FAR_BELOW);
    for (I i = first; i < count; i += AT_ONCE * threads) {
        float x[AT_ONCE];
        load_at_once(in, in_at, in_step, i, threads, count, x);
#pragma clang loop unroll(full)
        for (uint k = 0; k < AT_ONCE; ++k) {
            if (i + k * threads < count) {
                float above = x[k] - most;
                store(out, out_at + (i + k * threads) * out_step, TYPE_OUT, LOGARITHM ? above - less : exp_scaled(above) * by);
            }
        }
    }
}

template <typename I>
[[kernel, max_total_threads_per_threadgroup(1024)]] void softmax_rows(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                             constant Axes<2>& kept [[buffer(2)]], constant SoftmaxSize& size [[buffer(3)]],
                             uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                             uint local [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]],
                             uint simdgroups [[simdgroups_per_threadgroup]])
{
    threadgroup float partial[SIMD];
    uint row = group.x + groups.x * group.z;
    row = WIDE ? row : row * simdgroups + simdgroup;
    if (row >= uint(size.rows)) {
        return;
    }
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(I(row), KEPT, kept, offsets);
    I in_step = stride_of<I>(STEP_IN, size.in_step), out_step = stride_of<I>(STEP_OUT, size.out_step);
    I first = WIDE ? local : lane;
    RowFold fold = {partial, simdgroup, THREADS / SIMD, lane};
    softmax(in, out, offsets[0], offsets[1], in_step, out_step, first, I(THREADS), I(size.count), fold);
}

template <typename I>
[[kernel, max_total_threads_per_threadgroup(1024)]] void softmax_columns(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                                constant Axes<2>& kept [[buffer(2)]], constant SoftmaxSize& size [[buffer(3)]],
                                uint3 at [[thread_position_in_grid]], uint3 local [[thread_position_in_threadgroup]],
                                uint3 grid [[threads_per_grid]])
{
    threadgroup float partial[MOST_PARTS * SIMD];
    I others = PARTS == 1 ? I(at.y) + I(grid.y) * I(at.z) : I(at.z);
    if (others >= I(kept.count)) {
        return;
    }
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(others, KEPT, kept, offsets);
    offsets[0] += I(at.x) * stride_of<I>(STEP_IN, size.kept_in_step);
    offsets[1] += I(at.x) * stride_of<I>(STEP_OUT, size.kept_out_step);
    I first = PARTS == 1 ? 0 : local.y;
    ColumnFold fold = {partial, local.y, local.x};
    softmax(in, out, offsets[0], offsets[1], I(size.in_step), I(size.out_step), first, I(PARTS), I(size.count), fold);
}

// The elements of a row or column.
template <typename I>
struct Line {
    device const uchar* in;
    device uchar* out;
    I in_at, out_at, in_step, out_step;

    float x(I i) const { return load<float>(in, in_at + i * in_step, TYPE_IN); }
    float kept(I i) const { return load<float>(out, out_at + i * out_step, F32); }
    void keep(I i, float value) const { store(out, out_at + i * out_step, F32, value); }
    void set(I i, float value) const { store(out, out_at + i * out_step, TYPE_OUT, value); }
};

// Rows on a CPU, as a software pipeline: a simdgroup has several rows, and while it computes the exponentials of one, it stores the results
// of the one before, and looks for the maximum of the next one. So the processor computes while it waits for memory, which is read and
// written once: a row stays in the caches meanwhile. The exponentials are kept in private memory, those of long rows in the result if it is
// of floats; otherwise they are computed twice.
constant constexpr uint MOST_KEPT = 1024;
// Numbers of which the maximum is found independently.
constant constexpr uint MAXIMA = 4;

template <typename I>
inline float most_of_row(Line<I> line, I count, I lane)
{
    float most[MAXIMA];
#pragma clang loop unroll(full)
    for (uint k = 0; k < MAXIMA; ++k) {
        most[k] = -INFINITY;
    }
    I i = lane;
#pragma clang loop unroll(disable)
    for (I whole = count / (MAXIMA * SIMD); whole > 0; --whole) {
#pragma clang loop unroll(full)
        for (uint k = 0; k < MAXIMA; ++k) {
            most[k] = LargerNumber()(line.x(i + k * SIMD), most[k]);
        }
        i += MAXIMA * SIMD;
    }
#pragma clang loop unroll(disable)
    for (; i < count; i += SIMD) {
        most[0] = LargerNumber()(line.x(i), most[0]);
    }
    float low = LargerNumber()(most[0], most[1]), high = LargerNumber()(most[2], most[3]);
    return fold_simd(LargerNumber()(low, high), LargerNumber());
}

// What the result of an element is computed from: the row's maximum, and the reciprocal or the logarithm of its sum.
struct Scale {
    float most, by, less;
};

// The result of the thread's k-th element, i of the row.
template <typename I>
inline void scale_element(Line<I> line, I i, I k, Scale scale, const thread float* kept)
{
    if (LOGARITHM) {
        line.set(i, line.x(i) - scale.most - scale.less);
    } else if (HELD > 0) {
        line.set(i, kept[k] * scale.by);
    } else {
        line.set(i, (KEEPS ? line.kept(i) : exp(line.x(i) - scale.most)) * scale.by);
    }
}

// The rows in the pipeline, and the sums so far.
template <typename I>
struct Pipeline {
    Line<I> before, now, next;
    bool has_before;
    Scale scale;
    float most, sum, next_most;

    void advance(I i, I k, thread float* kept)
    {
        if (has_before) {
            scale_element(before, i, k, scale, kept);
        }
        float e = exp(now.x(i) - most);
        sum += e;
        if (HELD > 0) {
            kept[k] = e;
        } else if (KEEPS) {
            now.keep(i, e);
        }
        next_most = LargerNumber()(next.x(i), next_most);
    }
};

template <typename I>
inline Line<I> line_of_row(device const uchar* in, device uchar* out, constant Axes<2>& kept, constant SoftmaxSize& size, I row)
{
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(row, KEPT, kept, offsets);
    return {in, out, offsets[0], offsets[1], stride_of<I>(STEP_IN, size.in_step), stride_of<I>(STEP_OUT, size.out_step)};
}

template <typename I>
[[kernel]] void softmax_pipelined_rows(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                                       constant Axes<2>& kept [[buffer(2)]], constant SoftmaxSize& size [[buffer(3)]],
                                       uint3 group [[threadgroup_position_in_grid]],
                                       uint3 groups [[threadgroups_per_grid]], uint index [[thread_index_in_simdgroup]])
{
    ulong first = (group.x + ulong(groups.x) * group.z) * size.together;
    if (first >= size.rows) {
        return;
    }
    uint row = uint(first), last = uint(min(first + size.together, size.rows) - 1);
    I lane = I(index), count = I(size.count), whole = count / SIMD;
    float exponentials[MOST_KEPT];
    Pipeline<I> pipeline;
    pipeline.now = line_of_row(in, out, kept, size, I(row));
    pipeline.before = pipeline.now;
    pipeline.has_before = false;
    pipeline.scale = {0.0f, 1.0f, 0.0f};
    pipeline.most = most_of_row(pipeline.now, count, lane);
    for (;; ++row) {
        // The last row looks at itself once more.
        pipeline.next = line_of_row(in, out, kept, size, I(min(row + 1, last)));
        pipeline.sum = 0.0f;
        pipeline.next_most = -INFINITY;
        I i = lane;
#pragma clang loop unroll(disable)
        for (I k = 0; k < whole; ++k) {
            pipeline.advance(i, k, exponentials);
            i += SIMD;
        }
        if (i < count) {
            pipeline.advance(i, whole, exponentials);
        }
        float sum = fold_simd(pipeline.sum, Plus());
        pipeline.scale = {pipeline.most, 1.0f / sum, log(sum)};
        pipeline.before = pipeline.now;
        pipeline.has_before = true;
        if (row == last) {
            break;
        }
        pipeline.most = fold_simd(pipeline.next_most, LargerNumber());
        pipeline.now = pipeline.next;
    }
    I i = lane;
#pragma clang loop unroll(disable)
    for (I k = 0; k < whole; ++k) {
        scale_element(pipeline.before, i, k, pipeline.scale, exponentials);
        i += SIMD;
    }
    if (i < count) {
        scale_element(pipeline.before, i, whole, pipeline.scale, exponentials);
    }
}

// Columns on a CPU: the threads of a threadgroup have a column each and go through blocks of rows together, so that memory is accessed
// in order. Exponentials are of differences from a number that is less than FAR below all elements so far; a block with a greater one
// is computed again, from its maximum. The first pass keeps exponentials in the result, and the second scales them, the last block
// first, which caches still hold. Those of columns whose number has changed after the first block are computed again.
constant constexpr uint BLOCK = 4;
constant constexpr float FAR = 8.0f;

struct OfBlock {
    float sum, most;
};

// The sum of exponentials of a block's rows without `from`, which are kept, and the block's maximum.
template <typename I>
inline OfBlock exponentials_of_block(Line<I> line, I first, I rows, float from)
{
    OfBlock of = {0.0f, -MAXFLOAT};
#pragma clang loop unroll(disable)
    for (I k = 0; k < rows; ++k) {
        float x = line.x(first + k), e = exp(x - from);
        of.most = x > of.most ? x : of.most;
        of.sum += e;
        if (KEEPS) {
            line.keep(first + k, e);
        }
    }
    return of;
}

template <typename I>
inline void results_of_block(Line<I> line, I first, I rows, float from, float by, float less, bool kept)
{
    if (kept) {
#pragma clang loop unroll(disable)
        for (I k = 0; k < rows; ++k) {
            line.keep(first + k, line.kept(first + k) * by);
        }
    } else {
#pragma clang loop unroll(disable)
        for (I k = 0; k < rows; ++k) {
            float x = line.x(first + k) - from;
            line.set(first + k, LOGARITHM ? x - less : exp(x) * by);
        }
    }
}

template <typename I>
[[kernel]] void softmax_blocks_of_columns(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                                          constant Axes<2>& kept [[buffer(2)]], constant SoftmaxSize& size [[buffer(3)]],
                                          uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]])
{
    I others = I(at.y) + I(grid.y) * I(at.z);
    if (others >= I(kept.count)) {
        return;
    }
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(others, KEPT, kept, offsets);
    Line<I> line = {in, out, offsets[0] + I(at.x) * stride_of<I>(STEP_IN, size.kept_in_step),
                    offsets[1] + I(at.x) * stride_of<I>(STEP_OUT, size.kept_out_step), I(size.in_step), I(size.out_step)};
    I count = I(size.count), blocks = (count + BLOCK - 1) / BLOCK;
    // Finite, so that minus infinity is less, and its exponential 0 in a block of nothing else.
    float from = -MAXFLOAT, sum = 0.0f;
    bool keeps = KEEPS;
    for (I block = 0; block < blocks; ++block) {
        I first = block * BLOCK, rows = min(I(BLOCK), count - first);
        OfBlock of = exponentials_of_block(line, first, rows, from);
        if (of.most > from + FAR) {
            sum *= exp(from - of.most);
            from = of.most;
            keeps = keeps && block == 0;
            of = exponentials_of_block(line, first, rows, from);
        }
        sum += of.sum;
        threadgroup_barrier(mem_flags::mem_none);
    }
    float by = 1.0f / sum, less = log(sum);
    for (I block = blocks; block-- > 0;) {
        I first = block * BLOCK, rows = min(I(BLOCK), count - first);
        results_of_block(line, first, rows, from, by, less, keeps);
        threadgroup_barrier(mem_flags::mem_none);
    }
}

#define SOFTMAX(NAME, KERNEL, I) template [[host_name(NAME)]] [[kernel]] decltype(KERNEL<I>) KERNEL<I>;
SOFTMAX("softmax_rows_32", softmax_rows, uint)
SOFTMAX("softmax_rows_64", softmax_rows, ulong)
SOFTMAX("softmax_columns_32", softmax_columns, uint)
SOFTMAX("softmax_columns_64", softmax_columns, ulong)
SOFTMAX("softmax_pipelined_rows_32", softmax_pipelined_rows, uint)
SOFTMAX("softmax_pipelined_rows_64", softmax_pipelined_rows, ulong)
SOFTMAX("softmax_blocks_of_columns_32", softmax_blocks_of_columns, uint)
SOFTMAX("softmax_blocks_of_columns_64", softmax_blocks_of_columns, ulong)
