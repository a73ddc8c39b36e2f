// <elinvar/grid>: barriers of a whole grid, and groups of threads as objects. The header makes these names those of namespace elinvar.
//
// All threads of a group call its functions together. Operations are associative; they are applied to the values in the order of
// the threads' ranks.
#pragma once

extern "C" {
ELINVAR_CONVERGENT __attribute__((nothrow)) void __elinvar_grid_barrier();
}

namespace elinvar {
namespace grid_names {
using elinvar::attribute::nominal_index;
#define ELINVAR_GROUP_MEMBER ELINVAR_MEMBER ELINVAR_CONVERGENT

// All threads of the grid wait for one another. Device memory that was written before is visible behind.
ELINVAR_INLINE ELINVAR_CONVERGENT void grid_barrier() { __elinvar_grid_barrier(); }

struct plus {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return T(a + b); }
};
struct multiplies {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return T(a * b); }
};
struct minimum {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return metal::min(a, b); }
};
struct maximum {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return metal::max(a, b); }
};
struct bit_and {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return T(a & b); }
};
struct bit_or {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return T(a | b); }
};
struct bit_xor {
    template <class T> ELINVAR_MEMBER T operator()(T a, T b) const { return T(a ^ b); }
};

// N consecutive lanes of a simdgroup: a power of two from 2 to 32. Lanes that the threadgroup lacks, at the edge of a grid or at its
// own end, have no rank. The threads of a tile create the object together.
template <uint N> struct tile {
    static_assert(N >= 2 && N <= 32 && (N & (N - 1)) == 0, "a tile has 2, 4, 8, 16 or 32 threads");

    ELINVAR_GROUP_MEMBER tile()
        : lanes(uint(__elinvar_simd_ballot(true) >> (nominal_index() & 31 & ~(N - 1))) & (0xffffffffu >> (32 - N))) {}
    ELINVAR_GROUP_MEMBER void sync() const { metal::simdgroup_barrier(metal::mem_flags(3)); }
    ELINVAR_MEMBER uint size() const { return uint(__builtin_popcount(lanes)); }
    ELINVAR_MEMBER uint thread_rank() const {
        return uint(__builtin_popcount(lanes & ((1u << (nominal_index() & (N - 1))) - 1u)));
    }
    // Its place among the tiles of the threadgroup.
    ELINVAR_MEMBER uint group_rank() const { return nominal_index() / N; }

    // The value of the thread with a rank, which is smaller than size().
    template <class T> ELINVAR_GROUP_MEMBER T shuffle(T value, uint rank) const {
        return metal::simd_shuffle(value, ushort((nominal_index() & 31 & ~(N - 1)) + lane(rank)));
    }
    // The value of the thread whose rank is the own one xor a mask; the own value if there is none.
    template <class T> ELINVAR_GROUP_MEMBER T shuffle_xor(T value, uint mask) const {
        uint rank = thread_rank(), other = rank ^ mask;
        return shuffle(value, other < size() ? other : rank);
    }
    // The value of the thread that is `delta` ranks below; the own value if there is none.
    template <class T> ELINVAR_GROUP_MEMBER T shuffle_up(T value, uint delta) const {
        uint rank = thread_rank();
        return shuffle(value, rank >= delta ? rank - delta : rank);
    }
    // The value of the thread that is `delta` ranks above; the own value if there is none.
    template <class T> ELINVAR_GROUP_MEMBER T shuffle_down(T value, uint delta) const {
        uint rank = thread_rank();
        return shuffle(value, delta < size() - rank ? rank + delta : rank);
    }
    template <class T, class Op> ELINVAR_GROUP_MEMBER T reduce(T value, Op op) const {
        uint rank = thread_rank(), count = size();
        for (uint d = 1; d < N; d *= 2) {
            T other = shuffle(value, rank + d < count ? rank + d : rank);
            if (rank + d < count) value = op(value, other);
        }
        return shuffle(value, 0);
    }
    template <class T, class Op> ELINVAR_GROUP_MEMBER T inclusive_scan(T value, Op op) const {
        uint rank = thread_rank();
        for (uint d = 1; d < N; d *= 2) {
            T other = shuffle(value, rank >= d ? rank - d : rank);
            if (rank >= d) value = op(other, value);
        }
        return value;
    }
    // The first thread has `initial`, which the others' results do not include.
    template <class T, class Op> ELINVAR_GROUP_MEMBER T exclusive_scan(T value, Op op, T initial = T(0)) const {
        T before = shuffle_up(inclusive_scan(value, op), 1);
        return thread_rank() == 0 ? initial : before;
    }

private:
    // The threads that there are, as bits.
    uint lanes;

    // The lane with a rank, from the tile's first one.
    ELINVAR_MEMBER uint lane(uint rank) const {
        uint left = lanes;
        if ((left & (left + 1)) == 0) return rank;
        for (; rank > 0; --rank) left &= left - 1;
        return uint(__builtin_ctz(left));
    }
};

using simdgroup = tile<32>;

// The threads of a threadgroup. Memory that a function is given is threadgroup memory, used by it alone, and free again when it returns.
struct threadgroup_threads {
    ELINVAR_GROUP_MEMBER void sync() const { metal::threadgroup_barrier(metal::mem_flags(3)); }
    ELINVAR_MEMBER uint size() const {
        return __elinvar_threads_per_threadgroup(0) * __elinvar_threads_per_threadgroup(1) *
               __elinvar_threads_per_threadgroup(2);
    }
    ELINVAR_MEMBER uint thread_rank() const { return elinvar::attribute::thread_index_in_threadgroup::at(0); }
    // Its place among the threadgroups of the grid.
    ELINVAR_MEMBER uint group_rank() const {
        return __elinvar_threadgroup_position_in_grid(0) +
               __elinvar_threadgroups_per_grid(0) *
                   (__elinvar_threadgroup_position_in_grid(1) +
                    __elinvar_threadgroups_per_grid(1) * __elinvar_threadgroup_position_in_grid(2));
    }

    // The value of the thread with a rank. `memory` has size() elements.
    template <class T> ELINVAR_GROUP_MEMBER T shuffle(T value, uint rank, T* memory) const {
        memory[thread_rank()] = value;
        sync();
        T result = memory[rank];
        sync();
        return result;
    }
    // `memory` has size() elements.
    template <class T, class Op> ELINVAR_GROUP_MEMBER T reduce(T value, Op op, T* memory) const {
        return shuffle(inclusive_scan(value, op, memory), size() - 1, memory);
    }
    // `memory` has size() elements.
    template <class T, class Op> ELINVAR_GROUP_MEMBER T inclusive_scan(T value, Op op, T* memory) const {
        uint rank = thread_rank(), count = size();
        for (uint d = 1; d < count; d *= 2) {
            T other = shuffle(value, rank >= d ? rank - d : rank, memory);
            if (rank >= d) value = op(other, value);
        }
        return value;
    }
    // The first thread has `initial`, which the others' results do not include. `memory` has size() elements.
    template <class T, class Op> ELINVAR_GROUP_MEMBER T exclusive_scan(T value, Op op, T* memory, T initial = T(0)) const {
        uint rank = thread_rank();
        T before = shuffle(inclusive_scan(value, op, memory), rank == 0 ? 0 : rank - 1, memory);
        return rank == 0 ? initial : before;
    }
};

// The threads of a grid. `memory` is threadgroup memory with an element for each thread of a threadgroup, and `partial` is device memory
// with an element for each threadgroup.
struct grid {
    ELINVAR_GROUP_MEMBER void sync() const { grid_barrier(); }
    ELINVAR_MEMBER ulong size() const {
        return ulong(__elinvar_threads_per_grid(0)) * __elinvar_threads_per_grid(1) * __elinvar_threads_per_grid(2);
    }
    // The thread's place in the grid, x fastest.
    ELINVAR_MEMBER ulong thread_rank() const {
        using at = elinvar::attribute::thread_position_in_grid;
        return at::at(0) + ulong(__elinvar_threads_per_grid(0)) * (at::at(1) + ulong(__elinvar_threads_per_grid(1)) * at::at(2));
    }
    ELINVAR_MEMBER uint num_threadgroups() const {
        return __elinvar_threadgroups_per_grid(0) * __elinvar_threadgroups_per_grid(1) *
               __elinvar_threadgroups_per_grid(2);
    }

    // In the order of threadgroups, and within one in that of its threads.
    template <class T, class Op> ELINVAR_GROUP_MEMBER T reduce(T value, Op op, T* memory, T* partial) const {
        threadgroup_threads group;
        T own = group.reduce(value, op, memory);
        if (group.thread_rank() == 0) partial[group.group_rank()] = own;
        sync();
        T result = partial[0];
        for (uint g = 1; g < num_threadgroups(); ++g) result = op(result, partial[g]);
        sync();
        return result;
    }
    template <class T, class Op> ELINVAR_GROUP_MEMBER T inclusive_scan(T value, Op op, T* memory, T* partial) const {
        threadgroup_threads group;
        T own = group.inclusive_scan(value, op, memory);
        if (group.thread_rank() == group.size() - 1) partial[group.group_rank()] = own;
        sync();
        if (group.group_rank() > 0) {
            T before = partial[0];
            for (uint g = 1; g < group.group_rank(); ++g) before = op(before, partial[g]);
            own = op(before, own);
        }
        sync();
        return own;
    }
};

ELINVAR_INLINE grid this_grid() { return {}; }
ELINVAR_INLINE threadgroup_threads this_threadgroup() { return {}; }
ELINVAR_INLINE ELINVAR_CONVERGENT simdgroup this_simdgroup() { return {}; }
template <uint N> ELINVAR_INLINE ELINVAR_CONVERGENT tile<N> this_tile() { return {}; }
#undef ELINVAR_GROUP_MEMBER
} // namespace grid_names
} // namespace elinvar
