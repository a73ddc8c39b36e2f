//! Compiled Metal libraries, in the format of the stand-ins for Apple's libraries.
#![cfg(elinvar_apple)]

mod support;

use elinvar_driver::{
    Access, ArgKind, Binding, Constant, ElementType, Error, MathMode, PipelineOptions, Scalar, Source,
    Storage,
};
use support::{devices, dispatch, memory, run, whole, words};

const SOURCE: &str = "#include <metal_stdlib>
constant uint N [[function_constant(2)]];
kernel void add_n(device const uint* in [[buffer(1)]], device uint* out [[buffer(0)]],
                  uint i [[thread_position_in_grid]]) { out[i] = in[i] + N; }
kernel void twice(device uint* x [[buffer(3)]], uint i [[thread_position_in_grid]]) { x[i] = 2 * i; }";

fn library() -> Source {
    Source::metal_library("k.metallib", [b"elinvar-metallib 1\n", SOURCE.as_bytes()].concat())
}

#[test]
fn the_reflection_says_what_kernels_take() {
    for device in devices() {
        let library = device.compile(&library()).unwrap();
        assert!(
            library.warnings()[0].message.contains("Metal's reflection only"),
            "{:?}",
            library.warnings()
        );
        let names: Vec<&str> = library.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["add_n", "twice"]);
        let constants = library.constants();
        assert_eq!((constants[0].name.as_str(), constants[0].index, constants.len()), ("N", 2, 1));
        let constant = Constant { key: 2.into(), scalar: Scalar::U32, bytes: 5_u32.to_ne_bytes().to_vec() };
        let options =
            PipelineOptions { constants: vec![constant], checked: false, ..PipelineOptions::default() };
        let add = library.pipeline("add_n", &options).unwrap();
        let signature = add.signature();
        assert_eq!((signature.file.as_str(), signature.line), ("k.metallib", 0));
        let mut args: Vec<_> = signature
            .args
            .iter()
            .map(|arg| (arg.index, arg.name.as_str(), arg.kind, arg.access, arg.element.clone()))
            .collect();
        args.sort_by_key(|arg| arg.0);
        let uint = ElementType::Scalar(Scalar::U32);
        assert_eq!(
            args,
            [
                (0, "out", ArgKind::Pointer, Access::ReadWrite, uint.clone()),
                (1, "in", ArgKind::Pointer, Access::Read, uint),
            ]
        );
        let twice = library.pipeline("twice", &PipelineOptions::default()).unwrap();
        let (x, y) = (memory(&*device, 4000, Storage::Shared), memory(&*device, 4000, Storage::Shared));
        let buffers = signature.args.iter().map(|arg| whole(if arg.index == 0 { &y } else { &x }));
        let buffers = buffers.map(Binding::Memory).collect();
        let first = dispatch(&twice, vec![Binding::Memory(whole(&x))], 1000, 50);
        run(&*device.queue().unwrap(), vec![first, dispatch(&add, buffers, 1000, 100)]).unwrap();
        assert!(words(&y).iter().enumerate().all(|(i, word)| *word == 2 * i as u32 + 5));
    }
}

fn refused(source: &Source) -> Error {
    devices()[0].compile(source).map(drop).unwrap_err()
}

#[test]
fn what_cannot_be_done_with_one_is_refused() {
    let own = refused(&Source::metal_library("a.metallib", *b"MTLB\x01\x80"));
    assert!(matches!(&own, Error::Unsupported(text) if text.contains("code for Apple GPUs")), "{own}");
    let none = refused(&Source::metal_library("b.metallib", *b""));
    assert!(matches!(&none, Error::InvalidArgument(text) if text.contains("`b.metallib`")), "{none}");
    for source in [library().define("A", None), library().include_dir("/tmp"), library().math(MathMode::Safe)]
    {
        let error = refused(&source);
        assert!(
            matches!(&error, Error::InvalidArgument(text) if text.contains("it was compiled with")),
            "{error}"
        );
    }
    let library = devices()[0].compile(&library()).unwrap();
    let checked = PipelineOptions { checked: true, ..PipelineOptions::default() };
    let error = library.pipeline("twice", &checked).err().unwrap();
    assert!(matches!(&error, Error::Unsupported(text) if text.contains("front end")), "{error}");
    let error = library.pipeline("thrice", &PipelineOptions::default()).err().unwrap();
    assert_eq!(error.to_string(), "no kernel `thrice` in the source; it has `add_n`, `twice`");
}
