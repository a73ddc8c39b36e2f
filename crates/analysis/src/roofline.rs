//! The roofline of a launch (Williams, Waterman, Patterson: Roofline, Communications of the ACM 52, 2009).

use serde::Serialize;

use crate::LaunchTotals;

/// What bounds a launch from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Arithmetic.
    Compute,
    /// Memory.
    Memory,
}

/// The place of a launch on a device's roofline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Roofline {
    /// Floating-point operations for each byte that memory moves at least.
    pub intensity: f64,
    /// The intensity from which on arithmetic is the bound.
    pub ridge: f64,
    /// The highest rate at this intensity, in FLOP/s.
    pub attainable: f64,
    /// The shortest time, in seconds.
    pub seconds: f64,
    /// What bounds it.
    pub bound: Bound,
}

impl LaunchTotals {
    /// The place on the roofline of a device with a peak rate in FLOP/s and a memory bandwidth in bytes per second. Memory moves the bytes
    /// that the launch touches, once ([`LaunchTotals::footprint_bytes`]): caches may do worse, so the time is a lower bound.
    pub fn roofline(&self, peak: f64, bandwidth: f64) -> Roofline {
        let (flops, bytes) = (self.operations.flops(), self.footprint_bytes);
        let intensity = if bytes > 0.0 { flops / bytes } else { f64::INFINITY };
        let (compute, memory) = (flops / peak, bytes / bandwidth);
        Roofline {
            intensity,
            ridge: peak / bandwidth,
            attainable: peak.min(intensity * bandwidth),
            seconds: compute.max(memory),
            bound: if compute > memory { Bound::Compute } else { Bound::Memory },
        }
    }
}
