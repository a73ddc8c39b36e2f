//! [`Device::readings`]: what a device's hardware reports about itself, read now or at most 100 ms ago.

use std::time::{Duration, Instant};

use elinvar_driver::sync::{Mutex, OnceLock};
use elinvar_driver::{Readings, Result};

use super::meter::Step;
use crate::Device;

/// Readings that are older are read again for a snapshot of metrics.
const FRESH: Duration = Duration::from_millis(100);

/// What is known of a device's hardware.
#[derive(Default)]
pub(crate) struct Hardware {
    last: Mutex<Option<(Instant, Result<Readings>)>>,
    /// Steps of the energy counter, measured once.
    pub(super) step: OnceLock<Step>,
}

impl Device {
    /// What the hardware reports about itself, read now: energy, power, temperatures, clocks, utilization, memory, errors, links. Takes up to
    /// milliseconds. A [`Quantity`](crate::Quantity) that is not measured has the reason in place of its value.
    ///
    /// ```
    /// # fn main() -> elinvar::Result<()> {
    /// use elinvar::{Device, Quantity};
    ///
    /// let readings = Device::cpu()?.readings()?;
    /// match readings.value(Quantity::ProcessMemory, &[]) {
    ///     Ok(bytes) => println!("{bytes} bytes are resident"),
    ///     Err(reason) => println!("{reason}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unsupported` with the reason if nothing can be read.
    pub fn readings(&self) -> Result<Readings> {
        self.driver().readings()
    }

    /// Counts events of the CPU from now on: instructions, cycles, cache and branch misses, page faults and processor time of this process, in
    /// [`Quantity::ProcessEvents`](crate::Quantity::ProcessEvents) and [`Quantity::ProcessTaskClock`](crate::Quantity::ProcessTaskClock). Takes six
    /// file descriptors for each thread. Repeated calls have no effect.
    ///
    /// # Errors
    /// `Unsupported` with the reason if no event can be counted, as on GPUs.
    pub fn count_events(&self) -> Result<()> {
        self.driver().count_events()
    }

    /// As [`Device::readings`], at most 100 ms ago.
    pub(crate) fn recent_readings(&self) -> Result<Readings> {
        // The lock is held meanwhile: threads that ask at once share one reading.
        let mut last = self.hardware().last.lock();
        match &*last {
            Some((at, readings)) if at.elapsed() < FRESH => readings.clone(),
            _ => {
                let readings = self.readings();
                *last = Some((Instant::now(), readings.clone()));
                readings
            }
        }
    }
}
