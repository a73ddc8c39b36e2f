// Commands in memory, as Metal's compiler reads them. The layouts are those of the contract's modules `indirect` and `nested`.
#ifndef ELINVAR_RECORDS
#define ELINVAR_RECORDS
#include <metal_stdlib>

namespace records_in_memory {
struct header {
    uint capacity;
    uint max_buffers;
    uint flags;
    uint pipelines;
    metal::atomic_uint beyond;
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

struct queue {
    uint capacity;
    uint pipelines;
    uint half_in_use;
    metal::atomic_uint overflowing;
    metal::atomic_uint tickets[2];
    uint unused0[2];
    device record* records;
    uint unused1[6];
};
static_assert(sizeof(header) == 64 && sizeof(record) == 576 && sizeof(queue) == 64, "the layout of the contract");

enum kinds : uint { empty = 0, dispatch_threadgroups = 1, dispatch_threads = 2 };
enum flag : uint { inherits_buffers = 1, inherits_pipeline = 2, barrier = 1 };
enum misuses : uint {
    misused_buffer = 1,
    misused_inherited_buffers = 2,
    misused_inherited_pipeline = 3,
    misused_length = 4,
    misused_payload = 5
};
} // namespace records_in_memory
#endif
