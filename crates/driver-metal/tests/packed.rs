//! Sources in bundles: the front end runs when they are packed, and not on the device.
#![cfg(elinvar_apple)]

mod support;

use elinvar_code::Bundle;
use elinvar_code::user_cache;
use elinvar_driver::{
    Access, ArgKind, Binding, Constant, Error, InlineBytes, MathMode, Packed, PipelineOptions, Scalar,
    Source, Storage,
};
use elinvar_driver_metal::Packer;
use support::{devices, dispatch, memory, run, whole, words};

const TEXT: &str = "#include <metal_stdlib>
constant uint N [[function_constant(2)]];
struct P { uint a; uint b; };
kernel void add(device const uint* in [[buffer(1)]], device uint* out [[buffer(0)]], constant P& p [[buffer(4)]],
                uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup uint part[64];
    part[t] = in[i];
    threadgroup_barrier(metal::mem_flags::mem_threadgroup);
    out[i] = part[t] * N + p.a + p.b; }
kernel void twice(device uint* x [[buffer(3)]], uint i [[thread_position_in_grid]]) { x[i] = 2 * i; }";

fn with(n: u32, checked: bool) -> PipelineOptions {
    let constant = Constant { key: "N".into(), scalar: Scalar::U32, bytes: n.to_ne_bytes().to_vec() };
    PipelineOptions { constants: vec![constant], checked, ..PipelineOptions::default() }
}

/// The source in a bundle: its text, or a library in the format of the stand-ins.
fn packed(library: bool) -> Source {
    let (source, mut bundle) = (Source::named("k.metal", TEXT).math(MathMode::Safe), Bundle::default());
    let bytes = [b"elinvar-metallib 1\n", TEXT.as_bytes()].concat();
    let packer = Packer::new(user_cache(), &source, library.then_some(&bytes), &mut bundle).unwrap();
    for (kernel, options) in [
        ("add", with(5, false)),
        ("add", with(6, false)),
        ("add", with(5, true)),
        ("twice", PipelineOptions::default()),
    ] {
        let outcome = packer.pack(kernel, &options, &mut bundle);
        assert_eq!(outcome.is_ok(), !options.checked, "{outcome:?}");
    }
    let packed = Some(Packed { bundle: bundle.to_bytes().into(), key: source.identity() });
    Source { packed, math: MathMode::Safe, ..Source::named("k.metal", "") }
}

#[test]
fn signatures_are_true_without_the_front_end() {
    for (device, library) in devices().iter().flat_map(|device| [(device, false), (device, true)]) {
        let library = device.compile(&packed(library)).unwrap();
        assert_eq!(library.warnings(), []);
        let names: Vec<&str> = library.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
        assert_eq!(names, ["add", "twice"]);
        assert_eq!((library.constants().len(), library.constants()[0].index), (1, 2));
        let twice = library.pipeline("twice", &PipelineOptions::default()).unwrap();
        for n in [5, 6] {
            let add = library.pipeline("add", &with(n, false)).unwrap();
            let signature = add.signature();
            let args: Vec<_> = signature
                .args
                .iter()
                .map(|arg| {
                    (arg.name.as_str(), arg.kind, arg.index, arg.access, arg.constant, arg.element_size)
                })
                .collect();
            // Metal's reflection does not tell references, `constant`, positions and lines.
            assert_eq!(
                args,
                [
                    ("in", ArgKind::Pointer, 1, Access::Read, false, 4),
                    ("out", ArgKind::Pointer, 0, Access::ReadWrite, false, 4),
                    ("p", ArgKind::Reference, 4, Access::Read, true, 8),
                ]
            );
            assert_eq!(
                (signature.file.as_str(), signature.line, signature.builtins.len()),
                ("k.metal", 4, 2)
            );
            assert_eq!(signature.code.map(|code| (code.barriers, code.threadgroup_memory)), Some((1, 256)));
            let (x, y) = (memory(&**device, 4000, Storage::Shared), memory(&**device, 4000, Storage::Shared));
            let p: Vec<u8> = [100_u32, n].iter().flat_map(|word| word.to_ne_bytes()).collect();
            let bindings = vec![
                Binding::Memory(whole(&x)),
                Binding::Memory(whole(&y)),
                Binding::Bytes(InlineBytes::from_slice(&p)),
            ];
            let first = dispatch(&twice, vec![Binding::Memory(whole(&x))], 1000, 50);
            run(&*device.queue().unwrap(), vec![first, dispatch(&add, bindings, 1000, 50)]).unwrap();
            assert!(words(&y).iter().enumerate().all(|(i, word)| *word == 2 * i as u32 * n + 100 + n));
        }
        let refused = |name, options| library.pipeline(name, &options).err().unwrap().to_string();
        let lacks =
            "the bundle has no kernel `add` for Metal, with these constants and without bounds checks";
        assert!(refused("add", with(7, false)).contains(lacks));
        assert!(
            refused("add", with(5, true))
                .contains("threadgroup memory (`part`) may be accessed out of bounds")
        );
        assert_eq!(
            refused("thrice", PipelineOptions::default()),
            "no kernel `thrice` in the packed source; it has `add`, `twice`"
        );
    }
}

#[test]
fn what_metal_rejects_or_the_bundle_lacks_is_an_error() {
    let source = Source::named("k.metal", TEXT);
    let open = |bundle: &Bundle| {
        let packed = Some(Packed { bundle: bundle.to_bytes().into(), key: source.identity() });
        let error = devices()[0].compile(&Source { packed, ..Source::named("k.metal", "") });
        error.map(drop).unwrap_err()
    };
    let mut bundle = Bundle::default();
    Packer::new(user_cache(), &source, Some(b"MTLB\x01\x80"), &mut bundle).unwrap();
    let own = open(&bundle);
    assert!(matches!(&own, Error::Unsupported(text) if text.contains("code for Apple GPUs")), "{own}");
    let mut bundle = Bundle::default();
    Packer::new(user_cache(), &source, Some(b"other"), &mut bundle).unwrap();
    let other = open(&bundle);
    assert!(
        matches!(&other, Error::InvalidArgument(text) if text.contains("Metal library `k.metal`")),
        "{other}"
    );
    let mut bundle = Bundle::default();
    bundle.insert_source(&source, &Ok(Default::default()));
    let none = open(&bundle);
    assert!(matches!(&none, Error::Unsupported(text) if text.contains("--target metal")), "{none}");
}
