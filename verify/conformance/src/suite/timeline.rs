//! Timelines of traces: each command has the device's times, in order and within its submission on the host's clock.

use std::sync::PoisonError;

use elinvar::{
    Device, Error, Graph, Grid, Kernel, Origin, Source, Stream, Timeline, TimelineSubmission, TraceDetail,
    TracedWork,
};

use super::{CaseResult, Failure, TRACE, expect_all, kernel, launch};

cases!("timeline": each_launch_of_a_batch_has_its_time, replays_have_times_and_names, waits_are_not_in_the_time,
    a_failed_launch_is_in_the_timeline);

const N: usize = 1000;

fn add(device: &Device) -> Result<Kernel, Failure> {
    let body = "kernel void add(device uint* x, constant uint& k, uint i [[thread_position_in_grid]]) { x[i] += k; }";
    Ok(kernel(device, "add", body)?)
}

/// The submissions of these streams. The driver has one device, so other cases may run on it concurrently.
fn of_streams(timeline: &Timeline, streams: &[&Stream]) -> Vec<TimelineSubmission> {
    let numbers: Vec<u64> = streams.iter().map(|stream| stream.number()).collect();
    timeline.submissions.iter().filter(|submission| numbers.contains(&submission.stream)).cloned().collect()
}

/// Records what `run` does on these streams.
fn traced(
    device: &Device,
    streams: &[&Stream],
    run: impl FnOnce() -> CaseResult,
) -> Result<(Vec<TimelineSubmission>, Timeline), Failure> {
    let _alone = TRACE.lock().unwrap_or_else(PoisonError::into_inner);
    device.trace().start_with(100_000, TraceDetail::Launches);
    let done = run();
    let timeline = device.trace().timeline();
    device.trace().stop();
    done?;
    assert!(timeline.clock_samples.len() >= 2, "{:?}", timeline.clock_samples);
    Ok((of_streams(&timeline, streams), timeline))
}

/// Expects the times of a submission that succeeded: those of its commands in order, between the submission and its end.
fn expect_in_order(submission: &TimelineSubmission, error_ns: u64) {
    let completed = submission.completed.expect("it has ended");
    assert!(submission.error.is_none(), "{:?}", submission.error);
    let mut last = submission.recorded.end_ns.saturating_sub(error_ns);
    for command in submission.commands.iter().filter(|command| command.command.is_work()) {
        let span = command.device.expect("it was measured");
        assert!(span.is_measured && last <= span.begin_ns && span.begin_ns <= span.end_ns, "{submission:#?}");
        assert!(command.host.begin_ns <= command.host.end_ns, "{submission:#?}");
        last = span.end_ns;
    }
    assert!(last <= completed.begin_ns + error_ns, "error {error_ns}: {submission:#?}");
}

#[allow(unsafe_code)] // launches
fn each_launch_of_a_batch_has_its_time(device: &Device) -> CaseResult {
    let (first, second) = (add(device)?.labeled("first", 1), add(device)?.labeled("second", 2));
    let stream = device.stream()?;
    let (mut x, mut y) = (device.buffer::<u32>(N)?, device.buffer::<u32>(N)?);
    let (submissions, timeline) = traced(device, &[&stream], || {
        let mut commands = stream.command_buffer();
        for k in 0..5_u32 {
            let kernel = if k % 2 == 0 { &first } else { &second };
            // SAFETY: thread i modifies element i, and the number of elements is that of the threads.
            unsafe { commands.launch(kernel, Grid::threads(N), (&mut x, k)) }?;
        }
        commands.copy(&x, &mut y)?;
        commands.submit()?.wait()?;
        launch(&first, &stream, Grid::threads(N), (&mut x, 7_u32))?.wait()?;
        Ok(())
    })?;
    expect_all(&x.to_vec()?, |_| 10 + 7);
    expect_all(&y.to_vec()?, |_| 10);
    let names = |submission: &TimelineSubmission| -> Vec<String> {
        let name = |command: &elinvar::TracedCommand| match &command.label {
            Some(label) => format!("{} {label}", command.name()),
            None => command.name().to_owned(),
        };
        submission.commands.iter().map(|command| name(&command.command)).collect()
    };
    let [batch, single] = &submissions[..] else { panic!("{submissions:#?}") };
    let [one, two] = ["add `first` (1)", "add `second` (2)"];
    assert_eq!(names(batch), [one, two, one, two, one, "copy"]);
    assert_eq!(names(single), [one]);
    assert!(matches!(batch.commands[5].command.work, TracedWork::Copy { bytes } if bytes == 4 * N as u64));
    submissions.iter().for_each(|submission| expect_in_order(submission, timeline.clock_error_ns));
    let end = |submission: &TimelineSubmission| submission.device.map(|span| span.end_ns);
    let begin = single.device.map(|span| span.begin_ns);
    assert!(end(batch) <= begin, "{submissions:#?}");
    Ok(())
}

#[allow(unsafe_code)] // launches
fn replays_have_times_and_names(device: &Device) -> CaseResult {
    let add = add(device)?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(N)?;
    let mut commands = stream.command_buffer();
    let mut graph = Graph::new();
    for k in 1..=20_u32 {
        // SAFETY: as above; in the graph, too.
        unsafe { commands.launch(&add, Grid::threads(N), (&mut x, k)) }?;
        // SAFETY: as above.
        let node = unsafe { graph.launch(&add, Grid::threads(N), (&mut x, k)) }?;
        graph.name(node, format!("node {k}"))?;
    }
    let recording = commands.record()?;
    let mut plan = graph.plan()?;
    let (submissions, timeline) = traced(device, &[&stream], || {
        for _ in 0..4 {
            // SAFETY: as above.
            unsafe { stream.replay(&recording) }?.wait()?;
            // SAFETY: as above.
            unsafe { plan.run(&stream) }?.wait()?;
        }
        Ok(())
    })?;
    expect_all(&x.to_vec()?, |_| 8 * 210);
    let works: Vec<&TimelineSubmission> =
        submissions.iter().filter(|submission| !submission.commands.is_empty()).collect();
    let mut nodes = Vec::new();
    let mut recorded = 0;
    for submission in works {
        expect_in_order(submission, timeline.clock_error_ns);
        for command in submission.commands.iter().filter(|command| command.command.is_work()) {
            let (replayed, at) = command.replayed.as_ref().expect("it is replayed");
            assert_eq!(command.command.name(), "add");
            match &replayed.origin {
                Origin::Recording { .. } => {
                    assert_eq!((&replayed.origin, *at), (recording.origin(), recorded % 20));
                    recorded += 1;
                }
                _ => nodes.push(command.node().expect("it is of a graph").name.clone()),
            }
        }
    }
    let expected: Vec<String> = (0..4).flat_map(|_| (1..=20).map(|k| format!("node {k}"))).collect();
    assert_eq!((recorded, nodes), (80, expected));
    Ok(())
}

fn waits_are_not_in_the_time(device: &Device) -> CaseResult {
    let add = add(device)?;
    let (stream, event) = (device.stream()?, device.event()?);
    let mut x = device.buffer::<u32>(N)?;
    let mut signaled_ns = 0;
    let (submissions, timeline) = traced(device, &[&stream], || {
        let mut commands = stream.command_buffer();
        commands.fill(&mut x, 3)?;
        commands.wait_for(&event, 1);
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            commands.launch(&add, Grid::threads(N), (&mut x, 4_u32))?;
        }
        let done = commands.submit()?;
        std::thread::sleep(std::time::Duration::from_millis(20));
        signaled_ns = device.clock_ns();
        event.signal(1);
        done.wait()?;
        Ok(())
    })?;
    expect_all(&x.to_vec()?, |_| 7);
    let [submission] = &submissions[..] else { panic!("{submissions:#?}") };
    expect_in_order(submission, timeline.clock_error_ns);
    let spans: Vec<_> = submission.commands.iter().filter_map(|command| command.device).collect();
    let [fill, launch] = spans[..] else { panic!("{submission:#?}") };
    // The launch begins after the signal.
    let sample = timeline.clock_samples.last().ok_or("the clocks were compared")?;
    let signaled_ns = sample.host_ns - (sample.device_ns - signaled_ns);
    let earliest_ns = signaled_ns - 2 * timeline.clock_error_ns;
    assert!(fill.end_ns <= launch.begin_ns && earliest_ns <= launch.begin_ns, "{signaled_ns}: {timeline:#?}");
    Ok(())
}

fn a_failed_launch_is_in_the_timeline(device: &Device) -> CaseResult {
    let text = "kernel void outside(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] = 1u; }";
    let outside = device.compile(Source::named("outside.metal", text))?.checked_kernel("outside")?;
    let stream = device.stream()?;
    let mut x = device.buffer::<u32>(4)?;
    let (submissions, _) = traced(device, &[&stream], || {
        let mut commands = stream.command_buffer();
        commands.launch_checked(&outside, Grid::threads(4), (&mut x,))?;
        commands.launch_checked(&outside.labeled("late", 2), Grid::threads(8), (&mut x,))?;
        let failed = commands.submit()?;
        let poisoned = outside.launch(&stream, Grid::threads(4), (&mut x,))?;
        assert!(matches!(failed.wait(), Err(Error::Fault(_))));
        assert!(matches!(poisoned.wait(), Err(Error::Poisoned(_))));
        Ok(())
    })?;
    stream.acknowledge();
    let [failed, poisoned] = &submissions[..] else { panic!("{submissions:#?}") };
    let (submitted, completed) = (failed.recorded.end_ns, failed.completed.expect("it has ended"));
    let [good, bad] = &failed.commands[..] else { panic!("{failed:#?}") };
    assert!(good.error.is_none() && good.device.is_some(), "{failed:#?}");
    let span = bad.device.expect("it ran");
    assert!(
        !span.is_measured && submitted <= span.begin_ns && span.end_ns <= completed.begin_ns,
        "{failed:#?}"
    );
    let error = bad.error.as_ref().map(|error| error.to_string()).unwrap_or_default();
    assert!(error.starts_with("kernel `outside`, launch `late` (2)"), "{error}");
    assert!(poisoned.device.is_none() && matches!(poisoned.error.as_deref(), Some(Error::Poisoned(_))));
    Ok(())
}
