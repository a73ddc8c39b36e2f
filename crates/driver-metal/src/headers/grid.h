// <elinvar/grid> for Metal's compiler: groups of threads as objects. The driver passes a thread's positions, which only a kernel's parameters
// give, to the functions that make them.
#ifndef ELINVAR_GROUPS
#define ELINVAR_GROUPS
#include <metal_stdlib>

namespace elinvar {
struct plus {
    template <class T> T operator()(T a, T b) const { return T(a + b); }
};
struct multiplies {
    template <class T> T operator()(T a, T b) const { return T(a * b); }
};
struct minimum {
    template <class T> T operator()(T a, T b) const { return metal::min(a, b); }
};
struct maximum {
    template <class T> T operator()(T a, T b) const { return metal::max(a, b); }
};
struct bit_and {
    template <class T> T operator()(T a, T b) const { return T(a & b); }
};
struct bit_or {
    template <class T> T operator()(T a, T b) const { return T(a | b); }
};
struct bit_xor {
    template <class T> T operator()(T a, T b) const { return T(a ^ b); }
};

namespace exchange_in_memory {
// Metal shuffles neither `bool` nor 64-bit integers.
template <class T> T value_of(T value, ushort lane) { return metal::simd_shuffle(value, lane); }
inline bool value_of(bool value, ushort lane) { return metal::simd_shuffle(uint(value), lane) != 0; }
inline ulong value_of(ulong value, ushort lane) {
    uint low = metal::simd_shuffle(uint(value), lane), high = metal::simd_shuffle(uint(value >> 32), lane);
    return ulong(high) << 32 | low;
}
inline long value_of(long value, ushort lane) { return long(value_of(ulong(value), lane)); }
} // namespace exchange_in_memory

template <uint N> struct tile {
    static_assert(N >= 2 && N <= 32 && (N & (N - 1)) == 0, "a tile has 2, 4, 8, 16 or 32 threads");

    tile(uint own_lane, uint simdgroup)
        : own(own_lane), group(simdgroup * (32 / N) + own_lane / N),
          lanes(uint(ulong(metal::simd_vote::vote_t(metal::simd_ballot(true))) >> (own_lane & ~(N - 1))) & (0xffffffffu >> (32 - N))) {}
    void sync() const { metal::simdgroup_barrier(metal::mem_flags::mem_device | metal::mem_flags::mem_threadgroup); }
    uint size() const { return metal::popcount(lanes); }
    uint thread_rank() const { return metal::popcount(lanes & ((1u << (own & (N - 1))) - 1u)); }
    uint group_rank() const { return group; }

    template <class T> T shuffle(T value, uint rank) const {
        return exchange_in_memory::value_of(value, ushort((own & ~(N - 1)) + lane(rank)));
    }
    template <class T> T shuffle_xor(T value, uint mask) const {
        uint rank = thread_rank(), other = rank ^ mask;
        return shuffle(value, other < size() ? other : rank);
    }
    template <class T> T shuffle_up(T value, uint delta) const {
        uint rank = thread_rank();
        return shuffle(value, rank >= delta ? rank - delta : rank);
    }
    template <class T> T shuffle_down(T value, uint delta) const {
        uint rank = thread_rank();
        return shuffle(value, delta < size() - rank ? rank + delta : rank);
    }
    template <class T, class Op> T reduce(T value, Op op) const {
        uint rank = thread_rank(), count = size();
        for (uint d = 1; d < N; d *= 2) {
            T other = shuffle(value, rank + d < count ? rank + d : rank);
            if (rank + d < count) value = op(value, other);
        }
        return shuffle(value, 0);
    }
    template <class T, class Op> T inclusive_scan(T value, Op op) const {
        uint rank = thread_rank();
        for (uint d = 1; d < N; d *= 2) {
            T other = shuffle(value, rank >= d ? rank - d : rank);
            if (rank >= d) value = op(other, value);
        }
        return value;
    }
    template <class T, class Op> T exclusive_scan(T value, Op op, T initial = T(0)) const {
        T before = shuffle_up(inclusive_scan(value, op), 1);
        return thread_rank() == 0 ? initial : before;
    }

private:
    uint own, group;
    // The threads that there are, as bits.
    uint lanes;

    // The lane with a rank, from the tile's first one.
    uint lane(uint rank) const {
        uint left = lanes;
        if ((left & (left + 1)) == 0) return rank;
        for (; rank > 0; --rank) left &= left - 1;
        return metal::ctz(left);
    }
};

using simdgroup = tile<32>;

struct threadgroup_threads {
    threadgroup_threads(uint own_rank, uint3 threads, uint3 position, uint3 threadgroups)
        : rank(own_rank), count(threads.x * threads.y * threads.z),
          group((position.z * threadgroups.y + position.y) * threadgroups.x + position.x) {}
    void sync() const { metal::threadgroup_barrier(metal::mem_flags::mem_device | metal::mem_flags::mem_threadgroup); }
    uint size() const { return count; }
    uint thread_rank() const { return rank; }
    uint group_rank() const { return group; }

    template <class T> T shuffle(T value, uint from, threadgroup T* memory) const {
        memory[rank] = value;
        sync();
        T result = memory[from];
        sync();
        return result;
    }
    template <class T, class Op> T reduce(T value, Op op, threadgroup T* memory) const {
        return shuffle(inclusive_scan(value, op, memory), count - 1, memory);
    }
    template <class T, class Op> T inclusive_scan(T value, Op op, threadgroup T* memory) const {
        for (uint d = 1; d < count; d *= 2) {
            T other = shuffle(value, rank >= d ? rank - d : rank, memory);
            if (rank >= d) value = op(other, value);
        }
        return value;
    }
    template <class T, class Op> T exclusive_scan(T value, Op op, threadgroup T* memory, T initial = T(0)) const {
        T before = shuffle(inclusive_scan(value, op, memory), rank == 0 ? 0 : rank - 1, memory);
        return rank == 0 ? initial : before;
    }

private:
    uint rank, count, group;
};

inline threadgroup_threads this_threadgroup(uint rank, uint3 threads, uint3 position, uint3 threadgroups) {
    return threadgroup_threads(rank, threads, position, threadgroups);
}
inline simdgroup this_simdgroup(uint lane, uint number) { return simdgroup(lane, number); }
template <uint N> tile<N> this_tile(uint lane, uint number) { return tile<N>(lane, number); }
} // namespace elinvar
#endif
