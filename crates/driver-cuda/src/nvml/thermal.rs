//! The thermal level of a GPU.
//!
//! See NVIDIA's NVML API reference: `nvmlTemperatureThresholds_t` for the thresholds, `nvmlClocksEventReasons` for the causes of clock
//! throttling.

use elinvar_driver::Thermal;
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{TemperatureSensor, TemperatureThreshold};

/// NVML's data about a GPU, each `None` if NVML does not provide it. Temperatures in degrees Celsius.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    celsius: Option<u32>,
    /// Threshold above which the driver may lower the clocks below their base.
    throttles: Option<u32>,
    /// Threshold above which the hardware throttles.
    slows: Option<u32>,
    reasons: Option<ThrottleReasons>,
}

impl Reading {
    pub(super) fn of(device: &Device<'_>) -> Self {
        let threshold = |which| device.temperature_threshold(which).ok();
        Self {
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            throttles: threshold(TemperatureThreshold::GpuMax),
            slows: threshold(TemperatureThreshold::Slowdown),
            reasons: device.current_throttle_reasons().ok(),
        }
    }

    /// `None` if neither a threshold with a temperature nor the throttling causes are known.
    pub(super) fn level(self) -> Option<Thermal> {
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
}
