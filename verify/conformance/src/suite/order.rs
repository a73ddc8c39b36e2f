//! Guarantees between threadgroups: device atomics and fences, and the order in which threadgroups start.

use elinvar::{Device, Grid, Threadgroup};

use super::{CaseResult, expect_all, kernel, launch, run};

cases!("order": last_group_reduces, look_back, dispatches_in_order);

/// Every threadgroup stores its sum in device memory and increments a counter; the last one adds the sums.
fn last_group_reduces(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "last_sums",
        "kernel void last_sums(device const uint* in [[buffer(0)]], device uint* parts [[buffer(1)]],
                device atomic_uint* counter [[buffer(2)]], device uint* total [[buffer(3)]],
                threadgroup uint* shared [[threadgroup(0)]],
                uint i [[thread_position_in_grid]], uint local [[thread_position_in_threadgroup]],
                uint group [[threadgroup_position_in_grid]], uint groups [[threadgroups_per_grid]],
                uint threads [[threads_per_threadgroup]]) {
            threadgroup bool last;
            shared[local] = in[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            for (uint half_size = threads / 2u; half_size > 0u; half_size /= 2u) {
                if (local < half_size) shared[local] += shared[local + half_size];
                threadgroup_barrier(mem_flags::mem_threadgroup);
            }
            if (local == 0u) {
                parts[group] = shared[0];
                atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
                uint before = atomic_fetch_add_explicit(counter, 1u, memory_order_relaxed);
                last = before == groups - 1u;
            }
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (last) {
                atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
                if (local == 0u) {
                    uint sum = 0u;
                    for (uint g = 0u; g < groups; ++g) sum += parts[g];
                    *total = sum;
                }
            }
        }",
    )?;
    let (n, group) = (64 * 37, 64);
    let input: Vec<u32> = (0..n as u32).map(|i| i * 7919 % 1009).collect();
    let expected: u32 = input.iter().sum();
    let input = device.buffer_with_data(&input)?;
    let stream = device.stream()?;
    let mut totals = Vec::new();
    for _ in 0..1000 {
        let mut parts = device.buffer::<u32>(n / group)?;
        let mut counter = device.buffer::<u32>(1)?;
        let mut total = device.buffer::<u32>(1)?;
        let shared = Threadgroup::of::<u32>(group);
        let args = (&input, &mut parts, &mut counter, &mut total, shared);
        launch(&kernel, &stream, Grid::threads(n).group(group as u32), args)?;
        totals.push(total);
    }
    for (round, total) in totals.iter().enumerate() {
        assert_eq!(total.to_vec()?, [expected], "round {round}");
    }
    Ok(())
}

/// Each threadgroup waits until the previous one has published its prefix sum.
fn look_back(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "running_sums",
        "kernel void running_sums(device atomic_uint* sums [[buffer(0)]], device atomic_uint* ready [[buffer(1)]],
                uint local [[thread_position_in_threadgroup]], uint group [[threadgroup_position_in_grid]]) {
            if (local != 0u) return;
            uint before = 0u;
            if (group > 0u) {
                while (atomic_load_explicit(&ready[group - 1u], memory_order_relaxed) == 0u) {}
                atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
                before = atomic_load_explicit(&sums[group - 1u], memory_order_relaxed);
            }
            atomic_store_explicit(&sums[group], before + group, memory_order_relaxed);
            atomic_thread_fence(mem_flags::mem_device, memory_order_seq_cst, thread_scope_device);
            atomic_store_explicit(&ready[group], 1u, memory_order_relaxed);
        }",
    )?;
    let groups = 20_000;
    let mut sums = device.buffer::<u32>(groups)?;
    let mut ready = device.buffer::<u32>(groups)?;
    run(device, &kernel, Grid::threads(32 * groups).group(32), (&mut sums, &mut ready))?;
    expect_all(&sums.to_vec()?, |g| (g * (g + 1) / 2) as u32);
    Ok(())
}

fn dispatches_in_order(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "step_on",
        "kernel void step_on(device uint* data [[buffer(0)]], constant uint& k [[buffer(1)]],
                uint i [[thread_position_in_grid]], uint n [[threads_per_grid]]) {
            data[(k + 1u) * n + i] = 3u * data[k * n + (i + 1u) % n] + k;
        }",
    )?;
    let (n, steps) = (1000, 50);
    let mut host: Vec<u32> = (0..n as u32).collect();
    let mut data = device.buffer::<u32>(n * (steps + 1))?;
    data.slice_mut(0..n)?.write(&host)?;
    let stream = device.stream()?;
    for k in 0..steps as u32 {
        launch(&kernel, &stream, Grid::threads(n), (&mut data, k))?;
    }
    let all = data.to_vec()?;
    for k in 0..steps {
        host = (0..n).map(|i| host[(i + 1) % n].wrapping_mul(3).wrapping_add(k as u32)).collect();
        expect_all(&all[(k + 1) * n..(k + 2) * n], |i| host[i]);
    }
    Ok(())
}
