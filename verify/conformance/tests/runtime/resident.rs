//! Resident kernels on the CPU: faults and hangs, fewer workers than kernels, and a million items.

use std::time::{Duration, Instant};

use elinvar::{Device, Error, Kernel, MessageQueue, PersistentKernel, Residency, Source, Ticket};
use elinvar_driver::Driver as _;
use elinvar_driver_cpu::CpuDriver;

fn cpu(workers: usize) -> Device {
    Device::new(CpuDriver::with_threads(workers).devices().unwrap().remove(0))
}

fn compiled(device: &Device, name: &str, body: &str) -> Kernel {
    let text = format!(
        "#include <metal_stdlib>\n#include <elinvar/resident>\n#include <elinvar/queue>\nusing namespace metal;\n{body}"
    );
    device.compile(Source::msl(text)).unwrap().kernel(name).unwrap()
}

fn start(kernel: &Kernel, residency: Residency, args: impl elinvar::Args) -> PersistentKernel<u32, u32> {
    // SAFETY: the kernels of this file stay within their arguments.
    #[allow(unsafe_code)]
    unsafe { PersistentKernel::start(kernel, residency, args) }.unwrap()
}

const DOUBLE: &str = "kernel void twice(constant elinvar::inbox<uint, uint>& inbox) {
    uint item;
    while (inbox.receive(item)) inbox.complete(2 * item);
}";

/// Items before the fault are complete; the fault names the kernel, the line and the item; another kernel goes on.
#[test]
fn a_fault_names_the_item() {
    let device = cpu(2);
    let faulty = compiled(
        &device,
        "faulty",
        "kernel void faulty(constant elinvar::inbox<uint, uint>& inbox, device const uint* side, uint i [[thread_index_in_threadgroup]]) {
            uint item;
            while (inbox.receive(item)) {
                if (item == 13) {
                    if (side[i] != 0) threadgroup_barrier(mem_flags::mem_device);
                    else threadgroup_barrier(mem_flags::mem_threadgroup);
                }
                inbox.complete(item + 1);
            }
        }",
    );
    let side: Vec<u32> = (0..64).map(|i| i / 32).collect();
    let side = device.buffer_with_data(&side).unwrap();
    let other = start(&compiled(&device, "twice", DOUBLE), Residency::new(1, 32), ());
    for _ in 0..3 {
        let kernel = start(&faulty, Residency::new(1, 64), (&side,));
        let tickets: Vec<_> = (0..20).map(|i| kernel.submit(&i)).filter_map(Result::ok).collect();
        for (i, ticket) in tickets.into_iter().enumerate() {
            let result = ticket.wait();
            if i < 13 {
                assert_eq!(result.unwrap(), i as u32 + 1);
                continue;
            }
            let Err(Error::Fault(fault)) = result else { panic!("item {i}: {result:?}") };
            assert_eq!(fault.kernel, "faulty");
            assert!(fault.location.is_some(), "{fault:?}");
            assert!(fault.message.ends_with("while it processed item 13"), "{}", fault.message);
        }
        assert!(matches!(kernel.submit(&0).map(drop), Err(Error::Fault(_))));
        assert!(matches!(kernel.finish(), Err(Error::Fault(_))));
        assert_eq!(other.submit(&21).unwrap().wait().unwrap(), 42);
    }
    other.finish().unwrap();
}

/// A kernel that does not return from an item is ended at the deadline, with an error that names it and the item.
#[test]
fn a_hang_ends_at_the_deadline() {
    let device = cpu(1);
    let endless = compiled(
        &device,
        "endless",
        "kernel void endless(constant elinvar::inbox<uint, uint>& inbox, device atomic_uint* never) {
            uint item;
            while (inbox.receive(item)) {
                if (item == 2) while (atomic_load_explicit(never, memory_order_relaxed) == 0) {}
                inbox.complete(item);
            }
        }",
    );
    let mut never = device.buffer::<u32>(1).unwrap();
    let deadline = Duration::from_millis(200);
    let kernel = start(&endless, Residency::new(1, 32).deadline(deadline), (&mut never,));
    let tickets: Vec<_> = (0..4).map(|i| kernel.submit(&i).unwrap()).collect();
    let began = Instant::now();
    let results: Vec<_> = tickets.into_iter().map(Ticket::wait).collect();
    assert!(began.elapsed() < Duration::from_secs(60));
    assert!(matches!(results[..2], [Ok(0), Ok(1)]), "{results:?}");
    for result in &results[2..] {
        let Err(Error::Timeout(why)) = result else { panic!("{result:?}") };
        assert_eq!(why, "kernel `endless`: item 2 is not complete after 200ms, while it processed item 2");
    }
    assert!(matches!(kernel.finish(), Err(Error::Timeout(_))));
    // The buffer is free again, so the launch has ended.
    never.write(&[1]).unwrap();
    let kernel = start(&endless, Residency::new(1, 32), (&mut never,));
    assert_eq!(kernel.submit(&2).unwrap().wait().unwrap(), 2);
    kernel.finish().unwrap();
}

/// Kernels pass messages on a device with one worker, which `use_units` does not give them, and launches go on.
#[test]
fn more_kernels_than_workers_pass_messages() {
    let device = cpu(1);
    let relay = compiled(
        &device,
        "relay",
        "kernel void relay(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& in,
            device elinvar::queue<uint>& out) {
            uint x;
            while (inbox.pop(in, x)) if (!inbox.push(out, x + 1)) return;
        }",
    );
    let ends = compiled(
        &device,
        "ends",
        "kernel void ends(constant elinvar::inbox<uint, uint>& inbox, device elinvar::queue<uint>& out,
            device elinvar::queue<uint>& in) {
            uint item, x;
            while (inbox.receive(item)) {
                if (!inbox.push(out, item) || !inbox.pop(in, x)) return;
                inbox.complete(x);
            }
        }",
    );
    let queues: Vec<_> = (0..6).map(|_| MessageQueue::<u32>::new(&device, 2).unwrap()).collect();
    let one = || Residency::new(1, 32).sleep_after(Duration::ZERO);
    let relays: Vec<_> = queues.windows(2).map(|pair| start(&relay, one(), (&pair[0], &pair[1]))).collect();
    let ends = start(&ends, one(), (&queues[0], &queues[5]));
    for i in 0..200 {
        assert_eq!(ends.submit(&(10 * i)).unwrap().wait().unwrap(), 10 * i + 5);
    }
    ends.finish().unwrap();
    relays.into_iter().for_each(|relay| relay.finish().unwrap());
}

/// A million items through rings of kernels that are stopped in between: each is executed once or cancelled. Takes some seconds.
#[test]
#[ignore = "takes long without optimization"]
fn a_million_items() {
    const ITEMS: u32 = 1_000_000;
    let device = cpu(2);
    let count = compiled(
        &device,
        "count",
        "kernel void count(constant elinvar::inbox<uint, uint>& inbox, device atomic_uint* seen,
            uint i [[thread_index_in_threadgroup]]) {
            uint item;
            while (inbox.receive(item)) {
                if (i == 0) atomic_fetch_add_explicit(&seen[item], 1u, memory_order_relaxed);
                inbox.complete(~item);
            }
        }",
    );
    let mut seen = device.buffer::<u32>(ITEMS as usize).unwrap();
    let (mut next, mut cancelled, mut stops) = (0, Vec::new(), 0);
    while next < ITEMS {
        let kernel = start(&count, Residency::new(2, 32).capacity(4096), (&mut seen,));
        let last = ITEMS.min(next + 10_007);
        let tickets: Vec<_> = (next..last).map(|item| kernel.submit(&item).unwrap()).collect();
        if stops % 2 == 0 { kernel.stop() } else { kernel.finish() }.unwrap();
        stops += 1;
        for (ticket, item) in tickets.into_iter().zip(next..) {
            match ticket.wait() {
                Ok(result) => assert_eq!(result, !item),
                Err(Error::Cancelled) => cancelled.push(item as usize),
                Err(error) => panic!("item {item}: {error}"),
            }
        }
        next = last;
    }
    let mut expected = vec![1; ITEMS as usize];
    cancelled.iter().for_each(|item| expected[*item] = 0);
    assert!(seen.to_vec().unwrap() == expected);
    println!("{stops} stops, {} items cancelled", cancelled.len());
}
