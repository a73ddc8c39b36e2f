//! Validation of launch arguments: every error with its message, and unusual arguments that are valid.

use crate::support;

use bytemuck::{Pod, Zeroable};
use elinvar::driver::{Access, Arg as Parameter, ArgKind, Binding, Command, ElementType, Scalar};
use elinvar::{Arg, Buffer, Device, Dim3, Grid, Kernel, Storage, Threadgroup, bf16, f16};
use elinvar_conformance::sim::Sim;
use support::{Bench, constant, invalid, launch, pointer, signature, structure, threadgroup, uint3};

#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Params {
    scale: f32,
    count: u32,
}

fn out() -> Parameter {
    pointer("out", Scalar::F32, Access::ReadWrite)
}

fn input(scalar: Scalar) -> Parameter {
    pointer("a", scalar, Access::Read)
}

fn vector(base: Parameter, scalar: Scalar, lanes: u32, packed: bool) -> Parameter {
    let slots = if lanes == 3 && !packed { 4 } else { u64::from(lanes) };
    let element_size = slots * scalar.size();
    let element_align = if packed { scalar.size() } else { element_size };
    Parameter { element: ElementType::Vector { scalar, lanes, packed }, element_size, element_align, ..base }
}

/// The bindings of the last dispatch.
fn bindings(bench: &Bench) -> Vec<Binding> {
    match bench.sim.commands().pop() {
        Some(Command::Dispatch(dispatch)) => dispatch.bindings,
        other => panic!("expected a dispatch, got {other:?}"),
    }
}

fn bytes(bench: &Bench, index: usize) -> Vec<u8> {
    match &bindings(bench)[index] {
        Binding::Bytes(bytes) => bytes.to_vec(),
        other => panic!("expected bytes, got {other:?}"),
    }
}

fn add(bench: &Bench) -> Kernel {
    let args = vec![input(Scalar::F32), out(), constant("n", Scalar::U32)];
    bench.declare(signature("add", args), |_| Ok(()))
}

#[test]
fn count() {
    let bench = Bench::new();
    let kernel = add(&bench);
    let mut buffer = bench.device.buffer::<f32>(4).unwrap();
    let expected =
        "kernel `add` takes 3 arguments (device const float* a, device float* out, constant uint& n)";
    assert_eq!(
        invalid(bench.launch(&kernel, (&buffer.clone(), &mut buffer))),
        format!("{expected}, 2 given")
    );
    let four = (&buffer.clone(), &mut buffer, 1u32, 2u32);
    assert_eq!(invalid(bench.launch(&kernel, four)), format!("{expected}, 4 given"));
    assert_eq!(invalid(bench.launch(&kernel, ())), format!("{expected}, 0 given"));
    let none = bench.declare(signature("none", vec![]), |_| Ok(()));
    assert_eq!(invalid(bench.launch(&none, (1u8,))), "kernel `none` takes no arguments, 1 given");
    bench.launch(&none, ()).unwrap().wait().unwrap();
}

#[test]
fn nothing_is_recorded_when_refused() {
    let bench = Bench::new();
    invalid(bench.launch(&add(&bench), ()));
    assert!(bench.sim.commands().is_empty());
}

#[test]
fn element_types() {
    let bench = Bench::new();
    let kernel = add(&bench);
    let mut out = bench.device.buffer::<f32>(4).unwrap();
    let a = bench.device.buffer::<u32>(4).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (&a, &mut out, 4u32))),
        "kernel `add`, argument 0 `a` (device const float*): expected float, given a buffer of `u32` (uint)"
    );
    assert_eq!(
        invalid(bench.launch(&kernel, (&out.clone(), &mut out, 4i32))),
        "kernel `add`, argument 2 `n` (constant uint&): expected uint, given a value of `i32` (int)"
    );
    let params = bench.device.buffer::<Params>(4).unwrap();
    let text = invalid(bench.launch(&kernel, (&params, &mut out, 4u32)));
    assert!(
        text.starts_with(
            "kernel `add`, argument 0 `a` (device const float*): expected float (4 bytes), given"
        )
    );
    assert!(text.ends_with("Params` (8 bytes)"), "{text}");
    let half = bench.kernel(vec![input(Scalar::F16)]);
    let a = bench.device.buffer::<bf16>(4).unwrap();
    assert_eq!(
        invalid(bench.launch(&half, (&a,))),
        "kernel `k`, argument 0 `a` (device const half*): expected half, given a buffer of \
         `half::bfloat::bf16` (bfloat)"
    );
}

#[test]
fn every_scalar_arrives() {
    let bench = Bench::new();
    let scalars = [
        (Scalar::I8, Arg::from(-1i8), vec![255]),
        (Scalar::U8, 2u8.into(), vec![2]),
        (Scalar::I16, (-2i16).into(), (-2i16).to_ne_bytes().into()),
        (Scalar::U16, 3u16.into(), 3u16.to_ne_bytes().into()),
        (Scalar::I32, (-3).into(), (-3i32).to_ne_bytes().into()),
        (Scalar::U32, 4u32.into(), 4u32.to_ne_bytes().into()),
        (Scalar::I64, (-4i64).into(), (-4i64).to_ne_bytes().into()),
        (Scalar::U64, 5u64.into(), 5u64.to_ne_bytes().into()),
        (Scalar::F16, f16::from_f32(1.5).into(), f16::from_f32(1.5).to_ne_bytes().into()),
        (Scalar::BF16, bf16::from_f32(1.5).into(), bf16::from_f32(1.5).to_ne_bytes().into()),
        (Scalar::F32, 1.5f32.into(), 1.5f32.to_ne_bytes().into()),
        (Scalar::Bool, true.into(), vec![1]),
        (Scalar::Bool, 1u8.into(), vec![1]),
    ];
    for (at, (scalar, arg, expected)) in scalars.into_iter().enumerate() {
        let kernel = bench.declare(signature(&format!("k{at}"), vec![constant("x", scalar)]), |_| Ok(()));
        bench.launch(&kernel, [arg]).unwrap();
        assert_eq!(bytes(&bench, 0), expected, "{scalar:?}");
    }
}

#[test]
fn double_is_refused() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![constant("x", Scalar::F32)]);
    assert_eq!(
        invalid(bench.launch(&kernel, (2.0,))),
        "kernel `k`, argument 0 `x` (constant float&): given a value of f64, but MSL has no double; use f32"
    );
    let buffer = bench.device.buffer::<f64>(1).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (&buffer,))),
        "kernel `k`, argument 0 `x` (constant float&): given a buffer of f64, but MSL has no double; use f32"
    );
    let params = bench.declare(signature("p", vec![structure(constant("p", Scalar::F32), 8, 8)]), |_| Ok(()));
    assert!(invalid(bench.launch(&params, (&buffer,))).contains("MSL has no double"));
}

#[test]
fn read_only_buffers() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![out()]);
    let mut buffer = bench.device.buffer::<f32>(4).unwrap();
    let expected =
        "kernel `k`, argument 0 `out` (device float*): the kernel may write to it; pass the buffer as `&mut`";
    assert_eq!(invalid(bench.launch(&kernel, (&buffer,))), expected);
    assert_eq!(invalid(bench.launch(&kernel, (buffer.slice(0..2).unwrap(),))), expected);
    bench.launch(&kernel, (buffer.slice_mut(0..2).unwrap(),)).unwrap();
    bench.launch(&kernel, (&mut buffer,)).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (1f32,))),
        "kernel `k`, argument 0 `out` (device float*): the kernel may write to it; pass a `&mut` buffer \
         instead of a value"
    );
}

#[test]
fn unnamed_parameters() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![Parameter { name: String::new(), ..out() }]);
    let buffer = bench.device.buffer::<f32>(1).unwrap();
    assert!(
        invalid(bench.launch(&kernel, (&buffer,))).starts_with("kernel `k`, argument 0 (device float*): ")
    );
}

#[test]
fn vectors() {
    let bench = Bench::new();
    let float4 = bench.kernel(vec![vector(input(Scalar::F32), Scalar::F32, 4, false)]);
    bench.launch(&float4, (&bench.device.buffer::<f32>(8).unwrap(),)).unwrap();
    bench.launch(&float4, (&bench.device.buffer::<[f32; 4]>(2).unwrap(),)).unwrap();
    bench.launch(&float4, (Arg::value(&[1f32; 4]),)).unwrap();
    bench.launch(&float4, (&bench.device.buffer::<f32>(10).unwrap(),)).unwrap();
    assert_eq!(
        invalid(bench.launch(&float4, (&bench.device.buffer::<f32>(3).unwrap(),))),
        "kernel `k`, argument 0 `a` (device const float4*): needs at least 16 bytes, the buffer has 12"
    );
    assert_eq!(
        invalid(bench.launch(&float4, (&bench.device.buffer::<u32>(8).unwrap(),))),
        "kernel `k`, argument 0 `a` (device const float4*): expected float4, given a buffer of `u32` (uint)"
    );
    // A `float3` has the size of four floats, so `[f32; 3]` has another layout.
    let float3 =
        bench.declare(signature("v", vec![vector(input(Scalar::F32), Scalar::F32, 3, false)]), |_| Ok(()));
    assert_eq!(
        invalid(bench.launch(&float3, (&bench.device.buffer::<[f32; 3]>(4).unwrap(),))),
        "kernel `v`, argument 0 `a` (device const float3*): expected float3, given a buffer of `[f32; 3]` (float3)"
    );
    let packed =
        bench.declare(signature("p", vec![vector(input(Scalar::F32), Scalar::F32, 3, true)]), |_| Ok(()));
    bench.launch(&packed, (&bench.device.buffer::<[f32; 3]>(4).unwrap(),)).unwrap();
    assert!(invalid(bench.launch(&packed, (2f32,))).contains("the value has 4"));
}

#[test]
fn atomics_take_their_scalar() {
    let bench = Bench::new();
    let counter = Parameter { element: ElementType::Atomic(Scalar::U32), ..out() };
    let kernel = bench.kernel(vec![counter]);
    bench.launch(&kernel, (&mut bench.device.buffer::<u32>(1).unwrap(),)).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (&mut bench.device.buffer::<i32>(1).unwrap(),))),
        "kernel `k`, argument 0 `out` (device atomic_uint*): expected atomic_uint, given a buffer of `i32` (int)"
    );
}

#[test]
fn bytes_for_bools() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![pointer("flags", Scalar::Bool, Access::ReadWrite)]);
    bench.launch(&kernel, (&mut bench.device.buffer::<u8>(3).unwrap(),)).unwrap();
    invalid(bench.launch(&kernel, (&mut bench.device.buffer::<i8>(3).unwrap(),)));
}

#[test]
fn structs() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![structure(constant("p", Scalar::F32), 8, 4)]);
    let params = Params { scale: 2.0, count: 3 };
    bench.launch(&kernel, (Arg::value(&params),)).unwrap();
    assert_eq!(bytes(&bench, 0), bytemuck::bytes_of(&params));
    bench.launch(&kernel, (&bench.device.buffer_with_data(&[params]).unwrap(),)).unwrap();
    bench.launch(&kernel, (Arg::bytes([0; 8]),)).unwrap();
    bench.launch(&kernel, (Arg::bytes([0; 12]),)).unwrap();
    bench.launch(&kernel, (&bench.device.buffer::<u8>(9).unwrap(),)).unwrap();
    let place = "kernel `k`, argument 0 `p` (constant Params&)";
    assert_eq!(
        invalid(bench.launch(&kernel, (Arg::bytes([0; 7]),))),
        format!("{place}: needs at least 8 bytes, the value has 7")
    );
    assert_eq!(
        invalid(bench.launch(&kernel, (&bench.device.buffer::<u8>(7).unwrap(),))),
        format!("{place}: needs at least 8 bytes, the buffer has 7")
    );
    assert_eq!(
        invalid(bench.launch(&kernel, (Arg::value(&[0u32; 5]),))),
        format!("{place}: expected Params (8 bytes), given a value of `[u32; 5]` (20 bytes)")
    );
    assert_eq!(
        invalid(bench.launch(&kernel, (&bench.device.buffer::<f32>(2).unwrap(),))),
        format!("{place}: expected Params, given a buffer of `f32` (float)")
    );
}

#[test]
fn pointers_to_structs() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![structure(input(Scalar::F32), 8, 4)]);
    let place = "kernel `k`, argument 0 `a` (device const Params*)";
    bench.launch(&kernel, (&bench.device.buffer::<Params>(0).unwrap(),)).unwrap();
    bench.launch(&kernel, (&bench.device.buffer::<u8>(16).unwrap(),)).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (&bench.device.buffer::<u8>(0).unwrap(),))),
        format!("{place}: needs at least 8 bytes, the buffer has 0")
    );
    bench.launch(&kernel, (&bench.device.buffer::<u8>(20).unwrap(),)).unwrap();
}

#[test]
fn sizes() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![constant("n", Scalar::U32)]);
    assert_eq!(
        invalid(bench.launch(&kernel, (&bench.device.buffer::<u32>(0).unwrap(),))),
        "kernel `k`, argument 0 `n` (constant uint&): needs at least 4 bytes, the buffer has 0"
    );
    assert_eq!(
        invalid(bench.launch(&kernel, (Arg::values(&[1u32, 2]),))),
        "kernel `k`, argument 0 `n` (constant uint&): expected a value of 4 bytes, given 8"
    );
    let weights =
        bench.declare(signature("w", vec![Parameter { constant: true, ..input(Scalar::F32) }]), |_| Ok(()));
    bench.launch(&weights, (Arg::values(&[1f32, 2.0, 3.0]),)).unwrap();
    assert_eq!(bytes(&bench, 0).len(), 12);
    bench.launch(&weights, (2f32,)).unwrap();
    bench.launch(&weights, (&bench.device.buffer::<f32>(0).unwrap(),)).unwrap();
    let none: [f32; 0] = [];
    assert_eq!(
        invalid(bench.launch(&weights, (Arg::values(&none),))),
        "kernel `w`, argument 0 `a` (constant float*): needs at least 4 bytes, the value has 0"
    );
}

#[test]
fn types_known_at_run_time() {
    let bench = Bench::new();
    let kernel = add(&bench);
    let a = bench.device.buffer::<u8>(16).unwrap();
    let mut out = bench.device.buffer::<u8>(16).unwrap();
    let list = |a_type: Scalar, out: &mut Buffer<u8>| {
        let n = Arg::bytes(4u32.to_ne_bytes()).of(Scalar::U32);
        vec![Arg::from(&a).of(a_type), Arg::from(out).of(Scalar::F32), n]
    };
    bench.launch(&kernel, list(Scalar::F32, &mut out)).unwrap();
    bench.launch(&kernel, &list(Scalar::F32, &mut out)[..]).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, list(Scalar::U32, &mut out))),
        "kernel `add`, argument 0 `a` (device const float*): expected float, given a buffer of `uint`"
    );
    let odd = bench.device.buffer::<u8>(15).unwrap();
    bench
        .launch(&kernel, (Arg::from(&odd).of(Scalar::F32), Arg::from(&mut out).of(Scalar::F32), 4u32))
        .unwrap();
}

#[test]
fn alignment_of_slices() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![vector(input(Scalar::F32), Scalar::F32, 2, false)]);
    let buffer = bench.device.buffer::<f32>(16).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (buffer.slice(3..5).unwrap(),))),
        "kernel `k`, argument 0 `a` (device const float2*): the slice begins at byte 12, which is not a multiple of 8"
    );
    bench.launch(&kernel, (buffer.slice(4..6).unwrap(),)).unwrap();
    match &bindings(&bench)[0] {
        Binding::Memory(slice) => assert_eq!((slice.offset, slice.len), (16, 8)),
        other => panic!("expected memory, got {other:?}"),
    }
}

#[test]
fn threadgroup_memory() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![threadgroup("tile"), threadgroup("sums")]);
    bench.launch(&kernel, (Threadgroup::bytes(100), Threadgroup::of::<f32>(8))).unwrap();
    assert!(matches!(bindings(&bench)[..], [Binding::Threadgroup(100), Binding::Threadgroup(32)]));
    assert_eq!(
        invalid(bench.launch(&kernel, (Threadgroup::bytes(32 * 1024 - 16), Threadgroup::bytes(17)))),
        "kernel `k`: 32784 bytes of threadgroup memory given and 0 declared by the kernel; device `sim` allows 32768"
    );
    invalid(bench.launch(&kernel, (Threadgroup::bytes(usize::MAX), Threadgroup::bytes(usize::MAX))));
    assert_eq!(
        invalid(bench.launch(&kernel, (1f32, 2f32))),
        "kernel `k`, argument 0 `tile` (threadgroup float*): requires a size of threadgroup memory, \
         such as `Threadgroup::bytes(n)`"
    );
    let plain = bench.declare(signature("plain", vec![out()]), |_| Ok(()));
    assert_eq!(
        invalid(bench.launch(&plain, (Threadgroup::bytes(4),))),
        "kernel `plain`, argument 0 `out` (device float*): given threadgroup memory, but it is not a \
         threadgroup argument"
    );
}

#[test]
fn threadgroup_memory_of_the_kernel_counts() {
    let bench = Bench::new();
    let mut declared = signature("big", vec![threadgroup("tile")]);
    declared.code = Some(elinvar::CodeFacts { threadgroup_memory: 32 * 1024 - 16, ..Default::default() });
    let kernel = bench.declare(declared, |_| Ok(()));
    bench.launch(&kernel, (Threadgroup::bytes(16),)).unwrap();
    assert!(
        invalid(bench.launch(&kernel, (Threadgroup::bytes(17),)))
            .contains("32 bytes of threadgroup memory given")
    );
}

#[test]
fn sizes_as_one_uint3_or_three_uints() {
    let bench = Bench::new();
    let two = bench.kernel(vec![uint3("from"), uint3("to"), constant("n", Scalar::U32)]);
    bench.launch(&two, (Dim3::new(1, 2, 3), Dim3::new(4, 5, 6), 7u32)).unwrap();
    assert_eq!(bytes(&bench, 0), bytemuck::cast_slice::<u32, u8>(&[1, 2, 3, 0]));
    assert_eq!(bytes(&bench, 1), bytemuck::cast_slice::<u32, u8>(&[4, 5, 6, 0]));
    assert_eq!(bytes(&bench, 2), 7u32.to_ne_bytes());

    let three = ["w", "h", "d", "n"].map(|name| constant(name, Scalar::U32));
    let three = bench.declare(signature("three", three.into()), |_| Ok(()));
    bench.launch(&three, (Dim3::new(8, 9, 10), 11u32)).unwrap();
    let words: Vec<u8> = (0..4).flat_map(|i| bytes(&bench, i)).collect();
    assert_eq!(words, bytemuck::cast_slice::<u32, u8>(&[8, 9, 10, 11]));
    assert_eq!(
        invalid(bench.launch(&three, (8u32, 9u32, Dim3::new(1, 1, 1)))),
        "kernel `three`, argument 2 `d` (constant uint&): a `Dim3` requires a read-only `uint3`, or three \
         consecutive `uint` arguments"
    );
    let text = invalid(bench.launch(&three, (Dim3::new(1, 1, 1),)));
    assert!(text.starts_with("kernel `three` takes 4 arguments"), "{text}");
}

#[test]
fn foreign_devices() {
    let bench = Bench::new();
    let other = Device::new(Sim::named("other"));
    let kernel = bench.kernel(vec![input(Scalar::F32)]);
    let buffer = other.buffer::<f32>(1).unwrap();
    assert_eq!(
        invalid(bench.launch(&kernel, (&buffer,))),
        "kernel `k`, argument 0 `a` (device const float*): the buffer is of device `other`, used with device `sim`"
    );
    let stream = other.stream().unwrap();
    assert_eq!(
        invalid(launch(&kernel, &stream, Grid::threads(1), (&buffer,))),
        "kernel `k` is of device `sim`, used with device `other`"
    );
    let mut target = other.buffer::<f32>(1).unwrap();
    assert_eq!(
        invalid(bench.stream.fill(&mut target, 1.0)),
        "fill: the buffer is of device `other`, used with device `sim`"
    );
    // One side of a copy may be of another device, but not both.
    assert_eq!(
        invalid(bench.stream.copy(&buffer, &mut target)),
        "copy: the target is of device `other`, used with device `sim`"
    );
    let twin = Device::new(Sim::new()).buffer::<f32>(1).unwrap();
    assert!(invalid(bench.launch(&kernel, (&twin,))).ends_with("(another device of that name)"));
    // The same driver object through another handle is the same device.
    let again = Device::new(bench.sim.clone()).buffer::<f32>(1).unwrap();
    bench.launch(&kernel, (&again,)).unwrap();
}

#[test]
fn private_memory_goes_to_kernels() {
    let bench = Bench::new();
    let kernel = bench.kernel(vec![Parameter { kind: ArgKind::Reference, ..out() }]);
    bench.launch(&kernel, (&mut bench.device.buffer_in::<f32>(1, Storage::Private).unwrap(),)).unwrap();
}
