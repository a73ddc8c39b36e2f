//! Primitives by MPSGraph, with the stand-ins for Apple's libraries: command buffers that MPSGraph commits, failures, objects, and systems that
//! have less of it.
#![cfg(elinvar_apple)]
#![allow(unsafe_code)] // calls the stand-in's C functions

mod support;

use std::ffi::{CStr, c_char};
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use elinvar_driver::primitive::{
    Activation, Attention, DataType, Layout, MatMul, VolumeConvolution, VolumeWindow, Volumes,
};
use elinvar_driver::{Binding, Command, Device, Error, Memory, MemorySlice, Primitive, Storage};
use objc2_metal::MTLCommandBufferError;
use support::standin::{EXECUTION, Held, alone, committed, inject};
use support::{devices, dispatch, floats, memory, pipeline, run, slice, submit, values, whole, write};

unsafe extern "C" {
    fn elinvar_apple_graphs_commit(how: u32);
    fn elinvar_apple_live(name: *const c_char) -> usize;
    fn elinvar_apple_settle(milliseconds: u64) -> bool;
}

/// What MPSGraph does behind a graph.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Commits {
    Nothing,
    ByMessage,
    Anyway,
}

fn set(how: Commits) {
    // SAFETY: the function takes an integer and has no preconditions.
    unsafe { elinvar_apple_graphs_commit(how as u32) };
}

/// Restores the default.
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        set(Commits::ByMessage);
    }
}

fn live(name: &CStr) -> usize {
    // SAFETY: the function takes an integer and has no preconditions.
    assert!(unsafe { elinvar_apple_settle(600_000) }, "the stand-in's threads go on");
    // SAFETY: the name ends with a zero byte.
    unsafe { elinvar_apple_live(name.as_ptr()) }
}

/// `max(left · right, 0)`, which the shaders lack.
fn product(side: u32) -> Primitive {
    let activation = Activation::Relu;
    Primitive::MatMul(MatMul { activation, ..MatMul::packed(DataType::F32, side, side, side) })
}

fn command(primitive: Primitive, operands: &[MemorySlice]) -> Command {
    Command::Primitive { primitive, operands: operands.to_vec() }
}

fn of(primitive: Primitive, memory: &[&Arc<dyn Memory>]) -> Command {
    command(primitive, &memory.iter().map(|memory| whole(memory)).collect::<Vec<_>>())
}

const ADD: &str =
    "kernel void add(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }";

/// Memory of 2 × 2 matrices, and a kernel that adds 1.
struct Fixture {
    device: Arc<dyn Device>,
    left: Arc<dyn Memory>,
    right: Arc<dyn Memory>,
    result: Arc<dyn Memory>,
    add: Arc<dyn elinvar_driver::Pipeline>,
}

impl Fixture {
    fn new() -> Self {
        let device = devices().swap_remove(0);
        let (left, right) =
            (floats(&*device, &[0.0, 1.0, -3.0, 2.0]), floats(&*device, &[1.0, -1.0, 2.0, 0.5]));
        let (result, add) = (floats(&*device, &[7.0; 4]), pipeline(&*device, ADD, "add"));
        Self { device, left, right, result, add }
    }

    fn launch(&self, on: &Arc<dyn Memory>) -> Command {
        dispatch(&self.add, vec![Binding::Memory(whole(on))], 4, 4)
    }

    fn graph(&self) -> Command {
        of(product(2), &[&self.left, &self.right, &self.result])
    }

    /// A launch on the left factor, the product, and a launch on the result.
    fn all(&self) -> Vec<Command> {
        vec![self.launch(&self.left), self.graph(), self.launch(&self.result)]
    }

    /// The result of [`Fixture::all`], after so many of them.
    fn expected(times: u8) -> [f32; 4] {
        let add = f32::from(times);
        let (left, right) = ([add, 1.0 + add, add - 3.0, 2.0 + add], [1.0, -1.0, 2.0, 0.5]);
        std::array::from_fn(|at| {
            let (row, column) = (at / 2 * 2, at % 2);
            (left[row] * right[column] + left[row + 1] * right[2 + column]).max(0.0) + 1.0
        })
    }
}

#[test]
fn a_command_buffer_that_mpsgraph_commits_goes_on() {
    let _alone = alone();
    let _restored = Restored;
    let fixture = Fixture::new();
    let queue = fixture.device.queue().unwrap();
    for (times, how) in [Commits::Nothing, Commits::ByMessage, Commits::Anyway].into_iter().enumerate() {
        set(how);
        let before = committed(0);
        let timing = run(&*queue, fixture.all()).unwrap();
        assert_eq!(values(&fixture.result), Fixture::expected(times as u8 + 1), "{how:?}");
        // The message has no effect: the queue commits its command buffers itself.
        assert_eq!(committed(0) - before, if how == Commits::Anyway { 2 } else { 1 }, "{how:?}");
        assert!(timing.start_ns > 0 && timing.start_ns <= timing.end_ns, "{timing:?}");
    }
    // Several graphs in a command buffer, each of which is committed.
    set(Commits::Anyway);
    let before = committed(0);
    run(&*queue, [fixture.all(), fixture.all()].concat()).unwrap();
    assert_eq!(values(&fixture.result), Fixture::expected(5));
    assert_eq!(committed(0) - before, 3);
}

#[test]
fn a_failure_before_during_and_after_a_graph() {
    let _alone = alone();
    let _restored = Restored;
    for how in [Commits::Nothing, Commits::ByMessage, Commits::Anyway] {
        set(how);
        let fixture = Fixture::new();
        let queue = fixture.device.queue().unwrap();
        // Each command has its own encoder, so the failing one is known, unless the command buffer has been divided.
        let encoders = if how == Commits::Anyway { 2 } else { 3 };
        for encoder in 0..encoders {
            inject(EXECUTION, 1, MTLCommandBufferError::PageFault, encoder);
            let error = run(&*queue, fixture.all()).unwrap_err();
            let Error::Fault(fault) = error else { panic!("{how:?}: {error}") };
            let expected = match (how, encoder) {
                // One of two launches.
                (Commits::Anyway, _) => "add",
                (_, 1) => "matrix multiplication",
                _ => "add",
            };
            assert_eq!(fault.kernel, expected, "{how:?}, encoder {encoder}: {fault:?}");
            assert!(queue.acknowledge().is_some());
        }
        if how == Commits::Anyway {
            // The part that the queue commits, behind the graph.
            inject(EXECUTION, 2, MTLCommandBufferError::PageFault, 0);
            let error = run(&*queue, fixture.all()).unwrap_err();
            assert!(matches!(&error, Error::Fault(fault) if fault.kernel == "add"), "{error}");
            assert!(queue.acknowledge().is_some());
        }
        run(&*queue, vec![fixture.graph()]).unwrap();
    }
}

/// What is submitted behind a graph that fails does not count as executed, though MPSGraph has committed a part.
#[test]
fn work_behind_a_failed_part_is_poisoned() {
    let _alone = alone();
    let _restored = Restored;
    set(Commits::Anyway);
    let fixture = Fixture::new();
    let other = floats(&*fixture.device, &[1.0; 4]);
    let queue = fixture.device.queue().unwrap();
    let held = Held::before(0, 0);
    inject(EXECUTION, 1, MTLCommandBufferError::Internal, 1);
    let (_, first) = submit(&*queue, fixture.all());
    let (_, second) = submit(&*queue, vec![fixture.launch(&other)]);
    drop(held);
    assert!(matches!(first.recv().unwrap(), Err(Error::Fault(_))));
    assert!(matches!(second.recv().unwrap(), Err(Error::Poisoned(_))));
    assert!(queue.acknowledge().is_some());
    run(&*queue, vec![fixture.graph()]).unwrap();
}

/// A part that MPSGraph has committed runs to its end before a submission fails whose commands cannot be encoded: its memory is in use.
#[test]
fn a_submission_ends_behind_its_parts() {
    let _alone = alone();
    let _restored = Restored;
    set(Commits::Anyway);
    let fixture = Fixture::new();
    let queue = fixture.device.queue().unwrap();
    let small = floats(&*fixture.device, &[0.0; 3]);
    let held = Held::before(0, 0);
    let released = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        drop(held);
    });
    let wrong = of(product(2), &[&fixture.left, &fixture.right, &small]);
    let error = run(&*queue, vec![fixture.launch(&fixture.left), fixture.graph(), wrong]).unwrap_err();
    assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("`result` needs 16")), "{error}");
    let expected = Fixture::expected(1).map(|value| value - 1.0);
    assert_eq!(values(&fixture.result), expected, "the part had not completed");
    released.join().unwrap();
    assert!(queue.acknowledge().is_some());
}

#[test]
fn executables_are_cached_and_arrays_released() {
    let _alone = alone();
    let before = live(c"MPSGraphExecutable");
    let device = devices().swap_remove(0);
    let queue = device.queue().unwrap();
    // Operands one after another in one memory, so that some have an offset that is no multiple of 16.
    let all = floats(&*device, &[1.0; 3 * 41 * 41]);
    for side in 1..=40_u32 {
        let bytes = 4 * u64::from(side * side);
        let operands = [0, 1, 2].map(|at| slice(&all, at * bytes, bytes));
        for round in 0..2 {
            write(&all, 0, &1.0_f32.to_ne_bytes().repeat(3 * 41 * 41));
            run(&*queue, vec![command(product(side), &operands)]).unwrap();
            let (got, count) = (values(&all), (side * side) as usize);
            let is_right = |(at, value): (usize, &f32)| match at / count {
                2 => *value == side as f32,
                _ => *value == 1.0,
            };
            assert!(got.iter().enumerate().all(is_right), "{side}, round {round}: {got:?}");
        }
    }
    for name in [c"MPSGraphTensorData", c"MPSNDArray", c"MPSNDArrayDescriptor", c"ElinvarHeldCommandBuffer"] {
        assert_eq!(live(name), 0, "{name:?}");
    }
    assert_eq!(live(c"MPSGraphExecutable") - before, 32);
    drop((queue, all));
    drop(device);
    assert_eq!(live(c"MPSGraphExecutable"), before);
}

const CHILD: &str = "ELINVAR_TEST_SYSTEM";
const TEST: &str = "each_system_computes_what_it_has";

/// Prints for primitives, with operands at the start of their memory and behind it, what computes them or why nothing does; computes the first.
fn child() {
    let device = devices().swap_remove(0);
    let queue = device.queue().unwrap();
    let volumes = |size| Volumes { count: 1, channels: 2, size };
    let convolution = |source, result, size| {
        let window = VolumeWindow { size, stride: [1; 3], dilation: [1; 3], padding: [0; 3] };
        Primitive::VolumeConvolution(VolumeConvolution {
            data_type: DataType::F32,
            layout: Layout::ChannelsFirst,
            source: volumes(source),
            result: volumes(result),
            window,
            groups: 2,
            bias: false,
            transposed: false,
        })
    };
    let attention = Primitive::Attention(Attention {
        data_type: DataType::F16,
        batch: 1,
        heads: 2,
        key_heads: 1,
        queries: 3,
        keys: 4,
        width: 8,
        value_width: 8,
        scale: 0.5,
        causal: Some(1),
        mask: None,
    });
    let half = Primitive::MatMul(MatMul::packed(DataType::BF16, 2, 2, 2));
    let flat = convolution([1, 4, 5], [1, 2, 3], [1, 3, 3]);
    let deep = convolution([3, 4, 5], [2, 2, 3], [2, 3, 3]);
    for primitive in [product(2), half, flat, deep, attention] {
        let (wanted, caps) = (primitive.operands().unwrap(), device.caps());
        for offset in [0, 4] {
            let apart: Vec<_> = wanted.iter().map(|_| memory(&*device, 4096, Storage::Shared)).collect();
            let operands: Vec<_> = apart
                .iter()
                .zip(&wanted)
                .map(|(memory, operand)| slice(memory, offset, operand.bytes))
                .collect();
            match caps.features.primitives.expect(&primitive, &operands, &caps.name) {
                Ok(()) => {
                    run(&*queue, vec![command(primitive, &operands)]).unwrap();
                    println!("\n= {}", caps.features.primitives.algorithm(&primitive, &operands));
                }
                Err(error) => println!("\n= {error}"),
            }
        }
    }
    println!("\n= {:?}", device.details());
    let fixture = Fixture::new();
    let queue = fixture.device.queue().unwrap();
    let computed = run(&*queue, fixture.all()).map(|_| values(&fixture.result) == Fixture::expected(1));
    println!("\n= {computed:?}");
}

#[test]
fn each_system_computes_what_it_has() {
    if std::env::var_os(CHILD).is_some() {
        return child();
    }
    let said = |system: &str| -> Vec<String> {
        let mut process = Process::new(std::env::current_exe().unwrap());
        process.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1").env("ELINVAR_APPLE_OS", system);
        let output = process.env_remove("ELINVAR_APPLE_PROFILE").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{system}: {text}{}", String::from_utf8_lossy(&output.stderr));
        text.lines().filter_map(|line| line.strip_prefix("= ")).map(str::to_owned).collect()
    };
    const PRODUCT: &str = "MPSGraph matrixMultiplication";
    const IMAGES: &str = "MPSGraph convolution2D";
    const VOLUMES: &str = "MPSGraph convolution3D";
    const COMPOSED: &str = "MPSGraph matrixMultiplication, exponent and sums";
    const ATTENTION: &str = "MPSGraph scaledDotProductAttention";
    const NONE: &str = "there is no MPSGraph before macOS 12.3";
    const START: &str = "MPSGraph takes operands at the start of a buffer only, before macOS 15";
    const BFLOAT: &str = "MPSGraph computes with bf16 from macOS 14 on only";
    const DEEP: &str = "MPSGraph convolves along three axes from macOS 13.2 on only";
    for (system, expected) in [
        ("10.15", [NONE; 10]),
        ("11.0", [NONE; 10]),
        ("12.2", [NONE; 10]),
        ("12.3", [PRODUCT, START, BFLOAT, BFLOAT, IMAGES, START, DEEP, START, COMPOSED, START]),
        ("13.6", [PRODUCT, START, BFLOAT, BFLOAT, IMAGES, START, VOLUMES, START, COMPOSED, START]),
        ("14.6", [PRODUCT, START, PRODUCT, START, IMAGES, START, VOLUMES, START, COMPOSED, START]),
        (
            "15.5",
            [PRODUCT, PRODUCT, PRODUCT, PRODUCT, IMAGES, IMAGES, VOLUMES, VOLUMES, ATTENTION, ATTENTION],
        ),
    ] {
        let said = said(system);
        assert_eq!(said.len(), 12, "{system}: {said:?}");
        for (said, expected) in said.iter().zip(expected) {
            assert!(said.ends_with(expected), "macOS {system}: `{said}`, expected `{expected}`");
        }
        let computed = if expected[0] == NONE { NONE } else { "Ok(true)" };
        assert!(said[11].contains(computed), "macOS {system}: {}", said[11]);
        let detail = match system {
            "12.3" => "is used, without bf16 (macOS 14), convolution along three axes (macOS 13.2), operands",
            "14.6" => {
                "is used, without operands within a buffer (macOS 15), attention as one operation (macOS 15)\""
            }
            "15.5" => "\"is used\"",
            _ if computed == NONE => "is not used: it needs macOS 12.3",
            _ => "is used, without",
        };
        assert!(said[10].contains(detail), "macOS {system}: {}", said[10]);
    }
}
