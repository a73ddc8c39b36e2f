//! An isolated device with the worker program of this build, and submissions of a few kernels.
#![allow(dead_code, unsafe_code)] // not every test uses all; the contract's memory is read and written through unsafe methods

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use elinvar_driver::{
    Binding, Command, Device, Dim3, Dispatch, Error, Grid, Init, Memory, MemorySlice, Pipeline,
    PipelineOptions, Queue, Result, Source, Storage, Submission, Timing,
};
use elinvar_driver_isolated::{Isolated, Options, device};

/// Timeout, longer than any step takes unless something is broken.
pub const LONG: Duration = Duration::from_secs(120);

const KERNELS: &str = "
#include <metal_stdlib>
using namespace metal;
kernel void add(device uint* out, device const uint* in, constant uint& k, uint i [[thread_position_in_grid]]) {
    out[i] = in[i] + k;
}
kernel void wild(device uint* out, constant ulong& at, uint i [[thread_position_in_grid]]) {
    *reinterpret_cast<device uint*>(at) = i;
    out[i] = 1;
}
kernel void forever(device atomic_uint* out) {
    atomic_store_explicit(out + 1, 1u, memory_order_relaxed);
    while (atomic_load_explicit(out, memory_order_relaxed) == 0) {}
}";

/// An isolated device and kernels for it.
pub struct Bench {
    pub device: Arc<Isolated>,
    pub add: Arc<dyn Pipeline>,
    pub wild: Arc<dyn Pipeline>,
    pub forever: Arc<dyn Pipeline>,
}

/// Options with the worker program of this build and short timeouts.
pub fn options() -> Options {
    Options {
        threads: Some(2),
        program: Some(env!("CARGO_BIN_EXE_elinvar-worker").into()),
        grace: Duration::from_millis(200),
        ..Options::default()
    }
}

impl Bench {
    pub fn new() -> Self {
        Self::with(&options())
    }

    pub fn with(options: &Options) -> Self {
        let device = device(options).unwrap();
        let library = device.compile(&Source::msl(KERNELS)).unwrap();
        let pipeline = |name| {
            let pipeline = library.pipeline(name, &PipelineOptions::default()).unwrap();
            pipeline.prepare(GROUP).unwrap();
            pipeline
        };
        let [add, wild, forever] = ["add", "wild", "forever"].map(pipeline);
        Self { device, add, wild, forever }
    }

    /// `add` with bounds checks.
    pub fn checked_add(&self) -> Arc<dyn Pipeline> {
        let options = PipelineOptions { checked: true, ..PipelineOptions::default() };
        let library = self.device.compile(&Source::msl(KERNELS)).unwrap();
        let pipeline = library.pipeline("add", &options).unwrap();
        pipeline.prepare(GROUP).unwrap();
        pipeline
    }

    /// Shared memory with these numbers.
    pub fn memory(&self, content: &[u32]) -> Arc<dyn Memory> {
        let bytes: Vec<u8> = content.iter().flat_map(|number| number.to_le_bytes()).collect();
        let memory = self.device.allocate(bytes.len() as u64, Storage::Shared, Init::Zeroed).unwrap();
        // SAFETY: no other code accesses this memory.
        unsafe { memory.write(0, &bytes) }.unwrap();
        memory
    }

    /// out = in + k.
    pub fn adds(&self, out: &Arc<dyn Memory>, input: &Arc<dyn Memory>, k: u32) -> Command {
        let bindings = vec![whole(out), whole(input), Binding::bytes(&k.to_le_bytes())];
        dispatch(&self.add, bindings, (out.len() / 4) as u32)
    }

    /// A store to an address.
    pub fn stores(&self, out: &Arc<dyn Memory>, at: u64) -> Command {
        dispatch(&self.wild, vec![whole(out), Binding::bytes(&at.to_le_bytes())], 1)
    }

    /// Loops until the first number is not 0. Sets the second to 1 when it runs.
    pub fn loops(&self, flag: &Arc<dyn Memory>) -> Command {
        dispatch(&self.forever, vec![whole(flag)], 1)
    }

    /// Checks that the worker has computed all elements of an addition.
    pub fn expect_computes(&self) {
        let (input, out) = (self.memory(&[3; 1000]), self.memory(&[0; 1000]));
        let queue = self.device.queue().unwrap();
        submit(&*queue, vec![self.adds(&out, &input, 4)]).recv_timeout(LONG).unwrap().unwrap();
        assert_eq!(content(&out), [7; 1000]);
    }
}

pub const GROUP: Dim3 = Dim3::new(64, 1, 1);

pub fn whole(memory: &Arc<dyn Memory>) -> Binding {
    Binding::Memory(slice(memory))
}

pub fn slice(memory: &Arc<dyn Memory>) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset: 0, len: memory.len() }
}

pub fn dispatch(pipeline: &Arc<dyn Pipeline>, bindings: Vec<Binding>, threads: u32) -> Command {
    let (grid, uses, label) = (Grid::Threads(threads.into()), Vec::new(), None);
    Command::Dispatch(Dispatch { pipeline: pipeline.clone(), bindings, uses, grid, group: GROUP, label })
}

pub fn content(memory: &Arc<dyn Memory>) -> Vec<u32> {
    let mut bytes = vec![0; memory.len() as usize];
    // SAFETY: within the memory; the tests have waited for writes to it.
    unsafe { memory.read(0, &mut bytes) }.unwrap();
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes(four.try_into().unwrap())).collect()
}

pub fn submit(queue: &dyn Queue, commands: Vec<Command>) -> Receiver<Result<Timing>> {
    submit_known(queue, commands).1
}

pub fn submit_known(queue: &dyn Queue, commands: Vec<Command>) -> (Submission, Receiver<Result<Timing>>) {
    let (sender, ended) = channel();
    let done = elinvar_driver::Done::new(move |result| drop(sender.send(result)));
    (queue.submit(commands.into(), done).unwrap(), ended)
}

/// Waits for a submission that fails; returns its error.
pub fn failure(ended: &Receiver<Result<Timing>>) -> Error {
    ended.recv_timeout(LONG).expect("it has not ended").expect_err("it has ended well")
}

/// Waits until a condition holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let start = std::time::Instant::now();
    while !holds() {
        assert!(start.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
