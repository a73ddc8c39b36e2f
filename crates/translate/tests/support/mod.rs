//! Runs kernels in OpenCL C on PoCL, and their translations on the CPU device.
#![allow(unsafe_code, dead_code)] // a launch is unsafe; not every test uses all of it

pub mod pocl;

use elinvar::{Device, Grid, Source};
use elinvar_msl::Toolchain;
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
