//! GPU memory shared between processes: [`Gpu`] and [`DeviceBlock`] for the process that owns the memory, [`reserve`] and [`import`] for the
//! process that runs kernels.
//!
//! Device memory allocated by `cuMemCreate` needs no context and belongs to the process that created it. Any process that receives it as a
//! file descriptor can map it. It keeps its contents when such a process ends, also after a fault that destroyed that process's context.
//! (CUDA Driver API reference, Virtual Memory Management.)

use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use cudarc::driver::sys::{
    CUdevice, CUdevice_attribute_enum as Attribute, CUmemAccess_flags_enum as Access, CUmemAccessDesc,
    CUmemAllocationHandleType as HandleType, CUmemAllocationProp, CUmemAllocationType_enum as AllocationType,
    CUmemLocation, CUmemLocationType_enum as LocationType,
};
use elinvar_driver::{Caps, Device, Energy, Error, Memory, Process, Readings, Result, Thermal};
use elinvar_ptx::Target;

use crate::api::{Api, api};
use crate::caps::{attribute, capability, caps, details};
use crate::device::{CudaDevice, nth};
use crate::failure::{Failure, code};
use crate::memory::CudaMemory;
use crate::nvml::Sensor;

/// Handle type: a file descriptor.
const FILE: HandleType = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

/// A GPU for a process that runs nothing on it: its capabilities, and memory for another process. It has no context.
pub struct Gpu {
    api: &'static Api,
    device: CUdevice,
    caps: Caps,
    target: Target,
    granule: u64,
    sensor: Sensor,
}

impl Gpu {
    /// The GPU with this index, from 0, in the order of [`elinvar_driver::Driver::devices`].
    ///
    /// # Errors
    /// `Unsupported` without a driver or a GPU, with the reason, or if the GPU's memory cannot be shared between processes;
    /// `InvalidArgument`, with the range, if the index is out of range.
    pub fn open(index: usize) -> Result<Self> {
        let api = api().map_err(Error::Unsupported)?;
        let failed = |failure: Failure| failure.error(api, "an NVIDIA GPU");
        let device = nth(api, index)?;
        let caps = caps(api, device).map_err(failed)?;
        let (major, minor) = capability(api, device).map_err(failed)?;
        let target = Target::of(major, minor)?;
        let shares = Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED;
        if attribute(api, device, shares).map_err(failed)? == 0 || caps.limits.wrap_granule.is_none() {
            let name = &caps.name;
            return Err(Error::unsupported(format!("device `{name}` cannot share memory between processes")));
        }
        let granule = granule(api, device).map_err(failed)?;
        Ok(Self { api, device, caps, target, granule, sensor: Sensor::of(api, device) })
    }

    /// Capabilities and limits, as of the driver's own device.
    pub fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Compilation target.
    pub fn target(&self) -> Target {
        self.target
    }

    /// As [`Device::details`].
    pub fn details(&self) -> Vec<(&'static str, String)> {
        details(self.api, self.device).unwrap_or_default()
    }

    /// As [`Device::thermal`].
    ///
    /// # Errors
    /// As [`Device::thermal`].
    pub fn thermal(&self) -> Result<Thermal> {
        self.sensor.thermal()
    }

    /// As [`Device::readings`].
    ///
    /// # Errors
    /// As [`Device::readings`].
    pub fn readings(&self) -> Result<Readings> {
        self.sensor.readings()
    }

    /// As [`Device::energy`].
    ///
    /// # Errors
    /// As [`Device::energy`].
    pub fn energy(&self) -> Result<Energy> {
        self.sensor.energy()
    }

    /// Free device memory in bytes, from NVML; `None` if NVML does not report it.
    pub fn free_memory(&self) -> Option<u64> {
        self.sensor.free_memory()
    }

    /// Allocation granularity in bytes; 2 MiB on most GPUs.
    pub fn granule(&self) -> u64 {
        self.granule
    }

    /// Allocates device memory: at least `bytes` bytes and at least one granule, in whole granules. The contents are undefined.
    ///
    /// # Errors
    /// `OutOfMemory`.
    #[allow(unsafe_code)] // a C function
    pub fn allocate(&self, bytes: u64) -> Result<DeviceBlock> {
        let none = || Error::OutOfMemory { requested: bytes, available: self.free_memory().unwrap_or(0) };
        let size = bytes.max(1).checked_next_multiple_of(self.granule).ok_or_else(none)?;
        let (properties, mut handle) = (properties(self.device), 0);
        // SAFETY: it writes a handle; the properties are read before it returns.
        let made = unsafe { self.api.create_memory(&mut handle, size as usize, &properties, 0) };
        match made {
            Ok(()) => Ok(DeviceBlock { api: self.api, handle, bytes: size, process: Process::this() }),
            Err(Failure { code: code::OUT_OF_MEMORY, .. }) => Err(none()),
            Err(failure) => Err(failure.error(self.api, &format!("allocating {bytes} bytes"))),
        }
    }
}

/// Device memory owned by this process, independent of the processes that use it.
pub struct DeviceBlock {
    api: &'static Api,
    handle: u64,
    bytes: u64,
    /// The GPU that it belongs to.
    process: Process,
}

impl DeviceBlock {
    /// Size in bytes, a multiple of [`Gpu::granule`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Exports the memory as a file descriptor for another process.
    ///
    /// # Errors
    /// `Environment` with the driver's error.
    #[allow(unsafe_code)] // C functions
    pub fn share(&self) -> Result<OwnedFd> {
        let mut file: RawFd = -1;
        // SAFETY: a handle of this type is a number of this size, which it writes.
        unsafe { self.api.export_memory((&raw mut file).cast(), self.handle, FILE.0, 0) }
            .map_err(|failure| failure.error(self.api, "sharing device memory"))?;
        // SAFETY: the descriptor has just been opened for this process, and no other code knows it.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

impl Drop for DeviceBlock {
    #[allow(unsafe_code)] // a C function
    fn drop(&mut self) {
        if !self.process.is_this() {
            return;
        }
        // SAFETY: made by `Gpu::allocate`, and released once. Mappings keep the memory alive until they are gone.
        let _left = unsafe { self.api.release_memory(self.handle) };
    }
}

/// Reserves a range of the device's addresses for [`import`], for the lifetime of this process.
///
/// # Errors
/// `InvalidArgument` for a device of another driver; `Environment` if the addresses are not free, or with the driver's error.
#[allow(unsafe_code)] // C functions
pub fn reserve(device: &dyn Device, address: u64, bytes: u64) -> Result<()> {
    let context = ours(device)?.context();
    let (_current, mut reserved) = (context.enter()?, 0);
    // SAFETY: it writes an address.
    unsafe { context.api.reserve_addresses(&mut reserved, bytes as usize, 0, address, 0) }
        .map_err(|failure| context.error(failure, "reserving device addresses"))?;
    if reserved == address {
        return Ok(());
    }
    // SAFETY: reserved above.
    let _left = unsafe { context.api.free_addresses(reserved, bytes as usize) };
    Err(Error::Environment(format!("{bytes} bytes of device addresses at {address:#x} are not free")))
}

/// Maps device memory of another process, all `bytes` of it, at an address in the reserved range.
///
/// # Errors
/// `InvalidArgument` for a device of another driver; `Environment` with the driver's error.
pub fn import(device: &dyn Device, file: &OwnedFd, bytes: u64, address: u64) -> Result<Arc<dyn Memory>> {
    let context = ours(device)?.context();
    let _current = context.enter()?;
    let mapped = Mapped::new(context.api, context.device, file, bytes, address)?;
    Ok(Arc::new(CudaMemory::import(context, mapped, bytes)))
}

fn ours(device: &dyn Device) -> Result<&CudaDevice> {
    let device: &dyn std::any::Any = device;
    device.downcast_ref().ok_or_else(|| Error::invalid("the device belongs to another driver"))
}

/// Memory of another process, mapped to addresses of this process's device.
pub(crate) struct Mapped {
    api: &'static Api,
    handle: u64,
    bytes: usize,
    pub(crate) address: u64,
    is_mapped: bool,
}

impl Mapped {
    /// The context must be current.
    #[allow(unsafe_code)] // C functions
    fn new(api: &'static Api, device: CUdevice, file: &OwnedFd, bytes: u64, address: u64) -> Result<Self> {
        let failed =
            |failure: Failure| failure.error(api, &format!("mapping {bytes} bytes of device memory"));
        let (bytes, mut handle) = (bytes as usize, 0);
        let file: *mut c_void = std::ptr::without_provenance_mut(file.as_raw_fd() as usize);
        // SAFETY: a handle of this type is passed as a number in place of a pointer; it writes a handle.
        unsafe { api.import_memory(&mut handle, file, FILE.0) }.map_err(failed)?;
        // From here on, dropping it releases everything.
        let mut mapped = Self { api, handle, bytes, address, is_mapped: false };
        // SAFETY: the caller's addresses, which the driver checks to be reserved and free.
        unsafe { api.map_memory(address, bytes, 0, handle, 0) }.map_err(failed)?;
        mapped.is_mapped = true;
        let access =
            CUmemAccessDesc { location: location(device), flags: Access::CU_MEM_ACCESS_FLAGS_PROT_READWRITE };
        // SAFETY: the addresses are mapped; the description is read before it returns.
        unsafe { api.set_access(address, bytes, &access, 1) }.map_err(failed)?;
        Ok(mapped)
    }
}

impl Drop for Mapped {
    #[allow(unsafe_code)] // C functions
    fn drop(&mut self) {
        // SAFETY: exactly what `new` has mapped and imported, whose only owner is being dropped; nothing uses it. On failure, it is released at
        // the end of the process.
        unsafe {
            let _left = if self.is_mapped { self.api.unmap_memory(self.address, self.bytes) } else { Ok(()) };
            let _left = self.api.release_memory(self.handle);
        }
    }
}

fn location(device: CUdevice) -> CUmemLocation {
    CUmemLocation { type_: LocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: device }
}

/// Properties of device memory that can be exported to other processes.
fn properties(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: AllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FILE,
        location: location(device),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: cudarc::driver::sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

#[allow(unsafe_code)] // a C function
fn granule(api: &Api, device: CUdevice) -> Result<u64, Failure> {
    /// `CU_MEM_ALLOC_GRANULARITY_MINIMUM`
    const LEAST: u32 = 0;
    let (properties, mut bytes) = (properties(device), 0);
    // SAFETY: it writes a number; the properties are read before it returns.
    unsafe { api.memory_granule(&mut bytes, &properties, LEAST) }?;
    Ok((bytes as u64).max(1))
}
