// Scaled dot-product attention with a running softmax: no matrix of scores is stored.
//
// A simdgroup has ROWS queries of a head. It goes over the keys, 32 at a time, one for each thread, and keeps for each query the maximum of
// the scores, the sum of their exponentials, and the weighted sum of values, of which each thread has every 32nd element.

constant uint TYPE_Q [[function_constant(0)]];
constant uint TYPE_K [[function_constant(1)]];
constant uint TYPE_V [[function_constant(2)]];
constant uint TYPE_OUT [[function_constant(3)]];
constant uint TYPE_MASK [[function_constant(4)]];
// 0 none, 1 added to the scores, 2 whether a key counts.
constant uint MASK [[function_constant(5)]];
constant bool CAUSAL [[function_constant(6)]];
// Strides along the elements of a key, and of a value and the result: 1, or 2 for any other.
constant uint STEP_K [[function_constant(7)]];
constant uint STEP_V [[function_constant(8)]];

// Strides of batch, head, position and element.
struct Strides {
    ulong batch, head, position, element;
};

struct AttentionSize {
    Strides q, k, v, out, mask;
    // Queries, keys, elements of a key and of a value; heads, and heads that share a key.
    uint queries, keys, width, value_width, heads, shared;
    // Blocks of elements of a value.
    uint blocks;
    // Number of keys before that of the first query.
    uint before;
    float scale;
};

// Simdgroups of a threadgroup.
constant constexpr uint SIMDGROUPS = 4;
// Elements of the keys that are in threadgroup memory at a time.
constant constexpr uint WIDTH = 64;

template <uint ROWS, uint COLUMNS>
[[kernel]] void attend(device const uchar* q [[buffer(0)]], device const uchar* k [[buffer(1)]],
                       device const uchar* v [[buffer(2)]], device const uchar* mask [[buffer(3)]],
                       device uchar* out [[buffer(4)]], constant AttentionSize& size [[buffer(5)]],
                       uint3 group [[threadgroup_position_in_grid]], uint local [[thread_index_in_threadgroup]],
                       uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    threadgroup float key_tile[WIDTH][SIMD + 1];
    threadgroup float weights[SIMDGROUPS][ROWS][SIMD];
    uint head = group.y, batch = group.z / size.blocks, block = group.z % size.blocks;
    uint key_head = head / size.shared;
    uint first = (group.x * SIMDGROUPS + simdgroup) * ROWS;
    ulong from_k = batch * size.k.batch + key_head * size.k.head, from_v = batch * size.v.batch + key_head * size.v.head;
    ulong step_k = stride_of<ulong>(STEP_K, size.k.element), step_v = stride_of<ulong>(STEP_V, size.v.element);
    uint left = block * COLUMNS * SIMD;

    ulong from_q[ROWS];
    float most[ROWS], sum[ROWS], values[ROWS][COLUMNS];
    for (uint r = 0; r < ROWS; ++r) {
        from_q[r] = batch * size.q.batch + head * size.q.head + ulong(min(first + r, size.queries - 1)) * size.q.position;
        most[r] = -INFINITY;
        sum[r] = 0.0f;
        for (uint c = 0; c < COLUMNS; ++c) {
            values[r][c] = 0.0f;
        }
    }
    // The threadgroup's last query sees the most keys.
    uint last = min((group.x + 1) * SIMDGROUPS * ROWS, size.queries) - 1;
    uint end = CAUSAL ? uint(min(ulong(size.keys), ulong(last) + size.before + 1)) : size.keys;
    for (uint start = 0; start < end; start += SIMD) {
        uint key = start + lane;
        float scores[ROWS];
        for (uint r = 0; r < ROWS; ++r) {
            scores[r] = 0.0f;
        }
        for (uint e = 0; e < size.width; e += WIDTH) {
            uint width = min(WIDTH, size.width - e);
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint i = local; i < SIMD * WIDTH; i += SIMDGROUPS * SIMD) {
                uint element = i % WIDTH, of = i / WIDTH;
                bool inside = element < width && start + of < size.keys;
                ulong place = from_k + ulong(inside ? start + of : 0) * size.k.position + ulong(inside ? e + element : 0) * step_k;
                key_tile[element][of] = inside ? load<float>(k, place, TYPE_K) : 0.0f;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint element = 0; element < width; ++element) {
                float factor = key_tile[element][lane];
                for (uint r = 0; r < ROWS; ++r) {
                    float query = load<float>(q, from_q[r] + ulong(e + element) * size.q.element, TYPE_Q);
                    scores[r] = fma(query, factor, scores[r]);
                }
            }
        }
        for (uint r = 0; r < ROWS; ++r) {
            uint query = min(first + r, size.queries - 1);
            float score = scores[r] * size.scale;
            bool counts = key < size.keys && (!CAUSAL || ulong(key) <= ulong(query) + size.before);
            if (MASK != 0) {
                ulong place = batch * size.mask.batch + head * size.mask.head + query * size.mask.position +
                              ulong(min(key, size.keys - 1)) * size.mask.element;
                float m = load<float>(mask, place, TYPE_MASK);
                score += MASK == 1 ? m : 0.0f;
                counts = counts && (MASK == 1 || m != 0.0f);
            }
            score = counts ? score : -INFINITY;
            float next = max(most[r], simd_max(score));
            // While no key counts, all weights are 0.
            float base = next == -INFINITY ? 0.0f : next;
            float weight = exp(score - base), rest = exp(most[r] - base);
            sum[r] = sum[r] * rest + simd_sum(weight);
            most[r] = next;
            weights[simdgroup][r][lane] = weight;
            for (uint c = 0; c < COLUMNS; ++c) {
                values[r][c] *= rest;
            }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
        uint count = min(SIMD, end - start);
        for (uint j = 0; j < count; ++j) {
            for (uint c = 0; c < COLUMNS; ++c) {
                uint column = min(left + c * SIMD + lane, size.value_width - 1);
                // The last elements are read by a thread for each; those beyond again, and not stored.
                ulong line = from_v + ulong(start + j) * size.v.position;
                bool whole = left + (c + 1) * SIMD <= size.value_width;
                ulong place = whole ? line + ulong(left + c * SIMD + lane) * step_v : line + column * step_v;
                float value = load<float>(v, place, TYPE_V);
                for (uint r = 0; r < ROWS; ++r) {
                    values[r][c] = fma(weights[simdgroup][r][j], value, values[r][c]);
                }
            }
        }
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint r = 0; r < ROWS; ++r) {
        for (uint c = 0; c < COLUMNS; ++c) {
            uint column = left + c * SIMD + lane;
            if (first + r < size.queries && column < size.value_width) {
                ulong place = batch * size.out.batch + head * size.out.head + ulong(first + r) * size.out.position +
                              column * size.out.element;
                store(out, place, TYPE_OUT, sum[r] == 0.0f ? 0.0f : values[r][c] / sum[r]);
            }
        }
    }
}

#define ATTEND(NAME, ...) template [[host_name(NAME)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
ATTEND("attend_1_1", attend<1, 1>)
ATTEND("attend_1_2", attend<1, 2>)
ATTEND("attend_1_4", attend<1, 4>)
ATTEND("attend_4_1", attend<4, 1>)
ATTEND("attend_4_2", attend<4, 2>)
ATTEND("attend_4_4", attend<4, 4>)
