//! [`Thermal`]: how warm a device is.

/// How warm a device is, in the steps of Apple's `ProcessInfo.ThermalState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Thermal {
    /// Within normal limits.
    Nominal,
    /// Slightly elevated.
    Fair,
    /// High: the device should do less, or is throttled already.
    Serious,
    /// So high that the device should do as little as it can, or is being slowed down by its hardware.
    Critical,
}
