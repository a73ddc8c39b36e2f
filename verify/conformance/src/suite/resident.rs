//! Resident kernels: items through a ring, results, back-pressure, sleep, stops and faults; message queues between kernels.

use std::time::Duration;

use elinvar::{Device, Error, Grid, Kernel, MessageQueue, PersistentKernel, Pod, Residency, Ticket};

use super::{CaseResult, expect_all, kernel, run};

cases! { "resident":
    items_are_squared,
    threadgroups_work_together,
    every_item_once,
    results_are_kept,
    structs_are_items,
    a_full_ring_refuses,
    sleep_and_wake,
    awaited,
    other_streams_go_on,
    visible_writes,
    threadgroup_state_is_kept,
    completed_without_a_result,
    stop_discards,
    returning_early,
    wrong_arguments,
    messages_in_order,
    many_producers_and_consumers,
    queues_of_ordinary_kernels,
}

/// Starts a kernel of this suite, all of which stay within their arguments.
fn start<I: Pod, R: Pod>(
    kernel: &Kernel,
    residency: Residency,
    args: impl elinvar::Args,
) -> elinvar::Result<PersistentKernel<I, R>> {
    // SAFETY: every kernel stays within its arguments; see its case.
    #[allow(unsafe_code)]
    unsafe {
        PersistentKernel::start(kernel, residency, args)
    }
}

fn resident(device: &Device, name: &str, body: &str) -> elinvar::Result<Kernel> {
    kernel(device, name, &format!("#include <elinvar/resident>\n#include <elinvar/queue>\n{body}"))
}

fn wait_all<R: Pod>(tickets: impl IntoIterator<Item = Ticket<R>>) -> elinvar::Result<Vec<R>> {
    tickets.into_iter().map(Ticket::wait).collect()
}

const SQUARE: &str = "kernel void square(constant elinvar::inbox<uint, uint>& inbox) {
    uint item;
    while (inbox.receive(item)) inbox.complete(item * item);
}";

fn items_are_squared(device: &Device) -> CaseResult {
    let kernel = resident(device, "square", SQUARE)?;
    for group in [1, 32, 100, 256] {
        let squares = start::<u32, u32>(&kernel, Residency::new(1, group).capacity(4), ())?;
        for i in 0..50_u32 {
            let ticket = squares.submit(&i)?;
            assert_eq!(ticket.number(), u64::from(i));
            assert_eq!(ticket.wait()?, i * i, "{group} threads");
        }
        assert_eq!(squares.pending(), 0);
        squares.finish()?;
    }
    Ok(())
}

/// The sum over a threadgroup's threads, whose memory and barriers are used for each item.
fn threadgroups_work_together(device: &Device) -> CaseResult {
    let kernel = resident(
        device,
        "total",
        "kernel void total(constant elinvar::inbox<uint, uint>& inbox, device const uint* x,
            uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
            threadgroup uint part[128];
            uint item;
            while (inbox.receive(item)) {
                part[i] = x[i] * item;
                threadgroup_barrier(mem_flags::mem_threadgroup);
                for (uint d = 64; d > 0; d /= 2) {
                    if (i < d) part[i] += part[i + d];
                    threadgroup_barrier(mem_flags::mem_threadgroup);
                }
                inbox.complete(part[0]);
            }
        }",
    )?;
    let x: Vec<u32> = (0..128).map(|i| i * i + 1).collect();
    let buffer = device.buffer_with_data(&x)?;
    let totals = start::<u32, u32>(&kernel, Residency::new(3, 128), buffer_arg(&buffer))?;
    let tickets: Vec<_> = (0..200).map(|i| totals.submit(&i)).collect::<elinvar::Result<_>>()?;
    let sum: u32 = x.iter().sum();
    expect_all(&wait_all(tickets)?, |i| sum * i as u32);
    totals.finish()?;
    Ok(())
}

fn buffer_arg<T: Pod>(buffer: &elinvar::Buffer<T>) -> Vec<elinvar::Arg> {
    vec![buffer.into()]
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, which only its waker wakes.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        std::thread::park();
    }
}

/// Tickets as futures, of two kernels, one of which takes nothing before a word changes.
fn awaited(device: &Device) -> CaseResult {
    let kernel = resident(device, "square", SQUARE)?;
    let squares = start::<u32, u32>(&kernel, Residency::new(2, 32).capacity(8), ())?;
    for i in 0..50_u32 {
        let (first, second) = (squares.submit(&i)?, squares.submit(&(i + 1))?);
        let sum = block_on(async { Ok::<u32, elinvar::Error>(second.await? + first.await?) })?;
        assert_eq!(sum, i * i + (i + 1) * (i + 1));
    }
    // One that is dropped while it is awaited.
    let dropped = squares.submit(&7)?;
    let mut polled = Box::pin(dropped);
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let _any = polled.as_mut().poll(&mut context);
    drop(polled);
    let last = squares.submit(&9)?;
    squares.finish()?;
    assert_eq!(block_on(last)?, 81, "awaited after the end");
    Ok(())
}

const COUNT: &str = "kernel void count(constant elinvar::inbox<uint, ulong>& inbox, device atomic_uint* seen,
        uint i [[thread_index_in_threadgroup]]) {
        uint item;
        while (inbox.receive(item)) {
            if (i == 0) atomic_fetch_add_explicit(&seen[item], 1u, memory_order_relaxed);
            inbox.complete(inbox.number() * 3 + item);
        }
    }";

/// Items of several host threads, taken by several threadgroups: none is lost or doubled.
fn every_item_once(device: &Device) -> CaseResult {
    const THREADS: usize = 4;
    const EACH: usize = 1000;
    let kernel = resident(device, "count", COUNT)?;
    let mut seen = device.buffer::<u32>(THREADS * EACH)?;
    let counts = start::<u32, u64>(&kernel, Residency::new(5, 32).capacity(16), (&mut seen,))?;
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let counts = &counts;
            scope.spawn(move || {
                for i in 0..EACH {
                    let item = (thread * EACH + i) as u32;
                    let ticket = counts.submit(&item).unwrap();
                    let number = ticket.number();
                    // Half of the tickets are dropped.
                    if i % 2 == 0 {
                        assert_eq!(ticket.wait().unwrap(), number * 3 + u64::from(item));
                    }
                }
            });
        }
    });
    counts.finish()?;
    expect_all(&seen.to_vec()?, |_| 1);
    Ok(())
}

/// Results outlive their slots.
fn results_are_kept(device: &Device) -> CaseResult {
    let kernel = resident(device, "square", SQUARE)?;
    let squares = start::<u32, u32>(&kernel, Residency::new(2, 32).capacity(2), ())?;
    let tickets: Vec<_> = (0..500).map(|i| squares.submit(&i)).collect::<elinvar::Result<_>>()?;
    squares.finish()?;
    let results = wait_all(tickets.into_iter().rev())?;
    expect_all(&results, |i| (499 - i as u32).pow(2));
    Ok(())
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Pod, bytemuck::Zeroable)]
#[repr(C)]
struct Query {
    at: [f32; 4],
    ids: [u32; 12],
}

/// Items and results of 64 bytes.
fn structs_are_items(device: &Device) -> CaseResult {
    let kernel = resident(
        device,
        "turn",
        "struct Query { float4 at; uint ids[12]; };
         kernel void turn(constant elinvar::inbox<Query, Query>& inbox) {
             Query q;
             while (inbox.receive(q)) {
                 Query r;
                 r.at = q.at.wzyx;
                 for (uint i = 0; i < 12; ++i) r.ids[i] = q.ids[11 - i] + uint(inbox.number());
                 inbox.complete(r);
             }
         }",
    )?;
    let turn = start::<Query, Query>(&kernel, Residency::new(1, 64), ())?;
    for n in 0..40_u32 {
        let query = Query { at: [0.5, 1.5, 2.5, n as f32], ids: std::array::from_fn(|i| 100 * n + i as u32) };
        let at = [n as f32, 2.5, 1.5, 0.5];
        let ids = std::array::from_fn(|i| 100 * n + 11 - i as u32 + n);
        assert_eq!(turn.submit(&query)?.wait()?, Query { at, ids });
    }
    turn.finish()?;
    Ok(())
}

/// A kernel that processes nothing before a word changes keeps the ring full.
fn a_full_ring_refuses(device: &Device) -> CaseResult {
    let kernel = resident(
        device,
        "hold",
        "kernel void hold(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& gate) {
             uint item, key;
             while (inbox.receive(item)) {
                 if (!inbox.pop(gate, key)) return;
                 inbox.complete(item + key);
             }
         }",
    )?;
    let open = resident(
        device,
        "open",
        "kernel void open(device elinvar::queue<uint>& gate, device uint* pushed, uint i [[thread_position_in_grid]]) {
             pushed[i] = gate.try_push(100u);
         }",
    )?;
    let gate = MessageQueue::<u32>::new(device, 8)?;
    let mut pushed = device.buffer::<u32>(4)?;
    // Before a kernel is resident, since the first launch may wait for the device.
    let other = MessageQueue::<u32>::new(device, 8)?;
    run(device, &open, Grid::threads(4).group(4), (&other, &mut pushed))?;
    expect_all(&pushed.to_vec()?, |_| 1);
    let hold = start::<u32, u32>(&kernel, Residency::new(1, 32).capacity(3), (&gate,))?;
    let tickets: Vec<_> = (0..3).map(|i| hold.submit(&i)).collect::<elinvar::Result<_>>()?;
    for _ in 0..100 {
        assert!(hold.try_submit(&9)?.is_none(), "the ring is full");
        assert!(tickets.iter().all(|ticket| matches!(ticket.poll(), Ok(None))));
    }
    assert_eq!(hold.pending(), 3);
    run(device, &open, Grid::threads(4).group(4), (&gate, &mut pushed))?;
    expect_all(&pushed.to_vec()?, |_| 1);
    expect_all(&wait_all(tickets)?, |i| 100 + i as u32);
    assert_eq!(hold.submit(&7)?.wait()?, 107);
    hold.finish()?;
    Ok(())
}

fn sleep_and_wake(device: &Device) -> CaseResult {
    let kernel = resident(device, "square", SQUARE)?;
    let residency = Residency::new(2, 32).sleep_after(Duration::from_micros(50));
    let squares = start::<u32, u32>(&kernel, residency, ())?;
    for i in 0..20 {
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!(squares.submit(&i)?.wait()?, i * i);
    }
    squares.finish()?;
    Ok(())
}

/// Launches of other streams end while more kernels are resident than the device may have workers.
fn other_streams_go_on(device: &Device) -> CaseResult {
    let kernel = resident(device, "square", SQUARE)?;
    let add = super::kernel(
        device,
        "add",
        "kernel void add(device uint* x, uint i [[thread_position_in_grid]]) { x[i] += i; }",
    )?;
    let mut x = device.buffer::<u32>(10_000)?;
    run(device, &add, Grid::threads(10_000).group(256), (&mut x,))?;
    let all: Vec<_> = (0..6)
        .map(|_| start::<u32, u32>(&kernel, Residency::new(1, 32), ()))
        .collect::<elinvar::Result<_>>()?;
    for round in 0..5 {
        run(device, &add, Grid::threads(10_000).group(256), (&mut x,))?;
        for (i, squares) in all.iter().enumerate() {
            let item = 10 * round + i as u32;
            assert_eq!(squares.submit(&item)?.wait()?, item * item);
        }
    }
    expect_all(&x.to_vec()?, |i| 6 * i as u32);
    all.into_iter().try_for_each(PersistentKernel::finish)?;
    Ok(())
}

/// What all threads have written before an item's completion is read by a launch that is submitted behind it.
fn visible_writes(device: &Device) -> CaseResult {
    let writer = resident(
        device,
        "write",
        "kernel void write(constant elinvar::inbox<uint, uint>& inbox, device uint* x,
            uint i [[thread_index_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
             uint item;
             while (inbox.receive(item)) {
                 for (uint k = i; k < 1024; k += n) x[k] = item + k;
                 inbox.complete(0u);
             }
         }",
    )?;
    let copy = super::kernel(
        device,
        "copy",
        "kernel void copy(device const uint* x, device uint* y, uint i [[thread_position_in_grid]]) { y[i] = x[i]; }",
    )?;
    let (mut x, mut y) = (device.buffer::<u32>(1024)?, device.buffer::<u32>(1024)?);
    let other = device.buffer::<u32>(1024)?;
    run(device, &copy, Grid::threads(1024).group(256), (&other, &mut y))?;
    let address = x.clone();
    let write = start::<u32, u32>(&writer, Residency::new(1, 128), (&mut x,))?;
    for item in [7, 70, 700] {
        write.submit(&item)?.wait()?;
        run(device, &copy, Grid::threads(1024).group(256), (&address, &mut y))?;
        expect_all(&y.to_vec()?, |i| item + i as u32);
    }
    write.finish()?;
    Ok(())
}

/// Values, private arrays and threadgroup memory of a threadgroup live from item to item.
fn threadgroup_state_is_kept(device: &Device) -> CaseResult {
    let kernel = resident(
        device,
        "history",
        "kernel void history(constant elinvar::inbox<uint, uint>& inbox, device uint* out,
            uint i [[thread_index_in_threadgroup]]) {
             threadgroup uint shared[64];
             uint private_values[4] = {i, 0, 0, 0};
             uint sum = i;
             shared[i] = 2 * i;
             uint item;
             while (inbox.receive(item)) {
                 sum += item;
                 private_values[item & 3] += item;
                 shared[i] += item;
                 inbox.complete(item);
             }
             out[i] = sum + 3 * shared[i] + 7 * private_values[1] + 11 * private_values[0];
         }",
    )?;
    let mut out = device.buffer::<u32>(64)?;
    let history = start::<u32, u32>(&kernel, Residency::new(1, 64), (&mut out,))?;
    let tickets: Vec<_> = (0..30).map(|i| history.submit(&i)).collect::<elinvar::Result<_>>()?;
    expect_all(&wait_all(tickets)?, |i| i as u32);
    history.finish()?;
    let [all, ones, zeros] = [|_: &u32| true, |i: &u32| i % 4 == 1, |i: &u32| i.is_multiple_of(4)]
        .map(|which: fn(&u32) -> bool| (0..30).filter(which).sum::<u32>());
    expect_all(&out.to_vec()?, |i| {
        let i = i as u32;
        i + all + 3 * (2 * i + all) + 7 * ones + 11 * (i + zeros)
    });
    Ok(())
}

fn completed_without_a_result(device: &Device) -> CaseResult {
    let kernel = resident(
        device,
        "odd",
        "kernel void odd(constant elinvar::inbox<uint, uint>& inbox, device uint* out) {
             uint item, n = 0;
             while (inbox.receive(item)) {
                 ++n;
                 if (item % 3 == 1) inbox.complete(item);
                 else if (item % 3 == 2) inbox.complete();
             }
             out[0] = n;
         }",
    )?;
    let mut out = device.buffer::<u32>(1)?;
    let odd = start::<u32, u32>(&kernel, Residency::new(1, 1), (&mut out,))?;
    let tickets: Vec<_> = (0..30).map(|i| odd.submit(&i)).collect::<elinvar::Result<_>>()?;
    for (i, ticket) in tickets.into_iter().enumerate() {
        let result = ticket.wait()?;
        assert!(i % 3 != 1 || result == i as u32, "item {i}: {result}");
    }
    odd.finish()?;
    assert_eq!(out.to_vec()?, [30]);
    Ok(())
}

/// Each item is either executed or cancelled, and the kernel's count says which.
fn stop_discards(device: &Device) -> CaseResult {
    let kernel = resident(device, "count", COUNT)?;
    for round in 0..5 {
        let mut seen = device.buffer::<u32>(256)?;
        let counts = start::<u32, u64>(&kernel, Residency::new(2, 32).capacity(256), (&mut seen,))?;
        let tickets: Vec<_> = (0..256).map(|i| counts.submit(&i)).collect::<elinvar::Result<_>>()?;
        if round % 2 == 1 {
            drop(counts);
        } else {
            counts.stop()?;
        }
        let seen = seen.to_vec()?;
        for (i, ticket) in tickets.into_iter().enumerate() {
            match ticket.wait() {
                Ok(result) => assert_eq!((result, seen[i]), (4 * i as u64, 1), "item {i}"),
                Err(Error::Cancelled) => assert_eq!(seen[i], 0, "item {i}"),
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// A kernel that returns by itself ends the items that it has not completed.
fn returning_early(device: &Device) -> CaseResult {
    let kernel = resident(
        device,
        "three",
        "kernel void three(constant elinvar::inbox<uint, uint>& inbox) {
             uint item;
             for (uint i = 0; i < 3 && inbox.receive(item); ++i) inbox.complete(item + 1);
         }",
    )?;
    let three = start::<u32, u32>(&kernel, Residency::new(1, 32), ())?;
    for i in 0..3 {
        assert_eq!(three.submit(&i)?.wait()?, i + 1);
    }
    let late = three.submit(&3).and_then(Ticket::wait);
    let expected = "the kernel has returned without completing item 3";
    assert!(
        matches!(&late, Err(Error::Fault(fault)) if fault.kernel == "three" && fault.message == expected),
        "{late:?}"
    );
    three.finish()?;
    Ok(())
}

fn wrong_arguments(device: &Device) -> CaseResult {
    let square = resident(device, "square", SQUARE)?;
    let refused = |result: elinvar::Result<()>, expected: &str| match result {
        Err(Error::InvalidArgument(why)) => {
            assert!(why.contains(expected), "{why}");
            Ok(())
        }
        Err(error @ Error::Unsupported(_)) => Err(error),
        other => panic!("{other:?} instead of `{expected}`"),
    };
    let none = super::kernel(device, "none", "kernel void none(device uint* x) { x[0] = 1; }")?;
    let mut x = device.buffer::<u32>(1)?;
    let one = || Residency::new(1, 32);
    refused(start::<u32, u32>(&none, one(), (&mut x,)).map(drop), "kernel `none`: it has no inbox")?;
    refused(
        start::<u64, u32>(&square, one(), ()).map(drop),
        "items of 4 bytes and results of 4, given types of 8 and 4 bytes",
    )?;
    refused(start::<u32, u32>(&square, one(), (1_u32,)).map(drop), "takes 1 argument")?;
    refused(
        start::<u32, u32>(&square, one().capacity(0), ()).map(drop),
        "a ring for 0 items: 1 to 1048576 allowed",
    )?;
    let most = square.resident_groups(32, 0)?;
    refused(
        start::<u32, u32>(&square, Residency::new(0, 32), ()).map(drop),
        &format!("0 resident threadgroups of 32×1×1 threads: 1 to {most} allowed"),
    )?;
    if let Ok(more) = u32::try_from(most + 1) {
        refused(
            start::<u32, u32>(&square, Residency::new(more, 32), ()).map(drop),
            &format!("1 to {most} allowed"),
        )?;
    }
    let launched = run(device, &square, Grid::threads(32), (elinvar::Arg::bytes([0; 32]),));
    refused(launched, "argument 0 `inbox`")?;
    let wrong = MessageQueue::<u32>::new(device, 3).map(drop);
    refused(wrong, "a queue for 3 messages: not a power of two")?;
    let push =
        resident(device, "push", "kernel void push(device elinvar::queue<ulong>& q) { q.try_push(1ul); }")?;
    let queue = MessageQueue::<u32>::new(device, 4)?;
    refused(run(device, &push, Grid::threads(1), (&queue,)), "messages of 8 bytes")?;
    refused(run(device, &push, Grid::threads(1), (&mut x,)), "expected a `MessageQueue`")?;
    Ok(())
}

/// A pipeline of three kernels over two queues that hold four messages.
fn messages_in_order(device: &Device) -> CaseResult {
    let first = resident(
        device,
        "source",
        "kernel void source(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& out) {
             uint item;
             while (inbox.receive(item)) {
                 for (uint i = 0; i < 10; ++i) if (!inbox.push(out, 10 * item + i)) return;
                 inbox.complete(item);
             }
         }",
    )?;
    let middle = resident(
        device,
        "middle",
        "kernel void middle(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& in,
             device elinvar::queue<uint2>& out) {
             uint x;
             while (inbox.pop(in, x)) if (!inbox.push(out, uint2(x, x * x))) return;
         }",
    )?;
    let last = resident(
        device,
        "sink",
        "kernel void sink(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint2>& in, device uint2* out,
             uint i [[thread_index_in_threadgroup]]) {
             uint2 x;
             for (uint n = 0; inbox.pop(in, x); ++n) if (i == n % 32) out[n] = x;
         }",
    )?;
    let one = || Residency::new(1, 32);
    let (a, b) = (MessageQueue::<u32>::new(device, 4)?, MessageQueue::<[u32; 2]>::new(device, 4)?);
    let mut out = device.buffer::<[u32; 2]>(1000)?;
    let first = start::<u32, u32>(&first, one(), (&a,))?;
    let middle = start::<u32, u32>(&middle, one(), (&a, &b))?;
    let last = start::<u32, u32>(&last, one(), (&b, &mut out))?;
    for i in 0..100 {
        first.submit(&i)?;
    }
    first.finish()?;
    middle.finish()?;
    last.finish()?;
    expect_all(&out.to_vec()?, |i| [i as u32, (i * i) as u32]);
    Ok(())
}

/// Two kernels with several threadgroups each: every message arrives once.
fn many_producers_and_consumers(device: &Device) -> CaseResult {
    let producer = resident(
        device,
        "produce",
        "kernel void produce(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& out) {
             uint item;
             while (inbox.receive(item)) {
                 for (uint i = 0; i < 20; ++i) if (!inbox.push(out, 20 * item + i)) return;
                 inbox.complete(item);
             }
         }",
    )?;
    let consumer = resident(
        device,
        "consume",
        "kernel void consume(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& in,
             device atomic_uint* seen, uint i [[thread_index_in_threadgroup]]) {
             uint x;
             while (inbox.pop(in, x)) if (i == 5) atomic_fetch_add_explicit(&seen[x], 1u, memory_order_relaxed);
         }",
    )?;
    let queue = MessageQueue::<u32>::new(device, 8)?;
    let mut seen = device.buffer::<u32>(4000)?;
    let producer = start::<u32, u32>(&producer, Residency::new(3, 32), (&queue,))?;
    let consumer = start::<u32, u32>(&consumer, Residency::new(4, 32), (&queue, &mut seen))?;
    for i in 0..200 {
        producer.submit(&i)?;
    }
    producer.finish()?;
    consumer.finish()?;
    expect_all(&seen.to_vec()?, |_| 1);
    Ok(())
}

/// Threads of a launch push until the queue is full; another launch takes all messages.
fn queues_of_ordinary_kernels(device: &Device) -> CaseResult {
    let push = resident(
        device,
        "push",
        "kernel void push(device elinvar::queue<uint>& q, device uint* pushed, uint i [[thread_position_in_grid]]) {
             pushed[i] = q.try_push(i + 1);
         }",
    )?;
    let pop = resident(
        device,
        "pop",
        "kernel void pop(device elinvar::queue<uint>& q, device uint* popped, uint i [[thread_position_in_grid]]) {
             uint x;
             popped[i] = q.try_pop(x) ? x : 0;
         }",
    )?;
    let queue = MessageQueue::<u32>::new(device, 256)?;
    assert_eq!(queue.capacity(), 256);
    let (mut pushed, mut popped) = (device.buffer::<u32>(1000)?, device.buffer::<u32>(1000)?);
    for round in 0..3 {
        run(device, &push, Grid::threads(1000).group(64), (&queue, &mut pushed))?;
        run(device, &pop, Grid::threads(1000).group(64), (&queue, &mut popped))?;
        let pushed: Vec<u32> = pushed
            .to_vec()?
            .iter()
            .enumerate()
            .filter(|(_, done)| **done == 1)
            .map(|(i, _)| i as u32 + 1)
            .collect();
        let mut popped: Vec<u32> = popped.to_vec()?.into_iter().filter(|x| *x != 0).collect();
        popped.sort_unstable();
        assert_eq!(pushed.len(), 256, "round {round}");
        assert_eq!(pushed, popped, "round {round}");
    }
    Ok(())
}
