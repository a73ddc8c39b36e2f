//! Common code of the driver's tests: devices, kernels, and submissions with waits.
#![allow(dead_code)] // each test uses some of it

#[cfg(elinvar_apple)]
pub mod standin;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use elinvar_cache::Cache;
use elinvar_driver::{
    Binding, Command, Device, Dim3, Dispatch, Driver as _, Grid, Init, Memory, MemorySlice, Pipeline,
    PipelineOptions, Queue, Result, Source, Storage, Submission, Timing,
};
use elinvar_driver_metal::MetalDriver;

pub type Devices = Vec<Arc<dyn Device>>;

/// All devices of a separate driver instance, whose queues no other test uses. Kernels come from the user's cache, if it has them.
pub fn devices() -> Devices {
    with_cache(elinvar_code::user_cache())
}

/// As [`devices`], for tests of what the compiler does: kernels are always compiled.
pub fn devices_that_compile() -> Devices {
    with_cache(&Cache::off())
}

fn with_cache(cache: &Cache) -> Devices {
    let devices = MetalDriver::with_cache(cache).devices().unwrap();
    assert!(!devices.is_empty(), "Metal has no device");
    devices
}

pub fn pipeline(device: &dyn Device, body: &str, name: &str) -> Arc<dyn Pipeline> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{body}");
    let library = device.compile(&Source::named(format!("{name}.metal"), text)).unwrap();
    library.pipeline(name, &PipelineOptions::default()).unwrap()
}

pub fn memory(device: &dyn Device, bytes: u64, storage: Storage) -> Arc<dyn Memory> {
    device.allocate(bytes, storage, Init::Zeroed).unwrap()
}

pub fn slice(memory: &Arc<dyn Memory>, offset: u64, len: u64) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset, len }
}

pub fn whole(memory: &Arc<dyn Memory>) -> MemorySlice {
    slice(memory, 0, memory.len())
}

#[allow(unsafe_code)] // the tests wait for what they have submitted
pub fn read(memory: &Arc<dyn Memory>) -> Vec<u8> {
    let mut bytes = vec![0x5a; memory.len() as usize];
    // SAFETY: in range, and no work that uses it is in flight.
    unsafe { memory.read(0, &mut bytes) }.unwrap();
    bytes
}

/// Memory with these numbers.
pub fn floats(device: &dyn Device, values: &[f32]) -> Arc<dyn Memory> {
    let made = memory(device, 4 * values.len() as u64, Storage::Shared);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    write(&made, 0, &bytes);
    made
}

/// The numbers of a memory.
pub fn values(memory: &Arc<dyn Memory>) -> Vec<f32> {
    let bytes = read(memory);
    bytes.chunks_exact(4).map(|four| f32::from_ne_bytes([four[0], four[1], four[2], four[3]])).collect()
}

#[allow(unsafe_code)] // as above
pub fn write(memory: &Arc<dyn Memory>, offset: u64, bytes: &[u8]) {
    // SAFETY: in range, and no work that uses it is in flight.
    unsafe { memory.write(offset, bytes) }.unwrap();
}

pub fn words(memory: &Arc<dyn Memory>) -> Vec<u32> {
    read(memory)
        .chunks_exact(4)
        .map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]))
        .collect()
}

pub fn dispatch(pipeline: &Arc<dyn Pipeline>, bindings: Vec<Binding>, threads: u32, group: u32) -> Command {
    let (threads, group) = (Dim3::from(threads), Dim3::from(group));
    pipeline.prepare(group).unwrap();
    Command::Dispatch(Dispatch {
        pipeline: pipeline.clone(),
        bindings,
        uses: Vec::new(),
        grid: Grid::Threads(threads),
        group,
        label: None,
    })
}

/// Submits the commands; the receiver gets the result.
pub fn submit(queue: &dyn Queue, commands: Vec<Command>) -> (Submission, Receiver<Result<Timing>>) {
    let (sender, ended) = channel();
    let done = elinvar_driver::Done::new(move |result| drop(sender.send(result)));
    (queue.submit(commands.into(), done).unwrap(), ended)
}

/// Submits the commands and waits for the result.
pub fn run(queue: &dyn Queue, commands: Vec<Command>) -> Result<Timing> {
    submit(queue, commands).1.recv().expect("done is called")
}
