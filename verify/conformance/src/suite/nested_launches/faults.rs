//! Launches without room, below the last level, invalid or failing, and nested launches that end early.

use std::time::Duration;

use elinvar::{Arg, Device, Error, Graph, Grid, LaunchQueue};

use super::{HALVE, halvings, kernels, library, nested};
use crate::suite::{CaseResult, expect_all, expect_fault, launch, logging, refused};

cases!("nested_launches": room_for_launches, depth, a_fault_in_a_child, invalid_launches, log_lines, a_deadline_within_a_child,
    a_deadline_of_endless_levels, cancelled, wrong_arguments, random_launches);

const FAN: &str = "
    kernel void leaf(device atomic_uint* x) { atomic_fetch_add_explicit(x, 1u, memory_order_relaxed); }
    kernel void fan(device elinvar::launch_queue& queue, device atomic_uint* x, constant uint& kernel_index) {
        elinvar::launch next(queue);
        next.set_kernel(kernel_index);
        next.set_buffer(x, kernel_index == 0 ? 0 : 1);
        next.set_value(0u, 2);
        next.dispatch_threads(kernel_index == 0 ? 1 : 10, 1);
    }";

fn room_for_launches(device: &Device) -> CaseResult {
    let [fan, leaf] = kernels(device, FAN, ["fan", "leaf"])?;
    let mut queue = LaunchQueue::new(device, 32, 3, &[&leaf, &fan])?;
    let mut x = device.buffer::<u32>(1)?;
    let stream = device.stream()?;
    nested(&fan, &stream, &mut queue, Grid::threads(32), (&mut x, 0_u32))?;
    assert_eq!(x.to_vec()?, [32]);
    // The host's launch, and launches of the first level, each with room but together without.
    for (threads, index, least) in
        [(33, 0_u32, "33 launches"), (5000, 0, "5000 launches"), (4, 1, "40 launches")]
    {
        let ended = nested(&fan, &stream, &mut queue, Grid::threads(threads), (&mut x, index))?.wait();
        expect_fault(ended, "fan", &[least, "room for 32"]);
        stream.acknowledge();
    }
    // Afterwards, the queue is as before.
    x.fill(0)?;
    nested(&fan, &stream, &mut queue, Grid::threads(3), (&mut x, 1_u32))?;
    assert_eq!(x.to_vec()?, [30]);
    Ok(())
}

fn depth(device: &Device) -> CaseResult {
    let [halve] = kernels(device, HALVE, ["halve"])?;
    let stream = device.stream()?;
    let n = 100_usize;
    let mut x = device.buffer::<u32>(n)?;
    for depth in [0_u32, 3, 5] {
        let mut queue = LaunchQueue::new(device, 1, depth, &[&halve])?;
        let grid = || Grid::threads(n).group(32);
        let ended = nested(&halve, &stream, &mut queue, grid(), (&mut x, n as u32))?.wait();
        let (level, limit) = (format!("level {}", depth + 1), format!("depth is {depth}"));
        expect_fault(ended, "halve", &[&level, &limit]);
        stream.acknowledge();
    }
    let mut queue = LaunchQueue::new(device, 1, 6, &[&halve])?;
    x.fill(0)?;
    nested(&halve, &stream, &mut queue, Grid::threads(n).group(32), (&mut x, n as u32))?;
    expect_all(&x.to_vec()?, |i| halvings(i, n));
    Ok(())
}

/// A child with bounds checks, whose buffers are as long as the rest of what the host gave.
fn a_fault_in_a_child(device: &Device) -> CaseResult {
    let body = "
        kernel void write(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = 5; }
        kernel void parent(device elinvar::launch_queue& queue, device uint* x, constant uint& n, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(x + 10 * i, 0);
            next.dispatch_threads(i == 2 ? n : 10, 32);
        }";
    let library = library(device, "parent", body)?;
    let parent = library.kernel("parent")?;
    LaunchQueue::new(device, 1, 1, &[&parent])?;
    let write = library.checked_kernel("write")?;
    let mut queue = LaunchQueue::new(device, 3, 1, &[write.as_kernel()])?;
    let mut x = device.buffer::<u32>(50)?;
    let stream = device.stream()?;
    let parent = parent.labeled("outer", 3);
    nested(&parent, &stream, &mut queue, Grid::threads(3), (x.slice_mut(0..40)?, 20_u32))?.wait()?;
    expect_all(&x.to_vec()?, |i| if i < 40 { 5 } else { 0 });
    let ended = nested(&parent, &stream, &mut queue, Grid::threads(3), (x.slice_mut(0..40)?, 21_u32))?.wait();
    let Err(Error::Fault(fault)) = ended else { panic!("{ended:?}") };
    assert_eq!(fault.kernel, "write");
    assert_eq!(fault.launch.as_ref().map(|label| label.to_string()), Some("`outer` (3)".into()));
    if device.caps().features.names_accesses {
        for part in ["of level 1, by kernel `parent`", "element 20", "argument 0 `x`", "20 elements"] {
            assert!(fault.message.contains(part), "`{part}` is missing in: {fault}");
        }
    }
    Ok(())
}

fn invalid_launches(device: &Device) -> CaseResult {
    let body = "
        kernel void write(device uint* x [[buffer(0)]], constant uint& n [[buffer(1)]], threadgroup uint* t [[threadgroup(0)]],
                          uint i [[thread_position_in_grid]]) { t[0] = n; x[i] = t[0]; }
        struct Wide { uint4 all[4]; };
        kernel void parent(device elinvar::launch_queue& queue, device uint* x, device const uint* read_only, constant uint& which) {
            elinvar::launch next(queue);
            next.set_kernel(which == 1 ? 1 : which == 2 ? 4000000000u : 0);
            next.set_buffer(x, 0);
            next.set_value(1u, 1);
            next.set_threadgroup_memory_length(which == 3 ? 1u << 30 : 16, 0);
            if (which == 4) next.set_buffer((device uint*)read_only, 0);
            if (which == 5) next.set_buffer((device uint*)1024ul, 0);
            if (which == 6) next.set_buffer((device uint*)((device uchar*)x + 2), 0);
            if (which == 7) next.set_buffer(x, 31);
            if (which == 8) { next.set_value(Wide{}, 3); next.set_value(Wide{}, 4); }
            if (which == 9) next.set_threadgroup_memory_length(16, 40);
            if (which == 10) next.set_value(uchar(1), 1);
            if (which == 11) next.set_value(1u, 0);
            next.dispatch_threads(which == 12 ? 0xffffffffu : 4, which == 13 ? 0 : which == 14 ? 5000 : 4);
            if (which == 12) next.dispatch_threadgroups(0xffffffffu, 4);
        }";
    let [parent, write] = kernels(device, body, ["parent", "write"])?;
    let mut queue = LaunchQueue::new(device, 1, 1, &[&write])?;
    let (mut x, y) = (device.buffer::<u32>(4)?, device.buffer::<u32>(4)?);
    let stream = device.stream()?;
    nested(&parent, &stream, &mut queue, Grid::threads(1), (&mut x, &y, 0_u32))?.wait()?;
    expect_all(&x.to_vec()?, |_| 1);
    let place = "launch 0 of level 1, by kernel `parent`";
    let parts: &[(&str, &[&str])] = &[
        ("execute_commands", &["kernel number 2", "1 to 1"]),
        ("execute_commands", &["kernel number 4000000001"]),
        ("write", &["bytes of threadgroup memory"]),
        ("write", &["argument 0 `x`", "for reads only"]),
        ("write", &["argument 0 `x`", "address 0x400"]),
        ("write", &["argument 0 `x`", "not a multiple of 4"]),
        ("execute_commands", &["an index of 31 or more"]),
        ("execute_commands", &["more than 128 bytes"]),
        ("execute_commands", &["threadgroup memory with an index of 31"]),
        ("write", &["argument 1 `n`", "at least 4 bytes, given 1"]),
        ("write", &["argument 0 `x`", "cannot be a value"]),
        ("write", &["4294967295×1×1 threadgroups"]),
        ("write", &["threadgroups of 0×1×1"]),
        ("write", &["threadgroups of 5000×1×1"]),
    ];
    for (which, (kernel, parts)) in (1_u32..).zip(parts) {
        let ended = nested(&parent, &stream, &mut queue, Grid::threads(1), (&mut x, &y, which))?.wait();
        expect_fault(ended, kernel, &[&[place], *parts].concat());
        stream.acknowledge();
    }
    expect_all(&y.to_vec()?, |_| 0);
    Ok(())
}

fn log_lines(device: &Device) -> CaseResult {
    let body = "
        #include <metal_logging>
        kernel void nested_child(constant uint& n, uint i [[thread_position_in_grid]]) { os_log_default.log_info(\"%u of %u\", i, n); }
        kernel void nested_parent(device elinvar::launch_queue& queue, uint i [[thread_position_in_grid]]) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_value(i, 0);
            next.dispatch_threads(i, 4);
        }";
    drop(device.on_log(|_| {})?);
    let [parent, child] = kernels(device, body, ["nested_parent", "nested_child"])?;
    let mut queue = LaunchQueue::new(device, 4, 1, &[&child])?;
    let stream = device.stream()?;
    let lines = logging::lines(device, "nested_child", || {
        nested(&parent, &stream, &mut queue, Grid::threads(4), ())?.wait().map(drop)
    })?;
    let mut messages: Vec<String> = lines.into_iter().map(|line| line.message).collect();
    messages.sort();
    assert_eq!(messages, ["0 of 1", "0 of 2", "0 of 3", "1 of 2", "1 of 3", "2 of 3"]);
    Ok(())
}

fn a_deadline_within_a_child(device: &Device) -> CaseResult {
    let body = "
        kernel void forever(device uint* x, uint i [[thread_position_in_grid]]) { while (x[0] != 77) x[i + 1] += 1; }
        kernel void parent(device elinvar::launch_queue& queue, device uint* x) {
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(x, 0);
            next.dispatch_threads(64, 32);
        }";
    let [parent, forever] = kernels(device, body, ["parent", "forever"])?;
    let mut queue = LaunchQueue::new(device, 1, 1, &[&forever])?;
    if device.caps().features.stops_at != elinvar::StopsAt::Loops {
        return Err(Error::unsupported("this device cannot stop a thread within a loop").into());
    }
    let mut x = device.buffer::<u32>(65)?;
    let stream = device.stream()?;
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_millis(30))?;
    // SAFETY: a thread accesses the first word and its own.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch_nested(&mut queue, &parent, Grid::threads(1), (&mut x,))?;
    }
    let ended = commands.submit()?.wait();
    assert!(matches!(&ended, Err(Error::Timeout(text)) if text.starts_with("kernel `parent`")), "{ended:?}");
    stream.acknowledge();
    x.fill(77)?;
    nested(&parent, &stream, &mut queue, Grid::threads(1), (&mut x,))?.wait()?;
    expect_all(&x.to_vec()?, |_| 77);
    Ok(())
}

fn a_deadline_of_endless_levels(device: &Device) -> CaseResult {
    let body = "
        kernel void again(device elinvar::launch_queue& queue, device uint* x) {
            x[0] += 1;
            elinvar::launch next(queue);
            next.set_kernel(0);
            next.set_buffer(x, 1);
            next.dispatch_threads(1, 1);
        }";
    let [again] = kernels(device, body, ["again"])?;
    let mut queue = LaunchQueue::new(device, 1, u32::MAX, &[&again])?;
    if device.caps().features.stops_at == elinvar::StopsAt::Never {
        return Err(Error::unsupported("this device cannot stop running work").into());
    }
    let mut x = device.buffer::<u32>(1)?;
    let stream = device.stream()?;
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_millis(100))?;
    // SAFETY: one element.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch_nested(&mut queue, &again, Grid::threads(1).group(1), (&mut x,))?;
    }
    let ended = commands.submit()?.wait();
    assert!(matches!(&ended, Err(Error::Timeout(_))), "{ended:?}");
    stream.acknowledge();
    let mut few = LaunchQueue::new(device, 1, 9, &[&again])?;
    let ended = nested(&again, &stream, &mut few, Grid::threads(1).group(1), (&mut x,))?.wait();
    expect_fault(ended, "again", &["level 10", "depth is 9"]);
    Ok(())
}

fn cancelled(device: &Device) -> CaseResult {
    let [halve] = kernels(device, HALVE, ["halve"])?;
    let mut queue = LaunchQueue::new(device, 1, 8, &[&halve])?;
    let n = 64_usize;
    let mut x = device.buffer::<u32>(n)?;
    let (stream, event) = (device.stream()?, device.event()?);
    let mut commands = stream.command_buffer();
    commands.wait_for(&event, 1);
    // SAFETY: within the buffer.
    #[allow(unsafe_code)]
    unsafe {
        commands.launch_nested(&mut queue, &halve, Grid::threads(n).group(32), (&mut x, n as u32))?;
    }
    let first = commands.submit()?;
    let second = nested(&halve, &stream, &mut queue, Grid::threads(n).group(32), (&mut x, n as u32))?;
    assert!(second.cancel());
    event.signal(1);
    first.wait()?;
    assert!(matches!(second.wait(), Err(Error::Cancelled)));
    expect_all(&x.to_vec()?, |i| halvings(i, n));
    Ok(())
}

fn wrong_arguments(device: &Device) -> CaseResult {
    let body = format!(
        "{HALVE}\nkernel void plain(device uint* x, uint i [[thread_position_in_grid]]) {{ x[i] = i; }}"
    );
    let [halve, plain] = kernels(device, &body, ["halve", "plain"])?;
    let mut queue = LaunchQueue::new(device, 4, 2, &[&halve])?;
    let mut x = device.buffer::<u32>(8)?;
    let stream = device.stream()?;
    let threads = || Grid::threads(8).group(32);
    let words = device.buffer::<u32>(4)?;
    let bytes = device.buffer::<u8>(64)?;
    refused(LaunchQueue::new(device, 0, 1, &[&halve]), "0 launches of 1 kernels");
    refused(LaunchQueue::new(device, 1, 1, &[]), "1 launches of 0 kernels");
    refused(nested(&plain, &stream, &mut queue, threads(), (&mut x,)), "it has no launch queue");
    refused(nested(&halve, &stream, &mut queue, threads(), (&mut x,)), "takes 3 arguments");
    refused(nested(&halve, &stream, &mut queue, threads(), (&x, 8_u32)), "argument 1 `x`");
    refused(launch(&halve, &stream, threads(), (&words, &mut x, 8_u32)), "launched by `launch_nested`");
    refused(launch(&halve, &stream, threads(), (&bytes, &mut x, 8_u32)), "launched by `launch_nested`");
    refused(
        launch(&halve, &stream, threads(), (Arg::bytes([0; 16]), &mut x, 8_u32)),
        "the kernel may write to it",
    );
    refused(
        launch(&halve, &stream, threads(), (Arg::unbound(), &mut x, 8_u32)),
        "launched by `launch_nested`",
    );
    let mut graph = Graph::new();
    // SAFETY: it is refused.
    #[allow(unsafe_code)]
    let node = unsafe { graph.launch(&halve, threads(), (&bytes, &mut x, 8_u32)) };
    refused(node, "launched by `launch_nested`");
    assert_eq!((queue.capacity(), queue.depth()), (4, 2));
    expect_all(&x.to_vec()?, |_| 0);
    Ok(())
}

/// Launches made of random numbers: without effect, valid, or invalid in one way, which is a fault.
fn random_launches(device: &Device) -> CaseResult {
    const LAUNCHES: usize = 24;
    const ROW: usize = 100;
    let body = "
        kernel void add(device uint* x [[buffer(0)]], constant uint& by [[buffer(1)]], uint i [[thread_position_in_grid]],
                        uint n [[threads_per_grid]]) { x[i] += by * n; }
        kernel void scale(device uint* x [[buffer(0)]], constant uint& by [[buffer(1)]], uint i [[thread_position_in_grid]],
                          uint g [[threadgroup_position_in_grid]]) { x[i] = x[i] * 3 + by + g; }
        kernel void parent(device elinvar::launch_queue& queue, device uint* x, device const uint* table, uint i [[thread_position_in_grid]]) {
            uint kernel_index = table[5 * i], offset = table[5 * i + 1], threads = table[5 * i + 2], group = table[5 * i + 3], way = table[5 * i + 4];
            elinvar::launch next(queue);
            next.set_kernel(kernel_index);
            next.set_buffer(x + offset, 0);
            next.set_value(i + 1, 1);
            if (way == 1) next.dispatch_threads(threads, group);
            if (way == 2) next.dispatch_threadgroups(threads, group);
            if (way == 3) { next.dispatch_threads(7, 7); next.dispatch_threads(uint3(threads, 1, 1), uint3(1, group, 1)); }
        }";
    let [parent, add, scale] = kernels(device, body, ["parent", "add", "scale"])?;
    let mut queue = LaunchQueue::new(device, LAUNCHES as u32, 1, &[&add, &scale])?;
    let stream = device.stream()?;
    let mut state = 1_u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    let mut x = device.buffer::<u32>(LAUNCHES * ROW)?;
    for round in 0..40 {
        let first: Vec<u32> = (0..LAUNCHES * ROW).map(|i| (i * 7 + round) as u32).collect();
        let (mut expected, mut table) = (first.clone(), vec![0_u32; LAUNCHES * 5]);
        for (i, entry) in table.chunks_mut(5).enumerate() {
            let (way, kernel_index, group) = (below(4), below(2), 1 + below(20));
            let threads = [0, 1, 5, 64, 100][below(5)];
            // By threadgroups, the row bounds their number.
            let count = if way == 2 { threads.min(ROW / group) } else { threads };
            let all = [0, threads, count * group, threads][way];
            // In this way a threadgroup has one thread along x.
            let along = if way == 3 { 1 } else { group };
            let row = &mut expected[i * ROW..][..all];
            for (at, value) in row.iter_mut().enumerate() {
                *value = match kernel_index {
                    0 => value.wrapping_add((i as u32 + 1).wrapping_mul(all as u32)),
                    _ => value.wrapping_mul(3).wrapping_add((i + 1 + at / along) as u32),
                };
            }
            let words = [kernel_index, i * ROW, count, group, way].map(|word| word as u32);
            entry.copy_from_slice(&words);
        }
        // One entry of every other round becomes invalid.
        let wrong = (round % 2 == 1).then(|| below(LAUNCHES));
        if let Some(wrong) = wrong {
            let entry = &mut table[wrong * 5..][..5];
            (entry[2], entry[4]) = (4, 1 + below(2) as u32);
            match below(5) {
                0 => entry[0] = 2 + below(1000) as u32,
                1 => entry[3] = 0,
                2 => entry[3] = 5000,
                3 => entry[1] = 1 << 28,
                _ => (entry[2], entry[3], entry[4]) = (u32::MAX, 2, 2),
            }
        }
        let table = device.buffer_with_data(&table)?;
        x.fill(0)?;
        x.write(&first)?;
        let ended =
            nested(&parent, &stream, &mut queue, Grid::threads(LAUNCHES).group(8), (&mut x, &table))?.wait();
        match wrong {
            None => {
                ended?;
                expect_all(&x.to_vec()?, |i| expected[i]);
            }
            Some(_) => {
                let Err(Error::Fault(fault)) = &ended else { panic!("round {round}: {ended:?}") };
                assert!(fault.message.contains("of level 1, by kernel `parent`"), "round {round}: {fault}");
                stream.acknowledge();
            }
        }
    }
    Ok(())
}
