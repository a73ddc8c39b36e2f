//! Launch features: suggested sizes, labels in errors, the trace, deadlines.

use std::sync::PoisonError;
use std::time::Duration;

use elinvar::{Arg, Device, Error, Grid, Source, StopsAt};

use super::{CaseResult, TRACE, expect_all, kernel, launch};

cases!("pipeline": chosen_sizes_reach_every_thread_once, suggestions_are_as_launched,
    the_largest_threadgroup_takes_constants_from_anywhere, a_fault_names_its_launch, the_trace_is_in_order,
    a_deadline_stops_a_long_launch, a_deadline_stops_endless_loops);

/// Each thread increments its element, and all other elements stay unchanged.
fn chosen_sizes_reach_every_thread_once(device: &Device) -> CaseResult {
    let body = "kernel void once(device atomic_uint* out [[buffer(0)]], constant uint3& n [[buffer(1)]],
                uint3 p [[thread_position_in_grid]]) {
            atomic_fetch_add_explicit(&out[(p.z * n.y + p.y) * n.x + p.x], 1u, memory_order_relaxed); }";
    let once = kernel(device, "once", body)?;
    let stream = device.stream()?;
    for (x, y, z) in
        [(1, 1, 1), (1000, 1, 1), (1, 777, 1), (3, 500, 1), (65, 33, 1), (9, 9, 9), (1, 1, 70), (2, 40, 3)]
    {
        let mut out = device.buffer::<u32>(x * y * z + 50)?;
        let n = elinvar::Dim3::new(x as u32, y as u32, z as u32);
        launch(&once, &stream, Grid::threads((x, y, z)), (&mut out, n))?;
        expect_all(&out.to_vec()?, |i| u32::from(i < x * y * z));
    }
    Ok(())
}

fn suggestions_are_as_launched(device: &Device) -> CaseResult {
    let body = "kernel void size(device uint3* out [[buffer(0)]], uint3 s [[threads_per_threadgroup]],
                uint i [[thread_index_in_threadgroup]]) { if (i == 0) out[0] = s; }";
    let size = kernel(device, "size", body)?;
    let stream = device.stream()?;
    let caps = device.caps();
    for grid in [(4096, 1, 1), (512, 512, 1), (64, 64, 64)] {
        let suggestion = size.suggest(grid)?;
        let mut out = device.buffer::<[u32; 4]>(1)?;
        launch(&size, &stream, Grid::threads(grid), (&mut out,))?;
        let [x, y, z, _] = out.to_vec()?[0];
        assert_eq!(suggestion.group.to_array(), [x, y, z], "{suggestion}");
        assert!((x * y * z).is_multiple_of(caps.limits.simdgroup_width), "{suggestion}");
        assert!(
            x * y * z <= size.max_threads_per_threadgroup() && !suggestion.reason.is_empty(),
            "{suggestion}"
        );
    }
    Ok(())
}

/// A back end may have code for constants in the launch and other code, with more registers, for those in a buffer: both run in threadgroups of the size that the
/// kernel promises.
fn the_largest_threadgroup_takes_constants_from_anywhere(device: &Device) -> CaseResult {
    const VALUES: usize = 24;
    let body = format!(
        "struct Factors {{ uint product[{VALUES}]; uint mask[{VALUES}]; }};
        kernel void iterate(device uint* out [[buffer(0)]], constant Factors& f [[buffer(1)]], constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {{
            uint a[{VALUES}];
            #pragma unroll
            for (uint k = 0; k < {VALUES}; ++k) a[k] = i + k;
            for (uint j = 0; j < n; ++j) {{
                #pragma unroll
                for (uint k = 0; k < {VALUES}; ++k) a[k] = a[k] * f.product[k] + (a[(k + 5) % {VALUES}] ^ f.mask[k]);
            }}
            uint sum = 0;
            #pragma unroll
            for (uint k = 0; k < {VALUES}; ++k) sum = sum * 31 + a[k];
            out[i] = sum;
        }}"
    );
    let iterate = kernel(device, "iterate", &body)?;
    let group = iterate.max_threads_per_threadgroup().min(device.caps().limits.max_threads_per_threadgroup);
    let (threads, rounds) = (2 * group, 7_u32);
    let factors: [[u32; VALUES]; 2] = std::array::from_fn(|half| {
        std::array::from_fn(|k| ((half * VALUES + k) as u32).wrapping_mul(0x9e37_79b9) | 1)
    });
    let expected = |i: usize| {
        let mut a: Vec<u32> = (0..VALUES).map(|k| (i + k) as u32).collect();
        for k in (0..rounds).flat_map(|_| 0..VALUES) {
            let other = a[(k + 5) % VALUES] ^ factors[1][k];
            a[k] = a[k].wrapping_mul(factors[0][k]).wrapping_add(other);
        }
        a.iter().fold(0_u32, |sum, a| sum.wrapping_mul(31).wrapping_add(*a))
    };
    let stream = device.stream()?;
    let grid = || Grid::threads(threads as usize).group(group as usize);
    let mut out = device.buffer::<u32>(threads as usize)?;
    launch(&iterate, &stream, grid(), (&mut out, Arg::value(&factors), rounds))?;
    expect_all(&out.to_vec()?, expected);
    out.write(&vec![0; threads as usize])?;
    let held = device.buffer_with_data(&[factors])?;
    launch(&iterate, &stream, grid(), (&mut out, &held, rounds))?;
    expect_all(&out.to_vec()?, expected);
    Ok(())
}

fn a_fault_names_its_launch(device: &Device) -> CaseResult {
    let text = "kernel void outside(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1u; }";
    let checked = device.compile(Source::named("outside.metal", text))?.checked_kernel("outside")?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(4)?;
    let failed = checked.labeled("third", 3).launch(&stream, Grid::threads(8), (&mut x,))?.wait();
    let text = failed.err().map(|error| error.to_string()).unwrap_or_default();
    let access = if device.caps().features.names_accesses { "write" } else { "an access" };
    let expected = format!("kernel `outside`, launch `third` (3) at outside.metal:1: {access}");
    assert!(text.starts_with(&expected), "{text}");
    Ok(())
}

fn the_trace_is_in_order(device: &Device) -> CaseResult {
    // The driver has one device, so other cases may run on it concurrently.
    let empty = kernel(device, "empty", "kernel void empty() {}")?.labeled("traced", 99);
    let stream = device.stream()?;
    let _alone = TRACE.lock().unwrap_or_else(PoisonError::into_inner);
    device.trace().start(100_000);
    launch(&empty, &stream, Grid::threads(1), ())?.wait()?;
    let events = device.trace().events();
    device.trace().stop();
    let mine = events.iter().find(|event| event.to_string().ends_with("launch `traced` (99)"));
    let mine = mine.ok_or("the launch is not in the trace")?.submission;
    let names: Vec<_> =
        events.iter().filter(|event| event.submission == mine).map(|event| event.step.name()).collect();
    let all = ["acquire", "encode", "bind", "size", "dispatch", "end", "commit", "complete", "release"];
    assert_eq!(names, all);
    Ok(())
}

fn a_deadline_stops_a_long_launch(device: &Device) -> CaseResult {
    const GROUPS: u32 = 4_000_000;
    let body = "kernel void slow(device uint* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            uint x = i;
            for (uint k = 0; k < 100000; ++k) x = x * 1664525u + 1013904223u ^ (x >> 3);
            out[i % 64] = x | 1u; }";
    let slow = kernel(device, "slow", body)?;
    let stream = device.stream()?;
    let mut out = device.buffer::<u32>(64)?;
    let mut commands = stream.command_buffer();
    if device.caps().features.stops_at == StopsAt::Never {
        return Err(Error::unsupported("this device cannot stop running work, and would be lost").into());
    }
    commands.deadline(Duration::from_millis(50))?;
    // SAFETY: the kernel writes 64 elements, which is the size of the buffer. Threads race with plain stores of words, whose values are not
    // used.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch(&slow, Grid::groups(GROUPS).group(1), (&mut out,))?;
    }
    // Without the deadline it would take minutes.
    let ended = commands.submit()?.wait();
    assert!(matches!(&ended, Err(Error::Timeout(text)) if text.starts_with("kernel `slow`")), "{ended:?}");
    assert!(matches!(out.to_vec(), Err(Error::Poisoned(_))));
    assert!(matches!(stream.acknowledge(), Some(Error::Timeout(_))));
    stream.fill(&mut out, 3)?;
    expect_all(&out.to_vec()?, |_| 3);
    Ok(())
}

/// Loops that end only when the host or another thread writes, which never happens: in all threads, in some, with a barrier inside, nested,
/// in threads that exchange values, and in functions that are not inlined.
const ENDLESS: &str = "#include <metal_stdlib>
using namespace metal;

kernel void together(device atomic_uint* flag, uint i [[thread_position_in_grid]]) {
    while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {}
    atomic_store_explicit(flag + 1, 1u, memory_order_relaxed);
}
kernel void apart(device atomic_uint* flag, uint i [[thread_position_in_grid]]) {
    if (i % 3 == 1) while (atomic_load_explicit(flag + i % 2 * 0, memory_order_relaxed) < i) {}
    atomic_store_explicit(flag + 2, 1u, memory_order_relaxed);
}
kernel void barriers(device atomic_uint* flag, uint i [[thread_position_in_threadgroup]]) {
    threadgroup uint shared[64];
    shared[i] = 0u;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    while (shared[0] < 1000000u) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        if (i == 0) shared[0] = atomic_load_explicit(flag, memory_order_relaxed);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    atomic_store_explicit(flag + 1, 1u, memory_order_relaxed);
}
kernel void nested(device atomic_uint* flag, uint i [[thread_position_in_grid]]) {
    for (uint k = 0; atomic_load_explicit(flag, memory_order_relaxed) == 0; ++k)
        for (uint n = 0; n < k % 16 + i % 8; ++n)
            atomic_fetch_add_explicit(flag + 2, n, memory_order_relaxed);
    atomic_store_explicit(flag + 1, 1u, memory_order_relaxed);
}
kernel void votes(device atomic_uint* flag, uint i [[thread_position_in_grid]]) {
    while (simd_any(atomic_load_explicit(flag, memory_order_relaxed) + i == i)) {}
    atomic_store_explicit(flag + 1, 1u, memory_order_relaxed);
}
__attribute__((noinline)) uint until(device atomic_uint* flag, uint wanted) {
    uint rounds = 1;
    while (atomic_load_explicit(flag, memory_order_relaxed) < wanted) ++rounds;
    return rounds;
}
__attribute__((noinline)) uint twice(device atomic_uint* flag, uint wanted) {
    return until(flag, wanted) + until(flag, wanted + 1);
}
kernel void called(device atomic_uint* flag, uint i [[thread_position_in_grid]]) {
    uint rounds = until(flag, i % 4);
    if (rounds != 0) atomic_store_explicit(flag + 2, 1u, memory_order_relaxed);
}
kernel void called_within(device atomic_uint* flag, uint i [[thread_position_in_grid]]) {
    if (i % 2 == 1) {
        uint rounds = twice(flag, i % 8);
        atomic_store_explicit(flag + 1 + rounds % 2, 1u, memory_order_relaxed);
    }
}";

fn a_deadline_stops_endless_loops(device: &Device) -> CaseResult {
    if device.caps().features.stops_at != StopsAt::Loops {
        return Err(Error::unsupported("this device cannot stop a thread within a loop").into());
    }
    let library = device.compile(Source::msl(ENDLESS))?;
    let stream = device.stream()?;
    for name in ["together", "apart", "barriers", "nested", "votes", "called", "called_within"] {
        let endless = library.kernel(name)?;
        let mut flag = device.buffer::<u32>(3)?;
        let mut commands = stream.command_buffer();
        commands.deadline(Duration::from_millis(20))?;
        // SAFETY: the kernels access three words with atomic operations, which is the size of the buffer.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&endless, Grid::threads(256).group(64), (&mut flag,))?;
        }
        let ended = commands.submit()?.wait();
        let message = format!("kernel `{name}`: ");
        assert!(
            matches!(&ended, Err(Error::Timeout(text)) if text.starts_with(&message)),
            "{name}: {ended:?}"
        );
        assert!(matches!(stream.acknowledge(), Some(Error::Timeout(_))), "{name}");
        // The stream remains usable.
        stream.fill(&mut flag, 7)?;
        let passing = library.kernel("together")?;
        let done = launch(&passing, &stream, Grid::threads(256).group(64), (&mut flag,))?;
        done.wait()?;
        assert_eq!(flag.to_vec()?, [7, 1, 7], "{name}");
    }
    Ok(())
}
