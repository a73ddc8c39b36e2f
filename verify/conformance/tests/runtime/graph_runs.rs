//! Runs of graphs on the simulated device: streams, memory, faults, captured command buffers, two devices.

use crate::support;

use std::time::Duration;

use elinvar::driver::{Command, MemorySlice};
use elinvar::{Batching, Buffer, Completion, Error, Graph, Grid, PlanOptions, Route, WhenFull};
use elinvar_conformance::sim::{Op, Sim};
use support::graph::{N, map, mapped, mix, node, ramp, ran, run, scratch, submit};
use support::{Bench, assert_poisoned, fault, invalid};

fn options(batching: Batching) -> PlanOptions {
    PlanOptions { batching, ..PlanOptions::default() }
}

/// Waits for the end of a run on a device that is not held.
fn ended(done: &Completion) -> Result<(), Error> {
    done.wait().map(drop)
}

/// A diamond: two branches that write one buffer each, and a node that joins them.
struct Diamond {
    bench: Bench,
    graph: Graph,
    input: Buffer<u32>,
    left: Buffer<u32>,
    right: Buffer<u32>,
    out: Buffer<u32>,
}

fn diamond() -> Diamond {
    let bench = Bench::new();
    let (map, mix) = (map(&bench), mix(&bench));
    let buffer = || bench.device.buffer::<u32>(N).unwrap();
    let (input, mut left, mut right) = (bench.device.buffer_with_data(&ramp()).unwrap(), buffer(), buffer());
    let mut out = buffer();
    let mut graph = Graph::new();
    let mut first = scratch(&mut graph, &bench);
    node(&mut graph, &map.labeled("first", 0), (&input, &mut first, 1u32));
    node(&mut graph, &map.labeled("left", 0), (&first, &mut left, 2u32));
    node(&mut graph, &map.labeled("right", 0), (&first, &mut right, 3u32));
    graph.fill(&mut out, 0u32).unwrap();
    node(&mut graph, &mix.labeled("both", 0), (&left, &right, &mut out));
    Diamond { bench, graph, input, left, right, out }
}

impl Diamond {
    fn expected(&self) -> Vec<u32> {
        let first = mapped(&ramp(), 1);
        let (left, right) = (mapped(&first, 2), mapped(&first, 3));
        (0..N).map(|i| left[i] ^ right[i].wrapping_mul(5)).collect()
    }
}

#[test]
fn branches_go_to_several_streams() {
    let all = diamond();
    for (batching, submissions) in [(Batching::Chains, 5), (Batching::None, 7), (Batching::Streams, 5)] {
        let mut plan = all.graph.plan_with(options(batching)).unwrap();
        let stats = plan.stats();
        assert_eq!((stats.streams, stats.submissions), (3, submissions), "{batching:?}: {stats:?}");
        for _ in 0..3 {
            all.out.clone().fill(77).unwrap();
            run(&mut plan, &all.bench);
            assert_eq!(all.out.to_vec().unwrap(), all.expected(), "{batching:?}");
        }
    }
    let one = PlanOptions { streams: Some(1), ..options(Batching::Streams) };
    let mut plan = all.graph.plan_with(one).unwrap();
    assert_eq!((plan.stats().streams, plan.stats().submissions, plan.stats().waits), (1, 1, 0));
    run(&mut plan, &all.bench);
    assert_eq!(all.out.to_vec().unwrap(), all.expected());
}

/// A run is one item in the order of its stream, even if most of it executes on other streams.
#[test]
fn a_run_takes_its_place_in_the_streams_order() {
    let mut all = diamond();
    let mut plan = all.graph.plan().unwrap();
    let mut copies: Vec<Buffer<u32>> = (0..3).map(|_| all.bench.device.buffer(N).unwrap()).collect();
    let stream = &all.bench.stream;
    for (round, copy) in copies.iter_mut().enumerate() {
        stream.fill(&mut all.input, round as u32).unwrap();
        submit(&mut plan, stream).unwrap();
        stream.copy(&all.out, copy).unwrap();
    }
    stream.synchronize().unwrap();
    for (round, copy) in copies.iter().enumerate() {
        let first = mapped(&[round as u32; N], 1);
        let (left, right) = (mapped(&first, 2), mapped(&first, 3));
        let expected: Vec<u32> = (0..N).map(|i| left[i] ^ right[i].wrapping_mul(5)).collect();
        assert_eq!(copy.to_vec().unwrap(), expected, "round {round}");
    }
    // On another stream it comes after the previous run.
    let (event, other) = (all.bench.device.event().unwrap(), all.bench.device.stream().unwrap());
    stream.wait_for(&event, 1).unwrap();
    let first = submit(&mut plan, stream).unwrap();
    let second = submit(&mut plan, &other).unwrap();
    // Without this order, the second run would end long before the timeout.
    assert_eq!(second.wait_timeout(Duration::from_millis(100)).unwrap(), None);
    assert!(!first.is_done());
    event.signal(1);
    ended(&second).unwrap();
    assert!(first.is_done());
}

#[test]
fn transients_share_memory_by_their_lifetimes() {
    let bench = Bench::new();
    let (map, input) = (map(&bench), bench.device.buffer_with_data(&ramp()).unwrap());
    let mut out = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    let mut last = input.clone();
    for k in 0..20u32 {
        let mut next = scratch(&mut graph, &bench);
        node(&mut graph, &map, (&last, &mut next, k));
        last = next;
    }
    node(&mut graph, &map, (&last, &mut out, 20u32));
    let expected = (0..=20).fold(ramp(), |values, k| mapped(&values, k));
    let bytes = 4 * N as u64;
    let mut peaks = Vec::new();
    for optimize in [false, true] {
        let before = bench.sim.memory().1;
        let mut plan = graph.plan_with(PlanOptions { optimize, ..PlanOptions::default() }).unwrap();
        let stats = plan.stats();
        assert_eq!(stats.transient_bytes, 20 * bytes);
        assert_eq!(stats.arena_bytes, if optimize { 2 * bytes } else { 20 * bytes });
        run(&mut plan, &bench);
        assert_eq!(out.to_vec().unwrap(), expected);
        peaks.push(bench.sim.memory().1 - before);
        drop(plan);
        bench.sim.forget_commands();
        bench.device.pool().trim(0);
    }
    assert_eq!(peaks, [20 * bytes, 2 * bytes], "what the device has given out");
}

/// Transients of parallel branches do not share memory, regardless of their order in the graph.
#[test]
fn branches_do_not_share_memory() {
    let bench = Bench::new();
    let (map, input) = (map(&bench), bench.device.buffer_with_data(&ramp()).unwrap());
    let mut outs: Vec<Buffer<u32>> = (0..3).map(|_| bench.device.buffer(N).unwrap()).collect();
    let mut graph = Graph::new();
    for out in &mut outs {
        let mut between = scratch(&mut graph, &bench);
        node(&mut graph, &map, (&input, &mut between, 1u32));
        let out_node = node(&mut graph, &map, (&between, out, 2u32));
        graph.name(out_node, "out").unwrap();
    }
    let plan = |streams| {
        let options = PlanOptions { streams, ..PlanOptions::default() };
        graph.plan_with(options).unwrap().stats().arena_bytes / (4 * N as u64)
    };
    // The three branches are equal, so they are merged.
    assert_eq!((plan(None), plan(Some(1))), (1, 1));
    let mut graph = Graph::new();
    for (k, out) in outs.iter_mut().enumerate() {
        let mut between = scratch(&mut graph, &bench);
        node(&mut graph, &map, (&input, &mut between, k as u32));
        node(&mut graph, &map, (&between, out, 2u32));
    }
    for (streams, blocks) in [(None, 3), (Some(2), 2), (Some(1), 1)] {
        let mut plan = graph.plan_with(PlanOptions { streams, ..PlanOptions::default() }).unwrap();
        assert_eq!(plan.stats().arena_bytes, blocks * 4 * N as u64, "{streams:?}");
        run(&mut plan, &bench);
        for (k, out) in outs.iter().enumerate() {
            assert_eq!(out.to_vec().unwrap(), mapped(&mapped(&ramp(), k as u32), 2));
        }
    }
}

#[test]
fn a_transient_is_of_no_use_outside() {
    let bench = Bench::new();
    let map = map(&bench);
    let mut out = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    let live = bench.device.pool().stats();
    let mut zeroed = graph.transient::<u32>(&bench.device, N).unwrap();
    assert_eq!(bench.device.pool().stats(), live, "it has no memory");
    let outside = "the buffer is a transient of a graph; only the graph's nodes can use it";
    assert_eq!(invalid(zeroed.to_vec()), format!("read: {outside}"));
    assert_eq!(invalid(zeroed.fill(1)), format!("fill: {outside}"));
    assert!(matches!(zeroed.map().map(drop), Err(Error::Unsupported(_))));
    assert_eq!(invalid(bench.stream.copy(&zeroed, &mut out)), format!("copy: the source: {outside}"));
    assert!(
        matches!(zeroed.gpu_address(), Err(Error::Unsupported(text)) if text.contains("can differ between runs"))
    );
    let refused = bench.launch(&map, (&zeroed, &mut out, 1u32));
    assert_eq!(invalid(refused), format!("kernel `map`, argument 0 `a` (device const uint*): {outside}"));
    let mut other = Graph::new();
    assert_eq!(invalid(other.copy(&zeroed, &mut out)), "graph: the transient belongs to another graph");
    assert!(other.is_empty());
    assert_eq!(
        invalid(graph.transient::<u32>(&bench.device, 0)),
        "a transient of 0 bytes: device `sim` allows 1 to 1073741824"
    );
    // A transient that is read before it is written contains zeroes, or is refused.
    graph.copy(&zeroed, &mut out).unwrap();
    graph.fill(&mut zeroed, 5u32).unwrap();
    let mut plan = graph.plan().unwrap();
    for _ in 0..2 {
        out.fill(3).unwrap();
        run(&mut plan, &bench);
        assert_eq!(out.to_vec().unwrap(), [0; N]);
    }
    let empty = scratch(&mut graph, &bench);
    node(&mut graph, &map, (&empty, &mut out, 0u32));
    assert_eq!(
        invalid(graph.plan()),
        "graph: `map` (node 3): kernel `map`, argument 0 `a` (device const uint*): the transient is read \
         before it is written"
    );
}

#[test]
fn a_failure_takes_what_depends_on_it_and_nothing_else() {
    for batching in [Batching::Chains, Batching::None] {
        let mut all = diamond();
        let (bench, mut lone) = (&all.bench, all.bench.device.buffer::<u32>(N).unwrap());
        let mut more = bench.device.buffer::<u32>(N).unwrap();
        let fails = bench.fail();
        node(&mut all.graph, &map(bench), (&all.input, &mut lone, 4u32));
        // Works in place on `left`, between its writer and its reader.
        let broken = node(&mut all.graph, &fails, (&mut all.left,));
        node(&mut all.graph, &map(bench), (&all.left, &mut more, 4u32));
        let _ = broken;
        let mut plan = all.graph.plan_with(options(batching)).unwrap();
        for _ in 0..2 {
            let done = submit(&mut plan, &bench.stream).unwrap();
            assert_poisoned(ended(&done));
            // The failing node comes after `both`, whose result is complete.
            bench.stream.acknowledge().unwrap();
            bench.stream.synchronize().unwrap();
            assert_eq!(all.out.to_vec().unwrap(), all.expected(), "{batching:?}");
            assert_eq!(all.right.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 3));
            assert_eq!(lone.to_vec().unwrap(), mapped(&ramp(), 4));
            for lost in [&all.left, &more] {
                let text = lost.to_vec().unwrap_err().to_string();
                assert!(text.ends_with(&fault().to_string()), "{text}");
            }
        }
    }
}

#[test]
fn a_branch_that_fails_takes_the_join_and_not_the_other_branch() {
    let all = diamond();
    let (bench, mut plan) = (&all.bench, all.graph.plan().unwrap());
    // Begin, first, left, right, fill and both, on three streams; the launch `right` fails.
    bench.sim.hold();
    let done = submit(&mut plan, &bench.stream).unwrap();
    bench.sim.fail_launch("right", fault());
    bench.sim.release();
    assert_poisoned(ended(&done));
    assert_poisoned(bench.stream.synchronize());
    assert_eq!(all.left.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 2));
    assert_poisoned(all.right.to_vec());
    assert_poisoned(all.out.to_vec());
    // The failure is not acknowledged, so no further run executes.
    assert_poisoned(ended(&submit(&mut plan, &bench.stream).unwrap()));
    bench.stream.acknowledge().unwrap();
    run(&mut plan, bench);
    assert_eq!(all.out.to_vec().unwrap(), all.expected());
    assert_eq!(all.right.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 3));
}

/// A node that reads a result that failed in the previous run may be submitted before the node that writes it again.
#[test]
fn a_submission_that_begins_early_runs_again_too() {
    let bench = Bench::new();
    let (map, mix, input) = (map(&bench), mix(&bench), bench.device.buffer_with_data(&ramp()).unwrap());
    let (mut left, mut out) =
        (bench.device.buffer::<u32>(N).unwrap(), bench.device.buffer::<u32>(N).unwrap());
    let mut graph = Graph::new();
    graph.fill(&mut out, 0u32).unwrap();
    node(&mut graph, &map.labeled("left", 0), (&input, &mut left, 2u32));
    // The first and the last node share a submission, which starts before that of `left`.
    graph.fill(out.slice_mut(0..3).unwrap(), 0u32).unwrap();
    node(&mut graph, &mix, (&left, &input, &mut out));
    for batching in [Batching::Chains, Batching::None, Batching::Streams] {
        let mut plan = graph.plan_with(options(batching)).unwrap();
        let expected: Vec<u32> =
            mapped(&ramp(), 2).iter().zip(ramp()).map(|(left, x)| left ^ x.wrapping_mul(5)).collect();
        for _ in 0..3 {
            bench.sim.fail_launch("left", fault());
            assert_poisoned(ended(&submit(&mut plan, &bench.stream).unwrap()));
            assert_poisoned(left.to_vec());
            bench.stream.acknowledge().unwrap();
            run(&mut plan, &bench);
            assert_eq!(out.to_vec().unwrap(), expected, "{batching:?}");
        }
    }
}

#[test]
fn a_run_that_is_not_submitted_in_full_ends() {
    let all = diamond();
    let (bench, mut plan) = (&all.bench, all.graph.plan().unwrap());
    let submissions = plan.stats().submissions;
    let full = || Error::OutOfMemory { requested: 1, available: 0 };
    for at in 0..submissions {
        (0..at).for_each(|_| bench.sim.pass_next(Op::Submit));
        bench.sim.fail_next(Op::Submit, full());
        assert!(matches!(submit(&mut plan, &bench.stream), Err(Error::OutOfMemory { .. })), "{at}");
        // What waited for the rest of the run has failed; nothing hangs.
        let _end = bench.stream.synchronize();
        bench.stream.acknowledge();
        run(&mut plan, bench);
        assert_eq!(all.out.to_vec().unwrap(), all.expected(), "after a failure at {at}");
    }
    assert_eq!(plan.stats().runs, submissions as u64);
    let map = all.out.map().unwrap();
    let text = invalid(submit(&mut plan, &bench.stream));
    assert!(text.starts_with("fill: the buffer: the buffer is mapped"), "{text}");
    drop(map);
    let _end = bench.stream.synchronize();
    bench.stream.acknowledge();
    run(&mut plan, bench);
}

/// A stream with a limit of one submission gets its part of a run after everything that the part may wait for.
#[test]
fn a_full_stream_does_not_wait_for_what_is_not_submitted() {
    let all = diamond();
    let stream = all.bench.stream.clone().limited(1, WhenFull::Block);
    for batching in [Batching::Chains, Batching::None, Batching::Streams] {
        let mut plan = all.graph.plan_with(options(batching)).unwrap();
        for _ in 0..5 {
            all.out.clone().fill(1).unwrap();
            ended(&submit(&mut plan, &stream).unwrap()).unwrap();
            assert_eq!(all.out.to_vec().unwrap(), all.expected(), "{batching:?}");
        }
    }
}

#[test]
fn a_plan_may_be_dropped_with_a_run_in_flight() {
    let all = diamond();
    let before = all.bench.device.pool().stats().live_bytes;
    all.bench.sim.hold();
    let mut plan = all.graph.plan().unwrap();
    let done = submit(&mut plan, &all.bench.stream).unwrap();
    drop(plan);
    assert!(all.bench.device.pool().stats().live_bytes > before, "the arena is in use");
    all.bench.sim.release();
    ended(&done).unwrap();
    all.bench.stream.synchronize().unwrap();
    assert_eq!(all.out.to_vec().unwrap(), all.expected());
    // Ends of the submissions that use the arena: the last one on `right`'s stream, and the one on the run's stream.
    assert_eq!(all.right.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 3));
    assert_eq!(all.left.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 2));
    assert_eq!(all.bench.device.pool().stats().live_bytes, before);
}

#[test]
fn batches_are_captured_with_their_events() {
    let bench = Bench::new();
    let map = map(&bench);
    let other = bench.device.stream().unwrap();
    let input = bench.device.buffer_with_data(&ramp()).unwrap();
    let mut outs: Vec<Buffer<u32>> = (0..3).map(|_| bench.device.buffer(N).unwrap()).collect();
    let event = bench.device.event().unwrap();
    let mut first = bench.stream.command_buffer();
    let mut second = other.command_buffer();
    let [a, b, c] = &mut outs[..] else { unreachable!("three") };
    // SAFETY: the kernel stays within its arguments.
    #[allow(unsafe_code)]
    unsafe {
        first.launch(&map.labeled("a", 0), Grid::threads(N), (&input, &mut *a, 1u32)).unwrap();
        first.signal(&event, 1);
        first.launch(&map.labeled("b", 0), Grid::threads(N), (&*a, &mut *b, 2u32)).unwrap();
        second.wait_for(&event, 1);
        second.launch(&map.labeled("c", 0), Grid::threads(N), (&input, &mut *c, 3u32)).unwrap();
    }
    let mut graph = Graph::new();
    let mut early = other.command_buffer();
    early.wait_for(&event, 1);
    assert_eq!(
        invalid(graph.append(early)),
        "graph: the command buffer waits for an event that no previously appended command buffer signals"
    );
    let nodes = [graph.append(first).unwrap(), graph.append(second).unwrap()].concat();
    assert_eq!((nodes.len(), graph.len(), bench.sim.commands().len()), (3, 3, 0));
    // `c` is ordered after `a` through the event, but not after `b`.
    assert!(
        invalid(graph.after(nodes[0], &[nodes[2]]))
            .contains("`a` (node 0) → `signal` (node 1) → `wait` (node 3) → `c` (node 4)")
    );
    graph.after(nodes[1], &[nodes[2]]).unwrap();
    run(&mut graph.plan().unwrap(), &bench);
    assert_eq!(ran(&bench).iter().filter(|name| *name != "a").collect::<Vec<_>>(), ["c", "b"]);
    assert_eq!(outs[1].to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 2));
    assert_eq!(outs[2].to_vec().unwrap(), mapped(&ramp(), 3));

    bench.sim.forget_commands();
    let captured = Graph::capture(&bench.stream, |command_buffer| {
        command_buffer.fill(&mut outs[0], 1u32)?;
        command_buffer.copy(&input, &mut outs[1])
    });
    assert_eq!((bench.sim.commands().len(), outs[1].to_vec().unwrap()), (0, mapped(&mapped(&ramp(), 1), 2)));
    run(&mut captured.unwrap().plan().unwrap(), &bench);
    assert_eq!((outs[0].to_vec().unwrap(), outs[1].to_vec().unwrap()), (vec![1; N], ramp()));
    let late = Graph::capture(&bench.stream, |command_buffer| {
        command_buffer.deadline(std::time::Duration::from_secs(1))
    });
    assert!(
        matches!(late, Err(Error::Unsupported(text)) if text.contains("the command buffer has a deadline"))
    );
}

/// Copies go through the host, in place if the other device can access host memory.
#[test]
fn copies_go_from_device_to_device() {
    let in_place = || Sim::with_caps(|caps| caps.limits.wrap_granule = Some(256));
    there_and_back(&Bench::on(Sim::discrete()), &Bench::on(Sim::discrete()), [Route::Host, Route::Host]);
    there_and_back(&Bench::on(Sim::discrete()), &Bench::on(in_place()), [Route::HostInPlace, Route::Host]);
    there_and_back(&Bench::on(in_place()), &Bench::on(in_place()), [Route::HostInPlace; 2]);
}

fn there_and_back(ours: &Bench, theirs: &Bench, expected: [Route; 2]) {
    let (our_map, their_map) = (map(ours), map(theirs));
    let input = ours.device.buffer_with_data(&ramp()).unwrap();
    let mut back = ours.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    let (mut a, mut b) = (scratch(&mut graph, ours), scratch(&mut graph, theirs));
    let mut c = scratch(&mut graph, theirs);
    node(&mut graph, &our_map, (&input, &mut a, 1u32));
    let there = graph.copy(&a, &mut b).unwrap();
    graph.name(there, "there").unwrap();
    node(&mut graph, &their_map, (&b, &mut c, 2u32));
    graph.copy(&c, &mut back).unwrap();
    let mut plan = graph.plan().unwrap();
    let stats = plan.stats();
    let routes: Vec<_> = stats.transfers.iter().map(|t| (t.name.as_str(), t.bytes, t.route)).collect();
    assert_eq!(routes, [("there", 256, expected[0]), ("transfer", 256, expected[1])]);
    assert_eq!((stats.commands, stats.streams), (6, 2));
    for round in 0..3 {
        let start: Vec<u32> = ramp().iter().map(|x| x + round).collect();
        ours.stream.upload(&start, &mut input.clone()).unwrap();
        run(&mut plan, ours);
        assert_eq!(back.to_vec().unwrap(), mapped(&mapped(&start, 1), 2), "round {round}");
    }
    // No command of a device refers to memory of the other.
    let of = |slice: &MemorySlice| std::sync::Arc::as_ptr(&slice.memory).cast::<()>();
    let targets = |bench: &Bench| -> Vec<_> {
        let commands = bench.sim.commands();
        commands
            .iter()
            .filter_map(|c| if let Command::Copy { target, .. } = c { Some(of(target)) } else { None })
            .collect()
    };
    let (mine, yours) = (targets(ours), targets(theirs));
    assert!(mine.len() >= 6 && yours.len() == 6 && mine.iter().all(|memory| !yours.contains(memory)));
    // A failure on the other device is reported here.
    theirs.sim.fail_next(Op::Execute, fault());
    assert_poisoned(ended(&submit(&mut plan, &ours.stream).unwrap()));
    assert_poisoned(back.to_vec());
    ours.stream.acknowledge().unwrap();
    run(&mut plan, ours);
    // After a failure here, the work on the other device does not start.
    ours.sim.fail_launch("map", fault());
    assert_poisoned(ended(&submit(&mut plan, &ours.stream).unwrap()));
    ours.stream.acknowledge().unwrap();
    run(&mut plan, ours);
    assert_eq!(back.to_vec().unwrap().len(), N);
    let unequal = invalid(graph.copy(&input, &mut theirs.device.buffer::<u32>(3).unwrap()));
    assert!(unequal.starts_with("copy: the source has 64 elements, the target 3"), "{unequal}");
}
