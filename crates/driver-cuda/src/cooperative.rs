//! Cooperative launches: the counter of grid barriers, and how many blocks can be resident.
//!
//! The counter is that of a stream, or of a captured graph, both of which run one kernel with grid barriers at a time. A barrier leaves it
//! usable for the next one, so it is zeroed only once ([`elinvar_ptx::Parameter::GridCounter`]).

use std::sync::Arc;

use cudarc::driver::sys::{
    CUdevice_attribute_enum as Attribute, CUdeviceptr, CUfunction, CUlaunchAttribute,
    CUlaunchAttributeID_enum as LaunchAttribute, CUlaunchAttributeValue,
};
use elinvar_driver::{Dim3, Error, Init, Result, Storage};

use crate::caps;
use crate::context::Context;
use crate::failure::Failure;
use crate::memory::CudaMemory;

/// Size of a counter's memory in bytes: a cache line.
const BYTES: u64 = 128;

/// The counter of grid barriers, allocated on first use.
#[derive(Default)]
pub(crate) struct GridCounter(Option<CudaMemory>);

impl GridCounter {
    /// Its device address.
    pub(crate) fn address(&mut self, context: &Arc<Context>) -> Result<CUdeviceptr> {
        let memory = match self.0.take() {
            Some(memory) => memory,
            None => CudaMemory::new(context, BYTES, Storage::Private, Init::Zeroed)?,
        };
        self.0.insert(memory).at(0, 4)
    }
}

/// The largest number of resident blocks of a function with this size and dynamic shared memory in bytes.
#[allow(unsafe_code)] // C functions
pub(crate) fn resident_groups(
    context: &Context,
    function: CUfunction,
    group: Dim3,
    shared: u64,
) -> Result<u64> {
    let _current = context.enter()?;
    let ask = || -> Result<Option<u64>, Failure> {
        let number = |which| caps::attribute(context.api, context.device, which);
        if number(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? == 0 {
            return Ok(None);
        }
        let cores = u64::try_from(number(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?).unwrap_or(0);
        let threads = i32::try_from(group.volume()).unwrap_or(i32::MAX);
        let mut blocks = 0;
        // SAFETY: it writes a number; the function is loaded.
        unsafe { context.api.resident_blocks(&mut blocks, function, threads, shared as usize) }?;
        Ok(Some(u64::try_from(blocks).unwrap_or(0) * cores))
    };
    let resident = ask().map_err(|failure| context.error(failure, "counting resident threadgroups"))?;
    let none = || Error::unsupported(format!("device `{}` has no cooperative launches", context.name));
    resident.ok_or_else(none)
}

/// The attribute of a cooperative launch.
pub(crate) fn attribute() -> CUlaunchAttribute {
    CUlaunchAttribute {
        id: LaunchAttribute::CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        pad: [0; 4],
        value: CUlaunchAttributeValue { cooperative: 1 },
    }
}
