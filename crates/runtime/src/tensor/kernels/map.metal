// Element-wise maps of up to three operands, with broadcasting, casts and strided copies.

constant uint OPERATION [[function_constant(0)]];
// Element types of the result and the operands.
constant uint TYPE_OUT [[function_constant(1)]];
constant uint TYPE_A [[function_constant(2)]];
constant uint TYPE_B [[function_constant(3)]];
constant uint TYPE_C [[function_constant(4)]];
// Strides along x: 0, 1, or 2 for any other.
constant uint STEP_OUT [[function_constant(5)]];
constant uint STEP_A [[function_constant(6)]];
constant uint STEP_B [[function_constant(7)]];
constant uint STEP_C [[function_constant(8)]];
// Axes besides x.
constant uint AXES [[function_constant(9)]];
// Whether x counts all elements, and the axes describe all of them.
constant bool FLAT [[function_constant(10)]];
constant uint OPERANDS [[function_constant(11)]];
// Number of elements along x of a thread, a grid's width apart.
constant uint PER_THREAD [[function_constant(12)]];
constant constexpr uint MOST_PER_THREAD = 4;

struct Steps {
    ulong width;
    ulong out, a, b, c;
};

template <typename C>
struct Operations;

// Numbers: `Unary`, `Binary` and `Ternary` of map.rs.
template <>
struct Operations<float> {
    static float apply(float a, float b, float c)
    {
        switch (OPERATION) {
        case 0: return a;
        case 1: return -a;
        case 2: return abs(a);
        case 3: return exp(a);
        case 4: return log(a);
        case 5: return sqrt(a);
        case 6: return rsqrt(a);
        case 7: return sin(a);
        case 8: return cos(a);
        case 9: return floor(a);
        case 10: return ceil(a);
        case 11: return rint(a);
        case 12: return 1.0f / a;
        case 13: return a * a;
        case 14: return error_function(a);
        case 21: return activate(a, 1);
        case 22: return activate(a, 2);
        case 23: return activate(a, 3);
        case 24: return activate(a, 4);
        case 25: return activate(a, 5);
        case 26: return activate(a, 6);
        case 40: return a + b;
        case 41: return a - b;
        case 42: return a * b;
        case 43: return a / b;
        case 44: return Smaller()(a, b);
        case 45: return Larger()(a, b);
        case 46: return pow(a, b);
        case 47: return a == b ? 1.0f : 0.0f;
        case 48: return a != b ? 1.0f : 0.0f;
        case 49: return a < b ? 1.0f : 0.0f;
        case 50: return a <= b ? 1.0f : 0.0f;
        case 51: return a > b ? 1.0f : 0.0f;
        case 52: return a >= b ? 1.0f : 0.0f;
        case 60: return a != 0.0f ? b : c;
        case 61: return fma(a, b, c);
        default: return a;
        }
    }
};

// Integers wrap. A division truncates, and is 0 by 0.
template <>
struct Operations<int> {
    static int apply(int a, int b, int c)
    {
        switch (OPERATION) {
        case 0: return a;
        case 1: return int(-uint(a));
        case 2: return a < 0 ? int(-uint(a)) : a;
        case 13: return int(uint(a) * uint(a));
        case 21: return a > 0 ? a : 0;
        case 40: return int(uint(a) + uint(b));
        case 41: return int(uint(a) - uint(b));
        case 42: return int(uint(a) * uint(b));
        case 43: return b == 0 ? 0 : b == -1 ? int(-uint(a)) : a / b;
        case 44: return min(a, b);
        case 45: return max(a, b);
        case 47: return a == b;
        case 48: return a != b;
        case 49: return a < b;
        case 50: return a <= b;
        case 51: return a > b;
        case 52: return a >= b;
        case 60: return a != 0 ? b : c;
        case 61: return int(uint(a) * uint(b) + uint(c));
        default: return a;
        }
    }
};

template <typename C, typename I>
[[kernel]] void map(device const uchar* a [[buffer(0)]], device const uchar* b [[buffer(1)]],
                device const uchar* c [[buffer(2)]], device uchar* out [[buffer(3)]],
                constant Axes<4>& axes [[buffer(4)]], constant Steps& steps [[buffer(5)]],
                uint3 at [[thread_position_in_grid]], uint3 grid [[threads_per_grid]])
{
    I row = I(at.y) + I(grid.y) * I(at.z);
    I index = FLAT ? I(at.x) + I(grid.x) * row : row;
    if (index >= I(axes.count)) {
        return;
    }
    I offsets[4] = {0, 0, 0, 0};
    add_offsets<I, 4>(index, AXES, axes, offsets);
    I steps_of[4] = {stride_of<I>(STEP_OUT, steps.out), stride_of<I>(STEP_A, steps.a), stride_of<I>(STEP_B, steps.b),
                     stride_of<I>(STEP_C, steps.c)};
    C first[MOST_PER_THREAD], second[MOST_PER_THREAD], third[MOST_PER_THREAD];
#pragma clang loop unroll(full)
    for (uint k = 0; k < PER_THREAD; ++k) {
        I x = FLAT ? 0 : I(at.x) + k * I(grid.x);
        // Loads without a condition are not waited for one by one.
        x = PER_THREAD == 1 || x < I(steps.width) ? x : I(at.x);
        first[k] = load<C>(a, offsets[1] + x * steps_of[1], TYPE_A);
        second[k] = OPERANDS > 1 ? load<C>(b, offsets[2] + x * steps_of[2], TYPE_B) : C(0);
        third[k] = OPERANDS > 2 ? load<C>(c, offsets[3] + x * steps_of[3], TYPE_C) : C(0);
    }
#pragma clang loop unroll(full)
    for (uint k = 0; k < PER_THREAD; ++k) {
        I x = FLAT ? 0 : I(at.x) + k * I(grid.x);
        if (PER_THREAD == 1 || x < I(steps.width)) {
            store(out, offsets[0] + x * steps_of[0], TYPE_OUT, Operations<C>::apply(first[k], second[k], third[k]));
        }
    }
}

#define MAP(NAME, C, I) template [[host_name(NAME)]] [[kernel]] decltype(map<C, I>) map<C, I>;
MAP("map_float_32", float, uint)
MAP("map_float_64", float, ulong)
MAP("map_int_32", int, uint)
MAP("map_int_64", int, ulong)

// A copy to another order of axes, through a tile of threadgroup memory: along x the target is contiguous, along y the source.
constant constexpr uint TILE = 32;
constant constexpr uint TILE_ROWS = 8;

struct Transposition {
    ulong columns, rows, source_step, target_step;
};

template <typename I>
[[kernel]] void transpose(device const uchar* source [[buffer(0)]], device uchar* target [[buffer(1)]],
                      constant Axes<2>& axes [[buffer(2)]], constant Transposition& size [[buffer(3)]],
                      uint3 group [[threadgroup_position_in_grid]], uint3 at [[thread_position_in_threadgroup]])
{
    threadgroup float tile[TILE][TILE + 1];
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(group.z, AXES, axes, offsets);
    I left = I(group.x) * TILE, top = I(group.y) * TILE;
    for (uint i = at.y; i < TILE; i += TILE_ROWS) {
        I column = left + i, row = top + at.x;
        if (column < I(size.columns) && row < I(size.rows)) {
            tile[i][at.x] = load<float>(source, offsets[0] + column * I(size.source_step) + row, TYPE_A);
        }
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = at.y; i < TILE; i += TILE_ROWS) {
        I column = left + at.x, row = top + i;
        if (column < I(size.columns) && row < I(size.rows)) {
            store(target, offsets[1] + row * I(size.target_step) + column, TYPE_OUT, tile[at.x][i]);
        }
    }
}

#define TRANSPOSE(NAME, I) template [[host_name(NAME)]] [[kernel]] decltype(transpose<I>) transpose<I>;
TRANSPOSE("transpose_32", uint)
TRANSPOSE("transpose_64", ulong)

// The same on a CPU: a tile of 16 × 16 elements is transposed in the registers of 16 threads by exchanges between lanes, and
// loads and stores are contiguous. A threadgroup has 16 × 16 threads and the tiles of 16 columns, and of 256 rows.
constant constexpr uint SIDE = 16;
// Threadgroups along x: those of a block of rows, whose pages of the target are at most as many as the processor has
// translations for. Blocks of rows, for each matrix, are along z.
struct Blocks {
    uint per_matrix;
};

// Exchanges the lowest bits of the lane's index and those of the element's: after a step, x[k] of lane l is x[l] of lane k in
// the bits so far.
template <typename T>
inline void transpose_lanes(thread T* x, uint lane)
{
#pragma clang loop unroll(full)
    for (ushort step = 1; step < SIDE; step *= 2) {
        bool upper = lane & step;
#pragma clang loop unroll(full)
        for (ushort k = 0; k < SIDE; ++k) {
            if ((k & step) == 0) {
                T got = simd_shuffle_xor(upper ? x[k] : x[k | step], step);
                x[k | step] = upper ? x[k | step] : got;
                x[k] = upper ? got : x[k];
            }
        }
    }
}

// Elements of one type are copied as `T`, its bits; else they are converted.
template <typename T, typename I>
inline T element(device const uchar* memory, I index)
{
    return TYPE_A == TYPE_OUT ? ((device const T*)memory)[index] : T(load<float>(memory, index, TYPE_A));
}

template <typename T, typename I>
inline void set_element(device uchar* memory, I index, T value)
{
    if (TYPE_A == TYPE_OUT) {
        ((device T*)memory)[index] = value;
    } else {
        store(memory, index, TYPE_OUT, float(value));
    }
}

template <typename T, typename I>
inline void transpose_tile(device const uchar* source, device uchar* target, I source_at, I target_at, I source_step,
                           I target_step, I columns, I rows, uint lane)
{
    if (columns >= SIDE && rows >= SIDE) {
        T x[SIDE];
#pragma clang loop unroll(full)
        for (uint k = 0; k < SIDE; ++k) {
            x[k] = element<T>(source, source_at + k * source_step + lane);
        }
        transpose_lanes(x, lane);
#pragma clang loop unroll(full)
        for (uint k = 0; k < SIDE; ++k) {
            set_element(target, target_at + k * target_step + lane, x[k]);
        }
    } else if (lane < rows) {
        for (I k = 0; k < min(columns, I(SIDE)); ++k) {
            T x = element<T>(source, source_at + k * source_step + lane);
            set_element(target, target_at + lane * target_step + k, x);
        }
    }
}

template <typename I>
[[kernel]] void transpose_in_registers(device const uchar* source [[buffer(0)]], device uchar* target [[buffer(1)]],
                      constant Axes<2>& axes [[buffer(2)]], constant Transposition& size [[buffer(3)]],
                      constant Blocks& blocks [[buffer(4)]], uint3 group [[threadgroup_position_in_grid]],
                      uint3 groups [[threadgroups_per_grid]], uint3 at [[thread_position_in_threadgroup]])
{
    I columns = I(size.columns), rows = I(size.rows);
    I left = I(group.y) * SIDE, top = (I(group.z % blocks.per_matrix) * groups.x + group.x) * SIDE * SIDE + at.y * SIDE;
    if (top >= rows) {
        return;
    }
    I offsets[2] = {0, 0};
    add_offsets<I, 2>(group.z / blocks.per_matrix, AXES, axes, offsets);
    I source_step = I(size.source_step), target_step = I(size.target_step);
    I source_at = offsets[0] + left * source_step + top, target_at = offsets[1] + top * target_step + left;
    columns -= left;
    rows -= top;
    if (TYPE_A != TYPE_OUT) {
        transpose_tile<float>(source, target, source_at, target_at, source_step, target_step, columns, rows, at.x);
    } else if (TYPE_A == F32 || TYPE_A == I32) {
        transpose_tile<uint>(source, target, source_at, target_at, source_step, target_step, columns, rows, at.x);
    } else if (TYPE_A == F16 || TYPE_A == BF16) {
        transpose_tile<ushort>(source, target, source_at, target_at, source_step, target_step, columns, rows, at.x);
    } else {
        transpose_tile<uchar>(source, target, source_at, target_at, source_step, target_step, columns, rows, at.x);
    }
}

#define TRANSPOSE_IN_REGISTERS(NAME, I) \
    template [[host_name(NAME)]] [[kernel]] decltype(transpose_in_registers<I>) transpose_in_registers<I>;
TRANSPOSE_IN_REGISTERS("transpose_in_registers_32", uint)
TRANSPOSE_IN_REGISTERS("transpose_in_registers_64", ulong)
