// Barriers, fences and the flags they take.
#pragma once

extern "C" {
ELINVAR_CONVERGENT __attribute__((nothrow)) void __elinvar_threadgroup_barrier(uint flags);
ELINVAR_CONVERGENT __attribute__((nothrow)) void __elinvar_simdgroup_barrier(uint flags);
}

namespace metal {
enum class mem_flags : uint {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8,
    mem_object_data = 16,
};
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

// The values are those of the compiler's __ATOMIC_ constants.
enum memory_order {
    memory_order_relaxed = 0,
    memory_order_acquire = 2,
    memory_order_release = 3,
    memory_order_acq_rel = 4,
    memory_order_seq_cst = 5,
};
enum thread_scope {
    thread_scope_thread,
    thread_scope_simdgroup,
    thread_scope_threadgroup,
    thread_scope_device,
    thread_scope_system,
};

// A fence with sequential consistency has system scope, any other device scope. That of a single thread only binds the compiler.
ELINVAR_INLINE void atomic_thread_fence(mem_flags, memory_order order, thread_scope scope = thread_scope_device) {
    if (order == memory_order_relaxed) return;
    if (scope == thread_scope_system) __atomic_thread_fence(memory_order_seq_cst);
    else if (scope == thread_scope_thread) __atomic_signal_fence(order);
    else __atomic_thread_fence(order);
}
ELINVAR_INLINE ELINVAR_CONVERGENT void threadgroup_barrier(mem_flags flags,
                                                           thread_scope scope = thread_scope_threadgroup) {
    if (scope == thread_scope_system) __atomic_thread_fence(memory_order_seq_cst);
    __elinvar_threadgroup_barrier(uint(flags));
    if (scope == thread_scope_system) __atomic_thread_fence(memory_order_seq_cst);
}
ELINVAR_INLINE ELINVAR_CONVERGENT void simdgroup_barrier(mem_flags flags, thread_scope = thread_scope_simdgroup) {
    __elinvar_simdgroup_barrier(uint(flags));
}
} // namespace metal
