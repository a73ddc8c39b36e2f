// Executes indirect command buffers and nested launches on the device: the source of executor.ptx, which a test of `program.rs` makes from it.
//
// The executor is a kernel of one block. It takes the commands in runs that need no barrier inside, checks all commands of a run,
// and launches them (CUDA dynamic parallelism). Then it launches itself behind them for the next run: a tail launch begins when everything
// that its parent has launched has ended. The structs are those of `layout.rs` and of the contract's module `indirect`; the memory of the
// commands is not trusted. Nested launches are the same with levels in place of runs.

typedef unsigned int u32;
typedef unsigned long long u64;

#define KERNEL __attribute__((nvptx_kernel))
#define SHARED __attribute__((address_space(3)))
#define NOINLINE __attribute__((noinline))

typedef struct { u32 x, y, z; } Dim3;

// The device runtime, of libcudadevrt.a. `stream` is 0 for the block's own stream, or one of the following.
void *__cudaCDP2GetParameterBufferV2(void *function, Dim3 grid, Dim3 block, u32 shared);
int __cudaCDP2LaunchDeviceV2(void *parameters, u64 stream);
#define OWN_STREAM 0
#define TAIL_LAUNCH 3
#define FIRE_AND_FORGET 4

#define THREADS 128
// Launches of a run: half of what the device runtime keeps by default.
#define MOST_LAUNCHES 1024

// Of a command: `elinvar_driver::CommandHeader` and `CommandRecord`.
typedef struct { u32 capacity, max_buffers, flags, pipelines, beyond, unused[11]; } Header;
// Of a launch queue: `elinvar_driver::QueueHeader`.
typedef struct { u32 capacity, pipelines, half, overflowing, tickets[2], unused0[2]; u64 records; u32 unused1[6]; } Queue;
typedef struct {
    u32 kind, pipeline, flags, misuse, buffers_set, values_set, lengths_set, parent;
    u32 grid[3], group[3], payload_bytes, unused0;
    u64 buffers[31];
    u32 lengths[31], unused1[3];
    unsigned char payload[128];
} Record;
enum { EMPTY, THREADGROUPS, THREADS_OF_GRID };
enum { BARRIER = 1 };

// Of a kernel: `layout.rs`.
typedef struct {
    void *entry;
    u32 most_threads, most_size[3], own_memory, dynamic_base, most_dynamic;
    u32 first_parameter, parameters, first_argument, arguments, is_checked;
} Kernel;
typedef struct { u32 kind, which, offset, unused; u64 value; } Parameter;
enum { POINTER, THREADGROUP_OFFSET, THREADS_ALONG, EXTENT, GROUPS_ALONG, FAULT_RECORD, BYTES, VALUE64, VALUE32 };
typedef struct { u32 index, kind, writes, align; u64 size; } Argument;
enum { MAY_BE_NULL, NOT_NULL, THREADGROUP_MEMORY, LAUNCH_QUEUE };

// Of an execution: `layout.rs`.
typedef struct { u64 first, end, writes; } Used;
typedef struct { u64 address, bytes; u32 is_set, writes; } Inherited;
typedef struct { u32 code, index, error, first; unsigned char record[576]; } Status;
enum { DONE, RANGE, BEYOND, REJECTED, LAUNCH_FAILED, SHARED_MEMORY, GRID, FAULT, OVERFLOW, TOO_DEEP };
typedef struct { u32 taken, site, root, thread[3]; long long offset; u64 size; } FaultRecord;
typedef struct {
    // One of the two.
    const Header *header;
    Queue *queue;
    const Record *records;
    const Kernel *kernels;
    const Parameter *parameters;
    const Argument *arguments;
    const Used *used;
    const u32 *range;
    Status *status;
    FaultRecord *faults;
    u64 zeros;
    // Of nested launches: the fault record of the first launch, or null.
    const FaultRecord *root;
    u32 used_count, kernel_count, capacity, max_memory, inherited_kernel, inherits_buffers;
    // The commands, or launches of a level, to execute.
    u32 first, count;
    // Of nested launches.
    u32 level, depth;
    Inherited inherited[31];
} Execution;

KERNEL void elinvar_execute_commands(Execution *execution, u32 next, u32 previous);
KERNEL void elinvar_launch_nested(Execution *execution, u32 next, u32 previous);

static u32 thread(void) { return __nvvm_read_ptx_sreg_tid_x(); }
static u32 lesser(u32 a, u32 b) { return a < b ? a : b; }
static const Record *record_of(const Execution *e, u32 index) { return e->records + index; }

// The first failure counts: whoever changes `code` first.
NOINLINE static void fail(Execution *e, u32 code, u32 index, u32 error) {
    u32 none = DONE;
    Status *status = e->status;
    if (!__atomic_compare_exchange_n(&status->code, &none, code, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) return;
    status->index = e->queue && code < OVERFLOW ? index - e->first : index;
    status->error = error;
    status->first = e->queue ? e->level : e->first;
    if (code < REJECTED || code == OVERFLOW) return;
    const u64 *from = (const u64 *)record_of(e, index);
    for (u32 i = 0; i < 576 / 8; ++i) ((u64 *)status->record)[i] = from[i];
}

// What a command gives an argument.
typedef struct { u64 address, bytes; } Bound;

// Returns whether the argument is valid.
NOINLINE static u32 bind(const Execution *e, const Record *record, const Argument *argument, Bound *bound) {
    u32 index = argument->index, bit = index < 31 ? 1u << index : 0;
    bound->address = argument->kind == NOT_NULL ? e->zeros : 0;
    bound->bytes = argument->kind == NOT_NULL ? argument->size : 0;
    if (argument->kind == THREADGROUP_MEMORY) {
        bound->bytes = record->lengths_set & bit ? record->lengths[index] : 0;
        return 1;
    }
    if (argument->kind == LAUNCH_QUEUE) {
        // A port of the queue, behind the header; 16 bytes each.
        bound->address = (u64)(e->queue + 1) + 16 * record->pipeline;
        bound->bytes = 16;
        return e->queue != 0;
    }
    if (e->inherits_buffers) {
        if (!bit || !e->inherited[index].is_set) return 1;
        const Inherited *inherited = &e->inherited[index];
        if ((argument->writes && !inherited->writes) || inherited->bytes < argument->size) return 0;
        if (inherited->address % argument->align) return 0;
        bound->address = inherited->address;
        bound->bytes = inherited->bytes;
        return 1;
    }
    if (!(record->buffers_set & bit)) return 1;
    u64 word = record->buffers[index];
    if (record->values_set & bit) {
        u64 offset = (u32)word, bytes = word >> 32;
        if (offset + bytes > 128 || argument->writes || bytes < argument->size) return 0;
        bound->address = (u64)(record->payload + offset);
        bound->bytes = bytes;
        return bound->address % argument->align == 0;
    }
    if (!word) return 1;
    for (u32 i = e->used_count; i-- > 0;) {
        const Used *used = &e->used[i];
        // Ranges may overlap: another one may allow the writes.
        if (word < used->first || word >= used->end || (argument->writes && !used->writes)) continue;
        if (used->end - word < argument->size) return 0;
        if (word % argument->align) return 0;
        bound->address = word;
        bound->bytes = used->end - word;
        return 1;
    }
    return 0;
}

// The launch of a command.
typedef struct {
    const Kernel *kernel;
    Dim3 threads, groups, grid, block;
    u32 shared, extent;
} Launch;

// Checks a command. Returns 0 for an empty one, 1 for one to launch, and else a failure's code plus 1.
NOINLINE static u32 check(const Execution *e, u32 index, Launch *launch) {
    const Record *record = record_of(e, index);
    if (record->kind == EMPTY) return 0;
    if (record->misuse || record->kind > THREADS_OF_GRID) return REJECTED + 1;
    u32 number = e->inherited_kernel ? e->inherited_kernel : record->pipeline;
    if (number - 1 >= e->kernel_count) return REJECTED + 1;
    const Kernel *kernel = launch->kernel = &e->kernels[number - 1];
    u64 group_threads = 1, blocks = 1;
    u32 groups[3], threads[3], is_whole = 1, fits = 1;
    for (u32 d = 0; d < 3; ++d) {
        u32 size = record->group[d];
        if (size - 1 >= kernel->most_size[d]) return REJECTED + 1;
        group_threads *= size;
    }
    if (group_threads > kernel->most_threads) return REJECTED + 1;
    u32 is_empty = 0;
    for (u32 d = 0; d < 3; ++d) {
        u32 size = record->group[d], grid = record->grid[d];
        u64 along = record->kind == THREADGROUPS ? (u64)grid * size : grid;
        if (along >> 32) return REJECTED + 1;
        threads[d] = along;
        groups[d] = record->kind == THREADGROUPS ? grid : grid / size + (grid % size != 0);
        is_whole &= along % size == 0;
        is_empty |= along == 0;
        fits &= groups[d] <= (d == 0 ? 0x7fffffffu : 65535u);
        // At most 2^31 as the product of the first two matters; more is too large in any case.
        blocks = blocks > 0x7fffffffu ? blocks : blocks * groups[d];
    }
    u64 given = 0;
    for (u32 i = 0; i < kernel->arguments; ++i) {
        Bound bound;
        const Argument *argument = &e->arguments[kernel->first_argument + i];
        if (!bind(e, record, argument, &bound)) return REJECTED + 1;
        if (argument->kind == THREADGROUP_MEMORY) given += (bound.bytes + 15) & ~15ull;
    }
    if (kernel->own_memory + given > e->max_memory) return REJECTED + 1;
    if (is_empty) return 0;
    launch->shared = kernel->dynamic_base + given;
    if (launch->shared > kernel->most_dynamic) return SHARED_MEMORY + 1;
    if (!fits && blocks > 0x7fffffffu) return GRID + 1;
    launch->threads = (Dim3){threads[0], threads[1], threads[2]};
    launch->groups = (Dim3){groups[0], groups[1], groups[2]};
    launch->grid = fits ? launch->groups : (Dim3){(u32)blocks, 1, 1};
    u32 x = record->group[0], y = record->group[1], z = record->group[2];
    // Layers beyond those that CUDA allows are stacked along y (`elinvar_ptx::Block`).
    launch->block = z > 64 ? (Dim3){x, y * z, 1} : (Dim3){x, y, z};
    is_whole &= group_threads % 32 == 0;
    u32 extent = !fits ? 3 : !is_whole ? 2 : threads[1] == 1 && threads[2] == 1 ? 0 : 1;
    launch->extent = (z > 64 ? y << 8 : 0) | extent;
    return 1;
}

static u32 along(Dim3 size, u32 d) { return d == 0 ? size.x : d == 1 ? size.y : size.z; }

NOINLINE static void launch_command(Execution *e, u32 index, const Launch *launch, u64 stream) {
    const Record *record = record_of(e, index);
    const Kernel *kernel = launch->kernel;
    char *to = __cudaCDP2GetParameterBufferV2(kernel->entry, launch->grid, launch->block, launch->shared);
    if (!to) return fail(e, LAUNCH_FAILED, index, 0);
    u32 dynamic = kernel->dynamic_base;
    for (u32 i = 0; i < kernel->parameters; ++i) {
        const Parameter *parameter = &e->parameters[kernel->first_parameter + i];
        u64 value = parameter->value;
        u32 is_long = 0;
        Bound bound;
        switch (parameter->kind) {
        case POINTER:
        case BYTES:
        case THREADGROUP_OFFSET:
            bind(e, record, &e->arguments[kernel->first_argument + parameter->which], &bound);
            is_long = parameter->kind != THREADGROUP_OFFSET;
            value = parameter->kind == POINTER ? bound.address : bound.bytes;
            if (parameter->kind == THREADGROUP_OFFSET) {
                value = dynamic;
                dynamic += (u32)((bound.bytes + 15) & ~15ull);
            }
            break;
        case THREADS_ALONG: value = along(launch->threads, parameter->which); break;
        case EXTENT: value = launch->extent; break;
        case GROUPS_ALONG: value = along(launch->groups, parameter->which); break;
        case FAULT_RECORD:
            value = (u64)(e->faults + (index - e->first));
            is_long = 1;
            break;
        case VALUE64: is_long = 1; break;
        default: break;
        }
        if (is_long)
            *(u64 *)(to + parameter->offset) = value;
        else
            *(u32 *)(to + parameter->offset) = (u32)value;
    }
    int error = __cudaCDP2LaunchDeviceV2(to, stream);
    if (error) fail(e, LAUNCH_FAILED, index, error);
}

// The smallest value of any thread.
NOINLINE static u32 smallest(u32 value) {
    static SHARED u32 least;
    __syncthreads();
    if (thread() == 0) least = ~0u;
    __syncthreads();
    if (value != ~0u) __atomic_fetch_min(&least, value, __ATOMIC_RELAXED);
    __syncthreads();
    return least;
}

// Of a launch whose threadgroup counts are in memory: `indirect.rs`. Positions are offsets in the parameters; NOWHERE for none.
#define NOWHERE 0xffffffffu
#define MOST_PARAMETERS 952
typedef struct {
    void *entry;
    const u32 *counts;
    u32 *status;
    u32 group[3], shared, threads_at[3], extent_at, groups_at[2], bytes, unused;
    u64 parameters[MOST_PARAMETERS / 8];
} Indirect;

static void put(char *to, u32 at, u32 value) {
    if (at != NOWHERE) *(u32 *)(to + at) = value;
}

// Reads the counts and launches the kernel. The host has packed its parameters, but for those that depend on the counts. One thread.
KERNEL void elinvar_launch_indirect(Indirect launch) {
    u32 groups[3], threads[3], is_whole = 1, fits = 1;
    u64 blocks = 1, group_threads = 1;
    u32 code = DONE, error = 0;
    for (u32 d = 0; d < 3; ++d) {
        groups[d] = launch.status[1 + d] = launch.counts[d];
        u64 all = (u64)groups[d] * launch.group[d];
        if (all >> 32) code = REJECTED;
        threads[d] = (u32)all;
        group_threads *= launch.group[d];
        fits &= groups[d] <= (d == 0 ? 0x7fffffffu : 65535u);
        blocks = blocks > 0x7fffffffu ? blocks : blocks * groups[d];
    }
    if (!groups[0] || !groups[1] || !groups[2]) return;
    if (code == DONE && !fits && blocks > 0x7fffffffu) code = GRID;
    char *to = 0;
    if (code == DONE) {
        is_whole = group_threads % 32 == 0;
        u32 x = launch.group[0], y = launch.group[1], z = launch.group[2];
        Dim3 grid = fits ? (Dim3){groups[0], groups[1], groups[2]} : (Dim3){(u32)blocks, 1, 1};
        Dim3 block = z > 64 ? (Dim3){x, y * z, 1} : (Dim3){x, y, z};
        u32 extent = !fits ? 3 : !is_whole ? 2 : threads[1] == 1 && threads[2] == 1 ? 0 : 1;
        to = __cudaCDP2GetParameterBufferV2(launch.entry, grid, block, launch.shared);
        if (to) {
            for (u32 i = 0; i < launch.bytes; i += 8) *(u64 *)(to + i) = launch.parameters[i / 8];
            for (u32 d = 0; d < 3; ++d) put(to, launch.threads_at[d], threads[d]);
            for (u32 d = 0; d < 2; ++d) put(to, launch.groups_at[d], groups[d]);
            put(to, launch.extent_at, (z > 64 ? y << 8 : 0) | extent);
            error = __cudaCDP2LaunchDeviceV2(to, FIRE_AND_FORGET);
        }
        if (!to || error) code = LAUNCH_FAILED;
    }
    launch.status[0] = code;
    if (code == LAUNCH_FAILED) launch.status[1] = error;
}

// The first index from `from` to `end` whose command has a barrier, or has none; `end` if there is none.
NOINLINE static u32 find(const Execution *e, u32 from, u32 end, u32 barrier) {
    for (u32 first = from; first < end; first += THREADS) {
        u32 at = first + thread();
        u32 is_it = at < end && (record_of(e, at)->flags & BARRIER) == barrier;
        u32 found = smallest(is_it ? at : ~0u);
        if (found != ~0u) return found;
    }
    return end;
}

// Whether the commands from `from` to `end`, which have ended, have no fault. One ends the execution.
NOINLINE static u32 are_sound(Execution *e, u32 from, u32 end) {
    u32 fault = ~0u;
    if (e->faults)
        for (u32 i = from + thread(); i < end; i += THREADS)
            if (e->faults[i - e->first].taken) fault = i;
    fault = smallest(fault);
    if (fault != ~0u && thread() == 0) fail(e, FAULT, fault, 0);
    return fault == ~0u;
}

// Checks the commands from `from` to `stop`, and launches them, up to the first that is rejected. Returns whether none is.
NOINLINE static u32 run(Execution *e, u32 from, u32 stop, u32 is_ordered) {
    u32 rejected = ~0u;
    Launch launch;
    for (u32 i = from + thread(); i < stop && rejected == ~0u; i += THREADS)
        if (check(e, i, &launch) > 1) rejected = i;
    rejected = smallest(rejected);
    u32 last = lesser(stop, rejected);
    if (is_ordered) {
        if (thread() == 0)
            for (u32 i = from; i < last; ++i)
                if (check(e, i, &launch) == 1) launch_command(e, i, &launch, OWN_STREAM);
    } else {
        for (u32 i = from + thread(); i < last; i += THREADS)
            if (check(e, i, &launch) == 1) launch_command(e, i, &launch, FIRE_AND_FORGET);
    }
    __syncthreads();
    if (rejected != ~0u && thread() == 0) {
        u32 code = check(e, rejected, &launch) - 1;
        fail(e, code, rejected, code == SHARED_MEMORY ? launch.shared : 0);
    }
    return rejected == ~0u;
}

// Launches a kernel of this file behind everything that this one has launched.
NOINLINE static void continue_with(void *function, Execution *e, u32 a, u32 b) {
    if (thread() != 0) return;
    char *to = __cudaCDP2GetParameterBufferV2(function, (Dim3){1, 1, 1}, (Dim3){THREADS, 1, 1}, 0);
    if (!to) return fail(e, LAUNCH_FAILED, e->first, 0);
    *(Execution **)to = e;
    *(u32 *)(to + 8) = a;
    *(u32 *)(to + 12) = b;
    int error = __cudaCDP2LaunchDeviceV2(to, TAIL_LAUNCH);
    if (error) fail(e, LAUNCH_FAILED, e->first, error);
}

// The range, which may be in memory, and commands that kernels have tried to encode behind the last one.
static void begin(Execution *e) {
    if (thread() == 0) {
        if (e->range) {
            e->first = e->range[0];
            e->count = e->range[1];
        }
        if ((u64)e->first + e->count > e->capacity)
            fail(e, RANGE, e->first, e->count);
        else if (e->header->beyond)
            fail(e, BEYOND, e->header->beyond, 0);
    }
    __syncthreads();
}

// Executes the commands from `next` on, which is counted from the first of the range, behind those from `previous` on. 0, 0: all.
KERNEL void elinvar_execute_commands(Execution *e, u32 next, u32 previous) {
    if (next == 0) begin(e);
    if (e->status->code) return;
    u32 end = e->first + e->count, from = e->first + next;
    if (!are_sound(e, e->first + previous, from) || from >= end) return;
    u32 stop = find(e, from + 1, end, BARRIER), is_ordered = 0;
    if (stop == from + 1 && stop < end && !e->faults) {
        // Commands that all have a barrier: in order in the block's own stream.
        stop = find(e, stop, end, 0);
        // The last one may begin a run of several.
        if (stop < end) stop = stop - 1;
        is_ordered = stop > from + 1;
        if (!is_ordered) stop = from + 1;
    }
    stop = lesser(stop, from + MOST_LAUNCHES);
    if (!run(e, from, stop, is_ordered)) return;
    if (stop < end || e->faults) continue_with((void *)elinvar_execute_commands, e, stop - e->first, next);
}

// Begins a level: the launches of the half in which kernels have enqueued so far. Returns whether there are any.
static u32 begin_level(Execution *e) {
    Queue *queue = e->queue;
    // The kernels may have written anything to the header.
    u32 level = e->level, half = level & 1, count = queue->tickets[half];
    __syncthreads();
    if (thread() != 0) return count != 0 && count <= e->capacity && level < e->depth;
    e->first = half * e->capacity;
    if (count > e->capacity) {
        fail(e, OVERFLOW, count, queue->overflowing);
        return 0;
    }
    if (count == 0) return 0;
    if (level == e->depth) {
        fail(e, TOO_DEEP, e->first, 0);
        return 0;
    }
    e->level = level + 1;
    e->count = count;
    queue->half = 1 - half;
    queue->overflowing = queue->tickets[0] = queue->tickets[1] = 0;
    return 1;
}

// Launches what kernels have enqueued, from `next` on of this level, behind launches from `previous` on. 0, 0: the next level, behind all of the
// last one, or the first level behind the first launch.
KERNEL void elinvar_launch_nested(Execution *e, u32 next, u32 previous) {
    if (e->status->code || (e->root && e->root->taken)) return;
    if (next == 0) {
        if (e->level && !are_sound(e, e->first, e->first + e->count)) return;
        __syncthreads();
        if (!begin_level(e)) return;
        __syncthreads();
    } else if (!are_sound(e, e->first + previous, e->first + next)) {
        return;
    }
    u32 end = e->first + e->count, from = e->first + next, stop = lesser(end, from + MOST_LAUNCHES);
    if (!run(e, from, stop, 0)) return;
    if (stop < end)
        continue_with((void *)elinvar_launch_nested, e, stop - e->first, next);
    else
        continue_with((void *)elinvar_launch_nested, e, 0, 0);
}
