//! An isolated device executes kernels. When its worker ends, only work in flight fails.
#![cfg(target_os = "linux")]
#![allow(unsafe_code)] // sends signals to worker processes, reads what the contract's memory holds

mod common;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use common::{Bench, LONG, content, dispatch, failure, options, slice, submit, submit_known, until, whole};
use elinvar_driver::{
    Binding, Command, Device, DeviceKind, Error, Event, HostBlock, Memory, Timeline, TimestampSlot,
};
use elinvar_driver_isolated::{Options, device};
use rustix::process::{Pid, Signal, kill_process};

/// The process of a device's worker.
fn worker(bench: &Bench) -> Pid {
    Pid::from_raw(bench.device.process().unwrap().cast_signed()).unwrap()
}

fn is_lost(error: &Error, says: &str) -> bool {
    matches!(error, Error::DeviceLost(text) if text.contains(says))
}

fn is_poisoned(error: &Error, says: &str) -> bool {
    matches!(error, Error::Poisoned(cause) if is_lost(cause, says))
}

#[test]
fn kernels_copies_and_fills_compute_in_place_and_in_order() {
    let bench = Bench::new();
    let ones: Vec<u32> = (0..5000).collect();
    let (a, b, c) = (bench.memory(&ones), bench.memory(&[0; 5000]), bench.memory(&[0; 5000]));
    let queue = bench.device.queue().unwrap();
    let (first, second) = (Arc::new(TimestampSlot::new()), Arc::new(TimestampSlot::new()));
    let before = bench.device.clock_ns();
    let commands = vec![
        Command::Timestamp { into: first.clone() },
        bench.adds(&b, &a, 10),
        Command::Copy { source: slice(&b), target: slice(&c) },
        bench.adds(&b, &c, 100),
        Command::Fill { target: slice(&a), pattern: 9_u32.to_le_bytes().to_vec() },
        Command::Timestamp { into: second.clone() },
    ];
    let timing = submit(&*queue, commands).recv_timeout(LONG).unwrap().unwrap();
    let after = bench.device.clock_ns();
    let times = [before, timing.start_ns, first.ns().unwrap(), second.ns().unwrap(), timing.end_ns, after];
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(content(&a), [9; 5000]);
    assert!(content(&b).iter().zip(0..).all(|(got, i)| *got == i + 110));
    assert!(content(&c).iter().zip(0..).all(|(got, i)| *got == i + 10));
}

#[test]
fn more_commands_than_a_ring_holds_at_once() {
    let bench = Bench::new();
    let memory = bench.memory(&[0; 64]);
    let queue = bench.device.queue().unwrap();
    let fill = |k: u32| Command::Fill { target: slice(&memory), pattern: k.to_le_bytes().repeat(4) };
    let ended: Vec<_> =
        (0..4).map(|round| submit(&*queue, (0..40_000).map(|k| fill(round * k)).collect())).collect();
    for ended in ended {
        ended.recv_timeout(LONG).unwrap().unwrap();
    }
    assert_eq!(content(&memory), [3 * 39_999; 64]);
}

#[test]
fn signals_and_waits_order_queues_of_one_device_and_of_others() {
    let (one, other) = (Bench::new(), Bench::new());
    let (a, b) = (one.memory(&[1; 500]), other.memory(&[2; 500]));
    let (to, fro): (Arc<dyn Event>, Arc<dyn Event>) = (Arc::new(Timeline::new()), Arc::new(Timeline::new()));
    let signal = |event: &Arc<dyn Event>, value| Command::Signal { event: event.clone(), value };
    let wait = |event: &Arc<dyn Event>, value| Command::Wait { event: event.clone(), value };
    let (ours, theirs) = (one.device.queue().unwrap(), other.device.queue().unwrap());
    let second = submit(
        &*theirs,
        vec![wait(&to, 1), other.adds(&b, &b, 10), signal(&fro, 1), wait(&to, 2), signal(&fro, 2)],
    );
    let first = submit(
        &*ours,
        vec![one.adds(&a, &a, 5), signal(&to, 1), wait(&fro, 1), one.adds(&a, &a, 5), signal(&to, 2)],
    );
    for ended in [first, second] {
        ended.recv_timeout(LONG).unwrap().unwrap();
    }
    assert_eq!((content(&a), content(&b)), (vec![11; 500], vec![12; 500]));
    assert_eq!((to.value(), fro.value()), (2, 2));
    // A failed event fails the submissions that wait for it, and those behind them.
    let gone: Arc<dyn Event> = Arc::new(Timeline::new());
    let (waits, behind) = (submit(&*ours, vec![wait(&gone, 1), one.adds(&a, &a, 1)]), submit(&*ours, vec![]));
    gone.fail(&Error::DeviceLost("elsewhere".into()));
    assert!(is_poisoned(&failure(&waits), "elsewhere") && is_poisoned(&failure(&behind), "elsewhere"));
    assert!(ours.acknowledge().is_some());
    submit(&*ours, vec![one.adds(&a, &a, 1)]).recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(content(&a), [12; 500]);
}

#[test]
fn a_crash_ends_what_is_in_flight_and_the_next_submission_has_a_new_worker() {
    let bench = Bench::new();
    let (a, b) = (bench.memory(&[1; 300]), bench.memory(&[0; 300]));
    let (queue, other) = (bench.device.queue().unwrap(), bench.device.queue().unwrap());
    submit(&*queue, vec![bench.adds(&b, &a, 1)]).recv_timeout(LONG).unwrap().unwrap();
    let before = worker(&bench);
    let event: Arc<dyn Event> = Arc::new(Timeline::new());
    let crash =
        submit(&*queue, vec![bench.stores(&a, 8), Command::Signal { event: event.clone(), value: 1 }]);
    let behind = submit(&*queue, vec![bench.adds(&b, &a, 7)]);
    let error = failure(&crash);
    assert!(is_lost(&error, "SIGSEGV") && is_lost(&error, "kernel `wild`"), "{error}");
    assert!(is_poisoned(&failure(&behind), "SIGSEGV"));
    assert!(event.failure().is_some());
    assert_eq!((content(&a), content(&b)), (vec![1; 300], vec![2; 300]), "memory of the host survives");
    // The queue stays poisoned until the failure is acknowledged; other queues are not affected.
    assert!(is_poisoned(&failure(&submit(&*queue, vec![])), "SIGSEGV"));
    submit(&*other, vec![bench.adds(&b, &b, 5)]).recv_timeout(LONG).unwrap().unwrap();
    assert!(is_lost(&queue.acknowledge().unwrap(), "SIGSEGV"));
    submit(&*queue, vec![bench.adds(&b, &b, 5)]).recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(content(&b), [12; 300]);
    assert_ne!(worker(&bench), before);
}

#[test]
fn a_store_behind_a_buffer_reaches_no_other() {
    let bench = Bench::new();
    let memories: Vec<Arc<dyn Memory>> = (0..8).map(|k| bench.memory(&[k; 1024])).collect();
    let queue = bench.device.queue().unwrap();
    let touched: Vec<Command> = memories.iter().map(|memory| bench.adds(memory, memory, 0)).collect();
    submit(&*queue, touched).recv_timeout(LONG).unwrap().unwrap();
    for memory in &memories {
        let behind = memory.gpu_address().unwrap() + memory.len();
        let error = failure(&submit(&*queue, vec![bench.stores(memory, behind)]));
        assert!(is_lost(&error, "SIGSEGV"), "{error}");
        queue.acknowledge();
    }
    assert!(memories.iter().zip(0..).all(|(memory, k)| content(memory) == [k; 1024]));
}

#[test]
fn a_worker_that_is_killed_is_replaced_and_addresses_stay() {
    let bench = Bench::new();
    let (memory, queue) = (bench.memory(&[0; 100]), bench.device.queue().unwrap());
    let address = memory.gpu_address().unwrap();
    for round in 1..=3 {
        let killed = worker(&bench);
        kill_process(killed, if round == 2 { Signal::TRAP } else { Signal::KILL }).unwrap();
        // The worker may execute work before it ends, or end without work in flight.
        loop {
            let ended = submit(&*queue, vec![bench.adds(&memory, &memory, 0)]).recv_timeout(LONG).unwrap();
            if let Err(error) = ended {
                assert!(is_lost(&error, if round == 2 { "SIGTRAP" } else { "SIGKILL" }), "{error}");
                queue.acknowledge();
                break;
            }
            if bench.device.process() != Some(killed.as_raw_nonzero().get().cast_unsigned()) {
                break;
            }
        }
        submit(&*queue, vec![bench.stores(&memory, address)]).recv_timeout(LONG).unwrap().unwrap();
        assert_eq!(memory.gpu_address(), Some(address));
    }
    assert_eq!(content(&memory)[1..], [0; 99]);
}

#[test]
fn what_does_not_stop_at_its_deadline_ends_with_the_worker() {
    let bench = Bench::new();
    let (flag, a) = (bench.memory(&[0, 0]), bench.memory(&[0; 100]));
    let (queue, other) = (bench.device.queue().unwrap(), bench.device.queue().unwrap());
    let (endless, ended) = submit_known(&*queue, vec![bench.loops(&flag)]);
    let behind = submit(&*queue, vec![bench.adds(&a, &a, 1)]);
    // Submissions that have not begun end without the worker.
    until("the loop runs", || content(&flag)[1] == 1);
    let beside = submit(&*other, vec![bench.loops(&flag)]);
    assert!(queue.stop(endless, Error::Timeout("its deadline".into())).unwrap());
    assert!(matches!(failure(&ended), Error::Timeout(text) if text == "its deadline"));
    assert!(matches!(failure(&behind), Error::Poisoned(cause) if matches!(*cause, Error::Timeout(_))));
    assert!(is_lost(&failure(&beside), "its deadline"));
    assert!(!queue.stop(endless, Error::Cancelled).unwrap(), "it has ended");
    queue.acknowledge();
    submit(&*queue, vec![bench.adds(&a, &a, 1)]).recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(content(&a), [1; 100]);
}

#[test]
fn what_stops_in_its_loops_leaves_the_worker_alone() {
    let bench = Bench::with(&Options { grace: LONG, ..options() });
    let forever = bench.forever.stoppable().unwrap();
    forever.prepare(common::GROUP).unwrap();
    let (flag, queue) = (bench.memory(&[0, 0]), bench.device.queue().unwrap());
    let before = worker(&bench);
    let (endless, ended) =
        submit_known(&*queue, vec![common::dispatch(&forever, vec![common::whole(&flag)], 1)]);
    queue.stop(endless, Error::Timeout("its deadline".into())).unwrap();
    assert!(matches!(failure(&ended), Error::Timeout(_)));
    assert_eq!(worker(&bench), before);
}

#[test]
fn a_worker_that_stands_still_ends_at_a_deadline() {
    let bench = Bench::new();
    let (a, queue) = (bench.memory(&[0; 10]), bench.device.queue().unwrap());
    kill_process(worker(&bench), Signal::STOP).unwrap();
    // One thread handles the signal when it is scheduled, and stops the others.
    let tasks = format!("/proc/{}/task", worker(&bench).as_raw_nonzero());
    until("all its threads are stopped", || {
        std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
            let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(") ").next().is_some_and(|state| state.starts_with('T'))
        })
    });
    let (late, ended) = submit_known(&*queue, vec![bench.adds(&a, &a, 1)]);
    queue.stop(late, Error::Timeout("its deadline".into())).unwrap();
    assert!(matches!(failure(&ended), Error::Timeout(_)));
    queue.acknowledge();
    bench.expect_computes();
}

#[test]
fn a_reset_ends_all_that_is_in_flight_and_keeps_memory_kernels_and_queues() {
    let bench = Bench::new();
    let (flag, a) = (bench.memory(&[0, 0]), bench.memory(&[5; 100]));
    let (queue, other) = (bench.device.queue().unwrap(), bench.device.queue().unwrap());
    let event: Arc<dyn Event> = Arc::new(Timeline::new());
    let never = Command::Wait { event: event.clone(), value: 1 };
    let ended = [
        submit(&*queue, vec![bench.loops(&flag)]),
        submit(&*queue, vec![bench.adds(&a, &a, 1)]),
        submit(&*other, vec![never, bench.adds(&a, &a, 1)]),
    ];
    let before = worker(&bench);
    bench.device.reset().unwrap();
    for ended in &ended {
        let error = ended.try_recv().expect("it has ended when the reset has").expect_err("it was lost");
        assert!(is_lost(&error, "reset"), "{error}");
    }
    assert_ne!(worker(&bench), before);
    for queue in [queue, other] {
        assert!(is_lost(&queue.acknowledge().unwrap(), "reset"));
        submit(&*queue, vec![bench.adds(&a, &a, 1)]).recv_timeout(LONG).unwrap().unwrap();
    }
    assert_eq!(content(&a), [7; 100]);
    (0..3).for_each(|_| bench.device.reset().unwrap());
    bench.expect_computes();
}

#[test]
fn what_has_not_begun_is_cancelled_wherever_it_is() {
    let bench = Bench::new();
    let (flag, a) = (bench.memory(&[0, 0]), bench.memory(&[0; 10]));
    let queue = bench.device.queue().unwrap();
    let event: Arc<dyn Event> = Arc::new(Timeline::new());
    let (runs, first) = submit_known(&*queue, vec![bench.loops(&flag)]);
    let (sent, second) = submit_known(&*queue, vec![bench.adds(&a, &a, 1)]);
    let wait = Command::Wait { event: event.clone(), value: 1 };
    let (waits, third) = submit_known(&*queue, vec![wait, bench.adds(&a, &a, 1)]);
    let last = submit(&*queue, vec![bench.adds(&a, &a, 10)]);
    assert!(queue.cancel(waits) && queue.cancel(sent));
    assert!(matches!(failure(&second), Error::Cancelled) && matches!(failure(&third), Error::Cancelled));
    assert!(!queue.cancel(sent));
    // Wait until the loop runs, when it can no longer be cancelled.
    until("the loop runs", || !queue.cancel(runs) || first.try_recv().is_ok());
    // SAFETY: the kernel reads the flag with atomic operations, and no other code writes it.
    unsafe { flag.write(0, &1_u32.to_le_bytes()) }.unwrap();
    last.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(content(&a), [10; 10]);
}

#[test]
fn memory_of_the_program_is_refused_with_the_reason() {
    let bench = Bench::new();
    let mut pages = vec![0_u8; 4096];
    let address = std::ptr::NonNull::new(pages.as_mut_ptr()).unwrap();
    // SAFETY: the bytes are in `pages`, which no other code accesses.
    let refused = unsafe { bench.device.wrap(HostBlock { address, bytes: 4096, owner: Box::new(()) }) };
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("it is isolated") && bench.device.caps().limits.wrap_granule.is_none(), "{error}");
}

#[test]
fn a_worker_that_cannot_be_started_says_why() {
    let with = |program: &str| {
        let options = Options { program: Some(program.into()), ..options() };
        device(&options).err().unwrap().to_string()
    };
    assert!(with("/nowhere/elinvar").contains("cannot start `/nowhere/elinvar`"));
    let error = with("/bin/false");
    assert!(error.contains("did not become ready") && error.contains("exit status 1"), "{error}");
}

#[test]
fn kinds_that_cannot_be_had_are_refused_with_the_reason() {
    let refused = device(&Options { kind: DeviceKind::Metal, ..options() }).err().unwrap();
    assert!(matches!(&refused, Error::Unsupported(text) if text.contains("only CPU and CUDA")), "{refused}");
    let refused = device(&Options { index: 1, ..options() }).err().unwrap();
    assert!(
        matches!(&refused, Error::InvalidArgument(text) if text.contains("no CPU device 1")),
        "{refused}"
    );
    // On a machine with a GPU, the suite and the runtime's tests cover it.
    if let Some(reason) = elinvar_driver::Driver::absence(&elinvar_driver_cuda::driver()) {
        let refused = device(&Options { kind: DeviceKind::Cuda, ..options() }).err().unwrap();
        assert!(matches!(&refused, Error::Unsupported(text) if *text == reason), "{refused}");
    }
}

#[test]
fn a_device_that_is_dropped_takes_its_worker_with_it() {
    let bench = Bench::new();
    let (process, a) = (worker(&bench), bench.memory(&[1; 10]));
    let queue = bench.device.queue().unwrap();
    let ended = submit(&*queue, vec![bench.adds(&a, &a, 1)]);
    drop((bench, queue));
    ended.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(content(&a), [2; 10]);
    drop(a);
    until("the process is gone", || rustix::process::test_kill_process(process).is_err());
}

#[test]
fn workers_are_confined_unless_told_otherwise() {
    for confined in [true, false] {
        let bench = Bench::with(&Options { confined, ..options() });
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", worker(&bench).as_raw_nonzero())).unwrap();
        let value = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name)).unwrap();
            line.split('\t').nth(1).unwrap().to_owned()
        };
        let expected = if confined { ["2", "1"] } else { ["0", "0"] };
        assert_eq!([value("Seccomp:"), value("NoNewPrivs:")], expected);
        bench.expect_computes();
        // Also after a crash.
        let (memory, queue) = (bench.memory(&[0]), bench.device.queue().unwrap());
        assert!(is_lost(&failure(&submit(&*queue, vec![bench.stores(&memory, 8)])), "SIGSEGV"));
        bench.expect_computes();
    }
}

#[test]
fn private_memory_has_its_limit() {
    // Values that a kernel keeps per thread use the worker's private memory.
    let options = Options { private_memory: Some(256 << 20), ..options() };
    let bench = Bench::with(&options);
    let limits =
        std::fs::read_to_string(format!("/proc/{}/limits", worker(&bench).as_raw_nonzero())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max data size")).unwrap();
    assert!(line.contains(&(256 << 20).to_string()), "{line}");
    bench.expect_computes();
}

/// The child process of the next test.
#[test]
#[ignore = "run by another test"]
fn host_that_dies() {
    let bench = Bench::new();
    let (flag, queue) = (bench.memory(&[0, 0]), bench.device.queue().unwrap());
    let _ended = submit(&*queue, vec![bench.loops(&flag)]);
    println!("worker {}", worker(&bench).as_raw_nonzero());
    std::thread::sleep(Duration::from_millis(10));
    kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
}

#[test]
fn a_worker_ends_with_its_host() {
    let this = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new(this);
    let output = command.args(["--exact", "host_that_dies", "--ignored", "--nocapture"]).output().unwrap();
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let worker = output.lines().find_map(|line| line.split("worker ").nth(1)).expect(&output);
    let stat = format!("/proc/{}/stat", worker.trim());
    // A zombie process counts as ended.
    let gone = || std::fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z"));
    until("the worker is gone", gone);
}

/// The worker ends the work behind a fault immediately. The thread that handles the fault is delayed, so that the host learns of the
/// poisoned work first.
#[test]
fn the_first_failure_is_the_queues_though_what_is_behind_is_known_to_be_poisoned_before() {
    let bench = Bench::new();
    let checked = bench.checked_add();
    let (input, out, short) = (bench.memory(&[3; 1000]), bench.memory(&[0; 1000]), bench.memory(&[0; 10]));
    let add = |out: &Arc<dyn Memory>| {
        let k = Binding::bytes(&1_u32.to_le_bytes());
        dispatch(&checked, vec![whole(out), whole(&input), k], 1000)
    };
    let (queue, other) = (bench.device.queue().unwrap(), bench.device.queue().unwrap());
    let event = Arc::new(Timeline::new());
    let ((begun, has_begun), (held, hold)) = (channel(), channel::<()>());
    let wait = move |_| {
        begun.send(()).unwrap();
        let _released = hold.recv_timeout(LONG);
    };
    event.when(1, Box::new(wait));
    let signal = submit(&*queue, vec![Command::Signal { event, value: 1 }]);
    // The callback runs on the device's thread, because nothing else is running.
    has_begun.recv_timeout(LONG).unwrap();
    let (fault, behind) = (submit(&*queue, vec![add(&short)]), submit(&*queue, vec![add(&out)]));
    // Messages are ordered: when these submissions have ended, the worker has ended the other two.
    for _ in 0..100 {
        submit(&*other, vec![add(&out)]).recv_timeout(LONG).unwrap().unwrap();
    }
    held.send(()).unwrap();
    signal.recv_timeout(LONG).unwrap().unwrap();
    assert!(matches!(failure(&fault), Error::Fault(_)));
    assert!(matches!(failure(&behind), Error::Poisoned(cause) if matches!(*cause, Error::Fault(_))));
    let first = queue.acknowledge();
    assert!(matches!(first, Some(Error::Fault(_))), "{first:?}");
    submit(&*queue, vec![add(&out)]).recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(content(&out), [4; 1000]);
}
