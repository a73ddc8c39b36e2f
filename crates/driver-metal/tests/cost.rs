//! What launches cost the host, by phase: a table of medians, and the ratio of each submission to an empty one.
//!
//! The kernel does next to nothing. Against libraries that stand in for Apple's it is their cost that is seen beside the driver's,
//! and none of a GPU's.
#![cfg(any(target_vendor = "apple", elinvar_apple))]

mod support;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Instant;

use elinvar_driver::{Binding, Command, Device, Memory, Pipeline, Queue, Storage};
use support::{devices, dispatch, memory, pipeline, whole, words};

const ROUNDS: usize = 300;

/// Microseconds of the phases of one submission.
#[derive(Clone, Copy, Default)]
struct Phases {
    /// The commands are made.
    record: f64,
    /// They are given to the queue, which is idle: encoded and committed.
    submit: f64,
    /// From then on until the device has ended; negative if that was before.
    run: f64,
    /// From then on until the callback is called.
    complete: f64,
    /// All of it.
    whole: f64,
}

fn median(of: impl Fn(&Phases) -> f64, all: &[Phases]) -> f64 {
    let mut values: Vec<f64> = all.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn one(device: &dyn Device, queue: &dyn Queue, record: &dyn Fn() -> Arc<[Command]>) -> Phases {
    let (sender, ended) = channel();
    let (begin, started_ns) = (Instant::now(), device.clock_ns());
    let commands = record();
    let recorded = begin.elapsed();
    let done = move |result: elinvar_driver::Result<elinvar_driver::Timing>| {
        let _sent = sender.send((result, Instant::now()));
    };
    queue.submit(commands, Box::new(done)).unwrap();
    let submitted = begin.elapsed();
    let (result, called) = ended.recv().unwrap();
    let micros = |duration: std::time::Duration| duration.as_secs_f64() * 1e6;
    let device_end = result.unwrap().end_ns as f64 / 1e3 - started_ns as f64 / 1e3;
    let called = micros(called - begin);
    Phases {
        record: micros(recorded),
        submit: micros(submitted - recorded),
        run: device_end - micros(submitted),
        complete: called - device_end,
        whole: called,
    }
}

fn launches(add: &Arc<dyn Pipeline>, x: &Arc<dyn Memory>, count: usize) -> Arc<[Command]> {
    let launch = || {
        let bindings = vec![Binding::Memory(whole(x)), Binding::Bytes(1_u32.to_ne_bytes().to_vec())];
        dispatch(add, bindings, 32, 32)
    };
    (0..count).map(|_| launch()).collect()
}

#[test]
#[ignore = "prints figures"]
fn host_cost_of_launches() {
    let device = devices().swap_remove(0);
    let body = "kernel void add_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
        uint i [[thread_position_in_grid]]) { x[i] += k; }";
    let (add, x) = (pipeline(&*device, body, "add_k"), memory(&*device, 128, Storage::Shared));
    let queue = device.queue().unwrap();
    println!("{}, medians of {ROUNDS} in µs", device.caps().name);
    println!("launches    record    submit       run  complete     whole  ratio");
    let (mut empty, mut total) = (0.0, 0);
    for count in [0, 1, 10, 100] {
        for _ in 0..20 {
            one(&*device, &*queue, &|| launches(&add, &x, count));
        }
        let all: Vec<Phases> =
            (0..ROUNDS).map(|_| one(&*device, &*queue, &|| launches(&add, &x, count))).collect();
        total += count * (ROUNDS + 20);
        let [record, submit, run, complete, whole] = [
            median(|p| p.record, &all),
            median(|p| p.submit, &all),
            median(|p| p.run, &all),
            median(|p| p.complete, &all),
            median(|p| p.whole, &all),
        ];
        if count == 0 {
            empty = whole;
        }
        let ratio = whole / empty;
        println!(
            "{count:>8} {record:>9.1} {submit:>9.1} {run:>9.1} {complete:>9.1} {whole:>9.1} {ratio:>6.1}"
        );
    }
    assert!(words(&x).iter().all(|word| *word as usize == total), "{:?}", &words(&x)[..2]);
}
