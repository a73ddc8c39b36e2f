// What functions that a source declares with labels of the compiler's intrinsics do: `__asm("air.…")`.
//
// A copy is made when it is issued, by the threads of the simdgroup that issue it together; a wait is a barrier of the simdgroup.
// A program reads the destination behind the wait, and does not write the source before it.
#pragma once

namespace elinvar {
namespace air {
// The threads that execute this together, and the place of this one among them.
struct Team {
    uint place, count;
};
ELINVAR_INLINE ELINVAR_CONVERGENT Team team() {
    uint together = uint(__elinvar_simd_ballot(true));
    uint before = together & ((1u << attribute::thread_index_in_simdgroup::at(0)) - 1u);
    return {uint(__builtin_popcount(before)), uint(__builtin_popcount(together))};
}

template <class T, int N> struct pieces {
    T piece[N];
};
// Store element `to` of a tile: element `from` of another, or zero.
template <class E> ELINVAR_INLINE void transfer(void* target, long to, const void* source, long from, bool zero) {
    E value = {};
    if (!zero) value = ((const E*)source)[from];
    ((E*)target)[to] = value;
}
ELINVAR_INLINE void transfer(ulong size, ulong alignment, void* target, long to, const void* source, long from, bool zero) {
    if (size == 2 && alignment % 2 == 0)
        transfer<ushort>(target, to, source, from, zero);
    else if (size == 4 && alignment % 4 == 0)
        transfer<uint>(target, to, source, from, zero);
    else if (size == 8 && alignment % 8 == 0)
        transfer<ulong>(target, to, source, from, zero);
    else if (size == 8 && alignment % 4 == 0)
        transfer<pieces<uint, 2>>(target, to, source, from, zero);
    else if (size == 12 && alignment % 4 == 0)
        transfer<pieces<uint, 3>>(target, to, source, from, zero);
    else if (size == 16 && alignment % 4 == 0)
        transfer<pieces<uint, 4>>(target, to, source, from, zero);
    else
        for (ulong k = 0; k < size; ++k) transfer<uchar>(target, to * long(size) + long(k), source, from * long(size) + long(k), zero);
}

ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_async_copy_1d(ulong size, ulong alignment, void* target, const void* source,
                                                               ulong elements) {
    Team team = air::team();
    for (ulong i = team.place; i < elements; i += team.count)
        transfer(size, alignment, target, long(i), source, long(i), false);
}

// Element (x, y) of the target's tile is that of the source's at `offset` + (x, y). Outside of the source's tile it is zero, or with
// a mode other than 0 the nearest one of the tile.
ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_async_copy_2d(ulong size, ulong alignment, void* target, ulong target_row,
                                                               ulong target_stride, vec<ulong, 2> target_tile, const void* source,
                                                               ulong source_row, ulong source_stride, vec<ulong, 2> source_tile,
                                                               vec<long, 2> offset, int mode) {
    Team team = air::team();
    for (ulong y = 0; y < target_tile.y; ++y) {
        for (ulong x = team.place; x < target_tile.x; x += team.count) {
            long sx = long(x) + offset.x, sy = long(y) + offset.y, width = long(source_tile.x), height = long(source_tile.y);
            bool outside = sx < 0 || sy < 0 || sx >= width || sy >= height;
            if (outside && mode != 0) {
                sx = sx < 0 ? 0 : sx >= width ? width - 1 : sx;
                sy = sy < 0 ? 0 : sy >= height ? height - 1 : sy;
            }
            bool zero = width == 0 || height == 0 || (outside && mode == 0);
            transfer(size, alignment, target, long(y * target_row + x * target_stride), source,
                     sy * long(source_row) + sx * long(source_stride), zero);
        }
    }
}

template <class E> ELINVAR_INLINE ELINVAR_CONVERGENT void wait_simdgroup_events(int, E) {
    __elinvar_simdgroup_barrier(uint(metal::mem_flags::mem_device | metal::mem_flags::mem_threadgroup));
}
} // namespace air
} // namespace elinvar
