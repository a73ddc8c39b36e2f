//! Primitives that a device fails to compute, and reruns on the other devices. Runs with `ELINVAR_APPLE_PROFILE=apple9,apple7,apple1`; the
//! last has no library of primitives.
#![cfg(elinvar_apple)]

mod support;

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use elinvar::driver::primitive::{DataType, MatMul};
use elinvar::{Action, Buffer, Device, DeviceKind, Error, Primitive, RecoveryPolicy, Stream};
use support::recovery::decisions;

const SIDE: u32 = 24;
const COUNT: usize = (SIDE * SIDE) as usize;
/// The stand-in's number of the site of failures during execution.
const EXECUTION: u32 = 7;
/// `MTLCommandBufferErrorInternal`.
const INTERNAL: isize = 1;

#[allow(unsafe_code)] // the stand-in's C functions
unsafe extern "C" {
    fn MTLCreateSystemDefaultDevice() -> *mut c_void;
    fn elinvar_apple_inject(device: *mut c_void, site: u32, nth: u64, code: isize, encoder: isize);
    fn objc_release(object: *mut c_void);
}

/// The devices, and the faults injected into them, are global to the process.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The devices of the profiles, in the same order.
fn devices() -> [Device; 3] {
    let all = Device::all().unwrap().into_iter().filter(|device| device.kind() == DeviceKind::Metal);
    all.collect::<Vec<_>>().try_into().expect("ELINVAR_APPLE_PROFILE=apple9,apple7,apple1")
}

/// Makes the next `count` command buffers of the first device fail.
#[allow(unsafe_code)] // the stand-in's C functions
fn fail(count: u64) {
    // SAFETY: the address is that of a device, which is released below.
    unsafe {
        let first = MTLCreateSystemDefaultDevice();
        (1..=count).for_each(|nth| elinvar_apple_inject(first, EXECUTION, nth, INTERNAL, -1));
        objc_release(first);
    }
}

fn product() -> Primitive {
    Primitive::MatMul(MatMul::packed(DataType::F32, SIDE, SIDE, SIDE))
}

/// Two factors and a buffer for their product, whose elements are the column index times `3 * SIDE`.
fn matrices(device: &Device) -> [Buffer<f32>; 3] {
    let column = |i: usize| (i % SIDE as usize) as f32;
    let columns = device.buffer_with_data(&std::array::from_fn::<f32, COUNT, _>(column)).unwrap();
    [
        device.buffer_with_data(&[3.0; COUNT]).unwrap(),
        columns,
        device.buffer_with_data(&[-1.0; COUNT]).unwrap(),
    ]
}

fn expected() -> Vec<f32> {
    (0..COUNT).map(|i| (i % SIDE as usize) as f32 * 3.0 * SIDE as f32).collect()
}

/// A stream whose work has one attempt, and is then rerun on another device.
fn stream(device: &Device, other: &Device) -> Stream {
    device.trace().start(1000);
    let rerun = Some(other.clone());
    let policy = RecoveryPolicy { attempts: 1, faults: true, rerun, ..RecoveryPolicy::of(device) };
    device.stream_recovering(policy).unwrap()
}

#[test]
fn primitives_of_a_failing_device_are_computed_by_another() {
    let _alone = alone();
    let [device, other, _] = devices();
    let stream = stream(&device, &other);
    let [a, b, mut result] = matrices(&device);
    fail(1);
    stream.primitive(&product(), (&a, &b, &mut result)).unwrap().wait().unwrap();
    assert_eq!(result.to_vec().unwrap(), expected());
    let decisions = decisions(&device);
    assert!(matches!(&decisions[..], [(Action::Rerun, why)] if why.contains(other.name())), "{decisions:?}");
    // The device itself remains usable.
    result.fill(-1.0).unwrap();
    stream.primitive(&product(), (&a, &b, &mut result)).unwrap().wait().unwrap();
    assert_eq!(result.to_vec().unwrap(), expected());
}

#[test]
fn primitives_are_not_computed_by_devices_without_them() {
    let _alone = alone();
    let [device, _, without] = devices();
    let stream = stream(&device, &without);
    let [a, b, mut result] = matrices(&device);
    fail(1);
    let error = stream.primitive(&product(), (&a, &b, &mut result)).unwrap().wait().unwrap_err();
    assert!(!matches!(error, Error::Unsupported(_)), "the first error is the one: {error}");
    let decisions = decisions(&device);
    let [(Action::Rerun, _), (Action::GiveUp, why)] = &decisions[..] else { panic!("{decisions:?}") };
    let reason = format!("matrix multiplication of f32: device `{}` has no library", without.name());
    assert!(why.contains(&reason), "{why}");
}

#[test]
fn primitives_of_a_failing_device_are_computed_by_the_cpu() {
    let _alone = alone();
    let [device, ..] = devices();
    let stream = stream(&device, &Device::cpu().unwrap());
    let [a, b, mut result] = matrices(&device);
    fail(1);
    stream.primitive(&product(), (&a, &b, &mut result)).unwrap().wait().unwrap();
    assert_eq!(result.to_vec().unwrap(), expected());
}
