// seed 12 threads [96, 1, 1] group [64, 1, 1] n 13
#include <metal_stdlib>
using namespace metal;
struct words {
    uchar v[12];
};
kernel void k12(device uint* out [[buffer(0)]], device const uint* in [[buffer(1)]],
    constant uint& n [[buffer(2)]], device atomic_uint* acc [[buffer(3)]], device const ulong* wide [[buffer(4)]],
    uint me [[thread_position_in_grid]], uint lid [[thread_index_in_threadgroup]],
    uint simdgroup [[simdgroup_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]]) {
    threadgroup uint tile[2][8 * 20];
    threadgroup ushort narrow[2][320];
    short row = lane / 16 * 4 + lane / 2 % 4, column = lane / 8 % 2 * 4 + lane % 2 * 2;
    for (uint i = lane; i < 160u; i += 32u) {
        tile[simdgroup][i] = in[i];
    }
    for (uint i = lane; i < 320u; i += 32u) {
        narrow[simdgroup][i] = ushort(in[i & 255u] * 7u);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Lanes whose rows are a constant apart, and a number that is known at run time.
    threadgroup uint* place = tile[simdgroup] + row * 20 + column;
    uint first = place[0], second = place[1], gap = place[4], turned = tile[simdgroup][column * 20 + row];
    uint shared = tile[simdgroup][lane / 8u * 3u], backwards = tile[simdgroup][31 - (lane & 28) + (lane & 3)];
    uint distant = in[row * short(n) + column] * 3u + in[(row * short(n) + column + 1) & 255];
    ushort halves = narrow[simdgroup][row * 33 + column] ^ narrow[simdgroup][row * 33 + column + 1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    place[0] = second + distant;
    place[1] = first ^ halves;
    tile[simdgroup][(short(lane) / 4) * 20 + 8 + short(lane) % 4] = turned + backwards;
    narrow[simdgroup][row * int(n) + column] = ushort(gap);
    narrow[simdgroup][row * int(n) + column + 1] = ushort(shared);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    // Copies of bytes by lanes side by side.
    short from = short(lane) / 4 * short(n) + short(lane) % 4 * 3, to = short(lane) / 4 * 20 + short(lane) % 4 * 3;
    device const uint* source = in + from;
    uint sum = 0;
    for (uint i = 0; i < 3u; ++i) {
        *(threadgroup words*)(tile[simdgroup] + to) = *(device const words*)source;
        source += n;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        sum = sum * 31u + place[0] + tile[simdgroup][(lane * 5u) % 160u];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    out[me * 4u] = sum;
    out[me * 4u + 1u] = tile[simdgroup][lane] + distant;
    out[me * 4u + 2u] = narrow[simdgroup][lane * 3u] + 7u * narrow[simdgroup][lane + 64u];
    out[me * 4u + 3u] = first + 3u * second + 5u * gap + 7u * turned + 11u * shared + 13u * backwards + halves;
}
