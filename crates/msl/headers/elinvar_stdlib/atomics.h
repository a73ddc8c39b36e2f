// <metal_atomic>: atomic types and the explicit functions on them.
#pragma once

namespace metal {
template <class T> struct _atomic {
    T value;
    _atomic() = default;
    constexpr _atomic(T initial) : value(initial) {}
    _atomic(const _atomic&) = delete;
    _atomic& operator=(const _atomic&) = delete;
};
template <class T> using atomic = _atomic<T>;
using atomic_int = _atomic<int>;
using atomic_uint = _atomic<uint>;
using atomic_bool = _atomic<bool>;
using atomic_float = _atomic<float>;
using atomic_long = _atomic<long>;
using atomic_ulong = _atomic<ulong>;

#define ELINVAR_ORDER memory_order order = memory_order_relaxed, thread_scope = thread_scope_device

template <class T> ELINVAR_INLINE T atomic_load_explicit(const volatile _atomic<T>* object, ELINVAR_ORDER) {
    T value;
    __atomic_load(const_cast<T*>(&object->value), &value, order);
    return value;
}
template <class T, class U>
ELINVAR_INLINE void atomic_store_explicit(volatile _atomic<T>* object, U desired, ELINVAR_ORDER) {
    T value = T(desired);
    __atomic_store(const_cast<T*>(&object->value), &value, order);
}
template <class T, class U>
ELINVAR_INLINE T atomic_exchange_explicit(volatile _atomic<T>* object, U desired, ELINVAR_ORDER) {
    T value = T(desired), old;
    __atomic_exchange(const_cast<T*>(&object->value), &value, &old, order);
    return old;
}
template <class T, class U>
ELINVAR_INLINE bool atomic_compare_exchange_weak_explicit(volatile _atomic<T>* object, T* expected, U desired,
                                                          memory_order success, memory_order failure,
                                                          thread_scope = thread_scope_device) {
    T value = T(desired);
    return __atomic_compare_exchange(const_cast<T*>(&object->value), expected, &value, true, success, failure);
}
// Metal documents the weak form; the strong one is here for sources that were written against others.
template <class T, class U>
ELINVAR_INLINE bool atomic_compare_exchange_strong_explicit(volatile _atomic<T>* object, T* expected, U desired,
                                                            memory_order success, memory_order failure,
                                                            thread_scope = thread_scope_device) {
    T value = T(desired);
    return __atomic_compare_exchange(const_cast<T*>(&object->value), expected, &value, false, success, failure);
}

#define ELINVAR_FETCH(name)                                                                                    \
    template <class T, class U>                                                                               \
    ELINVAR_INLINE T atomic_fetch_##name##_explicit(volatile _atomic<T>* object, U operand, ELINVAR_ORDER) {  \
        return __atomic_fetch_##name(const_cast<T*>(&object->value), T(operand), order);                      \
    }
ELINVAR_FETCH(add)
ELINVAR_FETCH(sub)
ELINVAR_FETCH(min)
ELINVAR_FETCH(max)
ELINVAR_FETCH(and)
ELINVAR_FETCH(or)
ELINVAR_FETCH(xor)
#undef ELINVAR_FETCH

template <class U> ELINVAR_INLINE void atomic_min_explicit(volatile _atomic<ulong>* object, U operand, ELINVAR_ORDER) {
    __atomic_fetch_min(const_cast<ulong*>(&object->value), ulong(operand), order);
}
template <class U> ELINVAR_INLINE void atomic_max_explicit(volatile _atomic<ulong>* object, U operand, ELINVAR_ORDER) {
    __atomic_fetch_max(const_cast<ulong*>(&object->value), ulong(operand), order);
}
#undef ELINVAR_ORDER
} // namespace metal
