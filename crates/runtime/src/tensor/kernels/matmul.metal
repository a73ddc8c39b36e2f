// Matrix products: result = activation(alpha · a · b + beta · result + bias), of matrices with any strides.
//
// `matmul_columns` has a thread for each column and some rows of the result, and reads device memory directly: every thread of a simdgroup
// reads the same elements of `a`. `matmul_dots` has a simdgroup for some rows and one column, whose threads step through the terms.
// `matmul_tiles` has a threadgroup for a tile of the result, and multiplies simdgroup matrices from threadgroup memory. So does
// `matmul_blocks`, for aligned operands; its tiles are larger and fetched ahead. `matmul_registers` is its form for `float`.

constant uint TYPE_OUT [[function_constant(0)]];
constant uint TYPE_BIAS [[function_constant(1)]];
constant uint ACTIVATION [[function_constant(2)]];
constant bool HAS_BIAS [[function_constant(3)]];
constant bool HAS_BETA [[function_constant(4)]];
// Axes of the batch.
constant uint BATCH [[function_constant(5)]];
// Strides: of `a` along the terms, of `b` along the terms, of `b` along the columns; 1, or 2 for any other.
constant uint A_TERM [[function_constant(6)]];
constant uint B_TERM [[function_constant(7)]];
constant uint B_COLUMN [[function_constant(8)]];
// Stride of the result along the columns: 1, or 2 for any other.
constant uint OUT_COLUMN [[function_constant(9)]];

struct Product {
    ulong rows, columns, terms;
    ulong a_row, a_term;
    ulong b_term, b_column;
    // Stride of groups of 32 columns of `b`.
    ulong b_panel;
    ulong out_row, out_column;
    ulong bias_row, bias_column;
    float alpha, beta;
};

// The operands of a batch.
constant constexpr uint A = 0, B = 1, OUT = 2, BIAS = 3;

inline void write_out(device uchar* out, device const uchar* bias, ulong at, ulong bias_at, float sum,
                      constant Product& size)
{
    float value = size.alpha * sum;
    if (HAS_BETA) {
        value += size.beta * load<float>(out, at, TYPE_OUT);
    }
    if (HAS_BIAS) {
        value += load<float>(bias, bias_at, TYPE_BIAS);
    }
    store(out, at, TYPE_OUT, activate(value, ACTIVATION));
}

// Integers: alpha is 1, beta 1 or absent, and sums wrap.
inline void write_out(device uchar* out, device const uchar* bias, ulong at, ulong bias_at, int sum,
                      constant Product& size)
{
    uint value = uint(sum);
    if (HAS_BETA) {
        value += uint(load<int>(out, at, TYPE_OUT));
    }
    if (HAS_BIAS) {
        value += uint(load<int>(bias, bias_at, TYPE_BIAS));
    }
    store(out, at, TYPE_OUT, ACTIVATION == 1 ? max(int(value), 0) : int(value));
}

// Writes the element of the result in a row and a column.
template <typename C>
inline void write_element(device uchar* out, device const uchar* bias, thread const ulong (&offsets)[4], ulong row,
                          ulong column, C sum, constant Product& size)
{
    ulong place = offsets[OUT] + row * size.out_row + column * stride_of<ulong>(OUT_COLUMN, size.out_column);
    write_out(out, bias, place, offsets[BIAS] + row * size.bias_row + column * size.bias_column, sum, size);
}

inline float multiply_add(float a, float b, float sum) { return fma(a, b, sum); }
inline int multiply_add(int a, int b, int sum) { return sum + a * b; }

template <typename T, typename C, uint ROWS>
[[kernel]] void matmul_columns(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                               device const uchar* bias [[buffer(2)]], device uchar* out [[buffer(3)]],
                               constant Axes<4>& batch [[buffer(4)]], constant Product& size [[buffer(5)]],
                               uint3 at [[thread_position_in_grid]], uint3 group [[threadgroup_position_in_grid]],
                               uint3 local [[thread_position_in_threadgroup]])
{
    ulong offsets[4] = {0, 0, 0, 0};
    add_offsets<ulong, 4>(at.z, BATCH, batch, offsets);
    // Threadgroups are 32 columns wide, as panels are.
    ulong column = ulong(group.x) * 32 + local.x, first = ulong(at.y) * ROWS;
    ulong a_term = stride_of<ulong>(A_TERM, size.a_term), b_term = stride_of<ulong>(B_TERM, size.b_term);
    device const T* from_b = b + offsets[B] + group.x * size.b_panel;
    ulong lane = local.x * stride_of<ulong>(B_COLUMN, size.b_column);
    // Rows beyond the last are computed again, and not stored.
    device const T* from_a[ROWS];
    C sums[ROWS];
    for (uint r = 0; r < ROWS; ++r) {
        from_a[r] = a + offsets[A] + min(first + r, size.rows - 1) * size.a_row;
        sums[r] = 0;
    }
    for (ulong k = 0; k < size.terms; ++k) {
        C factor = C(from_b[k * b_term + lane]);
        for (uint r = 0; r < ROWS; ++r) {
            sums[r] = multiply_add(C(from_a[r][k * a_term]), factor, sums[r]);
        }
    }
    ulong step_out = stride_of<ulong>(OUT_COLUMN, size.out_column);
    for (uint r = 0; r < ROWS; ++r) {
        ulong row = first + r;
        if (row < size.rows) {
            ulong place = offsets[OUT] + row * size.out_row + group.x * 32 * step_out + local.x * step_out;
            write_out(out, bias, place, offsets[BIAS] + row * size.bias_row + column * size.bias_column, sums[r], size);
        }
    }
}

template <typename T, typename C, uint ROWS>
[[kernel]] void matmul_dots(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                            device const uchar* bias [[buffer(2)]], device uchar* out [[buffer(3)]],
                            constant Axes<4>& batch [[buffer(4)]], constant Product& size [[buffer(5)]],
                            uint3 group [[threadgroup_position_in_grid]], uint lane [[thread_index_in_simdgroup]],
                            uint simdgroup [[simdgroup_index_in_threadgroup]],
                            uint simdgroups [[simdgroups_per_threadgroup]])
{
    ulong offsets[4] = {0, 0, 0, 0};
    add_offsets<ulong, 4>(group.z, BATCH, batch, offsets);
    ulong column = group.y, first = (ulong(group.x) * simdgroups + simdgroup) * ROWS;
    if (first >= size.rows) {
        return;
    }
    ulong a_term = stride_of<ulong>(A_TERM, size.a_term), b_term = stride_of<ulong>(B_TERM, size.b_term);
    device const T* from_b = b + offsets[B] + column * size.b_column;
    device const T* from_a[ROWS];
    C sums[ROWS];
    for (uint r = 0; r < ROWS; ++r) {
        from_a[r] = a + offsets[A] + min(first + r, size.rows - 1) * size.a_row;
        sums[r] = 0;
    }
    for (ulong k = lane; k < size.terms; k += SIMD) {
        C factor = C(from_b[k * b_term]);
        for (uint r = 0; r < ROWS; ++r) {
            sums[r] = multiply_add(C(from_a[r][k * a_term]), factor, sums[r]);
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        C sum = simd_sum(sums[r]);
        ulong row = first + r;
        if (lane == r && row < size.rows) {
            ulong place = offsets[OUT] + row * size.out_row + column * size.out_column;
            write_out(out, bias, place, offsets[BIAS] + row * size.bias_row + column * size.bias_column, sum, size);
        }
    }
}

// Sides of a threadgroup's tile of the result, and terms that are in threadgroup memory at a time.
constant constexpr uint TILE = 64;
constant constexpr uint TERMS = 16;
// Threads of a threadgroup: two by two simdgroups, each for a quarter of the tile.
constant constexpr uint THREADS = 128;
// Rows of threadgroup memory, with a padding of 16 bytes against bank conflicts.
template <typename T>
struct Stride {
    static constant constexpr uint A = TERMS + 16 / sizeof(T);
    static constant constexpr uint B = TILE + 16 / sizeof(T);
};

// Floats of threadgroup memory: two tiles of `float`, which are more than a half of the result.
constant constexpr uint MEMORY = TILE * Stride<float>::A + TERMS * Stride<float>::B;

// Copies a tile of rows × columns elements to threadgroup memory; zeros outside of the matrix. Threads that follow one another read along
// the axis with stride 1.
template <typename T, uint ROWS, uint COLUMNS, uint STRIDE>
inline void copy_tile(threadgroup T* tile, device const T* from, ulong row_stride, ulong column_stride, ulong rows,
                      ulong columns, bool along_rows, uint local)
{
    for (uint i = local; i < ROWS * COLUMNS; i += THREADS) {
        uint row = along_rows ? i % ROWS : i / COLUMNS;
        uint column = along_rows ? i / ROWS : i % COLUMNS;
        bool inside = row < rows && column < columns;
        tile[row * STRIDE + column] = inside ? from[row * row_stride + column * column_stride] : T(0);
    }
}

template <typename T>
[[kernel]] void matmul_tiles(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                             device const uchar* bias [[buffer(2)]], device uchar* out [[buffer(3)]],
                             constant Axes<4>& batch [[buffer(4)]], constant Product& size [[buffer(5)]],
                             uint3 group [[threadgroup_position_in_grid]], uint local [[thread_index_in_threadgroup]],
                             uint simdgroup [[simdgroup_index_in_threadgroup]])
{
    // The tiles of `a` and `b`, and then a half of the result.
    threadgroup float memory[MEMORY];
    threadgroup T* tile_a = (threadgroup T*)memory;
    threadgroup T* tile_b = tile_a + TILE * Stride<T>::A;
    ulong offsets[4] = {0, 0, 0, 0};
    add_offsets<ulong, 4>(group.z, BATCH, batch, offsets);
    ulong top = ulong(group.y) * TILE, left = ulong(group.x) * TILE;
    ulong rows = size.rows - top, columns = size.columns - left;
    ulong a_term = stride_of<ulong>(A_TERM, size.a_term), b_term = stride_of<ulong>(B_TERM, size.b_term);
    ulong b_column = stride_of<ulong>(B_COLUMN, size.b_column);
    device const T* from_a = a + offsets[A] + top * size.a_row;
    device const T* from_b = b + offsets[B] + left * b_column;
    uint own_row = simdgroup / 2 * (TILE / 2), own_column = simdgroup % 2 * (TILE / 2);

    simdgroup_float8x8 sums[4][4];
    for (uint i = 0; i < 4; ++i) {
        for (uint j = 0; j < 4; ++j) {
            sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }
    for (ulong k = 0; k < size.terms; k += TERMS) {
        ulong terms = size.terms - k;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        copy_tile<T, TILE, TERMS, Stride<T>::A>(tile_a, from_a, size.a_row, a_term, rows, terms, A_TERM != 1, local);
        copy_tile<T, TERMS, TILE, Stride<T>::B>(tile_b, from_b, b_term, b_column, terms, columns, B_COLUMN != 1, local);
        from_a += TERMS * a_term;
        from_b += TERMS * b_term;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint term = 0; term < TERMS; term += 8) {
            simdgroup_matrix<T, 8, 8> part_a[4], part_b[4];
            for (uint i = 0; i < 4; ++i) {
                simdgroup_load(part_a[i], tile_a + (own_row + i * 8) * Stride<T>::A + term, Stride<T>::A);
                simdgroup_load(part_b[i], tile_b + term * Stride<T>::B + own_column + i * 8, Stride<T>::B);
            }
            for (uint i = 0; i < 4; ++i) {
                for (uint j = 0; j < 4; ++j) {
                    simdgroup_multiply_accumulate(sums[i][j], part_a[i], part_b[j], sums[i][j]);
                }
            }
        }
    }
    // The upper half of the tile, and then the lower: a half fits the memory.
    for (uint half_tile = 0; half_tile < 2; ++half_tile) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (simdgroup / 2 == half_tile) {
            for (uint i = 0; i < 4; ++i) {
                for (uint j = 0; j < 4; ++j) {
                    simdgroup_store(sums[i][j], memory + i * 8 * TILE + own_column + j * 8, TILE);
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint i = local; i < TILE * TILE / 2; i += THREADS) {
            ulong row = half_tile * (TILE / 2) + i / TILE, column = i % TILE;
            if (row < rows && column < columns) {
                row += top;
                column += left;
                ulong place = offsets[OUT] + row * size.out_row + column * size.out_column;
                ulong bias_at = offsets[BIAS] + row * size.bias_row + column * size.bias_column;
                write_out(out, bias, place, bias_at, memory[i], size);
            }
        }
    }
}

// Products of aligned operands by blocks of the result. Each operand has an axis with stride 1 along which its elements are in whole words
// of 16 bytes. While a block's terms are multiplied, the words of the next ones are on their way from device memory to registers.

// Copies `COUNT` words of a tile to registers; zeros outside of the matrix. The tile's rows have `width` elements with stride 1.
template <typename T, uint COUNT, uint THREADS>
inline void fetch(thread uint4 (&words)[COUNT], device const T* from, ulong stride, uint width, uint rows, uint columns,
                  uint local)
{
    constexpr uint WORD = 16 / sizeof(T);
    uint across = width / WORD;
#pragma unroll
    for (uint i = 0; i < COUNT; ++i) {
        uint at = local + i * THREADS, row = at / across, column = at % across * WORD;
        bool inside = row < rows && column < columns;
        words[i] = inside ? *(device const uint4*)(from + row * stride + column) : uint4(0);
    }
}

// Stores the words to threadgroup memory, where rows are `stride` elements apart.
template <typename T, uint COUNT, uint THREADS>
inline void put(threadgroup T* tile, thread const uint4 (&words)[COUNT], uint width, uint stride, uint local)
{
    constexpr uint WORD = 16 / sizeof(T);
    uint across = width / WORD;
#pragma unroll
    for (uint i = 0; i < COUNT; ++i) {
        uint at = local + i * THREADS;
        *(threadgroup uint4*)(tile + at / across * stride + at % across * WORD) = words[i];
    }
}

// Where a block's tiles of `a` and `b` are in device memory.
template <typename T>
struct Tiles {
    device const T* a;
    device const T* b;
    // Strides of the tiles' rows, in which elements are consecutive.
    ulong stride_a, stride_b;
    // Elements to the next terms.
    ulong step_a, step_b;
};

template <typename T>
inline Tiles<T> tiles_at(device const T* a, device const T* b, ulong top, ulong left, uint terms, constant Product& size)
{
    ulong step_a = A_TERM == 1 ? 1 : size.a_term, step_b = B_COLUMN == 1 ? size.b_term : 1;
    return Tiles<T>{a + top * (A_TERM == 1 ? size.a_row : 1),
                    b + left * (B_COLUMN == 1 ? 1 : size.b_column),
                    A_TERM == 1 ? size.a_row : size.a_term,
                    B_COLUMN == 1 ? size.b_term : size.b_column,
                    terms * step_a,
                    terms * step_b};
}

// Copies the words of both tiles, of `SIDE` rows or columns and `DEPTH` terms, to registers.
template <typename T, uint COUNT, uint SIDE, uint DEPTH, uint THREADS>
inline void fetch_tiles(thread uint4 (&words_a)[COUNT], thread uint4 (&words_b)[COUNT], thread const Tiles<T>& from,
                        uint rows, uint columns, uint terms, uint local)
{
    if (A_TERM == 1) {
        fetch<T, COUNT, THREADS>(words_a, from.a, from.stride_a, DEPTH, rows, terms, local);
    } else {
        fetch<T, COUNT, THREADS>(words_a, from.a, from.stride_a, SIDE, terms, rows, local);
    }
    if (B_COLUMN == 1) {
        fetch<T, COUNT, THREADS>(words_b, from.b, from.stride_b, SIDE, terms, columns, local);
    } else {
        fetch<T, COUNT, THREADS>(words_b, from.b, from.stride_b, DEPTH, columns, terms, local);
    }
}

// Two by two simdgroups, each for a quarter of a block of `SIDE` by `SIDE` elements.
template <typename T, uint SIDE>
[[kernel]] void matmul_blocks(device const T* a [[buffer(0)]], device const T* b [[buffer(1)]],
                              device const uchar* bias [[buffer(2)]], device uchar* out [[buffer(3)]],
                              constant Axes<4>& batch [[buffer(4)]], constant Product& size [[buffer(5)]],
                              uint3 group [[threadgroup_position_in_grid]],
                              uint local [[thread_index_in_threadgroup]],
                              uint simdgroup [[simdgroup_index_in_threadgroup]],
                              uint lane [[thread_index_in_simdgroup]])
{
    constexpr uint THREADS = 128, DEPTH = 32, WORD = 16 / sizeof(T), PARTS = SIDE / 16;
    constexpr uint COUNT = SIDE * DEPTH / WORD / THREADS;
    // Tiles are as in device memory; a padding of 16 bytes avoids bank conflicts.
    constexpr uint LONG = SIDE + WORD, SHORT = DEPTH + WORD, MOST = max(SIDE * SHORT, DEPTH * LONG);
    threadgroup uint4 memory[2 * MOST / WORD];
    threadgroup T* tile_a = (threadgroup T*)memory;
    threadgroup T* tile_b = tile_a + MOST;
    ulong offsets[4] = {0, 0, 0, 0};
    add_offsets<ulong, 4>(group.z, BATCH, batch, offsets);
    ulong top = ulong(group.y) * SIDE, left = ulong(group.x) * SIDE;
    uint rows = min(size.rows - top, ulong(SIDE)), columns = min(size.columns - left, ulong(SIDE));
    Tiles<T> from = tiles_at(a + offsets[A], b + offsets[B], top, left, DEPTH, size);
    uint width_a = A_TERM == 1 ? DEPTH : SIDE, width_b = B_COLUMN == 1 ? SIDE : DEPTH;
    uint stride_a = width_a + WORD, stride_b = width_b + WORD;
    uint own_row = simdgroup / 2 * (SIDE / 2), own_column = simdgroup % 2 * (SIDE / 2);

    simdgroup_float8x8 sums[PARTS][PARTS];
#pragma unroll
    for (uint i = 0; i < PARTS; ++i) {
#pragma unroll
        for (uint j = 0; j < PARTS; ++j) {
            sums[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
        }
    }
    uint4 words_a[COUNT], words_b[COUNT];
    uint terms = min(size.terms, ulong(DEPTH));
    fetch_tiles<T, COUNT, SIDE, DEPTH, THREADS>(words_a, words_b, from, rows, columns, terms, local);
    for (ulong k = 0; k < size.terms; k += DEPTH) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        put<T, COUNT, THREADS>(tile_a, words_a, width_a, stride_a, local);
        put<T, COUNT, THREADS>(tile_b, words_b, width_b, stride_b, local);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (k + DEPTH < size.terms) {
            from.a += from.step_a;
            from.b += from.step_b;
            terms = min(size.terms - k - DEPTH, ulong(DEPTH));
            fetch_tiles<T, COUNT, SIDE, DEPTH, THREADS>(words_a, words_b, from, rows, columns, terms, local);
        }
#pragma unroll
        for (uint term = 0; term < DEPTH; term += 8) {
            simdgroup_matrix<T, 8, 8> part_a[PARTS], part_b[PARTS];
#pragma unroll
            for (uint i = 0; i < PARTS; ++i) {
                uint row = own_row + i * 8, column = own_column + i * 8;
                simdgroup_load(part_a[i], A_TERM == 1 ? tile_a + row * stride_a + term : tile_a + term * stride_a + row,
                               stride_a, ulong2(0), A_TERM != 1);
                simdgroup_load(part_b[i],
                               B_COLUMN == 1 ? tile_b + term * stride_b + column : tile_b + column * stride_b + term,
                               stride_b, ulong2(0), B_COLUMN != 1);
            }
#pragma unroll
            for (uint i = 0; i < PARTS; ++i) {
#pragma unroll
                for (uint j = 0; j < PARTS; ++j) {
                    simdgroup_multiply_accumulate(sums[i][j], part_a[i], part_b[j], sums[i][j]);
                }
            }
        }
    }
    // Each thread has two neighbors in a row of a simdgroup matrix.
    uint row = own_row + lane / 16 * 4 + lane / 2 % 4, column = own_column + lane / 8 % 2 * 4 + lane % 2 * 2;
#pragma unroll
    for (uint i = 0; i < PARTS; ++i) {
#pragma unroll
        for (uint j = 0; j < PARTS; ++j) {
#pragma unroll
            for (uint e = 0; e < 2; ++e) {
                uint r = row + i * 8, c = column + j * 8 + e;
                if (r < rows && c < columns) {
                    write_element(out, bias, offsets, top + r, left + c, sums[i][j].thread_elements()[e], size);
                }
            }
        }
    }
}

// The words of one operand that a thread copies to its tile: those of `SIDE` rows of `a`, or columns of `b`, and `DEPTH` terms.
template <uint SIDE, uint DEPTH, uint THREADS>
struct Words {
    device const float* at;
    // Elements between rows of memory, in which elements are consecutive, and to the next tile.
    ulong stride, step;
    // Whether the terms are consecutive, and the number of rows or columns.
    bool along_terms;
    uint end;
    uint4 words[SIDE * DEPTH / 4 / THREADS];

    // The term and the row or column of the first element of a word.
    uint2 place(uint i, uint local) const
    {
        uint across = (along_terms ? DEPTH : SIDE) / 4, at = local + i * THREADS;
        uint row = at / across, column = at % across * 4;
        return along_terms ? uint2(column, row) : uint2(row, column);
    }

    // Copies the words to registers. If the tile is the last one, with `terms` terms, those beyond are zeros; beyond the last row or column, they
    // are others, for sums that are not stored. The address of the tile's first word is valid.
    void fetch(bool is_last, uint terms, uint local)
    {
#pragma unroll
        for (uint i = 0; i < SIDE * DEPTH / 4 / THREADS; ++i) {
            uint2 place = this->place(i, local);
            // A choice between a loaded word and zeros would wait for the word.
            bool inside = !is_last || place.x < terms;
            uint term = inside ? place.x : 0, other = place.y < end ? place.y : 0;
            uint4 word = *(device const uint4*)(at + (along_terms ? other * stride + term : term * stride + other));
            words[i] = inside ? word : uint4(0);
        }
    }

    // Elements of a tile are in the order of their terms. Those of four terms are exchanged with others, so that threads that store a word of
    // terms each do so in different banks.
    static uint turn(uint term)
    {
        return term / 4 * (128 / DEPTH);
    }

    void put(threadgroup float4* tile, uint local) const
    {
#pragma unroll
        for (uint i = 0; i < SIDE * DEPTH / 4 / THREADS; ++i) {
            uint2 place = this->place(i, local);
            float4 elements = as_type<float4>(words[i]);
            uint to = place.x * SIDE + (place.y ^ turn(place.x));
            if (along_terms) {
#pragma unroll
                for (uint e = 0; e < 4; ++e) {
                    ((threadgroup float*)tile)[to + e * SIDE] = elements[e];
                }
            } else {
                tile[to / 4] = elements;
            }
        }
    }
};

// Threads in rows of sixteen, each for `ROWS` by `COLUMNS` elements in groups of four by four. A thread loads `ROWS + COLUMNS` elements from threadgroup
// memory for `ROWS * COLUMNS` multiplications: those of eight by eight would take all of its bandwidth on NVIDIA GPUs from compute capability 8.6 on,
// 128 bytes for 128 multiplications.
template <uint ROWS, uint COLUMNS, uint DEPTH>
[[kernel]] void matmul_registers(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                                 device const uchar* bias [[buffer(2)]], device uchar* out [[buffer(3)]],
                                 constant Axes<4>& batch [[buffer(4)]], constant Product& size [[buffer(5)]],
                                 uint3 group [[threadgroup_position_in_grid]],
                                 uint local [[thread_index_in_threadgroup]])
{
    constexpr uint SIDE = 16 * COLUMNS, THREAD_ROWS = SIDE / ROWS, THREADS = 16 * THREAD_ROWS;
    using Operand = Words<SIDE, DEPTH, THREADS>;
    threadgroup float4 tiles_a[2][DEPTH * SIDE / 4], tiles_b[2][DEPTH * SIDE / 4];
    ulong offsets[4] = {0, 0, 0, 0};
    add_offsets<ulong, 4>(group.z, BATCH, batch, offsets);
    ulong top = ulong(group.y) * SIDE, left = ulong(group.x) * SIDE;
    uint rows = min(size.rows - top, ulong(SIDE)), columns = min(size.columns - left, ulong(SIDE));
    Tiles<float> from = tiles_at(a + offsets[A], b + offsets[B], top, left, DEPTH, size);
    Operand words_a = {from.a, from.stride_a, from.step_a, A_TERM == 1, rows, {}};
    Operand words_b = {from.b, from.stride_b, from.step_b, B_COLUMN != 1, columns, {}};
    uint x = local % 16, y = local / 16;

    float sums[ROWS][COLUMNS];
#pragma unroll
    for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
        for (uint j = 0; j < COLUMNS; ++j) {
            sums[i][j] = 0;
        }
    }
    // All tiles but the last have `DEPTH` terms.
    uint tiles = (size.terms + DEPTH - 1) / DEPTH, rest = (size.terms - 1) % DEPTH + 1;
    if (tiles > 0) {
        words_a.fetch(true, tiles == 1 ? rest : DEPTH, local);
        words_b.fetch(true, tiles == 1 ? rest : DEPTH, local);
    }
    for (uint tile = 0; tile < tiles; ++tile) {
        threadgroup float4* tile_a = tiles_a[tile % 2];
        threadgroup float4* tile_b = tiles_b[tile % 2];
        words_a.put(tile_a, local);
        words_b.put(tile_b, local);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (tile + 1 < tiles) {
            words_a.at += words_a.step;
            words_b.at += words_b.step;
        }
        if (tile + 2 < tiles) {
            words_a.fetch(false, DEPTH, local);
            words_b.fetch(false, DEPTH, local);
        } else if (tile + 1 < tiles) {
            words_a.fetch(true, rest, local);
            words_b.fetch(true, rest, local);
        }
#pragma unroll
        for (uint term = 0; term < DEPTH; ++term) {
            uint turn = Operand::turn(term) / 4, at = term * (SIDE / 4);
            float4 part_a[ROWS / 4], part_b[COLUMNS / 4];
#pragma unroll
            for (uint g = 0; g < ROWS / 4; ++g) {
                part_a[g] = tile_a[at + ((g * THREAD_ROWS + y) ^ turn)];
            }
#pragma unroll
            for (uint g = 0; g < COLUMNS / 4; ++g) {
                part_b[g] = tile_b[at + ((g * 16 + x) ^ turn)];
            }
#pragma unroll
            for (uint i = 0; i < ROWS; ++i) {
#pragma unroll
                for (uint j = 0; j < COLUMNS; ++j) {
                    sums[i][j] = fma(part_a[i / 4][i % 4], part_b[j / 4][j % 4], sums[i][j]);
                }
            }
        }
    }
#pragma unroll
    for (uint i = 0; i < ROWS; ++i) {
        uint row = (i / 4 * THREAD_ROWS + y) * 4 + i % 4;
#pragma unroll
        for (uint j = 0; j < COLUMNS; ++j) {
            uint column = j / 4 * 64 + x * 4 + j % 4;
            if (row < rows && column < columns) {
                write_element(out, bias, offsets, top + row, left + column, sums[i][j], size);
            }
        }
    }
}

#define MATMUL(NAME, ...) template [[host_name(NAME)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
MATMUL("matmul_columns_8_f32", matmul_columns<float, float, 8>)
MATMUL("matmul_columns_8_f16", matmul_columns<half, float, 8>)
MATMUL("matmul_columns_8_bf16", matmul_columns<bfloat, float, 8>)
MATMUL("matmul_columns_8_i8", matmul_columns<char, int, 8>)
MATMUL("matmul_columns_1_f32", matmul_columns<float, float, 1>)
MATMUL("matmul_columns_1_f16", matmul_columns<half, float, 1>)
MATMUL("matmul_columns_1_bf16", matmul_columns<bfloat, float, 1>)
MATMUL("matmul_columns_1_i8", matmul_columns<char, int, 1>)
MATMUL("matmul_dots_f32", matmul_dots<float, float, 4>)
MATMUL("matmul_dots_f16", matmul_dots<half, float, 4>)
MATMUL("matmul_dots_bf16", matmul_dots<bfloat, float, 4>)
MATMUL("matmul_dots_i8", matmul_dots<char, int, 4>)
MATMUL("matmul_tiles_f32", matmul_tiles<float>)
MATMUL("matmul_tiles_f16", matmul_tiles<half>)
MATMUL("matmul_tiles_bf16", matmul_tiles<bfloat>)
MATMUL("matmul_blocks_64_f16", matmul_blocks<half, 64>)
MATMUL("matmul_blocks_64_bf16", matmul_blocks<bfloat, 64>)
MATMUL("matmul_blocks_64_f32", matmul_registers<4, 4, 16>)
MATMUL("matmul_blocks_128_f16", matmul_blocks<half, 128>)
MATMUL("matmul_blocks_128_bf16", matmul_blocks<bfloat, 128>)
MATMUL("matmul_blocks_128_f32", matmul_registers<8, 8, 8>)
MATMUL("matmul_blocks_128_f32_wide", matmul_registers<16, 8, 8>)
