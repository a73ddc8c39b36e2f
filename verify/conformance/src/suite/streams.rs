//! Streams: several concurrent ones, each in order; the host sees the results it waits for; everything may be dropped with pending work.

use elinvar::{Device, Error, Grid, Priority};

use super::{CaseResult, expect_all, kernel, launch};

cases!("streams": side_by_side, fills_and_copies_in_order, a_batch_is_one_submission, drop_in_flight,
    read_waits_for_the_writer, timing_is_measured,
    a_priority_is_given_or_refused);

const ADD: &str = "kernel void add_one(device uint* data [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        data[i] += 1u + i % 3u;
    }";

fn side_by_side(device: &Device) -> CaseResult {
    let kernel = kernel(device, "add_one", ADD)?;
    let results = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4_u32)
            .map(|t| {
                let (kernel, device) = (&kernel, device);
                scope.spawn(move || -> elinvar::Result<Vec<u32>> {
                    let stream = device.stream()?;
                    let mut data = device.buffer_with_data(&vec![t; 3000])?;
                    for _ in 0..50 {
                        launch(kernel, &stream, Grid::threads(3000).group(64), (&mut data,))?;
                    }
                    data.to_vec()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join()).collect::<Vec<_>>()
    });
    for (t, result) in results.into_iter().enumerate() {
        let data = result.map_err(|_| "a thread panicked")??;
        expect_all(&data, |i| t as u32 + 50 * (1 + i as u32 % 3));
    }
    Ok(())
}

fn fills_and_copies_in_order(device: &Device) -> CaseResult {
    let kernel = kernel(device, "add_one", ADD)?;
    let stream = device.stream()?;
    let mut a = device.buffer::<u32>(500)?;
    let mut b = device.buffer::<u32>(500)?;
    stream.fill(&mut a, 7)?;
    launch(&kernel, &stream, Grid::threads(500), (&mut a,))?;
    stream.copy(&a, &mut b)?;
    launch(&kernel, &stream, Grid::threads(500), (&mut b,))?;
    stream.fill(&mut a, 0xffff_0001)?;
    stream.synchronize()?;
    expect_all(&b.to_vec()?, |i| 7 + 2 * (1 + i as u32 % 3));
    expect_all(&a.to_vec()?, |_| 0xffff_0001);
    Ok(())
}

fn a_batch_is_one_submission(device: &Device) -> CaseResult {
    let kernel = kernel(device, "add_one", ADD)?;
    let stream = device.stream()?;
    let mut data = device.buffer::<u32>(100)?;
    let mut commands = stream.command_buffer();
    for _ in 0..20 {
        // SAFETY: thread i modifies element i, and there are 100 of each.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&kernel, Grid::threads(100), (&mut data,))?;
        }
    }
    commands.submit()?.wait()?;
    expect_all(&data.to_vec()?, |i| 20 * (1 + i as u32 % 3));
    Ok(())
}

/// The device completes submitted work after all its handles have been dropped, and remains usable.
fn drop_in_flight(device: &Device) -> CaseResult {
    for _ in 0..4 {
        let kernel = kernel(device, "add_one", ADD)?;
        let stream = device.stream()?;
        let mut data = device.buffer::<u32>(200_000)?;
        for _ in 0..5 {
            drop(launch(&kernel, &stream, Grid::threads(200_000), (&mut data,))?);
        }
        drop((data, stream, kernel));
    }
    side_by_side(device)
}

fn read_waits_for_the_writer(device: &Device) -> CaseResult {
    let kernel = kernel(device, "add_one", ADD)?;
    let (first, second) = (device.stream()?, device.stream()?);
    let mut data = device.buffer::<u32>(300_000)?;
    let mut other = device.buffer::<u32>(300_000)?;
    for round in 1..=10_u32 {
        launch(&kernel, &first, Grid::threads(300_000), (&mut data,))?;
        launch(&kernel, &second, Grid::threads(300_000), (&mut other,))?;
        expect_all(&data.to_vec()?, |i| round * (1 + i as u32 % 3));
        expect_all(&other.map()?, |i| round * (1 + i as u32 % 3));
    }
    Ok(())
}

/// Twenty times the work does not take less time on the device's clock.
fn timing_is_measured(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "spin",
        "kernel void spin(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            uint x = i + 1u;
            for (uint k = 0; k < n; ++k) x = x * 1664525u + 1013904223u ^ (x >> 3);
            out[i] = x;
        }",
    )?;
    let stream = device.stream()?;
    let mut out = device.buffer::<u32>(1)?;
    let mut time = |n: u32| -> elinvar::Result<u64> {
        let timing = launch(&kernel, &stream, Grid::threads(1), (&mut out, n))?.wait()?;
        assert!(timing.end_ns > timing.start_ns, "{timing:?}");
        Ok(timing.end_ns - timing.start_ns)
    };
    let short = (0..5).map(|_| time(1_000_000)).collect::<Result<Vec<_>, _>>()?.into_iter().min();
    let long = time(20_000_000)?;
    assert!(
        short.is_some_and(|short| long > short),
        "{short:?} ns, then {long} ns for twenty times the work"
    );
    Ok(())
}

/// Each driver's own tests check the order by priority, because they can keep the device busy.
fn a_priority_is_given_or_refused(device: &Device) -> CaseResult {
    let kernel = kernel(device, "add_one", ADD)?;
    for priority in [Priority::Low, Priority::Normal, Priority::High] {
        let stream = match device.stream_with(priority) {
            Err(error) if priority != Priority::Normal && !device.caps().features.priorities => {
                assert!(
                    matches!(&error, Error::Unsupported(reason) if reason.contains("priorit")),
                    "{error}"
                );
                continue;
            }
            stream => stream?,
        };
        assert!(
            priority == Priority::Normal || device.caps().features.priorities,
            "{priority:?} was taken in silence"
        );
        let mut data = device.buffer::<u32>(1000)?;
        launch(&kernel, &stream, Grid::threads(1000), (&mut data,))?;
        expect_all(&data.to_vec()?, |i| 1 + i as u32 % 3);
    }
    Ok(())
}
