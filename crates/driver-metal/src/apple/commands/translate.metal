// Checks commands in memory, and encodes them into an indirect command buffer. The structs are those of `tables.rs`; the memory of the commands
// is not trusted. Only Metal's own names are used here, behind `records.h`.
using namespace metal;
using records_in_memory::header;
using records_in_memory::queue;
using records_in_memory::record;

struct Kernel {
    uint most_threads, most_size[3], own_memory, first_argument, arguments, unused;
};
enum argument_kinds : uint { may_be_null, not_null, threadgroup_memory, launch_port };
struct Argument {
    uint index, kind, writes, align;
    ulong size;
};
struct Used {
    ulong first, end, writes;
};
struct Inherited {
    ulong address, bytes;
    uint is_set, writes;
};
enum codes : uint { done, out_of_range, beyond, rejected, overflowing, too_deep };
struct State {
    uint code, index, error, first, count, level, has_ended;
    atomic_uint first_rejected;
    // Of the chunk that is translated: its first record, and its length.
    uint here, length;
    uint groups[3];
    uint range[2];
    uint unused;
    record copy;
};
struct Parameters {
    ulong zeros;
    uint capacity, used, kernels, max_memory, inherited_kernel, inherits_buffers;
    uint first, count, range_in_memory, chunk, most, depth;
    uint records_at, unused;
};
struct Target {
    command_buffer commands;
};
struct Entry {
    compute_pipeline_state state;
};

static void begin_chunk(device State& s, constant Parameters& p) {
    uint before = p.chunk * p.most;
    uint left = s.code == done && s.count > before ? min(s.count - before, p.most) : 0;
    s.here = s.first + before;
    s.length = left;
    s.groups[0] = (left + 63) / 64;
    s.groups[1] = s.groups[2] = 1;
    atomic_store_explicit(&s.first_rejected, ~0u, memory_order_relaxed);
}

kernel void begin_commands(device State& s [[buffer(0)]], constant Parameters& p [[buffer(1)]], device header& h [[buffer(2)]],
                           device const uint* range [[buffer(3)]]) {
    if (p.chunk == 0) {
        s.code = done;
        s.first = p.range_in_memory ? range[0] : p.first;
        s.count = p.range_in_memory ? range[1] : p.count;
        uint behind = atomic_load_explicit(&h.beyond, memory_order_relaxed);
        if (s.first > p.capacity || s.count > p.capacity - s.first) {
            s.code = out_of_range;
            s.index = s.first;
            s.error = s.count;
        } else if (behind != 0) {
            s.code = beyond;
            s.index = behind;
        }
    }
    begin_chunk(s, p);
}

kernel void begin_nested(device State& s [[buffer(0)]], device queue& q [[buffer(1)]]) {
    s.code = done;
    s.level = s.has_ended = s.first = s.count = 0;
    q.half_in_use = 0;
    for (uint i = 0; i < 2; ++i) atomic_store_explicit(&q.tickets[i], 0u, memory_order_relaxed);
    atomic_store_explicit(&q.overflowing, 0u, memory_order_relaxed);
}

// The launches that the level before has enqueued.
kernel void begin_level(device State& s [[buffer(0)]], constant Parameters& p [[buffer(1)]], device queue& q [[buffer(2)]],
                        device const record* records [[buffer(3)]]) {
    if (p.chunk == 0 && s.code == done && !s.has_ended) {
        uint current = q.half_in_use & 1;
        uint tickets = atomic_load_explicit(&q.tickets[current], memory_order_relaxed);
        s.first = current * p.capacity;
        s.count = tickets;
        if (tickets > p.capacity) {
            s.code = overflowing;
            s.index = atomic_load_explicit(&q.overflowing, memory_order_relaxed);
            s.error = tickets;
        } else if (tickets == 0) {
            s.has_ended = 1;
        } else if (s.level == p.depth) {
            s.code = too_deep;
            s.copy = records[s.first];
        } else {
            ++s.level;
            q.half_in_use = 1 - current;
            atomic_store_explicit(&q.tickets[1 - current], 0u, memory_order_relaxed);
        }
    }
    begin_chunk(s, p);
}

struct Bound {
    ulong address, bytes;
    bool is_valid;
};

static Bound bind(constant Parameters& p, device const record& r, device const Argument& argument, device const Used* used,
                  device const Inherited* inherited, device uchar* memory) {
    uint index = argument.index, bit = index < 31 ? 1u << index : 0;
    Bound none = {argument.kind == not_null ? p.zeros : 0, argument.kind == not_null ? argument.size : 0, true};
    Bound wrong = {0, 0, false};
    if (argument.kind == threadgroup_memory) {
        none.bytes = r.lengths_set & bit ? r.lengths[index] : 0;
        return none;
    }
    if (argument.kind == launch_port) {
        // Behind the queue's header, 16 bytes each.
        return {reinterpret_cast<ulong>(memory) + 64 + 16 * ulong(r.pipeline), 16, true};
    }
    if (p.inherits_buffers) {
        if (!bit || !inherited[index].is_set) return none;
        device const Inherited& from = inherited[index];
        if ((argument.writes && !from.writes) || from.bytes < argument.size || from.address % argument.align) return wrong;
        return {from.address, from.bytes, true};
    }
    if (!(r.buffers_set & bit)) return none;
    ulong word = r.buffers[index];
    if (r.values_set & bit) {
        ulong offset = uint(word), bytes = word >> 32;
        if (offset + bytes > 128 || argument.writes || bytes < argument.size) return wrong;
        ulong address = reinterpret_cast<ulong>(&r) + 448 + offset;
        return {address, bytes, address % argument.align == 0};
    }
    if (!word) return none;
    // Ranges may overlap, in ascending order: the last that allows the access counts.
    for (uint i = p.used; i-- > 0;) {
        if (word < used[i].first || word >= used[i].end || (argument.writes && !used[i].writes)) continue;
        ulong bytes = used[i].end - word;
        return {word, bytes, bytes >= argument.size && word % argument.align == 0};
    }
    return wrong;
}

// One thread for each command of the chunk.
kernel void translate(device State& s [[buffer(0)]], constant Parameters& p [[buffer(1)]], device uchar* memory [[buffer(2)]],
                      device const Kernel* kernels [[buffer(3)]], device const Argument* arguments [[buffer(4)]],
                      device const Used* used [[buffer(5)]], device const Inherited* inherited [[buffer(6)]],
                      device const Entry* entries [[buffer(7)]], constant Target& target [[buffer(8)]],
                      uint i [[thread_position_in_grid]]) {
    if (i >= s.length) return;
    uint at = s.here + i;
    device const record& r = *(device const record*)(memory + p.records_at + ulong(at) * 576);
    compute_command command(target.commands, i);
    command.reset();
    if (r.kind == records_in_memory::empty) return;
    uint number = p.inherited_kernel ? p.inherited_kernel : r.pipeline;
    bool is_valid = !r.misuse && r.kind <= records_in_memory::dispatch_threads && number - 1 < p.kernels;
    if (is_valid) {
        device const Kernel& k = kernels[number - 1];
        uint3 group(r.group[0], r.group[1], r.group[2]), threads(r.grid[0], r.grid[1], r.grid[2]);
        ulong volume = ulong(group.x) * group.y;
        is_valid = volume <= k.most_threads && volume * group.z <= k.most_threads;
        for (uint d = 0; d < 3; ++d) {
            is_valid = is_valid && group[d] - 1 < k.most_size[d];
            ulong along = r.kind == records_in_memory::dispatch_threadgroups ? ulong(threads[d]) * group[d] : threads[d];
            is_valid = is_valid && along >> 32 == 0;
            threads[d] = uint(along);
        }
        ulong given = 0;
        for (uint a = 0; a < k.arguments && is_valid; ++a) {
            device const Argument& argument = arguments[k.first_argument + a];
            Bound bound = bind(p, r, argument, used, inherited, memory);
            is_valid = bound.is_valid;
            if (argument.kind == threadgroup_memory) given += (bound.bytes + 15) / 16 * 16;
        }
        is_valid = is_valid && k.own_memory + given <= p.max_memory;
        if (is_valid && threads.x && threads.y && threads.z) {
            command.set_compute_pipeline_state(entries[number - 1].state);
            for (uint a = 0; a < k.arguments; ++a) {
                device const Argument& argument = arguments[k.first_argument + a];
                Bound bound = bind(p, r, argument, used, inherited, memory);
                if (argument.kind == threadgroup_memory) {
                    command.set_threadgroup_memory_length(max(uint((bound.bytes + 15) / 16 * 16), 16u), argument.index);
                } else if (bound.address) {
                    command.set_kernel_buffer(reinterpret_cast<device uchar*>(bound.address), argument.index);
                }
            }
            if (r.flags & records_in_memory::barrier) command.set_barrier();
            command.concurrent_dispatch_threads(threads, group);
        }
    }
    if (!is_valid) atomic_fetch_min_explicit(&s.first_rejected, at, memory_order_relaxed);
}

// The range of the chunk to execute: up to the first command that is rejected.
kernel void end_chunk(device State& s [[buffer(0)]], constant Parameters& p [[buffer(1)]], device const uchar* memory [[buffer(2)]]) {
    uint wrong = atomic_load_explicit(&s.first_rejected, memory_order_relaxed);
    s.range[0] = 0;
    s.range[1] = s.length;
    if (s.code != done || wrong == ~0u) return;
    s.code = rejected;
    s.index = wrong;
    s.range[1] = wrong - s.here;
    s.copy = *(device const record*)(memory + p.records_at + ulong(wrong) * 576);
}
