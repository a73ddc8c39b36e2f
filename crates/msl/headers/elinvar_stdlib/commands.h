// <metal_command_buffer>: indirect command buffers (MSL specification 6.18), which kernels encode and drivers execute.
//
// The layouts are those of the contract's module `indirect`, which describes the fields.
#pragma once
#pragma clang system_header

namespace elinvar {
namespace indirect {
struct header {
    uint capacity;
    uint max_buffers;
    uint flags;
    uint pipelines;
    metal::_atomic<uint> beyond;
    uint unused[11];
};

struct record {
    uint kind;
    uint pipeline;
    uint flags;
    uint misuse;
    uint buffers_set;
    uint values_set;
    uint lengths_set;
    uint parent;
    uint grid[3];
    uint group[3];
    uint payload_bytes;
    uint unused0;
    ulong buffers[31];
    uint lengths[31];
    uint unused1[3];
    uint payload[32];
};
static_assert(sizeof(header) == 64 && sizeof(record) == 576, "the layout of the contract");

constexpr uint dispatch_threadgroups = 1, dispatch_threads = 2;
constexpr uint inherits_buffers = 1, inherits_pipeline = 2;
constexpr uint barrier = 1;
constexpr uint misused_buffer = 1, misused_inherited_buffers = 2, misused_inherited_pipeline = 3, misused_length = 4,
               misused_payload = 5;
} // namespace indirect
} // namespace elinvar

namespace metal {
struct command_buffer {
    elinvar::indirect::header* to;
    ELINVAR_MEMBER ulong size() const { return to->capacity; }
};

// A number from 1 on, in the order of the kernels that the host has given the command buffer.
struct compute_pipeline_state {
    ulong number;
};

struct compute_command {
    elinvar::indirect::header* of;
    elinvar::indirect::record* to;

    // A command behind the last one is encoded into a record that is not executed, and noted.
    ELINVAR_MEMBER compute_command(command_buffer commands, uint index) : of(commands.to) {
        if (index >= of->capacity) atomic_fetch_max_explicit(&of->beyond, index, memory_order_relaxed);
        to = (elinvar::indirect::record*)(of + 1) + (index < of->capacity ? index : of->capacity);
    }
    ELINVAR_MEMBER void set_compute_pipeline_state(compute_pipeline_state pipeline) const {
        if (of->flags & elinvar::indirect::inherits_pipeline) to->misuse = elinvar::indirect::misused_inherited_pipeline;
        to->pipeline = uint(pipeline.number);
    }
    template <class T> ELINVAR_MEMBER void set_kernel_buffer(T* buffer, uint index) const {
        if (of->flags & elinvar::indirect::inherits_buffers) {
            to->misuse = elinvar::indirect::misused_inherited_buffers;
        } else if (index >= of->max_buffers) {
            to->misuse = elinvar::indirect::misused_buffer;
        } else {
            to->buffers[index] = (ulong)buffer;
            to->buffers_set |= 1u << index;
            to->values_set &= ~(1u << index);
        }
    }
    ELINVAR_MEMBER void set_threadgroup_memory_length(uint length, uint index) const {
        if (index >= 31) {
            to->misuse = elinvar::indirect::misused_length;
        } else {
            to->lengths[index] = length;
            to->lengths_set |= 1u << index;
        }
    }
    ELINVAR_MEMBER void concurrent_dispatch_threadgroups(vec<uint, 3> threadgroups_per_grid, vec<uint, 3> threads_per_threadgroup) const {
        dispatch(elinvar::indirect::dispatch_threadgroups, threadgroups_per_grid, threads_per_threadgroup);
    }
    ELINVAR_MEMBER void concurrent_dispatch_threads(vec<uint, 3> threads_per_grid, vec<uint, 3> threads_per_threadgroup) const {
        dispatch(elinvar::indirect::dispatch_threads, threads_per_grid, threads_per_threadgroup);
    }
    ELINVAR_MEMBER void set_barrier() const { to->flags |= elinvar::indirect::barrier; }
    ELINVAR_MEMBER void clear_barrier() const { to->flags &= ~elinvar::indirect::barrier; }
    ELINVAR_MEMBER void reset() const {
        to->kind = to->pipeline = to->flags = to->misuse = 0;
        to->buffers_set = to->values_set = to->lengths_set = to->parent = to->payload_bytes = 0;
    }
    ELINVAR_MEMBER void copy_command(compute_command from) const { *to = *from.to; }

private:
    ELINVAR_MEMBER void dispatch(uint kind, vec<uint, 3> grid, vec<uint, 3> group) const {
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
