//! Launch features: command lists, trace, labels, limits of pending work, deadlines, suggested sizes.

use crate::support;

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use elinvar::driver::{CodeFacts, Dim3};
use elinvar::{Access, Device, Error, Grid, RecoveryPolicy, Scalar, StopsAt, Stream, TraceStep, WhenFull};
use elinvar_conformance::sim::{Op, Sim};
use support::{Bench, invalid, launch, pointer, signature};

fn names(device: &Device) -> Vec<&'static str> {
    device.trace().events().iter().map(|event| event.step.name()).collect()
}

#[test]
fn every_step_of_a_launch_is_in_the_trace_in_order() {
    let bench = Bench::new();
    let increment = bench.increment().labeled("step", 7);
    let mut data = bench.device.buffer_with_data(&[1u32; 64]).unwrap();
    bench.device.trace().start(100);
    bench.launch(&increment, (&mut data,)).unwrap().wait().unwrap();
    let all = ["acquire", "encode", "bind", "size", "dispatch", "end", "commit", "complete", "release"];
    assert_eq!(names(&bench.device), all);
    let events = bench.device.trace().events();
    assert!(events.is_sorted_by_key(|event| event.time));
    assert!(events.iter().all(|event| event.submission == events[0].submission));
    let text: Vec<String> = events.iter().map(ToString::to_string).collect();
    assert!(text[1].ends_with(": encode kernel `increment`, launch `step` (7)"), "{}", text[1]);
    assert!(text[2].ends_with(": bind 1 arguments"), "{}", text[2]);
    assert!(text[3].ends_with(": size 1×1×1 threads in groups of 32×1×1"), "{}", text[3]);
    assert!(text[5].ends_with(": end 1 commands"), "{}", text[5]);
    let stats = bench.device.trace().stats();
    assert!(all.iter().all(|name| stats[name].count == 1), "{stats:?}");
    bench.device.trace().stop();
    bench.launch(&increment, (&mut data,)).unwrap().wait().unwrap();
    assert_eq!(names(&bench.device).len(), all.len(), "it is off");
}

#[test]
fn the_trace_has_copies_events_refusals_and_failures() {
    let bench = Bench::new();
    let (mut a, mut b) = (bench.device.buffer::<u32>(4).unwrap(), bench.device.buffer::<u32>(4).unwrap());
    let event = bench.device.event().unwrap();
    bench.device.trace().start(100);
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.fill(&mut a, 1).unwrap();
    command_buffer.copy(&a, &mut b).unwrap();
    command_buffer.signal(&event, 1);
    command_buffer.wait_for(&event, 1);
    invalid(command_buffer.submit_refused(&bench));
    let done = bench.stream.fill(&mut a, 2).unwrap();
    done.wait().unwrap();
    bench.sim.fail_next(Op::Submit, Error::OutOfMemory { requested: 1, available: 0 });
    bench.stream.fill(&mut a, 3).unwrap_err();
    bench.sim.fail_next(Op::Execute, support::fault());
    bench.stream.fill(&mut a, 4).unwrap().wait().unwrap_err();
    let names = names(&bench.device);
    let expected = [
        "acquire", "fill", "copy", "signal", "wait", "encode", "refused", "end", "commit", "complete",
        "release",
    ];
    assert_eq!(names[..expected.len()], expected);
    let events = bench.device.trace().events();
    let refused = events
        .iter()
        .filter(|e| matches!(&e.step, TraceStep::Refused(e) if matches!(**e, Error::OutOfMemory { .. })))
        .count();
    let failed = events
        .iter()
        .filter(|e| matches!(&e.step, TraceStep::Complete(Err(e)) if matches!(**e, Error::Fault(_))))
        .count();
    assert_eq!((refused, failed), (1, 1));
}

trait Refused {
    /// Adds a launch that is refused and submits the rest; returns the refusal.
    fn submit_refused(self, bench: &Bench) -> Result<(), Error>;
}

impl Refused for elinvar::CommandBuffer {
    fn submit_refused(mut self, bench: &Bench) -> Result<(), Error> {
        let kernel = bench.kernel(vec![]);
        // SAFETY: the call is refused and has no effect.
        #[allow(unsafe_code)]
        let refused = unsafe { self.launch(&kernel, Grid::threads(1), (1u32,)) };
        self.submit()?.wait()?;
        refused
    }
}

#[test]
fn the_trace_keeps_the_last_events() {
    let bench = Bench::new();
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    bench.device.trace().start(12);
    for _ in 0..5 {
        bench.stream.fill(&mut data, 1).unwrap().wait().unwrap();
    }
    // Six steps per fill: acquire, fill, end, commit, complete, release.
    assert_eq!((names(&bench.device).len(), bench.device.trace().lost()), (12, 18));
    let fills = bench.device.trace().stats();
    assert_eq!((fills["fill"].count, fills["release"].count), (2, 2));
    bench.device.trace().start(0);
    bench.stream.fill(&mut data, 1).unwrap().wait().unwrap();
    assert!(names(&bench.device).is_empty());
}

#[test]
fn an_error_names_the_launch() {
    let bench = Bench::new();
    let boom =
        bench.declare(signature("boom", vec![]), |_| panic!("at the disco")).labeled("second pass", 12);
    let error = bench.launch(&boom, ()).unwrap().wait().unwrap_err();
    assert_eq!(error.to_string(), "kernel `boom`, launch `second pass` (12): panicked: at the disco");
}

#[test]
fn a_recording_is_submitted_again_and_again() {
    let bench = Bench::new();
    let increment = bench.increment();
    let mut data = bench.device.buffer_with_data(&[10u32]).unwrap();
    let mut copy = bench.device.buffer::<u32>(1).unwrap();
    let mut command_buffer = bench.stream.command_buffer();
    // SAFETY: the kernel stays within its argument.
    #[allow(unsafe_code)]
    unsafe {
        command_buffer.launch(&increment, Grid::threads(1), (&mut data,)).unwrap();
    }
    command_buffer.copy(&data, &mut copy).unwrap();
    let recording = command_buffer.record().unwrap();
    assert_eq!((recording.len(), bench.sim.commands().len()), (2, 0));
    // SAFETY: as above.
    #[allow(unsafe_code)]
    let replay = |stream: &Stream| unsafe { stream.replay(&recording) };
    for round in 11..=15 {
        let done = replay(&bench.stream).unwrap();
        assert_eq!(copy.to_vec().unwrap(), [round], "reading waits for it as for a launch");
        assert!(done.is_done());
    }
    let map = data.map().unwrap();
    assert!(invalid(replay(&bench.stream)).starts_with("kernel `increment`, argument 0 `data`"));
    drop(map);
    drop((data, copy));
    bench.sim.forget_commands();
    assert_eq!(bench.device.pool().stats().live_buffers, 2, "the recording has them");
    replay(&bench.device.stream().unwrap()).unwrap().wait().unwrap();
    assert!(
        invalid(replay(&Bench::on(Sim::named("other")).stream))
            .starts_with("replay: the recording is of device")
    );
    drop(recording);
    assert_eq!(bench.device.pool().stats().live_buffers, 0);
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.signal(&bench.device.event().unwrap(), 1);
    assert_eq!(
        invalid(command_buffer.record()),
        "record: the command buffer has events, which reach a value only once"
    );
}

#[test]
fn slots_are_made_ahead_and_used_again() {
    let bench = Bench::new();
    let first = bench.device.command_list_stats();
    assert_eq!((first.available, first.active, first.utilization()), (16, 0, 0.0));
    bench.sim.hold();
    let done: Vec<_> = (0..20).map(|_| bench.stream.command_buffer().submit().unwrap()).collect();
    let full = bench.device.command_list_stats();
    assert_eq!(
        (full.available, full.active, full.hits, full.misses, full.utilization()),
        (0, 20, 16, 4, 1.0)
    );
    bench.sim.release();
    done.iter().for_each(|done| assert!(done.wait().is_ok()));
    let idle = bench.device.command_list_stats();
    assert_eq!((idle.available, idle.active, idle.peak), (16, 0, 20));
    drop(bench.stream.command_buffer());
    assert_eq!((bench.device.command_list_stats().active, bench.device.command_list_stats().hits), (0, 17));
    for (asked, kept) in [(32, 32), (100, 32), (8, 8), (1, 8)] {
        bench.device.keep_command_lists(asked);
        assert_eq!(bench.device.command_list_stats().available, kept, "{asked}");
    }
}

#[test]
fn slots_add_up_under_threads() {
    const ROUNDS: u64 = 200;
    let bench = Bench::new();
    thread::scope(|scope| {
        for t in 0..32 {
            let device = &bench.device;
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let mut data = device.buffer::<u32>(8).unwrap();
                for i in 0..ROUNDS {
                    let mut command_buffer = stream.command_buffer();
                    command_buffer.fill(&mut data, t).unwrap();
                    if i % 3 == 0 {
                        continue;
                    }
                    let done = command_buffer.submit().unwrap();
                    if i % 5 == 0 {
                        done.cancel();
                    }
                }
                stream.synchronize().unwrap();
            });
        }
    });
    let stats = bench.device.command_list_stats();
    assert_eq!((stats.active, stats.hits + stats.misses), (0, 32 * (ROUNDS + 1)));
    assert!(stats.available <= 16 && stats.peak >= 1, "{stats:?}");
}

#[test]
fn a_full_stream_rejects_or_waits_for_a_while() {
    let bench = Bench::new();
    let limited = |when_full| bench.device.stream().unwrap().limited(2, when_full);
    bench.sim.hold();
    for when_full in [WhenFull::Reject, WhenFull::Deadline(Duration::from_millis(1))] {
        let stream: Stream = limited(when_full);
        let mut data = bench.device.buffer::<u32>(1).unwrap();
        stream.fill(&mut data, 1).unwrap();
        stream.clone().fill(&mut data, 2).unwrap();
        let before = bench.sim.commands().len();
        let refused = stream.fill(&mut data, 3);
        assert!(matches!(refused, Err(Error::QueueFull { limit: 2 })), "{refused:?}");
        assert_eq!((bench.sim.commands().len(), stream.in_flight()), (before, 2));
        bench.sim.release();
        assert_eq!(data.to_vec().unwrap(), [2]);
        stream.fill(&mut data, 4).unwrap();
        assert_eq!(data.to_vec().unwrap(), [4]);
        bench.sim.hold();
    }
}

#[test]
fn a_full_stream_blocks_until_there_is_room() {
    let bench = Bench::new();
    let stream = bench.device.stream().unwrap().limited(1, WhenFull::Block);
    bench.sim.hold();
    let first = stream.command_buffer().submit().unwrap();
    let (sender, submitted) = channel();
    let thread = thread::spawn({
        let stream = stream.clone();
        move || sender.send(stream.command_buffer().submit().unwrap()).unwrap()
    });
    thread::yield_now();
    assert!(submitted.try_recv().is_err(), "one is in flight");
    bench.sim.release();
    submitted.recv().unwrap().wait().unwrap();
    assert!(first.is_done());
    thread.join().unwrap();
    thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..50).for_each(|_| drop(stream.command_buffer().submit().unwrap())));
        }
    });
    stream.synchronize().unwrap();
    assert_eq!(stream.in_flight(), 0);
}

#[test]
fn what_takes_too_long_is_stopped() {
    let bench = Bench::new();
    let endless = bench.declare(signature("endless", vec![]), |launch| {
        loop {
            launch.stopped()?;
            thread::yield_now();
        }
    });
    let endless = endless.labeled("first", 1);
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.deadline(Duration::from_millis(2)).unwrap();
    // SAFETY: the kernel accesses no memory.
    #[allow(unsafe_code)]
    unsafe {
        command_buffer.launch(&endless, Grid::threads(1), ()).unwrap();
    }
    let done = command_buffer.submit().unwrap();
    let behind = bench.stream.command_buffer().submit().unwrap();
    let text = match done.wait() {
        Err(Error::Timeout(text)) => text,
        other => panic!("{other:?}"),
    };
    assert_eq!(text, "kernel `endless`, launch `first` (1): not finished 2ms after its submission");
    assert!(matches!(behind.wait(), Err(Error::Poisoned(cause)) if matches!(*cause, Error::Timeout(_))));
    assert!(matches!(bench.stream.acknowledge(), Some(Error::Timeout(_))));
    let mut in_time = bench.stream.command_buffer();
    in_time.deadline(Duration::from_secs(1000)).unwrap();
    in_time.submit().unwrap().wait().unwrap();
}

#[test]
fn what_has_not_begun_in_time_does_not_run() {
    let bench = Bench::new();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    bench.sim.hold();
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.fill(&mut data, 5).unwrap();
    command_buffer.deadline(Duration::ZERO).unwrap();
    let done = command_buffer.submit().unwrap();
    // When a later submission has passed its own deadline, so has the first.
    let mut other = bench.device.stream().unwrap().command_buffer();
    other.deadline(Duration::from_millis(1)).unwrap();
    let other = other.submit().unwrap();
    while !bench.sim.stopped(2) {
        thread::yield_now();
    }
    bench.sim.release();
    assert!(matches!(done.wait(), Err(Error::Timeout(_))));
    assert!(matches!(other.wait(), Err(Error::Timeout(_))));
    assert!(matches!(data.to_vec(), Err(Error::Poisoned(_))));
}

#[test]
fn a_device_that_cannot_stop_what_runs_is_lost_and_keeps_the_memory() {
    let bench = Bench::on(Sim::with_caps(|caps| caps.features.stops_at = StopsAt::Never));
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let endless =
        bench.declare(signature("endless", vec![pointer("x", Scalar::U32, Access::ReadWrite)]), move |_| {
            begun.send(()).unwrap();
            may_go_on.lock().unwrap().recv().unwrap();
            Ok(())
        });
    let (other, event) = (bench.device.stream().unwrap(), bench.device.event().unwrap());
    let (mut x, y) =
        (bench.device.buffer::<u32>(1000).unwrap(), bench.device.buffer_with_data(&[3_u32; 10]).unwrap());
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.deadline(Duration::from_millis(2)).unwrap();
    // SAFETY: the simulated kernel accesses no memory.
    #[allow(unsafe_code)]
    unsafe { command_buffer.launch(&endless, Grid::threads(1), (&mut x,)) }.unwrap();
    command_buffer.signal(&event, 1);
    let late = command_buffer.submit().unwrap();
    has_begun.recv().unwrap();
    // If the deadline has already passed, these submissions are refused with the same error.
    let behind = bench.stream.command_buffer().submit();
    let waits = other.wait_for(&event, 1);
    assert!(matches!(late.wait(), Err(Error::Timeout(text)) if text.starts_with("kernel `endless`")));
    let is_lost = |result: Result<(), Error>| matches!(result, Err(Error::DeviceLost(_)));
    assert!(is_lost(behind.and_then(|behind| behind.wait()).map(drop)));
    assert!(waits.and_then(|waits| waits.wait()).is_err() && event.wait(1).is_err());
    assert!(is_lost(other.command_buffer().submit().map(drop)), "it takes nothing more");
    assert!(is_lost(y.to_vec().map(drop)), "what runs may still write to it");
    assert!(is_lost(bench.device.buffer::<u32>(1).map(drop)));
    drop((x, y));
    let stats = bench.device.pool().stats();
    assert_eq!(stats.live_buffers, 1, "the driver has not let go of it");
    go_on.send(()).unwrap();
    bench.device.reset().unwrap();
    bench.stream.acknowledge();
    bench.sim.forget_commands();
    let mut z = bench.device.buffer::<u32>(5).unwrap();
    bench.device.stream().unwrap().fill(&mut z, 9).unwrap();
    assert_eq!(z.to_vec().unwrap(), [9; 5]);
}

/// Reruns this test in a child process that exits while one launch runs, one waits for an event, one waits for the first, and one waits for
/// its next attempt.
#[test]
fn a_process_ends_with_work_pending() {
    const CHILD: &str = "ELINVAR_TEST_ENDS_WITH_WORK_PENDING";
    if std::env::var_os(CHILD).is_none() {
        let this = std::env::current_exe().unwrap();
        let child = std::process::Command::new(this)
            .args(["--exact", "pipeline::a_process_ends_with_work_pending"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.code(), Some(7), "{}", String::from_utf8_lossy(&child.stderr));
        return;
    }
    let bench = Bench::new();
    let (sender, begun) = channel();
    let endless = bench.declare(signature("endless", vec![]), move |launch| {
        let _first = sender.send(());
        loop {
            launch.stopped()?;
            thread::yield_now();
        }
    });
    let event = bench.device.event().unwrap();
    let mut command_buffer = bench.device.stream().unwrap().command_buffer();
    command_buffer.deadline(Duration::from_secs(1000)).unwrap();
    command_buffer.wait_for(&event, 1);
    command_buffer.submit().unwrap();
    let running = bench.launch(&endless, ()).unwrap();
    let behind = bench.stream.command_buffer().submit().unwrap();
    begun.recv().unwrap();
    let patient = RecoveryPolicy {
        backoff: Duration::MAX,
        longest: Duration::MAX,
        ..RecoveryPolicy::of(&bench.device)
    };
    bench.sim.fail_next(Op::Submit, Error::QueueFull { limit: 1 });
    let waiting = bench.device.stream_recovering(patient).unwrap().command_buffer().submit().unwrap();
    assert!(!running.is_done() && !behind.is_done() && !waiting.is_done());
    std::process::exit(7);
}

#[test]
fn a_size_is_suggested_with_its_reason() {
    let bench = Bench::new();
    let plain = bench.kernel(vec![]);
    let suggestion = plain.suggest((1920, 1080)).unwrap();
    assert_eq!(suggestion.group, Dim3::new(32, 8, 1));
    assert_eq!(
        suggestion.to_string(),
        "32×8×1: a grid of two dimensions, at most 256 threads in simdgroups of 32"
    );
    let mut waiting = signature("waiting", vec![]);
    waiting.code = Some(CodeFacts { barriers: 2, ..CodeFacts::default() });
    let waiting = bench.declare(waiting, |_| Ok(()));
    let suggestion = waiting.suggest(100_000).unwrap();
    assert_eq!(suggestion.group, Dim3::new(512, 1, 1));
    assert!(suggestion.reason.ends_with("the kernel has barriers"), "{suggestion}");
    let mut small = signature("small", vec![]);
    small.max_threads_per_threadgroup = Some(100);
    let small = bench.declare(small, |_| Ok(()));
    let suggestion = small.suggest(100_000).unwrap();
    assert_eq!(suggestion.group, Dim3::new(96, 1, 1));
    assert!(suggestion.reason.ends_with("the kernel allows 100"), "{suggestion}");
    assert_eq!(
        small.threadgroup_size(Grid::threads(100_000)).unwrap(),
        Some(suggestion.group),
        "as a launch has it"
    );
    assert!(invalid(plain.suggest(1u64 << 40)).contains("not within"));
    launch(&small, &bench.stream, Grid::threads(100_000), ()).unwrap().wait().unwrap();
}
