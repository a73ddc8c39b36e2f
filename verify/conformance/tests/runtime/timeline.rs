//! Timelines: what the driver is given, exact durations, replays, failures, and submissions that are not in the trace in full.

use crate::support;

use elinvar::driver::Command;
use elinvar::{Error, Origin, Timeline, TimelineCommand, TimelineSubmission, TraceDetail, TracedWork};
use elinvar_conformance::sim::{Op, Sim};
use support::recovery::policy;
use support::{Bench, pointer, signature};

use elinvar::{Access, Grid, Scalar};

fn names(submission: &TimelineSubmission) -> Vec<&str> {
    submission.commands.iter().map(|command| command.command.name()).collect()
}

/// A command buffer of three launches with a wait and a fill in between.
#[allow(unsafe_code)] // launches
fn submit(bench: &Bench) {
    let increment = bench.increment().labeled("step", 1);
    let (mut data, event) = (bench.device.buffer::<u32>(4).unwrap(), bench.device.event().unwrap());
    event.signal(1);
    let mut commands = bench.stream.command_buffer();
    // SAFETY: the kernel changes one element.
    unsafe { commands.launch(&increment, Grid::threads(1), (&mut data,)) }.unwrap();
    // SAFETY: as above.
    unsafe { commands.launch(&increment, Grid::threads(1), (&mut data,)) }.unwrap();
    commands.wait_for(&event, 1);
    commands.fill(&mut data, 3).unwrap();
    // SAFETY: as above.
    unsafe { commands.launch(&increment, Grid::threads(1), (&mut data,)) }.unwrap();
    commands.submit().unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [4, 3, 3, 3]);
}

#[test]
fn timestamps_are_inserted_while_launches_are_traced_only() {
    let given = |detail: Option<TraceDetail>| {
        let bench = Bench::new();
        if let Some(detail) = detail {
            bench.device.trace().start_with(100, detail);
        }
        submit(&bench);
        let letter = |command: &Command| match command {
            Command::Dispatch(_) => 'l',
            Command::Fill { .. } => 'f',
            Command::Timestamp { .. } => 't',
            Command::Wait { .. } => 'w',
            _ => '?',
        };
        let commands: String = bench.sim.commands().iter().map(letter).collect();
        (commands.replace('w', ""), bench.device.trace().timeline())
    };
    let (commands, timeline) = given(None);
    assert_eq!((&*commands, timeline.submissions.len()), ("llfl", 0));
    let (commands, timeline) = given(Some(TraceDetail::Submissions));
    let [submission] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
    assert_eq!((&*commands, submission.command_count), ("llfl", 5));
    assert_eq!(names(submission), ["increment", "wait"]);
    assert!(submission.commands.iter().all(|command| command.device.is_none()));
    assert!(submission.device.is_some_and(|span| span.is_measured));
    let (commands, timeline) = given(Some(TraceDetail::Launches));
    let [submission] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
    assert_eq!((&*commands, submission.command_count), ("ltlttftl", 5));
    assert_eq!(names(submission), ["increment", "increment", "wait", "fill", "increment"]);
    let measured = submission.commands.iter().map(|command| command.device.is_some());
    assert_eq!(measured.collect::<Vec<_>>(), [true, true, false, true, true]);
}

/// Exact durations, of a device whose clock the kernels advance.
#[test]
fn each_command_has_its_own_duration() {
    let bench = Bench::new();
    let data = pointer("data", Scalar::U32, Access::ReadWrite);
    let slow = bench.declare(signature("slow", vec![data]), |launch| {
        launch.take_ns(1_000_000_000 * u64::from(launch.threads().x));
        Ok(())
    });
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    bench.device.trace().start(100);
    let mut commands = bench.stream.command_buffer();
    for seconds in [3, 1, 5] {
        // SAFETY: the kernel accesses no memory.
        #[allow(unsafe_code)]
        unsafe { commands.launch(&slow, Grid::threads(seconds), (&mut data,)) }.unwrap();
    }
    commands.submit().unwrap().wait().unwrap();
    let timeline = bench.device.trace().timeline();
    let [submission] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
    // The clock has run nine seconds in an instant of the host: the error says so, and the parts keep their proportions.
    assert!(timeline.clock_error_ns >= 8_000_000_000, "{}", timeline.clock_error_ns);
    let spans: Vec<_> = submission.commands.iter().filter_map(|command| command.device).collect();
    let took: Vec<f64> = spans.iter().map(|span| (span.end_ns - span.begin_ns) as f64).collect();
    let all: f64 = took.iter().sum();
    for (took, seconds) in took.iter().zip([3.0, 1.0, 5.0]) {
        assert!((took / all - seconds / 9.0).abs() < 0.01, "{spans:?}");
    }
    assert!(spans.windows(2).all(|pair| pair[0].end_ns == pair[1].begin_ns), "{spans:?}");
}

#[test]
fn a_replay_names_its_recording() {
    let bench = Bench::new();
    let increment = bench.increment().labeled("step", 7);
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    let mut commands = bench.stream.command_buffer();
    for _ in 0..3 {
        // SAFETY: the kernel changes one element.
        #[allow(unsafe_code)]
        unsafe { commands.launch(&increment, Grid::threads(1), (&mut data,)) }.unwrap();
    }
    let (recording, other) = (commands.record().unwrap(), bench.stream.command_buffer().record().unwrap());
    assert_ne!(recording.origin(), other.origin());
    for (detail, count) in [(TraceDetail::Launches, 3), (TraceDetail::Submissions, 1)] {
        bench.device.trace().start_with(100, detail);
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { bench.stream.replay(&recording) }.unwrap().wait().unwrap();
        let timeline = bench.device.trace().timeline();
        let [submission] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
        assert_eq!((submission.commands.len(), submission.command_count), (count, 3));
        for (position, command) in submission.commands.iter().enumerate() {
            let (replayed, at) = command.replayed.as_ref().unwrap();
            assert_eq!((&replayed.origin, *at), (recording.origin(), position));
            assert!(matches!(replayed.origin, Origin::Recording { .. }) && command.node().is_none());
            assert!(matches!(&command.command.work, TracedWork::Launch { group, .. } if group.x == 32));
            assert_eq!(command.command.label.as_ref().unwrap().id, 7);
        }
    }
    assert_eq!(data.to_vec().unwrap()[0], 6);
}

#[test]
fn what_did_not_run_has_no_time() {
    let bench = Bench::new();
    let (increment, fail) = (bench.increment(), bench.fail());
    let (mut data, mut other) =
        (bench.device.buffer::<u32>(4).unwrap(), bench.device.buffer::<u32>(4).unwrap());
    bench.device.trace().start(1000);
    bench.sim.hold();
    let failed = bench.launch(&fail, (&mut data,)).unwrap();
    let poisoned = bench.launch(&increment, (&mut other,)).unwrap();
    bench.sim.release();
    failed.wait().unwrap_err();
    poisoned.wait().unwrap_err();
    bench.stream.acknowledge();
    bench.sim.fail_next(Op::Submit, Error::OutOfMemory { requested: 1, available: 0 });
    bench.launch(&increment, (&mut other,)).unwrap_err();
    let mut unrecorded = bench.stream.command_buffer();
    // SAFETY: the call is refused.
    #[allow(unsafe_code)]
    unsafe { unrecorded.launch(&increment, Grid::threads(1), (1_u32,)) }.unwrap_err();
    unrecorded.submit().unwrap().wait().unwrap();
    let timeline = bench.device.trace().timeline();
    let [failed, poisoned, rejected, refused] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
    let span = failed.commands[0].device.unwrap();
    assert!(!span.is_measured && span.begin_ns >= failed.recorded.end_ns, "{failed:#?}");
    assert!(span.end_ns <= failed.completed.unwrap().begin_ns, "{failed:#?}");
    assert!(matches!(failed.commands[0].error.as_deref(), Some(Error::Fault(_))), "{failed:#?}");
    assert!(poisoned.is_submitted && poisoned.device.is_none() && poisoned.commands[0].device.is_none());
    assert!(matches!(poisoned.error.as_deref(), Some(Error::Poisoned(_))), "{poisoned:#?}");
    assert!(!rejected.is_submitted && rejected.completed.is_none() && rejected.device.is_none());
    assert!(matches!(rejected.error.as_deref(), Some(Error::OutOfMemory { .. })), "{rejected:#?}");
    assert!(refused.error.is_none() && refused.commands.is_empty() && refused.completed.is_some());
    assert!(matches!(&refused.refused[..], [(_, error)] if matches!(**error, Error::InvalidArgument(_))));
}

#[test]
fn work_in_flight_has_no_end() {
    let bench = Bench::new();
    let increment = bench.increment();
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    bench.device.trace().start(1000);
    bench.sim.hold();
    let pending = bench.launch(&increment, (&mut data,)).unwrap();
    let of = |timeline: &Timeline| {
        let [submission] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
        assert!(submission.is_submitted && submission.error.is_none());
        (submission.completed.is_some(), submission.device.is_some(), submission.commands.len())
    };
    assert_eq!(of(&bench.device.trace().timeline()), (false, false, 1));
    bench.sim.release();
    pending.wait().unwrap();
    bench.device.trace().stop();
    assert_eq!(of(&bench.device.trace().timeline()), (true, true, 1));
}

#[test]
fn submissions_that_lost_events_are_left_out() {
    let bench = Bench::new();
    let increment = bench.increment();
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    // Nine events of a launch.
    bench.device.trace().start(9 * 3 + 5);
    for _ in 0..10 {
        bench.launch(&increment, (&mut data,)).unwrap().wait().unwrap();
    }
    let timeline = bench.device.trace().timeline();
    let numbers: Vec<u64> = timeline.submissions.iter().map(|submission| submission.number).collect();
    let first = numbers[0];
    assert_eq!(numbers, [first, first + 1, first + 2]);
    assert!(timeline.submissions.iter().all(|submission| names(submission) == ["increment"]));
    assert_eq!(timeline.lost + bench.device.trace().events().len() as u64, 90);
    assert!(timeline.memory.len() >= 3 && timeline.memory.iter().all(|sample| sample.live_bytes == 16));
}

#[test]
fn decisions_are_with_their_submission_or_call() {
    let bench = Bench::on(Sim::new());
    let policy = policy(&bench.device);
    let stream = bench.device.stream_recovering(policy.clone()).unwrap();
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    bench.device.trace().start(1000);
    let busy = || Error::Environment("the compiler crashed".into());
    bench.sim.fail_next(Op::Execute, busy());
    stream.fill(&mut data, 3).unwrap().wait().unwrap();
    bench.sim.fail_next(Op::Allocate, busy());
    bench.device.recover(&policy, || bench.device.buffer::<u32>(50_000)).unwrap();
    let timeline = bench.device.trace().timeline();
    let [submission] = &timeline.submissions[..] else { panic!("{timeline:#?}") };
    let of = |decisions: &[(u64, elinvar::Decision)]| -> Vec<elinvar::Action> {
        decisions.iter().map(|(_, decision)| decision.action).collect()
    };
    assert_eq!(of(&submission.decisions), [elinvar::Action::Retry]);
    assert_eq!(of(&timeline.decisions), [elinvar::Action::Retry]);
    let span = submission.device.unwrap();
    assert!(span.is_measured && submission.error.is_none());
    let at = submission.decisions[0].0;
    assert!(submission.recorded.end_ns <= at && at <= submission.completed.unwrap().begin_ns);
    let is_measured = |command: &TimelineCommand| command.device.is_some_and(|span| span.is_measured);
    assert!(submission.commands.iter().all(is_measured));
}
