//! The drivers of this build, which are cargo features, and the devices that they found, in order of preference.
//!
//! The devices are kept for the lifetime of the process: two calls of [`crate::Device::all`] return the same devices, and a
//! buffer of one can be used with the other.

use std::sync::Arc;

use elinvar_capture::{CaptureFile, CapturingDevice};
use elinvar_driver::sync::Mutex;
use elinvar_driver::{Driver, PerProcess, Result};

use crate::Device;
use crate::observe::profiling;

/// The drivers of this build, in order of preference.
static DRIVERS: PerProcess<Drivers> = PerProcess::new(|| {
    let drivers: Vec<Box<dyn Driver>> = vec![
        #[cfg(feature = "metal")]
        Box::new(elinvar_driver_metal::driver()),
        #[cfg(feature = "cuda")]
        Box::new(elinvar_driver_cuda::driver()),
        #[cfg(feature = "cpu")]
        Box::new(elinvar_driver_cpu::driver()),
    ];
    Drivers::new(drivers)
});

/// All devices of all working drivers.
pub(crate) fn devices() -> Vec<Device> {
    DRIVERS.get().devices()
}

/// Drivers of this build that have no device and report a reason.
pub(crate) fn absences() -> Vec<(&'static str, String)> {
    DRIVERS.get().absences()
}

struct Drivers {
    each: Vec<(Box<dyn Driver>, Mutex<Answer>)>,
}

/// The answer of a driver, if it was queried. After an error, which means that hardware is present and does not work, the driver
/// is queried again each time.
type Answer = Option<Result<Vec<Device>>>;

impl Drivers {
    fn new(drivers: Vec<Box<dyn Driver>>) -> Self {
        Self { each: drivers.into_iter().map(|driver| (driver, Mutex::default())).collect() }
    }

    fn devices(&self) -> Vec<Device> {
        self.each.iter().flat_map(|(driver, answer)| Self::ask(&**driver, &mut answer.lock())).collect()
    }

    /// The devices of one driver. A failure does not affect other drivers.
    fn ask(driver: &dyn Driver, answer: &mut Answer) -> Vec<Device> {
        if let Some(Ok(devices)) = answer {
            return devices.clone();
        }
        let found = driver.devices().map(|devices| devices.into_iter().map(new).collect());
        answer.insert(found).as_ref().map_or_else(|_| Vec::new(), Vec::clone)
    }

    fn absences(&self) -> Vec<(&'static str, String)> {
        let why = |(driver, answer): &(Box<dyn Driver>, Mutex<Answer>)| {
            let reason = match &*answer.lock() {
                Some(Err(error)) => Some(error.to_string()),
                _ => driver.absence(),
            };
            Some((driver.name(), reason?))
        };
        self.each.iter().filter_map(why).collect()
    }
}

/// The file of `ELINVAR_CAPTURE`, to which the launches of all devices are captured. That it cannot be created is reported and stops nothing.
static CAPTURE: PerProcess<Option<Arc<CaptureFile>>> = PerProcess::new(|| {
    let path = std::env::var_os("ELINVAR_CAPTURE").filter(|path| !path.is_empty())?;
    CaptureFile::create(path).inspect_err(|error| tracing::error!("nothing is captured: {error}")).ok()
});

fn new(device: Arc<dyn elinvar_driver::Device>) -> Device {
    let device = match CAPTURE.get() {
        Some(file) => Device::new(CapturingDevice::new(device, file.clone())),
        None => Device::new(device),
    };
    profiling::file::add(&device);
    device
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use elinvar_driver::Error;

    use super::*;

    /// Finds the processor, but not before it is asked often enough.
    struct Late(AtomicU32);

    impl Driver for Late {
        fn name(&self) -> &'static str {
            "late"
        }

        fn devices(&self) -> Result<Vec<Arc<dyn elinvar_driver::Device>>> {
            if self.0.fetch_sub(1, Ordering::Relaxed) > 0 {
                return Err(Error::DeviceLost("it has fallen off the bus".into()));
            }
            elinvar_driver_cpu::driver().devices()
        }
    }

    #[test]
    fn a_driver_that_fails_takes_no_devices_from_the_others_and_is_asked_again() {
        let drivers =
            Drivers::new(vec![Box::new(Late(AtomicU32::new(2))), Box::new(elinvar_driver_cpu::driver())]);
        assert!(drivers.absences().is_empty(), "nobody has been asked");
        let first = drivers.devices();
        assert_eq!(first.len(), 1);
        let [(name, reason)] = &drivers.absences()[..] else { panic!("{:?}", drivers.absences()) };
        assert!(*name == "late" && reason.contains("fallen off the bus"), "{name}: {reason}");
        assert_eq!(drivers.devices().len(), 1);
        assert_eq!(drivers.devices().len(), 2, "it has come back");
        assert!(drivers.absences().is_empty());
        assert_eq!(drivers.devices().len(), 2, "what was found is kept");
    }
}
