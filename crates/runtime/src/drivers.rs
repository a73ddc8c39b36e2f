//! Which drivers this build has, and the devices they found.
//!
//! The list of devices is made once per process and kept, so that two calls of [`crate::Device::all`]
//! give the same devices and a buffer of one can be used with the other. It does not choose among
//! them; the order is that of preference.

use elinvar_driver::{Driver, Result};
use parking_lot::Mutex;

use crate::Device;

static FOUND: Mutex<Option<Vec<Device>>> = Mutex::new(None);

/// The drivers of this build, the preferred first.
fn drivers() -> Vec<Box<dyn Driver>> {
    vec![
        Box::new(elinvar_driver_metal::driver()),
        Box::new(elinvar_driver_cuda::driver()),
        Box::new(elinvar_driver_cpu::driver()),
    ]
}

/// Every device of every driver. A failure is reported and tried anew by the next call.
pub(crate) fn devices() -> Result<Vec<Device>> {
    let mut found = FOUND.lock();
    if let Some(devices) = &*found {
        return Ok(devices.clone());
    }
    let mut devices = Vec::new();
    for driver in drivers() {
        devices.extend(driver.devices()?.into_iter().map(Device::new));
    }
    *found = Some(devices.clone());
    Ok(devices)
}

/// Drivers of this build that have no device, each with the reason where it has one to give.
pub(crate) fn absences() -> Vec<(&'static str, String)> {
    drivers().iter().filter_map(|driver| Some((driver.name(), driver.absence()?))).collect()
}
