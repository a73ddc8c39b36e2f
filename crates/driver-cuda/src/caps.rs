//! Conversion of device attributes to [`Caps`].

use std::ffi::c_char;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute_enum as Attribute};
use elinvar_driver::{Caps, DeviceKind, Dim3, Features, Limits, Primitives, StopsAt};

use crate::api::Api;
use crate::failure::Failure;
use crate::memory::{GRANULE, WRAP_GRANULE};

/// Number of streams that the device runs concurrently by default (`CUDA_DEVICE_MAX_CONNECTIONS`).
const QUEUES: u32 = 8;
/// Maximum length of a name in bytes.
const NAME: usize = 256;

/// A device attribute.
#[allow(unsafe_code)] // a C function
pub(crate) fn attribute(api: &Api, device: CUdevice, attribute: Attribute) -> Result<i32, Failure> {
    let mut value = 0;
    // SAFETY: it writes a number.
    unsafe { api.device_attribute(&mut value, attribute as u32, device) }.map(|()| value)
}

/// The compute capability: major and minor.
pub(crate) fn capability(api: &Api, device: CUdevice) -> Result<(u32, u32), Failure> {
    let part = |which| attribute(api, device, which).map(|value| u32::try_from(value).unwrap_or(0));
    Ok((
        part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        part(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ))
}

#[allow(unsafe_code)] // C functions
pub(crate) fn caps(api: &Api, device: CUdevice) -> Result<Caps, Failure> {
    use Attribute as A;
    let number = |which| attribute(api, device, which).map(|value| u32::try_from(value).unwrap_or(0));
    let mut total = 0;
    // SAFETY: it writes a number.
    unsafe { api.device_memory(&mut total, device) }?;
    let mut name = [0 as c_char; NAME];
    // SAFETY: it writes at most so many bytes.
    unsafe { api.device_name(name.as_mut_ptr(), NAME as i32, device) }?;
    let name: Vec<u8> = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    let registers = number(A::CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED)? != 0;
    let total = total as u64;
    Ok(Caps {
        name: String::from_utf8_lossy(&name).into_owned(),
        kind: DeviceKind::Cuda,
        limits: Limits {
            simdgroup_width: number(A::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?,
            max_threads_per_threadgroup: number(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            max_threadgroup_size: Dim3::new(
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                number(A::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                // Layers of deep threadgroups are stacked along y: `elinvar_ptx::Block`.
                number(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            ),
            max_threadgroup_memory: u64::from(number(
                A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?),
            max_buffer_bytes: total,
            total_memory: total,
            working_set: total,
            memory_granule: GRANULE,
            wrap_granule: registers.then_some(WRAP_GRANULE),
            compute_units: number(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            parallel_queues: QUEUES,
            vector_bits: None,
        },
        features: Features {
            unified_memory: false,
            managed_memory: true,
            stops_at: StopsAt::Never,
            restarts: false,
            sees_counts: true,
            priorities: true,
            names_accesses: true,
            tensor_products: capability(api, device)? == (9, 0),
            primitives: Primitives::NONE,
        },
    })
}

/// Properties that are not part of [`Caps`].
pub(crate) fn details(api: &Api, device: CUdevice) -> Result<Vec<(&'static str, String)>, Failure> {
    use Attribute as A;
    let number = |which| attribute(api, device, which);
    let mhz = |which| number(which).map(|khz| format!("{} MHz", khz / 1000));
    let (major, minor) = capability(api, device)?;
    let place = [
        A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
        A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
        A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
    ];
    let [domain, bus, slot] = place.map(number);
    Ok(vec![
        ("compute capability", format!("{major}.{minor}")),
        ("clock", mhz(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?),
        ("memory clock", mhz(A::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)?),
        ("memory bus", format!("{} bits", number(A::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)?)),
        ("L2 cache", format!("{} MiB", number(A::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)? >> 20)),
        ("registers of a threadgroup", number(A::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK)?.to_string()),
        ("PCI", format!("{:04x}:{:02x}:{:02x}", domain?, bus?, slot?)),
    ])
}
