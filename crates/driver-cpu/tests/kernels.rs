//! Metal kernels on the CPU, through the driver contract only.

use std::sync::Arc;
use std::sync::mpsc::channel;

use elinvar_driver::{
    Binding, Command, Device, Dim3, Dispatch, Driver, Error, Grid, Init, Library, Memory, MemorySlice,
    PipelineOptions, Result, Severity, Source, Storage,
};
use elinvar_driver_cpu::CpuDriver;

fn device() -> Arc<dyn Device> {
    CpuDriver::with_threads(2).devices().unwrap().remove(0)
}

fn compile(device: &Arc<dyn Device>, text: &str) -> Arc<dyn Library> {
    device.compile(&Source::msl(format!("#include <metal_stdlib>\nusing namespace metal;\n{text}"))).unwrap()
}

#[allow(unsafe_code)] // new memory, which nobody else knows
fn floats(device: &Arc<dyn Device>, values: &[f32]) -> Arc<dyn Memory> {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let memory = device.allocate(bytes.len() as u64, Storage::Shared, Init::Zeroed).unwrap();
    // SAFETY: no other code uses it yet.
    unsafe { memory.write(0, &bytes).unwrap() };
    memory
}

#[allow(unsafe_code)] // memory at rest
fn read(memory: &Arc<dyn Memory>) -> Vec<f32> {
    let mut bytes = vec![0; memory.len() as usize];
    // SAFETY: called between submissions.
    unsafe { memory.read(0, &mut bytes).unwrap() };
    bytes.chunks_exact(4).map(|word| f32::from_ne_bytes(word.try_into().unwrap())).collect()
}

fn bound(memory: &Arc<dyn Memory>) -> Binding {
    Binding::Memory(MemorySlice { memory: memory.clone(), offset: 0, len: memory.len() })
}

fn launch(
    device: &Arc<dyn Device>,
    library: &Arc<dyn Library>,
    kernel: &str,
    (threads, group): (Dim3, Dim3),
    bindings: Vec<Binding>,
) -> Result<()> {
    launch_with(device, library, (kernel, &PipelineOptions::default()), (threads, group), bindings)
}

fn launch_with(
    device: &Arc<dyn Device>,
    library: &Arc<dyn Library>,
    (kernel, options): (&str, &PipelineOptions),
    (threads, group): (Dim3, Dim3),
    bindings: Vec<Binding>,
) -> Result<()> {
    let pipeline = library.pipeline(kernel, options)?;
    pipeline.prepare(group)?;
    let (sender, outcome) = channel();
    let command = Command::Dispatch(Dispatch {
        pipeline,
        bindings,
        uses: Vec::new(),
        grid: Grid::Threads(threads),
        group,
        label: None,
    });
    device
        .queue()?
        .submit(Arc::new([command]), elinvar_driver::Done::new(move |result| sender.send(result).unwrap()))?;
    outcome.recv().unwrap().map(drop)
}

#[test]
fn vector_addition_at_an_odd_size() {
    let device = device();
    let library = compile(
        &device,
        "kernel void add(device const float* a, device const float* b, device float* out,
                         constant uint& n, uint i [[thread_position_in_grid]]) {
            if (i < n) out[i] = a[i] + b[i];
        }",
    );
    let n = 10_007;
    let a: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let b: Vec<f32> = (0..n).map(|i| 0.5 * i as f32).collect();
    let (a_memory, b_memory) = (floats(&device, &a), floats(&device, &b));
    for group in [1, 32, 100, 256, 1024] {
        let out = floats(&device, &vec![-1.0; n + 50]);
        let bindings =
            vec![bound(&a_memory), bound(&b_memory), bound(&out), Binding::bytes(&(n as u32).to_ne_bytes())];
        let sizes = (Dim3::from(n as u32 + 20), Dim3::from(group));
        launch(&device, &library, "add", sizes, bindings).unwrap();
        let out = read(&out);
        assert!(out[..n].iter().zip(a.iter().zip(&b)).all(|(out, (a, b))| *out == a + b), "{group}");
        assert!(out[n..].iter().all(|out| *out == -1.0));
    }
}

#[test]
fn threadgroups_reverse_their_part_over_a_barrier() {
    let device = device();
    let library = compile(
        &device,
        "kernel void reverse(device float* data, threadgroup float* own [[threadgroup(0)]],
                             uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                             uint n [[threads_per_threadgroup]]) {
            threadgroup float first;
            if (t == 0) first = data[i];
            own[t] = data[i];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            data[i] = own[n - 1 - t] + 1000.0f * first;
        }",
    );
    let code = library.pipeline("reverse", &PipelineOptions::default()).unwrap().signature().code.unwrap();
    assert_eq!((code.threadgroup_memory, code.barriers, code.atomics), (16, 1, 0));
    let n = 1000_usize;
    let data = floats(&device, &(0..n).map(|i| i as f32).collect::<Vec<_>>());
    let bindings = vec![bound(&data), Binding::Threadgroup(4 * 64)];
    launch(&device, &library, "reverse", (Dim3::from(n as u32), Dim3::from(64)), bindings).unwrap();
    for (i, value) in read(&data).into_iter().enumerate() {
        let begin = i / 64 * 64;
        let end = (begin + 64).min(n);
        assert_eq!(value, (begin + end - 1 - i) as f32 + 1000.0 * begin as f32, "{i}");
    }
}

#[test]
fn a_barrier_that_some_threads_miss_is_a_diagnostic() {
    let device = device();
    let library = compile(
        &device,
        "kernel void stuck(device float* data, uint t [[thread_position_in_threadgroup]]) {
            if (t < 3) {
                data[t] = 1.0f;
                threadgroup_barrier(mem_flags::mem_device);
            }
            data[t + 1] += 2.0f;
            threadgroup_barrier(mem_flags::mem_device);
            data[t] += 3.0f;
        }",
    );
    let pipeline = library.pipeline("stuck", &PipelineOptions::default()).unwrap();
    let Err(Error::Compile(diagnostics)) = pipeline.prepare(Dim3::from(64)) else { panic!("it compiled") };
    assert_eq!((diagnostics[0].severity, &*diagnostics[0].file), (Severity::Error, "kernel.metal"));
    assert_eq!(diagnostics[0].line, 6, "{}", diagnostics[0]);
    assert!(diagnostics[0].source_line.as_ref().unwrap().contains("threadgroup_barrier"));
}

#[test]
fn what_cannot_be_had_is_an_error_that_names_it() {
    let device = device();
    let library = compile(
        &device,
        "[[max_total_threads_per_threadgroup(64)]]
         kernel void one(device float* data) { data[0] = 1.0f; }
         kernel void two(device float* data) { data[0] = 2.0f; }",
    );
    let Err(Error::InvalidArgument(message)) = library.pipeline("three", &PipelineOptions::default()) else {
        panic!("it exists")
    };
    assert!(message.contains("one") && message.contains("two") && message.contains("three"), "{message}");
    let one = library.pipeline("one", &PipelineOptions::default()).unwrap();
    assert_eq!(one.max_threads_per_threadgroup(), 64);
    assert!(matches!(one.prepare(Dim3::from(65)), Err(Error::InvalidArgument(_))));
    let Err(Error::Compile(diagnostics)) = device.compile(&Source::msl("kernel void f() { x = 1; }")) else {
        panic!("it compiled")
    };
    assert_eq!(diagnostics[0].line, 1);
    assert!(Arc::ptr_eq(&one, &library.pipeline("one", &PipelineOptions::default()).unwrap()));
}

/// Kernels with private arrays indexed by values from memory: in the kernel, in a function that is not inlined, and many small arrays.
fn with_arrays(elements: usize) -> String {
    let small: String = (0..8)
        .map(|n| {
            let len = elements / 8;
            format!("thread uint s{n}[{len}]; for (uint k = 0; k < {len}; ++k) s{n}[k] = k + uint(x[i]); sum += s{n}[uint(x[i]) * 7 % {len}];")
        })
        .collect();
    format!(
        "static float far(uint at, uint elements, float first) __attribute__((noinline));
         static float far(uint at, uint elements, float first) {{
             thread float a[{elements}];
             for (uint k = 0; k < elements; ++k) a[k] = first + k;
             return a[at];
         }}
         kernel void own(device float* x, uint i [[thread_position_in_grid]]) {{
             thread float a[{elements}];
             for (uint k = 0; k < {elements}; ++k) a[k] = x[i] + k;
             x[i] = a[uint(x[i]) * 7 % {elements}];
         }}
         kernel void called(device float* x, uint i [[thread_position_in_grid]]) {{
             x[i] = far(uint(x[i]) * 7 % {elements}, {elements}, x[i]);
         }}
         kernel void small(device float* x, uint i [[thread_position_in_grid]]) {{
             uint sum = 0;
             {small}
             x[i] = sum;
         }}"
    )
}

#[test]
fn private_arrays_beyond_the_limit_are_refused_when_the_pipeline_is_made() {
    let device = device();
    let library = compile(&device, &with_arrays(4_000_000));
    for kernel in ["own", "called", "small"] {
        for checked in [false, true] {
            let options = PipelineOptions { checked, ..PipelineOptions::default() };
            let refused = library.pipeline(kernel, &options).err();
            let Some(Error::Unsupported(text)) = refused else { panic!("{kernel}: {refused:?}") };
            for part in
                [&format!("kernel `{kernel}`"), "160000", "bytes for each thread", "at most 524288 bytes"]
            {
                assert!(text.contains(part), "{kernel}: `{part}` is missing in: {text}");
            }
        }
    }
}

#[test]
fn private_arrays_up_to_the_limit_compute() {
    let device = device();
    // Almost 512 KiB for each of the threads that run concurrently.
    let elements = 131_000;
    let library = compile(&device, &with_arrays(elements));
    let values: Vec<f32> = (0..40).map(|i| i as f32).collect();
    for (kernel, checked) in [("own", false), ("called", false), ("small", false), ("own", true)] {
        let x = floats(&device, &values);
        let options = PipelineOptions { checked, ..PipelineOptions::default() };
        launch_with(&device, &library, (kernel, &options), (Dim3::from(40), Dim3::from(32)), vec![bound(&x)])
            .unwrap();
        for (i, value) in read(&x).into_iter().enumerate() {
            let expected = match kernel {
                "small" => 8 * (i * 7 % (elements / 8) + i),
                _ => i * 7 % elements + i,
            };
            assert_eq!(value, expected as f32, "{kernel}: {i}");
        }
    }
}
