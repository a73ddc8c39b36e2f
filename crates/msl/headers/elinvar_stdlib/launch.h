// <elinvar/launch>: launches that kernels enqueue. The header makes these names those of namespace elinvar.
//
// The layouts are those of the contract's module `nested`, which describes the fields, and of its module `indirect`.
#pragma once
#pragma clang system_header

namespace elinvar {
namespace indirect {
struct queue_header {
    uint capacity;
    uint pipelines;
    uint half;
    metal::_atomic<uint> overflowing;
    metal::_atomic<uint> tickets[2];
    uint unused0[2];
    record* records;
    uint unused1[6];
};
static_assert(sizeof(queue_header) == 64, "the layout of the contract");
} // namespace indirect

namespace launch_names {
// A queue of launches, as an argument `device elinvar::launch_queue&`. They begin when all launches of the level of the kernel that enqueues
// them have ended.
struct launch_queue {
    indirect::queue_header* header;
    uint kernel; // the number of the kernel that enqueues
    uint unused;
};

// A launch, which has a place in the queue from its construction on. It has no effect if nothing is dispatched. If the queue is full, the launch
// of the host ends in a fault.
class launch {
    indirect::record* to;
    uint parent, pipeline = 0, misuse = 0, buffers_set = 0, values_set = 0, lengths_set = 0, payload_bytes = 0;

public:
    ELINVAR_MEMBER explicit launch(const launch_queue& queue) : parent(queue.kernel) {
        indirect::queue_header* header = queue.header;
        uint half = header->half, capacity = header->capacity;
        uint ticket = metal::atomic_fetch_add_explicit(&header->tickets[half], 1u, metal::memory_order_relaxed);
        if (ticket >= capacity) metal::atomic_store_explicit(&header->overflowing, parent, metal::memory_order_relaxed);
        to = header->records + (ticket < capacity ? (ulong)half * capacity + ticket : 2ul * capacity);
        to->kind = 0;
        to->parent = parent;
    }
    // The kernel with this index, from 0, among those of the queue.
    ELINVAR_MEMBER void set_kernel(uint index) { pipeline = index + 1; }
    template <class T> ELINVAR_MEMBER void set_buffer(T* buffer, uint index) {
        if (index >= 31) {
            misuse = indirect::misused_buffer;
            return;
        }
        to->buffers[index] = (ulong)buffer;
        buffers_set |= 1u << index;
        values_set &= ~(1u << index);
    }
    // A value for `constant T&`. It is copied.
    template <class T> ELINVAR_MEMBER void set_value(const T& value, uint index) {
        static_assert(sizeof(T) <= sizeof(to->payload), "a value has at most 128 bytes");
        if (index >= 31) {
            misuse = indirect::misused_buffer;
        } else if (payload_bytes + sizeof(T) > sizeof(to->payload)) {
            misuse = indirect::misused_payload;
        } else {
            *(T*)((uchar*)to->payload + payload_bytes) = value;
            to->buffers[index] = payload_bytes | (ulong)sizeof(T) << 32;
            buffers_set |= 1u << index;
            values_set |= 1u << index;
            payload_bytes += (sizeof(T) + 15) / 16 * 16;
        }
    }
    ELINVAR_MEMBER void set_threadgroup_memory_length(uint length, uint index) {
        if (index >= 31) {
            misuse = indirect::misused_length;
            return;
        }
        to->lengths[index] = length;
        lengths_set |= 1u << index;
    }
    ELINVAR_MEMBER void dispatch_threadgroups(metal::vec<uint, 3> groups, metal::vec<uint, 3> threads_per_threadgroup) {
        dispatch(indirect::dispatch_threadgroups, groups, threads_per_threadgroup);
    }
    ELINVAR_MEMBER void dispatch_threads(metal::vec<uint, 3> threads, metal::vec<uint, 3> threads_per_threadgroup) {
        dispatch(indirect::dispatch_threads, threads, threads_per_threadgroup);
    }
    ELINVAR_MEMBER void dispatch_threadgroups(uint groups, uint threads_per_threadgroup) {
        dispatch_threadgroups(metal::vec<uint, 3>(groups, 1, 1), metal::vec<uint, 3>(threads_per_threadgroup, 1, 1));
    }
    ELINVAR_MEMBER void dispatch_threads(uint threads, uint threads_per_threadgroup) {
        dispatch_threads(metal::vec<uint, 3>(threads, 1, 1), metal::vec<uint, 3>(threads_per_threadgroup, 1, 1));
    }

private:
    ELINVAR_MEMBER void dispatch(uint kind, metal::vec<uint, 3> grid, metal::vec<uint, 3> group) {
        to->pipeline = pipeline;
        to->flags = 0;
        to->misuse = misuse;
        to->buffers_set = buffers_set;
        to->values_set = values_set;
        to->lengths_set = lengths_set;
        to->grid[0] = grid.x;
        to->grid[1] = grid.y;
        to->grid[2] = grid.z;
        to->group[0] = group.x;
        to->group[1] = group.y;
        to->group[2] = group.z;
        to->payload_bytes = payload_bytes;
        to->kind = kind;
    }
};
} // namespace launch_names

template <> struct element_form<launch_names::launch_queue> {
    using scalar = void;
    static constexpr ulong form = 5;
};
} // namespace elinvar
