//! Parameters of graphs: replaced values and buffers for later runs of a plan, validated like a launch.

use crate::support;

use elinvar::{Arg, Dim3, Error, Graph};
use elinvar_conformance::sim::Sim;
use support::graph::{N, map, mapped, node, ramp, run, scratch, submit};
use support::{Bench, invalid};

fn ended(done: &elinvar::Completion) -> Result<(), Error> {
    done.wait().map(drop)
}

#[test]
fn runs_have_other_values_and_buffers() {
    let bench = Bench::new();
    let map = map(&bench);
    let buffer = || bench.device.buffer::<u32>(N).unwrap();
    let (input, mut out, mut copy) = (bench.device.buffer_with_data(&ramp()).unwrap(), buffer(), buffer());
    let mut graph = Graph::new();
    let mut between = scratch(&mut graph, &bench);
    let first = node(&mut graph, &map, (&input, &mut between, 1u32));
    let second = node(&mut graph, &map, (&between, &mut out, 1u32));
    graph.copy(out.slice(0..32).unwrap(), copy.slice_mut(32..N).unwrap()).unwrap();
    let k = graph.value("k", first, 2).unwrap();
    assert_eq!(graph.value("k", second, 2).unwrap(), k, "both are called so");
    graph.buffer("input", &input).unwrap();
    let to = graph.buffer("out", &out).unwrap();
    let mut plan = graph.plan().unwrap();
    run(&mut plan, &bench);
    assert_eq!(out.to_vec().unwrap(), mapped(&mapped(&ramp(), 1), 1));

    let (other, mut elsewhere) = (vec![5u32; 2 * N], bench.device.buffer::<u32>(3 * N).unwrap());
    let other = bench.device.buffer_with_data(&other).unwrap();
    plan.set("k", 9u32).unwrap();
    plan.set("input", other.slice(N..2 * N).unwrap()).unwrap();
    plan.set(to, elsewhere.slice_mut(N..2 * N).unwrap()).unwrap();
    out.fill(0).unwrap();
    run(&mut plan, &bench);
    let expected = mapped(&mapped(&[5; N], 9), 9);
    assert_eq!(elsewhere.to_vec().unwrap(), [&[0; N][..], &expected, &[0; N]].concat());
    assert_eq!((out.to_vec().unwrap(), &copy.to_vec().unwrap()[32..]), (vec![0; N], &expected[..32]));
    // While one run is in flight, the next may have other arguments; then back to the first ones.
    bench.sim.hold();
    let held = submit(&mut plan, &bench.stream).unwrap();
    plan.set(k, 2u32).unwrap();
    plan.set("input", &input).unwrap();
    plan.set("out", &mut out).unwrap();
    submit(&mut plan, &bench.stream).unwrap();
    bench.sim.release();
    ended(&held).unwrap();
    assert_eq!(&elsewhere.to_vec().unwrap()[N..2 * N], expected);
    assert_eq!(out.to_vec().unwrap(), mapped(&mapped(&ramp(), 2), 2));
}

#[test]
fn what_does_not_fit_is_refused_as_a_launch_would() {
    let bench = Bench::new();
    let (map, other) = (map(&bench), Bench::on(Sim::named("other")));
    let (input, mut out) =
        (bench.device.buffer_with_data(&ramp()).unwrap(), bench.device.buffer::<u32>(N).unwrap());
    let mut graph = Graph::new();
    let launch = node(&mut graph, &map, (&input, &mut out, 1u32));
    let filled = graph.fill(out.slice_mut(0..3).unwrap(), 4u32).unwrap();
    graph.value("k", launch, 2).unwrap();
    graph.buffer("input", &input).unwrap();
    let to = graph.buffer("out", &out).unwrap();
    assert_eq!(invalid(graph.value("x", filled, 0)), "graph: parameter `x`: `fill` (node 1) is not a launch");
    assert_eq!(
        invalid(graph.value("x", launch, 0)),
        "graph: parameter `x`: kernel `map`, argument 0 `a` (device const uint*): not passed by value"
    );
    assert_eq!(
        invalid(graph.value("x", launch, 3)),
        "graph: parameter `x`: no argument 3: kernel `map` has 3 arguments"
    );
    assert_eq!(
        invalid(graph.value("out", launch, 2)),
        "graph: parameter `out` is already declared as a buffer"
    );
    assert_eq!(invalid(graph.buffer("out", &input)), "graph: parameter `out` is already declared");
    let transient = graph.transient::<u32>(&bench.device, 1).unwrap();
    assert_eq!(
        invalid(graph.buffer("t", &transient)),
        "graph: parameter `t`: a transient is not a buffer of the program"
    );
    let mut plan = graph.plan().unwrap();
    let k = "kernel `map`, argument 2 `k` (constant uint&)";
    let a = "kernel `map`, argument 0 `a` (device const uint*)";
    let b = "kernel `map`, argument 1 `b` (device uint*)";
    let floats = bench.device.buffer::<f32>(N).unwrap();
    let mut short = bench.device.buffer::<u32>(N - 1).unwrap();
    let bytes = bench.device.buffer::<u8>(4 * N + 1).unwrap();
    let mut refusals = vec![
        (invalid(plan.set("k", 1.0f32)), format!("{k}: expected uint, given a value of `f32` (float)")),
        (
            invalid(plan.set("k", Dim3::new(1, 2, 3))),
            format!("{k}: a `Dim3` requires a read-only `uint3`, or three consecutive `uint` arguments"),
        ),
        (invalid(plan.set("k", &input)), format!("{k}: the parameter is a value; given a buffer")),
        (invalid(plan.set("input", 3u32)), "parameter `input` is a buffer; given a value".into()),
        (invalid(plan.set("input", &floats)), format!("{a}: expected uint, given a buffer of `f32` (float)")),
        (
            invalid(plan.set("out", &out)),
            format!("{b}: the kernel may write to it; pass the buffer as `&mut`"),
        ),
        (invalid(plan.set("out", &mut short)), format!("{b}: expected a buffer of 256 bytes, given 252")),
        (invalid(plan.set("nothing", 1u32)), "no parameter `nothing`; the graph has: k, input, out".into()),
        (
            invalid(plan.set(to, &mut other.device.buffer::<u32>(N).unwrap())),
            format!("{b}: the buffer is of device `other`, used with device `sim`"),
        ),
        (
            invalid(plan.set("input", &out)),
            "parameter `input`: the graph also uses this buffer otherwise, and one of the uses writes it"
                .into(),
        ),
        (
            invalid(plan.set("out", &mut input.clone())),
            "parameter `out`: the graph also uses this buffer otherwise, and one of the uses writes it"
                .into(),
        ),
    ];
    let odd = Arg::from(bytes.slice(1..4 * N + 1).unwrap()).of(elinvar::Scalar::U32);
    refusals.push((
        invalid(plan.set("input", odd)),
        format!("{a}: the slice begins at byte 1, which is not a multiple of 4"),
    ));
    for (got, expected) in refusals {
        assert_eq!(got, expected);
    }
    let mut stranger = Graph::new();
    let theirs = stranger.buffer("x", &input).unwrap();
    assert_eq!(invalid(plan.set(theirs, &input)), "the parameter belongs to another graph");
    // Everything is unchanged.
    run(&mut plan, &bench);
    let mut expected = mapped(&ramp(), 1);
    expected[..3].fill(4);
    assert_eq!(out.to_vec().unwrap(), expected);
    assert_eq!(
        invalid(submit(&mut plan, &other.stream)),
        "run: the graph begins on a node of device `sim`, used with device `other`"
    );
}

#[test]
fn an_address_cannot_be_replaced() {
    let bench = Bench::new();
    let (increment, mut used) = (bench.increment(), bench.device.buffer::<u32>(N).unwrap());
    let reached = bench.device.buffer::<u32>(N).unwrap();
    let mut graph = Graph::new();
    node(&mut graph, &increment, (&mut used, Arg::use_resource(&reached)));
    graph.buffer("reached", &reached).unwrap();
    match graph.plan() {
        Err(Error::Unsupported(text)) => assert_eq!(
            text,
            "graph: parameter `reached`: kernel `increment`, resource 0 (used through its address): \
             a buffer that is accessed through an address cannot be replaced"
        ),
        other => panic!("{other:?}"),
    }
}
