//! Runs kernels in OpenCL C on PoCL, and their translations on the CPU device.
#![allow(unsafe_code, dead_code)] // a launch is unsafe; not every test uses all of it

pub mod pocl;

use elinvar::driver::{ElementType, Scalar};
use elinvar::{Arg, Buffer, CheckedKernel, Device, Grid, Kernel, Library, Source, Threadgroup};
use elinvar_analysis::{AppleFamily, violations};
use elinvar_msl::{InductionVariables, Toolchain};
use elinvar_translate::{Options, Translation};

/// The translation, which must have no errors.
pub fn translated(text: &str) -> Translation {
    let toolchain = Toolchain::find().expect("clang");
    let source = elinvar_driver::Source::named("test.cl", text);
    let translation =
        elinvar_translate::opencl(&toolchain, &source, &Options::default()).expect("valid OpenCL C");
    assert!(translation.errors.is_empty(), "{:#?}", translation.errors);
    translation
}

/// Expects that the strict check (`elinvar check --target metal`) finds nothing in a translation.
pub fn expect_portable(translation: &Translation) {
    let source = Source::named("test.metal", translation.msl.as_str()).check_spaces();
    let cache = elinvar_code::user_cache();
    let program = elinvar_code::Program::new(cache, &source, InductionVariables::AsWritten)
        .unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    let warnings = &program.declared().warnings;
    assert!(warnings.is_empty(), "{warnings:#?}\n{}", translation.msl);
    for kernel in &translation.kernels {
        let renamed = translation.renamed.iter().find(|(from, _)| *from == kernel.name);
        let name = renamed.map_or(&kernel.name, |(_, to)| to);
        let thread = program.thread(name, &[]).unwrap_or_else(|error| panic!("{name}: {error}"));
        let module = program.module(&thread).unwrap_or_else(|error| panic!("{name}: {error}"));
        let signature = &thread.origin.signature;
        let found: Vec<String> =
            violations(AppleFamily::M1, &module, signature).into_iter().map(|one| one.reason).collect();
        assert!(found.is_empty(), "{name}: {found:?}\n{}", translation.msl);
    }
}

/// Runs kernel `k(in0, in1, in2, out)` of an OpenCL C source on the CPU device, over `threads` threads.
pub fn run(text: &str, inputs: &[Vec<u8>; 3], bytes: usize, threads: usize) -> Vec<u8> {
    run_in(text, "", inputs, bytes, threads)
}

/// [`run`] for a source that includes files of a folder.
pub fn run_in(text: &str, folder: &str, inputs: &[Vec<u8>; 3], bytes: usize, threads: usize) -> Vec<u8> {
    let toolchain = Toolchain::find().expect("clang");
    let mut source = elinvar_driver::Source::named("test.cl", text);
    if !folder.is_empty() {
        source = source.include_dir(folder);
    }
    let translation =
        elinvar_translate::opencl(&toolchain, &source, &Options::default()).expect("valid OpenCL C");
    assert!(translation.errors.is_empty(), "{:#?}", translation.errors);
    let device = Device::cpu().expect("a CPU");
    let library = device.compile(Source::named("test.metal", translation.msl.as_str()));
    let library = library.unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    let kernel = library.kernel("k").unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    let [a, b, c] = inputs.each_ref().map(|input| device.buffer_with_data(input).expect("memory"));
    let mut out = device.buffer::<u8>(bytes).expect("memory");
    let stream = device.stream().expect("a stream");
    // SAFETY: each thread reads and writes its own elements.
    let done =
        unsafe { kernel.launch(&stream, Grid::threads(threads), (&a, &b, &c, &mut out)) }.expect("a launch");
    done.wait().unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    out.to_vec().expect("memory")
}

/// An argument of a kernel.
#[derive(Clone, Debug)]
pub enum Argument {
    Buffer(Vec<u8>),
    Value(Vec<u8>),
    /// Bytes of local memory.
    Local(usize),
}

/// A launch of a kernel.
#[derive(Clone, Debug)]
pub struct Launch {
    pub kernel: String,
    pub arguments: Vec<Argument>,
    pub global: [usize; 3],
    pub local: [usize; 3],
}

/// A translated source on the CPU device.
pub struct Translated {
    pub translation: Translation,
    device: Device,
    library: Library,
}

impl Translated {
    /// Translates and compiles a source; a message if it cannot.
    pub fn new(source: &Source) -> Result<Self, String> {
        let toolchain = Toolchain::find().map_err(|error| error.to_string())?;
        let translation = elinvar_translate::opencl(&toolchain, source, &Options::default());
        let translation = translation.map_err(|error| format!("not valid: {error}"))?;
        let device = Device::cpu().map_err(|error| error.to_string())?;
        let library = device.compile(Source::named("test.metal", translation.msl.as_str()));
        let library = library.map_err(|error| format!("{error}\n{}", translation.msl))?;
        Ok(Self { translation, device, library })
    }

    /// The buffers after a launch with checked accesses.
    pub fn launch(&self, launch: &Launch) -> Result<Vec<Vec<u8>>, String> {
        match self.launch_as(launch, true) {
            // A function that is not inlined has no checks.
            Err(error) if error.contains("bounds checks in the function") => self.launch_as(launch, false),
            other => other,
        }
    }

    /// The buffers after a launch, with or without checked accesses.
    pub fn launch_as(&self, launch: &Launch, is_checked: bool) -> Result<Vec<Vec<u8>>, String> {
        if self.translation.refused.contains(&launch.kernel) {
            let first = self.translation.errors.first();
            return Err(first.map_or_else(String::new, |error| format!("refused: {error}")));
        }
        let renamed = self.translation.renamed.iter().find(|(from, _)| *from == launch.kernel);
        let name = renamed.map_or(launch.kernel.as_str(), |(_, to)| to.as_str());
        let message = |error: elinvar::Error| error.to_string();
        let kernel = if is_checked {
            Checked::Yes(self.library.checked_kernel(name).map_err(message)?)
        } else {
            Checked::No(self.library.kernel(name).map_err(message)?)
        };
        let signature = match &kernel {
            Checked::Yes(kernel) => kernel.signature(),
            Checked::No(kernel) => kernel.signature(),
        };
        // A fault fails what follows on its stream.
        let stream = self.device.stream().map_err(|error| error.to_string())?;
        let types: Vec<ElementType> =
            signature.args.iter().map(|argument| argument.element.clone()).collect();
        if types.len() != launch.arguments.len() {
            return Err(format!("{} arguments for {}", launch.arguments.len(), types.len()));
        }
        let memory = |(argument, ty): (&Argument, &ElementType)| match argument {
            Argument::Buffer(bytes) => memory(&self.device, ty, bytes).map(Some),
            _ => Ok(None),
        };
        let buffers: elinvar::Result<Vec<_>> = launch.arguments.iter().zip(&types).map(memory).collect();
        let mut buffers = buffers.map_err(|error| error.to_string())?;
        let arguments: Vec<Arg> = launch
            .arguments
            .iter()
            .zip(&mut buffers)
            .map(|(argument, buffer)| match (argument, buffer) {
                (_, Some(buffer)) => buffer.argument(),
                (Argument::Value(bytes) | Argument::Buffer(bytes), _) => Arg::bytes(bytes),
                (Argument::Local(bytes), _) => Threadgroup::bytes(*bytes).into(),
            })
            .collect();
        let ([x, y, z], [a, b, c]) = (launch.global, launch.local);
        let grid = Grid::threads((x, y, z)).group((a, b, c));
        let done = match &kernel {
            // SAFETY: the kernel stays within its arguments, as on the driver.
            Checked::No(kernel) => unsafe { kernel.launch(&stream, grid, arguments) },
            Checked::Yes(kernel) => kernel.launch(&stream, grid, arguments),
        };
        done.and_then(|done| done.wait()).map_err(|error| error.to_string())?;
        buffers.iter().flatten().map(|buffer| buffer.bytes().map_err(|error| error.to_string())).collect()
    }
}

/// A kernel with or without checks of its accesses.
enum Checked {
    Yes(CheckedKernel),
    No(Kernel),
}

/// A buffer of any element type.
trait Memory {
    fn argument(&mut self) -> Arg;
    fn bytes(&self) -> elinvar::Result<Vec<u8>>;
}

impl<T: bytemuck::Pod> Memory for Buffer<T> {
    fn argument(&mut self) -> Arg {
        self.into()
    }

    fn bytes(&self) -> elinvar::Result<Vec<u8>> {
        self.to_vec().map(|all| bytemuck::cast_slice(&all).to_vec())
    }
}

/// A buffer with the elements that a kernel expects.
fn memory(device: &Device, ty: &ElementType, bytes: &[u8]) -> elinvar::Result<Box<dyn Memory>> {
    fn of<T: bytemuck::Pod>(device: &Device, bytes: &[u8]) -> elinvar::Result<Box<dyn Memory>> {
        let all: Vec<T> = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
        Ok(Box::new(device.buffer_with_data(&all)?))
    }
    let scalar = match ty {
        ElementType::Scalar(scalar) | ElementType::Atomic(scalar) => *scalar,
        ElementType::Vector { scalar, .. } => *scalar,
        _ => Scalar::U8,
    };
    match scalar {
        Scalar::I8 => of::<i8>(device, bytes),
        Scalar::I16 => of::<i16>(device, bytes),
        Scalar::U16 => of::<u16>(device, bytes),
        Scalar::I32 => of::<i32>(device, bytes),
        Scalar::U32 => of::<u32>(device, bytes),
        Scalar::I64 => of::<i64>(device, bytes),
        Scalar::U64 => of::<u64>(device, bytes),
        Scalar::F16 => of::<half::f16>(device, bytes),
        Scalar::F32 => of::<f32>(device, bytes),
        _ => of::<u8>(device, bytes),
    }
}

/// A sequence of random numbers (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
