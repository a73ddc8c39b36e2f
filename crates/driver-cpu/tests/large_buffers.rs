//! Launches with memory at and above the bound of the default code, through the driver contract, and from bundles.

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_cache::Cache;
use elinvar_driver::{
    Access, Binding, Command, Device, Dim3, Dispatch, Driver, Error, Grid, Init, Memory, MemorySlice, Packed,
    Pipeline, PipelineOptions, Result, Source, Storage, Use,
};
use elinvar_driver_cpu::CpuDriver;
use elinvar_native::{Bundle, Compiler, SizeBound, Target};

const GIB: u64 = 1 << 30;
const TEXT: &str =
    "kernel void put(device uchar* x, device const uint* at, uint i [[thread_position_in_grid]]) {
    x[at[i]] += uchar(i + 1); }";
const GROUP: Dim3 = Dim3 { x: 32, y: 1, z: 1 };

fn device() -> Arc<dyn Device> {
    CpuDriver::with_threads(2).devices().unwrap().remove(0)
}

/// Memory of this size, or `None`, with the reason printed, on a machine with too little.
fn large(device: &Arc<dyn Device>, bytes: u64) -> Option<Arc<dyn Memory>> {
    let most = device.caps().limits.max_buffer_bytes;
    if bytes > most {
        eprintln!("skipped: a buffer of {bytes} bytes, the machine has {most}");
        return None;
    }
    Some(device.allocate(bytes, Storage::Shared, Init::Zeroed).unwrap())
}

fn slice(memory: &Arc<dyn Memory>, offset: u64, len: u64) -> MemorySlice {
    MemorySlice { memory: memory.clone(), offset, len }
}

#[allow(unsafe_code)] // memory at rest
fn byte(memory: &Arc<dyn Memory>, at: u64) -> u8 {
    let mut bytes = [0];
    // SAFETY: called between submissions.
    unsafe { memory.read(at, &mut bytes).unwrap() };
    bytes[0]
}

#[allow(unsafe_code)] // new memory, which nobody else knows
fn indices(device: &Arc<dyn Device>, values: &[u32]) -> Arc<dyn Memory> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let memory = device.allocate(bytes.len() as u64, Storage::Shared, Init::Zeroed).unwrap();
    // SAFETY: no other code uses it yet.
    unsafe { memory.write(0, &bytes).unwrap() };
    memory
}

fn dispatch(pipeline: &Arc<dyn Pipeline>, threads: u32, bindings: Vec<Binding>) -> Dispatch {
    let grid = Grid::Threads(Dim3::from(threads));
    Dispatch { pipeline: pipeline.clone(), bindings, uses: Vec::new(), grid, group: GROUP, label: None }
}

fn run(device: &Arc<dyn Device>, dispatch: Dispatch) -> Result<()> {
    let (sender, outcome) = channel();
    let done = elinvar_driver::Done::new(move |result| sender.send(result).unwrap());
    device.queue()?.submit(Arc::new([Command::Dispatch(dispatch)]), done)?;
    outcome.recv().unwrap().map(drop)
}

/// Adds to bytes at both ends and in between, by the kernel `put`.
fn expect_puts(device: &Arc<dyn Device>, pipeline: &Arc<dyn Pipeline>, memory: &Arc<dyn Memory>) {
    let last = (memory.len() - 1).min(u32::MAX.into());
    let places: Vec<u64> =
        (0..32).map(|i| if i % 2 == 0 { i * 1_000_003 } else { last - i * 70_001 }).collect();
    let at = indices(device, &places.iter().map(|at| *at as u32).collect::<Vec<_>>());
    let bindings = [slice(memory, 0, memory.len()), slice(&at, 0, at.len())].map(Binding::Memory).to_vec();
    let dispatch = dispatch(pipeline, 32, bindings);
    dispatch.prepare().unwrap();
    run(device, dispatch).unwrap();
    for (i, at) in places.into_iter().enumerate() {
        assert_eq!(byte(memory, at), i as u8 + 1, "byte {at} of {}", memory.len());
    }
}

#[test]
fn memory_of_the_bound_and_beyond() {
    let device = device();
    let library = device.compile(&Source::msl(TEXT)).unwrap();
    let pipeline = library.pipeline("put", &PipelineOptions::default()).unwrap();
    for bytes in [2 * GIB, 2 * GIB + 1, 2 * GIB + 4096, 4 * GIB, 4 * GIB + 4096] {
        let Some(memory) = large(&device, bytes) else { return };
        expect_puts(&device, &pipeline, &memory);
    }
    let stoppable = pipeline.stoppable().unwrap();
    for bytes in [2 * GIB, 3 * GIB] {
        let Some(memory) = large(&device, bytes) else { return };
        expect_puts(&device, &stoppable, &memory);
    }
}

/// The driver does not rely on its caller: code for small memory never runs on large memory.
#[test]
fn what_was_prepared_for_small_memory_only_is_refused() {
    let device = device();
    let library = device.compile(&Source::msl(TEXT)).unwrap();
    let pipeline = library.pipeline("put", &PipelineOptions::default()).unwrap();
    let Some(memory) = large(&device, 3 * GIB) else { return };
    let (at, small) = (indices(&device, &[5]), device.allocate(64, Storage::Shared, Init::Zeroed).unwrap());
    let with =
        |x: MemorySlice| dispatch(&pipeline, 1, vec![Binding::Memory(x), Binding::Memory(slice(&at, 0, 4))]);
    pipeline.prepare(GROUP).unwrap();
    run(&device, with(slice(&small, 0, 64))).unwrap();
    assert_eq!(byte(&small, 5), 1);
    let used = || {
        let mut dispatch = with(slice(&small, 0, 64));
        dispatch.uses.push(Use { slice: slice(&memory, 0, 1), access: Access::Read });
        dispatch
    };
    for refused in [with(slice(&memory, 0, memory.len())), with(slice(&memory, 0, 64)), used()] {
        let error = run(&device, refused).unwrap_err().to_string();
        let bytes = 3 * GIB;
        let expected = format!(
            "kernel `put` has not been prepared for threadgroups of 32x1x1 and memory of {bytes} bytes"
        );
        assert_eq!(error, expected);
    }
    assert_eq!((byte(&small, 5), byte(&memory, 5)), (1, 0));
    used().prepare().unwrap();
    run(&device, used()).unwrap();
    run(&device, with(slice(&memory, 0, 64))).unwrap();
    assert_eq!((byte(&small, 5), byte(&memory, 5)), (2, 1));
}

#[test]
fn bundles_have_code_for_large_memory_on_request() {
    let device = device();
    let source = Source::msl(TEXT);
    let options = PipelineOptions::default();
    let packed = |bounds: &[SizeBound]| {
        let mut bundle = Bundle::default();
        let target = Target::of(Target::levels()[0]).unwrap();
        let compiler = Compiler::packing(&Cache::off(), &source, target, &mut bundle).unwrap();
        compiler.pack("put", &options, &[GROUP], false, bounds, &mut bundle).unwrap();
        let packed = Packed { bundle: bundle.to_bytes().into(), key: source.identity() };
        let source = Source { packed: Some(packed), ..Source::default() };
        device.compile(&source).unwrap().pipeline("put", &options).unwrap()
    };
    let small = device.allocate(64 << 20, Storage::Shared, Init::Zeroed).unwrap();
    let without = packed(&[SizeBound::DEFAULT]);
    expect_puts(&device, &without, &small);
    let Err(Error::Unsupported(error)) = without.prepare_for(GROUP, 3 * GIB) else {
        panic!("it is prepared")
    };
    for part in ["kernel `put`", "32x1x1", "above 2147483648 bytes", "--large-buffers"] {
        assert!(error.contains(part), "`{part}` is missing in: {error}");
    }
    let with = packed(&[SizeBound::DEFAULT, SizeBound::NONE]);
    for bytes in [2 * GIB, 3 * GIB, 5 * GIB] {
        let Some(memory) = large(&device, bytes) else { return };
        expect_puts(&device, &with, &memory);
        expect_puts(
            &device,
            &with.stoppable().unwrap(),
            &device.allocate(bytes, Storage::Private, Init::Zeroed).unwrap(),
        );
    }
}
