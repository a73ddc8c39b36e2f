//! Delivery of log lines: many threads, faults, running kernels, streams, graphs and cancellation.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use elinvar::{Component, Device, DeviceKind, Error, Graph, Grid, LogLine, Status};

use super::logging::{TURN, by_thread, compile, kernel, lines};
use super::{CaseResult, expect_all, launch, run};

cases!("logging": threads_at_once, before_a_fault, delivered_while_it_runs, two_streams, graphs, cancelled);

/// 10⁶ threads at once: each line arrives whole and in its thread's order, or is counted as lost.
fn threads_at_once(device: &Device) -> CaseResult {
    let threads = if device.kind() == DeviceKind::Sim { 10_000 } else { 1_000_000 };
    let kernel = kernel(
        device,
        "log_million",
        "kernel void log_million(device uint* out, uint i [[thread_position_in_grid]]) {
            printf(\"%u %u %u\", i, i ^ 0x5a5a5a5a, 0);
            out[i] = i + 1;
            printf(\"%u %u %u\", i, i ^ 0x5a5a5a5a, 1);
        }",
    )?;
    let mut out = device.buffer::<u32>(threads)?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Lines that are seen, by thread; the second bit is the second line.
    let seen = Arc::new(Mutex::new((vec![0_u8; threads], 0_u64)));
    let to = seen.clone();
    let before = device.lost_log_lines();
    let delivered_before = device.delivered_log_lines();
    let subscription = device.on_log(move |line| {
        if *line.kernel != *"log_million" {
            return;
        }
        let words: Vec<u32> = line.message.split(' ').map(|word| word.parse().expect("a number")).collect();
        let [i, check, which] = words[..] else { panic!("{line}") };
        assert_eq!((i ^ 0x5a5a_5a5a, line.thread), (check, Some([i, 0, 0])));
        let mut seen = to.lock().unwrap_or_else(PoisonError::into_inner);
        let bits = &mut seen.0[i as usize];
        assert!(*bits < 1 << which, "line {which} of thread {i} after {bits:b}");
        *bits |= 1 << which;
        seen.1 += 1;
    })?;
    run(device, &kernel, Grid::threads(threads), (&mut out,))?;
    drop(subscription);
    expect_all(&out.to_vec()?, |i| i as u32 + 1);
    let (bits, lines) = std::mem::take(&mut *seen.lock().unwrap_or_else(PoisonError::into_inner));
    let lost = device.lost_log_lines() - before;
    assert_eq!(lines, bits.iter().map(|bits| u64::from(bits.count_ones())).sum::<u64>());
    assert_eq!(lines + lost, 2 * threads as u64, "{lines} lines and {lost} lost");
    assert!(lines > 0);
    // Lines of other kernels may be among them.
    assert!(device.delivered_log_lines() - delivered_before >= lines);
    let health = device.health();
    let finding =
        health.findings.iter().find(|finding| finding.component == Component::Log).expect("a finding");
    assert!(finding.status != Status::Unknown && finding.reason.contains(" lines delivered, "), "{health}");
    Ok(())
}

/// A faulty launch: its lines are there, and those of the next launch.
fn before_a_fault(device: &Device) -> CaseResult {
    let text = "#include <metal_stdlib>
        using namespace metal;
        kernel void log_fault(device uint* out, constant uint& shift, uint i [[thread_position_in_grid]]) {
            printf(\"before %u\", i);
            out[i + shift] = i;
            printf(\"after %u\", i);
        }";
    let kernel = compile(device, "fault.metal", text)?.checked_kernel("log_fault")?;
    let mut out = device.buffer::<u32>(64)?;
    for shift in [0_u32, 1000, 0] {
        let stream = device.stream()?;
        let lines = lines(device, "log_fault", || {
            match kernel.launch(&stream, Grid::threads(64), (&mut out, shift))?.wait() {
                Ok(_) => assert_eq!(shift, 0, "a fault"),
                Err(Error::Fault(_)) => assert_ne!(shift, 0, "no fault"),
                Err(other) => return Err(other),
            }
            Ok(())
        })?;
        let threads = by_thread(&lines);
        for i in 0..64 {
            let messages = threads.get(&[i, 0, 0]).cloned().unwrap_or_default();
            let expected = [format!("before {i}"), format!("after {i}")];
            // A device may end the kernel at the fault.
            let ends_early = shift > 0 && messages.len() < 2;
            assert_eq!(
                messages,
                if ends_early { &expected[..messages.len()] } else { &expected[..] },
                "thread {i}"
            );
        }
        assert!(!lines.is_empty());
    }
    Ok(())
}

/// A kernel that waits for one that is launched when its line has arrived.
fn delivered_while_it_runs(device: &Device) -> CaseResult {
    if device.caps().limits.parallel_queues < 2 {
        return Err(Error::Unsupported("kernels of two streams at once".into()).into());
    }
    let waits = kernel(
        device,
        "log_waits",
        "kernel void log_waits(device atomic_uint* flag, device uint* out) {
            printf(\"waiting\");
            while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {}
            printf(\"flag %u\", atomic_load_explicit(flag, memory_order_relaxed));
            out[0] = 1;
        }",
    )?;
    let sets = kernel(
        device,
        "log_sets",
        "kernel void log_sets(device atomic_uint* flag) { atomic_store_explicit(flag, 7u, memory_order_relaxed); }",
    )?;
    let (mut flag, mut out) = (device.buffer::<u32>(1)?, device.buffer::<u32>(1)?);
    let (one, other) = (device.stream()?, device.stream()?);
    // Prepared, so that its launch does not depend on the waiting kernel.
    launch(&sets, &other, Grid::threads(1), (&mut flag,))?.wait()?;
    flag.write(&[0])?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (sender, arrived) = channel();
    let sender = Mutex::new(sender);
    let subscription = device.on_log(move |line| {
        if *line.kernel == *"log_waits" {
            let _gone = sender.lock().unwrap_or_else(PoisonError::into_inner).send(line.message.clone());
        }
    })?;
    let mut alias = flag.clone();
    let waiting = launch(&waits, &one, Grid::threads(1), (&mut flag, &mut out))?;
    let first = arrived.recv_timeout(Duration::from_secs(20));
    launch(&sets, &other, Grid::threads(1), (&mut alias,))?.wait()?;
    assert_eq!(first.as_deref(), Ok("waiting"));
    waiting.wait()?;
    assert_eq!(arrived.try_recv().as_deref(), Ok("flag 7"), "before the end of the submission");
    drop(subscription);
    expect_all(&out.to_vec()?, |_| 1);
    Ok(())
}

fn two_streams(device: &Device) -> CaseResult {
    let text = "kernel void NAME(device uint* out, constant uint& k, uint i [[thread_position_in_grid]]) {
            for (uint r = 0; r < 3; ++r) printf(\"%u %u\", k, r);
            out[i] += k;
        }";
    let names = ["log_stream_a", "log_stream_b"];
    let [a, b] = names.map(|name| kernel(device, name, &text.replace("NAME", name)));
    let (a, b) = (a?, b?);
    let (one, other) = (device.stream()?, device.stream()?);
    let (mut first, mut second) = (device.buffer::<u32>(100)?, device.buffer::<u32>(100)?);
    let lines = lines(device, "log_stream", || {
        for k in 0..10_u32 {
            launch(&a, &one, Grid::threads(100).group(32), (&mut first, k))?;
            launch(&b, &other, Grid::threads(100).group(32), (&mut second, k))?;
        }
        one.synchronize()?;
        other.synchronize().map(drop)
    })?;
    expect_all(&first.to_vec()?, |_| 45);
    expect_all(&second.to_vec()?, |_| 45);
    for name in names {
        let of: Vec<LogLine> = lines.iter().filter(|line| *line.kernel == *name).cloned().collect();
        let threads = by_thread(&of);
        assert_eq!(threads.len(), 100, "{name}");
        let expected: Vec<String> = (0..10).flat_map(|k| (0..3).map(move |r| format!("{k} {r}"))).collect();
        threads.into_iter().for_each(|(thread, got)| assert_eq!(got, expected, "{name} {thread:?}"));
    }
    Ok(())
}

/// A plan that runs several times, long enough for devices that record such a list.
fn graphs(device: &Device) -> CaseResult {
    const NODES: u32 = 40;
    let kernel = kernel(
        device,
        "log_graph",
        "kernel void log_graph(device uint* out, constant uint& k, uint i [[thread_position_in_grid]]) {
            if (i % 8 == 0) printf(\"node %u\", k);
            out[i] = out[i] * 3 + k;
        }",
    )?;
    let mut out = device.buffer::<u32>(32)?;
    let mut graph = Graph::new();
    for k in 0..NODES {
        // SAFETY: thread i accesses element i of the buffer only.
        #[allow(unsafe_code)]
        unsafe { graph.launch(&kernel, Grid::threads(32), (&mut out, k)) }?;
    }
    let mut plan = graph.plan()?;
    let stream = device.stream()?;
    let mut value = 0_u32;
    for run in 0..6 {
        let lines = lines(device, "log_graph", || {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe { plan.run(&stream) }?.wait().map(drop)
        })?;
        value = (0..NODES).fold(value, |value, k| value.wrapping_mul(3).wrapping_add(k));
        let threads = by_thread(&lines);
        assert_eq!(threads.len(), 4, "run {run}");
        let expected: Vec<String> = (0..NODES).map(|k| format!("node {k}")).collect();
        threads.into_iter().for_each(|(thread, got)| assert_eq!(got, expected, "run {run} {thread:?}"));
    }
    expect_all(&out.to_vec()?, |_| value);
    Ok(())
}

fn cancelled(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "log_cancelled",
        "kernel void log_cancelled(device uint* out, uint i [[thread_position_in_grid]]) {
            printf(\"%u\", i);
            out[i] += 1;
        }",
    )?;
    let stream = device.stream()?;
    let event = device.event()?;
    let mut out = device.buffer::<u32>(8)?;
    let lines = lines(device, "log_cancelled", || {
        stream.wait_for(&event, 1)?;
        let cancelled = launch(&kernel, &stream, Grid::threads(8), (&mut out,))?;
        let was_cancelled = cancelled.cancel();
        let kept = launch(&kernel, &stream, Grid::threads(8), (&mut out,))?;
        event.signal(1);
        assert_eq!(matches!(cancelled.wait(), Err(Error::Cancelled)), was_cancelled);
        assert!(was_cancelled, "blocked on an event");
        kept.wait().map(drop)
    })?;
    expect_all(&out.to_vec()?, |_| 1);
    let threads = by_thread(&lines);
    assert_eq!((lines.len(), threads.len()), (8, 8));
    Ok(())
}
