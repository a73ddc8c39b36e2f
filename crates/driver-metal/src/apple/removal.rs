//! Detection of removed devices.
//!
//! Work that was committed to a removed device fails with a specific error code. Requests for objects (memory, encoders) just return nil,
//! without a reason; therefore the driver observes macOS's notifications about removed devices.

use std::sync::Arc;

use elinvar_driver::{Error, Result};
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;
use parking_lot::Mutex;

/// The reason why a device is lost, if it is.
#[derive(Default)]
pub(super) struct Lost(Mutex<Option<Error>>);

impl Lost {
    /// # Errors
    /// `DeviceLost`, with the first reason.
    pub(super) fn expect_present(&self) -> Result<()> {
        self.0.lock().clone().map_or(Ok(()), Err)
    }

    /// Records that the device is lost, if the error says so.
    pub(super) fn note(&self, error: &Error) {
        if let Error::DeviceLost(_) = error {
            self.0.lock().get_or_insert_with(|| error.clone());
        }
    }
}

/// A registered device, and where its removal is recorded.
pub(super) type Watched = (Retained<ProtocolObject<dyn MTLDevice>>, Arc<Lost>);

#[cfg(any(target_os = "macos", elinvar_apple))]
pub(super) use observed::Watch;
#[cfg(not(any(target_os = "macos", elinvar_apple)))]
pub(super) use unobserved::Watch;

#[cfg(any(target_os = "macos", elinvar_apple))]
mod observed {
    use std::ptr::NonNull;
    use std::sync::Arc;

    use block2::RcBlock;
    use elinvar_driver::Error;
    use objc2::rc::{Retained, autoreleasepool};
    use objc2::runtime::{NSObjectProtocol, ProtocolObject};
    use objc2_foundation::NSString;
    use objc2_metal::{
        MTLCopyAllDevicesWithObserver, MTLDevice, MTLDeviceWasRemovedNotification, MTLRemoveDeviceObserver,
    };

    use super::{Lost, Watched};

    /// Observes removals while it is alive.
    pub(in super::super) struct Watch(Retained<ProtocolObject<dyn NSObjectProtocol>>);

    #[allow(unsafe_code)] // the bindings leave it open
    // SAFETY: Metal removes observers on any thread; the object is not used otherwise.
    unsafe impl Send for Watch {}
    #[allow(unsafe_code)] // as above
    // SAFETY: as above.
    unsafe impl Sync for Watch {}

    impl Watch {
        /// Observes these devices. `None` if Metal does not support observers.
        #[allow(unsafe_code)] // hands a block to Metal
        pub(in super::super) fn begin(devices: &[Watched]) -> Option<Self> {
            let known: Vec<(u64, Arc<Lost>)> =
                devices.iter().map(|(device, lost)| (device.registryID(), lost.clone())).collect();
            let handler = RcBlock::new(
                move |device: NonNull<ProtocolObject<dyn MTLDevice>>, what: NonNull<NSString>| {
                    // SAFETY: Metal passes objects to its handler that live as long as the call.
                    let (device, what) = unsafe { (device.as_ref(), what.as_ref()) };
                    autoreleasepool(|_| {
                        // SAFETY: a constant of the framework since macOS 10.13.
                        if what.isEqualToString(unsafe { MTLDeviceWasRemovedNotification }) {
                            note(&known, device);
                        }
                    });
                },
            );
            let mut observer = std::ptr::null_mut();
            // SAFETY: the block is valid, Metal retains it, and there is room for the observer.
            unsafe { MTLCopyAllDevicesWithObserver(NonNull::from(&mut observer), RcBlock::as_ptr(&handler)) };
            // SAFETY: the caller owns a reference to the observer, according to the function's documentation.
            unsafe { Retained::from_raw(observer) }.map(Self)
        }
    }

    fn note(known: &[(u64, Arc<Lost>)], device: &ProtocolObject<dyn MTLDevice>) {
        let error = Error::DeviceLost(format!("Metal device `{}` has been removed", device.name()));
        let gone = known.iter().filter(|(id, _)| *id == device.registryID());
        gone.for_each(|(_, lost)| lost.note(&error));
    }

    impl Drop for Watch {
        #[allow(unsafe_code)] // gives back what Metal has given
        fn drop(&mut self) {
            // SAFETY: it is an observer created by Metal.
            unsafe { MTLRemoveDeviceObserver(&self.0) };
        }
    }
}

#[cfg(not(any(target_os = "macos", elinvar_apple)))]
mod unobserved {
    use super::Watched;

    /// Devices are built in.
    pub(in super::super) struct Watch;

    impl Watch {
        pub(in super::super) fn begin(_devices: &[Watched]) -> Option<Self> {
            None
        }
    }
}
