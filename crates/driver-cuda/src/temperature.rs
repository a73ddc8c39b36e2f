//! GPU temperature through NVIDIA's management library (NVML), which is part of the driver installation and loaded at run time.
//!
//! See NVIDIA's NVML API reference: `nvmlTemperatureThresholds_t` for the thresholds, `nvmlClocksEventReasons` for the causes of clock
//! throttling.

use std::sync::OnceLock;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute_enum as Attribute};
use elinvar_driver::{Error, Result, Thermal};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{TemperatureSensor, TemperatureThreshold};
use nvml_wrapper::{Device, Nvml};

use crate::api::Api;
use crate::caps::attribute;

/// Library name where only the driver is installed; the unversioned name comes with development packages.
#[cfg(not(windows))]
const LIBRARY: &str = "libnvidia-ml.so.1";
#[cfg(windows)]
const LIBRARY: &str = "nvml.dll";

/// NVML's data about a GPU, each `None` if NVML does not provide it. Temperatures in degrees Celsius.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    celsius: Option<u32>,
    /// Threshold above which the driver may lower the clocks below their base.
    throttles: Option<u32>,
    /// Threshold above which the hardware throttles.
    slows: Option<u32>,
    reasons: Option<ThrottleReasons>,
}

impl Reading {
    fn of(device: &Device<'_>) -> Self {
        let threshold = |which| device.temperature_threshold(which).ok();
        Self {
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            throttles: threshold(TemperatureThreshold::GpuMax),
            slows: threshold(TemperatureThreshold::Slowdown),
            reasons: device.current_throttle_reasons().ok(),
        }
    }

    /// `None` if neither a threshold with a temperature nor the throttling causes are known.
    fn level(self) -> Option<Thermal> {
        let reached = |limit: Option<u32>| Some(self.celsius? >= limit.filter(|limit| *limit > 0)?);
        let holds = |reason| self.reasons.map(|reasons| reasons.contains(reason));
        let any = |signs: [Option<bool>; 2]| signs.into_iter().flatten().reduce(|a, b| a || b);
        let critical = any([reached(self.slows), holds(ThrottleReasons::HW_THERMAL_SLOWDOWN)]);
        let serious = any([reached(self.throttles), holds(ThrottleReasons::SW_THERMAL_SLOWDOWN)]);
        match (critical, serious) {
            (None, None) => None,
            (Some(true), _) => Some(Thermal::Critical),
            (_, Some(true)) => Some(Thermal::Serious),
            _ => Some(Thermal::Nominal),
        }
    }
}

/// Finds a GPU in NVML by its PCI address, because CUDA numbers GPUs differently.
pub(crate) struct Sensor {
    place: String,
}

impl Sensor {
    pub(crate) fn of(api: &Api, device: CUdevice) -> Option<Self> {
        use Attribute as A;
        let number = |which| attribute(api, device, which).ok();
        let domain = number(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
        let (bus, slot) =
            (number(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?, number(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?);
        Some(Self { place: format!("{domain:08x}:{bus:02x}:{slot:02x}.0") })
    }

    /// The current thermal level.
    ///
    /// # Errors
    /// `Unsupported` without the library, or if NVML provides too little data for the GPU, as in many virtual machines.
    pub(crate) fn thermal(&self) -> Result<Thermal> {
        let reading = self.read()?;
        reading
            .level()
            .ok_or_else(|| self.unknown("it reports neither temperature limits nor throttle reasons"))
    }

    /// Current temperature in degrees Celsius.
    pub(crate) fn celsius(&self) -> Option<u32> {
        self.read().ok()?.celsius
    }

    /// Free memory of the GPU in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn free_memory(&self) -> Option<u64> {
        let device = nvml().ok()?.device_by_pci_bus_id(self.place.as_str()).ok()?;
        device.memory_info().ok().map(|memory| memory.free)
    }

    fn read(&self) -> Result<Reading> {
        let nvml = nvml().map_err(|reason| self.unknown(reason))?;
        let device = nvml.device_by_pci_bus_id(self.place.as_str());
        device.map(|device| Reading::of(&device)).map_err(|error| self.unknown(&error.to_string()))
    }

    fn unknown(&self, reason: &str) -> Error {
        Error::unsupported(format!("the temperature of the NVIDIA GPU at {}, by NVML: {reason}", self.place))
    }
}

/// The thermal level of a device, which may have no sensor.
///
/// # Errors
/// As [`Sensor::thermal`].
pub(crate) fn thermal(sensor: Option<&Sensor>, device: &str) -> Result<Thermal> {
    let unknown = || Error::unsupported(format!("device `{device}` does not report its PCI address"));
    sensor.ok_or_else(unknown)?.thermal()
}

/// The library, opened once, or the reason why it cannot be.
fn nvml() -> std::result::Result<&'static Nvml, &'static str> {
    static NVML: OnceLock<std::result::Result<Nvml, String>> = OnceLock::new();
    let open = || Nvml::builder().lib_path(LIBRARY.as_ref()).init().map_err(|error| error.to_string());
    NVML.get_or_init(open).as_ref().map_err(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_follows_from_limits_and_from_what_holds_the_clocks_down() {
        let at = |celsius| Reading {
            celsius: Some(celsius),
            throttles: Some(85),
            slows: Some(95),
            reasons: Some(ThrottleReasons::GPU_IDLE),
        };
        let levels = [84, 85, 94, 95, 120].map(|celsius| at(celsius).level().unwrap());
        use Thermal::{Critical, Nominal, Serious};
        assert_eq!(levels, [Nominal, Serious, Serious, Critical, Critical]);
        let held = |reasons| Reading { reasons: Some(reasons), ..at(40) }.level();
        assert_eq!(held(ThrottleReasons::SW_THERMAL_SLOWDOWN | ThrottleReasons::GPU_IDLE), Some(Serious));
        assert_eq!(held(ThrottleReasons::HW_THERMAL_SLOWDOWN), Some(Critical));
        assert_eq!(held(ThrottleReasons::SW_POWER_CAP), Some(Nominal), "it is short of power, not warm");
    }

    #[test]
    fn what_is_not_told_is_not_known() {
        assert_eq!(Reading::default().level(), None);
        let alone = Reading { celsius: Some(99), ..Reading::default() };
        assert_eq!(alone.level(), None, "a temperature without a limit");
        assert_eq!(Reading { slows: Some(0), ..alone }.level(), None, "a limit that is not set");
        assert_eq!(Reading { slows: Some(90), ..alone }.level(), Some(Thermal::Critical));
        let limits = Reading { slows: Some(90), throttles: Some(80), ..Reading::default() };
        assert_eq!(limits.level(), None, "limits without a temperature");
    }

    #[test]
    fn a_gpu_that_is_not_there_is_unsupported() {
        let sensor = Sensor { place: "0000ffff:ff:1f.0".into() };
        let error = sensor.thermal().unwrap_err();
        assert!(matches!(&error, Error::Unsupported(text) if text.contains("NVML")), "{error}");
        assert_eq!(sensor.celsius(), None);
    }
}
