// <elinvar/launch>: launches that kernels enqueue.
#ifndef ELINVAR_LAUNCH
#define ELINVAR_LAUNCH

namespace elinvar {
struct launch_queue {
    device records_in_memory::queue* header;
    uint kernel_number; // the number of the kernel that enqueues
    uint unused;
};

class launch {
    device records_in_memory::record* to;
    uint parent, pipeline = 0, misuse = 0, buffers_set = 0, values_set = 0, lengths_set = 0, payload_bytes = 0;

public:
    explicit launch(const device launch_queue& queue) : parent(queue.kernel_number) {
        device records_in_memory::queue* header = queue.header;
        uint in_use = header->half_in_use, capacity = header->capacity;
        uint ticket = metal::atomic_fetch_add_explicit(&header->tickets[in_use], 1u, metal::memory_order_relaxed);
        if (ticket >= capacity) metal::atomic_store_explicit(&header->overflowing, parent, metal::memory_order_relaxed);
        to = header->records + (ticket < capacity ? (ulong)in_use * capacity + ticket : 2ul * capacity);
        to->kind = 0;
        to->parent = parent;
    }
    void set_kernel(uint index) { pipeline = index + 1; }
    template <class P> void set_buffer(P buffer, uint index) {
        if (index >= 31) {
            misuse = records_in_memory::misused_buffer;
            return;
        }
        to->buffers[index] = reinterpret_cast<ulong>(buffer);
        buffers_set |= 1u << index;
        values_set &= ~(1u << index);
    }
    template <class T> void set_value(T value, uint index) {
        static_assert(sizeof(T) <= 128, "a value has at most 128 bytes");
        if (index >= 31) {
            misuse = records_in_memory::misused_buffer;
        } else if (payload_bytes + sizeof(T) > 128) {
            misuse = records_in_memory::misused_payload;
        } else {
            *(device T*)((device uchar*)to->payload + payload_bytes) = value;
            to->buffers[index] = payload_bytes | (ulong)sizeof(T) << 32;
            buffers_set |= 1u << index;
            values_set |= 1u << index;
            payload_bytes += (sizeof(T) + 15) / 16 * 16;
        }
    }
    void set_threadgroup_memory_length(uint length, uint index) {
        if (index >= 31) {
            misuse = records_in_memory::misused_length;
            return;
        }
        to->lengths[index] = length;
        lengths_set |= 1u << index;
    }
    void dispatch_threadgroups(uint3 groups, uint3 threads_per_threadgroup) {
        dispatch(records_in_memory::dispatch_threadgroups, groups, threads_per_threadgroup);
    }
    void dispatch_threads(uint3 threads, uint3 threads_per_threadgroup) {
        dispatch(records_in_memory::dispatch_threads, threads, threads_per_threadgroup);
    }
    void dispatch_threadgroups(uint groups, uint threads_per_threadgroup) {
        dispatch_threadgroups(uint3(groups, 1, 1), uint3(threads_per_threadgroup, 1, 1));
    }
    void dispatch_threads(uint threads, uint threads_per_threadgroup) {
        dispatch_threads(uint3(threads, 1, 1), uint3(threads_per_threadgroup, 1, 1));
    }

private:
    void dispatch(uint kind, uint3 grid, uint3 group) {
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
} // namespace elinvar
#endif
