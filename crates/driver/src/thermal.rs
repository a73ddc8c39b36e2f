//! [`Thermal`]: thermal state of a device.

/// Thermal state of a device, with the levels of Apple's `ProcessInfo.ThermalState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thermal {
    /// Within normal limits.
    Nominal,
    /// Slightly elevated.
    Fair,
    /// High: reduce the load; the device may already be throttled.
    Serious,
    /// Critical: minimize the load; the hardware may already be throttling.
    Critical,
}
