//! All readings of a GPU.
//!
//! Of a MIG instance, NVML measures the memory; temperatures, clocks, limits and errors are those of the GPU that the instance is a part of. What
//! adds up over the GPU's instances (energy, power, utilization, transfers) is `Unsupported`, because NVML cannot tell the instances apart.

use std::time::Instant;

use elinvar_driver::{Energy, Error, Quantity, Readings, Result};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{
    Clock, EccCounter, MemoryError, TemperatureSensor, TemperatureThreshold,
};
use nvml_wrapper::enum_wrappers::nv_link::ErrorCounter;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::sys_exports::field_id as field;

use super::{Found, fields, why};

/// Causes of lower clocks, by their names in NVML.
const REASONS: [(&str, ThrottleReasons); 9] = [
    ("gpu_idle", ThrottleReasons::GPU_IDLE),
    ("applications_clocks_setting", ThrottleReasons::APPLICATIONS_CLOCKS_SETTING),
    ("sw_power_cap", ThrottleReasons::SW_POWER_CAP),
    ("hw_slowdown", ThrottleReasons::HW_SLOWDOWN),
    ("sync_boost", ThrottleReasons::SYNC_BOOST),
    ("sw_thermal_slowdown", ThrottleReasons::SW_THERMAL_SLOWDOWN),
    ("hw_thermal_slowdown", ThrottleReasons::HW_THERMAL_SLOWDOWN),
    ("hw_power_brake_slowdown", ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN),
    ("display_clock_setting", ThrottleReasons::DISPLAY_CLOCK_SETTING),
];

const LIMITS: [(&str, TemperatureThreshold); 4] = [
    ("throttled", TemperatureThreshold::GpuMax),
    ("memory_throttled", TemperatureThreshold::MemoryMax),
    ("slowdown", TemperatureThreshold::Slowdown),
    ("shutdown", TemperatureThreshold::Shutdown),
];

const ECC: [(&str, MemoryError, EccCounter); 4] = [
    ("ecc_corrected_volatile", MemoryError::Corrected, EccCounter::Volatile),
    ("ecc_uncorrected_volatile", MemoryError::Uncorrected, EccCounter::Volatile),
    ("ecc_corrected_aggregate", MemoryError::Corrected, EccCounter::Aggregate),
    ("ecc_uncorrected_aggregate", MemoryError::Uncorrected, EccCounter::Aggregate),
];

const LINK_ERRORS: [(&str, ErrorCounter); 4] = [
    ("replay", ErrorCounter::DlReplay),
    ("recovery", ErrorCounter::DlRecovery),
    ("crc_flit", ErrorCounter::DlCrcFlit),
    ("crc_data", ErrorCounter::DlCrcData),
];

/// `NVML_NVLINK_MAX_LINKS`.
const MAX_LINKS: u32 = 18;
/// Directions of transfers, by OpenTelemetry's names.
const DIRECTIONS: [&str; 2] = ["transmit", "receive"];

/// A value, or why NVML does not have it.
fn told(value: std::result::Result<impl Into<f64>, NvmlError>) -> Result<f64> {
    value.map(Into::into).map_err(|error| Error::unsupported(format!("by NVML: {}", why(&error))))
}

/// As [`told`], of a count.
fn counted(value: std::result::Result<u64, NvmlError>) -> Result<f64> {
    told(value.map(|value| value as f64))
}

impl Found<'_> {
    pub(super) fn readings(&self) -> Readings {
        let mut readings = Readings::default();
        let pcie = self.pcie_bytes();
        self.power(&mut readings);
        self.temperatures(&mut readings);
        self.utilization(&mut readings);
        self.memory(&mut readings);
        self.clocks(&mut readings);
        self.errors(&mut readings);
        self.nvlink(&mut readings);
        self.pcie(&mut readings);
        add_pcie_bytes(&mut readings, pcie, self.pcie_bytes());
        readings
    }

    /// The energy since the driver was loaded; NVML counts millijoules.
    pub(super) fn energy(&self) -> Result<Energy> {
        self.expect_whole()?;
        let joules = counted(self.gpu.total_energy_consumption())? / 1e3;
        let limit = self.gpu.enforced_power_limit().ok().filter(|milliwatts| *milliwatts > 0);
        Ok(Energy {
            joules,
            resolution: 1e-3,
            counters: 1,
            power_limit: limit.map(|limit| f64::from(limit) / 1e3),
        })
    }

    /// Rejects quantities that add up over the instances of a GPU.
    fn expect_whole(&self) -> Result<()> {
        match self.instance {
            None => Ok(()),
            Some(_) => Err(Error::unsupported(
                "this is an instance of a GPU (MIG), and NVML measures the whole GPU, with its other instances",
            )),
        }
    }

    fn power(&self, readings: &mut Readings) {
        let whole = self.expect_whole();
        let power = whole.and_then(|()| told(self.gpu.power_usage())).map(|milliwatts| milliwatts / 1e3);
        readings.add(Quantity::Energy, &["gpu"], self.energy().map(|energy| energy.joules));
        readings.add(Quantity::Power, &["gpu"], power);
        let limit = told(self.gpu.enforced_power_limit()).map(|milliwatts| milliwatts / 1e3);
        readings.add(Quantity::PowerLimit, &["gpu"], limit);
    }

    fn temperatures(&self, readings: &mut Readings) {
        readings.add(Quantity::Temperature, &["gpu"], told(self.gpu.temperature(TemperatureSensor::Gpu)));
        for memory in fields::numbers(&self.gpu, &[(field::NVML_FI_DEV_MEMORY_TEMP, 0)]) {
            readings.add(Quantity::Temperature, &["memory"], told(memory));
        }
        for (name, threshold) in LIMITS {
            let limit = told(self.gpu.temperature_threshold(threshold)).and_then(|celsius| match celsius {
                1.0.. => Ok(celsius),
                _ => Err(Error::unsupported("by NVML: the limit is not set")),
            });
            readings.add(Quantity::TemperatureLimit, &[name], limit);
        }
    }

    fn utilization(&self, readings: &mut Readings) {
        let rates = self.expect_whole().map(|()| self.gpu.utilization_rates());
        let share = |percent: u32| match percent {
            0..=100 => Ok(f64::from(percent) / 100.0),
            _ => Err(Error::unsupported(format!("NVML reports a utilization of {percent} %"))),
        };
        let (compute, memory) = match rates {
            Ok(Ok(rates)) => (share(rates.gpu), share(rates.memory)),
            Ok(Err(error)) => {
                let error = told(Err::<u32, _>(error));
                (error.clone(), error)
            }
            Err(error) => (Err(error.clone()), Err(error)),
        };
        readings.add(Quantity::GpuUtilization, &[], compute);
        readings.add(Quantity::MemoryInterfaceUtilization, &[], memory);
    }

    fn memory(&self, readings: &mut Readings) {
        let (used, total) = match self.owner_of_memory().memory_info() {
            Ok(memory) => (Ok(memory.used as f64), Ok(memory.total as f64)),
            Err(error) => {
                let error = counted(Err(error));
                (error.clone(), error)
            }
        };
        readings.add(Quantity::GpuMemoryUsage, &[], used);
        readings.add(Quantity::GpuMemoryLimit, &[], total);
    }

    fn clocks(&self, readings: &mut Readings) {
        for (name, clock) in [("sm", Clock::SM), ("memory", Clock::Memory)] {
            let hertz = |mhz: Result<f64>| mhz.map(|mhz| mhz * 1e6);
            readings.add(Quantity::GpuSpeed, &[name], hertz(told(self.gpu.clock_info(clock))));
            readings.add(Quantity::GpuSpeedLimit, &[name], hertz(told(self.gpu.max_clock_info(clock))));
        }
        let reasons = self.gpu.current_throttle_reasons().map_err(|error| told(Err::<u32, _>(error)));
        for (name, reason) in REASONS {
            let holds = match &reasons {
                Ok(reasons) => Ok(f64::from(u8::from(reasons.contains(reason)))),
                Err(error) => error.clone(),
            };
            readings.add(Quantity::GpuThrottled, &[name], holds);
        }
    }

    fn errors(&self, readings: &mut Readings) {
        for (name, error, counter) in ECC {
            readings.add(Quantity::Errors, &[name], counted(self.gpu.total_ecc_errors(error, counter)));
        }
        readings.add(Quantity::Errors, &["pcie_replay"], told(self.gpu.pcie_replay_counter()));
    }

    /// Of each link up to the first that the GPU does not have.
    fn nvlink(&self, readings: &mut Readings) {
        let mut links = 0;
        for link in 0..MAX_LINKS {
            let handle = self.gpu.link_wrapper_for(link);
            let name = link.to_string();
            let up = match handle.is_active() {
                Ok(up) => up,
                Err(_) if link > 0 => break,
                Err(error) => return readings.add(Quantity::NvLinkUp, &[&name], told(Err::<u32, _>(error))),
            };
            links += 1;
            readings.add(Quantity::NvLinkUp, &[&name], Ok(f64::from(u8::from(up))));
            readings.add(
                Quantity::NvLinkVersion,
                &[&name],
                told(handle.version().map(super::nvlink_generation)),
            );
            for (kind, counter) in LINK_ERRORS {
                readings.add(Quantity::NvLinkErrors, &[&name, kind], counted(handle.error_counter(counter)));
            }
        }
        for speed in fields::numbers(&self.gpu, &[(field::NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON, 0)]) {
            readings.add(Quantity::NvLinkSpeed, &[], told(speed).map(|megabytes| megabytes * 1e6));
        }
        // Of each link, in the order of `DIRECTIONS`.
        let ids =
            [field::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX, field::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX];
        let wanted: Vec<fields::Field> = (0..links).flat_map(|link| ids.map(|field| (field, link))).collect();
        for ((_, link), (at, kib)) in
            wanted.iter().zip(fields::numbers(&self.gpu, &wanted).into_iter().enumerate())
        {
            let whole = self.expect_whole();
            let bytes = whole.and_then(|()| told(kib)).map(|kib| kib * 1024.0);
            readings.add(Quantity::NvLinkBytes, &[&link.to_string(), DIRECTIONS[at % 2]], bytes);
        }
    }

    fn pcie(&self, readings: &mut Readings) {
        readings.add(Quantity::PcieGeneration, &[], told(self.gpu.current_pcie_link_gen()));
        readings.add(Quantity::PcieGenerationLimit, &[], told(self.gpu.max_pcie_link_gen()));
        readings.add(Quantity::PcieWidth, &[], told(self.gpu.current_pcie_link_width()));
        readings.add(Quantity::PcieWidthLimit, &[], told(self.gpu.max_pcie_link_width()));
    }

    /// Bytes that PCI Express has carried, in the order of [`DIRECTIONS`].
    fn pcie_bytes(&self) -> [(Instant, Result<fields::Value>); 2] {
        let ids = [field::NVML_FI_DEV_PCIE_COUNT_TX_BYTES, field::NVML_FI_DEV_PCIE_COUNT_RX_BYTES];
        let mut values = fields::values(&self.gpu, &ids.map(|id| (id, 0))).into_iter();
        let now = Instant::now();
        ids.map(|_| {
            let value = values.next().unwrap_or(Err(NvmlError::NotFound));
            let value = self.expect_whole().and_then(|()| {
                value.map_err(|error| Error::unsupported(format!("by NVML: {}", why(&error))))
            });
            (now, value)
        })
    }
}

/// Adds the bytes of PCI Express, and the throughput between two readings of them. `nvmlDeviceGetPcieThroughput` would block for 20 ms for each
/// direction.
fn add_pcie_bytes(
    readings: &mut Readings,
    first: [(Instant, Result<fields::Value>); 2],
    last: [(Instant, Result<fields::Value>); 2],
) {
    for ((direction, (begin, before)), (end, after)) in DIRECTIONS.iter().zip(first).zip(last) {
        let total = after.clone().and_then(|after| match after.wraps {
            false => Ok(after.number),
            true => Err(Error::unsupported(
                "NVML counts the bytes of PCI Express in 32 bits, which start again every 4 GiB; the throughput is their difference",
            )),
        });
        let seconds = (end - begin).as_secs_f64();
        let throughput = before.and_then(|before| {
            let after = after?;
            let bytes = after.number - before.number;
            // At the speed of any link, 4 GiB take longer than the readings.
            let bytes = if after.wraps && bytes < 0.0 { bytes + 4_294_967_296.0 } else { bytes };
            match seconds > 0.0 && bytes >= 0.0 {
                true => Ok(bytes / seconds),
                false => Err(Error::unsupported("NVML's count of bytes of PCI Express went back")),
            }
        });
        readings.add(Quantity::PcieBytes, &[direction], total);
        readings.add(Quantity::PcieThroughput, &[direction], throughput);
    }
}
