// Elements of any type, indices of strided tensors, and sums over simdgroups and threadgroups. Precedes every other file of this folder.
//
// Element types, operations and shapes that decide between loops are function constants, so that each pipeline has one of each.
// Indices are in elements; kernels are instantiated for `uint` and, for tensors of 2^31 elements and more, for `ulong`.

#include <metal_stdlib>
using namespace metal;

// Element types: `DataType::code`.
constant constexpr uint F32 = 0;
constant constexpr uint F16 = 1;
constant constexpr uint BF16 = 2;
constant constexpr uint I32 = 3;
constant constexpr uint I8 = 4;
constant constexpr uint U8 = 5;

// Threads of a simdgroup.
constant constexpr uint SIMD = 32;

// An element as a float or as an int.
template <typename C, typename I>
inline C load(device const uchar* memory, I index, uint type)
{
    switch (type) {
    case F32: return C(((device const float*)memory)[index]);
    case F16: return C(((device const half*)memory)[index]);
    case BF16: return C(float(((device const bfloat*)memory)[index]));
    case I32: return C(((device const int*)memory)[index]);
    case I8: return C(((device const char*)memory)[index]);
    default: return C(memory[index]);
    }
}

// A float as an integer of a range: truncated, saturated; 0 for NaN.
inline int saturate_to(float x, float low, float high, int most)
{
    return isnan(x) ? 0 : x <= low ? int(low) : x >= high ? most : int(x);
}

template <typename I>
inline void store(device uchar* memory, I index, uint type, float x)
{
    switch (type) {
    case F32: ((device float*)memory)[index] = x; break;
    case F16: ((device half*)memory)[index] = half(x); break;
    case BF16: ((device bfloat*)memory)[index] = bfloat(x); break;
    case I32: ((device int*)memory)[index] = saturate_to(x, -2147483648.0f, 2147483648.0f, 2147483647); break;
    case I8: ((device char*)memory)[index] = char(saturate_to(x, -128.0f, 127.0f, 127)); break;
    default: memory[index] = uchar(saturate_to(x, 0.0f, 255.0f, 255)); break;
    }
}

template <typename I>
inline void store(device uchar* memory, I index, uint type, int x)
{
    switch (type) {
    case F32: ((device float*)memory)[index] = float(x); break;
    case F16: ((device half*)memory)[index] = half(float(x)); break;
    case BF16: ((device bfloat*)memory)[index] = bfloat(float(x)); break;
    case I32: ((device int*)memory)[index] = x; break;
    case I8: ((device char*)memory)[index] = char(x); break;
    default: memory[index] = uchar(x); break;
    }
}

// Axes of N operands, the outermost first: sizes, and each operand's strides.
constant constexpr uint MAX_AXES = 8;
template <uint N>
struct Axes {
    ulong count;
    ulong sizes[MAX_AXES];
    ulong strides[N][MAX_AXES];
};

// Adds the offsets of a row-major index over the first `axes` axes.
template <typename I, uint N>
inline void add_offsets(I index, uint axes, constant Axes<N>& of, thread I* offsets)
{
    for (uint axis = axes; axis-- > 0;) {
        I size = I(of.sizes[axis]);
        I at = axis == 0 ? index : index % size;
        index = axis == 0 ? 0 : index / size;
        for (uint n = 0; n < N; ++n) {
            offsets[n] += at * I(of.strides[n][axis]);
        }
    }
}

// The indices of two nested loops, over the innermost axis and over the others, that are one thread's in one of the parts that they are
// divided into. Threads step through one of the loops.
template <typename I>
struct Walk {
    I outer_begin, outer_end, outer_step;
    I inner_begin, inner_end, inner_step;
};

template <typename I>
inline Walk<I> walk(I inner, I outer, I inner_parts, I outer_parts, I part, I first, I threads, bool along_inner)
{
    I inner_chunk = (inner + inner_parts - 1) / inner_parts, outer_chunk = (outer + outer_parts - 1) / outer_parts;
    I inner_begin = inner_chunk * (part % inner_parts), outer_begin = outer_chunk * (part / inner_parts);
    Walk<I> walk;
    walk.inner_end = min(inner, inner_begin + inner_chunk);
    walk.outer_end = min(outer, outer_begin + outer_chunk);
    walk.inner_begin = inner_begin + (along_inner ? first : 0);
    walk.outer_begin = outer_begin + (along_inner ? 0 : first);
    walk.inner_step = along_inner ? threads : 1;
    walk.outer_step = along_inner ? 1 : threads;
    return walk;
}

// The stride of a class, which is 0, 1, or 2 for any other.
template <typename I>
inline I stride_of(uint kind, ulong stride) { return kind == 2 ? I(stride) : I(kind); }

// A sum over the threads of a simdgroup, or of a threadgroup of whole simdgroups, which all of them get.
template <typename C, typename F>
inline C fold_simd(C value, F fold)
{
    for (ushort step = SIMD / 2; step > 0; step /= 2) {
        value = fold(value, C(simd_shuffle_xor(value, step)));
    }
    return value;
}

template <typename C, typename F>
inline C fold_group(C value, F fold, threadgroup C* partial, uint simdgroup, uint simdgroups, uint lane)
{
    value = fold_simd(value, fold);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lane == 0) {
        partial[simdgroup] = value;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    C all = partial[0];
    for (uint i = 1; i < simdgroups; ++i) {
        all = fold(all, partial[i]);
    }
    return all;
}

struct Plus {
    template <typename C>
    C operator()(C a, C b) const { return a + b; }
};

// The larger number, or NaN if one is.
struct Larger {
    template <typename C>
    C operator()(C a, C b) const { return a > b || a != a ? a : b; }
};

struct Smaller {
    template <typename C>
    C operator()(C a, C b) const { return a < b || a != a ? a : b; }
};

struct Times {
    template <typename C>
    C operator()(C a, C b) const { return a * b; }
};

// The error function, within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
inline float error_function(float x)
{
    float t = 1.0f / (1.0f + 0.3275911f * abs(x));
    float p = t * (0.254829592f + t * (-0.284496736f + t * (1.421413741f + t * (-1.453152027f + t * 1.061405429f))));
    float y = 1.0f - p * exp(-x * x);
    return isnan(x) ? x : x < 0.0f ? -y : y;
}

// 1 / (1 + e^-x), without an overflow.
inline float logistic(float x)
{
    float e = exp(-abs(x));
    return x < 0.0f ? e / (1.0f + e) : 1.0f / (1.0f + e);
}

// Activations: `Activation::code`.
inline float activate(float x, uint activation)
{
    switch (activation) {
    case 1: return x > 0.0f || isnan(x) ? x : 0.0f;
    case 2: return 0.5f * x * (1.0f + error_function(x * M_SQRT1_2_F));
    case 3: {
        float inner = 0.7978845608f * (x + 0.044715f * x * x * x);
        return x * logistic(2.0f * inner);
    }
    case 4: return x * logistic(x);
    case 5: return logistic(x);
    case 6: return tanh(x);
    default: return x;
    }
}
