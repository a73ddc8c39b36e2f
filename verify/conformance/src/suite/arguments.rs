//! Passing of arguments: scalars of every type, structs, slices, argument indices.

use bytemuck::{Pod, Zeroable};
use elinvar::{Arg, Device, Dim3, Grid, bf16, f16};

use super::{CaseResult, expect_all, kernel, run};

cases!("arguments": every_scalar_by_value, every_scalar_in_a_buffer, struct_by_reference, struct_elements,
    two_uint3_beside_each_other, dim3_as_three_uints, slices_with_offset, aliasing_arguments,
    buffer_indices_out_of_order, constant_array);

fn every_scalar_by_value(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "scalars",
        "kernel void scalars(device char* a, device uchar* b, device short* c, device ushort* d, device int* e,
                device uint* f, device long* g, device ulong* h, device half* i, device bfloat* j,
                device float* k, device bool* l,
                constant char& va, constant uchar& vb, constant short& vc, constant ushort& vd, constant int& ve,
                constant uint& vf, constant long& vg, constant ulong& vh, constant half& vi, constant bfloat& vj,
                constant float& vk, constant bool& vl) {
            *a = va; *b = vb; *c = vc; *d = vd; *e = ve; *f = vf; *g = vg; *h = vh; *i = vi; *j = vj; *k = vk;
            *l = vl;
        }",
    )?;
    let mut a = device.buffer::<i8>(1)?;
    let mut b = device.buffer::<u8>(1)?;
    let mut c = device.buffer::<i16>(1)?;
    let mut d = device.buffer::<u16>(1)?;
    let mut e = device.buffer::<i32>(1)?;
    let mut f = device.buffer::<u32>(1)?;
    let mut g = device.buffer::<i64>(1)?;
    let mut h = device.buffer::<u64>(1)?;
    let mut i = device.buffer::<f16>(1)?;
    let mut j = device.buffer::<bf16>(1)?;
    let mut k = device.buffer::<f32>(1)?;
    let mut l = device.buffer::<u8>(1)?;
    let mut list: Vec<Arg> = vec![
        (&mut a).into(),
        (&mut b).into(),
        (&mut c).into(),
        (&mut d).into(),
        (&mut e).into(),
        (&mut f).into(),
        (&mut g).into(),
        (&mut h).into(),
        (&mut i).into(),
        (&mut j).into(),
        (&mut k).into(),
        (&mut l).into(),
    ];
    list.extend([
        Arg::from(-101_i8),
        Arg::from(202_u8),
        Arg::from(-30_003_i16),
        Arg::from(60_006_u16),
        Arg::from(-2_000_000_001_i32),
        Arg::from(4_000_000_003_u32),
        Arg::from(i64::MIN + 5),
        Arg::from(u64::MAX - 6),
        Arg::from(f16::from_f32(-1.625)),
        Arg::from(bf16::from_f32(3.0e20)),
        Arg::from(1.0e-30_f32),
        Arg::from(true),
    ]);
    run(device, &kernel, Grid::threads(1), list)?;
    assert_eq!(a.to_vec()?, [-101]);
    assert_eq!(b.to_vec()?, [202]);
    assert_eq!(c.to_vec()?, [-30_003]);
    assert_eq!(d.to_vec()?, [60_006]);
    assert_eq!(e.to_vec()?, [-2_000_000_001]);
    assert_eq!(f.to_vec()?, [4_000_000_003]);
    assert_eq!(g.to_vec()?, [i64::MIN + 5]);
    assert_eq!(h.to_vec()?, [u64::MAX - 6]);
    assert_eq!(i.to_vec()?, [f16::from_f32(-1.625)]);
    assert_eq!(j.to_vec()?, [bf16::from_f32(3.0e20)]);
    assert_eq!(k.to_vec()?, [1.0e-30]);
    assert_eq!(l.to_vec()?, [1]);
    Ok(())
}

/// Copies a buffer of `msl` elements and compares the bits of every element.
fn copy_of<T: Pod>(device: &Device, msl: &str, values: &[T]) -> CaseResult {
    let body = format!(
        "kernel void copy_all(device const {msl}* in [[buffer(0)]], device {msl}* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {{ out[i] = in[i]; }}"
    );
    let kernel = kernel(device, "copy_all", &body)?;
    let input = device.buffer_with_data(values)?;
    let mut out = device.buffer::<T>(values.len())?;
    run(device, &kernel, Grid::threads(values.len()), (&input, &mut out))?;
    let got = out.to_vec()?;
    for (i, (got, value)) in got.iter().zip(values).enumerate() {
        assert_eq!(bytemuck::bytes_of(got), bytemuck::bytes_of(value), "{msl}, element {i}");
    }
    Ok(())
}

fn every_scalar_in_a_buffer(device: &Device) -> CaseResult {
    copy_of::<i8>(device, "char", &(i8::MIN..=i8::MAX).collect::<Vec<_>>())?;
    copy_of::<u8>(device, "uchar", &(0..=u8::MAX).collect::<Vec<_>>())?;
    copy_of::<i16>(device, "short", &(i16::MIN..=i16::MAX).collect::<Vec<_>>())?;
    copy_of::<u16>(device, "ushort", &(0..=u16::MAX).collect::<Vec<_>>())?;
    copy_of::<i32>(device, "int", &[0, -1, i32::MIN, i32::MAX, 12_345])?;
    copy_of::<u32>(device, "uint", &[0, 1, u32::MAX, 1 << 31])?;
    copy_of::<i64>(device, "long", &[0, -1, i64::MIN, i64::MAX])?;
    copy_of::<u64>(device, "ulong", &[0, 1, u64::MAX, 1 << 63])?;
    copy_of::<f32>(device, "float", &[0.0, -0.0, 1.5, f32::MIN_POSITIVE, f32::MAX, f32::INFINITY, f32::NAN])?;
    copy_of::<f16>(device, "half", &(0..=u16::MAX).map(f16::from_bits).collect::<Vec<_>>())?;
    copy_of::<bf16>(device, "bfloat", &(0..=u16::MAX).map(bf16::from_bits).collect::<Vec<_>>())?;
    copy_of::<u8>(device, "bool", &[0, 1, 1, 0, 0, 1])?;
    copy_of::<[f32; 4]>(device, "float4", &[[1.0, 2.0, 3.0, 4.0], [-5.0, 6.0, -7.0, 8.0]])?;
    copy_of::<[u16; 2]>(device, "ushort2", &[[1, 2], [3, 4], [65_535, 0]])?;
    copy_of::<[f32; 3]>(device, "packed_float3", &[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])
}

/// `struct { float3 a; half b; bool c; uint d; }` with Metal's layout: float3 takes 16 bytes.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
struct Params {
    a: [f32; 4],
    b: f16,
    c: u8,
    pad: u8,
    d: u32,
    tail: [u32; 2],
}

const PARAMS: &str = "struct Params { float3 a; half b; bool c; uint d; };";

fn params(i: u32) -> Params {
    let f = i as f32;
    let a = [f, f + 0.5, -f, 0.0];
    Params { a, b: f16::from_f32(f * 0.25), c: (i % 2) as u8, pad: 0, d: i * 3, tail: [0; 2] }
}

fn struct_by_reference(device: &Device) -> CaseResult {
    let body = format!(
        "{PARAMS}
        kernel void read_params(constant Params& p [[buffer(0)]], device float* out [[buffer(1)]]) {{
            out[0] = p.a.x; out[1] = p.a.y; out[2] = p.a.z; out[3] = p.b; out[4] = p.c ? 1.0f : 0.0f;
            out[5] = p.d; out[6] = sizeof(Params);
        }}"
    );
    let kernel = kernel(device, "read_params", &body)?;
    let mut out = device.buffer::<f32>(7)?;
    run(device, &kernel, Grid::threads(1), (Arg::value(&params(9)), &mut out))?;
    assert_eq!(out.to_vec()?, [9.0, 9.5, -9.0, 2.25, 1.0, 27.0, 32.0]);
    Ok(())
}

fn struct_elements(device: &Device) -> CaseResult {
    let body = format!(
        "{PARAMS}
        kernel void change(device Params* p [[buffer(0)]], uint i [[thread_position_in_grid]]) {{
            p[i].a *= 2.0f; p[i].b += half(1); p[i].c = !p[i].c; p[i].d += i;
        }}"
    );
    let kernel = kernel(device, "change", &body)?;
    let mut data = device.buffer_with_data(&(0..100).map(params).collect::<Vec<_>>())?;
    run(device, &kernel, Grid::threads(100), (&mut data,))?;
    expect_all(&data.to_vec()?, |i| {
        let p = params(i as u32);
        Params {
            a: [p.a[0] * 2.0, p.a[1] * 2.0, p.a[2] * 2.0, 0.0],
            b: f16::from_f32(p.b.to_f32() + 1.0),
            c: 1 - p.c,
            d: p.d + i as u32,
            ..p
        }
    });
    Ok(())
}

fn two_uint3_beside_each_other(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "two_sizes",
        "kernel void two_sizes(device uint* out [[buffer(0)]], constant uint3& a [[buffer(1)]],
                constant uint3& b [[buffer(2)]]) {
            out[0] = a.x; out[1] = a.y; out[2] = a.z; out[3] = b.x; out[4] = b.y; out[5] = b.z;
        }",
    )?;
    let mut out = device.buffer::<u32>(6)?;
    run(device, &kernel, Grid::threads(1), (&mut out, Dim3::new(1, 2, 3), Dim3::new(40, 50, 60)))?;
    assert_eq!(out.to_vec()?, [1, 2, 3, 40, 50, 60]);
    Ok(())
}

fn dim3_as_three_uints(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "six",
        "kernel void six(device uint* out, constant uint& ax, constant uint& ay, constant uint& az,
                constant uint3& b, constant uint& last) {
            out[0] = ax; out[1] = ay; out[2] = az; out[3] = b.x; out[4] = b.y; out[5] = b.z; out[6] = last;
        }",
    )?;
    let mut out = device.buffer::<u32>(7)?;
    let args = (&mut out, Dim3::new(1, 2, 3), Dim3::new(4, 5, 6), 7_u32);
    run(device, &kernel, Grid::threads(1), args)?;
    assert_eq!(out.to_vec()?, [1, 2, 3, 4, 5, 6, 7]);
    Ok(())
}

fn slices_with_offset(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "add_to",
        "kernel void add_to(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { out[i] += in[i]; }",
    )?;
    let input = device.buffer_with_data(&(0..100).collect::<Vec<u32>>())?;
    let mut out = device.buffer_with_data(&[1000_u32; 50])?;
    run(device, &kernel, Grid::threads(20), (input.slice(37..57)?, out.slice_mut(11..31)?))?;
    expect_all(&out.to_vec()?, |i| if (11..31).contains(&i) { 1000 + (i - 11 + 37) as u32 } else { 1000 });
    Ok(())
}

/// Two arguments may refer to the same memory.
fn aliasing_arguments(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "reread",
        "kernel void reread(device const uint* in [[buffer(0)]], device uint* out [[buffer(1)]],
                uint i [[thread_position_in_grid]]) {
            uint before = in[i];
            out[i] = before + 1u;
            out[i] = in[i] * 10u + before;
        }",
    )?;
    let mut data = device.buffer_with_data(&(0..64).collect::<Vec<u32>>())?;
    let same = data.clone();
    run(device, &kernel, Grid::threads(64), (&same, &mut data))?;
    expect_all(&data.to_vec()?, |i| (i as u32 + 1) * 10 + i as u32);
    Ok(())
}

fn buffer_indices_out_of_order(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "shuffled",
        "kernel void shuffled(constant uint& b [[buffer(7)]], uint i [[thread_position_in_grid]],
                device uint* out [[buffer(2)]], constant uint& a [[buffer(5)]]) { out[i] = a * 100u + b + i; }",
    )?;
    let indices: Vec<u32> = kernel.signature().args.iter().map(|a| a.index).collect();
    assert_eq!(indices, [7, 2, 5]);
    let mut out = device.buffer::<u32>(10)?;
    run(device, &kernel, Grid::threads(10), (3_u32, &mut out, 5_u32))?;
    expect_all(&out.to_vec()?, |i| 503 + i as u32);
    Ok(())
}

fn constant_array(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "lookup",
        "constant float weights[5] = {0.5, -1.0, 2.0, 0.25, 8.0};
        kernel void lookup(device float* out [[buffer(0)]], constant float* scale [[buffer(1)]],
                uint i [[thread_position_in_grid]]) { out[i] = weights[i % 5u] * scale[i % 3u]; }",
    )?;
    let scale = device.buffer_with_data(&[1.0_f32, 2.0, 4.0])?;
    let mut out = device.buffer::<f32>(30)?;
    run(device, &kernel, Grid::threads(30), (&mut out, &scale))?;
    expect_all(&out.to_vec()?, |i| [0.5, -1.0, 2.0, 0.25, 8.0][i % 5] * [1.0, 2.0, 4.0][i % 3]);
    Ok(())
}
