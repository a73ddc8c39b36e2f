//! Indirect command buffers: commands in memory, encoded by the host or by kernels, and executed by range.

use elinvar::driver::CommandRecord;
use elinvar::{
    Arg, Args, Buffer, Completion, Device, Error, Execution, Graph, Grid, IndirectCommandBuffer,
    IndirectCommandBufferDescriptor as Descriptor, Kernel, Library, Source, Stream,
};

use super::{Case, CaseResult, expect_all, expect_fault, launch};

mod faults;

cases!("indirect_commands": encoded_by_the_host, thousand_encoded_by_a_kernel, three_dimensions, ranges,
    ranges_in_memory, reset, copied, inherited_buffers, inherited_kernel, threadgroup_memory, much_threadgroup_memory, values,
    dependent_commands, addresses_in_argument_buffers, commands_that_encode_commands, other_work_of_the_stream,
    recorded, in_a_graph, overlapping_uses, optimized);

/// All cases of the chapter.
pub(super) fn all() -> Vec<Case> {
    [CASES, faults::CASES].concat()
}

/// Arguments of a kernel that encodes: `struct Commands { command_buffer commands; compute_pipeline_state first, second; }`.
const COMMANDS: &str =
    "struct Commands { command_buffer commands; compute_pipeline_state first, second; };\n";

const KERNELS: &str = "
    kernel void add(device uint* x [[buffer(0)]], constant uint& by [[buffer(1)]], uint i [[thread_position_in_grid]]) {
        x[i] += by; }
    kernel void triple(device uint* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] *= 3; }
    kernel void encode(constant Commands& c [[buffer(0)]], device uint* x [[buffer(1)]], constant uint* by [[buffer(2)]],
                       constant uint& stride [[buffer(3)]], uint i [[thread_position_in_grid]]) {
        compute_command command(c.commands, i);
        command.reset();
        command.set_kernel_buffer(x + i * stride, 0);
        if (i % 3 == 2) {
            command.set_compute_pipeline_state(c.second);
        } else {
            command.set_compute_pipeline_state(c.first);
            command.set_kernel_buffer(by + i, 1);
        }
        command.concurrent_dispatch_threads(uint3(i % stride + 1, 1, 1), uint3(32, 1, 1));
    }";

fn library(device: &Device, name: &str, body: &str) -> elinvar::Result<Library> {
    let text = format!("#include <metal_stdlib>\nusing namespace metal;\n{COMMANDS}{body}");
    device.compile(Source::named(format!("{name}.metal"), text))
}

fn kernels<const N: usize>(device: &Device, body: &str, names: [&str; N]) -> elinvar::Result<[Kernel; N]> {
    let library = library(device, names[0], body)?;
    let all = names.iter().map(|name| library.kernel(name)).collect::<elinvar::Result<Vec<Kernel>>>()?;
    Ok(std::array::from_fn(|i| all[i].clone()))
}

/// Executes on a stream. The commands of this suite stay within the buffers that they are given.
fn execute(stream: &Stream, execution: &Execution<'_>) -> elinvar::Result<Completion> {
    // SAFETY: see the cases.
    #[allow(unsafe_code)]
    unsafe {
        stream.execute_commands(execution)
    }
}

fn handles(commands: &IndirectCommandBuffer, first: &Kernel, second: &Kernel) -> elinvar::Result<Arg> {
    Ok(Arg::value(&[commands.handle()?, commands.number(first)?, commands.number(second)?]))
}

fn encoded_by_the_host(device: &Device) -> CaseResult {
    let [add, triple] = kernels(device, KERNELS, ["add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(5), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&(0..256).collect::<Vec<u32>>())?;
    let by = device.buffer_with_data(&[10_u32, 1000])?;
    let part = |x: &mut Buffer<u32>, range| -> elinvar::Result<Arg> { Ok(x.slice_mut(range)?.into()) };
    commands
        .command(0)?
        .kernel(&add)?
        .buffer(0, &mut x)?
        .buffer(1, by.slice(0..1)?)?
        .dispatch_threads(200, 64)?;
    commands
        .command(1)?
        .kernel(&triple)?
        .buffer(0, part(&mut x, 100..256)?)?
        .barrier()
        .dispatch_threadgroups(4, 32)?;
    // Command 2 stays empty, and 4 has no threads.
    commands
        .command(3)?
        .kernel(&add)?
        .buffer(0, part(&mut x, 255..256)?)?
        .buffer(1, by.slice(1..2)?)?
        .barrier()
        .dispatch_threads(1, 1)?;
    commands.command(4)?.kernel(&triple)?.buffer(0, &mut x)?.dispatch_threads((0, 5), 32)?;
    let stream = device.stream()?;
    for round in 1..=2 {
        execute(&stream, &commands.execution(0..5).uses((&mut x, &by)))?.wait()?;
        let mut expected: Vec<u32> = (0..256).collect();
        for _ in 0..round {
            expected[..200].iter_mut().for_each(|x| *x += 10);
            expected[100..228].iter_mut().for_each(|x| *x *= 3);
            expected[255] += 1000;
        }
        expect_all(&x.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

/// What `encode` and its first `count` commands do to `x`.
fn reference(x: &mut [u32], by: &[u32], stride: usize, range: std::ops::Range<usize>) {
    for i in range {
        let part = &mut x[i * stride..][..i % stride + 1];
        match i % 3 {
            2 => part.iter_mut().for_each(|x| *x = x.wrapping_mul(3)),
            _ => part.iter_mut().for_each(|x| *x = x.wrapping_add(by[i])),
        }
    }
}

fn ramp(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 8).collect()
}

fn thousand_encoded_by_a_kernel(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    // An `MTLIndirectCommandBuffer` has at most 16384 commands.
    for (count, stride) in [(1000_usize, 37_usize), (17_000, 1)] {
        let size = count as u32;
        let mut commands =
            IndirectCommandBuffer::new(device, Descriptor::new(size).buffers(2), &[&add, &triple])?;
        let mut x = device.buffer_with_data(&ramp(count * stride))?;
        let by = device.buffer_with_data(&ramp(count))?;
        let handles = handles(&commands, &add, &triple)?;
        let stream = device.stream()?;
        let args = (handles, &mut x, &by, stride as u32, Arg::use_resource(&mut commands));
        launch(&encode, &stream, Grid::threads(count), args)?;
        execute(&stream, &commands.execution(0..size).uses((&mut x, &by)))?.wait()?;
        let range = device.buffer_with_data(&[1, size - 1])?;
        execute(&stream, &commands.execution(&range).uses((&mut x, &by)))?.wait()?;
        let mut expected = ramp(count * stride);
        reference(&mut expected, &ramp(count), stride, 0..count);
        reference(&mut expected, &ramp(count), stride, 1..count);
        expect_all(&x.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

fn three_dimensions(device: &Device) -> CaseResult {
    let body = "
        kernel void place(device uint* x, uint3 p [[thread_position_in_grid]], uint3 all [[threads_per_grid]],
                          uint3 group [[threads_per_threadgroup]], uint3 full [[dispatch_threads_per_threadgroup]]) {
            x[p.x + 16 * (p.y + 16 * p.z)] = all.x + 100 * all.y + 10000 * all.z + 1000000 * (full.x + 10 * full.y + 100 * full.z);
        }
        kernel void encode(constant Commands& c, device uint* x, uint i [[thread_position_in_grid]]) {
            compute_command command(c.commands, i);
            command.set_compute_pipeline_state(c.first);
            command.set_kernel_buffer(x + i * 4096, 0);
            if (i == 0) command.concurrent_dispatch_threads(uint3(7, 5, 3), uint3(4, 2, 2));
            else command.concurrent_dispatch_threadgroups(uint3(3, 2, 4), uint3(4, 3, 2));
        }";
    let [encode, place] = kernels(device, body, ["encode", "place"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(2), &[&place])?;
    let mut x = device.buffer::<u32>(2 * 4096)?;
    let handles = handles(&commands, &place, &place)?;
    let stream = device.stream()?;
    launch(&encode, &stream, Grid::threads(2), (handles, &mut x, Arg::use_resource(&mut commands)))?;
    execute(&stream, &commands.execution(0..2).uses((&mut x,)))?.wait()?;
    let expected = |i: usize| {
        let (all, full) = [([7, 5, 3], [4, 2, 2]), ([12, 6, 8], [4, 3, 2])][i / 4096];
        let at = [i % 16, i / 16 % 16, i % 4096 / 256];
        let value =
            all[0] + 100 * all[1] + 10000 * all[2] + 1_000_000 * (full[0] + 10 * full[1] + 100 * full[2]);
        if (0..3).all(|d| at[d] < all[d]) { value as u32 } else { 0 }
    };
    expect_all(&x.to_vec()?, expected);
    Ok(())
}

fn ranges(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let (count, stride) = (64_usize, 8_usize);
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(64), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let by = device.buffer_with_data(&ramp(count))?;
    let handles = handles(&commands, &add, &triple)?;
    let stream = device.stream()?;
    let args = (handles, &mut x, &by, stride as u32, Arg::use_resource(&mut commands));
    launch(&encode, &stream, Grid::threads(count), args)?;
    let mut expected = ramp(count * stride);
    for range in [0..1, 5..5, 63..64, 10..40, 64..64, 30..50] {
        execute(&stream, &commands.execution(range.clone()).uses((&mut x, &by)))?;
        reference(&mut expected, &ramp(count), stride, range.start as usize..range.end as usize);
        expect_all(&x.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

fn ranges_in_memory(device: &Device) -> CaseResult {
    let body = format!(
        "{KERNELS}
        kernel void choose(device uint* range [[buffer(0)]], constant uint& n [[buffer(1)]]) {{
            range[2] = n / 4; range[3] = n / 2;
        }}"
    );
    let [encode, add, triple, choose] = kernels(device, &body, ["encode", "add", "triple", "choose"])?;
    let (count, stride) = (60_usize, 5_usize);
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(60), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let by = device.buffer_with_data(&ramp(count))?;
    let handles = handles(&commands, &add, &triple)?;
    let stream = device.stream()?;
    let args = (handles, &mut x, &by, stride as u32, Arg::use_resource(&mut commands));
    launch(&encode, &stream, Grid::threads(count), args)?;
    let mut range = device.buffer_with_data(&[u32::MAX; 5])?;
    launch(&choose, &stream, Grid::threads(1), (&mut range, count as u32))?;
    execute(&stream, &commands.execution(range.slice(2..4)?).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(count * stride);
    reference(&mut expected, &ramp(count), stride, 15..45);
    expect_all(&x.to_vec()?, |i| expected[i]);
    for words in [[0, 61], [60, 1], [u32::MAX, 1], [1, u32::MAX], [61, 0]] {
        let range = device.buffer_with_data(&words)?;
        let ended = execute(&stream, &commands.execution(&range).uses((&mut x, &by)))?.wait();
        let text = format!("{} commands from {} on", words[1], words[0]);
        expect_fault(ended, "execute_commands", &[&text, "the indirect command buffer has 60"]);
        stream.acknowledge();
        x.write(&expected)?;
    }
    Ok(())
}

/// Whether each command of `count` is empty, as the host reads it.
fn empty(commands: &IndirectCommandBuffer, count: u32) -> elinvar::Result<Vec<bool>> {
    (0..count).map(|i| Ok(commands.record(i)?.kind == CommandRecord::EMPTY)).collect()
}

fn reset(device: &Device) -> CaseResult {
    let body = format!(
        "{KERNELS}
        kernel void clear(constant Commands& c, constant uint& first, uint i [[thread_position_in_grid]]) {{
            compute_command command(c.commands, first + 2 * i);
            command.reset();
        }}"
    );
    let [encode, add, triple, clear] = kernels(device, &body, ["encode", "add", "triple", "clear"])?;
    let (count, stride) = (40_usize, 3_usize);
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(40), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let by = device.buffer_with_data(&ramp(count))?;
    let stream = device.stream()?;
    assert!(empty(&commands, 40)?.iter().all(|empty| *empty), "new");
    let encode_all = |commands: &mut IndirectCommandBuffer, x: &mut Buffer<u32>| {
        let handles = handles(commands, &add, &triple)?;
        launch(
            &encode,
            &stream,
            Grid::threads(count),
            (handles, x, &by, stride as u32, Arg::use_resource(commands)),
        )
    };
    encode_all(&mut commands, &mut x)?;
    commands.reset(0..10)?;
    stream.reset_commands(&mut commands, 20..25)?;
    let handle = handles(&commands, &add, &triple)?;
    launch(&clear, &stream, Grid::threads(5), (handle, 30_u32, Arg::use_resource(&mut commands)))?;
    let is_empty = |i: usize| i < 10 || (20..25).contains(&i) || (i >= 30 && i.is_multiple_of(2));
    expect_all(&empty(&commands, 40)?, is_empty);
    execute(&stream, &commands.execution(0..40).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(count * stride);
    (0..count)
        .filter(|i| !is_empty(*i))
        .for_each(|i| reference(&mut expected, &ramp(count), stride, i..i + 1));
    expect_all(&x.to_vec()?, |i| expected[i]);
    // Encoded again over what was reset.
    encode_all(&mut commands, &mut x)?;
    execute(&stream, &commands.execution(0..40).uses((&mut x, &by)))?.wait()?;
    reference(&mut expected, &ramp(count), stride, 0..count);
    expect_all(&x.to_vec()?, |i| expected[i]);
    Ok(())
}

fn copied(device: &Device) -> CaseResult {
    let body = format!(
        "{KERNELS}
        kernel void reversed(constant command_buffer* c, constant uint& n, uint i [[thread_position_in_grid]]) {{
            compute_command from(c[0], i), to(c[1], n - 1 - i);
            to.copy_command(from);
        }}"
    );
    let [encode, add, triple, reversed] = kernels(device, &body, ["encode", "add", "triple", "reversed"])?;
    let (count, stride) = (30_usize, 4_usize);
    let mut one = IndirectCommandBuffer::new(device, Descriptor::new(30), &[&add, &triple])?;
    let mut two = IndirectCommandBuffer::new(device, Descriptor::new(50), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let by = device.buffer_with_data(&ramp(count))?;
    let stream = device.stream()?;
    let handle = handles(&one, &add, &triple)?;
    launch(
        &encode,
        &stream,
        Grid::threads(count),
        (handle, &mut x, &by, stride as u32, Arg::use_resource(&mut one)),
    )?;
    stream.copy_commands(&one, 10..30, &mut two, 25)?;
    execute(&stream, &two.execution(0..50).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(count * stride);
    reference(&mut expected, &ramp(count), stride, 10..30);
    expect_all(&x.to_vec()?, |i| expected[i]);
    let both = Arg::values(&[one.handle()?, two.handle()?]);
    let args = (both, 50_u32, Arg::use_resource(&one), Arg::use_resource(&mut two));
    launch(&reversed, &stream, Grid::threads(count), args)?;
    for i in 0..count as u32 {
        assert_eq!(two.record(49 - i)?, one.record(i)?, "command {i}");
    }
    execute(&stream, &two.execution(20..50).uses((&mut x, &by)))?.wait()?;
    reference(&mut expected, &ramp(count), stride, 0..count);
    expect_all(&x.to_vec()?, |i| expected[i]);
    let mut other = IndirectCommandBuffer::new(device, Descriptor::new(30), &[&triple, &add])?;
    let mut few = IndirectCommandBuffer::new(device, Descriptor::new(30).buffers(1), &[&add, &triple])?;
    for target in [&mut other, &mut few] {
        let refused = stream.copy_commands(&one, 0..1, target, 0).unwrap_err().to_string();
        assert!(refused.contains("differ in their kernels"), "{refused}");
    }
    assert!(matches!(stream.copy_commands(&one, 0..30, &mut two, 21), Err(Error::InvalidArgument(_))));
    Ok(())
}

fn inherited_buffers(device: &Device) -> CaseResult {
    let body = "
        kernel void shift(device uint* x [[buffer(3)]], constant uint& by [[buffer(1)]], uint i [[thread_position_in_grid]]) { x[i] += by * i; }
        kernel void unused(device uint* x [[buffer(3)]], device uint* none [[buffer(0)]], constant uint& zero [[buffer(7)]],
                           uint i [[thread_position_in_grid]]) { if (none == nullptr && zero == 0) x[i] ^= 0xff; }
        kernel void encode(constant Commands& c, uint i [[thread_position_in_grid]]) {
            compute_command command(c.commands, i);
            command.set_barrier();
            command.set_compute_pipeline_state(i < 3 ? c.first : c.second);
            command.set_barrier();
            command.concurrent_dispatch_threads(uint3(20 + i, 1, 1), uint3(16, 1, 1));
        }
        kernel void wrong(constant Commands& c, device uint* x) {
            compute_command command(c.commands, 1);
            command.set_kernel_buffer(x, 3);
        }";
    let [encode, shift, unused, wrong] = kernels(device, body, ["encode", "shift", "unused", "wrong"])?;
    let descriptor = Descriptor::new(4).inherit_buffers();
    let mut commands = IndirectCommandBuffer::new(device, descriptor, &[&shift, &unused])?;
    let (mut x, mut y) = (device.buffer_with_data(&ramp(32))?, device.buffer_with_data(&ramp(32))?);
    let stream = device.stream()?;
    let handle = handles(&commands, &shift, &unused)?;
    launch(&encode, &stream, Grid::threads(4), (handle.clone(), Arg::use_resource(&mut commands)))?;
    execute(&stream, &commands.execution(0..4).buffer(3, &mut x).buffer(1, 7_u32))?;
    execute(&stream, &commands.execution(1..4).buffer(1, 5_u32).buffer(3, &mut y))?.wait()?;
    let expected = |i: usize, by: u32, from: usize| {
        let sum = (from..3).filter(|command| i < 20 + command).map(|_| by * i as u32).sum::<u32>();
        let sum = ramp(32)[i].wrapping_add(sum);
        if i < 23 { sum ^ 0xff } else { sum }
    };
    expect_all(&x.to_vec()?, |i| expected(i, 7, 0));
    expect_all(&y.to_vec()?, |i| expected(i, 5, 1));
    // A buffer for reads is not written.
    let ended = execute(&stream, &commands.execution(0..4).buffer(3, &x).buffer(1, 7_u32))?.wait();
    expect_fault(ended, "shift", &["command 0", "argument 0 `x`", "for reads only"]);
    stream.acknowledge();
    let refused = commands.command(0)?.kernel(&shift)?.buffer(0, &mut x).err().map(|error| error.to_string());
    assert!(refused.is_some_and(|text| text.contains("inherit")));
    launch(&wrong, &stream, Grid::threads(1), (handle, &mut y, Arg::use_resource(&mut commands)))?;
    let ended = execute(&stream, &commands.execution(1..2).buffer(3, &mut y).buffer(1, 7_u32))?.wait();
    expect_fault(ended, "execute_commands", &["command 1", "inherits buffers"]);
    Ok(())
}

fn inherited_kernel(device: &Device) -> CaseResult {
    let [add, triple] = kernels(device, KERNELS, ["add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(2).inherit_kernel(), &[])?;
    let mut x = device.buffer_with_data(&ramp(50))?;
    let by = device.buffer_with_data(&[9_u32])?;
    commands.command(0)?.buffer(0, &mut x)?.buffer(1, &by)?.dispatch_threads(50, 8)?;
    commands.command(1)?.buffer(0, x.slice_mut(10..50)?)?.buffer(1, &by)?.barrier().dispatch_threads(3, 8)?;
    let stream = device.stream()?;
    for kernel in [&add, &triple, &add] {
        execute(&stream, &commands.execution(0..2).kernel(kernel).uses((&mut x, &by)))?;
    }
    let expected = |i: usize| {
        let times = if (10..13).contains(&i) { 2 } else { 1 };
        let add = |x: u32| (0..times).fold(x, |x, _| x.wrapping_add(9));
        let triple = |x: u32| (0..times).fold(x, |x, _| x.wrapping_mul(3));
        add(triple(add(ramp(50)[i])))
    };
    expect_all(&x.to_vec()?, expected);
    let refused =
        execute(&stream, &commands.execution(0..2).uses((&mut x, &by))).err().map(|error| error.to_string());
    assert_eq!(
        refused.as_deref(),
        Some("execute_commands: the commands inherit the kernel, and the execution has none")
    );
    assert!(commands.command(0)?.kernel(&add).is_err());
    Ok(())
}

fn threadgroup_memory(device: &Device) -> CaseResult {
    let body = "
        kernel void sums(device const uint* x [[buffer(0)]], device uint* out [[buffer(1)]],
                         threadgroup uint* part [[threadgroup(0)]], threadgroup uint* copy [[threadgroup(2)]],
                         uint i [[thread_position_in_grid]], uint l [[thread_index_in_threadgroup]],
                         uint g [[threadgroup_position_in_grid]], uint n [[threads_per_threadgroup]]) {
            part[l] = x[i];
            for (uint s = n / 2; s > 0; s /= 2) {
                threadgroup_barrier(mem_flags::mem_threadgroup);
                if (l < s) part[l] += part[l + s];
            }
            if (l == 0) copy[0] = part[0];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            if (l == 1) out[g] = copy[0];
        }
        kernel void encode(constant Commands& c, device const uint* x, device uint* out, uint i [[thread_position_in_grid]]) {
            compute_command command(c.commands, i);
            command.set_compute_pipeline_state(c.first);
            command.set_kernel_buffer(x, 0);
            command.set_kernel_buffer(out + 8 * i, 1);
            uint group = 256 >> i;
            command.set_threadgroup_memory_length(group * 4, 0);
            command.set_threadgroup_memory_length(16, 2);
            command.concurrent_dispatch_threadgroups(uint3(8, 1, 1), uint3(group, 1, 1));
        }";
    let [encode, sums] = kernels(device, body, ["encode", "sums"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(5), &[&sums])?;
    let x = device.buffer_with_data(&ramp(2048))?;
    let mut out = device.buffer::<u32>(40)?;
    let stream = device.stream()?;
    let handle = handles(&commands, &sums, &sums)?;
    launch(&encode, &stream, Grid::threads(5), (handle, &x, &mut out, Arg::use_resource(&mut commands)))?;
    execute(&stream, &commands.execution(0..5).uses((&x, &mut out)))?.wait()?;
    expect_all(&out.to_vec()?, |i| {
        let group = 256 >> (i / 8);
        ramp(2048)[i % 8 * group..][..group].iter().fold(0_u32, |sum, x| sum.wrapping_add(*x))
    });
    let most = device.caps().limits.max_threadgroup_memory as usize;
    let command =
        commands.command(0)?.kernel(&sums)?.threadgroup_memory(0, most)?.threadgroup_memory(2, 16)?;
    command.buffer(0, &x)?.buffer(1, &mut out)?.dispatch_threads(64, 64)?;
    let ended = execute(&stream, &commands.execution(0..1).uses((&x, &mut out)))?.wait();
    expect_fault(ended, "sums", &["command 0", "bytes of threadgroup memory"]);
    Ok(())
}

/// Threadgroup memory up to the device's limit, most of which an NVIDIA GPU has to be asked for.
fn much_threadgroup_memory(device: &Device) -> CaseResult {
    const OWN: usize = 3000;
    let body = "
        kernel void backwards(device uint* out [[buffer(0)]], constant uint& n [[buffer(1)]], threadgroup uint* all [[threadgroup(0)]],
                              uint l [[thread_index_in_threadgroup]], uint g [[threadgroup_position_in_grid]]) {
            threadgroup uint own[3000];
            for (uint i = l; i < n; i += 64) all[i] = 7 * i + g;
            for (uint i = l; i < 3000; i += 64) own[i] = 11 * i + g;
            threadgroup_barrier(mem_flags::mem_threadgroup);
            device uint* to = out + g * (n + 3000);
            for (uint i = l; i < n; i += 64) to[i] = all[n - 1 - i];
            for (uint i = l; i < 3000; i += 64) to[n + i] = own[2999 - i];
        }";
    let [backwards] = kernels(device, body, ["backwards"])?;
    let most = device.caps().limits.max_threadgroup_memory as usize;
    let rest = (most - OWN * 4) / 16 * 4;
    let stream = device.stream()?;
    for words in [1000, 9300, 16_000, 48_000, rest].into_iter().filter(|words| *words <= rest) {
        let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(1), &[&backwards])?;
        let mut out = device.buffer::<u32>(3 * (words + OWN))?;
        let command = commands.command(0)?.kernel(&backwards)?.threadgroup_memory(0, words * 4)?;
        command.buffer(0, &mut out)?.buffer(1, words as u32)?.dispatch_threads(192, 64)?;
        execute(&stream, &commands.execution(0..1).uses((&mut out,)))?.wait()?;
        expect_all(&out.to_vec()?, |at| {
            let (g, i) = (at / (words + OWN), at % (words + OWN));
            let (by, last) = if i < words { (7, words - 1 - i) } else { (11, words + OWN - 1 - i) };
            (by * last + g) as u32
        });
    }
    Ok(())
}

fn values(device: &Device) -> CaseResult {
    let body = "struct Params { float4 scale; uint first; };
        kernel void mix(device float* x [[buffer(2)]], constant Params& p [[buffer(0)]], constant uchar* table [[buffer(5)]],
                        constant bool& odd [[buffer(9)]], uint i [[thread_position_in_grid]]) {
            x[p.first + i] += p.scale[i % 4] * float(table[i % 5]) + (odd ? 0.5f : 0.0f);
        }";
    let [mix] = kernels(device, body, ["mix"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(3), &[&mix])?;
    let mut x = device.buffer::<f32>(100)?;
    for (i, odd) in [(0_u32, false), (1, true), (2, false)] {
        let params = [1.0_f32, 2.0, 3.0, i as f32].map(f32::to_bits);
        let params = [params[0], params[1], params[2], params[3], i * 30, 0, 0, 0];
        let table = [i as u8, 2, 4, 8, 16];
        let command = commands.command(i)?.kernel(&mix)?.buffer(9, odd)?.buffer(0, Arg::value(&params))?;
        command.buffer(5, Arg::values(&table))?.buffer(2, &mut x)?.dispatch_threads(30, 32)?;
    }
    let stream = device.stream()?;
    execute(&stream, &commands.execution(0..3).uses((&mut x,)))?.wait()?;
    expect_all(&x.to_vec()?, |at| {
        let (command, i) = (at / 30, at % 30);
        if command == 3 {
            return 0.0;
        }
        let (scale, table) = ([1.0, 2.0, 3.0, command as f32], [command as f32, 2.0, 4.0, 8.0, 16.0]);
        scale[i % 4] * table[i % 5] + if command == 1 { 0.5 } else { 0.0 }
    });
    let full = commands
        .command(0)?
        .kernel(&mix)?
        .buffer(5, Arg::values(&[0_u8; 100]))?
        .buffer(0, Arg::value(&[0_u32; 8]));
    assert!(full.is_err_and(|error| error.to_string().contains("more than 128 bytes")));
    Ok(())
}

/// Each command doubles the number of sums, and needs those of the one before.
fn dependent_commands(device: &Device) -> CaseResult {
    let body = "
        kernel void step(device const uint* from [[buffer(0)]], device uint* to [[buffer(1)]], constant uint& d [[buffer(2)]],
                         uint i [[thread_position_in_grid]]) { to[i] = from[i] + (i >= d ? from[i - d] : 0); }
        kernel void encode(constant Commands& c, device uint* a, device uint* b, constant uint* distances) {
            for (uint k = 0; k < 12; ++k) {
                compute_command command(c.commands, k);
                command.set_barrier();
                command.set_compute_pipeline_state(c.first);
                command.set_kernel_buffer(k % 2 ? b : a, 0);
                command.set_kernel_buffer(k % 2 ? a : b, 1);
                command.set_kernel_buffer(distances + k, 2);
                command.concurrent_dispatch_threads(uint3(4096, 1, 1), uint3(64, 1, 1));
            }
            compute_command last(c.commands, 12);
            last.set_barrier();
            last.clear_barrier();
        }";
    let [encode, step] = kernels(device, body, ["encode", "step"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(13), &[&step])?;
    let (mut a, mut b) = (device.buffer_with_data(&ramp(4096))?, device.buffer::<u32>(4096)?);
    let distances = device.buffer_with_data(&(0..12).map(|k| 1_u32 << k).collect::<Vec<_>>())?;
    let stream = device.stream()?;
    let handle = handles(&commands, &step, &step)?;
    let args = (handle, &mut a, &mut b, &distances, Arg::use_resource(&mut commands));
    launch(&encode, &stream, Grid::threads(1), args)?;
    execute(&stream, &commands.execution(0..13).uses((&mut a, &mut b, &distances)))?.wait()?;
    let mut sum = 0_u32;
    let sums: Vec<u32> = ramp(4096)
        .iter()
        .map(|x| {
            sum = sum.wrapping_add(*x);
            sum
        })
        .collect();
    expect_all(&a.to_vec()?, |i| sums[i]);
    assert_eq!((commands.record(11)?.flags, commands.record(12)?.flags), (CommandRecord::BARRIER, 0));
    Ok(())
}

/// Commands whose argument is an argument buffer.
fn addresses_in_argument_buffers(device: &Device) -> CaseResult {
    let body = "
        struct Lists { device const uint* from; device uint* to; };
        kernel void gather(device const Lists& l [[buffer(0)]], uint i [[thread_position_in_grid]]) { l.to[i] = l.from[i] + 1; }
        kernel void encode(constant Commands& c [[buffer(0)]], device const Lists* l [[buffer(1)]], uint i [[thread_position_in_grid]]) {
            compute_command command(c.commands, i);
            command.set_compute_pipeline_state(c.first);
            command.set_kernel_buffer(l + i, 0);
            command.concurrent_dispatch_threads(uint3(10, 1, 1), uint3(32, 1, 1));
        }";
    let [encode, gather] = kernels(device, body, ["encode", "gather"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(3), &[&gather])?;
    let (x, mut y) = (device.buffer_with_data(&ramp(30))?, device.buffer::<u32>(30)?);
    let (from, to) = (x.gpu_address()?, y.gpu_address()?);
    let lists: Vec<[u64; 2]> = (0..3).map(|i| [from + 40 * i, to + 40 * (2 - i)]).collect();
    let lists = device.buffer_with_data(&lists)?;
    let stream = device.stream()?;
    let handle = handles(&commands, &gather, &gather)?;
    launch(
        &encode,
        &stream,
        Grid::threads(3),
        (handle, Arg::from(&lists), Arg::use_resource(&mut commands)),
    )?;
    execute(&stream, &commands.execution(0..3).uses((&lists, &x, &mut y)))?.wait()?;
    expect_all(&y.to_vec()?, |i| ramp(30)[(2 - i / 10) * 10 + i % 10] + 1);
    Ok(())
}

/// The first execution runs kernels that encode what the second executes.
fn commands_that_encode_commands(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let (count, stride) = (100_usize, 6_usize);
    let mut outer = IndirectCommandBuffer::new(device, Descriptor::new(1), &[&encode])?;
    let mut inner = IndirectCommandBuffer::new(device, Descriptor::new(100), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let by = device.buffer_with_data(&ramp(count))?;
    let handle = handles(&inner, &add, &triple)?;
    let command = outer.command(0)?.kernel(&encode)?.buffer(0, handle)?.buffer(1, &mut x)?.buffer(2, &by)?;
    command.buffer(3, stride as u32)?.dispatch_threads(count, 32)?;
    let stream = device.stream()?;
    execute(&stream, &outer.execution(0..1).uses((&mut x, &by, &mut inner)))?;
    execute(&stream, &inner.execution(0..100).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(count * stride);
    reference(&mut expected, &ramp(count), stride, 0..count);
    expect_all(&x.to_vec()?, |i| expected[i]);
    Ok(())
}

fn other_work_of_the_stream(device: &Device) -> CaseResult {
    let [add, triple] = kernels(device, KERNELS, ["add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(2), &[&add, &triple])?;
    let (mut x, mut y) = (device.buffer::<u32>(3000)?, device.buffer::<u32>(3000)?);
    let by = device.buffer_with_data(&[2_u32])?;
    commands.command(0)?.kernel(&add)?.buffer(0, &mut x)?.buffer(1, &by)?.dispatch_threads(3000, 128)?;
    commands.command(1)?.kernel(&triple)?.buffer(0, &mut x)?.barrier().dispatch_threads(3000, 128)?;
    let stream = device.stream()?;
    let mut buffer = stream.command_buffer();
    // SAFETY: all stay within 3000 elements.
    #[allow(unsafe_code)]
    unsafe {
        buffer.fill(&mut x, 5_u32)?;
        buffer.execute_commands(&commands.execution(0..2).uses((&mut x, &by)))?;
        buffer.copy(&x, &mut y)?;
        buffer.launch(&triple, Grid::threads(3000), (&mut x,))?;
        buffer.execute_commands(&commands.execution(0..1).uses((&mut x, &by)))?;
    }
    buffer.submit()?;
    expect_all(&x.to_vec()?, |_| (5 + 2) * 3 * 3 + 2);
    expect_all(&y.to_vec()?, |_| (5 + 2) * 3);
    // The host waits for what the commands write.
    for i in 0..20_u32 {
        x.fill(i)?;
        execute(&stream, &commands.execution(0..2).uses((&mut x, &by)))?;
        expect_all(&x.to_vec()?, |_| (i + 2) * 3);
    }
    Ok(())
}

fn recorded(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let (count, stride) = (20_usize, 4_usize);
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(20), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let mut by = device.buffer_with_data(&ramp(count))?;
    let handle = handles(&commands, &add, &triple)?;
    let stream = device.stream()?;
    let mut buffer = stream.command_buffer();
    // SAFETY: all stay within their buffers.
    #[allow(unsafe_code)]
    unsafe {
        let args = (handle, &mut x, &by, stride as u32, Arg::use_resource(&mut commands)).into_args();
        buffer.launch(&encode, Grid::threads(count), args)?;
        buffer.execute_commands(&commands.execution(0..20).uses((&mut x, &by)))?;
    }
    let recording = buffer.record()?;
    let mut expected = ramp(count * stride);
    for round in 0..5_u32 {
        let addends: Vec<u32> = ramp(count).iter().map(|x| x ^ round).collect();
        by.write(&addends)?;
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            stream.replay(&recording)?;
        }
        reference(&mut expected, &addends, stride, 0..count);
    }
    expect_all(&x.to_vec()?, |i| expected[i]);
    Ok(())
}

fn optimized(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(9), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(90))?;
    let by = device.buffer_with_data(&ramp(9))?;
    let stream = device.stream()?;
    let handle = handles(&commands, &add, &triple)?;
    launch(
        &encode,
        &stream,
        Grid::threads(9),
        (handle, &mut x, &by, 10_u32, Arg::use_resource(&mut commands)),
    )?;
    commands.optimize(0..2)?;
    assert_eq!(add.is_optimized(32)?, Some(true));
    commands.optimize(0..9)?;
    assert_eq!(triple.is_optimized(32)?, Some(true));
    execute(&stream, &commands.execution(0..9).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(90);
    reference(&mut expected, &ramp(9), 10, 0..9);
    expect_all(&x.to_vec()?, |i| expected[i]);
    assert!(commands.optimize(5..10).is_err());
    Ok(())
}

/// A graph whose nodes encode, execute, and use the results; by reference the same on a stream.
fn in_a_graph(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let (count, stride) = (30_usize, 5_usize);
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(30), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(count * stride))?;
    let by = device.buffer_with_data(&ramp(count))?;
    let mut result = device.buffer::<u32>(count * stride)?;
    let handle = handles(&commands, &add, &triple)?;
    let graph = Graph::capture(&device.stream()?, |buffer| {
        // SAFETY: all stay within their buffers.
        #[allow(unsafe_code)]
        unsafe {
            let args = (handle, &mut x, &by, stride as u32, Arg::use_resource(&mut commands));
            buffer.launch(&encode, Grid::threads(count), args)?;
            buffer.execute_commands(&commands.execution(0..30).uses((&mut x, &by)))?;
            buffer.copy(&x, &mut result)?;
            buffer.launch(&triple, Grid::threads(count * stride), (&mut x,))
        }
    })?;
    let (mut plan, stream) = (graph.plan()?, device.stream()?);
    let mut expected = ramp(count * stride);
    for _ in 0..4 {
        // SAFETY: as above.
        #[allow(unsafe_code)]
        unsafe {
            plan.run(&stream)?.wait()?;
        }
        reference(&mut expected, &ramp(count), stride, 0..count);
        expect_all(&result.to_vec()?, |i| expected[i]);
        expected.iter_mut().for_each(|x| *x = x.wrapping_mul(3));
        expect_all(&x.to_vec()?, |i| expected[i]);
    }
    Ok(())
}

/// A buffer that is used as a whole for writes, and in parts for reads.
fn overlapping_uses(device: &Device) -> CaseResult {
    let [add, triple] = kernels(device, KERNELS, ["add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(2), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(100))?;
    let same = x.clone();
    commands.command(0)?.kernel(&triple)?.buffer(0, x.slice_mut(60..90)?)?.dispatch_threads(30, 32)?;
    let part = x.slice_mut(10..20)?;
    commands
        .command(1)?
        .kernel(&add)?
        .buffer(0, part)?
        .buffer(1, same.slice(70..71)?)?
        .barrier()
        .dispatch_threads(10, 32)?;
    let stream = device.stream()?;
    let uses = (same.slice(60..80)?, &mut x, same.slice(70..75)?, same.slice(10..100)?);
    execute(&stream, &commands.execution(0..2).uses(uses))?.wait()?;
    let tripled = |i: usize| if (60..90).contains(&i) { ramp(100)[i].wrapping_mul(3) } else { ramp(100)[i] };
    let expected = |i| if (10..20).contains(&i) { tripled(i).wrapping_add(tripled(70)) } else { tripled(i) };
    expect_all(&x.to_vec()?, expected);
    let ended =
        execute(&stream, &commands.execution(0..1).uses((same.slice(60..90)?, x.slice_mut(0..60)?)))?.wait();
    expect_fault(ended, "triple", &["command 0", "for reads only"]);
    Ok(())
}
