//! Graphs: the same buffer contents as running the nodes individually, with elimination, merging, aliasing and several streams.

use elinvar::{Batching, Buffer, Device, Error, Graph, Grid, Kernel, Node, Plan, PlanOptions, Stream};

use super::{CaseResult, expect_all, kernel, launch, run};

cases!("graphs": a_chain, branches, in_place, other_arguments, captured_from_streams, checked_launches,
    faults_stay_where_they_are, random_graphs);

const KERNELS: &str = "kernel void affine(device const uint* a, device uint* b, constant uint& k,
                uint i [[thread_position_in_grid]]) { b[i] = a[i] * 3u + k; }
        kernel void mix(device const uint* a, device const uint* b, device uint* c,
                uint i [[thread_position_in_grid]]) { c[i] += a[i] ^ (b[i] * 5u); }";
const N: usize = 5000;

struct Kernels {
    affine: Kernel,
    mix: Kernel,
}

fn kernels(device: &Device) -> elinvar::Result<Kernels> {
    Ok(Kernels { affine: kernel(device, "affine", KERNELS)?, mix: kernel(device, "mix", KERNELS)? })
}

fn affine(a: u32, k: u32) -> u32 {
    a.wrapping_mul(3).wrapping_add(k)
}

fn mix(a: u32, b: u32, c: u32) -> u32 {
    c.wrapping_add(a ^ b.wrapping_mul(5))
}

#[allow(unsafe_code)] // launches
fn add(graph: &mut Graph, kernel: &Kernel, args: impl elinvar::Args, len: usize) -> elinvar::Result<Node> {
    // SAFETY: thread i accesses element i of arguments with `len` elements.
    unsafe { graph.launch(kernel, Grid::threads(len), args) }
}

#[allow(unsafe_code)] // runs launches
fn once(plan: &mut Plan, stream: &Stream) -> elinvar::Result<()> {
    // SAFETY: as for `add`.
    unsafe { plan.run(stream) }?.wait().map(drop)
}

#[allow(unsafe_code)] // transients that are written before they are read
fn scratch(graph: &mut Graph, device: &Device) -> elinvar::Result<Buffer<u32>> {
    // SAFETY: the first node that uses it writes the whole transient.
    unsafe { graph.transient_uninit(device, N) }
}

fn a_chain(device: &Device) -> CaseResult {
    let Kernels { affine: kernel, .. } = kernels(device)?;
    let input = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let mut out = device.buffer::<u32>(N)?;
    let mut graph = Graph::new();
    let mut last = input.clone();
    for k in 0..50u32 {
        let mut next = scratch(&mut graph, device)?;
        add(&mut graph, &kernel, (&last, &mut next, k), N)?;
        last = next;
    }
    add(&mut graph, &kernel, (&last, &mut out, 50u32), N)?;
    let mut plan = graph.plan()?;
    let stats = plan.stats();
    assert_eq!((stats.commands, stats.submissions, stats.streams), (51, 1, 1));
    assert_eq!(stats.transient_bytes, 50 * 4 * N as u64);
    assert!(stats.arena_bytes < 3 * 4 * N as u64, "{stats:?}");
    let stream = device.stream()?;
    for _ in 0..3 {
        stream.fill(&mut out, 0)?;
        once(&mut plan, &stream)?;
        expect_all(&out.to_vec()?, |i| (0..=50u32).fold(i as u32, affine));
    }
    assert!(plan.stats().run_time.is_some_and(|time| time.as_nanos() > 0));
    Ok(())
}

fn branches(device: &Device) -> CaseResult {
    let Kernels { affine: kernel, mix: both } = kernels(device)?;
    let input = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let mut out = device.buffer::<u32>(N)?;
    for streams in [None, Some(1), Some(2), Some(8)] {
        let mut graph = Graph::new();
        let mut ends = Vec::new();
        for branch in 0..6u32 {
            let mut last = input.clone();
            for k in 0..5u32 {
                let mut next = scratch(&mut graph, device)?;
                add(&mut graph, &kernel, (&last, &mut next, 100 * branch + k), N)?;
                last = next;
            }
            ends.push(last);
        }
        graph.fill(&mut out, 0u32)?;
        for pair in ends.chunks(2) {
            add(&mut graph, &both, (&pair[0], &pair[1], &mut out), N)?;
        }
        let mut plan = graph.plan_with(PlanOptions { streams, ..PlanOptions::default() })?;
        let most = streams.unwrap_or(device.caps().limits.parallel_queues as usize);
        assert!(
            plan.stats().streams <= most && (most == 1 || plan.stats().streams > 1),
            "{:?}",
            plan.stats()
        );
        let stream = device.stream()?;
        let branch = |i: u32, b: u32| (0..5u32).fold(i, |a, k| affine(a, 100 * b + k));
        for _ in 0..5 {
            once(&mut plan, &stream)?;
            expect_all(&out.to_vec()?, |i| {
                let ends: Vec<u32> = (0..6).map(|b| branch(i as u32, b)).collect();
                ends.chunks(2).fold(0, |c, pair| mix(pair[0], pair[1], c))
            });
        }
    }
    Ok(())
}

/// Each launch reads the result of the previous one, across runs.
fn in_place(device: &Device) -> CaseResult {
    let Kernels { mix: kernel, .. } = kernels(device)?;
    let input = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let mut sum = device.buffer::<u32>(N)?;
    let mut graph = Graph::new();
    for _ in 0..10 {
        add(&mut graph, &kernel, (&input, &input, &mut sum), N)?;
    }
    let mut plan = graph.plan()?;
    assert_eq!((plan.stats().commands, plan.stats().submissions), (10, 1));
    let stream = device.stream()?;
    for round in 1..=3u32 {
        once(&mut plan, &stream)?;
        expect_all(&sum.to_vec()?, |i| mix(i as u32, i as u32, 0).wrapping_mul(10 * round));
    }
    Ok(())
}

fn other_arguments(device: &Device) -> CaseResult {
    let Kernels { affine: kernel, .. } = kernels(device)?;
    let input = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let mut out = device.buffer::<u32>(N)?;
    let mut graph = Graph::new();
    let mut between = scratch(&mut graph, device)?;
    let first = add(&mut graph, &kernel, (&input, &mut between, 0u32), N)?;
    add(&mut graph, &kernel, (&between, &mut out, 1u32), N)?;
    graph.value("k", first, 2)?;
    graph.buffer("input", &input)?;
    graph.buffer("out", &out)?;
    let mut plan = graph.plan()?;
    let stream = device.stream()?;
    let mut outs = Vec::new();
    for round in 0..5u32 {
        let other = device.buffer_with_data(&vec![round; N])?;
        let mut out = device.buffer::<u32>(N)?;
        plan.set("k", 7 * round)?;
        plan.set("input", &other)?;
        plan.set("out", &mut out)?;
        once(&mut plan, &stream)?;
        outs.push(out);
    }
    for (round, out) in (0..5u32).zip(&outs) {
        expect_all(&out.to_vec()?, |_| affine(affine(round, 7 * round), 1));
    }
    expect_all(&out.to_vec()?, |_| 0);
    let floats = device.buffer::<f32>(N)?;
    let text = plan.set("input", &floats).err().map(|error| error.to_string()).unwrap_or_default();
    assert!(
        text.starts_with("kernel `affine`, argument 0 `a` (device const uint*): expected uint"),
        "{text}"
    );
    Ok(())
}

fn captured_from_streams(device: &Device) -> CaseResult {
    let Kernels { affine: kernel, .. } = kernels(device)?;
    let input = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let (mut a, mut b) = (device.buffer::<u32>(N)?, device.buffer::<u32>(N)?);
    let (one, two, ready) = (device.stream()?, device.stream()?, device.event()?);
    let (mut first, mut second) = (one.command_buffer(), two.command_buffer());
    // SAFETY: as for `add`.
    #[allow(unsafe_code)]
    unsafe {
        first.launch(&kernel, Grid::threads(N), (&input, &mut a, 4u32))?;
        first.signal(&ready, 1);
        second.wait_for(&ready, 1);
        second.launch(&kernel, Grid::threads(N), (&a, &mut b, 5u32))?;
    }
    let mut graph = Graph::new();
    graph.append(first)?;
    graph.append(second)?;
    expect_all(&b.to_vec()?, |_| 0);
    let mut plan = graph.plan()?;
    for _ in 0..2 {
        once(&mut plan, &one)?;
        expect_all(&b.to_vec()?, |i| affine(affine(i as u32, 4), 5));
    }
    assert_eq!(ready.value(), 0, "it is the graph's order now");
    Ok(())
}

fn checked_launches(device: &Device) -> CaseResult {
    let text =
        "kernel void twice(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 2u; }";
    let checked = device.compile(elinvar::Source::named("twice.metal", text))?.checked_kernel("twice")?;
    let mut x = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let mut graph = Graph::new();
    graph.launch_checked(&checked, Grid::threads(N), (&mut x,))?;
    graph.launch_checked(&checked, Grid::threads(N / 2), (&mut x,))?;
    let mut plan = graph.plan()?;
    once(&mut plan, &device.stream()?)?;
    expect_all(&x.to_vec()?, |i| if i < N / 2 { 4 * i as u32 } else { 2 * i as u32 });
    Ok(())
}

/// One branch writes out of bounds; the other one has its results, and a second run executes all again.
fn faults_stay_where_they_are(device: &Device) -> CaseResult {
    let text = "kernel void put(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { x[i + k] = i; }";
    let put = device.compile(elinvar::Source::named("put.metal", text))?.checked_kernel("put")?;
    let Kernels { affine: kernel, .. } = kernels(device)?;
    let (mut bad, mut good, mut behind) =
        (device.buffer::<u32>(N)?, device.buffer::<u32>(N)?, device.buffer::<u32>(N)?);
    let input = device.buffer_with_data(&(0..N as u32).collect::<Vec<_>>())?;
    let mut graph = Graph::new();
    let node = graph.launch_checked(&put.labeled("put", 1), Grid::threads(N), (&mut bad, 1u32))?;
    graph.value("k", node, 1)?;
    add(&mut graph, &kernel, (&input, &mut good, 1u32), N)?;
    add(&mut graph, &kernel, (&bad, &mut behind, 1u32), N)?;
    let mut plan = graph.plan_with(PlanOptions { streams: Some(2), ..PlanOptions::default() })?;
    let stream = device.stream()?;
    for _ in 0..5 {
        plan.set("k", 1u32)?;
        let failed = once(&mut plan, &stream);
        assert!(matches!(&failed, Err(Error::Fault(_) | Error::Poisoned(_))), "{failed:?}");
        expect_all(&good.to_vec()?, |i| affine(i as u32, 1));
        assert!(matches!(bad.to_vec(), Err(Error::Poisoned(_))));
        assert!(matches!(behind.to_vec(), Err(Error::Poisoned(_))));
        stream.acknowledge().ok_or("the stream has not failed")?;
        plan.set("k", 0u32)?;
        once(&mut plan, &stream)?;
        expect_all(&behind.to_vec()?, |i| affine(i as u32, 1));
    }
    Ok(())
}

/// Pseudorandom numbers, the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % most
    }

    fn part(&mut self) -> std::ops::Range<usize> {
        match self.below(3) {
            0 => {
                let start = self.below(LEN);
                start..start + 1 + self.below(LEN - start)
            }
            _ => 0..LEN,
        }
    }
}

/// Number of elements of each buffer of a random graph.
const LEN: usize = 96;
/// Number of its buffers that are not transients, and of all its buffers.
const KEPT: usize = 4;
const BUFFERS: usize = 10;

/// A node of a random graph: buffers by index, and the part of each that the node uses.
#[derive(Clone, Debug)]
enum Step {
    Fill { target: usize, part: std::ops::Range<usize>, value: u32 },
    Copy { source: usize, from: usize, target: usize, part: std::ops::Range<usize> },
    Affine { a: usize, b: usize, part: std::ops::Range<usize>, k: u32 },
    Mix { a: usize, b: usize, c: usize, part: std::ops::Range<usize> },
}

fn random_steps(random: &mut Random) -> Vec<Step> {
    let step = |random: &mut Random| {
        let [a, b, c] = [(); 3].map(|()| random.below(BUFFERS));
        let part = random.part();
        // Only two values, so that there are equal nodes to merge.
        let k = random.below(2) as u32;
        match random.below(6) {
            0 => Step::Fill { target: c, part, value: k },
            1 if a != c => {
                Step::Copy { source: a, from: random.below(LEN - part.len() + 1), target: c, part }
            }
            2 | 3 if a != b => Step::Affine { a, b, part, k },
            _ if c != a && c != b => Step::Mix { a, b, c, part },
            _ => Step::Fill { target: c, part: 0..LEN, value: 7 },
        }
    };
    (0..5 + random.below(40)).map(|_| step(random)).collect()
}

/// Applies a step to buffers of the host.
fn apply(step: &Step, all: &mut [Vec<u32>]) {
    match step.clone() {
        Step::Fill { target, part, value } => all[target][part].fill(value),
        Step::Copy { source, from, target, part } => {
            let data = all[source][from..from + part.len()].to_vec();
            all[target][part].copy_from_slice(&data);
        }
        Step::Affine { a, b, part, k } => part.for_each(|i| all[b][i] = affine(all[a][i], k)),
        Step::Mix { a, b, c, part } => part.for_each(|i| all[c][i] = mix(all[a][i], all[b][i], all[c][i])),
    }
}

fn start(buffer: usize) -> Vec<u32> {
    (0..LEN).map(|i| if buffer < KEPT { (1000 * buffer + i) as u32 } else { 0 }).collect()
}

fn add_step(graph: &mut Graph, kernels: &Kernels, step: &Step, all: &[Buffer<u32>]) -> elinvar::Result<Node> {
    let target = |b: usize| all[b].clone();
    let grid = |part: &std::ops::Range<usize>| part.len();
    match step {
        Step::Fill { target: t, part, value } => graph.fill(&mut target(*t).slice_mut(part.clone())?, *value),
        Step::Copy { source, from, target: t, part } => {
            let source = all[*source].slice(*from..from + part.len())?;
            graph.copy(&source, &mut target(*t).slice_mut(part.clone())?)
        }
        Step::Affine { a, b, part, k } => {
            let (mut to, from) = (target(*b), all[*a].slice(part.clone())?);
            add(graph, &kernels.affine, (&from, &mut to.slice_mut(part.clone())?, *k), grid(part))
        }
        Step::Mix { a, b, c, part } => {
            let (a, b) = (all[*a].slice(part.clone())?, all[*b].slice(part.clone())?);
            add(graph, &kernels.mix, (&a, &b, &mut target(*c).slice_mut(part.clone())?), grid(part))
        }
    }
}

/// Submits a step to a stream.
fn submit_step(stream: &Stream, kernels: &Kernels, step: &Step, all: &[Buffer<u32>]) -> elinvar::Result<()> {
    let target = |b: usize| all[b].clone();
    match step {
        Step::Fill { target: t, part, value } => {
            stream.fill(&mut target(*t).slice_mut(part.clone())?, *value)
        }
        Step::Copy { source, from, target: t, part } => {
            let source = all[*source].slice(*from..from + part.len())?;
            stream.copy(&source, &mut target(*t).slice_mut(part.clone())?)
        }
        Step::Affine { a, b, part, k } => {
            let (mut to, from) = (target(*b), all[*a].slice(part.clone())?);
            let args = (&from, &mut to.slice_mut(part.clone())?, *k);
            launch(&kernels.affine, stream, Grid::threads(part.len()), args)
        }
        Step::Mix { a, b, c, part } => {
            let (a, b) = (all[*a].slice(part.clone())?, all[*b].slice(part.clone())?);
            let mut to = target(*c);
            let args = (&a, &b, &mut to.slice_mut(part.clone())?);
            launch(&kernels.mix, stream, Grid::threads(part.len()), args)
        }
    }
    .map(drop)
}

/// Random steps over buffers and transients: planned with all options, submitted individually, and executed by the host.
fn random_graphs(device: &Device) -> CaseResult {
    let (kernels, stream) = (kernels(device)?, device.stream()?);
    run(
        device,
        &kernels.affine,
        Grid::threads(0),
        (&device.buffer::<u32>(1)?, &mut device.buffer::<u32>(1)?, 0u32),
    )?;
    let (mut left_out, mut shared) = (0, 0);
    for seed in 0..150 {
        let mut random = Random(seed);
        let steps = random_steps(&mut random);
        let mut host: Vec<Vec<u32>> = (0..BUFFERS).map(start).collect();
        let mut expected = Vec::new();
        for _ in 0..2 {
            host[KEPT..].fill(start(KEPT));
            steps.iter().for_each(|step| apply(step, &mut host));
            expected.push(host[..KEPT].to_vec());
        }
        for (name, options) in plans() {
            let mut graph = Graph::new();
            let mut all =
                (0..KEPT).map(|b| device.buffer_with_data(&start(b))).collect::<Result<Vec<_>, _>>()?;
            for _ in KEPT..BUFFERS {
                all.push(graph.transient::<u32>(device, LEN)?);
            }
            let nodes = steps
                .iter()
                .map(|s| add_step(&mut graph, &kernels, s, &all))
                .collect::<Result<Vec<_>, _>>()?;
            for _ in 0..random.below(4) {
                let (one, other) = (random.below(nodes.len()), random.below(nodes.len()));
                if one < other {
                    graph.after(nodes[other], &[nodes[one]])?;
                }
            }
            let mut plan = graph.plan_with(options)?;
            for (round, expected) in expected.iter().enumerate() {
                once(&mut plan, &stream)?;
                for (b, expected) in expected.iter().enumerate() {
                    let place = format!("seed {seed}, {name}, run {round}, buffer {b}: {steps:#?}");
                    assert_eq!(&all[b].to_vec()?, expected, "{place}");
                }
            }
            left_out += plan.stats().removed.len() + plan.stats().merged.len();
            shared +=
                plan.stats().transient_bytes - plan.stats().arena_bytes.min(plan.stats().transient_bytes);
        }
        let all = (0..BUFFERS).map(|b| device.buffer_with_data(&start(b))).collect::<Result<Vec<_>, _>>()?;
        for expected in &expected {
            all[KEPT..].iter().try_for_each(|b| stream.fill(&mut b.clone(), 0u32).map(drop))?;
            steps.iter().try_for_each(|step| submit_step(&stream, &kernels, step, &all))?;
            for (b, expected) in expected.iter().enumerate() {
                assert_eq!(&all[b].to_vec()?, expected, "seed {seed}, one by one, buffer {b}: {steps:#?}");
            }
        }
    }
    assert!(left_out > 1000 && shared > 0, "{left_out} nodes left out, {shared} bytes shared");
    Ok(())
}

fn plans() -> [(&'static str, PlanOptions); 6] {
    let all = PlanOptions::default();
    [
        ("as by default", all),
        ("nothing left out", PlanOptions { optimize: false, ..all }),
        ("each alone", PlanOptions { batching: Batching::None, streams: Some(4), ..all }),
        ("each stream at once", PlanOptions { batching: Batching::Streams, streams: Some(4), ..all }),
        ("one stream", PlanOptions { streams: Some(1), ..all }),
        ("all of it at once", PlanOptions { batching: Batching::Streams, streams: Some(1), optimize: false }),
    ]
}
