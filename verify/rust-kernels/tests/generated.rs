//! Random kernels (`generate`) on the CPU device and on the host: every element is equal, and accesses out of bounds fault where the host
//! panics.
//!
//! `ELINVAR_RUST_KERNELS_SEED=7 ELINVAR_RUST_KERNELS_COUNT=500 cargo test -p elinvar-rust-kernels --test generated` for others.
//! Compilers take most of the time, so kernels are compiled [`TOGETHER`], as functions that one kernel calls.
#![allow(break_with_label_and_loop)] // of the generated text; rustc reports it for the crate

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use elinvar::{Arg, Buffer, CheckedKernel, Device, Error, Grid, Result, Source, SourceFile};

/// rustc knows results that kernels compute from constants.
#[allow(warnings, arithmetic_overflow, unconditional_panic, overflowing_literals)]
#[allow(clippy::all)]
mod kernels {
    use elinvar::Grid;

    include!(concat!(env!("OUT_DIR"), "/generated.rs"));

    pub type Host = fn(&[i32], &[u64], &[f32], &[Record], &[u32], &mut [u64]);

    /// A kernel's name, MSL and host function, and the thread that may access a buffer out of bounds.
    pub type Entry = (&'static str, &'static str, Host, Option<usize>);

    pub fn all() -> Vec<Entry> {
        let mut all: Vec<Entry> = Vec::new();
        macro_rules! add {
            ($name:ident, $fault:expr) => {
                all.push((
                    stringify!($name),
                    $name::MSL,
                    |a, b, f, records, table, out| {
                        let grid = Grid::threads(out.len() / 64).group(out.len() / 64);
                        $name.host(grid, (a, b, f, records, table, out))
                    },
                    $fault,
                ));
            };
        }
        with_all!(add);
        all
    }
}
use kernels::{Entry, Record};

/// Threads, in one threadgroup.
const THREADS: usize = 48;
/// Results of a thread.
const SLOTS: usize = 64;
/// Kernels that are compiled together.
const TOGETHER: usize = 10;

/// What kernels read.
struct Inputs {
    a: Vec<i32>,
    b: Vec<u64>,
    f: Vec<f32>,
    records: Vec<Record>,
    table: Vec<u32>,
}

impl Inputs {
    fn new() -> Self {
        let mut state = 0x1234_5678_9abc_def1u64;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let a = (0..THREADS).map(|i| if i % 3 == 0 { (i % 16) as i32 } else { next() as i32 }).collect();
        let b = (0..THREADS).map(|i| if i % 4 == 0 { i as u64 } else { next() }).collect();
        let special =
            [0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, 1e-40, -2.5, 1e9, -3e18];
        let mut float = |i: usize| {
            if i.is_multiple_of(2) {
                special[i / 2 % special.len()]
            } else {
                (next() % 100_000) as f32 / 64.0 - 500.0
            }
        };
        let f: Vec<f32> = (0..THREADS).map(&mut float).collect();
        let records = (0..THREADS).map(|i| Record {
            place: elinvar::kernel::Vec4::new(f[i], f[(i + 5) % THREADS], i as f32, f[i * 7 % THREADS]),
            wide: (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15),
            id: i as u32 * i as u32,
            level: 20 - 900 * i as i16,
            small: [i as u8, 255 - i as u8],
        });
        let table = (0..16u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        let records = records.collect();
        Self { a, b, f, records, table }
    }

    /// What the host computes, and whether it panics because of an index out of bounds.
    fn expected(&self, host: kernels::Host) -> (Vec<u64>, bool) {
        let mut out = vec![0u64; THREADS * SLOTS];
        let run = AssertUnwindSafe(|| host(&self.a, &self.b, &self.f, &self.records, &self.table, &mut out));
        let ended = catch_unwind(run);
        if let Err(panic) = &ended {
            let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            assert!(message.contains("index out of bounds"), "the host panics: {message}");
        }
        (out, ended.is_err())
    }
}

/// The kernels as functions that `all_of_them` calls by index.
fn combined(kernels: &[Entry]) -> String {
    let mut text = String::from("#include <metal_stdlib>\nusing namespace metal;\n");
    let mut cases = String::new();
    for (index, (name, msl, ..)) in kernels.iter().enumerate() {
        let start = msl.find("kernel void ").expect("a kernel");
        let open = start + msl[start..].find('(').expect("parameters");
        let close = open + msl[open..].find(") {").expect("a body");
        let parameters =
            msl[open + 1..close].split(',').map(|one| one.split("[[").next().unwrap_or(one).trim());
        let parameters: Vec<&str> = parameters.collect();
        let arguments =
            parameters.iter().map(|parameter| match parameter.rsplit(' ').next().unwrap_or_default() {
                "records" => "(device const Record*)records",
                length if length.ends_with("_len") => "count",
                same => same,
            });
        let arguments: Vec<&str> = arguments.collect();
        let head = msl[..start].replace("#include <metal_stdlib>\n", "");
        let (parameters, arguments) = (parameters.join(", "), arguments.join(", "));
        text += &format!(
            "namespace space_{index} {{\n{head}inline void {name}({parameters}{}\ninline void run(device const int* a, \
             device const ulong* b, device const float* f, device const uchar* records, constant uint* table, \
             device ulong* out, constant uint& count, uint i, uint t) {{ {name}({arguments}); }}\n}}\n",
            &msl[close..]
        );
        cases += &format!(
            "    case {index}: space_{index}::run(a, b, f, records, table, out, count, i, t); break;\n"
        );
    }
    text + "kernel void all_of_them(device const int* a [[buffer(0)]], device const ulong* b [[buffer(1)]], \
            device const float* f [[buffer(2)]], device const uchar* records [[buffer(3)]], \
            constant uint* table [[buffer(4)]], device ulong* out [[buffer(5)]], constant uint& count [[buffer(6)]], \
            constant uint& which [[buffer(7)]], uint i [[thread_position_in_grid]], \
            uint t [[thread_index_in_threadgroup]]) {\n    switch (which) {\n"
        + &cases
        + "    }\n}\n"
}

/// The device with the inputs.
struct Machine {
    device: Device,
    a: Buffer<i32>,
    b: Buffer<u64>,
    f: Buffer<f32>,
    records: Buffer<u8>,
    table: Buffer<u32>,
}

impl Machine {
    fn new(inputs: &Inputs) -> Result<Self> {
        let device = Device::system_default()?;
        Ok(Self {
            a: device.buffer_with_data(&inputs.a)?,
            b: device.buffer_with_data(&inputs.b)?,
            f: device.buffer_with_data(&inputs.f)?,
            records: device
                .buffer_with_data(elinvar::kernel::bytemuck::cast_slice::<_, u8>(&inputs.records))?,
            table: device.buffer_with_data(&inputs.table)?,
            device,
        })
    }

    fn compile(&self, kernels: &[Entry]) -> Result<CheckedKernel> {
        let file = SourceFile { name: "all.metal".into(), text: combined(kernels) };
        let source = Source { files: vec![file], math: elinvar::MathMode::Safe, ..Source::default() };
        let options = elinvar::KernelOptions::new().tier(elinvar::Tier::Quick);
        self.device.compile(source)?.checked_kernel_with("all_of_them", options)
    }

    /// What the kernel computes; the message if it faults.
    fn run(&self, kernel: &CheckedKernel, which: usize) -> Result<std::result::Result<Vec<u64>, String>> {
        let stream = self.device.stream()?;
        let mut out = self.device.buffer::<u64>(THREADS * SLOTS)?;
        let arguments: Vec<Arg> = vec![
            (&self.a).into(),
            (&self.b).into(),
            (&self.f).into(),
            (&self.records).into(),
            (&self.table).into(),
            (&mut out).into(),
            (THREADS as u32).into(),
            (which as u32).into(),
        ];
        let grid = Grid::threads(THREADS).group(THREADS);
        match kernel.launch(&stream, grid, arguments).and_then(|done| done.wait()) {
            Ok(_) => Ok(Ok(out.to_vec()?)),
            Err(error) => {
                stream.acknowledge();
                if matches!(error, Error::Fault { .. }) { Ok(Err(error.to_string())) } else { Err(error) }
            }
        }
    }

    /// The differences of some kernels that are compiled together; alone if that fails.
    fn differences(&self, inputs: &Inputs, kernels: &[Entry]) -> Vec<String> {
        let compiled = match self.compile(kernels) {
            Ok(compiled) => compiled,
            Err(error) if kernels.len() == 1 => {
                let (name, text, ..) = kernels[0];
                return vec![format!("{name}: {error}\n{text}")];
            }
            Err(_) => {
                return kernels
                    .iter()
                    .flat_map(|one| self.differences(inputs, std::slice::from_ref(one)))
                    .collect();
            }
        };
        let mut differences = Vec::new();
        for (which, (name, text, host, fault)) in kernels.iter().enumerate() {
            let (expected, panicked) = inputs.expected(*host);
            assert!(fault.is_some() || !panicked, "{name}: only kernels with an access out of bounds panic");
            let difference = match self.run(&compiled, which) {
                Ok(Ok(_)) if panicked => "no fault, and the host panics".to_owned(),
                Ok(Ok(found)) => match (0..THREADS * SLOTS).find(|at| found[*at] != expected[*at]) {
                    Some(at) => format!(
                        "result {} of thread {} is {:#x}, on the host {:#x}",
                        at % SLOTS,
                        at / SLOTS,
                        found[at],
                        expected[at]
                    ),
                    None => continue,
                },
                Ok(Err(message)) => {
                    let thread = format!("by the thread at ({}, 0, 0)", fault.unwrap_or(THREADS));
                    if panicked && message.contains(&thread) {
                        continue;
                    }
                    format!("{message}, expected {thread}")
                }
                Err(error) => error.to_string(),
            };
            differences.push(format!("{name}: {difference}\n{text}"));
        }
        differences
    }
}

#[test]
fn devices_agree_with_the_host() -> Result<()> {
    let inputs = Inputs::new();
    let machine = Machine::new(&inputs)?;
    let kernels = kernels::all();
    let chunks: Vec<&[Entry]> = kernels.chunks(TOGETHER).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !info.to_string().contains("index out of bounds") {
            hook(info);
        }
    }));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(chunk) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let differences = machine.differences(&inputs, chunk);
                    found.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).extend(differences);
                }
            });
        }
    });
    let differences = found.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(first) = differences.first() {
        panic!("{} of {} kernels differ; the first:\n{first}", differences.len(), kernels.len());
    }
    println!("{} kernels, no difference", kernels.len());
    Ok(())
}
