//! Streams: order, completion, failure, cancellation, and dropping everything with pending work.

use crate::support;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

use elinvar::driver::{Access, Command, Driver as _, Scalar};
use elinvar::{Arg, Device, Error, Fault, Grid, Kernel, Source};
use elinvar_conformance::sim::{Op, Sim};
use elinvar_conformance::suite::{Outcome, cases, drop_last_device};
use elinvar_driver_cpu::CpuDriver;
use support::{Bench, assert_poisoned, block_on, constant, fault, invalid, launch, pointer, signature};

/// `note(constant uint& value)`: appends its value to the list.
fn note(bench: &Bench) -> (Kernel, Arc<Mutex<Vec<u32>>>) {
    let list = Arc::new(Mutex::new(Vec::new()));
    let of_kernel = list.clone();
    let kernel = bench.declare(signature("note", vec![constant("value", Scalar::U32)]), move |launch| {
        let value = u32::from_ne_bytes(launch.bytes(0)?.try_into().expect("four bytes"));
        of_kernel.lock().unwrap().push(value);
        Ok(())
    });
    (kernel, list)
}

#[test]
fn work_of_a_stream_is_ordered() {
    let bench = Bench::new();
    let (note, list) = note(&bench);
    bench.sim.hold();
    let all: Vec<_> = (0..100u32).map(|i| bench.launch(&note, (i,)).unwrap()).collect();
    assert!(all.iter().all(|done| !done.is_done() && done.timing().is_none()));
    bench.sim.release();
    bench.stream.synchronize().unwrap();
    assert_eq!(*list.lock().unwrap(), (0..100).collect::<Vec<_>>());
    let times: Vec<_> = all.iter().map(|done| done.timing().unwrap()).collect();
    assert!(times.is_sorted_by(|a, b| a.end_ns <= b.start_ns));
}

#[test]
fn a_device_is_synchronized_when_all_its_streams_have_ended() {
    let bench = Bench::new();
    let (note, list) = note(&bench);
    bench.device.synchronize().unwrap();
    bench.sim.fail_launch("wrong", fault());
    let wrong = bench.declare(signature("wrong", Vec::new()), |_| Ok(()));
    let others = [(); 3].map(|()| bench.device.stream().unwrap());
    let event = bench.device.event().unwrap();
    others[2].wait_for(&event, 1).unwrap();
    // The completions are dropped; some of the work fails, and some keeps memory alive.
    for i in 0..10u32 {
        drop(bench.launch(&note, (i,)).unwrap());
        let mut scratch = bench.device.buffer::<u32>(100).unwrap();
        drop(others[1].fill(&mut scratch, i).unwrap());
        drop(others[2].fill(&mut scratch, i).unwrap());
    }
    drop(launch(&wrong, &others[0], Grid::threads(1), ()).unwrap());
    let (begun, has_begun) = channel();
    let device = bench.device.clone();
    let waiter = thread::spawn(move || {
        begun.send(()).unwrap();
        device.synchronize().unwrap();
        (device.pool().stats().live_buffers, others.each_ref().map(elinvar::Stream::in_flight))
    });
    has_begun.recv().unwrap();
    event.signal(1);
    assert_eq!(waiter.join().unwrap(), (0, [0; 3]));
    assert_eq!((list.lock().unwrap().len(), bench.stream.in_flight()), (10, 0));
}

#[test]
fn a_batch_is_one_submission() {
    let bench = Bench::new();
    let (note, list) = note(&bench);
    let mut a = bench.device.buffer::<u16>(3).unwrap();
    let mut b = bench.device.buffer::<u16>(2).unwrap();
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.fill(&mut a, 0x0201).unwrap();
    #[allow(unsafe_code)] // a launch
    // SAFETY: the kernel only reads a value.
    unsafe {
        command_buffer.launch(&note, Grid::threads(4), (1u32,)).unwrap();
        // A refused launch leaves the command buffer unchanged.
        invalid(command_buffer.launch(&note, Grid::threads(4), ()));
        command_buffer.launch(&note, Grid::threads(4), (2u32,)).unwrap();
    }
    command_buffer.copy(a.slice(1..3).unwrap(), &mut b).unwrap();
    assert_eq!(invalid(command_buffer.copy(&a, &mut b)), "copy: the source has 3 elements, the target 2");
    assert!(
        invalid(command_buffer.fill(&mut bench.device.buffer(1).unwrap(), [0u8; 17]))
            .ends_with("at most 16 allowed")
    );
    assert!(bench.sim.commands().is_empty(), "nothing runs before the command buffer is submitted");
    command_buffer.submit().unwrap().wait().unwrap();
    assert_eq!(*list.lock().unwrap(), [1, 2]);
    assert_eq!(b.to_vec().unwrap(), [0x0201, 0x0201]);
    let kinds: Vec<&str> = bench.sim.commands().iter().map(kind).collect();
    assert_eq!(kinds, ["fill", "dispatch", "dispatch", "copy"]);
}

fn kind(command: &Command) -> &'static str {
    match command {
        Command::Dispatch(_) => "dispatch",
        Command::Copy { .. } => "copy",
        Command::Fill { .. } => "fill",
        _ => "other",
    }
}

#[test]
fn maps_are_looked_at_when_a_batch_is_submitted() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer::<u32>(1).unwrap();
    let mut fine = bench.device.buffer::<u32>(1).unwrap();
    let mut command_buffer = bench.stream.command_buffer();
    command_buffer.fill(&mut fine, 1).unwrap();
    command_buffer.fill(&mut buffer, 1).unwrap();
    let map = buffer.map().unwrap();
    assert!(
        invalid(command_buffer.submit()).starts_with("fill: the buffer: the buffer is mapped for reading")
    );
    drop(map);
    assert!(bench.sim.commands().is_empty());
    assert_eq!(fine.to_vec().unwrap(), [0]);
}

#[test]
fn copies_within_a_buffer() {
    let bench = Bench::new();
    let mut buffer = bench.device.buffer_with_data(&[1u8, 2, 3, 4]).unwrap();
    let source = buffer.clone();
    bench.stream.copy(source.slice(0..3).unwrap(), buffer.slice_mut(1..4).unwrap()).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1, 1, 2, 3]);
}

#[test]
fn failure_is_sticky_until_acknowledged() {
    let bench = Bench::new();
    let (note, list) = note(&bench);
    let fail = bench.fail();
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    let failed = bench.launch(&fail, (&mut data,)).unwrap();
    let behind = bench.launch(&note, (1u32,)).unwrap();
    assert!(
        matches!(failed.wait(), Err(Error::Fault(f)) if Error::Fault(f.clone()).to_string() == fault().to_string())
    );
    assert_poisoned(behind.wait());
    assert_poisoned(bench.launch(&note, (2u32,)).unwrap().wait());
    assert_poisoned(bench.stream.synchronize());
    let other = bench.device.stream().unwrap();
    launch(&note, &other, Grid::threads(1), (3u32,)).unwrap().wait().unwrap();
    assert_eq!(bench.stream.acknowledge().map(|e| e.to_string()), Some(fault().to_string()));
    assert!(bench.stream.acknowledge().is_none());
    bench.launch(&note, (4u32,)).unwrap().wait().unwrap();
    assert_eq!(*list.lock().unwrap(), [3, 4]);
    assert_poisoned(behind.wait()); // what ended stays as it ended
}

#[test]
fn refused_submissions_are_errors_and_not_recorded() {
    let bench = Bench::new();
    let increment = bench.increment();
    let mut data = bench.device.buffer_with_data(&[1u32]).unwrap();
    bench.sim.fail_next(Op::Submit, Error::DeviceLost("unplugged".into()));
    assert!(matches!(bench.launch(&increment, (&mut data,)), Err(Error::DeviceLost(_))));
    assert_eq!(data.to_vec().unwrap(), [1]);
    bench.launch(&increment, (&mut data,)).unwrap();
    assert_eq!(data.to_vec().unwrap(), [2]);
}

#[test]
fn driver_errors_come_through() {
    let bench = Bench::new();
    bench.sim.fail_next(Op::Queue, Error::DeviceLost("gone".into()));
    assert!(matches!(bench.device.stream(), Err(Error::DeviceLost(_))));
    bench.sim.fail_next(Op::Compile, Error::Compile(Vec::new()));
    assert!(matches!(bench.device.compile(Source::msl("")), Err(Error::Compile(_))));
    let (note, _) = note(&bench);
    bench.sim.fail_next(Op::Execute, Error::DeviceLost("gone".into()));
    assert!(matches!(bench.launch(&note, (1u32,)).unwrap().wait(), Err(Error::DeviceLost(_))));
    let source = Source::named("a.metal", "");
    bench.device.compile(&source).unwrap();
    let library = bench.device.compile(source).unwrap();
    assert_eq!(library.source_name(), "a.metal");
    assert_eq!(library.kernels().len(), 1);
    assert_eq!(invalid(library.kernel("nope")), "no kernel `nope`; there are: note");
}

#[test]
fn a_panic_in_a_kernel_is_a_fault() {
    let bench = Bench::new();
    let kernel = bench.declare(signature("boom", vec![]), |_| panic!("at the disco"));
    let result = bench.launch(&kernel, ()).unwrap().wait();
    let expected = Fault {
        kernel: "boom".into(),
        message: "panicked: at the disco".into(),
        location: None,
        launch: None,
    };
    assert!(matches!(&result, Err(Error::Fault(fault)) if *fault == expected), "{result:?}");
}

#[test]
fn cancelling_what_has_not_begun() {
    let bench = Bench::new();
    let (note, list) = note(&bench);
    bench.sim.hold();
    let all: Vec<_> = (0..3u32).map(|i| bench.launch(&note, (i,)).unwrap()).collect();
    assert!(all[1].cancel());
    assert!(matches!(all[1].wait(), Err(Error::Cancelled)));
    assert!(!all[1].cancel(), "it has ended");
    bench.sim.release();
    all[2].wait().unwrap();
    assert!(!all[0].cancel() && all[0].is_done());
    assert_eq!(*list.lock().unwrap(), [0, 2]);
}

/// A kernel that reports when it has begun and runs until it is told to end.
fn gate(bench: &Bench) -> (Kernel, std::sync::mpsc::Receiver<()>, std::sync::mpsc::Sender<()>) {
    let (begun, has_begun) = channel();
    let (end, may_end) = channel();
    let (begun, may_end) = (Mutex::new(begun), Mutex::new(may_end));
    let kernel =
        bench.declare(signature("gate", vec![pointer("data", Scalar::U32, Access::ReadWrite)]), move |_| {
            begun.lock().unwrap().send(()).expect("the test listens");
            may_end.lock().unwrap().recv().map_err(|_| Error::Cancelled)
        });
    (kernel, has_begun, end)
}

#[test]
fn what_runs_is_not_cancelled_and_timeouts_change_nothing() {
    let bench = Bench::new();
    let (gate, has_begun, end) = gate(&bench);
    let mut data = bench.device.buffer::<u32>(1).unwrap();
    let done = bench.launch(&gate, (&mut data,)).unwrap();
    has_begun.recv().unwrap();
    assert!(!done.cancel());
    assert!(done.wait_timeout(Duration::ZERO).unwrap().is_none());
    assert!(done.wait_timeout(Duration::from_millis(1)).unwrap().is_none());
    assert!(!done.is_done());
    end.send(()).unwrap();
    let timing = done.wait_timeout(Duration::MAX).unwrap().expect("no deadline, so it has ended");
    assert_eq!(done.wait().unwrap(), timing);
    assert_eq!(done.wait_timeout(Duration::ZERO).unwrap(), Some(timing));
}

#[test]
fn many_waiters() {
    let bench = Bench::new();
    let (note, _) = note(&bench);
    bench.sim.hold();
    let done = bench.launch(&note, (1u32,)).unwrap();
    let threads: Vec<_> = (0..4)
        .map(|i| {
            let done = done.clone();
            thread::spawn(move || if i % 2 == 0 { done.wait() } else { block_on(done) })
        })
        .collect();
    bench.sim.release();
    let timing = block_on(done.clone()).unwrap();
    for thread in threads {
        assert_eq!(thread.join().unwrap().unwrap(), timing);
    }
    assert_eq!(done.wait().unwrap(), timing);
}

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn each_future_wakes_its_last_waker_once() {
    let bench = Bench::new();
    let (note, _) = note(&bench);
    let counts: [Arc<Count>; 4] = Default::default();
    let poll = |done: &mut elinvar::Completion, count: &Arc<Count>| {
        let waker = Waker::from(count.clone());
        Pin::new(done).poll(&mut Context::from_waker(&waker))
    };
    bench.sim.hold();
    let mut first = bench.launch(&note, (1u32,)).unwrap();
    let mut second = first.clone();
    let mut dropped = first.clone();
    assert!(poll(&mut first, &counts[0]).is_pending());
    assert!(poll(&mut first, &counts[1]).is_pending());
    assert!(poll(&mut second, &counts[2]).is_pending());
    assert!(poll(&mut dropped, &counts[3]).is_pending());
    drop(dropped);
    bench.sim.release();
    bench.stream.synchronize().unwrap();
    assert_eq!(counts.each_ref().map(|count| count.0.load(Ordering::SeqCst)), [0, 1, 1, 0]);
    assert_eq!(Arc::strong_count(&counts[3]), 1, "a dropped future leaves nothing behind");
    assert!(matches!(poll(&mut first, &counts[0]), Poll::Ready(Ok(_))));
}

struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker that panics");
    }
}

#[test]
fn a_waker_that_panics_harms_nobody() {
    let bench = Bench::new();
    let (note, _) = note(&bench);
    bench.sim.hold();
    let done = bench.launch(&note, (1u32,)).unwrap();
    let mut polled = done.clone();
    let waker = Waker::from(Arc::new(Bomb));
    assert!(Pin::new(&mut polled).poll(&mut Context::from_waker(&waker)).is_pending());
    bench.sim.release();
    done.wait().unwrap();
    bench.launch(&note, (2u32,)).unwrap().wait().unwrap();
}

#[test]
fn everything_may_be_dropped_with_work_in_flight() {
    let bench = Bench::new();
    let (gate, has_begun, end) = gate(&bench);
    let increment = bench.increment();
    let mut data = bench.device.buffer_with_data(&[1u32; 1000]).unwrap();
    let memory = {
        bench.launch(&gate, (&mut data,)).unwrap();
        let memory = bench.sim.commands().into_iter().find_map(|command| match command {
            Command::Dispatch(dispatch) => dispatch.bindings.into_iter().find_map(|binding| match binding {
                elinvar::driver::Binding::Memory(slice) => Some(Arc::downgrade(&slice.memory)),
                _ => None,
            }),
            _ => None,
        });
        memory.expect("the launch binds memory")
    };
    has_begun.recv().unwrap();
    let last = bench.launch(&increment, (&mut data,)).unwrap();
    let Bench { sim, device, stream } = bench;
    drop((data, gate, increment, stream, device));
    assert!(memory.upgrade().is_some(), "work in flight holds its memory");
    end.send(()).unwrap();
    last.wait().unwrap();
    drop((last, sim));
}

#[test]
fn the_only_completion_may_be_dropped() {
    let bench = Bench::new();
    let (note, list) = note(&bench);
    bench.sim.hold();
    drop(bench.launch(&note, (1u32,)).unwrap());
    bench.sim.release();
    bench.stream.synchronize().unwrap();
    assert_eq!(*list.lock().unwrap(), [1]);
}

#[test]
fn threads_share_a_stream_and_a_buffer() {
    let bench = Bench::new();
    let increment = bench.increment();
    let buffer = bench.device.buffer::<u32>(1).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            let mut buffer = buffer.clone();
            let (bench, increment) = (&bench, &increment);
            scope.spawn(move || {
                for _ in 0..200 {
                    bench.launch(increment, (&mut buffer,)).unwrap();
                    buffer.to_vec().unwrap();
                }
            });
        }
    });
    assert_eq!(buffer.to_vec().unwrap(), [800]);
}

#[test]
fn handles_go_to_other_threads() {
    fn check<T: Send + Sync>() {}
    check::<Device>();
    check::<Kernel>();
    check::<elinvar::Library>();
    check::<elinvar::Stream>();
    check::<elinvar::CommandBuffer>();
    check::<elinvar::Completion>();
    check::<elinvar::Buffer<f32>>();
    check::<elinvar::Map<'_, f32>>();
    check::<elinvar::MapMut<'_, f32>>();
    check::<Arg>();
}

#[test]
fn what_waits_in_a_callback_is_refused() {
    let ran: Vec<_> = cases()
        .into_iter()
        // Without the case of the destructor: the simulated device's list of commands keeps submitted objects alive.
        .filter(|case| case.name.starts_with("callbacks::") && !case.name.ends_with("in_a_destructor"))
        .map(|case| (case.name, case.run(&Device::new(Sim::new())).unwrap()))
        .collect();
    assert_eq!(ran.len(), 4, "{ran:?}");
    assert!(ran.iter().all(|(_, outcome)| *outcome == Outcome::Computed), "{ran:?}");
}

#[test]
fn the_last_device_may_be_dropped_in_a_callback() {
    drop_last_device(Device::new(Sim::new())).unwrap();
    let cpu = || Device::new(CpuDriver::with_threads(1).devices().unwrap().remove(0));
    drop_last_device(cpu()).unwrap();
    drop_last_device(cpu()).unwrap();
}
