//! 15 algorithms in OpenCL C, CUDA C++ and WGSL: the translations compute what is computed in Rust.
#![allow(unsafe_code)] // launches of kernels that stay within their arguments

#[path = "../support/random.rs"]
mod random;
mod reference;

use elinvar::driver::ArgKind;
use elinvar::{Arg, Device, Grid, Library, Source, Threadgroup};
use elinvar_msl::Toolchain;
use elinvar_translate::{CudaOptions, Language, Options, Translation};

/// Runs the kernels of a translation, all but some.
fn run(translation: &Translation, but: &[&str]) {
    assert!(translation.errors.is_empty(), "{:#?}", translation.errors);
    let device = Device::cpu().expect("a CPU");
    let source = Source::named("test.metal", translation.msl.as_str()).check_spaces();
    let library = device.compile(source).unwrap_or_else(|error| panic!("{error}\n{}", translation.msl));
    assert!(library.warnings().is_empty(), "{:?}\n{}", library.warnings(), translation.msl);
    let failures: Vec<String> = reference::all()
        .iter()
        .filter(|one| !but.contains(&one.name))
        .filter_map(|one| launch(one, translation, &device, &library).err())
        .collect();
    assert!(failures.is_empty(), "{}\n{}", failures.join("\n"), translation.msl);
}

fn launch(
    one: &reference::Algorithm,
    translation: &Translation,
    device: &Device,
    library: &Library,
) -> Result<(), String> {
    let message = |error: elinvar::Error| format!("{}: {error}", one.name);
    let kernel = library.kernel(one.name).map_err(message)?;
    let is_square = translation
        .kernels
        .iter()
        .any(|kernel| kernel.name == one.name && kernel.group_size == Some([8, 8, 1]));
    let input = device.buffer_with_data(bytemuck::cast_slice::<u32, u8>(&one.input)).map_err(message)?;
    let mut out = device.buffer::<u8>(4 * one.expected.len()).map_err(message)?;
    let sizes = [4 * one.input.len() as u32, 4 * one.expected.len() as u32];
    let mut args = Vec::new();
    for declared in &kernel.signature().args {
        let arg = match declared.name.as_str() {
            _ if declared.kind == ArgKind::Threadgroup => {
                Threadgroup::bytes(declared.element_size as usize).into()
            }
            "in" | "input" => Arg::from(&input),
            "out" => Arg::from(&mut out),
            "_buffer_sizes" => Arg::bytes(bytemuck::bytes_of(&sizes)),
            _ => Arg::bytes(one.n.to_le_bytes()),
        };
        let of = declared.element.scalar().filter(|_| declared.name != "n");
        args.push(match of {
            Some(scalar) if matches!(declared.name.as_str(), "in" | "input" | "out") => arg.of(scalar),
            _ => arg,
        });
    }
    let stream = device.stream().map_err(message)?;
    let group = if is_square { (8, 8) } else { (64, 1) };
    let grid = Grid::groups(one.groups).group(group);
    // SAFETY: the kernels stay within the buffers.
    unsafe { kernel.launch(&stream, grid, args) }.and_then(|done| done.wait().map(drop)).map_err(message)?;
    let found = out.to_vec().map_err(message)?;
    let found: Vec<u32> = found.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    match found.iter().zip(&one.expected).position(|(a, b)| a != b) {
        Some(at) => {
            Err(format!("{}: word {at} is {:#x} instead of {:#x}", one.name, found[at], one.expected[at]))
        }
        None => Ok(()),
    }
}

#[test]
fn opencl() {
    let source = elinvar_driver::Source::named("kernels.cl", include_str!("kernels.cl"));
    let toolchain = Toolchain::find().expect("clang");
    run(&elinvar_translate::opencl(&toolchain, &source, &Options::default()).expect("valid OpenCL C"), &[]);
}

#[test]
fn cuda() {
    let source = elinvar_driver::Source::named("kernels.cu", include_str!("kernels.cu"));
    let toolchain = Toolchain::find().expect("clang");
    run(&elinvar_translate::cuda(&toolchain, &source, &CudaOptions::default()).expect("valid CUDA C++"), &[]);
}

#[test]
fn wgsl() {
    let source = Source::named("kernels.wgsl", include_str!("kernels.wgsl"));
    let translation =
        elinvar_translate::shader(&source, Language::Wgsl).unwrap_or_else(|error| panic!("{error}"));
    // WGSL declares that a buffer is atomic.
    run(&translation, &["histogram"]);
}
