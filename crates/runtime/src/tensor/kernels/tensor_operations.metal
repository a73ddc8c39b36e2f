// Products of matrices by `matmul2d`: how factors reach the multipliers is the compiler's business.
//
// Function constants and arguments are those of matmul.metal.

#include <metal_tensor>
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>

using namespace mpp::tensor_ops;

// A threadgroup has a tile of `TALL` by `WIDE` elements. Threadgroups that follow one another share columns of `b`, in strips of eight tiles:
// the tiles under way on a device at once then need few different rows and columns.
constant constexpr int TALL = 128, WIDE = 256, STRIP = 8;

// Metal's `matmul2d` takes factors that are not const.
#ifdef __ELINVAR__
#define FACTOR const T
#else
#define FACTOR T
#endif

template <typename T, uint TYPE, bool TURNED_A, bool TURNED_B>
inline void matmul_tile(device FACTOR* a, device FACTOR* b, device const uchar* bias, device uchar* out,
                        thread const ulong (&offsets)[4], int top, int left, constant Product& size)
{
    int rows = int(size.rows), columns = int(size.columns), terms = int(size.terms);
    int row_a = int(TURNED_A ? size.a_term : size.a_row), row_b = int(TURNED_B ? size.b_column : size.b_term);
    auto all_a = tensor(a + offsets[A], dextents<int, 2>(TURNED_A ? rows : terms, TURNED_A ? terms : rows), array<int, 2>{1, row_a});
    auto all_b = tensor(b + offsets[B], dextents<int, 2>(TURNED_B ? terms : columns, TURNED_B ? columns : terms), array<int, 2>{1, row_b});
    auto part_a = all_a.slice(TURNED_A ? top : 0, TURNED_A ? 0 : top);
    auto part_b = all_b.slice(TURNED_B ? 0 : left, TURNED_B ? left : 0);
    constexpr auto descriptor = matmul2d_descriptor(TALL, WIDE, dynamic_length_v<int>, TURNED_A, TURNED_B);
    matmul2d<descriptor, execution_simdgroups<8>> product;
    auto sums = product.template get_destination_cooperative_tensor<decltype(part_a), decltype(part_b), float>();
    product.run(part_a, part_b, sums);
    bool is_plain = !HAS_BETA && !HAS_BIAS && ACTIVATION == 0 && OUT_COLUMN == 1;
    if (is_plain && TYPE_OUT == TYPE) {
#pragma unroll
        for (ushort i = 0; i < sums.get_capacity(); ++i) {
            sums[i] *= size.alpha;
        }
        device T* to = (device T*)out + offsets[OUT];
        auto result = tensor(to, dextents<int, 2>(columns, rows), array<int, 2>{1, int(size.out_row)}).slice(left, top);
        sums.store(result);
        return;
    }
#pragma unroll
    for (ushort i = 0; i < sums.get_capacity(); ++i) {
        auto at = sums.get_multidimensional_index(i);
        int row = top + at[1], column = left + at[0];
        if (row < rows && column < columns) {
            write_element(out, bias, offsets, ulong(row), ulong(column), sums[i], size);
        }
    }
}

template <typename T, uint TYPE>
[[kernel]] void matmul_operation(device FACTOR* a [[buffer(0)]], device FACTOR* b [[buffer(1)]],
                                 device const uchar* bias [[buffer(2)]], device uchar* out [[buffer(3)]],
                                 constant Axes<4>& batch [[buffer(4)]], constant Product& size [[buffer(5)]],
                                 uint3 group [[threadgroup_position_in_grid]])
{
    ulong offsets[4] = {0, 0, 0, 0};
    add_offsets<ulong, 4>(group.y, BATCH, batch, offsets);
    int high = (int(size.rows) + TALL - 1) / TALL, across = (int(size.columns) + WIDE - 1) / WIDE;
    int strip = int(group.x) / (STRIP * across) * STRIP, place = int(group.x) % (STRIP * across);
    int tall = min(high - strip, STRIP);
    int top = (strip + place % tall) * TALL, left = place / tall * WIDE;
    if (A_TERM == 1 && B_COLUMN == 1) {
        matmul_tile<T, TYPE, false, false>(a, b, bias, out, offsets, top, left, size);
    } else if (A_TERM == 1) {
        matmul_tile<T, TYPE, false, true>(a, b, bias, out, offsets, top, left, size);
    } else if (B_COLUMN == 1) {
        matmul_tile<T, TYPE, true, false>(a, b, bias, out, offsets, top, left, size);
    } else {
        matmul_tile<T, TYPE, true, true>(a, b, bias, out, offsets, top, left, size);
    }
}

MATMUL("matmul_operation_f16", matmul_operation<half, F16>)
MATMUL("matmul_operation_bf16", matmul_operation<bfloat, BF16>)
