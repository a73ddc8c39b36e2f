//! Observers of device changes:
//! [`MTLCopyAllDevicesWithObserver`](https://developer.apple.com/documentation/metal/mtlcopyalldeviceswithobserver(handler:)),
//! and [`MTLDeviceWasRemovedNotification`](https://developer.apple.com/documentation/metal/mtldevicenotificationname/wasremoved).
//!
//! A device is removed when a test injects a fault with `MTLCommandBufferErrorDeviceRemoved`. Guesses: the notification is delivered on the
//! thread of the fault, before the operation fails; no other notification precedes it.

use std::sync::atomic::Ordering;

use elinvar_objc::{Argument as _, Block, BlockPointer, Declaration, Id, Ref};
use parking_lot::Mutex;

use crate::device::Device;

type Notice = Block<(Id, Id)>;

/// Observer token of a handler.
struct Observer(Notice);

elinvar_objc::object!(Observer, c"ElinvarMTLDeviceObserver");

static OBSERVERS: Mutex<Vec<Ref<Observer>>> = Mutex::new(Vec::new());

elinvar_objc::string_constants! {
    MTLDeviceWasAddedNotification = "MTLDeviceWasAddedNotification",
    MTLDeviceRemovalRequestedNotification = "MTLDeviceRemovalRequestedNotification",
    MTLDeviceWasRemovedNotification = "MTLDeviceWasRemovedNotification",
}

/// All devices, with notification of changes.
///
/// # Safety
/// `observer` points to an object pointer; `handler` is a block that takes a device and a string.
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

/// Removes an observer.
///
/// # Safety
/// `observer` comes from [`MTLCopyAllDevicesWithObserver`].
#[unsafe(no_mangle)]
unsafe extern "C" fn MTLRemoveDeviceObserver(observer: Id) {
    let known = |other: &Ref<Observer>| other.id() == observer;
    let mut observers = OBSERVERS.lock();
    let gone = observers.iter().position(known).map(|at| observers.remove(at));
    drop(observers);
    drop(gone);
}

/// Notifies all observers of a removal.
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
