// Indirect command buffers: the names of <metal_command_buffer> stand for commands in memory, which the driver checks and encodes into an
// `MTLIndirectCommandBuffer` when they are executed.
#ifndef ELINVAR_COMMANDS
#define ELINVAR_COMMANDS

namespace metal {
struct command_buffer_in_memory {
    device records_in_memory::header* to;
};

// A number from 1 on, in the order of the kernels that the host has given the command buffer.
struct compute_pipeline_in_memory {
    ulong number;
};

struct compute_command_in_memory {
    device records_in_memory::header* of;
    device records_in_memory::record* to;

    // A command behind the last one is encoded into a record that is not executed, and noted.
    compute_command_in_memory(command_buffer_in_memory commands, uint index) : of(commands.to) {
        if (index >= of->capacity) atomic_fetch_max_explicit(&of->beyond, index, memory_order_relaxed);
        to = (device records_in_memory::record*)(of + 1) + (index < of->capacity ? index : of->capacity);
    }
    void set_compute_pipeline_state(compute_pipeline_in_memory pipeline) const {
        if (of->flags & records_in_memory::inherits_pipeline) to->misuse = records_in_memory::misused_inherited_pipeline;
        to->pipeline = uint(pipeline.number);
    }
    template <class P> void set_kernel_buffer(P buffer, uint index) const {
        if (of->flags & records_in_memory::inherits_buffers) {
            to->misuse = records_in_memory::misused_inherited_buffers;
        } else if (index >= of->max_buffers) {
            to->misuse = records_in_memory::misused_buffer;
        } else {
            to->buffers[index] = reinterpret_cast<ulong>(buffer);
            to->buffers_set |= 1u << index;
            to->values_set &= ~(1u << index);
        }
    }
    void set_threadgroup_memory_length(uint length, uint index) const {
        if (index >= 31) {
            to->misuse = records_in_memory::misused_length;
        } else {
            to->lengths[index] = length;
            to->lengths_set |= 1u << index;
        }
    }
    void concurrent_dispatch_threadgroups(uint3 threadgroups_per_grid, uint3 threads_per_threadgroup) const {
        dispatch(records_in_memory::dispatch_threadgroups, threadgroups_per_grid, threads_per_threadgroup);
    }
    void concurrent_dispatch_threads(uint3 threads_per_grid, uint3 threads_per_threadgroup) const {
        dispatch(records_in_memory::dispatch_threads, threads_per_grid, threads_per_threadgroup);
    }
    void set_barrier() const { to->flags |= records_in_memory::barrier; }
    void clear_barrier() const { to->flags &= ~uint(records_in_memory::barrier); }
    void reset() const {
        to->kind = to->pipeline = to->flags = to->misuse = 0;
        to->buffers_set = to->values_set = to->lengths_set = to->parent = to->payload_bytes = 0;
    }
    void copy_command(compute_command_in_memory from) const { *to = *from.to; }
    void dispatch(uint kind, uint3 grid, uint3 group) const {
        to->grid[0] = grid.x;
        to->grid[1] = grid.y;
        to->grid[2] = grid.z;
        to->group[0] = group.x;
        to->group[1] = group.y;
        to->group[2] = group.z;
        to->kind = kind;
    }
};
} // namespace metal
#define command_buffer command_buffer_in_memory
#define compute_command compute_command_in_memory
#define compute_pipeline_state compute_pipeline_in_memory
#endif
