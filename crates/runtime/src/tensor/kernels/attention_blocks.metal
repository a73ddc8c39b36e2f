// Attention by blocks of queries and keys. Follows attention.metal, whose function constants and arguments these kernels have.
//
// A threadgroup has a block of queries of a head and goes over blocks of keys. Keys and values pass through threadgroup memory; the words
// of the next ones are on their way from device memory to registers while a block is multiplied. Scores, weights and sums stay in
// registers. Weights are powers of two: the scores' factor includes log2(e).
//
// `attend_matrices` multiplies simdgroup matrices of 16-bit elements; weights are rounded to the type of the values. `attend_registers`
// multiplies floats.

// Whether rows of the operand are whole words of 16 bytes.
constant bool WORDS_Q [[function_constant(9)]];
constant bool WORDS_K [[function_constant(10)]];
constant bool WORDS_V [[function_constant(11)]];
// Stride along the elements of the result: 1, or 2 for any other.
constant uint STEP_OUT [[function_constant(12)]];

// An operand's rows of a head, from which a thread copies words of a column.
template <typename T>
struct Rows {
    device const T* from;
    ulong stride, step;
    // Elements of a row from the thread's column on.
    uint width;
};

// Copies this thread's words of a block to registers, and goes on to the next block; zeros outside of the operand. The first word is of
// row `own` of `count`, the next ones APART rows on.
template <typename T, uint COUNT, uint APART>
inline void fetch(thread uint4 (&words)[COUNT], thread Rows<T>& rows, bool in_words, uint own, uint count)
{
    constexpr uint WORD = 16 / sizeof(T);
    int rest = rows.width > 0 ? int(count) - int(own) : 0;
#pragma unroll
    for (int i = 0; i < int(COUNT); ++i) {
        bool inside = i * int(APART) < rest;
        if (in_words) {
            words[i] = inside ? *(device const uint4*)rows.from : uint4(0);
        } else {
            thread T* elements = (thread T*)&words[i];
#pragma unroll
            for (uint e = 0; e < WORD; ++e) {
                elements[e] = inside && e < rows.width ? rows.from[e * rows.step] : T(0);
            }
        }
        rows.from += APART * rows.stride;
    }
}

// Keys that count for a query: all before this one.
inline uint keys_of(uint query, constant AttentionSize& size)
{
    return CAUSAL ? uint(min(ulong(size.keys), ulong(query) + size.before + 1)) : size.keys;
}

// A score with its mask; minus infinity if the key does not count.
inline float masked(float score, float factor, device const uchar* mask, ulong from, uint key, bool counts,
                    constant AttentionSize& size)
{
    if (MASK != 0) {
        float m = load<float>(mask, from + ulong(counts ? key : 0) * size.mask.element, TYPE_MASK);
        score = MASK == 1 ? fma(score, factor, m * M_LOG2E_F) : score;
        counts = counts && (MASK == 1 || m != 0.0f);
    }
    return counts ? score : -INFINITY;
}

// 2^x for x up to 0, with a relative error of 2^-18.4, or 2^-23.1 if it is `exact`; 0 below -127.
template <bool EXACT>
inline float power_of_two(float x)
{
#ifdef __ELINVAR__
#pragma METAL fp math_mode(safe)
    // The library's function is exact to an ulp, subnormal powers included, which takes twice as many instructions.
    x = x < -127.0f ? -127.0f : x;
    // The low bits of the sum are the nearest integer and 127, the bias of exponents.
    constexpr float SHIFT = 0x1.8p+23f + 127.0f;
    float shifted = x + SHIFT, f = x - (shifted - SHIFT), p;
    if (EXACT) {
        p = fma(f, 0x1.5bba14p-10f, 0x1.3cea88p-7f);
        p = fma(f, p, 0x1.c6b752p-5f);
        p = fma(f, p, 0x1.ebf9bcp-3f);
        p = fma(f, p, 0x1.62e42ap-1f);
    } else {
        p = fma(f, 0x1.3a02ccp-7f, 0x1.c9fc46p-5f);
        p = fma(f, p, 0x1.ec0378p-3f);
        p = fma(f, p, 0x1.62e12cp-1f);
    }
    return fma(f, p, 1.0f) * as_type<float>(as_type<uint>(shifted) << 23);
#else
    return exp2(x);
#endif
}

// The weight of a score: 2^(score * factor - base). In safe math, in which it stays one operation.
template <bool EXACT>
inline float weight_of(float score, float factor, float base)
{
#pragma METAL fp math_mode(safe)
    return power_of_two<EXACT>(fma(score, factor, -base));
}

// The reciprocal of a sum of weights, and 0 of 0; in safe math, in which products with it do not become divisions.
inline float reciprocal(float sum)
{
#pragma METAL fp math_mode(safe)
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}

// The sign of the scores, by which queries are multiplied, and their factor, which is positive.
inline float sign_of(float scale) { return scale > 0.0f ? 1.0f : scale < 0.0f ? -1.0f : 0.0f; }
inline float factor_of(float scale) { return scale == 0.0f ? 1.0f : abs(scale) * M_LOG2E_F; }

// Adds products of two columns of `left`, from `deep` on, and `parts`, by depth and column, to two columns of sums, from `wide` on.
template <typename T, uint ROWS, uint WIDE, uint DEEP>
inline void multiply(thread simdgroup_float8x8 (&sums)[ROWS][WIDE], uint wide,
                     thread const simdgroup_matrix<T, 8, 8> (&left)[ROWS][DEEP], uint deep,
                     thread const simdgroup_matrix<T, 8, 8> (&parts)[2][2])
{
#pragma unroll
    for (uint w = 0; w < 2; ++w) {
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
            for (uint d = 0; d < 2; ++d) {
                thread simdgroup_float8x8& sum = sums[i][wide + w];
                simdgroup_multiply_accumulate(sum, left[i][deep + d], parts[d][w], sum);
            }
        }
    }
}

// A simdgroup has 8 * ROWS queries. The words of the next keys are loaded behind the scores, or before them, which takes registers (EARLY).
template <typename T, uint WIDTH, uint KEYS, uint GROUPS, uint ROWS, bool EARLY>
[[kernel]] void attend_matrices(device const T* q [[buffer(0)]], device const T* k [[buffer(1)]],
                                device const T* v [[buffer(2)]], device const uchar* mask [[buffer(3)]],
                                device uchar* out [[buffer(4)]], constant AttentionSize& size [[buffer(5)]],
                                uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                                uint local [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
                                uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    constexpr uint THREADS = GROUPS * SIMD, WORD = 16 / sizeof(T), STRIDE = WIDTH + WORD;
    constexpr uint ACROSS = WIDTH / WORD, APART = THREADS / ACROSS, COUNT = KEYS / APART;
    constexpr uint DEEP = WIDTH / 8, WIDE = KEYS / 8;
    // A padding of 16 bytes avoids bank conflicts.
    constexpr uint QUERIES = GROUPS * ROWS * 8, COUNT_Q = QUERIES / APART;
    static_assert(QUERIES <= 2 * KEYS, "the queries pass through the memory of keys and values");
    threadgroup uint4 memory[2 * KEYS * STRIDE / WORD];
    threadgroup T* key_tile = (threadgroup T*)memory;
    threadgroup T* value_tile = key_tile + KEYS * STRIDE;
    // Each thread has two neighbors in a row of a simdgroup matrix.
    uint row = lane / 16 * 4 + lane / 2 % 4, column = lane / 8 % 2 * 4 + lane % 2 * 2;
    uint head = group.y, batch = group.z, key_head = head / size.shared;
    // The last blocks see the most keys.
    uint block = CAUSAL ? groups.x - 1 - group.x : group.x;
    uint top = block * (GROUPS * ROWS * 8), first = top + simdgroup * ROWS * 8;
    uint end = keys_of(min(top + GROUPS * ROWS * 8, size.queries) - 1, size);

    uint own = local / ACROSS, own_column = local % ACROSS * WORD, at = own * STRIDE + own_column;
    Rows<T> keys, values;
    keys.stride = size.k.position;
    keys.step = stride_of<ulong>(STEP_K, size.k.element);
    keys.width = size.width - min(own_column, size.width);
    keys.from = k + batch * size.k.batch + key_head * size.k.head + own * keys.stride + own_column * keys.step;
    values.stride = size.v.position;
    values.step = stride_of<ulong>(STEP_V, size.v.element);
    values.width = size.value_width - min(own_column, size.value_width);
    values.from = v + batch * size.v.batch + key_head * size.v.head + own * values.stride + own_column * values.step;

    float sign = sign_of(size.scale), factor = factor_of(size.scale);
    {
        Rows<T> rows;
        rows.stride = size.q.position;
        rows.step = WORDS_Q ? 1 : size.q.element;
        rows.width = size.width - min(own_column, size.width);
        rows.from = q + batch * size.q.batch + head * size.q.head + (top + own) * rows.stride + own_column * rows.step;
        uint4 words[COUNT_Q];
        fetch<T, COUNT_Q, APART>(words, rows, WORDS_Q, own, size.queries - top);
#pragma unroll
        for (uint i = 0; i < COUNT_Q; ++i) {
            thread T* elements = (thread T*)&words[i];
#pragma unroll
            for (uint e = 0; e < WORD; ++e) {
                elements[e] *= T(sign);
            }
            *(threadgroup uint4*)(key_tile + at + i * APART * STRIDE) = words[i];
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    simdgroup_matrix<T, 8, 8> queries[ROWS][DEEP];
    simdgroup_float8x8 sums[ROWS][DEEP];
    float most[ROWS], total[ROWS];
    uint limit[ROWS];
    ulong mask_from[ROWS];
#pragma unroll
    for (uint i = 0; i < ROWS; ++i) {
        uint query = min(first + i * 8 + row, size.queries - 1);
        limit[i] = keys_of(query, size);
        mask_from[i] = batch * size.mask.batch + head * size.mask.head + ulong(query) * size.mask.position;
        most[i] = -INFINITY;
        total[i] = 0.0f;
#pragma unroll
        for (uint d = 0; d < DEEP; ++d) {
            sums[i][d] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            simdgroup_load(queries[i][d], key_tile + (simdgroup * ROWS + i) * 8 * STRIDE + d * 8, STRIDE);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Masked scores have their factor already.
    float later = MASK == 1 ? 1.0f : factor;

    uint4 words_k[COUNT], words_v[COUNT];
    fetch<T, COUNT, APART>(words_k, keys, WORDS_K, own, end);
    uint start = 0;
    // There are keys: a test for none would make a branch of the loads before lead into the loop.
    do {
#pragma unroll
        for (uint i = 0; i < COUNT; ++i) {
            *(threadgroup uint4*)(key_tile + at + i * APART * STRIDE) = words_k[i];
        }
        fetch<T, COUNT, APART>(words_v, values, WORDS_V, own, end - start);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (EARLY) {
            fetch<T, COUNT, APART>(words_k, keys, WORDS_K, own, end - min(end, start + KEYS));
        }

        simdgroup_float8x8 scores[ROWS][WIDE];
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                scores[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
            }
        }
#pragma unroll
        for (uint d = 0; d < DEEP; d += 2) {
#pragma unroll
            for (uint j = 0; j < WIDE; j += 2) {
                simdgroup_matrix<T, 8, 8> parts[2][2];
#pragma unroll
                for (uint n = 0; n < 4; ++n) {
                    threadgroup T* from = key_tile + (j + n / 2) * 8 * STRIDE + (d + n % 2) * 8;
                    simdgroup_load(parts[n % 2][n / 2], from, STRIDE, ulong2(0), true);
                }
                multiply<T, ROWS, WIDE, DEEP>(scores, j, queries, d, parts);
            }
        }
        // The simdgroup's first query has the fewest keys.
        if (MASK != 0 || start + KEYS > keys_of(first, size)) {
#pragma unroll
            for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
                for (uint j = 0; j < WIDE; ++j) {
#pragma unroll
                    for (uint e = 0; e < 2; ++e) {
                        bool counts = int(j * 8 + e) < int(limit[i]) - int(start + column);
                        thread float& score = scores[i][j].thread_elements()[e];
                        score = masked(score, factor, mask, mask_from[i], start + column + j * 8 + e, counts, size);
                    }
                }
            }
        }
        float rest[ROWS];
        bool is_changed = false;
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
            float next = most[i];
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                next = max(next, max(scores[i][j].thread_elements()[0], scores[i][j].thread_elements()[1]));
            }
            next = max(next, simd_shuffle_xor(next, 1));
            next = max(next, simd_shuffle_xor(next, 8));
            // While no key counts, all weights are 0.
            float base = next == -INFINITY ? 0.0f : next * later;
            rest[i] = weight_of<false>(most[i], later, base);
            is_changed = is_changed || rest[i] != 1.0f;
            most[i] = next;
            float sum = 0.0f;
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
#pragma unroll
                for (uint e = 0; e < 2; ++e) {
                    float weight = weight_of<false>(scores[i][j].thread_elements()[e], later, base);
                    scores[i][j].thread_elements()[e] = weight;
                    sum += weight;
                }
            }
            total[i] = fma(total[i], rest[i], sum);
        }
        // After the first blocks, the maxima seldom change.
        if (simd_or(uint(is_changed)) != 0) {
#pragma unroll
            for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
                for (uint d = 0; d < DEEP; ++d) {
                    sums[i][d].thread_elements() *= rest[i];
                }
            }
        }
#pragma unroll
        for (uint i = 0; i < COUNT; ++i) {
            *(threadgroup uint4*)(value_tile + at + i * APART * STRIDE) = words_v[i];
        }
        if (!EARLY && start + KEYS < end) {
            fetch<T, COUNT, APART>(words_k, keys, WORDS_K, own, end - start - KEYS);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_matrix<T, 8, 8> weights[ROWS][WIDE];
#pragma unroll
        for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                weights[i][j].thread_elements() = vec<T, 2>(scores[i][j].thread_elements());
            }
        }
#pragma unroll
        for (uint j = 0; j < WIDE; j += 2) {
#pragma unroll
            for (uint d = 0; d < DEEP; d += 2) {
                simdgroup_matrix<T, 8, 8> parts[2][2];
#pragma unroll
                for (uint n = 0; n < 4; ++n) {
                    threadgroup T* from = value_tile + (j + n % 2) * 8 * STRIDE + (d + n / 2) * 8;
                    simdgroup_load(parts[n % 2][n / 2], from, STRIDE);
                }
                multiply<T, ROWS, DEEP, WIDE>(sums, d, weights, j, parts);
            }
        }
        start += KEYS;
    } while (start < end);
    uint count = size.queries, width = size.value_width;
    ulong step = stride_of<ulong>(STEP_OUT, size.out.element);
#pragma unroll
    for (uint i = 0; i < ROWS; ++i) {
        uint query = first + i * 8 + row;
        float all = total[i] + simd_shuffle_xor(total[i], 1);
        all += simd_shuffle_xor(all, 8);
        float inverse = reciprocal(all);
        ulong to = batch * size.out.batch + head * size.out.head + ulong(query) * size.out.position;
#pragma unroll
        for (uint d = 0; d < DEEP; ++d) {
#pragma unroll
            for (uint e = 0; e < 2; ++e) {
                uint element = d * 8 + column + e;
                if (query < count && element < width) {
                    store(out, to + element * step, TYPE_OUT, sums[i][d].thread_elements()[e] * inverse);
                }
            }
        }
    }
}

// Sixteen by eight threads: each has EACH queries, sixteen apart, and every eighth key.
template <uint WIDTH, uint KEYS, uint PART, uint EACH>
[[kernel]] void attend_registers(device const float* q [[buffer(0)]], device const float* k [[buffer(1)]],
                                 device const float* v [[buffer(2)]], device const uchar* mask [[buffer(3)]],
                                 device uchar* out [[buffer(4)]], constant AttentionSize& size [[buffer(5)]],
                                 uint3 group [[threadgroup_position_in_grid]], uint3 groups [[threadgroups_per_grid]],
                                 uint local [[thread_index_in_threadgroup]])
{
    constexpr uint THREADS = 128, WORD = 4, STRIDE = WIDTH + WORD, HIGH = 16, ACROSS = 8;
    constexpr uint WORDS = WIDTH / WORD, APART = THREADS / WORDS, COUNT = KEYS / APART;
    constexpr uint WIDE = KEYS / ACROSS, FOURS = WIDTH / (4 * ACROSS), PARTS = KEYS / PART, LINE = PART + 4;
    threadgroup float4 tile[KEYS * STRIDE / 4];
    threadgroup float4 weights[HIGH * EACH * LINE / 4];
    uint x = local % ACROSS, y = local / ACROSS;
    uint head = group.y, batch = group.z, key_head = head / size.shared;
    // The last blocks see the most keys.
    uint block = CAUSAL ? groups.x - 1 - group.x : group.x;
    uint top = block * (HIGH * EACH);
    uint end = keys_of(min(top + HIGH * EACH, size.queries) - 1, size);

    uint own = local / WORDS, own_column = local % WORDS * WORD, at = (own * STRIDE + own_column) / 4;
    Rows<float> keys, values;
    keys.stride = size.k.position;
    keys.step = stride_of<ulong>(STEP_K, size.k.element);
    keys.width = size.width - min(own_column, size.width);
    keys.from = k + batch * size.k.batch + key_head * size.k.head + own * keys.stride + own_column * keys.step;
    values.stride = size.v.position;
    values.step = stride_of<ulong>(STEP_V, size.v.element);
    values.width = size.value_width - min(own_column, size.value_width);
    values.from = v + batch * size.v.batch + key_head * size.v.head + own * values.stride + own_column * values.step;

    device const float* from_q[EACH];
    float most[EACH], total[EACH];
    float4 sums[EACH][FOURS];
    float sign = sign_of(size.scale), factor = factor_of(size.scale);
#pragma unroll
    for (uint i = 0; i < EACH; ++i) {
        uint query = min(top + i * HIGH + y, size.queries - 1);
        from_q[i] = q + batch * size.q.batch + head * size.q.head + ulong(query) * size.q.position;
        most[i] = -INFINITY;
        total[i] = 0.0f;
#pragma unroll
        for (uint f = 0; f < FOURS; ++f) {
            sums[i][f] = float4(0.0f);
        }
    }
    float later = MASK == 1 ? 1.0f : factor;

    uint4 words[COUNT];
    fetch<float, COUNT, APART>(words, keys, WORDS_K, own, end);
    uint start = 0;
    // There are keys: a test for none would make a branch of the loads before lead into the loop.
    do {
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint i = 0; i < COUNT; ++i) {
            tile[at + i * APART * STRIDE / 4] = as_type<float4>(words[i]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        fetch<float, COUNT, APART>(words, values, WORDS_V, own, end - start);

        float scores[EACH][WIDE];
#pragma unroll
        for (uint i = 0; i < EACH; ++i) {
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                scores[i][j] = 0.0f;
            }
        }
        for (uint d = 0; d < size.width; d += 4) {
            float4 queries[EACH];
#pragma unroll
            for (uint i = 0; i < EACH; ++i) {
                if (WORDS_Q) {
                    queries[i] = *(device const float4*)(from_q[i] + d);
                } else {
#pragma unroll
                    for (uint e = 0; e < 4; ++e) {
                        bool inside = d + e < size.width;
                        float value = from_q[i][ulong(inside ? d + e : 0) * size.q.element];
                        queries[i][e] = inside ? value : 0.0f;
                    }
                }
            }
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                float4 factors = tile[(j * ACROSS + x) * (STRIDE / 4) + d / 4];
#pragma unroll
                for (uint e = 0; e < 4; ++e) {
#pragma unroll
                    for (uint i = 0; i < EACH; ++i) {
                        scores[i][j] = fma(queries[i][e], factors[e], scores[i][j]);
                    }
                }
            }
        }
        bool is_whole = MASK == 0 && start + KEYS <= keys_of(top, size);
#pragma unroll
        for (uint i = 0; i < EACH; ++i) {
            uint query = min(top + i * HIGH + y, size.queries - 1);
            if (!is_whole) {
                uint limit = keys_of(query, size);
                ulong from = batch * size.mask.batch + head * size.mask.head + ulong(query) * size.mask.position;
#pragma unroll
                for (uint j = 0; j < WIDE; ++j) {
                    bool counts = int(j * ACROSS) < int(limit) - int(start + x);
                    uint key = start + x + j * ACROSS;
                    scores[i][j] = masked(scores[i][j] * sign, factor, mask, from, key, counts, size);
                }
            } else {
#pragma unroll
                for (uint j = 0; j < WIDE; ++j) {
                    scores[i][j] *= sign;
                }
            }
            float next = most[i];
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                next = max(next, scores[i][j]);
            }
#pragma unroll
            for (ushort bit = 1; bit < ACROSS; bit *= 2) {
                next = max(next, simd_shuffle_xor(next, bit));
            }
            // While no key counts, all weights are 0.
            float base = next == -INFINITY ? 0.0f : next * later;
            float rest = weight_of<true>(most[i], later, base), sum = 0.0f;
            most[i] = next;
#pragma unroll
            for (uint j = 0; j < WIDE; ++j) {
                scores[i][j] = weight_of<true>(scores[i][j], later, base);
                sum += scores[i][j];
            }
            total[i] = fma(total[i], rest, sum);
#pragma unroll
            for (uint f = 0; f < FOURS; ++f) {
                sums[i][f] *= rest;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (uint i = 0; i < COUNT; ++i) {
            tile[at + i * APART * STRIDE / 4] = as_type<float4>(words[i]);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (start + KEYS < end) {
            fetch<float, COUNT, APART>(words, keys, WORDS_K, own, end - start - KEYS);
        }
#pragma unroll
        for (uint part = 0; part < PARTS; ++part) {
            // A simdgroup uses the weights of its own queries only.
            simdgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
            for (uint i = 0; i < EACH; ++i) {
#pragma unroll
                for (uint j = 0; j < PART / ACROSS; ++j) {
                    ((threadgroup float*)weights)[(i * HIGH + y) * LINE + j * ACROSS + x] = scores[i][part * (PART / ACROSS) + j];
                }
            }
            simdgroup_barrier(mem_flags::mem_threadgroup);
            for (uint key = 0; key < PART; key += 4) {
                float4 own_weights[EACH];
#pragma unroll
                for (uint i = 0; i < EACH; ++i) {
                    own_weights[i] = weights[((i * HIGH + y) * LINE + key) / 4];
                }
#pragma unroll
                for (uint e = 0; e < 4; ++e) {
#pragma unroll
                    for (uint f = 0; f < FOURS; ++f) {
                        float4 factors = tile[(part * PART + key + e) * (STRIDE / 4) + f * ACROSS + x];
#pragma unroll
                        for (uint i = 0; i < EACH; ++i) {
                            sums[i][f] = fma(float4(own_weights[i][e]), factors, sums[i][f]);
                        }
                    }
                }
            }
        }
        start += KEYS;
    } while (start < end);
    uint count = size.queries, width = size.value_width;
    ulong step = stride_of<ulong>(STEP_OUT, size.out.element);
#pragma unroll
    for (uint i = 0; i < EACH; ++i) {
        uint query = top + i * HIGH + y;
        float all = total[i];
#pragma unroll
        for (ushort bit = 1; bit < ACROSS; bit *= 2) {
            all += simd_shuffle_xor(all, bit);
        }
        float inverse = reciprocal(all);
        ulong to = batch * size.out.batch + head * size.out.head + ulong(query) * size.out.position;
#pragma unroll
        for (uint f = 0; f < FOURS; ++f) {
#pragma unroll
            for (uint e = 0; e < 4; ++e) {
                uint element = (f * ACROSS + x) * 4 + e;
                if (query < count && element < width) {
                    store(out, to + element * step, TYPE_OUT, sums[i][f][e] * inverse);
                }
            }
        }
    }
}

ATTEND("attend_f16_64", attend_matrices<half, 64, 64, 4, 4, false>)
ATTEND("attend_f16_96", attend_matrices<half, 96, 64, 6, 2, false>)
ATTEND("attend_f16_128", attend_matrices<half, 128, 32, 4, 2, true>)
ATTEND("attend_bf16_64", attend_matrices<bfloat, 64, 64, 4, 4, false>)
ATTEND("attend_bf16_96", attend_matrices<bfloat, 96, 64, 6, 2, false>)
ATTEND("attend_bf16_128", attend_matrices<bfloat, 128, 32, 4, 2, true>)
ATTEND("attend_f32_64", attend_registers<64, 64, 32, 4>)
ATTEND("attend_f32_128", attend_registers<128, 32, 32, 4>)
