//! Indirect launches: validation, when the counts are read, what keeps their memory alive.

use crate::support;

use std::sync::Arc;

use elinvar::driver::{self, Access, Command, Dim3, Scalar};
use elinvar::{Buffer, Completion, Error, Graph, Grid, Kernel, TraceStep};
use elinvar_conformance::sim::Sim;
use parking_lot::Mutex;
use support::{Bench, fault, invalid, launch, pointer, signature};

/// Grids that the launches of [`seeing`] have seen, in order.
type Seen = Arc<Mutex<Vec<[u32; 3]>>>;

/// `seen(device uint* out)`: records the number of threads in each dimension of the grid, and writes their sum.
fn seeing(bench: &Bench) -> (Kernel, Seen) {
    let seen = Seen::default();
    let noted = seen.clone();
    let out = pointer("out", Scalar::U32, Access::ReadWrite);
    let kernel = bench.declare(signature("seen", vec![out]), move |launch| {
        let threads = launch.threads().to_array();
        noted.lock().push(threads);
        launch.write(0, &threads.iter().sum::<u32>().to_ne_bytes())
    });
    (kernel, seen)
}

fn take(seen: &Seen) -> Vec<[u32; 3]> {
    std::mem::take(&mut seen.lock())
}

fn buffer(bench: &Bench, words: &[u32]) -> Buffer<u32> {
    bench.device.buffer_with_data(words).unwrap()
}

#[test]
fn what_is_no_place_for_counts_is_refused() {
    let (bench, other) = (Bench::new(), Bench::on(Sim::named("other")));
    let k = bench.kernel(vec![]);
    let refused = |grid: Grid| invalid(launch(&k, &bench.stream, grid, ()));
    let counts = buffer(&bench, &[1, 2, 3, 4]);
    assert_eq!(
        refused(Grid::indirect(&counts)),
        "kernel `k`: `Grid::indirect` requires a threadgroup size, set with `.group(..)`"
    );
    assert_eq!(
        refused(Grid::indirect(&counts).group(1025)),
        "kernel `k`: threadgroup 1025×1×1 has 1025 threads, at most 1024 allowed"
    );
    assert_eq!(
        refused(Grid::indirect(counts.slice(2..4).unwrap()).group(1)),
        "kernel `k`, the counts of its threadgroups: needs at least 12 bytes (three u32), the buffer has 8"
    );
    let floats = bench.device.buffer::<f32>(4).unwrap();
    assert_eq!(
        refused(Grid::indirect(&floats).group(1)),
        "kernel `k`, the counts of its threadgroups: expected u32, given a buffer of `f32`"
    );
    let doubles = bench.device.buffer::<f64>(4).unwrap();
    assert_eq!(
        refused(Grid::indirect(&doubles).group(1)),
        "kernel `k`, the counts of its threadgroups: expected u32, given a buffer of `f64`"
    );
    let bytes = bench.device.buffer::<u8>(40).unwrap();
    assert_eq!(
        refused(Grid::indirect(bytes.slice(6..18).unwrap()).group(1)),
        "kernel `k`, the counts of its threadgroups: the slice begins at byte 6, which is not a multiple of 4"
    );
    let foreign = buffer(&other, &[1, 1, 1]);
    let text = refused(Grid::indirect(&foreign).group(1));
    assert!(text.starts_with("kernel `k`, the counts of its threadgroups: the buffer is of"), "{text}");
    let size = |grid| k.threadgroup_size(grid);
    assert_eq!(size(Grid::indirect(&bytes).group((8, 2))).unwrap(), Some(Dim3::new(8, 2, 1)));
    assert!(invalid(size(Grid::indirect(&counts))).contains("requires a threadgroup size"));
    assert!(bench.sim.commands().is_empty());
}

#[test]
fn the_driver_gets_the_twelve_bytes() {
    let bench = Bench::new();
    let k = bench.kernel(vec![]);
    let counts = bench.device.buffer_with_data(&[[9u32, 1, 1], [2, 3, 4]]).unwrap();
    bench.device.trace().start(100);
    launch(&k, &bench.stream, Grid::indirect(counts.slice(1..2).unwrap()).group((8, 4)), ()).unwrap();
    bench.stream.synchronize().unwrap();
    let command = bench.sim.commands().pop();
    let Some(Command::Dispatch(dispatch)) = command else { panic!("expected a dispatch, got {command:?}") };
    let driver::Grid::Indirect(slice) = &dispatch.grid else { panic!("{:?}", dispatch.grid) };
    assert_eq!((slice.offset % 24, slice.len, dispatch.group), (12, 12, Dim3::new(8, 4, 1)));
    let size = |event: elinvar::TraceEvent| match &event.step {
        TraceStep::Size { threads, group } => Some((*threads, *group, event.to_string())),
        _ => None,
    };
    let sizes: Vec<_> = bench.device.trace().events().into_iter().filter_map(size).collect();
    let [(None, group, text)] = &sizes[..] else { panic!("{sizes:?}") };
    assert_eq!(*group, Dim3::new(8, 4, 1));
    assert!(text.ends_with("size groups of 8×4×1, counted when it runs"), "{text}");
}

#[test]
fn they_are_read_when_the_launch_begins() {
    let bench = Bench::new();
    let (seen_by, seen) = seeing(&bench);
    let (mut counts, mut out) = (buffer(&bench, &[1, 1, 1]), buffer(&bench, &[0]));
    let from = buffer(&bench, &[7, 0, 2, 3, 5]);
    let indirect = |counts: &Buffer<u32>| Grid::indirect(counts).group((4, 2));
    let mut command_buffer = bench.stream.command_buffer();
    let add = |command_buffer: &mut elinvar::CommandBuffer, counts: &Buffer<u32>, out: &mut Buffer<u32>| {
        // SAFETY: the simulated kernel writes one element.
        #[allow(unsafe_code)]
        unsafe { command_buffer.launch(&seen_by, indirect(counts), (out,)) }.unwrap();
    };
    add(&mut command_buffer, &counts, &mut out);
    command_buffer.fill(&mut counts, 3).unwrap();
    add(&mut command_buffer, &counts, &mut out);
    command_buffer.copy(from.slice(0..3).unwrap(), &mut counts).unwrap();
    add(&mut command_buffer, &counts, &mut out);
    command_buffer.copy(from.slice(2..5).unwrap(), &mut counts).unwrap();
    add(&mut command_buffer, &counts, &mut out);
    command_buffer.submit().unwrap().wait().unwrap();
    assert_eq!(take(&seen), [[4, 2, 1], [12, 6, 3], [8, 6, 5]], "and a zero runs nothing");
    assert_eq!(out.to_vec().unwrap(), [19]);
}

#[test]
fn the_host_waits_and_the_memory_stays() {
    let bench = Bench::new();
    let (seen_by, seen) = seeing(&bench);
    let (mut counts, mut out) = (buffer(&bench, &[2, 1, 1]), buffer(&bench, &[0]));
    let begin = |counts: &Buffer<u32>, out: &mut Buffer<u32>| -> Result<Completion, Error> {
        launch(&seen_by, &bench.stream, Grid::indirect(counts).group(32), (out,))
    };
    let same = counts.clone();
    let map = counts.map_mut().unwrap();
    assert_eq!(
        invalid(begin(&same, &mut out)),
        "kernel `seen`, the counts of its threadgroups: the buffer is mapped for writing; drop the map first"
    );
    drop((map, same));
    let map = counts.map().unwrap();
    bench.sim.hold();
    let held = begin(&counts, &mut out).unwrap();
    drop(map);
    assert!(!held.is_done());
    // A write by the host comes after the launch; a dropped buffer lives until the launch has ended.
    let of_host = std::thread::scope(|scope| {
        let writer = scope.spawn(|| counts.clone().write(&[50, 1, 1]));
        bench.sim.release();
        writer.join().unwrap()
    });
    of_host.unwrap();
    held.wait().unwrap();
    assert_eq!(take(&seen), [[64, 1, 1]]);
    bench.sim.hold();
    let last = begin(&counts, &mut out).unwrap();
    drop(counts);
    // An allocation of the same size would reuse the memory if it had been freed.
    let _other = buffer(&bench, &[1, 1, 1]);
    bench.sim.release();
    last.wait().unwrap();
    assert_eq!(take(&seen), [[1600, 1, 1]]);
}

#[test]
fn counts_that_failed_work_should_have_written_poison() {
    let bench = Bench::new();
    let ((seen_by, seen), fail) = (seeing(&bench), bench.fail());
    let (mut counts, mut out) = (buffer(&bench, &[2, 1, 1]), buffer(&bench, &[0]));
    bench.launch(&fail, (&mut counts,)).unwrap().wait().unwrap_err();
    let stream = bench.device.stream().unwrap();
    let after = launch(&seen_by, &stream, Grid::indirect(&counts).group(1), (&mut out,)).unwrap().wait();
    let Err(Error::Poisoned(cause)) = after else { panic!("{after:?}") };
    assert_eq!(cause.to_string(), fault().to_string());
    assert!(take(&seen).is_empty());
}

#[test]
fn too_many_threads_are_a_fault() {
    let bench = Bench::new();
    let (seen_by, seen) = seeing(&bench);
    let mut out = buffer(&bench, &[0]);
    let most = buffer(&bench, &[u32::MAX / 32, 1, 1]);
    launch(&seen_by, &bench.stream, Grid::indirect(&most).group(32), (&mut out,)).unwrap().wait().unwrap();
    assert_eq!(take(&seen), [[u32::MAX / 32 * 32, 1, 1]]);
    let more = buffer(&bench, &[1, u32::MAX / 32 + 1, 1]);
    let named = seen_by.labeled("second", 2);
    let ended =
        launch(&named, &bench.stream, Grid::indirect(&more).group((1, 32)), (&mut out,)).unwrap().wait();
    let Err(Error::Fault(fault)) = ended else { panic!("{ended:?}") };
    assert_eq!(
        fault.to_string(),
        "kernel `seen`, launch `second` (2): 1×134217728×1 threadgroups of 1×32×1 threads, read when it began: at most \
         4294967295 threads along a dimension"
    );
    assert!(take(&seen).is_empty());
}

#[test]
#[allow(unsafe_code)] // replays
fn what_is_run_again_reads_again() {
    let bench = Bench::new();
    let (seen_by, seen) = seeing(&bench);
    let (mut counts, mut out) = (buffer(&bench, &[1, 1, 1]), buffer(&bench, &[0]));
    let mut command_buffer = bench.stream.command_buffer();
    // SAFETY: the simulated kernel writes one element.
    unsafe { command_buffer.launch(&seen_by, Grid::indirect(&counts).group(8), (&mut out,)) }.unwrap();
    let recording = command_buffer.record().unwrap();
    for k in 0..5u32 {
        counts.write(&[k, 1, 2]).unwrap();
        // SAFETY: as above.
        unsafe { bench.stream.replay(&recording) }.unwrap().wait().unwrap();
    }
    assert_eq!(take(&seen), [[8, 1, 2], [16, 1, 2], [24, 1, 2], [32, 1, 2]]);
}

/// A graph treats the counts as an input of the launch: the launch is ordered behind their writer, also if they are a transient.
#[test]
#[allow(unsafe_code)] // launches and runs
fn graphs_order_by_the_counts() {
    let bench = Bench::new();
    let (seen_by, seen) = seeing(&bench);
    let (mut out, mut given) = (buffer(&bench, &[0]), buffer(&bench, &[3, 1, 1]));
    let mut graph = Graph::new();
    let mut counts = graph.transient::<u32>(&bench.device, 3).unwrap();
    graph.copy(&given, &mut counts).unwrap();
    // SAFETY: the simulated kernel writes one element.
    let first = unsafe { graph.launch(&seen_by, Grid::indirect(&counts).group(2), (&mut out,)) }.unwrap();
    graph.fill(&mut counts, 5).unwrap();
    // SAFETY: as above.
    unsafe { graph.launch(&seen_by, Grid::indirect(&counts).group(2), (&mut out,)) }.unwrap();
    graph.name(first, "first").unwrap();
    let mut plan = graph.plan().unwrap();
    for k in [3, 4] {
        given.write(&[k, 1, 1]).unwrap();
        // SAFETY: as above.
        unsafe { plan.run(&bench.stream) }.unwrap().wait().unwrap();
        assert_eq!(take(&seen), [[2 * k, 1, 1], [10, 5, 5]]);
    }
    let mut unwritten = Graph::new();
    // SAFETY: the memory is never read, because the plan is refused.
    let counts = unsafe { unwritten.transient_uninit::<u32>(&bench.device, 3) }.unwrap();
    // SAFETY: as above.
    unsafe { unwritten.launch(&seen_by, Grid::indirect(&counts).group(2), (&mut out,)) }.unwrap();
    assert_eq!(
        invalid(unwritten.plan()),
        "graph: `seen` (node 0): kernel `seen`, the counts of its threadgroups: the transient is read before it \
         is written"
    );
}

/// Launches that differ only in the memory of their counts are not merged; launches with the same counts are.
#[test]
#[allow(unsafe_code)] // launches and runs
fn duplicates_have_the_same_counts() {
    let bench = Bench::new();
    let mut pure = signature("pure", vec![pointer("out", Scalar::U32, Access::ReadWrite)]);
    pure.code = Some(driver::CodeFacts { only_written: 1, ..Default::default() });
    let pure = bench.declare(pure, |launch| launch.write(0, &launch.threads().x.to_ne_bytes()));
    let (a, b) = (buffer(&bench, &[2, 1, 1]), buffer(&bench, &[6, 1, 1]));
    let mut result = buffer(&bench, &[0; 3]);
    let mut graph = Graph::new();
    for (at, counts) in [&a, &b, &a].into_iter().enumerate() {
        let mut out = graph.transient::<u32>(&bench.device, 1).unwrap();
        // SAFETY: the simulated kernel writes one element.
        unsafe { graph.launch(&pure, Grid::indirect(counts).group(1), (&mut out,)) }.unwrap();
        graph.copy(&out, result.slice_mut(at..at + 1).unwrap()).unwrap();
    }
    let mut plan = graph.plan().unwrap();
    assert_eq!(plan.stats().merged.len(), 1, "{:?}", plan.stats());
    // SAFETY: as above.
    unsafe { plan.run(&bench.stream) }.unwrap().wait().unwrap();
    assert_eq!(result.to_vec().unwrap(), [2, 6, 2]);
}

#[test]
#[allow(unsafe_code)] // launches and runs
fn counts_are_a_parameter() {
    let bench = Bench::new();
    let (seen_by, seen) = seeing(&bench);
    let (counts, mut out) = (buffer(&bench, &[9, 2, 1, 1]), buffer(&bench, &[0]));
    let mut graph = Graph::new();
    // SAFETY: the simulated kernel writes one element.
    unsafe { graph.launch(&seen_by, Grid::indirect(counts.slice(1..4).unwrap()).group(1), (&mut out,)) }
        .unwrap();
    let parameter = graph.buffer("counts", &counts).unwrap();
    let mut plan = graph.plan().unwrap();
    let floats = bench.device.buffer::<f32>(4).unwrap();
    assert_eq!(
        invalid(plan.set(parameter, &floats)),
        "kernel `seen`, the counts of its threadgroups: expected u32, given a buffer of `f32`"
    );
    let bytes = bench.device.buffer::<u8>(18).unwrap();
    assert_eq!(
        invalid(plan.set(parameter, bytes.slice(2..18).unwrap())),
        "kernel `seen`, the counts of its threadgroups: the slice begins at byte 6, which is not a multiple of 4"
    );
    // SAFETY: as above.
    unsafe { plan.run(&bench.stream) }.unwrap().wait().unwrap();
    let other = buffer(&bench, &[8, 7, 6, 5]);
    plan.set(parameter, &other).unwrap();
    // SAFETY: as above.
    unsafe { plan.run(&bench.stream) }.unwrap().wait().unwrap();
    assert_eq!(take(&seen), [[2, 1, 1], [7, 6, 5]]);
}
