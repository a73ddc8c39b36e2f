// Atomic functions of 16 bits, by those of the 32 bits around them.
inline ushort atomic_cas_16(device ushort* p, ushort expected, ushort value) {
    ulong address = reinterpret_cast<ulong>(p);
    device atomic_uint* word = reinterpret_cast<device atomic_uint*>(address & ~3ul);
    uint shift = uint(address & 2ul) * 8u;
    uint old = atomic_load_explicit(word, memory_order_relaxed);
    while (true) {
        ushort found = ushort(old >> shift);
        if (found != expected) return found;
        uint wanted = (old & ~(0xffffu << shift)) | (uint(value) << shift);
        if (atomic_compare_exchange_weak_explicit(word, &old, wanted, memory_order_relaxed, memory_order_relaxed)) return found;
    }
}
inline half atomic_add_16(device half* p, half value) {
    device ushort* bits = (device ushort*)p;
    ushort old = atomic_cas_16(bits, 0, 0);
    while (true) {
        ushort found = atomic_cas_16(bits, old, as_type<ushort>(half(as_type<half>(old) + value)));
        if (found == old) return as_type<half>(old);
        old = found;
    }
}
inline bfloat atomic_add_16(device bfloat* p, bfloat value) {
    device ushort* bits = (device ushort*)p;
    ushort old = atomic_cas_16(bits, 0, 0);
    while (true) {
        ushort found = atomic_cas_16(bits, old, as_type<ushort>(bfloat(as_type<bfloat>(old) + value)));
        if (found == old) return as_type<bfloat>(old);
        old = found;
    }
}
inline ushort atomic_cas_16(threadgroup ushort* p, ushort expected, ushort value) {
    ulong address = reinterpret_cast<ulong>(p);
    threadgroup atomic_uint* word = reinterpret_cast<threadgroup atomic_uint*>(address & ~3ul);
    uint shift = uint(address & 2ul) * 8u;
    uint old = atomic_load_explicit(word, memory_order_relaxed);
    while (true) {
        ushort found = ushort(old >> shift);
        if (found != expected) return found;
        uint wanted = (old & ~(0xffffu << shift)) | (uint(value) << shift);
        if (atomic_compare_exchange_weak_explicit(word, &old, wanted, memory_order_relaxed, memory_order_relaxed)) return found;
    }
}
inline half atomic_add_16(threadgroup half* p, half value) {
    threadgroup ushort* bits = (threadgroup ushort*)p;
    ushort old = atomic_cas_16(bits, 0, 0);
    while (true) {
        ushort found = atomic_cas_16(bits, old, as_type<ushort>(half(as_type<half>(old) + value)));
        if (found == old) return as_type<half>(old);
        old = found;
    }
}
inline bfloat atomic_add_16(threadgroup bfloat* p, bfloat value) {
    threadgroup ushort* bits = (threadgroup ushort*)p;
    ushort old = atomic_cas_16(bits, 0, 0);
    while (true) {
        ushort found = atomic_cas_16(bits, old, as_type<ushort>(bfloat(as_type<bfloat>(old) + value)));
        if (found == old) return as_type<bfloat>(old);
        old = found;
    }
}
