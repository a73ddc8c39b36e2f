// A management library with one GPU of fixed values, for tests. NVML's API reference has the functions.
//   -DONLY_HANDLES  an old library: everything but initialization and handles is missing
//   -DFAILS=CODE    every function behind the handles returns CODE
//   -DDIVIDED       CUDA's UUID is that of an instance (MIG)
//   -DHOSTILE       values that are out of range
#ifndef FAILS
#define FAILS 0
#endif
#ifdef HOSTILE
#define OR(value, hostile) hostile
#else
#define OR(value, hostile) value
#endif

typedef unsigned u32;
typedef unsigned long long u64;
enum { UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static int gpu, instance;
static u32 calls;

static int same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
#define UUID "00112233-4455-6677-8899-aabbccddeeff"
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
#ifdef DIVIDED
    if (!same(uuid, "MIG-" UUID)) return NOT_FOUND;
    *device = &instance;
#else
    if (!same(uuid, "GPU-" UUID)) return NOT_FOUND;
    *device = &gpu;
#endif
    return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char *place, void **device) {
    if (!same(place, "00000000:1b:00.0")) return NOT_FOUND;
    *device = &gpu;
    return 0;
}

#ifndef ONLY_HANDLES
// A function of the whole GPU, which rejects instances as NVML does.
#define OF_GPU(name, args, ...) \
    int name args { if (device != &gpu) return INVALID; if (FAILS) return FAILS; __VA_ARGS__; return 0; }

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *device, void **parent) {
    if (device != &instance) return INVALID;
    *parent = &gpu;
    return 0;
}
struct memory { u32 version; u64 total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    if (FAILS) return FAILS;
    u64 total = device == &instance ? 10ull << 30 : 80ull << 30;
    memory->total = total, memory->reserved = 1 << 20, memory->used = total / 4, memory->free = total - total / 4;
    return 0;
}
OF_GPU(nvmlDeviceGetTotalEnergyConsumption, (void *device, u64 *millijoules), *millijoules = 123456)
OF_GPU(nvmlDeviceGetPowerUsage, (void *device, u32 *milliwatts), *milliwatts = 250500)
OF_GPU(nvmlDeviceGetEnforcedPowerLimit, (void *device, u32 *milliwatts), *milliwatts = OR(700000, 0))
OF_GPU(nvmlDeviceGetTemperature, (void *device, int sensor, u32 *celsius), *celsius = 41)
OF_GPU(nvmlDeviceGetTemperatureThreshold, (void *device, int which, u32 *celsius),
       if (which > 3) return INVALID; static const u32 limits[] = {92, 89, 95, 87}; *celsius = OR(limits[which], 0))
OF_GPU(nvmlDeviceGetUtilizationRates, (void *device, u32 *rates), rates[0] = OR(75, 101); rates[1] = OR(30, 4000000000u))
OF_GPU(nvmlDeviceGetClockInfo, (void *device, int clock, u32 *mhz), *mhz = clock == 1 ? 1755 : clock == 2 ? 2619 : 0)
OF_GPU(nvmlDeviceGetMaxClockInfo, (void *device, int clock, u32 *mhz), *mhz = clock == 1 ? 1980 : clock == 2 ? 2619 : 0)
OF_GPU(nvmlDeviceGetCurrentClocksThrottleReasons, (void *device, u64 *reasons), *reasons = OR(0x4ull, ~0ull))
OF_GPU(nvmlDeviceGetTotalEccErrors, (void *device, int error, int counter, u64 *count), *count = OR(1 + error * 10 + counter, ~0ull))
OF_GPU(nvmlDeviceGetPcieReplayCounter, (void *device, u32 *count), *count = 3)
OF_GPU(nvmlDeviceGetCurrPcieLinkGeneration, (void *device, u32 *value), *value = 4)
OF_GPU(nvmlDeviceGetMaxPcieLinkGeneration, (void *device, u32 *value), *value = 5)
OF_GPU(nvmlDeviceGetCurrPcieLinkWidth, (void *device, u32 *value), *value = 8)
OF_GPU(nvmlDeviceGetMaxPcieLinkWidth, (void *device, u32 *value), *value = 16)
OF_GPU(nvmlDeviceGetNvLinkState, (void *device, u32 link, u32 *up), if (link > 1) return INVALID; *up = OR(link == 0, 7))
OF_GPU(nvmlDeviceGetNvLinkVersion, (void *device, u32 link, u32 *version), *version = 6)
OF_GPU(nvmlDeviceGetNvLinkErrorCounter, (void *device, u32 link, int counter, u64 *count),
       if (counter == 3) return NOT_SUPPORTED; *count = link * 100 + counter)

struct field { u32 id, scope; long long timestamp, latency; u32 type, result; union { double d; u32 u; u64 ull; } value; };
OF_GPU(nvmlDeviceGetFieldValues, (void *device, int count, struct field *fields),
       for (int i = 0; i < count; i++) {
           struct field *field = &fields[i];
           field->result = 0;
           field->type = 3;
           switch (field->id) {
           case 82: field->type = 1; field->value.u = 55; break;
           case 90: field->type = 1; field->value.u = 26562; break;
           case 138: field->value.ull = 1000 + field->scope; break;
           case 139: field->value.ull = 2000 + field->scope; break;
           case 197: field->type = OR(3, 99); field->value.ull = 5000000000ull + 1000 * calls; break;
           case 198:
               field->type = OR(1, 0);
               if (OR(0, 1)) field->value.d = __builtin_nan("");
               else field->value.u = 0xffffff00u + 0x200 * calls; // wraps at the second call
               calls++;
               break;
           default: field->result = NOT_SUPPORTED;
           }
       })
#endif
