// Compares and exchanges; returns the old value. Metal's own may fail without reason.
inline uint atomic_cas(device uint* p, uint expected, uint value) {
    uint old = expected;
    while (!atomic_compare_exchange_weak_explicit((device atomic_uint*)p, &old, value, memory_order_relaxed, memory_order_relaxed) && old == expected) {}
    return old;
}
inline uint atomic_cas(threadgroup uint* p, uint expected, uint value) {
    uint old = expected;
    while (!atomic_compare_exchange_weak_explicit((threadgroup atomic_uint*)p, &old, value, memory_order_relaxed, memory_order_relaxed) && old == expected) {}
    return old;
}
inline int atomic_cas(device int* p, int expected, int value) {
    return int(atomic_cas((device uint*)p, uint(expected), uint(value)));
}
inline int atomic_cas(threadgroup int* p, int expected, int value) {
    return int(atomic_cas((threadgroup uint*)p, uint(expected), uint(value)));
}
