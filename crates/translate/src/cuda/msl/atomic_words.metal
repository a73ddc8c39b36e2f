// 64-bit atomic functions without a result, on the low word and then the high one. The carry of each sum is added once.
inline void atomic_add_words(device atomic_uint* p, ulong value) {
    uint low = uint(value);
    uint old = atomic_fetch_add_explicit(p, low, memory_order_relaxed);
    uint high = uint(value >> 32) + uint(old + low < old);
    if (high != 0) {
        atomic_fetch_add_explicit(p + 1, high, memory_order_relaxed);
    }
}
inline void atomic_and_words(device atomic_uint* p, ulong value) {
    atomic_fetch_and_explicit(p, uint(value), memory_order_relaxed);
    atomic_fetch_and_explicit(p + 1, uint(value >> 32), memory_order_relaxed);
}
inline void atomic_or_words(device atomic_uint* p, ulong value) {
    atomic_fetch_or_explicit(p, uint(value), memory_order_relaxed);
    atomic_fetch_or_explicit(p + 1, uint(value >> 32), memory_order_relaxed);
}
inline void atomic_xor_words(device atomic_uint* p, ulong value) {
    atomic_fetch_xor_explicit(p, uint(value), memory_order_relaxed);
    atomic_fetch_xor_explicit(p + 1, uint(value >> 32), memory_order_relaxed);
}
inline void atomic_add_words(threadgroup atomic_uint* p, ulong value) {
    uint low = uint(value);
    uint old = atomic_fetch_add_explicit(p, low, memory_order_relaxed);
    uint high = uint(value >> 32) + uint(old + low < old);
    if (high != 0) {
        atomic_fetch_add_explicit(p + 1, high, memory_order_relaxed);
    }
}
inline void atomic_and_words(threadgroup atomic_uint* p, ulong value) {
    atomic_fetch_and_explicit(p, uint(value), memory_order_relaxed);
    atomic_fetch_and_explicit(p + 1, uint(value >> 32), memory_order_relaxed);
}
inline void atomic_or_words(threadgroup atomic_uint* p, ulong value) {
    atomic_fetch_or_explicit(p, uint(value), memory_order_relaxed);
    atomic_fetch_or_explicit(p + 1, uint(value >> 32), memory_order_relaxed);
}
inline void atomic_xor_words(threadgroup atomic_uint* p, ulong value) {
    atomic_fetch_xor_explicit(p, uint(value), memory_order_relaxed);
    atomic_fetch_xor_explicit(p + 1, uint(value >> 32), memory_order_relaxed);
}
