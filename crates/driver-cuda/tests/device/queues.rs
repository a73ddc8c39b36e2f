//! Order, events between queues and from the host, cancellation, failures, times.

use std::sync::Arc;

use elinvar_driver::{Command, Dim3, Error, Event, Priority, TimestampSlot};

use crate::bench::{
    Bench, Test, bound, dispatch, expect_all, fill, signal, slice, submit, wait, whole, words,
};

pub const TESTS: &[Test] = &[
    ("commands_take_effect_in_order", in_order),
    ("long_submissions_are_given_in_parts", long_submissions),
    ("queues_wait_for_one_another_on_the_device", across_queues),
    ("a_wait_before_its_signal", wait_first),
    ("the_host_lets_work_begin", host_signals),
    ("a_signal_in_the_middle_is_not_held_up", signal_in_the_middle),
    ("what_waits_can_be_cancelled_and_stopped", cancelled),
    ("failures_go_on_to_what_waits", failures),
    ("times_are_in_order", times),
    ("higher_priorities_overtake", priorities),
];

fn in_order(bench: &Bench) {
    let queue = bench.queue();
    let (a, b) = (bench.memory(4 << 20), bench.memory(4 << 20));
    let mut all = Vec::new();
    for round in 0..200 {
        let copy = Command::Copy { source: whole(&a), target: whole(&b) };
        all.push(submit(&queue, [fill(&a, round), copy, fill(&a, !round)]));
        all.push(submit(&queue, []));
    }
    for done in &all {
        done.wait().unwrap();
    }
    expect_all(&words(&b), |_| 199);
    expect_all(&words(&a), |_| !199);
}

fn long_submissions(bench: &Bench) {
    let queue = bench.queue();
    let x = bench.memory(4 * 3000);
    let step = |k: u64| Command::Fill {
        target: slice(&x, 4 * k, 4 * (3000 - k)),
        pattern: (k as u32).to_ne_bytes().into(),
    };
    let commands: Vec<Command> = (0..3000).map(step).collect();
    for _ in 0..3 {
        submit(&queue, commands.clone());
    }
    submit(&queue, commands).wait().unwrap();
    expect_all(&words(&x), |i| i as u32);
}

fn across_queues(bench: &Bench) {
    let queues = [bench.queue(), bench.queue(), bench.queue()];
    let event = bench.event();
    let (a, b) = (bench.memory(1 << 20), bench.memory(1 << 20));
    let mut all = Vec::new();
    for turn in 0..60_u64 {
        let (from, to) = if turn % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let copy = Command::Copy { source: slice(from, 0, 1 << 19), target: slice(to, 1 << 19, 1 << 19) };
        let first =
            Command::Fill { target: slice(from, 0, 1 << 19), pattern: (turn as u32).to_ne_bytes().into() };
        all.push(submit(
            &queues[turn as usize % 3],
            [wait(&event, turn), first, copy, signal(&event, turn + 1)],
        ));
    }
    for done in &all {
        done.wait().unwrap();
    }
    assert_eq!(event.value(), 60);
    expect_all(&words(&a)[1 << 17..], |_| 59);
    expect_all(&words(&b)[1 << 17..], |_| 58);
}

fn wait_first(bench: &Bench) {
    let (first, second) = (bench.queue(), bench.queue());
    let event = bench.event();
    let x = bench.memory(4000);
    let behind = submit(&second, [wait(&event, 7), fill(&x, 5)]);
    let also = submit(&second, []);
    assert!(!behind.has_ended() && !also.has_ended());
    submit(&first, [fill(&x, 2), signal(&event, 9)]).wait().unwrap();
    behind.wait().unwrap();
    also.wait().unwrap();
    expect_all(&words(&x), |_| 5);
    assert_eq!(event.value(), 9);
}

fn host_signals(bench: &Bench) {
    let queue = bench.queue();
    let (to_device, to_host) = (bench.event(), bench.event());
    let x = bench.memory(4000);
    for turn in 1..=20_u64 {
        let done = submit(&queue, [wait(&to_device, turn), fill(&x, turn as u32), signal(&to_host, turn)]);
        assert!(!done.has_ended() && to_host.value() == turn - 1);
        to_device.signal(turn, bench.device.clock_ns());
        done.wait().unwrap();
        assert_eq!(to_host.value(), turn);
    }
    expect_all(&words(&x), |_| 20);
}

fn signal_in_the_middle(bench: &Bench) {
    let (first, second) = (bench.queue(), bench.queue());
    let (there, back) = (bench.event(), bench.event());
    let (x, y) = (bench.memory(4000), bench.memory(4000));
    let one = submit(&first, [fill(&x, 1), signal(&there, 1), wait(&back, 1), fill(&x, 3)]);
    let copy = Command::Copy { source: whole(&x), target: whole(&y) };
    let two = submit(&second, [wait(&there, 1), copy, signal(&back, 1)]);
    one.wait().unwrap();
    two.wait().unwrap();
    expect_all(&words(&y), |_| 1);
    expect_all(&words(&x), |_| 3);
}

fn cancelled(bench: &Bench) {
    let queue = bench.queue();
    let (gate, after) = (bench.event(), bench.event());
    let x = bench.memory(4000);
    let first = submit(&queue, [wait(&gate, 1), fill(&x, 1), signal(&after, 1)]);
    let second = submit(&queue, [fill(&x, 2)]);
    let third = submit(&queue, [fill(&x, 3)]);
    assert!(queue.cancel(third.id) && !queue.cancel(third.id));
    assert!(matches!(third.wait(), Err(Error::Cancelled)));
    assert!(queue.cancel(first.id), "it has only waited");
    assert!(matches!(first.wait(), Err(Error::Cancelled)));
    assert!(matches!(after.failure(), Some(Error::Poisoned(cause)) if matches!(*cause, Error::Cancelled)));
    second.wait().unwrap();
    assert!(!queue.cancel(second.id));
    expect_all(&words(&x), |_| 2);
    gate.signal(1, 0);

    let gate = bench.event();
    let first = submit(&queue, [wait(&gate, 1), fill(&x, 4)]);
    let second = submit(&queue, [fill(&x, 5)]);
    assert!(queue.stop(first.id, Error::Timeout("late".into())).unwrap());
    assert!(matches!(first.wait(), Err(Error::Timeout(_))));
    assert!(matches!(second.wait(), Err(Error::Poisoned(_))));
    assert!(!queue.stop(first.id, Error::Timeout("later".into())).unwrap(), "it has ended");
    assert!(matches!(queue.acknowledge(), Some(Error::Timeout(_))) && queue.acknowledge().is_none());
    submit(&queue, [fill(&x, 6)]).wait().unwrap();
    expect_all(&words(&x), |_| 6);
}

fn failures(bench: &Bench) {
    let (first, second) = (bench.queue(), bench.queue());
    let event: Arc<dyn Event> = bench.event();
    let x = bench.memory(4000);
    let behind = submit(&second, [wait(&event, 1), fill(&x, 1)]);
    let bad = Command::Fill { target: slice(&x, 0, 10), pattern: vec![1, 2, 3] };
    let failed = submit(&first, [fill(&x, 9), bad, fill(&x, 8), signal(&event, 1)]);
    let next = submit(&first, [fill(&x, 7)]);
    assert!(matches!(failed.wait(), Err(Error::InvalidArgument(_))));
    for done in [&next, &behind] {
        let ended = done.wait();
        assert!(
            matches!(&ended, Err(Error::Poisoned(cause)) if matches!(**cause, Error::InvalidArgument(_))),
            "{ended:?}"
        );
    }
    assert!(matches!(first.acknowledge(), Some(Error::InvalidArgument(_))));
    assert!(matches!(second.acknowledge(), Some(Error::Poisoned(_))));
    expect_all(&words(&x), |_| 9);
    submit(&first, [fill(&x, 3)]).wait().unwrap();
    submit(&second, [Command::Copy { source: slice(&x, 0, 400), target: slice(&x, 400, 400) }])
        .wait()
        .unwrap();
    expect_all(&words(&x), |_| 3);
}

fn times(bench: &Bench) {
    let queue = bench.queue();
    let x = bench.memory(256 << 20);
    for _ in 0..20 {
        let stamps: Vec<Arc<TimestampSlot>> = (0..4).map(|_| Arc::new(TimestampSlot::new())).collect();
        let event = bench.event();
        let stamp = |k: usize| Command::Timestamp { into: stamps[k].clone() };
        let before = bench.device.clock_ns();
        let commands = [
            stamp(0),
            fill(&x, 1),
            stamp(1),
            fill(&x, 2),
            signal(&event, 1),
            stamp(2),
            fill(&x, 3),
            stamp(3),
        ];
        let timing = submit(&queue, commands).wait().unwrap();
        let after = bench.device.clock_ns();
        let ns: Vec<u64> = stamps.iter().filter_map(|stamp| stamp.ns()).collect();
        let all = [&[before, timing.start_ns][..], &ns, &[timing.end_ns, after]].concat();
        assert!(ns.len() == 4 && all.is_sorted(), "{all:?}");
        let signalled = event.time_ns().unwrap_or(0);
        assert!(ns[1] <= signalled && signalled <= ns[2], "{signalled} of {all:?}");
        // Each fill of 256 MiB takes tens of microseconds on any device.
        assert!(ns[1] - ns[0] > 10_000 && ns[3] - ns[2] > 10_000, "{all:?}");
    }
}

/// A submission overtakes earlier work on another queue if and only if its priority is higher. Threadgroups draw tickets when they start;
/// there are many times more threadgroups than run at once.
fn priorities(bench: &Bench) {
    use Priority::{High, Low, Normal};
    const GROUPS: [u32; 2] = [20_000, 2_000];
    let tickets = bench.pipeline("tickets");
    let (group, sink) = (Dim3::new(1024, 1, 1), bench.memory(4 * 1024));
    for (first, second) in [(Low, High), (Low, Normal), (Normal, High), (High, Low), (Normal, Normal)] {
        // An allocation waits for running work, so everything is allocated before the first submission.
        let next = bench.memory(4);
        let own = GROUPS.map(|groups| bench.memory(4 * u64::from(groups)));
        let queues = [first, second].map(|priority| bench.device.queue_with(priority).unwrap());
        let work = [0, 1].map(|at| {
            let bindings = vec![bound(&next), bound(&own[at]), bound(&sink)];
            dispatch(&tickets, bindings, Dim3::new(1024 * GROUPS[at], 1, 1), group)
        });
        let [one, other] = work;
        let pending = [submit(&queues[0], [one]), submit(&queues[1], [other])];
        for submitted in &pending {
            submitted.wait().unwrap();
        }
        let drawn = own.map(|own| words(&own));
        let mut all = drawn.concat();
        all.sort_unstable();
        expect_all(&all, |i| i as u32);
        // Number of threadgroups of the first launch that started after the last one of the second.
        let last = drawn[1].iter().max().unwrap();
        let overtaken = drawn[0].iter().filter(|ticket| *ticket > last).count() as u32;
        let goes_first = [(Low, High), (Low, Normal), (Normal, High)].contains(&(first, second));
        let text =
            format!("{second:?} behind {first:?}: {overtaken} of {} threadgroups are overtaken", GROUPS[0]);
        eprintln!("{text}");
        assert!(if goes_first { overtaken > GROUPS[0] / 2 } else { overtaken < GROUPS[0] / 2 }, "{text}");
    }
}
