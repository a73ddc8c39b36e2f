//! Primitives: kernels that are created for them and cached, and live objects afterwards; with the stand-ins for Apple's libraries.
#![cfg(elinvar_apple)]
#![allow(unsafe_code)] // calls the stand-in's C functions

mod support;

use std::ffi::{CStr, c_char};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use elinvar_driver::primitive::{
    Convolution, DataType, Extent, Images, Layout, MatMul, Matrix, Reduction, ReductionKind, Window,
};
use elinvar_driver::{Binding, Command, Error, Memory, Primitive};
use objc2::runtime::{AnyObject, ProtocolObject};
use objc2_metal::{MTLCommandBufferError, MTLCreateSystemDefaultDevice, MTLDevice};
use support::{devices, dispatch, floats, pipeline, run, values, whole};

const EXECUTION: u32 = 7;

unsafe extern "C" {
    fn elinvar_apple_inject(device: *const AnyObject, site: u32, nth: u64, code: isize, encoder: isize);
    fn elinvar_apple_live(name: *const c_char) -> usize;
    fn elinvar_apple_settle(milliseconds: u64) -> bool;
}

/// Objects are counted for the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn live(name: &CStr) -> usize {
    // SAFETY: the function takes an integer and has no preconditions.
    assert!(unsafe { elinvar_apple_settle(600_000) }, "the stand-in's threads go on");
    // SAFETY: the name ends with a zero byte.
    unsafe { elinvar_apple_live(name.as_ptr()) }
}

fn command(primitive: Primitive, memory: &[&Arc<dyn Memory>]) -> Command {
    Command::Primitive { primitive, operands: memory.iter().map(|memory| whole(memory)).collect() }
}

fn product(side: u32) -> Primitive {
    Primitive::MatMul(MatMul::packed(DataType::F32, side, side, side))
}

/// The sums of two rows with padding between them.
fn sums() -> Primitive {
    Primitive::Reduction(Reduction {
        data_type: DataType::F32,
        kind: ReductionKind::Sum,
        each: Extent::Row,
        source: Matrix::strided(2, 3, 16),
    })
}

fn convolution() -> Primitive {
    let source = Images { count: 2, channels: 1, height: 2, width: 2 };
    let window = Window::new(2, 2);
    let convolution = Convolution::new(DataType::F32, Layout::ChannelsLast, source, 1, window);
    Primitive::Convolution(Convolution { bias: true, ..convolution })
}

#[test]
fn a_shape_that_comes_again_has_its_kernels() {
    let _alone = alone();
    let device = devices().swap_remove(0);
    let queue = device.queue().unwrap();
    let (source, result) = (floats(&*device, &[1.0; 8]), floats(&*device, &[0.0; 2]));
    let (weights, bias) = (floats(&*device, &[0.5; 4]), floats(&*device, &[3.0]));
    let all = || {
        vec![
            command(sums(), &[&source, &result]),
            command(convolution(), &[&source, &weights, &bias, &result]),
            command(sums(), &[&source, &result]),
        ]
    };
    let before = live(c"MPSKernel");
    run(&*queue, all()).unwrap();
    let after = live(c"MPSKernel");
    // Two image copies each for the reduction and the convolution, a packing copy, a reduction and a convolution; the second reduction
    // shares the kernels of the first.
    assert_eq!(after - before, 7);
    for round in 0..3 {
        run(&*queue, all()).unwrap();
        assert_eq!(values(&result), [3.0; 2], "round {round}");
    }
    run(&*queue, vec![command(convolution(), &[&source, &weights, &bias, &result])]).unwrap();
    assert_eq!(values(&result), [5.0; 2]);
    assert_eq!(live(c"MPSKernel"), after);
    for name in [
        c"MPSMatrix",
        c"MPSImage",
        c"MPSImageDescriptor",
        c"MPSCNNConvolutionWeightsAndBiasesState",
        c"MPSVector",
    ] {
        assert_eq!(live(name), 0, "{name:?}");
    }
    // The cache keeps its maximum number of kernels.
    let square = floats(&*device, &[1.0; 50 * 50]);
    let to = floats(&*device, &[0.0; 50 * 50]);
    for side in 1..=50 {
        run(&*queue, vec![command(product(side), &[&square, &square, &to])]).unwrap();
    }
    assert_eq!(values(&to), [50.0; 50 * 50]);
    assert_eq!(live(c"MPSKernel") - before, 32);
    drop((queue, source, result, weights, bias, square, to));
    drop(device);
    assert_eq!(live(c"MPSKernel"), before);
}

#[test]
fn a_failure_says_what_was_computed() {
    let _alone = alone();
    let device = devices().swap_remove(0);
    let add = pipeline(
        &*device,
        "kernel void add(device float* x [[buffer(0)]], uint i [[thread_position_in_grid]]) { x[i] += 1; }",
        "add",
    );
    let queue = device.queue().unwrap();
    let (source, result) = (floats(&*device, &[1.0; 8]), floats(&*device, &[0.0; 2]));
    let launch = || dispatch(&add, vec![Binding::Memory(whole(&source))], 8, 8);
    let fail = |code: MTLCommandBufferError, commands: Vec<Command>, encoder: isize| {
        let system = MTLCreateSystemDefaultDevice().expect("a device");
        let system: *const ProtocolObject<dyn MTLDevice> = &raw const *system;
        // SAFETY: the address is that of a live device.
        unsafe { elinvar_apple_inject(system.cast(), EXECUTION, 1, code.0 as isize, encoder) };
        let error = run(&*queue, commands).unwrap_err();
        assert!(queue.acknowledge().is_some());
        error
    };
    let faulted = |commands, encoder| match fail(MTLCommandBufferError::PageFault, commands, encoder) {
        Error::Fault(fault) => fault.kernel,
        other => panic!("{other}"),
    };
    let four = floats(&*device, &[0.0; 4]);
    let square = || command(product(2), &[&source, &source, &four]);
    // Each command has its own encoder, so the failing one is known.
    assert_eq!(faulted(vec![launch(), square(), launch()], 1), "matrix multiplication");
    assert_eq!(faulted(vec![launch(), square(), launch()], 2), "add");
    // A reduction has several encoders, so an error may belong to any encoded command.
    assert_eq!(faulted(vec![command(sums(), &[&source, &result]), launch()], 4), "add");
    assert_eq!(faulted(vec![command(sums(), &[&source, &result])], 2), "reduction");
    // Total bytes of all operands and bindings: 2 × 8 elements and 4 elements for the product, 8 elements for the launch.
    let full = fail(MTLCommandBufferError::OutOfMemory, vec![launch(), square()], 0);
    assert!(matches!(full, Error::OutOfMemory { requested: 112, .. }), "{full}");
    run(&*queue, vec![command(sums(), &[&source, &result])]).unwrap();
    let sum = values(&source)[..3].iter().sum::<f32>();
    assert_eq!(values(&result), [sum; 2]);
}

#[test]
fn operands_are_looked_at_here_as_well() {
    let _alone = alone();
    for device in devices() {
        let queue = device.queue().unwrap();
        let (a, small) = (floats(&*device, &[1.0; 4]), floats(&*device, &[1.0; 3]));
        let result = floats(&*device, &[0.0; 4]);
        let error = run(&*queue, vec![command(product(2), &[&a, &small, &result])]).unwrap_err();
        assert!(
            matches!(&error, Error::InvalidArgument(text) if text.contains("`right` needs 16")),
            "{error}"
        );
        queue.acknowledge();
        let error = run(&*queue, vec![command(product(2), &[&a, &a])]).unwrap_err();
        assert!(matches!(&error, Error::InvalidArgument(text) if text.contains("3 operands")), "{error}");
        queue.acknowledge();
        run(&*queue, vec![command(product(2), &[&a, &a, &result])]).unwrap();
        assert_eq!(values(&result), [2.0; 4]);
    }
}
