//! Who wants to know of devices that come and go:
//! [`MTLCopyAllDevicesWithObserver`](https://developer.apple.com/documentation/metal/mtlcopyalldeviceswithobserver(handler:)),
//! and [`MTLDeviceWasRemovedNotification`](https://developer.apple.com/documentation/metal/mtldevicenotificationname/wasremoved).
//!
//! A device goes when a test lets something fail with `MTLCommandBufferErrorDeviceRemoved`. Guesses: the notice comes on the
//! thread on which that happens, before it fails; no other notice comes before.

use std::sync::atomic::Ordering;

use elinvar_objc::{Argument as _, Block, BlockPointer, Declaration, Id, Ref};
use parking_lot::Mutex;

use crate::device::Device;

type Notice = Block<(Id, Id)>;

/// Stands for a handler.
struct Observer(Notice);

elinvar_objc::object!(Observer, c"ElinvarMTLDeviceObserver");

static OBSERVERS: Mutex<Vec<Ref<Observer>>> = Mutex::new(Vec::new());

elinvar_objc::string_constants! {
    MTLDeviceWasAddedNotification = "MTLDeviceWasAddedNotification",
    MTLDeviceRemovalRequestedNotification = "MTLDeviceRemovalRequestedNotification",
    MTLDeviceWasRemovedNotification = "MTLDeviceWasRemovedNotification",
}

/// All devices, with notice of what changes.
///
/// # Safety
/// `observer` is a place for an object, `handler` a block that takes a device and a string.
#[unsafe(no_mangle)]
unsafe extern "C" fn MTLCopyAllDevicesWithObserver(observer: *mut Id, handler: BlockPointer) -> Id {
    // SAFETY: the caller's promise.
    if let Some(handler) = unsafe { Option::<Notice>::from_raw(handler) } {
        let made = Ref::new(Observer(handler));
        OBSERVERS.lock().push(made.clone());
        // SAFETY: the caller's promise.
        unsafe { observer.write(made.into_object().into_owned()) };
    }
    crate::device::all().into_object().into_owned()
}

/// No more notice.
///
/// # Safety
/// `observer` is what [`MTLCopyAllDevicesWithObserver`] gave.
#[unsafe(no_mangle)]
unsafe extern "C" fn MTLRemoveDeviceObserver(observer: Id) {
    let known = |other: &Ref<Observer>| other.id() == observer;
    let mut observers = OBSERVERS.lock();
    let gone = observers.iter().position(known).map(|at| observers.remove(at));
    drop(observers);
    drop(gone);
}

/// Tell all that a device is gone.
pub fn removed(device: &Ref<Device>) {
    let name = MTLDeviceWasRemovedNotification.load(Ordering::Acquire);
    let all: Vec<Ref<Observer>> = OBSERVERS.lock().clone();
    for observer in all {
        observer.0.call(device.id(), name);
    }
}

pub fn register() {
    register_constants();
    Declaration::<Observer>::new().register();
}
