//! Events: waits between streams, with the host, and between devices; times on the device's clock.

use std::time::Duration;

use elinvar::{Device, Error, Grid, Kernel};

use super::{CaseResult, expect_all, kernel, launch};

cases!("events": streams_in_turns, a_wait_before_its_signal, the_host_takes_part, a_failure_goes_on,
    more_streams_than_the_device_has, another_device, times_of_the_device,
    timestamps_within_a_batch, groups, profiles);

const N: usize = 2000;

/// `x[i] = x[i] * 3 + k`.
fn step(device: &Device) -> elinvar::Result<Kernel> {
    let body = "kernel void step_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { x[i] = x[i] * 3u + k; }";
    kernel(device, "step_k", body)
}

fn expected(start: u32, ks: impl Iterator<Item = u32>) -> u32 {
    ks.fold(start, |x, k| x.wrapping_mul(3).wrapping_add(k))
}

fn streams_in_turns(device: &Device) -> CaseResult {
    let step = step(device)?;
    let streams = [device.stream()?, device.stream()?, device.stream()?];
    let event = device.event()?;
    let mut x = device.buffer::<u32>(N)?;
    for turn in 0..30_u32 {
        let stream = &streams[turn as usize % 3];
        stream.wait_for(&event, u64::from(turn))?;
        launch(&step, stream, Grid::threads(N), (&mut x, turn))?;
        stream.signal(&event, u64::from(turn) + 1)?;
    }
    event.wait(30)?;
    assert_eq!(event.value(), 30);
    expect_all(&x.to_vec()?, |_| expected(0, 0..30));
    Ok(())
}

fn a_wait_before_its_signal(device: &Device) -> CaseResult {
    let step = step(device)?;
    let (first, second) = (device.stream()?, device.stream()?);
    let event = device.event()?;
    let mut x = device.buffer::<u32>(N)?;
    second.wait_for(&event, 7)?;
    launch(&step, &second, Grid::threads(N), (&mut x, 5_u32))?;
    let done = second.command_buffer().submit()?;
    launch(&step, &first, Grid::threads(N), (&mut x, 2_u32))?;
    assert!(done.wait_timeout(Duration::ZERO)?.is_none());
    first.signal(&event, 9)?;
    done.wait()?;
    expect_all(&x.to_vec()?, |_| 2 * 3 + 5);
    Ok(())
}

fn the_host_takes_part(device: &Device) -> CaseResult {
    let step = step(device)?;
    let stream = device.stream()?;
    let (to_device, to_host) = (device.event()?, device.event()?);
    let mut x = device.buffer::<u32>(N)?;
    for turn in 1..=10_u64 {
        let mut commands = stream.command_buffer();
        commands.wait_for(&to_device, turn);
        // SAFETY: thread i modifies element i, and there are N of each.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&step, Grid::threads(N), (&mut x, turn as u32))?;
        }
        commands.signal(&to_host, turn);
        commands.submit()?;
        assert!(!to_host.wait_timeout(turn, Duration::from_millis(1))?, "before the host let it");
        to_device.signal(turn);
        to_host.wait(turn)?;
    }
    expect_all(&x.to_vec()?, |_| expected(0, 1..=10));
    Ok(())
}

fn a_failure_goes_on(device: &Device) -> CaseResult {
    let body = "kernel void outside(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1u; }";
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    let library = device.compile(elinvar::Source::named("outside.metal", text))?;
    let outside = library.checked_kernel("outside")?;
    let (first, second) = (device.stream()?, device.stream()?);
    let event = device.event()?;
    let mut x = device.buffer::<u32>(4)?;
    second.wait_for(&event, 1)?;
    let behind = second.command_buffer().submit()?;
    outside.launch(&first, Grid::threads(8), (&mut x,))?;
    first.signal(&event, 1)?;
    for result in [event.wait(1), behind.wait().map(drop)] {
        assert!(
            matches!(&result, Err(Error::Poisoned(cause)) if matches!(**cause, Error::Fault(_))),
            "{result:?}"
        );
    }
    assert_eq!(event.value(), 0);
    assert!(first.acknowledge().is_some() && second.acknowledge().is_some());
    second.synchronize()?;
    Ok(())
}

fn more_streams_than_the_device_has(device: &Device) -> CaseResult {
    let step = step(device)?;
    let count = 4 * device.caps().limits.parallel_queues.clamp(1, 64) as usize;
    let streams = (0..count).map(|_| device.stream()).collect::<elinvar::Result<Vec<_>>>()?;
    let event = device.event()?;
    let mut x = device.buffer::<u32>(N)?;
    // The last of the chain is submitted first, so that nearly all of them wait.
    for (turn, stream) in streams.iter().enumerate().rev() {
        stream.wait_for(&event, turn as u64)?;
        launch(&step, stream, Grid::threads(N), (&mut x, turn as u32))?;
        stream.signal(&event, turn as u64 + 1)?;
    }
    event.wait(count as u64)?;
    expect_all(&x.to_vec()?, |_| expected(0, 0..count as u32));
    Ok(())
}

/// The other device is a simulated one.
fn another_device(device: &Device) -> CaseResult {
    let other = Device::new(crate::sim::Sim::new());
    let (ours, theirs) = (device.stream()?, other.stream()?);
    let (forth, back) = (device.event()?, other.event()?);
    let mut x = device.buffer::<u32>(N)?;
    let mut y = other.buffer::<u32>(N)?;
    ours.fill(&mut x, 5)?;
    ours.signal(&forth, 1)?;
    theirs.wait_for(&forth, 1)?;
    theirs.fill(&mut y, 6)?;
    theirs.signal(&back, 1)?;
    ours.wait_for(&back, 1)?;
    ours.fill(x.slice_mut(0..1)?, 7)?;
    ours.synchronize()?;
    expect_all(&x.to_vec()?, |i| if i == 0 { 7 } else { 5 });
    expect_all(&y.to_vec()?, |_| 6);
    Ok(())
}

fn times_of_the_device(device: &Device) -> CaseResult {
    let step = step(device)?;
    let stream = device.stream()?;
    let (begin, end) = (device.event()?, device.event()?);
    let mut x = device.buffer::<u32>(N)?;
    assert_eq!(begin.time_ns(), None);
    let before = device.clock_ns();
    stream.signal(&begin, 1)?;
    let timing = launch(&step, &stream, Grid::threads(N), (&mut x, 1_u32))?.wait()?;
    stream.signal(&end, 1)?.wait()?;
    let times = [Some(before), begin.time_ns(), Some(timing.start_ns), Some(timing.end_ns), end.time_ns()];
    assert!(times.is_sorted() && times.iter().all(Option::is_some), "{times:?}");
    Ok(())
}

fn timestamps_within_a_batch(device: &Device) -> CaseResult {
    let step = step(device)?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(N)?;
    let before = device.clock_ns();
    let mut commands = stream.command_buffer();
    let mut times = vec![commands.timestamp()?];
    for k in 0..5_u32 {
        // SAFETY: thread i modifies element i, and the number of elements is that of the threads.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&step, Grid::threads(N), (&mut x, k))?;
        }
        times.push(commands.timestamp()?);
    }
    let timing = commands.submit()?.wait()?;
    let behind = stream.timestamp()?;
    stream.synchronize()?;
    let after = device.clock_ns();
    let ns: Vec<Option<u64>> = times.iter().map(elinvar::Timestamp::ns).collect();
    let all =
        [&[Some(before), Some(timing.start_ns)], &ns[..], &[Some(timing.end_ns), behind.ns(), Some(after)]];
    let all = all.concat();
    assert!(all.is_sorted() && all.iter().all(Option::is_some), "{all:?}");
    let took = times[5].since(&times[0]).ok_or("two times are known")?;
    assert_eq!(Some(took.as_nanos() as u64), ns[5].zip(ns[0]).map(|(end, begin)| end - begin));
    assert!(took.is_zero() || times[0].since(&times[5]).is_none());
    expect_all(&x.to_vec()?, |_| expected(0, 0..5));
    Ok(())
}

fn groups(device: &Device) -> CaseResult {
    let step = step(device)?;
    let group = device.stream_group();
    assert_eq!(group.most(), device.caps().limits.parallel_queues.max(1) as usize);
    let mut buffers = (0..20).map(|_| device.buffer::<u32>(N)).collect::<elinvar::Result<Vec<_>>>()?;
    for (k, x) in buffers.iter_mut().enumerate() {
        let stream = group.next()?;
        launch(&step, &stream, Grid::threads(N), (&mut *x, k as u32))?;
        launch(&step, &stream, Grid::threads(N), (x, 1_u32))?;
    }
    group.synchronize()?;
    assert!(group.open() <= group.most());
    for (k, x) in buffers.iter().enumerate() {
        expect_all(&x.to_vec()?, |_| 3 * k as u32 + 1);
    }
    Ok(())
}

fn profiles(device: &Device) -> CaseResult {
    let step = step(device)?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(N)?;
    let profile = stream.profile(50, |commands| {
        // SAFETY: thread i modifies element i, and there are N of each.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&step, Grid::threads(N), (&mut x, 1_u32))
        }
    })?;
    expect_all(&x.to_vec()?, |_| expected(0, std::iter::repeat_n(1, 50)));
    let (min, max, mean) = (profile.min_ns(), profile.max_ns(), profile.mean_ns());
    let percentiles = [50.0, 90.0, 95.0, 99.0].map(|p| profile.percentile_ns(p));
    assert_eq!(profile.iterations(), 50);
    assert!(
        min > 0 && min <= percentiles[0] && percentiles.is_sorted() && percentiles[3] <= max,
        "{profile}"
    );
    assert!((min as f64..=max as f64).contains(&mean) && profile.std_dev_ns() >= 0.0, "{profile}");
    assert!(profile.throughput() * mean <= 1.001e9, "one at a time: {profile}");
    Ok(())
}
