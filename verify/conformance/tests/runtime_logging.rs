//! Log lines under adverse conditions, on every device that is present and on isolated ones: kernels that do not end and kernels that crash,
//! a full ring, and callbacks that are slow, wait or panic.
//!
//! Each test has a device of its own where there can be one; the tests of a GPU share its log.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use elinvar::{
    Buffer, Device, DeviceKind, Error, Grid, IsolatedOptions, Kernel, LogSubscription, Source, Stream,
};
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;
use libtest_mimic::{Arguments, Trial};

const KERNELS: &str = "
    #include <metal_stdlib>
    using namespace metal;
    kernel void chatter(device atomic_uint* flag, device uint* out) {
        uint k = 0;
        while (atomic_load_explicit(flag, memory_order_relaxed) == 0) {
            printf(\"%u\", k);
            ++k;
        }
        out[0] = k;
    }
    kernel void set(device atomic_uint* flag) { atomic_store_explicit(flag, 1u, memory_order_relaxed); }
    kernel void count(device uint* out, constant uint& n, uint i [[thread_position_in_grid]]) {
        for (uint k = 0; k < n; ++k) printf(\"%u %u\", i, k);
        out[i] = n;
    }
    kernel void wild(device uint* out, constant ulong& at, uint i [[thread_position_in_grid]]) {
        printf(\"before %u\", i);
        *reinterpret_cast<device uint*>(at) = i;
        out[i] = 1;
    }";
/// Longer than any step takes unless something is broken.
const LONG: Duration = Duration::from_secs(60);

type Case = fn(&Device);

const CASES: &[(&str, Case)] = &[
    ("every_line_of_a_kernel_that_runs_for_long_arrives_or_is_counted", endless),
    ("a_full_ring_loses_lines_and_counts_them", full_ring),
    ("many_threads_and_the_smallest_ring", many_threads),
    ("callbacks_may_panic_and_must_not_wait", callbacks),
    ("lines_are_events", events),
];

/// Those that end in another way than their device's queue.
const ENDED: &[(&str, Case)] = &[("lines_arrive_before_a_deadline_ends_the_kernel", deadline)];
const CRASHES: &[(&str, Case)] = &[("lines_before_a_crash_arrive_and_the_next_worker_logs", crash)];

fn isolated(kind: DeviceKind) -> Device {
    let (threads, grace) = (Some(2), Duration::from_millis(100));
    let options = IsolatedOptions { kind, threads, grace, ..Default::default() };
    Device::isolated_with(&options).unwrap_or_else(|error| panic!("{error}"))
}

fn open(kind: &str) -> Device {
    match kind {
        "cpu" => Device::new(CpuDriver::with_threads(2).devices().unwrap().remove(0)),
        "isolated" => isolated(DeviceKind::Cpu),
        "isolated_cuda" => isolated(DeviceKind::Cuda),
        _ => Device::all().unwrap().into_iter().find(|device| device.kind().name() == kind).unwrap(),
    }
}

fn main() {
    elinvar::serve_if_asked();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    let present = Device::all().unwrap_or_default();
    let has_gpu = present.iter().any(|device| device.kind() == DeviceKind::Cuda);
    let mut trials = Vec::new();
    for kind in ["cpu", "isolated", "cuda", "isolated_cuda"] {
        let is_there = match kind {
            "isolated" => cfg!(target_os = "linux"),
            "cuda" => has_gpu,
            "isolated_cuda" => cfg!(target_os = "linux") && has_gpu,
            _ => true,
        };
        let mut cases = CASES.to_vec();
        // A GPU without a worker can neither stop a kernel nor be used after a crash.
        if kind != "cuda" {
            cases.extend(ENDED);
        }
        if kind.starts_with("isolated") {
            cases.extend(CRASHES);
        }
        trials.extend(cases.into_iter().map(|(name, case)| {
            let run = move || {
                case(&open(kind));
                Ok(())
            };
            Trial::test(format!("{kind}::{name}"), run).with_ignored_flag(!is_there)
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

fn kernel(device: &Device, name: &str) -> Kernel {
    device.compile(Source::named("logging.metal", KERNELS)).unwrap().kernel(name).unwrap()
}

/// The lines of a kernel, as they arrive.
fn lines(device: &Device, kernel: &'static str) -> (Receiver<String>, LogSubscription) {
    let (sender, lines) = channel();
    let sender = Mutex::new(sender);
    let subscription = device.on_log(move |line| {
        if *line.kernel == *kernel {
            let _gone = sender.lock().unwrap_or_else(PoisonError::into_inner).send(line.message.clone());
        }
    });
    (lines, subscription.unwrap())
}

/// Sets the size of the log, unless a GPU's log is in use already.
fn shrink(device: &Device) {
    match device.set_log_size(1024) {
        Ok(()) => {}
        Err(error) => assert_eq!(device.kind(), DeviceKind::Cuda, "{error}"),
    }
}

#[allow(unsafe_code)] // launches
fn chatter(
    kernel: &Kernel,
    stream: &Stream,
    flag: &mut Buffer<u32>,
    out: &mut Buffer<u32>,
) -> elinvar::Completion {
    // SAFETY: one thread, and buffers of one element.
    unsafe { kernel.launch(stream, Grid::threads(1), (flag, out)) }.unwrap()
}

fn endless(device: &Device) {
    let (chatters, set) = (kernel(device, "chatter"), kernel(device, "set"));
    let (mut flag, mut out) = (device.buffer::<u32>(1).unwrap(), device.buffer::<u32>(1).unwrap());
    let (one, other) = (device.stream().unwrap(), device.stream().unwrap());
    let mut alias = flag.clone();
    #[allow(unsafe_code)]
    // SAFETY: one thread, and a buffer of one element.
    let mut launch_set =
        || unsafe { set.launch(&other, Grid::threads(1), (&mut alias,)) }.unwrap().wait().unwrap();
    // Prepared, and loaded.
    launch_set();
    flag.write(&[0]).unwrap();
    let before = device.lost_log_lines();
    let (lines, subscription) = lines(device, "chatter");
    let running = chatter(&chatters, &one, &mut flag, &mut out);
    let mut last = None;
    let mut seen = 0_u64;
    let mut next = |line: String| {
        let number: u32 = line.parse().unwrap();
        assert!(last < Some(number), "{number} after {last:?}");
        last = Some(number);
        seen += 1;
    };
    for _ in 0..20_000 {
        next(lines.recv_timeout(LONG).expect("a line while the kernel runs"));
    }
    launch_set();
    running.wait().unwrap();
    drop(subscription);
    lines.try_iter().for_each(&mut next);
    let (lost, all) = (device.lost_log_lines() - before, u64::from(out.to_vec().unwrap()[0]));
    assert_eq!(seen + lost, all, "{seen} lines and {lost} lost");
}

fn full_ring(device: &Device) {
    shrink(device);
    let count = kernel(device, "count");
    let n = 20_000_u32;
    let mut out = device.buffer::<u32>(1).unwrap();
    let got = Arc::new(Mutex::new(Vec::new()));
    let to = got.clone();
    let before = device.lost_log_lines();
    let slow = device.on_log(move |line| {
        let number: u32 = line.message.split(' ').nth(1).unwrap().parse().unwrap();
        let mut got = to.lock().unwrap_or_else(PoisonError::into_inner);
        if got.len() < 3 {
            std::thread::sleep(Duration::from_millis(50));
        }
        got.push(number);
    });
    let stream = device.stream().unwrap();
    #[allow(unsafe_code)]
    // SAFETY: one thread, and a buffer of one element.
    unsafe { count.launch(&stream, Grid::threads(1), (&mut out, n)) }.unwrap().wait().unwrap();
    drop(slow.unwrap());
    let got = std::mem::take(&mut *got.lock().unwrap_or_else(PoisonError::into_inner));
    let lost = device.lost_log_lines() - before;
    assert!(got.is_sorted_by(|a, b| a < b), "in order");
    assert_eq!(got.len() as u64 + lost, u64::from(n), "{} lines and {lost} lost", got.len());
    assert!(lost > 0 && got.len() >= 16, "{} lines and {lost} lost", got.len());
    assert_eq!(out.to_vec().unwrap(), [n]);
}

fn many_threads(device: &Device) {
    const THREADS: usize = 100_000;
    shrink(device);
    let count = kernel(device, "count");
    let before = device.lost_log_lines();
    let last = Arc::new(Mutex::new((vec![None::<u32>; THREADS], 0_u64)));
    let to = last.clone();
    let subscription = device.on_log(move |line| {
        let numbers: Vec<u32> = line.message.split(' ').map(|word| word.parse().unwrap()).collect();
        let mut last = to.lock().unwrap_or_else(PoisonError::into_inner);
        let earlier = last.0[numbers[0] as usize].replace(numbers[1]);
        assert!(earlier < Some(numbers[1]) && line.thread == Some([numbers[0], 0, 0]));
        last.1 += 1;
    });
    let stream = device.stream().unwrap();
    let mut out = device.buffer::<u32>(THREADS).unwrap();
    #[allow(unsafe_code)]
    // SAFETY: as many threads as elements.
    unsafe { count.launch(&stream, Grid::threads(THREADS), (&mut out, 3_u32)) }.unwrap().wait().unwrap();
    drop(subscription.unwrap());
    let seen = last.lock().unwrap_or_else(PoisonError::into_inner).1;
    let lost = device.lost_log_lines() - before;
    assert_eq!(seen + lost, 3 * THREADS as u64, "{seen} lines and {lost} lost");
    assert_eq!(out.to_vec().unwrap(), vec![3; THREADS]);
}

fn callbacks(device: &Device) {
    let count = kernel(device, "count");
    let (lines, subscription) = lines(device, "count");
    let _panics = device.on_log(|line| panic!("a callback of a test: {line}")).unwrap();
    let (stream, weak) = (device.stream().unwrap(), device.clone());
    let errors = Arc::new(Mutex::new(Vec::new()));
    let to = errors.clone();
    let waits = device.on_log(move |_| to.lock().unwrap().push(weak.synchronize()));
    let mut out = device.buffer::<u32>(4).unwrap();
    let mut launch = || {
        #[allow(unsafe_code)]
        // SAFETY: as many threads as elements.
        unsafe { count.launch(&stream, Grid::threads(4), (&mut out, 2_u32)) }.unwrap().wait().unwrap();
    };
    launch();
    assert_eq!(lines.try_iter().count(), 8);
    drop(waits.unwrap());
    let errors = std::mem::take(&mut *errors.lock().unwrap());
    assert_eq!(errors.len(), 8);
    let expected = |result: &elinvar::Result<()>| matches!(result, Ok(()) | Err(Error::WouldDeadlock(_)));
    assert!(errors.iter().all(expected), "{errors:?}");
    drop(subscription);
    launch();
    assert_eq!(lines.try_iter().count(), 0, "no line after the subscription was dropped");
}

fn deadline(device: &Device) {
    let chatters = kernel(device, "chatter");
    let (mut flag, mut out) = (device.buffer::<u32>(1).unwrap(), device.buffer::<u32>(1).unwrap());
    let stream = device.stream().unwrap();
    let (lines, subscription) = lines(device, "chatter");
    let mut commands = stream.command_buffer();
    commands.deadline(Duration::from_millis(700)).unwrap();
    // SAFETY: one thread, and buffers of one element.
    #[allow(unsafe_code)]
    unsafe { commands.launch(&chatters, Grid::threads(1), (&mut flag, &mut out)) }.unwrap();
    let running = commands.submit().unwrap();
    assert_eq!(lines.recv_timeout(LONG).unwrap(), "0");
    let ended = running.wait();
    assert!(matches!(ended, Err(Error::Timeout(_))), "{ended:?}");
    drop(subscription);
    let numbers: Vec<u32> = lines.try_iter().map(|line| line.parse().unwrap()).collect();
    assert!(numbers.len() > 100 && numbers.is_sorted_by(|a, b| a < b), "{} lines", numbers.len());
    assert_eq!(out.len(), 1);
    logs_as_ever(device);
}

fn crash(device: &Device) {
    let wild = kernel(device, "wild");
    let mut out = device.buffer::<u32>(32).unwrap();
    for round in 0..3 {
        let (lines, subscription) = lines(device, "wild");
        let stream = device.stream().unwrap();
        // SAFETY: the store ends the worker process and does not change memory.
        #[allow(unsafe_code)]
        let ended = unsafe { wild.launch(&stream, Grid::threads(32), (&mut out, 64_u64)) }.unwrap().wait();
        assert!(matches!(ended, Err(Error::DeviceLost(_) | Error::Fault(_))), "{ended:?}");
        drop(subscription);
        let lines: Vec<String> = lines.try_iter().collect();
        assert!(lines.contains(&"before 0".to_owned()), "round {round}: {lines:?}");
        logs_as_ever(device);
    }
}

/// All lines of an ordinary kernel.
fn logs_as_ever(device: &Device) {
    let count = kernel(device, "count");
    let (lines, _subscription) = lines(device, "count");
    let mut out = device.buffer::<u32>(8).unwrap();
    let stream = device.stream().unwrap();
    #[allow(unsafe_code)]
    // SAFETY: as many threads as elements.
    unsafe { count.launch(&stream, Grid::threads(8), (&mut out, 2_u32)) }.unwrap().wait().unwrap();
    let mut lines: Vec<String> = lines.try_iter().collect();
    lines.sort();
    let expected: Vec<String> = (0..8).flat_map(|i| (0..2).map(move |k| format!("{i} {k}"))).collect();
    assert_eq!(lines, expected);
    assert_eq!(out.to_vec().unwrap(), [2; 8]);
}

/// Fields of the events with the target of log lines.
static EVENTS: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Subscriber;

impl tracing::Subscriber for Subscriber {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "elinvar::kernel"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!(" {field}={value:?}"));
            }
        }
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        EVENTS.lock().unwrap_or_else(PoisonError::into_inner).push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn events(device: &Device) {
    let _set_by_an_earlier_test = tracing::subscriber::set_global_default(Subscriber);
    EVENTS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    logs_as_ever(device);
    let events = std::mem::take(&mut *EVENTS.lock().unwrap_or_else(PoisonError::into_inner));
    assert_eq!(events.len(), 16, "one for each line: {events:?}");
    let expected = "INFO message=5 1 kernel=\"count\" thread=Some([5, 0, 0]) subsystem=\"\" category=\"\"";
    assert!(events.iter().any(|event| event == expected), "{events:?}");
}
