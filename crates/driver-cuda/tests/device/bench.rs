//! Common code of the tests: a device, and short forms of frequent operations.
#![allow(unsafe_code)] // reads and writes memory that the test alone uses

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use elinvar_driver::{
    Binding, Command, Device, Dim3, Dispatch, Event, Grid, Init, Memory, MemorySlice, Pipeline,
    PipelineOptions, Queue, Result, Source, Storage, Submission, Timing,
};

/// Name and function of a test.
pub type Test = (&'static str, fn(&Bench));

pub struct Bench {
    pub device: Arc<dyn Device>,
}

/// A submission in flight.
pub struct Pending {
    pub id: Submission,
    ended: Receiver<Result<Timing>>,
}

impl Pending {
    pub fn wait(&self) -> Result<Timing> {
        self.ended.recv().expect("`done` is called")
    }

    pub fn has_ended(&self) -> bool {
        match self.ended.try_recv() {
            Ok(result) => panic!("ended: {result:?}"),
            Err(_) => false,
        }
    }
}

impl Bench {
    pub fn new(device: Arc<dyn Device>) -> Self {
        Self { device }
    }

    pub fn memory(&self, bytes: u64) -> Arc<dyn Memory> {
        self.device.allocate(bytes, Storage::Private, Init::Zeroed).expect("memory")
    }

    pub fn holding(&self, words: &[u32]) -> Arc<dyn Memory> {
        let bytes: &[u8] = bytemuck::cast_slice(words);
        let memory = self.memory(bytes.len() as u64);
        // SAFETY: in range, and no other code uses it.
        unsafe { memory.write(0, bytes) }.expect("written");
        memory
    }

    pub fn queue(&self) -> Arc<dyn Queue> {
        self.device.queue().expect("a queue")
    }

    pub fn event(&self) -> Arc<dyn Event> {
        self.device.event().expect("an event")
    }

    /// A kernel of `kernels.metal`.
    pub fn pipeline(&self, name: &str) -> Arc<dyn Pipeline> {
        self.pipeline_with(name, &PipelineOptions::default())
    }

    pub fn pipeline_with(&self, name: &str, options: &PipelineOptions) -> Arc<dyn Pipeline> {
        let source = Source::named("kernels.metal", include_str!("kernels.metal"));
        let library = self.device.compile(&source).expect("it compiles");
        library.pipeline(name, options).expect("a pipeline")
    }
}

pub fn submit(queue: &Arc<dyn Queue>, commands: impl Into<Arc<[Command]>>) -> Pending {
    let (sender, ended) = channel();
    let done = elinvar_driver::Done::new(move |result| sender.send(result).unwrap_or(()));
    let id = queue.submit(commands.into(), done).expect("it is taken");
    Pending { id, ended }
}

pub fn whole(memory: &Arc<dyn Memory>) -> MemorySlice {
    slice(memory, 0, memory.len())
}

pub fn slice(memory: &Arc<dyn Memory>, offset: u64, len: u64) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset, len }
}

pub fn fill(memory: &Arc<dyn Memory>, word: u32) -> Command {
    Command::Fill { target: whole(memory), pattern: word.to_ne_bytes().to_vec() }
}

pub fn signal(event: &Arc<dyn Event>, value: u64) -> Command {
    Command::Signal { event: event.clone(), value }
}

pub fn wait(event: &Arc<dyn Event>, value: u64) -> Command {
    Command::Wait { event: event.clone(), value }
}

pub fn dispatch(pipeline: &Arc<dyn Pipeline>, bindings: Vec<Binding>, threads: Dim3, group: Dim3) -> Command {
    pipeline.prepare(group).expect("prepared");
    let (pipeline, uses, label) = (pipeline.clone(), Vec::new(), None);
    Command::Dispatch(Dispatch { pipeline, bindings, uses, grid: Grid::Threads(threads), group, label })
}

pub fn bound(memory: &Arc<dyn Memory>) -> Binding {
    Binding::Memory(whole(memory))
}

pub fn number(value: u32) -> Binding {
    Binding::bytes(&value.to_ne_bytes())
}

pub fn bytes(memory: &Arc<dyn Memory>) -> Vec<u8> {
    let mut bytes = vec![0xee; memory.len() as usize];
    // SAFETY: in range, and the test has waited for writes to it.
    unsafe { memory.read(0, &mut bytes) }.expect("read");
    bytes
}

pub fn words(memory: &Arc<dyn Memory>) -> Vec<u32> {
    bytes(memory).chunks_exact(4).map(bytemuck::pod_read_unaligned).collect()
}

#[track_caller]
pub fn expect_all<T: PartialEq + std::fmt::Debug>(got: &[T], expected: impl Fn(usize) -> T) {
    let wrong = got.iter().enumerate().find(|(i, value)| **value != expected(*i));
    if let Some((i, value)) = wrong {
        panic!("element {i} of {} is {value:?}, not {:?}", got.len(), expected(i));
    }
}
