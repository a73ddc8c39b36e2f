//! Argument buffers: pointers in memory, stored by the host as addresses or by another kernel.

use bytemuck::{Pod, Zeroable};
use elinvar::{Arg, Buffer, Device, Grid, f16};

use super::{CaseResult, expect_all, kernel, launch, run};

cases!("argument_buffers": struct_by_value, struct_in_a_buffer, members_with_ids, nested_structs, array_of_pointers, arrays_of_buffers,
    pointers_to_pointers, parts_of_buffers, pointers_written_by_a_kernel, private_memory, freed_by_the_host,
    read_and_written_in_order);

/// `struct Args { device const float* a; device float* b; uint n; }`.
#[repr(C)]
#[derive(Clone, Copy, Pod, Zeroable)]
struct Args {
    a: u64,
    b: u64,
    n: u32,
    pad: u32,
}

const ARGS: &str = "struct Args { device const float* a; device float* b; uint n; };\n";

fn ramp(device: &Device, len: usize) -> elinvar::Result<Buffer<f32>> {
    device.buffer_with_data(&(0..len).map(|i| i as f32 * 0.5).collect::<Vec<_>>())
}

fn struct_by_value(device: &Device) -> CaseResult {
    let body = "kernel void scale(constant Args& args [[buffer(0)]], uint i [[thread_position_in_grid]]) {
        if (i < args.n) args.b[i] = args.a[i] * 3.0f; }";
    let kernel = kernel(device, "scale", &format!("{ARGS}{body}"))?;
    let (a, mut b) = (ramp(device, 100)?, device.buffer_with_data(&[-1.0_f32; 128])?);
    let args = Args { a: a.gpu_address()?, b: b.gpu_address()?, n: 100, pad: 0 };
    let list = (Arg::value(&args), Arg::use_resource(&a), Arg::use_resource(&mut b));
    run(device, &kernel, Grid::threads(128), list)?;
    expect_all(&b.to_vec()?, |i| if i < 100 { i as f32 * 1.5 } else { -1.0 });
    Ok(())
}

fn struct_in_a_buffer(device: &Device) -> CaseResult {
    let body = "kernel void add(device const Args* list [[buffer(0)]], constant float& x [[buffer(1)]],
            uint2 i [[thread_position_in_grid]]) {
        device const Args& args = list[i.y];
        if (i.x < args.n) args.b[i.x] += args.a[i.x] + x; }";
    let kernel = kernel(device, "add", &format!("{ARGS}{body}"))?;
    let a = ramp(device, 50)?;
    let mut outs = Vec::new();
    for k in 0..5 {
        outs.push(device.buffer_with_data(&[k as f32; 50])?);
    }
    let address = |b: &Buffer<f32>| b.gpu_address();
    let list = outs.iter().zip(10..).map(|(b, n)| Ok(Args { a: address(&a)?, b: address(b)?, n, pad: 0 }));
    let list = device.buffer_with_data(&list.collect::<elinvar::Result<Vec<_>>>()?)?;
    // Uses may be at any position in the argument list.
    let mut args: Vec<Arg> = vec![Arg::use_resource(&a), (&list).into()];
    args.extend(outs.iter_mut().map(Arg::use_resource));
    args.push(100.0_f32.into());
    run(device, &kernel, Grid::threads((50, 5)), args)?;
    for (k, out) in outs.iter().enumerate() {
        expect_all(&out.to_vec()?, |i| k as f32 + if i < 10 + k { i as f32 * 0.5 + 100.0 } else { 0.0 });
    }
    Ok(())
}

/// The numbers of `[[id(n)]]` are for encoders; in memory the members are laid out as in any struct.
fn members_with_ids(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "with_ids",
        "enum Id { IdOut = 7, IdWeights = 2 };
        struct Args {
            device uint* out [[id(IdOut)]];
            constant half* weights [[id(IdWeights)]];
            [[id(3)]] uint n;
            float scale [[id(4)]];
            constant uint& offset [[id(9)]];
        };
        kernel void with_ids(constant Args& args [[buffer(0)]], uint i [[thread_position_in_grid]]) {
            args.out[i] = uint(float(args.weights[i % args.n]) * args.scale) + args.offset; }",
    )?;
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    struct Ids {
        out: u64,
        weights: u64,
        n: u32,
        scale: f32,
        offset: u64,
    }
    let mut out = device.buffer::<u32>(40)?;
    let weights = device.buffer_with_data(&[1.0, 2.0, 4.0].map(f16::from_f32))?;
    let offset = device.buffer_with_data(&[1000_u32])?;
    let addresses = [out.gpu_address()?, weights.gpu_address()?, offset.gpu_address()?];
    let ids = Ids { out: addresses[0], weights: addresses[1], n: 3, scale: 2.5, offset: addresses[2] };
    let uses = (Arg::use_resource(&mut out), Arg::use_resource(&weights), Arg::use_resource(&offset));
    run(device, &kernel, Grid::threads(40), (Arg::value(&ids), uses.0, uses.1, uses.2))?;
    expect_all(&out.to_vec()?, |i| 1000 + [2, 5, 10][i % 3]);
    Ok(())
}

/// Nested structs, and a struct reached through a pointer in another.
fn nested_structs(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "nested",
        "struct Tensor { device float* data; uint size[2]; };
        struct Node { Tensor t; device const Node* next; };
        kernel void nested(constant Node& head, uint i [[thread_position_in_grid]]) {
            uint depth = 0;
            for (device const Node* n = head.next; n; n = n->next, ++depth)
                if (i < n->t.size[0] * n->t.size[1]) n->t.data[i] += head.t.data[i] + float(depth);
        }",
    )?;
    #[repr(C)]
    #[derive(Clone, Copy, Pod, Zeroable)]
    struct Node {
        data: u64,
        size: [u32; 2],
        next: u64,
    }
    let source = ramp(device, 12)?;
    let (mut one, mut two) = (device.buffer::<f32>(12)?, device.buffer_with_data(&[8.0_f32; 12])?);
    let last = Node { data: two.gpu_address()?, size: [2, 4], next: 0 };
    let last = device.buffer_with_data(&[last])?;
    let middle = Node { data: one.gpu_address()?, size: [3, 4], next: last.gpu_address()? };
    let middle = device.buffer_with_data(&[middle])?;
    let head = Node { data: source.gpu_address()?, size: [0, 0], next: middle.gpu_address()? };
    let args = vec![
        Arg::value(&head),
        Arg::use_resource(&source),
        Arg::use_resource(&middle),
        Arg::use_resource(&last),
        Arg::use_resource(&mut one),
        Arg::use_resource(&mut two),
    ];
    run(device, &kernel, Grid::threads(12), args)?;
    expect_all(&one.to_vec()?, |i| i as f32 * 0.5);
    expect_all(&two.to_vec()?, |i| if i < 8 { 9.0 + i as f32 * 0.5 } else { 8.0 });
    Ok(())
}

fn array_of_pointers(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "choose",
        "struct Args { device const int* in[3]; array<device int*, 2> out; };
        kernel void choose(constant Args& args, uint i [[thread_position_in_grid]]) {
            args.out[i & 1u][i / 2u] = args.in[i % 3u][i]; }",
    )?;
    let values = |k: i32| (0..60).map(|i| i * 10 + k).collect::<Vec<i32>>();
    let inputs: Vec<Buffer<i32>> =
        (0..3).map(|k| device.buffer_with_data(&values(k))).collect::<elinvar::Result<_>>()?;
    let mut outs = [device.buffer::<i32>(30)?, device.buffer::<i32>(30)?];
    let mut addresses = Vec::new();
    for buffer in inputs.iter().chain(&outs) {
        addresses.push(buffer.gpu_address()?);
    }
    let mut args = vec![Arg::bytes(bytemuck::cast_slice(&addresses))];
    args.extend(inputs.iter().map(Arg::use_resource));
    args.extend(outs.iter_mut().map(Arg::use_resource));
    run(device, &kernel, Grid::threads(60), args)?;
    for (parity, out) in outs.iter().enumerate() {
        expect_all(&out.to_vec()?, |half| {
            let i = 2 * half + parity;
            (i * 10 + i % 3) as i32
        });
    }
    Ok(())
}

/// Arrays of buffers with `[[id]]`, as members of a struct that the kernel makes, and as `array_ref`.
fn arrays_of_buffers(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "gather",
        "struct Tables { metal::array<constant void*, 3> in [[id(0)]]; const array<device float*, 2> out [[id(3)]]; };
        template <typename T, int N> struct Indices { const array<const device T*, N> buffers; const int count; };
        METAL_FUNC float total(array_ref<const device float*> list, uint i) {
            float s = 0;
            for (size_t k = 0; k < list.size(); ++k) s += list[k][i];
            return s;
        }
        kernel void gather(constant Tables& tables [[buffer(0)]], device const float* a [[buffer(1)]],
                           const device float* b [[buffer(2)]], uint i [[thread_position_in_grid]]) {
            Indices<float, 2> indices{{{a, b}}, 2};
            constant float* in = (constant float*)tables.in[i % 3u];
            float s = total(array_ref<const device float*>(indices.buffers), i) + indices.buffers[i & 1u][3] * indices.count;
            tables.out[i & 1u][i / 2u] = in[i] * 1000.0f + s + tables.in.size() + tables.out.size();
        }",
    )?;
    let values = |k: usize| (0..60).map(|i| (i + 100 * k) as f32).collect::<Vec<f32>>();
    let mut inputs = Vec::new();
    for k in 0..5 {
        inputs.push(device.buffer_with_data(&values(k))?);
    }
    let mut outs = [device.buffer::<f32>(30)?, device.buffer::<f32>(30)?];
    let mut addresses = Vec::new();
    for buffer in inputs[..3].iter().chain(&outs) {
        addresses.push(buffer.gpu_address()?);
    }
    let (tables, direct) = inputs.split_at_mut(3);
    let mut args = vec![Arg::bytes(bytemuck::cast_slice(&addresses))];
    // A store through a pointer in memory might be to one of these, as far as the compiler knows.
    args.extend(direct.iter_mut().map(Arg::from));
    args.extend(tables.iter().map(Arg::use_resource));
    args.extend(outs.iter_mut().map(Arg::use_resource));
    run(device, &kernel, Grid::threads(60), args)?;
    for (parity, out) in outs.iter().enumerate() {
        expect_all(&out.to_vec()?, |half| {
            let i = 2 * half + parity;
            let value = |k: usize, i: usize| (i + 100 * k) as f32;
            value(i % 3, i) * 1000.0 + value(3, i) + value(4, i) + value(3 + parity, 3) * 2.0 + 5.0
        });
    }
    Ok(())
}

/// A buffer of pointers has elements of a struct, as section 4.1 of the specification requires; functions take pointers to the
/// pointers in it.
fn pointers_to_pointers(device: &Device) -> CaseResult {
    let kernel = kernel(
        device,
        "rows",
        "struct To { device float* row; }; struct From { device const float* row; };
        device float* row_at(device float* device* at) { return *at; }
        kernel void rows(device To* out [[buffer(0)]], constant From* in [[buffer(1)]],
                constant uint& width [[buffer(2)]], uint2 i [[thread_position_in_grid]]) {
            device const float* constant* from = &in[i.y].row;
            row_at(&out[i.y].row)[i.x] = (*from)[width - 1u - i.x]; }",
    )?;
    let inputs: Vec<Buffer<f32>> = (1..4)
        .map(|k| device.buffer_with_data(&(0..16).map(|i| (i * k) as f32).collect::<Vec<_>>()))
        .collect::<elinvar::Result<_>>()?;
    let mut outs = [device.buffer::<f32>(16)?, device.buffer::<f32>(16)?, device.buffer::<f32>(16)?];
    let addresses = |list: &[Buffer<f32>]| -> elinvar::Result<Buffer<u64>> {
        device.buffer_with_data(&list.iter().map(Buffer::gpu_address).collect::<elinvar::Result<Vec<_>>>()?)
    };
    let (mut to, from) = (addresses(&outs)?, addresses(&inputs)?);
    let mut args: Vec<Arg> = vec![(&mut to).into(), (&from).into(), 16_u32.into()];
    args.extend(inputs.iter().map(Arg::use_resource));
    args.extend(outs.iter_mut().map(Arg::use_resource));
    run(device, &kernel, Grid::threads((16, 3)), args)?;
    for (k, out) in outs.iter().enumerate() {
        expect_all(&out.to_vec()?, |i| ((15 - i) * (k + 1)) as f32);
    }
    Ok(())
}

fn parts_of_buffers(device: &Device) -> CaseResult {
    let body = "kernel void part(constant Args& args, uint i [[thread_position_in_grid]]) {
        if (i < args.n) args.b[i] = args.a[i]; }";
    let kernel = kernel(device, "part", &format!("{ARGS}{body}"))?;
    let (a, mut b) = (ramp(device, 100)?, device.buffer::<f32>(100)?);
    let from = a.slice(13..33)?;
    let to = b.slice_mut(70..90)?;
    let args = Args { a: from.gpu_address()?, b: to.gpu_address()?, n: 20, pad: 0 };
    assert_eq!((args.a, args.b - 280), (a.gpu_address()? + 52, b.gpu_address()?));
    let to = b.slice_mut(70..90)?;
    run(
        device,
        &kernel,
        Grid::threads(32),
        (Arg::value(&args), Arg::use_resource(&from), Arg::use_resource(to)),
    )?;
    expect_all(&b.to_vec()?, |i| if (70..90).contains(&i) { (i - 57) as f32 * 0.5 } else { 0.0 });
    Ok(())
}

/// A kernel stores pointers to memory; a later kernel dereferences them.
fn pointers_written_by_a_kernel(device: &Device) -> CaseResult {
    let text = "struct Slot { device uint* at; uint step; };
        kernel void put(device Slot* slots, device uint* data, uint i [[thread_position_in_grid]]) {
            slots[i].at = data + i * 4u; slots[i].step = i + 1u; }
        kernel void follow(device const Slot* slots, uint i [[thread_position_in_grid]]) {
            for (uint k = 0; k < 4; ++k) slots[i].at[k] = k * slots[i].step; }";
    let (put, follow) = (kernel(device, "put", text)?, kernel(device, "follow", text)?);
    let stream = device.stream()?;
    let mut slots = device.buffer::<[u64; 2]>(8)?;
    let mut data = device.buffer::<u32>(32)?;
    launch(&put, &stream, Grid::threads(8), (&mut slots, &mut data))?;
    launch(&follow, &stream, Grid::threads(8), (&slots, Arg::use_resource(&mut data)))?;
    expect_all(&data.to_vec()?, |i| (i % 4 * (i / 4 + 1)) as u32);
    let base = data.gpu_address()?;
    let written = slots.to_vec()?;
    expect_all(&written.iter().map(|s| s[0]).collect::<Vec<_>>(), |i| base + 16 * i as u64);
    Ok(())
}

fn private_memory(device: &Device) -> CaseResult {
    let body = "kernel void part(constant Args& args, uint i [[thread_position_in_grid]]) {
        if (i < args.n) args.b[i] = args.a[i] + 1.0f; }";
    let kernel = kernel(device, "part", &format!("{ARGS}{body}"))?;
    let stream = device.stream()?;
    let source = ramp(device, 64)?;
    let mut a = device.buffer_in::<f32>(64, elinvar::Storage::Private)?;
    let mut b = device.buffer_in::<f32>(64, elinvar::Storage::Private)?;
    let mut out = device.buffer::<f32>(64)?;
    stream.copy(&source, &mut a)?;
    let args = Args { a: a.gpu_address()?, b: b.gpu_address()?, n: 64, pad: 0 };
    let list = (Arg::value(&args), Arg::use_resource(&a), Arg::use_resource(&mut b));
    launch(&kernel, &stream, Grid::threads(64), list)?;
    stream.copy(&b, &mut out)?;
    expect_all(&out.to_vec()?, |i| i as f32 * 0.5 + 1.0);
    Ok(())
}

/// A launch keeps the memory that it uses alive.
fn freed_by_the_host(device: &Device) -> CaseResult {
    let body = "kernel void sum(constant Args& args, uint i [[thread_position_in_grid]]) {
        float s = 0; for (uint k = 0; k < args.n; ++k) s += args.a[k]; args.b[i] = s; }";
    let kernel = kernel(device, "sum", &format!("{ARGS}{body}"))?;
    let stream = device.stream()?;
    let mut b = device.buffer::<f32>(256)?;
    for round in 1..=20 {
        let a = device.buffer_with_data(&vec![round as f32; 4096])?;
        let args = Args { a: a.gpu_address()?, b: b.gpu_address()?, n: 4096, pad: 0 };
        let list = (Arg::value(&args), Arg::use_resource(&a), Arg::use_resource(&mut b));
        launch(&kernel, &stream, Grid::threads(256), list)?;
        drop(a);
        if round % 5 == 0 {
            expect_all(&b.to_vec()?, |_| 4096.0 * round as f32);
        }
    }
    Ok(())
}

/// Host access waits for launches that use the memory, as it does for arguments.
fn read_and_written_in_order(device: &Device) -> CaseResult {
    let body = "kernel void step(constant Args& args, uint i [[thread_position_in_grid]]) {
        args.b[i] = args.b[i] * 2.0f + args.a[i]; }";
    let kernel = kernel(device, "step", &format!("{ARGS}{body}"))?;
    let stream = device.stream()?;
    let (mut a, mut b) = (device.buffer_with_data(&[1.0_f32; 512])?, device.buffer::<f32>(512)?);
    let args = Args { a: a.gpu_address()?, b: b.gpu_address()?, n: 512, pad: 0 };
    let mut expected = 0.0_f32;
    for round in 0..10 {
        for _ in 0..2 {
            let list = (Arg::value(&args), Arg::use_resource(&a), Arg::use_resource(&mut b));
            launch(&kernel, &stream, Grid::threads(512), list)?;
            expected = expected * 2.0 + (round + 1) as f32;
        }
        expect_all(&b.to_vec()?, |_| expected);
        a.write(&vec![(round + 2) as f32; 512])?;
    }
    Ok(())
}
