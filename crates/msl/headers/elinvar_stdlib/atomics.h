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

#define ELINVAR_ORDER memory_order order = memory_order_relaxed, thread_scope scope = thread_scope_device

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

// Operations on volatile objects, such as those of `coherent` buffers, and with the scope of the system are volatile in IR, which means
// system scope on NVIDIA GPUs. Metal documents the weak form of compare-exchange; the strong one is here for other sources.
#define ELINVAR_FETCH(name, QUALIFIER)                                                                                \
    template <class T, class U>                                                                                       \
    ELINVAR_INLINE T atomic_fetch_##name##_explicit(QUALIFIER _atomic<T>* object, U operand, ELINVAR_ORDER) {         \
        if (scope == thread_scope_system)                                                                             \
            return __atomic_fetch_##name((volatile T*)&object->value, T(operand), order);                             \
        return __atomic_fetch_##name(&object->value, T(operand), order);                                              \
    }
#define ELINVAR_COMPARE(name, IS_WEAK, QUALIFIER)                                                                     \
    template <class T, class U>                                                                                       \
    ELINVAR_INLINE bool atomic_compare_exchange_##name##_explicit(                                                    \
        QUALIFIER _atomic<T>* object, T* expected, U desired, memory_order success, memory_order failure,             \
        thread_scope scope = thread_scope_device) {                                                                   \
        T value = T(desired);                                                                                         \
        if (scope == thread_scope_system)                                                                             \
            return __atomic_compare_exchange((volatile T*)&object->value, expected, &value, IS_WEAK, success, failure);\
        return __atomic_compare_exchange(&object->value, expected, &value, IS_WEAK, success, failure);                \
    }
#define ELINVAR_LIMIT(name, QUALIFIER)                                                                                \
    template <class U>                                                                                                \
    ELINVAR_INLINE void atomic_##name##_explicit(QUALIFIER _atomic<ulong>* object, U operand, ELINVAR_ORDER) {        \
        atomic_fetch_##name##_explicit(object, operand, order, scope);                                                \
    }
#define ELINVAR_UPDATES(QUALIFIER)                                                                                    \
    template <class T, class U>                                                                                       \
    ELINVAR_INLINE T atomic_exchange_explicit(QUALIFIER _atomic<T>* object, U desired, ELINVAR_ORDER) {               \
        T value = T(desired), old;                                                                                    \
        if (scope == thread_scope_system)                                                                             \
            __atomic_exchange((volatile T*)&object->value, &value, &old, order);                                      \
        else                                                                                                          \
            __atomic_exchange(&object->value, &value, &old, order);                                                   \
        return old;                                                                                                   \
    }                                                                                                                 \
    ELINVAR_COMPARE(weak, true, QUALIFIER)                                                                            \
    ELINVAR_COMPARE(strong, false, QUALIFIER)                                                                         \
    ELINVAR_FETCH(add, QUALIFIER)                                                                                     \
    ELINVAR_FETCH(sub, QUALIFIER)                                                                                     \
    ELINVAR_FETCH(min, QUALIFIER)                                                                                     \
    ELINVAR_FETCH(max, QUALIFIER)                                                                                     \
    ELINVAR_FETCH(and, QUALIFIER)                                                                                     \
    ELINVAR_FETCH(or, QUALIFIER)                                                                                      \
    ELINVAR_FETCH(xor, QUALIFIER)                                                                                     \
    ELINVAR_LIMIT(min, QUALIFIER)                                                                                     \
    ELINVAR_LIMIT(max, QUALIFIER)
ELINVAR_UPDATES()
ELINVAR_UPDATES(volatile)
#undef ELINVAR_UPDATES
#undef ELINVAR_LIMIT
#undef ELINVAR_COMPARE
#undef ELINVAR_FETCH
#undef ELINVAR_ORDER
} // namespace metal
