//! Metrics: what programs do is what they count.

use std::time::Duration;

use elinvar::{
    BreakerLimits, Buffer, Device, Error, Graph, Grid, Histogram, Kernel, METRICS, Metric, MetricValue,
    Metrics, Plan, Quantity, RecoveryPolicy, Source, Stream,
};
use elinvar_cache::Cache;
use elinvar_conformance::sim::Op;
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;

use crate::support::Bench;

const KERNELS: &str = "
    kernel void twice(device uint* x, uint i [[thread_position_in_grid]]) { x[i] *= 2; }
    kernel void other(device uint* x, uint i [[thread_position_in_grid]]) { x[i] += 1; }";
const N: usize = 1000;

/// A device of its own, whose metrics other tests do not change.
fn device() -> Device {
    Device::new(CpuDriver::with_cache(2, &Cache::off()).devices().unwrap().remove(0))
}

fn kernels(device: &Device) -> [Kernel; 2] {
    let library = device.compile(Source::named("metrics.metal", KERNELS)).unwrap();
    ["twice", "other"].map(|name| library.kernel(name).unwrap())
}

fn launch(kernel: &Kernel, stream: &Stream, x: &mut Buffer<u32>) -> elinvar::Completion {
    let n = x.len();
    // SAFETY: each thread accesses its own element.
    #[allow(unsafe_code)]
    unsafe { kernel.launch(stream, Grid::threads(n).group(64), (x,)) }.unwrap()
}

fn histogram(metrics: &Metrics, name: &str, attributes: &[&str]) -> Histogram {
    match metrics.get(name, attributes) {
        Some(MetricValue::Histogram(histogram)) => histogram.clone(),
        other => panic!("{name} {attributes:?}: {other:?}"),
    }
}

/// A prepared kernel has metrics before its first launch, so that the end of that launch does not allocate them. Kernels that are neither
/// prepared nor launched have none.
#[test]
fn a_prepared_kernel_has_metrics() {
    let device = device();
    let [twice, _] = kernels(&device);
    twice.prepare(64).unwrap();
    let metrics = device.metrics();
    assert_eq!(metrics.get("elinvar.kernel.launches", &["twice"]), Some(&MetricValue::Count(0)));
    assert_eq!(metrics.get("elinvar.kernel.launches", &["other"]), None);
    let (stream, mut x) = (device.stream().unwrap(), device.buffer_with_data(&[1_u32; N]).unwrap());
    launch(&twice, &stream, &mut x).wait().unwrap();
    assert_eq!(device.metrics().count("elinvar.kernel.launches", &["twice"]), 1);
}

#[test]
fn launches_count_alone_in_command_buffers_and_in_recordings() {
    let device = device();
    device.sample_launches(None);
    let ([twice, other], stream) = (kernels(&device), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; N]).unwrap();
    let mut times: Vec<u64> = Vec::new();
    for _ in 0..7 {
        let timing = launch(&twice, &stream, &mut x).wait().unwrap();
        times.push(timing.end_ns - timing.start_ns);
    }
    let record = |x: &mut Buffer<u32>| {
        let mut commands = stream.command_buffer();
        for kernel in [&twice, &other, &twice] {
            // SAFETY: each thread accesses its own element.
            #[allow(unsafe_code)]
            unsafe { commands.launch(kernel, Grid::threads(N), (&mut *x,)) }.unwrap();
        }
        commands
    };
    record(&mut x).submit().unwrap().wait().unwrap();
    let recording = record(&mut x).record().unwrap();
    for _ in 0..4 {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { stream.replay(&recording) }.unwrap().wait().unwrap();
    }
    let metrics = device.metrics();
    assert_eq!(metrics.count("elinvar.kernel.launches", &["twice"]), 7 + 2 + 4 * 2);
    assert_eq!(metrics.count("elinvar.kernel.launches", &["other"]), 1 + 4);
    assert_eq!(metrics.count("elinvar.submissions", &["ok"]), 7 + 1 + 4);
    assert_eq!(histogram(&metrics, "elinvar.submission.duration", &[]).count(), 12);
    // Durations of a kernel are those of submissions with one launch.
    let durations = histogram(&metrics, "elinvar.kernel.duration", &["twice"]);
    assert_eq!((durations.count(), durations.sum), (7, times.iter().sum()));
    times.sort_unstable();
    for (quantile, exact) in [(0.01, times[0]), (0.5, times[3]), (1.0, times[6])] {
        let found = durations.quantile(quantile).unwrap();
        assert!((exact..=exact + exact / 8 + 1).contains(&found), "{quantile}: {found} for {exact}");
    }
    assert_eq!(metrics.get("elinvar.kernel.duration", &["other"]), None, "never launched alone");
    assert_eq!(metrics.count("elinvar.compilations", &["ok"]), 1);
}

/// Launches of submissions with several commands have durations on the device, and phases on the host, if they are sampled.
#[test]
fn sampled_launches_are_measured_one_by_one() {
    let device = device();
    device.sample_launches(Some(Duration::ZERO));
    let ([twice, other], stream) = (kernels(&device), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; N]).unwrap();
    let mut record = || {
        let mut commands = stream.command_buffer();
        for kernel in [&twice, &other, &twice] {
            // SAFETY: each thread accesses its own element.
            #[allow(unsafe_code)]
            unsafe { commands.launch(kernel, Grid::threads(N), (&mut x,)) }.unwrap();
        }
        commands
    };
    let mut whole = 0;
    for _ in 0..5 {
        let timing = record().submit().unwrap().wait().unwrap();
        whole += timing.end_ns - timing.start_ns;
    }
    let recording = record().record().unwrap();
    for _ in 0..3 {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        let timing = unsafe { stream.replay(&recording) }.unwrap().wait().unwrap();
        whole += timing.end_ns - timing.start_ns;
    }
    let metrics = device.metrics();
    let durations = |kernel: &str| histogram(&metrics, "elinvar.kernel.duration", &[kernel]);
    let (twice, other) = (durations("twice"), durations("other"));
    assert_eq!((twice.count(), other.count()), (2 * 8, 8));
    assert!(twice.sum > 0 && other.sum > 0 && twice.sum + other.sum <= whole, "{twice:?} {other:?} {whole}");
    let phase = |name: &str| histogram(&metrics, "elinvar.host.duration", &[name]);
    for launch in ["bind", "size", "record"] {
        assert_eq!(phase(launch).count(), 3 * 5, "{launch}");
    }
    for submission in ["commit", "submit", "release"] {
        assert_eq!(phase(submission).count(), 8, "{submission}");
        assert!(phase(submission).sum > 0, "{submission}");
    }
    assert!(device.trace().events().is_empty());
    assert_eq!(metrics.count("elinvar.kernel.launches", &["twice"]), 2 * 8);
}

/// Each submission of a graph has its turn, also if the program waits for each run; and each of several that are in flight is measured if asked for.
#[test]
fn kernels_of_graphs_are_measured() {
    let device = device();
    let ([twice, other], stream) = (kernels(&device), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; N]).unwrap();
    let mut y = device.buffer_with_data(&[1_u32; N]).unwrap();
    let mut graph = Graph::new();
    graph.fill(&mut x, 1).unwrap();
    graph.fill(&mut y, 1).unwrap();
    // SAFETY: each thread accesses its own element.
    #[allow(unsafe_code)]
    unsafe {
        graph.launch(&twice, Grid::threads(N), (&mut x,)).unwrap();
        graph.launch(&other, Grid::threads(N), (&mut y,)).unwrap();
    }
    let mut plan = graph.plan().unwrap();
    assert!(plan.stats().submissions > 2, "{:?}", plan.stats());
    device.sample_launches(Some(Duration::from_micros(1)));
    let begin = std::time::Instant::now();
    loop {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { plan.run(&stream) }.unwrap().wait().unwrap();
        let metrics = device.metrics();
        let samples = ["twice", "other"].map(|kernel| metrics.count("elinvar.kernel.duration", &[kernel]));
        if samples.iter().all(|count| *count > 0) {
            break;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{samples:?}");
    }
    device.sample_launches(Some(Duration::ZERO));
    let count = || device.metrics().count("elinvar.kernel.duration", &["twice"]);
    let before = count();
    for _ in 0..20 {
        let mut commands = stream.command_buffer();
        for _ in 0..2 {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            unsafe { commands.launch(&twice, Grid::threads(N), (&mut x,)) }.unwrap();
        }
        commands.submit().unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(count() - before, 2 * 20);
}

#[test]
fn streams_at_the_same_time_lose_no_count() {
    let device = device();
    let [twice, other] = kernels(&device);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = device.stream().unwrap();
                let mut x = device.buffer_with_data(&[1_u32; 64]).unwrap();
                let last =
                    (0..300).map(|i| launch(if i % 3 == 0 { &other } else { &twice }, &stream, &mut x));
                last.last().unwrap().wait().unwrap();
            });
        }
    });
    let metrics = device.metrics();
    assert_eq!(metrics.count("elinvar.kernel.launches", &["twice"]), 4 * 200);
    assert_eq!(metrics.count("elinvar.kernel.launches", &["other"]), 4 * 100);
    assert_eq!(histogram(&metrics, "elinvar.kernel.duration", &["twice"]).count(), 4 * 200);
}

#[test]
fn streams_and_graphs_with_names_count_apart() {
    let device = device();
    let [twice, other] = kernels(&device);
    let mut x = device.buffer_with_data(&[1_u32; N]).unwrap();
    let (plain, upload) = (device.stream().unwrap(), device.stream().unwrap().named("upload"));
    let mut whole = 0;
    for _ in 0..5 {
        launch(&other, &plain, &mut x).wait().unwrap();
        let timing = launch(&twice, &upload, &mut x).wait().unwrap();
        whole += timing.end_ns - timing.start_ns;
    }
    let mut graph = Graph::new();
    // SAFETY: each thread accesses its own element.
    #[allow(unsafe_code)]
    unsafe { graph.launch(&twice, Grid::threads(N), (&mut x,)) }.unwrap();
    let mut plan = graph.plan().unwrap();
    let run = |plan: &mut Plan| {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe { plan.run(&upload) }.unwrap().wait().unwrap()
    };
    let timing = run(&mut plan);
    whole += timing.end_ns - timing.start_ns;
    plan.set_name("step");
    let timing = run(&mut plan);
    let of_step = timing.end_ns - timing.start_ns;
    whole += of_step;
    let metrics = device.metrics();
    assert_eq!(metrics.count("elinvar.stream.submissions", &["ok", "upload"]), 7);
    assert_eq!(metrics.count("elinvar.graph.submissions", &["step", "ok"]), 1);
    let durations = |metric: &str, name: &str| histogram(&metrics, metric, &[name]);
    let (stream, graph) =
        (durations("elinvar.stream.duration", "upload"), durations("elinvar.graph.duration", "step"));
    assert_eq!((stream.count(), stream.sum), (7, whole));
    assert_eq!((graph.count(), graph.sum), (1, of_step));
    let families = metrics.families.iter();
    let named = families.filter(|family| family.metric.name.starts_with("elinvar.stream."));
    assert!(named.flat_map(|family| &family.points).all(|point| point.attributes.contains(&"upload".into())));
    // A failure is counted by its class.
    let faulty = "kernel void out(device uint* x, uint i [[thread_position_in_grid]]) { x[i] = 1; }";
    let faulty = device.compile(Source::msl(faulty)).unwrap().checked_kernel("out").unwrap();
    assert!(faulty.launch(&upload, Grid::threads(N + 1), (&mut x,)).unwrap().wait().is_err());
    assert_eq!(device.metrics().count("elinvar.stream.submissions", &["kernel_fault", "upload"]), 1);
}

#[test]
fn lookups_in_the_cache_and_times_of_workers_count() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let cache = Cache::at(folder.path(), 64 << 20, "1");
        Device::new(CpuDriver::with_cache(2, &cache).devices().unwrap().remove(0))
    };
    let lookups = |device: &Device| {
        let metrics = device.metrics();
        ["hit", "miss"].map(|result| metrics.count("elinvar.cache.lookups", &[result]))
    };
    let device = open();
    assert_eq!(lookups(&device), [0, 0]);
    let kernel = kernels(&device);
    let [hits, misses] = lookups(&device);
    assert!(hits == 0 && misses > 0, "{hits} {misses}");
    drop(kernel);
    let device = open();
    let [twice, _other] = kernels(&device);
    let [hits, misses] = lookups(&device);
    assert!(hits >= 3 && misses == 0, "{hits} {misses}");
    assert!(self::device().metrics().get("elinvar.cache.lookups", &["hit"]).is_none());

    let running = |device: &Device| {
        let readings = device.readings().unwrap();
        let workers = ["0", "1"].map(|worker| readings.value(Quantity::WorkerTime, &["running", worker]));
        workers.map(|seconds| seconds.unwrap()).iter().sum::<f64>()
    };
    let stream = device.stream().unwrap();
    let mut x = device.buffer_with_data(&vec![1_u32; 1 << 20]).unwrap();
    let (before, mut on_device) = (running(&device), 0);
    while on_device < 20_000_000 {
        let timing = launch(&twice, &stream, &mut x).wait().unwrap();
        on_device += timing.end_ns - timing.start_ns;
    }
    // A worker that waits for a processor is not running.
    let added = running(&device) - before;
    assert!(added > 0.001, "{added} s");
}

#[test]
fn bytes_are_those_that_were_moved() {
    let device = device();
    let stream = device.stream().unwrap();
    let mut x = device.buffer::<u32>(N).unwrap();
    let mut y = device.buffer::<u32>(N).unwrap();
    let before = device.metrics();
    let moved = |route: &str| {
        device.metrics().count("elinvar.transfer.bytes", &[route])
            - before.count("elinvar.transfer.bytes", &[route])
    };
    x.write(&[3; N]).unwrap();
    x.slice_mut(10..20).unwrap().write(&[4; 10]).unwrap();
    assert_eq!(moved("to_device"), 4 * (N as u64 + 10));
    stream.copy(&x, &mut y).unwrap();
    stream.fill(x.slice_mut(0..100).unwrap(), 9_u32).unwrap().wait().unwrap();
    assert_eq!((moved("device"), moved("fill")), (4 * N as u64, 400));
    assert_eq!(y.slice(10..30).unwrap().to_vec().unwrap()[..11], [4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3]);
    assert_eq!(moved("from_device"), 80);
}

#[test]
fn failures_count_by_class() {
    let device = device();
    let library = device.compile(Source::named("metrics.metal", KERNELS)).unwrap();
    let (checked, stream) = (library.checked_kernel("twice").unwrap(), device.stream().unwrap());
    let mut x = device.buffer_with_data(&[1_u32; N]).unwrap();
    let mut launch = |threads: usize| checked.launch(&stream, Grid::threads(threads), (&mut x,)).unwrap();
    let (faulty, behind) = (launch(N + 1), launch(N));
    assert!(matches!(faulty.wait(), Err(Error::Fault(_))));
    assert!(matches!(behind.wait(), Err(Error::Poisoned(_))));
    stream.acknowledge();
    assert!(device.compile(Source::named("wrong.metal", "kernel void wrong( {}")).is_err());
    let metrics = device.metrics();
    assert_eq!(metrics.count("elinvar.submissions", &["kernel_fault"]), 1);
    assert_eq!(metrics.count("elinvar.submissions", &["earlier_work"]), 1);
    assert_eq!(metrics.count("elinvar.submissions", &["ok"]), 0);
    assert_eq!(metrics.count("elinvar.kernel.launches", &["twice"]), 0, "only those that succeeded");
    assert_eq!(metrics.count("elinvar.compilations", &["ok"]), 1);
    assert_eq!(metrics.count("elinvar.compilations", &["wrong_call"]), 1);
}

#[test]
fn decisions_and_the_breaker_count() {
    let bench = Bench::new();
    let policy = RecoveryPolicy { backoff: Duration::ZERO, attempts: 3, ..RecoveryPolicy::of(&bench.device) };
    let count = |metric: &str, attribute: &str| bench.device.metrics().count(metric, &[attribute]);
    bench.sim.fail_next(Op::Queue, Error::Environment("injected".into()));
    bench.device.recover(&policy, || bench.device.stream()).unwrap();
    assert_eq!(count("elinvar.recovery.decisions", "retry"), 1);
    bench.sim.fail_next(Op::Queue, Error::OutOfMemory { requested: 1, available: 0 });
    bench.device.recover(&policy, || bench.device.stream()).unwrap();
    assert_eq!(
        (count("elinvar.recovery.decisions", "retry"), count("elinvar.recovery.decisions", "trim")),
        (1, 1)
    );
    let states = || ["closed", "open"].map(|state| count("elinvar.breaker.state", state));
    assert_eq!(states(), [1, 0]);
    // Three failures open the breaker, which refuses the next call; a reset closes it.
    let limits = BreakerLimits { failures: 3, cooldown: Duration::from_secs(3600), longest: Duration::MAX };
    bench.device.breaker().set_limits(limits);
    let once = RecoveryPolicy { attempts: 1, ..policy };
    for _ in 0..4 {
        bench.sim.fail_next(Op::Queue, Error::Environment("injected".into()));
        assert!(bench.device.recover(&once, || bench.device.stream()).is_err());
    }
    assert_eq!((states(), count("elinvar.recovery.decisions", "refuse")), ([0, 1], 1));
    let resets = || bench.device.metrics().count("elinvar.recovery.resets", &[]);
    let before = resets();
    bench.device.reset().unwrap();
    assert_eq!((states(), resets()), ([1, 0], before + 1));
    // Command lists are taken from the pool again.
    let lists = |result: &str| count("elinvar.command_lists", result);
    let [hits, misses] = ["hit", "miss"].map(lists);
    (0..3).for_each(|_| drop(bench.stream.command_buffer().submit()));
    bench.stream.synchronize().unwrap();
    assert_eq!(lists("hit") + lists("miss"), hits + misses + 4);
    assert!(lists("hit") > hits);
}

#[test]
fn the_time_in_the_queue_is_that_until_the_begin() {
    let device = device();
    let ([twice, _], stream) = (kernels(&device), device.stream().unwrap());
    let mut x = device.buffer::<u32>(1 << 16).unwrap();
    let gate = device.event().unwrap();
    launch(&twice, &stream, &mut x).wait().unwrap();
    let before = device.metrics();
    assert_eq!(before.count("elinvar.submissions.pending", &[]), 0);
    // Both wait for the host, and then run one after the other.
    let begun = device.clock_ns();
    stream.wait_for(&gate, 1).unwrap();
    let all: Vec<_> = (0..2).map(|_| launch(&twice, &stream, &mut x)).collect();
    assert_eq!(device.metrics().count("elinvar.submissions.pending", &[]), 3);
    std::thread::sleep(Duration::from_millis(5));
    gate.signal(1);
    let times: Vec<_> = all.iter().map(|done| done.wait().unwrap()).collect();
    let after = device.metrics();
    assert_eq!(after.count("elinvar.submissions.pending", &[]), 0);
    // Each launch was in the queue until the event, and no longer than until its begin.
    let of = |metrics: &Metrics| histogram(metrics, "elinvar.submission.queue_time", &[]);
    let (count, queued) = (of(&after).count() - of(&before).count(), of(&after).sum - of(&before).sum);
    let most: u64 = 3 * (times[1].start_ns - begun);
    let least = 2 * 5_000_000;
    assert_eq!(count, 3, "two launches and the wait");
    assert!((least..=most).contains(&queued), "{queued} ns of at least {least} and at most {most}");
}

#[test]
fn memory_of_the_pool_goes_up_and_returns() {
    let device = device();
    let live = || device.metrics().count("elinvar.memory.usage", &["live"]);
    let before = live();
    let buffer = device.buffer::<u32>(N).unwrap();
    assert_eq!(live() - before, 4 * N as u64);
    drop(buffer);
    assert_eq!(live(), before);
    assert!(device.metrics().count("elinvar.memory.usage", &["idle"]) >= 4 * N as u64);
    let hits = device.metrics().count("elinvar.memory.allocations", &["hit"]);
    let _again = device.buffer::<u32>(N).unwrap();
    assert_eq!(device.metrics().count("elinvar.memory.allocations", &["hit"]) - hits, 1);
}

#[test]
fn the_pages_list_what_exists() {
    let pages = [
        ("docs/metrics.md", include_str!("../../../../docs/metrics.md")),
        ("docs/hardware.md", include_str!("../../../../docs/hardware.md")),
    ];
    let is_of_hardware =
        |metric: &Metric| Quantity::ALL.iter().any(|quantity| quantity.name() == metric.name);
    for (of_hardware, (name, page)) in [false, true].into_iter().zip(pages) {
        let is_row = |line: &&str| {
            line.starts_with("| `")
                && (line.contains("| counter |")
                    || line.contains("| gauge |")
                    || line.contains("| histogram |"))
        };
        let rows: Vec<&str> = page.lines().filter(is_row).collect();
        let listed = METRICS.iter().filter(|metric| is_of_hardware(metric) == of_hardware);
        let expected: Vec<String> = listed
            .map(|metric| {
                let attributes: Vec<String> =
                    metric.attributes.iter().map(|name| format!("`{name}`")).collect();
                let kind = format!("{:?}", metric.kind).to_lowercase();
                let attributes = attributes.join(", ");
                format!(
                    "| `{}` | {kind} | `{}` | {attributes} | {} |",
                    metric.name, metric.unit, metric.meaning
                )
            })
            .collect();
        assert_eq!(rows, expected, "rows of {name}:\n{}", expected.join("\n"));
    }
}
