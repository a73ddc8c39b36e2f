//! Devices lost because running work cannot be stopped, and everything that waits for them; visibility of a device during a reset.

use crate::support;

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use elinvar::driver::{Access, Scalar};
use elinvar::{
    Action, Completion, Device, Error, Grid, HostAccess, RecoveryPolicy, StopsAt, Stream, WhenFull,
};
use elinvar_conformance::sim::{Op, Sim};
use support::recovery::{actions, double, failing, in_and_out, outside, policy, words};
use support::{Bench, launch, pointer, signature};

/// Serializes the tests that count the threads of the process.
static THREADS: Mutex<()> = Mutex::new(());

fn unstoppable() -> Bench {
    Bench::on(Sim::with_caps(|caps| caps.features.stops_at = StopsAt::Never))
}

/// Loses the device: submits work that ignores its deadline and runs until the returned sender is used.
fn lose(bench: &Bench, stream: &Stream) -> (Completion, Sender<()>) {
    let (begun, has_begun) = channel();
    let (go_on, may_go_on) = channel::<()>();
    let may_go_on = Mutex::new(may_go_on);
    let data = pointer("x", Scalar::U32, Access::ReadWrite);
    let endless = bench.declare(signature("endless", vec![data]), move |_| {
        begun.send(()).unwrap();
        may_go_on.lock().unwrap().recv().map_err(|_| outside())
    });
    let mut x = bench.device.buffer::<u32>(1000).unwrap();
    let mut command_buffer = stream.command_buffer();
    command_buffer.deadline(Duration::from_millis(2)).unwrap();
    // SAFETY: the simulated kernel accesses no memory.
    #[allow(unsafe_code)]
    unsafe { command_buffer.launch(&endless, Grid::threads(1), (&mut x,)) }.unwrap();
    let late = command_buffer.submit().unwrap();
    has_begun.recv().unwrap();
    (late, go_on)
}

fn is_lost<T>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::DeviceLost(_)))
}

/// Number of threads of recovering streams. Linux keeps the first 15 characters of a thread's name.
#[cfg(target_os = "linux")]
fn recovery_threads() -> usize {
    let names = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        // A thread may end in the meantime.
        std::fs::read_to_string(task.unwrap().path().join("comm")).ok()
    });
    names.filter(|name| name.starts_with("elinvar-recover")).count()
}

#[test]
#[cfg(target_os = "linux")]
fn a_recovering_stream_ends_with_its_device() {
    let _alone = THREADS.lock().unwrap();
    let bench = unstoppable();
    let before = recovery_threads();
    let stream = bench.device.stream_recovering(policy(&bench.device)).unwrap();
    let event = bench.device.event().unwrap();
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    let (late, go_on) = lose(&bench, &stream);
    // Either the device is not lost yet and the work ends with it, or the submission is refused.
    let behind = stream.fill(&mut data, 1);
    let signal = stream.signal(&event, 1);
    assert!(matches!(late.wait(), Err(Error::Timeout(text)) if text.starts_with("kernel `endless`")));
    assert!(is_lost(behind.and_then(|behind| behind.wait())));
    assert!(is_lost(signal.and_then(|signal| signal.wait())));
    while bench.device.stream().is_ok_and(|stream| stream.command_buffer().submit().is_ok()) {
        thread::yield_now();
    }
    let other = stream.clone();
    drop((stream, data, late));
    assert!(is_lost(other.command_buffer().submit()));
    drop(other);
    while recovery_threads() > before {
        thread::yield_now();
    }
    let live = |device: &Device| device.pool().stats().live_buffers;
    assert!(live(&bench.device) > 0, "the driver has not let go of what it runs");
    go_on.send(()).unwrap();
    bench.device.reset().unwrap();
    bench.sim.forget_commands();
    while live(&bench.device) > 0 || bench.sim.open_queues() > 1 {
        thread::yield_now();
    }
}

#[test]
fn a_recovering_stream_goes_on_after_the_reset() {
    let bench = unstoppable();
    let stream = bench.device.stream_recovering(policy(&bench.device)).unwrap();
    let mut data = bench.device.buffer::<u32>(4).unwrap();
    let (late, go_on) = lose(&bench, &stream);
    assert!(late.wait().is_err());
    while stream.command_buffer().submit().is_ok() {
        thread::yield_now();
    }
    go_on.send(()).unwrap();
    bench.device.reset().unwrap();
    assert!(matches!(stream.synchronize(), Err(Error::Poisoned(_))), "until it is acknowledged");
    assert!(is_lost(stream.acknowledge().map_or(Ok(()), Err)));
    stream.fill(&mut data, 3).unwrap().wait().unwrap();
    assert_eq!(data.to_vec().unwrap(), [3; 4]);
}

/// Work reported as failed does not run after a reset.
#[test]
fn work_that_waits_for_another_attempt_ends_and_is_not_tried_again() {
    let bench = unstoppable();
    let forever = RecoveryPolicy { backoff: Duration::MAX, longest: Duration::MAX, ..policy(&bench.device) };
    bench.device.trace().start(1000);
    // The device is informed about both streams.
    let [stream, later] = [(); 2].map(|()| bench.device.stream_recovering(forever.clone()).unwrap());
    let (mut a, mut b) = in_and_out(&bench.device);
    bench.sim.fail_next(Op::Execute, outside());
    let waits = stream.fill(&mut a, 7).unwrap();
    let behind = stream.fill(&mut b, 7).unwrap();
    while actions(&bench.device) != [Action::Retry] {
        thread::yield_now();
    }
    let (late, go_on) = lose(&bench, &bench.stream);
    assert!(late.wait().is_err());
    assert!(is_lost(waits.wait()) && is_lost(behind.wait()));
    go_on.send(()).unwrap();
    bench.device.reset().unwrap();
    bench.sim.forget_commands();
    assert!(is_lost(stream.acknowledge().map_or(Ok(()), Err)));
    a.write(&[1, 2, 3]).unwrap();
    b.write(&[4, 5, 6]).unwrap();
    stream.synchronize().unwrap();
    assert_eq!((a.to_vec().unwrap(), b.to_vec().unwrap()), (vec![1, 2, 3], vec![4, 5, 6]));
    assert_eq!((bench.sim.commands().len(), actions(&bench.device)), (0, vec![Action::Retry]));
    drop((stream, later, waits, behind));
    while bench.sim.open_queues() > 1 {
        thread::yield_now();
    }
}

/// A device whose kernel `double` also adds 100.
fn elsewhere() -> Bench {
    let other = unstoppable();
    let args = vec![pointer("in", Scalar::U32, Access::Read), pointer("out", Scalar::U32, Access::ReadWrite)];
    other.declare(signature("double", args), |launch| {
        let output: Vec<u32> = words(&launch.bytes(0)?).iter().map(|x| 2 * x + 100).collect();
        launch.write(1, bytemuck::cast_slice(&output))
    });
    other
}

/// Work of `stream` that is rerun on the other device, which is held.
fn runs_elsewhere(bench: &Bench, other: &Bench, stream: &Stream) -> (Completion, elinvar::Buffer<u32>) {
    let double = double(bench, &failing(1), outside());
    let (a, mut b) = in_and_out(&bench.device);
    other.sim.hold();
    let done = launch(&double, stream, Grid::threads(3), (&a, &mut b)).unwrap();
    while other.sim.commands().is_empty() {
        thread::yield_now();
    }
    (done, b)
}

#[test]
fn what_runs_elsewhere_is_not_brought_back_to_a_device_that_was_lost() {
    let (bench, other) = (unstoppable(), elsewhere());
    let rerun = Some(other.device.clone());
    let policy = RecoveryPolicy { attempts: 1, rerun, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let (done, mut b) = runs_elsewhere(&bench, &other, &stream);
    let (late, go_on) = lose(&bench, &bench.stream);
    assert!(late.wait().is_err() && is_lost(done.wait()));
    go_on.send(()).unwrap();
    bench.device.reset().unwrap();
    stream.acknowledge();
    b.write(&[7, 8, 9]).unwrap();
    other.sim.release();
    // When this has ended, the stream's thread has finished the first work.
    stream.synchronize().unwrap();
    assert_eq!(b.to_vec().unwrap(), [7, 8, 9]);
}

#[test]
fn what_runs_elsewhere_fails_when_that_device_is_lost() {
    let (bench, other) = (Bench::new(), elsewhere());
    let rerun = Some(other.device.clone());
    let policy = RecoveryPolicy { attempts: 1, rerun, ..policy(&bench.device) };
    let stream = bench.device.stream_recovering(policy).unwrap();
    let (done, _b) = runs_elsewhere(&bench, &other, &stream);
    // Held work has not begun, but cannot be stopped either.
    let mut command_buffer = other.stream.command_buffer();
    command_buffer.deadline(Duration::ZERO).unwrap();
    assert!(matches!(command_buffer.submit().unwrap().wait(), Err(Error::Timeout(_))));
    assert!(matches!(done.wait(), Err(Error::Environment(_))), "as it failed here");
    drop(stream);
    bench.device.stream().unwrap().synchronize().unwrap();
    assert!(other.device.pool().stats().live_buffers > 0, "the other device still has the copies");
    other.sim.release();
}

#[test]
fn who_waits_for_room_on_a_stream_of_a_lost_device_is_told() {
    let bench = unstoppable();
    let stream = bench.device.stream().unwrap().limited(1, WhenFull::Block);
    let (late, go_on) = lose(&bench, &stream);
    assert!(is_lost(stream.command_buffer().submit()));
    assert!(late.wait().is_err());
    go_on.send(()).unwrap();
}

/// Access to memory of the device after the driver's reset and before the runtime has noted it.
#[test]
fn nothing_is_seen_of_a_device_while_it_is_reset() {
    let bench = Bench::on(Sim::discrete());
    let device = bench.device.clone();
    let (stream, recovering) = (bench.stream.clone(), device.stream_recovering(policy(&device)).unwrap());
    let mut private = device.buffer_for::<u32>(3, HostAccess::Never).unwrap();
    let mut managed = device.buffer_for::<u32>(3, HostAccess::ReadWrite).unwrap();
    let mut shared = device.buffer_for::<u32>(3, HostAccess::Staging).unwrap();
    private.write(&[1, 2, 3]).unwrap();
    managed.write(&[4, 5, 6]).unwrap();
    shared.write(&[7, 8, 9]).unwrap();
    let (mut p, mut m, s) = (private.clone(), managed.clone(), shared.clone());
    let (sender, submitted) = channel();
    let of_reset = device.clone();
    bench.sim.within_next(Op::Reset, move || {
        assert!(is_lost(p.to_vec()) && is_lost(m.map().map(drop)) && is_lost(m.map_mut().map(drop)));
        assert!(is_lost(p.write(&[0; 3])) && is_lost(stream.fill(&mut p, 1)));
        assert!(is_lost(of_reset.buffer_for::<u32>(3, HostAccess::Never)));
        assert_eq!(s.to_vec().unwrap(), [7, 8, 9], "the host shares it");
        sender.send(recovering.fill(&mut p, 5).unwrap()).unwrap();
    });
    device.reset().unwrap();
    submitted.recv().unwrap().wait().unwrap();
    assert_eq!(private.to_vec().unwrap(), [5; 3], "it has waited for the reset");
    let is_gone = |result: Result<Vec<u32>, Error>| matches!(result, Err(Error::Poisoned(cause)) if matches!(*cause, Error::DeviceLost(_)));
    assert!(is_gone(managed.to_vec()));
    managed.write(&[0; 3]).unwrap();
    shared.write(&[0; 3]).unwrap();
}

/// The driver's reset completes in the middle of a read, so that the read returns the content after the reset.
#[test]
fn a_read_that_a_reset_comes_into_is_an_error() {
    for host in [HostAccess::Never, HostAccess::ReadWrite] {
        let bench = Bench::on(Sim::discrete());
        let device = bench.device.clone();
        let mut data = device.buffer_for::<u32>(3, host).unwrap();
        data.write(&[1, 2, 3]).unwrap();
        let (sender, is_over) = channel();
        bench.sim.within_next(Op::Reset, move || sender.send(()).unwrap());
        let resets = Arc::new(Mutex::new(None));
        let of_read = resets.clone();
        bench.sim.within_next(Op::Read, move || {
            *of_read.lock().unwrap() = Some(thread::spawn(move || device.reset().unwrap()));
            is_over.recv().unwrap();
        });
        assert!(is_lost(data.to_vec()), "{host:?}");
        resets.lock().unwrap().take().unwrap().join().unwrap();
        assert!(matches!(data.to_vec(), Err(Error::Poisoned(_))));
        data.write(&[4, 5, 6]).unwrap();
        assert_eq!(data.to_vec().unwrap(), [4, 5, 6]);
    }
}
