// Normalization: y = (x - mean) / √(variance + ε) · scale + bias, with mean and variance over the reduced axes of x.
//
// `normalize` has a simdgroup, a threadgroup or, for columns, a thread for each row of reduced elements, and does everything. For few long
// rows, `statistics` computes mean and squared deviations of parts of rows, `merge` combines them, and `apply` normalizes each element.
// `apply` also normalizes with given statistics.

constant uint TYPE_X [[function_constant(0)]];
constant uint TYPE_Y [[function_constant(1)]];
constant uint TYPE_SCALE [[function_constant(2)]];
constant uint TYPE_BIAS [[function_constant(3)]];
// Numbers of kept axes, besides the innermost for columns, and of reduced axes besides the innermost; `apply`: of all but x.
constant uint KEPT [[function_constant(4)]];
constant uint OUTER [[function_constant(5)]];
// Strides along the innermost axis of x, of y, and of scale and bias: 0, 1, or 2 for any other.
constant uint STEP_X [[function_constant(6)]];
constant uint STEP_Y [[function_constant(7)]];
constant uint STEP_SCALE [[function_constant(8)]];
constant bool WIDE [[function_constant(9)]];
constant bool ALONG_INNER [[function_constant(10)]];
constant bool COLUMNS [[function_constant(11)]];
constant bool CENTER [[function_constant(12)]];
constant bool HAS_SCALE [[function_constant(13)]];
constant bool HAS_BIAS [[function_constant(14)]];
// Whether mean and inverse deviation are saved, and running statistics updated.
constant bool SAVES [[function_constant(15)]];
constant bool RUNS [[function_constant(16)]];
// `apply`: whether the deviation is given as a variance, and whether x counts all elements.
constant bool OF_VARIANCE [[function_constant(17)]];
constant bool FLAT [[function_constant(18)]];
// `apply`: number of elements along x of a thread, a grid's width apart.
constant uint PER_THREAD [[function_constant(19)]];
constant constexpr uint MOST_PER_THREAD = 4;

// Operands.
constant constexpr uint X = 0, Y = 1, SCALE = 2, BIAS = 3, MEAN = 4, DEVIATION = 5, RUNNING_MEAN = 6, RUNNING_VARIANCE = 7, ROW = 8;

struct NormalizeSize {
    ulong inner, outer, inner_parts, outer_parts, rows;
    // Strides along the innermost reduced axis, and along the innermost kept axis.
    ulong inner_steps[4];
    ulong kept_steps[9];
    float epsilon, momentum;
};

struct Statistics {
    device float* mean;
    device float* deviation;
    device float* running_mean;
    device float* running_variance;
};

template <typename I>
inline void save(thread I* offsets, float mean, float squares, float count, float deviation, Statistics to,
                 constant NormalizeSize& size)
{
    if (SAVES) {
        if (CENTER) {
            to.mean[offsets[MEAN]] = mean;
        }
        to.deviation[offsets[DEVIATION]] = deviation;
    }
    if (RUNS) {
        // The variance of the population that the elements are a sample of.
        float unbiased = squares / (count - 1.0f);
        device float* running = to.running_mean + offsets[RUNNING_MEAN];
        *running = (1.0f - size.momentum) * *running + size.momentum * mean;
        running = to.running_variance + offsets[RUNNING_VARIANCE];
        *running = (1.0f - size.momentum) * *running + size.momentum * unbiased;
    }
}

inline float inverse_deviation(float variance, float epsilon) { return 1.0f / sqrt(variance + epsilon); }

inline float normalized(float x, float mean, float deviation, float scale, float bias)
{
    return fma((x - mean) * deviation, scale, bias);
}

// The place of a thread: its row, and its number among the threads of the row.
struct Place {
    uint row, first, threads;
};

inline Place place(uint3 group, uint3 groups, uint local, uint lane, uint simdgroup, uint simdgroups)
{
    uint row = group.x + groups.x * group.z;
    Place at = {row, local, simdgroups * SIMD};
    if (!WIDE) {
        at = {row * simdgroups + simdgroup, lane, SIMD};
    }
    return at;
}

template <typename I>
[[kernel]] void normalize(device const uchar* x [[buffer(0)]], device const uchar* scale [[buffer(1)]],
                          device const uchar* bias [[buffer(2)]], device uchar* y [[buffer(3)]],
                          device float* mean_out [[buffer(4)]], device float* deviation_out [[buffer(5)]],
                          device float* running_mean [[buffer(6)]], device float* running_variance [[buffer(7)]],
                          constant Axes<9>& kept [[buffer(8)]], constant Axes<4>& reduced [[buffer(9)]],
                          constant NormalizeSize& size [[buffer(10)]],
                          uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                          uint3 at [[thread_position_in_grid]], uint local [[thread_index_in_threadgroup]],
                          uint lane [[thread_index_in_simdgroup]],
                          uint simdgroup [[simdgroup_index_in_threadgroup]],
                          uint simdgroups [[simdgroups_per_threadgroup]])
{
    threadgroup float partial[SIMD];
    Place of = place(group, groups, local, lane, simdgroup, simdgroups);
    if (!COLUMNS && of.row >= uint(size.rows)) {
        return;
    }
    I kept_at[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    add_offsets<I, 9>(COLUMNS ? I(at.y) : I(of.row), KEPT, kept, kept_at);
    I step_x = stride_of<I>(STEP_X, size.inner_steps[X]), step_y = stride_of<I>(STEP_Y, size.inner_steps[Y]);
    I step_scale = stride_of<I>(STEP_SCALE, size.inner_steps[SCALE]);
    I step_bias = stride_of<I>(STEP_SCALE, size.inner_steps[BIAS]);
    if (COLUMNS) {
        kept_at[X] += I(at.x) * stride_of<I>(STEP_X, size.kept_steps[X]);
        kept_at[Y] += I(at.x) * stride_of<I>(STEP_Y, size.kept_steps[Y]);
        kept_at[SCALE] += I(at.x) * stride_of<I>(STEP_SCALE, size.kept_steps[SCALE]);
        kept_at[BIAS] += I(at.x) * stride_of<I>(STEP_SCALE, size.kept_steps[BIAS]);
        for (uint n = MEAN; n <= ROW; ++n) {
            kept_at[n] += I(at.x) * I(size.kept_steps[n]);
        }
        step_x = I(size.inner_steps[X]);
        step_y = I(size.inner_steps[Y]);
        step_scale = I(size.inner_steps[SCALE]);
        step_bias = I(size.inner_steps[BIAS]);
        of = {0, 0, 1};
    }
    Walk<I> by = walk<I>(I(size.inner), I(size.outer), 1, 1, 0, of.first, of.threads, ALONG_INNER);
    float count = float(size.inner) * float(size.outer), mean = 0.0f, squares = 0.0f;
    if (CENTER) {
        float sum = 0.0f;
        for (I o = by.outer_begin; o < by.outer_end; o += by.outer_step) {
            I offsets[4] = {kept_at[X], 0, 0, 0};
            add_offsets<I, 4>(o, OUTER, reduced, offsets);
            for (I i = by.inner_begin; i < by.inner_end; i += by.inner_step) {
                sum += load<float>(x, offsets[X] + i * step_x, TYPE_X);
            }
        }
        if (!COLUMNS) {
            sum = WIDE ? fold_group(sum, Plus(), partial, simdgroup, simdgroups, lane) : fold_simd(sum, Plus());
        }
        mean = sum / count;
    }
    for (I o = by.outer_begin; o < by.outer_end; o += by.outer_step) {
        I offsets[4] = {kept_at[X], 0, 0, 0};
        add_offsets<I, 4>(o, OUTER, reduced, offsets);
        for (I i = by.inner_begin; i < by.inner_end; i += by.inner_step) {
            float from_mean = load<float>(x, offsets[X] + i * step_x, TYPE_X) - mean;
            squares = fma(from_mean, from_mean, squares);
        }
    }
    if (!COLUMNS) {
        squares = WIDE ? fold_group(squares, Plus(), partial, simdgroup, simdgroups, lane) : fold_simd(squares, Plus());
    }
    float deviation = inverse_deviation(squares / count, size.epsilon);
    for (I o = by.outer_begin; o < by.outer_end; o += by.outer_step) {
        I offsets[4] = {kept_at[X], kept_at[Y], kept_at[SCALE], kept_at[BIAS]};
        add_offsets<I, 4>(o, OUTER, reduced, offsets);
        for (I i = by.inner_begin; i < by.inner_end; i += by.inner_step) {
            float a = HAS_SCALE ? load<float>(scale, offsets[SCALE] + i * step_scale, TYPE_SCALE) : 1.0f;
            float b = HAS_BIAS ? load<float>(bias, offsets[BIAS] + i * step_bias, TYPE_BIAS) : 0.0f;
            float value = load<float>(x, offsets[X] + i * step_x, TYPE_X);
            store(y, offsets[Y] + i * step_y, TYPE_Y, normalized(value, mean, deviation, a, b));
        }
    }
    if (of.first == 0) {
        Statistics to = {mean_out, deviation_out, running_mean, running_variance};
        save(kept_at, mean, squares, count, deviation, to, size);
    }
}

// The number of some elements, their mean, and the sum of their squared deviations from it.
typedef float3 Moments;

// Those of all elements of two sets (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979).
struct Merge {
    Moments operator()(Moments a, Moments b) const
    {
        float count = a.x + b.x, share = b.x / max(count, 1.0f), difference = b.y - a.y;
        return Moments(count, a.y + difference * share, a.z + b.z + difference * difference * (a.x * share));
    }
};

// Elements that a thread holds in registers, to read them once.
constant constexpr uint TILE = 8;

// Mean and squared deviations of a part of a row, at its number.
template <typename I>
[[kernel]] void statistics(device const uchar* x [[buffer(0)]], device float2* out [[buffer(1)]],
                           constant Axes<9>& kept [[buffer(2)]], constant Axes<4>& reduced [[buffer(3)]],
                           constant NormalizeSize& size [[buffer(4)]],
                           uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                           uint3 at [[thread_position_in_grid]], uint local [[thread_index_in_threadgroup]],
                           uint lane [[thread_index_in_simdgroup]],
                           uint simdgroup [[simdgroup_index_in_threadgroup]],
                           uint simdgroups [[simdgroups_per_threadgroup]])
{
    threadgroup Moments partial[SIMD];
    Place of = place(group, groups, local, lane, simdgroup, simdgroups);
    if (!COLUMNS && of.row >= uint(size.rows)) {
        return;
    }
    I kept_at[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    add_offsets<I, 9>(COLUMNS ? I(at.y) : I(of.row), KEPT, kept, kept_at);
    I step_x = stride_of<I>(STEP_X, size.inner_steps[X]);
    uint part = group.y;
    if (COLUMNS) {
        kept_at[X] += I(at.x) * stride_of<I>(STEP_X, size.kept_steps[X]);
        kept_at[ROW] += I(at.x) * I(size.kept_steps[ROW]);
        step_x = I(size.inner_steps[X]);
        of = {0, 0, 1};
        part = at.z;
    }
    I inner_parts = I(size.inner_parts), outer_parts = I(size.outer_parts);
    Walk<I> by = walk<I>(I(size.inner), I(size.outer), inner_parts, outer_parts, part, of.first, of.threads, ALONG_INNER);
    Moments all = 0.0f;
    for (I o = by.outer_begin; o < by.outer_end; o += by.outer_step) {
        I offsets[4] = {kept_at[X], 0, 0, 0};
        add_offsets<I, 4>(o, OUTER, reduced, offsets);
        for (I i = by.inner_begin; i < by.inner_end; i += TILE * by.inner_step) {
            float values[TILE], sum = 0.0f, count = 0.0f;
            for (uint k = 0; k < TILE; ++k) {
                I at_k = i + k * by.inner_step;
                bool is_there = at_k < by.inner_end;
                values[k] = is_there ? load<float>(x, offsets[X] + at_k * step_x, TYPE_X) : 0.0f;
                sum += values[k];
                count += is_there ? 1.0f : 0.0f;
            }
            float mean = CENTER ? sum / count : 0.0f, squares = 0.0f;
            for (uint k = 0; k < TILE; ++k) {
                float from_mean = i + k * by.inner_step < by.inner_end ? values[k] - mean : 0.0f;
                squares = fma(from_mean, from_mean, squares);
            }
            all = Merge()(all, Moments(count, mean, squares));
        }
    }
    if (!COLUMNS) {
        all = WIDE ? fold_group(all, Merge(), partial, simdgroup, simdgroups, lane) : fold_simd(all, Merge());
    }
    if (of.first == 0) {
        out[kept_at[ROW] * inner_parts * outer_parts + part] = float2(all.y, all.z);
    }
}

// Number of elements of a part.
inline float part_count(ulong part, constant NormalizeSize& size)
{
    Walk<ulong> by = walk<ulong>(size.inner, size.outer, size.inner_parts, size.outer_parts, part, 0, 1, true);
    ulong inner = by.inner_begin < by.inner_end ? by.inner_end - by.inner_begin : 0;
    ulong outer = by.outer_begin < by.outer_end ? by.outer_end - by.outer_begin : 0;
    return float(inner) * float(outer);
}

// Mean and inverse deviation of each row, from those of its parts.
template <typename I>
[[kernel]] void merge(device const float2* parts [[buffer(0)]], device float* mean_row [[buffer(1)]],
                      device float* deviation_row [[buffer(2)]], device float* mean_out [[buffer(3)]],
                      device float* deviation_out [[buffer(4)]], device float* running_mean [[buffer(5)]],
                      device float* running_variance [[buffer(6)]], constant Axes<9>& kept [[buffer(7)]],
                      constant NormalizeSize& size [[buffer(8)]], uint2 at [[thread_position_in_grid]],
                      uint2 grid [[threads_per_grid]])
{
    I index = I(at.x) + I(grid.x) * I(at.y);
    if (index >= I(size.rows)) {
        return;
    }
    I offsets[9] = {0, 0, 0, 0, 0, 0, 0, 0, 0};
    add_offsets<I, 9>(index, KEPT, kept, offsets);
    I row = offsets[ROW], count_of_parts = I(size.inner_parts) * I(size.outer_parts);
    Moments all = 0.0f;
    for (I part = 0; part < count_of_parts; ++part) {
        float2 other = parts[row * count_of_parts + part];
        all = Merge()(all, Moments(part_count(part, size), other));
    }
    float count = all.x, mean = all.y, squares = all.z;
    float deviation = inverse_deviation(squares / count, size.epsilon);
    mean_row[row] = mean;
    deviation_row[row] = deviation;
    Statistics to = {mean_out, deviation_out, running_mean, running_variance};
    save(offsets, mean, squares, count, deviation, to, size);
}

// Operands of `apply`: those above up to the deviation.
struct ApplySize {
    ulong width;
    ulong steps[6];
    float epsilon;
};

template <typename I>
[[kernel]] void apply(device const uchar* x [[buffer(0)]], device const uchar* scale [[buffer(1)]],
                      device const uchar* bias [[buffer(2)]], device uchar* y [[buffer(3)]],
                      device const float* mean [[buffer(4)]], device const float* deviation [[buffer(5)]],
                      constant Axes<6>& axes [[buffer(6)]], constant ApplySize& size [[buffer(7)]],
                      uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]])
{
    I row = I(at.y) + I(grid.y) * I(at.z);
    I index = FLAT ? I(at.x) + I(grid.x) * row : row;
    if (index >= I(axes.count)) {
        return;
    }
    I offsets[6] = {0, 0, 0, 0, 0, 0};
    add_offsets<I, 6>(index, KEPT, axes, offsets);
    I steps[6] = {stride_of<I>(STEP_X, size.steps[X]), stride_of<I>(STEP_Y, size.steps[Y])};
    for (uint n = SCALE; n <= DEVIATION; ++n) {
        steps[n] = stride_of<I>(STEP_SCALE, size.steps[n]);
    }
    float values[MOST_PER_THREAD];
#pragma clang loop unroll(full)
    for (uint k = 0; k < PER_THREAD; ++k) {
        I column = FLAT ? 0 : I(at.x) + k * I(grid.x);
        // Loads without a condition are not waited for one by one.
        column = PER_THREAD == 1 || column < I(size.width) ? column : I(at.x);
        values[k] = load<float>(x, offsets[X] + column * steps[X], TYPE_X);
    }
#pragma clang loop unroll(full)
    for (uint k = 0; k < PER_THREAD; ++k) {
        I column = FLAT ? 0 : I(at.x) + k * I(grid.x);
        if (PER_THREAD == 1 || column < I(size.width)) {
            float a = HAS_SCALE ? load<float>(scale, offsets[SCALE] + column * steps[SCALE], TYPE_SCALE) : 1.0f;
            float b = HAS_BIAS ? load<float>(bias, offsets[BIAS] + column * steps[BIAS], TYPE_BIAS) : 0.0f;
            float by = deviation[offsets[DEVIATION] + column * steps[DEVIATION]];
            by = OF_VARIANCE ? inverse_deviation(by, size.epsilon) : by;
            float from = CENTER ? mean[offsets[MEAN] + column * steps[MEAN]] : 0.0f;
            store(y, offsets[Y] + column * steps[Y], TYPE_Y, normalized(values[k], from, by, a, b));
        }
    }
}

#define NORMALIZE(NAME, KERNEL, I) template [[host_name(NAME)]] [[kernel]] decltype(KERNEL<I>) KERNEL<I>;
NORMALIZE("normalize_32", normalize, uint)
NORMALIZE("normalize_64", normalize, ulong)
NORMALIZE("normalize_statistics_32", statistics, uint)
NORMALIZE("normalize_statistics_64", statistics, ulong)
NORMALIZE("normalize_merge_32", merge, uint)
NORMALIZE("normalize_merge_64", merge, ulong)
NORMALIZE("normalize_apply_32", apply, uint)
NORMALIZE("normalize_apply_64", apply, ulong)
