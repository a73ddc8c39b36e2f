//! [`Hardware`]: readings and energy of the simulated device, which a test provides.

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Energy, Error, Readings, Result};

type Read<T> = Box<dyn Fn() -> Result<T> + Send + Sync>;

/// Where readings come from.
#[derive(Default)]
pub(super) struct Hardware {
    readings: Mutex<Option<Read<Readings>>>,
    energy: Mutex<Option<Read<Energy>>>,
}

impl Hardware {
    pub(super) fn set_readings(&self, read: Read<Readings>) {
        *self.readings.lock() = Some(read);
    }

    pub(super) fn set_energy(&self, read: Read<Energy>) {
        *self.energy.lock() = Some(read);
    }

    pub(super) fn readings(&self) -> Result<Readings> {
        read(&self.readings)
    }

    pub(super) fn energy(&self) -> Result<Energy> {
        read(&self.energy)
    }
}

fn read<T>(from: &Mutex<Option<Read<T>>>) -> Result<T> {
    match &*from.lock() {
        Some(read) => read(),
        None => Err(Error::unsupported("the sim device has no sensor")),
    }
}
