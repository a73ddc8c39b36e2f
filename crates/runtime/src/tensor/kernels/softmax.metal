// Softmax along one axis, with the maximum subtracted, so that no exponential overflows.
//
// `softmax_rows` has a simdgroup or a threadgroup for each row along the axis; `softmax_columns` has a thread, or one in each simdgroup of a
// threadgroup, for tensors that are contiguous along another axis.

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
constant constexpr uint MOST_PARTS = 16;

// Whether exponentials are kept in the output until their sum is known; otherwise they are computed twice.
constant bool KEEPS = !LOGARITHM && TYPE_OUT == F32;

struct SoftmaxSize {
    ulong count, in_step, out_step;
    ulong kept_in_step, kept_out_step;
    ulong rows;
};

inline float softmax(float x, float most, float sum)
{
    return LOGARITHM ? x - most - log(sum) : exp(x - most) / sum;
}

template <typename I>
[[kernel]] void softmax_rows(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
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
    I count = I(size.count), first = WIDE ? local : lane, threads = WIDE ? simdgroups * SIMD : SIMD;
    float most = -INFINITY;
    for (I i = first; i < count; i += threads) {
        most = Larger()(most, load<float>(in, offsets[0] + i * in_step, TYPE_IN));
    }
    most = WIDE ? fold_group(most, Larger(), partial, simdgroup, simdgroups, lane) : fold_simd(most, Larger());
    float sum = 0.0f;
    for (I i = first; i < count; i += threads) {
        float e = exp(load<float>(in, offsets[0] + i * in_step, TYPE_IN) - most);
        sum += e;
        if (KEEPS) {
            store(out, offsets[1] + i * out_step, F32, e);
        }
    }
    sum = WIDE ? fold_group(sum, Plus(), partial, simdgroup, simdgroups, lane) : fold_simd(sum, Plus());
    for (I i = first; i < count; i += threads) {
        if (KEEPS) {
            store(out, offsets[1] + i * out_step, F32, load<float>(out, offsets[1] + i * out_step, F32) / sum);
        } else {
            float x = load<float>(in, offsets[0] + i * in_step, TYPE_IN);
            store(out, offsets[1] + i * out_step, TYPE_OUT, softmax(x, most, sum));
        }
    }
}

// The parts of a column, one for each simdgroup, combined.
template <typename F>
inline float fold_parts(float value, F f, threadgroup float* partial, uint part, uint lane)
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

template <typename I>
[[kernel]] void softmax_columns(device const uchar* in [[buffer(0)]], device uchar* out [[buffer(1)]],
                                constant Axes<2>& kept [[buffer(2)]], constant SoftmaxSize& size [[buffer(3)]],
                                uint3 at [[thread_position_in_grid]], uint3 local [[thread_position_in_threadgroup]])
{
    threadgroup float partial[MOST_PARTS * SIMD];
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(I(PARTS == 1 ? at.y : at.z), KEPT, kept, offsets);
    offsets[0] += I(at.x) * stride_of<I>(STEP_IN, size.kept_in_step);
    offsets[1] += I(at.x) * stride_of<I>(STEP_OUT, size.kept_out_step);
    I in_step = I(size.in_step), out_step = I(size.out_step), count = I(size.count);
    uint part = PARTS == 1 ? 0 : local.y, lane = local.x;
    float most = -INFINITY;
    for (I i = part; i < count; i += PARTS) {
        most = Larger()(most, load<float>(in, offsets[0] + i * in_step, TYPE_IN));
    }
    most = fold_parts(most, Larger(), partial, part, lane);
    float sum = 0.0f;
    for (I i = part; i < count; i += PARTS) {
        float e = exp(load<float>(in, offsets[0] + i * in_step, TYPE_IN) - most);
        sum += e;
        if (KEEPS) {
            store(out, offsets[1] + i * out_step, F32, e);
        }
    }
    sum = fold_parts(sum, Plus(), partial, part, lane);
    for (I i = part; i < count; i += PARTS) {
        if (KEEPS) {
            store(out, offsets[1] + i * out_step, F32, load<float>(out, offsets[1] + i * out_step, F32) / sum);
        } else {
            float x = load<float>(in, offsets[0] + i * in_step, TYPE_IN);
            store(out, offsets[1] + i * out_step, TYPE_OUT, softmax(x, most, sum));
        }
    }
}

#define SOFTMAX(NAME, KERNEL, I) template [[host_name(NAME)]] [[kernel]] decltype(KERNEL<I>) KERNEL<I>;
SOFTMAX("softmax_rows_32", softmax_rows, uint)
SOFTMAX("softmax_rows_64", softmax_rows, ulong)
SOFTMAX("softmax_columns_32", softmax_columns, uint)
SOFTMAX("softmax_columns_64", softmax_columns, ulong)
