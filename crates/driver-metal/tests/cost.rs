//! Host cost of launches by phase: a table of medians, with the same Metal calls made without the driver (`bare`) and the ratio of the two.
//!
//! The kernel does almost nothing. With the stand-ins for Apple's libraries, the driver's cost is compared with theirs, and no GPU is
//! involved. The bare calls have no checks, keep no references and report no errors.
#![cfg(any(target_vendor = "apple", elinvar_apple))]

mod support;

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Instant;

use block2::RcBlock;
use elinvar_driver::{Binding, Command, Device, Done, Memory, Pipeline, Queue, Storage};
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_foundation::NSString;
use objc2_metal::{
    MTLBuffer, MTLCommandBuffer, MTLCommandEncoder as _, MTLCommandQueue, MTLComputeCommandEncoder as _,
    MTLComputePipelineState, MTLCreateSystemDefaultDevice, MTLDevice as _, MTLDispatchType, MTLLibrary as _,
    MTLResourceOptions, MTLSize,
};
use support::{devices, dispatch, memory, pipeline, whole, words};

const ROUNDS: usize = 300;

/// Duration of each phase of a submission, in microseconds.
#[derive(Clone, Copy, Default)]
struct Phases {
    /// Creating the commands.
    record: f64,
    /// Submitting them to an idle queue: encoding and commit.
    submit: f64,
    /// From the return of `submit` until the device has ended; negative if it ended earlier.
    run: f64,
    /// From the end on the device until the callback is called.
    complete: f64,
    /// All phases.
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
    queue.submit(commands, Done::new(done)).unwrap();
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
        let bindings = vec![Binding::Memory(whole(x)), Binding::bytes(&1_u32.to_ne_bytes())];
        dispatch(add, bindings, 32, 32)
    };
    (0..count).map(|_| launch()).collect()
}

/// The same launches by direct calls of Metal.
struct Bare {
    queue: Retained<ProtocolObject<dyn MTLCommandQueue>>,
    state: Retained<ProtocolObject<dyn MTLComputePipelineState>>,
    x: Retained<ProtocolObject<dyn MTLBuffer>>,
}

#[allow(unsafe_code)] // hands addresses and blocks to Metal
impl Bare {
    fn new() -> Self {
        let device = MTLCreateSystemDefaultDevice().unwrap();
        let text = NSString::from_str(&format!("#include <metal_stdlib>\nusing namespace metal;\n{ADD}"));
        let library = device.newLibraryWithSource_options_error(&text, None).unwrap();
        let function = library.newFunctionWithName(&NSString::from_str("add_k")).unwrap();
        Self {
            queue: device.newCommandQueue().unwrap(),
            state: device.newComputePipelineStateWithFunction_error(&function).unwrap(),
            x: device.newBufferWithLength_options(128, MTLResourceOptions::StorageModeShared).unwrap(),
        }
    }

    /// Duration of a command buffer with `count` launches until its handler is called, in microseconds.
    fn run(&self, count: usize) -> f64 {
        let (sender, ended) = channel();
        let begin = Instant::now();
        autoreleasepool(|_| {
            let buffer = self.queue.commandBufferWithUnretainedReferences().unwrap();
            if count > 0 {
                self.encode(&buffer, count);
            }
            let handler = Self::handler(sender);
            // SAFETY: the block is valid, and Metal retains it; the handler runs once.
            unsafe { buffer.addCompletedHandler(RcBlock::as_ptr(&handler)) };
            buffer.commit();
        });
        let called: Instant = ended.recv().unwrap();
        (called - begin).as_secs_f64() * 1e6
    }

    fn handler(sender: Sender<Instant>) -> RcBlock<dyn Fn(NonNull<ProtocolObject<dyn MTLCommandBuffer>>)> {
        RcBlock::new(move |_| {
            let _sent = sender.send(Instant::now());
        })
    }

    fn encode(&self, buffer: &ProtocolObject<dyn MTLCommandBuffer>, count: usize) {
        let encoder = buffer.computeCommandEncoderWithDispatchType(MTLDispatchType::Serial).unwrap();
        let one = 1_u32;
        for _ in 0..count {
            encoder.setComputePipelineState(&self.state);
            let size = |width| MTLSize { width, height: 1, depth: 1 };
            // SAFETY: the kernel adds to 32 numbers, which is the size of the buffer; the buffer lives until the handler is called.
            unsafe {
                encoder.setBuffer_offset_atIndex(Some(&self.x), 0, 0);
                encoder.setBytes_length_atIndex(NonNull::from(&one).cast(), 4, 1);
            }
            encoder.dispatchThreads_threadsPerThreadgroup(size(32), size(32));
        }
        encoder.endEncoding();
    }
}

const ADD: &str = "kernel void add_k(device uint* x [[buffer(0)]], constant uint& k [[buffer(1)]],
    uint i [[thread_position_in_grid]]) { x[i] += k; }";

#[test]
#[ignore = "prints figures"]
fn host_cost_of_launches() {
    let device = devices().swap_remove(0);
    let (add, x) = (pipeline(&*device, ADD, "add_k"), memory(&*device, 128, Storage::Shared));
    let (queue, bare) = (device.queue().unwrap(), Bare::new());
    println!("{}, medians of {ROUNDS} in µs", device.caps().name);
    println!("launches    record    submit       run  complete     whole      bare  ratio");
    let mut total = 0;
    for count in [1, 10, 100] {
        let mut bares = Vec::new();
        let mut all = Vec::new();
        for round in 0..ROUNDS + 20 {
            let ours = one(&*device, &*queue, &|| launches(&add, &x, count));
            let theirs = bare.run(count);
            if round >= 20 {
                all.push(ours);
                bares.push(theirs);
            }
        }
        total += count * (ROUNDS + 20);
        bares.sort_by(f64::total_cmp);
        let bare = bares[ROUNDS / 2];
        let [record, submit, run, complete, whole] = [
            median(|p| p.record, &all),
            median(|p| p.submit, &all),
            median(|p| p.run, &all),
            median(|p| p.complete, &all),
            median(|p| p.whole, &all),
        ];
        let ratio = whole / bare;
        println!(
            "{count:>8} {record:>9.1} {submit:>9.1} {run:>9.1} {complete:>9.1} {whole:>9.1} {bare:>9.1} {ratio:>6.2}"
        );
    }
    assert!(words(&x).iter().all(|word| *word as usize == total), "{:?}", &words(&x)[..2]);
}

const MAP: &str = "kernel void map_k(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]],
    uint i [[thread_position_in_grid]]) { to[i] = from[i] + 1u; }";

/// Time per submission in a chain in which each submission reads what the previous one writes: committed ahead; not committed ahead,
/// because each submission overwrites what the previous one reads; and waiting for each submission.
#[test]
#[ignore = "prints figures"]
fn host_cost_of_a_chain() {
    const LENGTH: usize = 1000;
    let device = devices().swap_remove(0);
    let map = pipeline(&*device, MAP, "map_k");
    let buffers: Vec<_> = (0..10).map(|_| memory(&*device, 128, Storage::Shared)).collect();
    let queue = device.queue().unwrap();
    let launch = |at: usize, among: usize| {
        let [from, to] = [at, at + 1].map(|at| Binding::Memory(whole(&buffers[at % among])));
        dispatch(&map, vec![from, to], 32, 32)
    };
    let micros = |among: usize, is_waited_for: bool| {
        let (sender, ended) = channel();
        let begin = Instant::now();
        for at in 0..LENGTH {
            let sender = sender.clone();
            let done = Done::new(move |result: elinvar_driver::Result<_>| drop(sender.send(result.is_ok())));
            queue.submit(vec![launch(at, among)].into(), done).unwrap();
            if is_waited_for {
                assert!(ended.recv().unwrap());
            }
        }
        if !is_waited_for {
            assert!(ended.iter().take(LENGTH).all(|is_well| is_well));
        }
        begin.elapsed().as_secs_f64() * 1e6 / LENGTH as f64
    };
    println!("µs for a submission: committed ahead, one at a time, waited for");
    for _ in 0..5 {
        println!("{:>8.1} {:>8.1} {:>8.1}", micros(10, false), micros(2, false), micros(10, true));
    }
}
