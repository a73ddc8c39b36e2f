//! [`TensorProfile`]: route, algorithm, work and rate of an operation.

use std::fmt;

use elinvar_driver::Result;

use crate::tensor::plan::{Plan, Route};
use crate::{Profile, Stream};

/// What an operation did, and how fast.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorProfile {
    /// Name of the operation.
    pub operation: &'static str,
    /// The route: [`Route::Vendor`] or [`Route::Kernel`].
    pub route: Route,
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// As [`Plan::flops`].
    pub flops: u64,
    /// As [`Plan::bytes`].
    pub bytes: u64,
    /// Time on the device's clock, in nanoseconds.
    pub device_ns: u64,
}

impl TensorProfile {
    pub(crate) fn new(plan: &Plan, device_ns: u64) -> Self {
        Self {
            operation: plan.operation(),
            route: plan.route(),
            algorithm: plan.algorithm(),
            flops: plan.flops(),
            bytes: plan.bytes(),
            device_ns,
        }
    }

    /// Billions of operations per second.
    pub fn gflops(&self) -> f64 {
        self.flops as f64 / self.device_ns.max(1) as f64
    }

    /// Bytes that had to move, in billions per second.
    pub fn gbytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.device_ns.max(1) as f64
    }
}

impl fmt::Display for TensorProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, route, algorithm, flops, bytes, device_ns } = self;
        let (gflops, rate) = (self.gflops(), self.gbytes_per_second());
        write!(
            f,
            "{operation} ({route}: {algorithm}): {flops} operations, {bytes} bytes, {device_ns} ns, {gflops:.1} GFLOP/s, {rate:.1} GB/s"
        )
    }
}

impl Stream {
    /// Measures a plan: runs it `iterations` times; the profile has the median time.
    ///
    /// # Errors
    /// As [`Stream::profile`].
    pub fn profile_tensor(&self, plan: &Plan, iterations: usize) -> Result<TensorProfile> {
        let times: Profile = self.profile(iterations, |command_buffer| command_buffer.tensor_plan(plan))?;
        Ok(TensorProfile::new(plan, times.percentile_ns(50.0)))
    }
}
