//! Commands that are invalid or fail, and executions that end early.

use std::time::Duration;

use elinvar::driver::CommandRecord;
use elinvar::{
    Arg, Device, Error, Grid, IndirectCommandBuffer, IndirectCommandBufferDescriptor as Descriptor,
};

use super::{KERNELS, empty, execute, handles, kernels, library, ramp, reference};
use crate::suite::{CaseResult, expect_all, expect_fault, launch, logging, refused};

cases!("indirect_commands": invalid_commands, used_again_after_a_failure, commands_behind_the_last, faults_name_the_command, random_records,
    log_lines, a_deadline_within_a_command, cancelled, wrong_arguments);

/// A valid record that a kernel has overwritten.
fn invalid_commands(device: &Device) -> CaseResult {
    let body = format!(
        "{KERNELS}
        kernel void overwrite(device uint* commands, constant uint& word, constant uint& value) {{ commands[word] = value; }}
        kernel void wide(device float4* x [[buffer(0)]], uint i [[thread_position_in_grid]]) {{ x[i] = 1; }}"
    );
    let [add, overwrite, wide] = kernels(device, &body, ["add", "overwrite", "wide"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(2).buffers(2), &[&add, &wide])?;
    let mut x = device.buffer::<u32>(64)?;
    let mut strange = device.buffer::<u32>(64)?;
    let by = device.buffer_with_data(&[1_u32])?;
    let stream = device.stream()?;
    let limit = add.max_threads_per_threadgroup();
    let (low, high) = (strange.gpu_address()? as u32, (strange.gpu_address()? >> 32) as u32);
    let by_low = by.gpu_address()? as u32;
    // The words of record 1 that are overwritten, and what the fault says.
    type Case<'a> = (&'a [(u32, u32)], &'a str, &'a [&'a str]);
    let cases: &[Case<'_>] = &[
        (&[(0, 3)], "execute_commands", &["command 1", "kind 3"]),
        (&[(1, 0)], "execute_commands", &["command 1", "no kernel"]),
        (&[(1, 3)], "execute_commands", &["command 1", "kernel number 3", "1 to 2"]),
        (&[(1, u32::MAX)], "execute_commands", &["command 1", "kernel number 4294967295"]),
        (&[(3, 9)], "execute_commands", &["command 1", "misuse 9"]),
        (&[(11, 0)], "add", &["command 1", "threadgroups of 0×1×1"]),
        (&[(11, limit + 1)], "add", &["command 1", "1 to"]),
        (&[(12, 70000), (13, 70000)], "add", &["command 1", "1 to"]),
        (&[(0, 1), (8, u32::MAX)], "add", &["command 1", "4294967295×1×1 threadgroups"]),
        (&[(16, low), (17, high)], "add", &["command 1", "argument 0 `x`", "none of the 2 used buffers"]),
        (&[(16, 4), (17, 0)], "add", &["command 1", "argument 0 `x`", "address 0x4"]),
        (&[(17, u32::MAX)], "add", &["command 1", "argument 0 `x`"]),
        (&[(18, by_low + 2)], "add", &["command 1", "argument 1 `by`", "not a multiple of 4"]),
        (&[(18, by_low + 4)], "add", &["command 1", "argument 1 `by`"]),
        (
            &[(16, by_low), (17, (by.gpu_address()? >> 32) as u32)],
            "add",
            &["argument 0 `x`", "for reads only"],
        ),
        (&[(5, 2), (18, 120), (19, 16)], "add", &["command 1", "argument 1 `by`", "payload"]),
        (&[(5, 1), (16, 0), (17, 16)], "add", &["command 1", "argument 0 `x`", "cannot be a value"]),
        (&[(5, 2), (18, 0), (19, 2)], "add", &["command 1", "argument 1 `by`", "at least 4 bytes"]),
    ];
    for (index, (words, kernel, parts)) in cases.iter().enumerate() {
        x.fill(0)?;
        for i in 0..2 {
            commands.command(i)?.kernel(&add)?.buffer(0, &mut x)?.buffer(1, &by)?.dispatch_threads(64, 32)?;
        }
        for (word, value) in *words {
            let at = 16 + 144 + word;
            launch(
                &overwrite,
                &stream,
                Grid::threads(1),
                (Arg::from(&mut commands).of(elinvar::Scalar::U32), at, *value),
            )?;
        }
        let ended = execute(&stream, &commands.execution(0..2).uses((&mut x, &by)))?.wait();
        expect_fault(ended, kernel, parts);
        stream.acknowledge();
        assert!(x.to_vec().is_err(), "case {index}: content of failed work");
    }
    assert!(strange.to_vec()?.iter().all(|x| *x == 0));
    strange.fill(1)?;
    Ok(())
}

fn commands_behind_the_last(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(10), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(100))?;
    let by = device.buffer_with_data(&ramp(100))?;
    let stream = device.stream()?;
    let handle = handles(&commands, &add, &triple)?;
    let args = (handle.clone(), &mut x, &by, 1_u32, Arg::use_resource(&mut commands));
    launch(&encode, &stream, Grid::threads(78), args)?;
    let ended = execute(&stream, &commands.execution(0..10).uses((&mut x, &by)))?.wait();
    expect_fault(ended, "execute_commands", &["command 77", "the indirect command buffer has 10"]);
    stream.acknowledge();
    x.write(&ramp(100))?;
    commands.reset(0..10)?;
    let args = (handle.clone(), &mut x, &by, 1_u32, Arg::use_resource(&mut commands));
    launch(&encode, &stream, Grid::threads(10), args)?;
    execute(&stream, &commands.execution(0..10).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(100);
    reference(&mut expected, &ramp(100), 1, 0..10);
    expect_all(&x.to_vec()?, |i| expected[i]);
    // More buffers than a command can have.
    let mut few = IndirectCommandBuffer::new(device, Descriptor::new(10).buffers(1), &[&add, &triple])?;
    let handle = handles(&few, &add, &triple)?;
    launch(&encode, &stream, Grid::threads(4), (handle, &mut x, &by, 1_u32, Arg::use_resource(&mut few)))?;
    execute(&stream, &few.execution(2..3).uses((&mut x, &by)))?.wait()?;
    reference(&mut expected, &ramp(100), 1, 2..3);
    expect_all(&x.to_vec()?, |i| expected[i]);
    let ended = execute(&stream, &few.execution(2..4).uses((&mut x, &by)))?.wait();
    expect_fault(ended, "execute_commands", &["command 3", "an index of 1 or more"]);
    Ok(())
}

fn faults_name_the_command(device: &Device) -> CaseResult {
    let library = library(device, "add", KERNELS)?;
    let unchecked = IndirectCommandBuffer::new(device, Descriptor::new(1), &[&library.kernel("add")?])?;
    let add = library.checked_kernel("add")?;
    let mut commands = IndirectCommandBuffer::checked(device, Descriptor::new(3), &[&add])?;
    let mut x = device.buffer_with_data(&ramp(64))?;
    for (i, threads) in [(0, 32_u32), (1, 24), (2, 32)] {
        let part = x.slice_mut(if i == 1 { 40..64 } else { 0..32 })?;
        commands
            .command(i)?
            .checked_kernel(&add)?
            .buffer(0, part)?
            .buffer(1, 1_u32)?
            .barrier()
            .dispatch_threads(threads, 32)?;
    }
    let stream = device.stream()?;
    stream.execute_checked(&commands.execution(0..3).uses((&mut x,)))?.wait()?;
    let twice = |i: usize| match i {
        0..32 => ramp(64)[i] + 2,
        40.. => ramp(64)[i] + 1,
        _ => ramp(64)[i],
    };
    expect_all(&x.to_vec()?, twice);
    commands
        .command(1)?
        .checked_kernel(&add)?
        .buffer(0, x.slice_mut(40..64)?)?
        .buffer(1, 1_u32)?
        .barrier()
        .dispatch_threads(25, 32)?;
    let ended = stream.execute_checked(&commands.execution(0..3).uses((&mut x,)).labeled("pass", 7))?.wait();
    let Err(Error::Fault(fault)) = ended else { panic!("{ended:?}") };
    assert_eq!(
        (fault.kernel.as_str(), fault.launch.as_ref().map(|label| label.to_string())),
        ("add", Some("`pass` (7)".into()))
    );
    if device.caps().features.names_accesses {
        for part in ["command 1: ", "element 24", "argument 0 `x`", "24 elements"] {
            assert!(fault.message.contains(part), "`{part}` is missing in: {fault}");
        }
    }
    let refused = stream.execute_checked(&unchecked.execution(0..1));
    assert!(refused.is_err_and(|error| error.to_string().contains("no bounds checks")));
    Ok(())
}

/// Checked kernels whose records are random numbers, mostly near to valid ones, change nothing but the used memory.
fn random_records(device: &Device) -> CaseResult {
    let library = library(device, "add", KERNELS)?;
    IndirectCommandBuffer::new(device, Descriptor::new(1), &[&library.kernel("add")?])?;
    let add = library.checked_kernel("add")?;
    let triple = library.checked_kernel("triple")?;
    let mut commands = IndirectCommandBuffer::checked(device, Descriptor::new(1), &[&add, &triple])?;
    let (mut x, by) = (device.buffer::<u32>(64)?, device.buffer_with_data(&[3_u32; 16])?);
    let stream = device.stream()?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut ran, mut faults) = (0, 0);
    for _ in 0..400 {
        let part = x.slice_mut(0..32)?;
        commands
            .command(0)?
            .checked_kernel(&add)?
            .buffer(0, part)?
            .buffer(1, &by)?
            .dispatch_threads(32, 32)?;
        let mut bytes = commands.record(0)?.to_bytes();
        for _ in 0..random() % 3 {
            let at = random() as usize % 20 * 4;
            // Sizes stay small, so that no launch takes long.
            let value = match if (32..56).contains(&at) { 1 } else { random() % 4 } {
                0 => random() as u32,
                1 => random() as u32 % 64,
                2 => u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i])) ^ 1 << (random() % 32),
                _ => u32::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]))
                    .wrapping_add(random() as u32 % 96),
            };
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        }
        commands.write_record(0, &CommandRecord::from_bytes(&bytes))?;
        x.fill(7)?;
        match stream.execute_checked(&commands.execution(0..1).uses((x.slice_mut(0..32)?, &by)))?.wait() {
            Ok(_) => {
                ran += 1;
                expect_all(&x.to_vec()?[32..], |_| 7);
            }
            Err(Error::Fault(_) | Error::InvalidArgument(_)) => {
                faults += 1;
                stream.acknowledge();
            }
            Err(error) => return Err(error.into()),
        }
        expect_all(&by.to_vec()?, |_| 3);
    }
    assert!(ran > 100 && faults > 50, "{ran} ran, {faults} faults");
    Ok(())
}

fn log_lines(device: &Device) -> CaseResult {
    let body = "
        kernel void said(constant uint& n, uint i [[thread_position_in_grid]]) { os_log_default.log_info(\"%u of %u\", i, n); }";
    let library = logging::compile(
        device,
        "said.metal",
        format!("#include <metal_stdlib>\n#include <metal_logging>\nusing namespace metal;\n{body}"),
    )?;
    let said = library.kernel("said")?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(3), &[&said])?;
    for i in 0..3_u32 {
        commands.command(i)?.kernel(&said)?.buffer(0, 100 + i)?.dispatch_threads(i + 1, 32)?;
    }
    let stream = device.stream()?;
    let lines =
        logging::lines(device, "said", || execute(&stream, &commands.execution(0..3))?.wait().map(drop))?;
    let mut messages: Vec<String> = lines.into_iter().map(|line| line.message).collect();
    messages.sort();
    let expected = ["0 of 100", "0 of 101", "0 of 102", "1 of 101", "1 of 102", "2 of 102"];
    assert_eq!(messages, expected);
    Ok(())
}

fn a_deadline_within_a_command(device: &Device) -> CaseResult {
    let body = "
        kernel void forever(device uint* x, uint i [[thread_position_in_grid]]) { while (x[0] != 77) x[i + 1] += 1; }";
    let [forever] = kernels(device, body, ["forever"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(3), &[&forever])?;
    let mut x = device.buffer_with_data(&[0_u32; 65])?;
    commands.command(2)?.kernel(&forever)?.buffer(0, &mut x)?.dispatch_threads(64, 32)?;
    if device.caps().features.stops_at != elinvar::StopsAt::Loops {
        return Err(Error::unsupported("this device cannot stop a thread within a loop").into());
    }
    let stream = device.stream()?;
    let mut buffer = stream.command_buffer();
    buffer.deadline(Duration::from_millis(30))?;
    // SAFETY: a thread accesses the first word and its own.
    #[allow(unsafe_code)]
    unsafe {
        buffer.execute_commands(&commands.execution(0..3).uses((&mut x,)))?;
    }
    let ended = buffer.submit()?.wait();
    assert!(
        matches!(&ended, Err(Error::Timeout(text)) if text.starts_with("execute_commands: ")),
        "{ended:?}"
    );
    stream.acknowledge();
    x.fill(77)?;
    execute(&stream, &commands.execution(0..3).uses((&mut x,)))?.wait()?;
    expect_all(&x.to_vec()?, |_| 77);
    Ok(())
}

fn cancelled(device: &Device) -> CaseResult {
    let [add] = kernels(device, KERNELS, ["add"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(1), &[&add])?;
    let (mut x, by) = (device.buffer_with_data(&ramp(64))?, device.buffer_with_data(&[5_u32])?);
    commands.command(0)?.kernel(&add)?.buffer(0, &mut x)?.buffer(1, &by)?.dispatch_threads(64, 32)?;
    let (stream, event) = (device.stream()?, device.event()?);
    let mut buffer = stream.command_buffer();
    buffer.wait_for(&event, 1);
    // SAFETY: within the buffers.
    #[allow(unsafe_code)]
    unsafe {
        buffer.execute_commands(&commands.execution(0..1).uses((&mut x, &by)))?;
    }
    let first = buffer.submit()?;
    let second = execute(&stream, &commands.execution(0..1).uses((&mut x, &by)))?;
    assert!(second.cancel());
    event.signal(1);
    first.wait()?;
    assert!(matches!(second.wait(), Err(Error::Cancelled)));
    expect_all(&x.to_vec()?, |i| ramp(64)[i] + 5);
    Ok(())
}

fn wrong_arguments(device: &Device) -> CaseResult {
    let body = format!(
        "{KERNELS}
        [[visible]] uint twice(uint x) {{ return 2 * x; }}
        kernel void table(visible_function_table<uint(uint)> f, device uint* x) {{ x[0] = f[0](x[0]); }}"
    );
    let library = library(device, "wrong", &body)?;
    let (add, triple) = (library.kernel("add")?, library.kernel("triple")?);
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(4).buffers(2), &[&add])?;
    let (mut x, mut words) = (device.buffer::<u32>(8)?, device.buffer::<u32>(1)?);
    refused(IndirectCommandBuffer::new(device, Descriptor::new(0), &[&add]), "0 commands");
    refused(IndirectCommandBuffer::new(device, Descriptor::new(1).buffers(32), &[&add]), "32 buffers");
    refused(IndirectCommandBuffer::new(device, Descriptor::new(1), &[]), "0 kernels");
    refused(IndirectCommandBuffer::new(device, Descriptor::new(1).inherit_kernel(), &[&add]), "1 kernels");
    match library.kernel("table") {
        Ok(table) => refused(
            IndirectCommandBuffer::new(device, Descriptor::new(1), &[&add, &table]),
            "visible_function_table",
        ),
        // The chapter `function_pointers` expects that of Metal only.
        Err(error) => assert!(matches!(error, Error::Unsupported(_)), "{error}"),
    }
    refused(commands.number(&triple), "kernel `triple` is not among");
    refused(commands.command(4), "commands 4..5 of an indirect command buffer of 4");
    refused(commands.command(0)?.kernel(&triple), "kernel `triple`");
    refused(commands.command(0)?.kernel(&add)?.buffer(2, &mut x), "buffer 2 of 2");
    refused(commands.command(0)?.kernel(&add)?.buffer(0, Arg::unbound()), "neither a buffer nor a value");
    refused(commands.command(0)?.kernel(&add)?.buffer(1, 1.0_f64), "f64");
    refused(commands.command(0)?.dispatch_threads(1, 1), "no kernel");
    refused(commands.command(0)?.kernel(&add)?.dispatch_threads(1, 0), "threadgroups of 0×1×1");
    refused(commands.command(0)?.kernel(&add)?.dispatch_threads(1, (64, 64)), "threadgroups of 64×64×1");
    refused(commands.command(0)?.kernel(&add)?.dispatch_threads(-1, 1), "grid");
    refused(commands.command(0)?.kernel(&add)?.dispatch_threadgroups(u32::MAX, 2), "along a dimension");
    assert!(empty(&commands, 4)?.iter().all(|empty| *empty), "what is refused encodes nothing");
    let stream = device.stream()?;
    refused(commands.reset(3..5), "3..5");
    refused(stream.reset_commands(&mut commands, 2..6), "2..6");
    refused(execute(&stream, &commands.execution(0..5)), "0..5");
    refused(execute(&stream, &commands.execution(0..1).uses((1_u32,))), "not a buffer");
    refused(execute(&stream, &commands.execution(&words)), "two u32");
    refused(execute(&stream, &commands.execution(0..1).kernel(&add)), "have their own");
    refused(execute(&stream, &commands.execution(0..1).buffer(0, &mut x)), "have their own");
    words.fill(0)?;
    execute(&stream, &commands.execution(0..4))?.wait()?;
    Ok(())
}

/// The submission in which a kernel encodes fails; then all is reset, and encoded again.
fn used_again_after_a_failure(device: &Device) -> CaseResult {
    let [encode, add, triple] = kernels(device, KERNELS, ["encode", "add", "triple"])?;
    let mut commands = IndirectCommandBuffer::new(device, Descriptor::new(10), &[&add, &triple])?;
    let mut x = device.buffer_with_data(&ramp(40))?;
    let by = device.buffer_with_data(&ramp(10))?;
    let range = device.buffer_with_data(&[3_u32, 8])?;
    let stream = device.stream()?;
    let mut buffer = stream.command_buffer();
    let handle = handles(&commands, &add, &triple)?;
    // SAFETY: all stay within their buffers.
    #[allow(unsafe_code)]
    unsafe {
        let args = (handle.clone(), &mut x, &by, 4_u32, Arg::use_resource(&mut commands));
        buffer.launch(&encode, Grid::threads(10), args)?;
        buffer.execute_commands(&commands.execution(&range).uses((&mut x, &by)))?;
    }
    let ended = buffer.submit()?.wait();
    expect_fault(ended, "execute_commands", &["8 commands from 3 on"]);
    stream.acknowledge();
    assert!(matches!(commands.record(0), Err(Error::Poisoned(_))));
    commands.reset(0..10)?;
    x.write(&ramp(40))?;
    assert!(empty(&commands, 10)?.iter().all(|empty| *empty));
    let args = (handle, &mut x, &by, 4_u32, Arg::use_resource(&mut commands));
    launch(&encode, &stream, Grid::threads(10), args)?;
    execute(&stream, &commands.execution(0..10).uses((&mut x, &by)))?.wait()?;
    let mut expected = ramp(40);
    reference(&mut expected, &ramp(10), 4, 0..10);
    expect_all(&x.to_vec()?, |i| expected[i]);
    Ok(())
}
