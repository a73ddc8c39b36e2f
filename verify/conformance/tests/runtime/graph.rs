//! Graphs on the simulated device: dependencies and dead code elimination.

use crate::support;

use elinvar::{Buffer, Graph, Node, PlanOptions};
use support::graph::{N, map, mapped, mix, node, ramp, ran, run, scratch};
use support::{Bench, invalid};

#[test]
fn a_chain_is_one_submission_and_gives_what_its_launches_give() {
    let bench = Bench::new();
    let (map, input) = (map(&bench), bench.device.buffer_with_data(&ramp()).unwrap());
    let mut output = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    let (mut a, mut b) = (scratch(&mut graph, &bench), scratch(&mut graph, &bench));
    node(&mut graph, &map, (&input, &mut a, 1u32));
    node(&mut graph, &map, (&a, &mut b, 2u32));
    node(&mut graph, &map, (&b, &mut output, 3u32));
    let mut plan = graph.plan().unwrap();
    let stats = plan.stats();
    assert_eq!((stats.nodes, stats.commands, stats.submissions, stats.streams, stats.waits), (3, 3, 1, 1, 0));
    for round in 1..=3 {
        output.fill(9).unwrap();
        run(&mut plan, &bench);
        assert_eq!(output.to_vec().unwrap(), mapped(&mapped(&mapped(&ramp(), 1), 2), 3));
        let stats = plan.stats();
        assert!(
            stats.runs == round && stats.run_time.is_some() && stats.submit_time.as_nanos() > 0,
            "{stats:?}"
        );
    }
}

#[test]
fn a_circle_is_refused_with_its_path() {
    let bench = Bench::new();
    let map = map(&bench);
    let buffers: Vec<Buffer<u32>> = (0..4).map(|_| bench.device.buffer(N).unwrap()).collect();
    let mut graph = Graph::new();
    let mut add = |from: usize, to: usize, name: &str| {
        let added = node(&mut graph, &map, (&buffers[from], &mut buffers[to].clone(), 0u32));
        graph.name(added, name).unwrap();
        added
    };
    let (first, second, third) = (add(0, 1, "first"), add(1, 2, "second"), add(2, 3, "third"));
    let text = invalid(graph.after(first, &[third]));
    assert_eq!(
        text,
        "graph: `first` (node 0) after `third` (node 2) would close a cycle: \
         `first` (node 0) → `second` (node 1) → `third` (node 2) → `first` (node 0)"
    );
    assert!(invalid(graph.after(second, &[second])).ends_with("`second` (node 1) → `second` (node 1)"));
    let lone = node(&mut graph, &map, (&buffers[0], &mut bench.device.buffer::<u32>(N).unwrap(), 0u32));
    graph.after(first, &[lone]).unwrap();
    assert!(invalid(graph.after(lone, &[third])).contains("`map` (node 3) → `first` (node 0) → `second`"));
    let mut other = Graph::new();
    let theirs = node(&mut other, &map, (&buffers[0], &mut buffers[1].clone(), 0u32));
    assert_eq!(invalid(graph.after(first, &[theirs])), "graph: the node belongs to another graph");
    run(&mut graph.plan().unwrap(), &bench);
    assert_eq!(ran(&bench).len(), 3, "the lone one's result is gone");
}

#[test]
fn explicit_edges_order_what_memory_does_not() {
    let bench = Bench::new();
    let map = map(&bench);
    let mut outs: Vec<Buffer<u32>> = (0..3).map(|_| bench.device.buffer(N).unwrap()).collect();
    let mut graph = Graph::new();
    let input = bench.device.buffer_with_data(&ramp()).unwrap();
    let nodes: Vec<Node> = outs
        .iter_mut()
        .zip(["a", "b", "c"])
        .map(|(out, name)| node(&mut graph, &map.labeled(name, 0), (&input, out, 0u32)))
        .collect();
    graph.after(nodes[0], &[nodes[1]]).unwrap();
    graph.after(nodes[1], &[nodes[2]]).unwrap();
    let mut plan = graph.plan().unwrap();
    run(&mut plan, &bench);
    assert_eq!((ran(&bench), plan.stats().streams), (vec!["c".into(), "b".into(), "a".into()], 1));
    assert_eq!(plan.stats().submissions, 3, "what each writes is its own");
}

#[test]
fn work_that_nobody_reads_or_has_is_left_out() {
    let bench = Bench::new();
    let (map, input) = (map(&bench), bench.device.buffer_with_data(&ramp()).unwrap());
    let (mut kept, mut dropped) =
        (bench.device.buffer::<u32>(N).unwrap(), bench.device.buffer::<u32>(N).unwrap());
    let mut graph = Graph::new();
    let (mut used, mut unused, mut also) =
        (scratch(&mut graph, &bench), scratch(&mut graph, &bench), scratch(&mut graph, &bench));
    node(&mut graph, &map.labeled("used", 0), (&input, &mut used, 1u32));
    node(&mut graph, &map.labeled("unused", 0), (&used, &mut unused, 2u32));
    node(&mut graph, &map.labeled("only for unused", 0), (&input, &mut also, 2u32));
    node(&mut graph, &map.labeled("unused too", 0), (&also, &mut unused, 2u32));
    node(&mut graph, &map.labeled("dropped", 0), (&used, &mut dropped, 5u32));
    graph.fill(&mut kept, 8u32).unwrap();
    node(&mut graph, &map.labeled("kept", 0), (&used, &mut kept, 3u32));
    let held = graph.plan().unwrap().stats();
    assert_eq!(held.removed, ["unused", "only for unused", "unused too"], "the program has the buffer");
    drop(dropped);
    let mut plan = graph.plan().unwrap();
    assert_eq!(plan.stats().removed, ["unused", "only for unused", "unused too", "dropped"]);
    run(&mut plan, &bench);
    assert_eq!(ran(&bench), ["used", "fill", "kept"]);
    assert_eq!(kept.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 3));
    let every = graph.plan_with(PlanOptions { optimize: false, ..PlanOptions::default() }).unwrap();
    assert_eq!((every.stats().removed.len(), every.stats().commands), (0, 7));
}

/// A result that is overwritten in full before it is read is dead; a result that is overwritten in part is not.
#[test]
fn overwritten_results_are_left_out() {
    let bench = Bench::new();
    let mut out = bench.device.buffer_with_data(&ramp()).unwrap();
    let mut graph = Graph::new();
    graph.fill(&mut out, 1u32).unwrap();
    graph.fill(out.slice_mut(0..40).unwrap(), 2u32).unwrap();
    graph.fill(out.slice_mut(20..30).unwrap(), 3u32).unwrap();
    graph.fill(out.slice_mut(40..N).unwrap(), 4u32).unwrap();
    let mut plan = graph.plan().unwrap();
    assert_eq!((plan.stats().removed.len(), plan.stats().commands), (1, 3));
    run(&mut plan, &bench);
    let expected: Vec<u32> = (0..N)
        .map(|i| {
            if (20..30).contains(&i) {
                3
            } else if i < 40 {
                2
            } else {
                4
            }
        })
        .collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}

/// A buffer that is referenced only by the graph, and that a run reads from the previous run.
#[test]
fn what_the_next_run_reads_is_not_dead() {
    let bench = Bench::new();
    let increment = bench.increment();
    let mut count = bench.device.buffer::<u32>(N).unwrap();
    let mut out = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    graph.copy(&count, &mut out).unwrap();
    node(&mut graph, &increment, (&mut count,));
    drop(count);
    let mut plan = graph.plan().unwrap();
    for round in 0..3 {
        run(&mut plan, &bench);
        assert_eq!(out.to_vec().unwrap()[0], round);
    }
}

#[test]
fn the_same_work_is_done_once() {
    let bench = Bench::new();
    let (map, mix) = (map(&bench), mix(&bench));
    let input = bench.device.buffer_with_data(&ramp()).unwrap();
    let mut out = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    let mut t: Vec<Buffer<u32>> = (0..5).map(|_| scratch(&mut graph, &bench)).collect();
    let [a, b, c, d, e] = &mut t[..] else { unreachable!("five") };
    node(&mut graph, &map.labeled("a", 0), (&input, &mut *a, 1u32));
    node(&mut graph, &map.labeled("b", 0), (&input, &mut *b, 1u32));
    // Equal launches on equal inputs.
    node(&mut graph, &map.labeled("c", 0), (&*a, &mut *c, 4u32));
    node(&mut graph, &map.labeled("d", 0), (&*b, &mut *d, 4u32));
    node(&mut graph, &map.labeled("e", 0), (&*b, &mut *e, 5u32));
    node(&mut graph, &mix, (&*c, &*d, &mut out));
    node(&mut graph, &mix, (&*d, &*e, &mut out));
    let mut plan = graph.plan().unwrap();
    let stats = plan.stats();
    assert_eq!(stats.merged, [("b".into(), "a".into()), ("d".into(), "c".into())]);
    run(&mut plan, &bench);
    let mut names = ran(&bench);
    names.sort();
    assert_eq!(names, ["a", "c", "e", "mix", "mix"]);
    let first = mapped(&ramp(), 1);
    let (c, e) = (mapped(&first, 4), mapped(&first, 5));
    let expected: Vec<u32> =
        (0..N).map(|i| (c[i] ^ c[i].wrapping_mul(5)).wrapping_add(c[i] ^ e[i].wrapping_mul(5))).collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}

/// Launches that look equal and are not.
#[test]
fn different_work_is_not_merged() {
    let bench = Bench::new();
    let (map, mix) = (map(&bench), mix(&bench));
    let mut input = bench.device.buffer_with_data(&ramp()).unwrap();
    let mut out = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    let mut t: Vec<Buffer<u32>> = (0..8).map(|_| scratch(&mut graph, &bench)).collect();
    let sums = |graph: &mut Graph, out: &mut Buffer<u32>, t: &[Buffer<u32>]| {
        for t in t {
            node(graph, &mix, (t, t, &mut *out));
        }
    };
    // The input is modified in between.
    node(&mut graph, &map, (&input, &mut t[0], 1u32));
    graph.fill(input.slice_mut(3..4).unwrap(), 9u32).unwrap();
    node(&mut graph, &map, (&input, &mut t[1], 1u32));
    // The result is modified later.
    node(&mut graph, &map, (&input, &mut t[2], 1u32));
    graph.fill(t[2].slice_mut(0..1).unwrap(), 1u32).unwrap();
    // The result goes to a buffer of the program.
    let mut held = bench.device.buffer::<u32>(N).unwrap();
    node(&mut graph, &map, (&input, &mut held, 1u32));
    // The value is a parameter.
    let changed = node(&mut graph, &map, (&input, &mut t[3], 1u32));
    graph.value("k", changed, 2).unwrap();
    // The output, which the kernel also reads, has another initial value.
    graph.fill(&mut t[4], 1u32).unwrap();
    graph.fill(&mut t[5], 2u32).unwrap();
    let [four, five] = t.get_disjoint_mut([4, 5]).unwrap();
    node(&mut graph, &mix, (&input, &input, four));
    node(&mut graph, &mix, (&input, &input, five));
    // Arguments share memory in one launch and not in the other.
    graph.copy(&input, &mut t[6]).unwrap();
    graph.copy(&input, &mut t[7]).unwrap();
    let six = t[6].clone();
    node(&mut graph, &map, (&six, &mut t[6], 1u32));
    node(&mut graph, &map, (&input, &mut t[7], 1u32));
    sums(&mut graph, &mut out, &t);
    let plan = graph.plan().unwrap();
    assert_eq!(plan.stats().merged, []);
    // Launches that are merged: equal initial values of the output, and arguments that share memory in both.
    let mut graph = Graph::new();
    let mut t: Vec<Buffer<u32>> = (0..4).map(|_| graph.transient(&bench.device, N).unwrap()).collect();
    let others = t.clone();
    node(&mut graph, &mix, (&input, &input, &mut t[0]));
    node(&mut graph, &mix, (&input, &input, &mut t[1]));
    graph.copy(&input, &mut t[2]).unwrap();
    graph.copy(&input, &mut t[3]).unwrap();
    node(&mut graph, &map, (&others[2], &mut t[2], 1u32));
    node(&mut graph, &map, (&others[3], &mut t[3], 1u32));
    sums(&mut graph, &mut out, &t);
    let mut plan = graph.plan().unwrap();
    let stats = plan.stats();
    assert_eq!(
        (stats.merged.len(), &stats.removed[..]),
        (2, &["zero", "zero", "zero", "copy"].map(String::from)[..])
    );
    run(&mut plan, &bench);
    let sixes: Vec<u32> = input.to_vec().unwrap().iter().map(|a| a ^ a.wrapping_mul(5)).collect();
    let mapped = mapped(&input.to_vec().unwrap(), 1);
    let expected: Vec<u32> = (0..N)
        .map(|i| {
            let six = (sixes[i] ^ sixes[i].wrapping_mul(5)).wrapping_mul(2);
            six.wrapping_add((mapped[i] ^ mapped[i].wrapping_mul(5)).wrapping_mul(2))
        })
        .collect();
    assert_eq!(out.to_vec().unwrap(), expected);
}
