// Metal adds atomically to floats in device memory only.
inline float atomic_add_float(threadgroup float* p, float value) {
    threadgroup atomic_uint* word = (threadgroup atomic_uint*)p;
    uint old = atomic_load_explicit(word, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(word, &old, as_type<uint>(as_type<float>(old) + value), memory_order_relaxed, memory_order_relaxed)) {}
    return as_type<float>(old);
}
