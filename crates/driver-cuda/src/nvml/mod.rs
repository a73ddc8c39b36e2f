//! What NVIDIA's management library (NVML) measures of a GPU. The library is part of the driver installation and loaded at run time; each function
//! is looked up when it is called, and a driver that lacks one gives that as the reason.
//!
//! CUDA and NVML number GPUs differently (`CUDA_VISIBLE_DEVICES`, MIG), so a GPU is found by its UUID. Source: NVIDIA's NVML API reference.

mod fields;
mod links;
mod readings;
#[cfg(all(test, target_os = "linux"))]
mod tests;
mod thermal;

use std::sync::OnceLock;

use cudarc::driver::sys::{CUdevice, CUdevice_attribute_enum as Attribute, CUuuid};
use elinvar_driver::{Energy, Error, Readings, Result, Thermal};
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::api::Api;
use crate::caps::attribute;

/// Library name where only the driver is installed; the unversioned name comes with development packages.
#[cfg(not(windows))]
const LIBRARY: &str = "libnvidia-ml.so.1";
#[cfg(windows)]
const LIBRARY: &str = "nvml.dll";

/// Generation of NVLink, from `nvmlNvlinkVersion_t` of `nvml.h`, whose values from 1 are 1.0, 2.0, 2.2, 3.0, 3.1, 4.0 and 5.0; 0 for others.
fn nvlink_generation(version: u32) -> u32 {
    [0, 1, 2, 2, 3, 3, 4, 5].get(version as usize).copied().unwrap_or(0)
}

/// A GPU of CUDA in NVML.
pub(crate) struct Sensor {
    identity: Identity,
    /// Found once.
    found: OnceLock<Found<'static>>,
}

/// What CUDA tells of a GPU.
#[derive(Default)]
struct Identity {
    /// Without the prefix `GPU-` or `MIG-`.
    uuid: Option<String>,
    /// PCI address, of the whole GPU.
    pci: Option<String>,
}

/// A GPU's handles.
struct Found<'n> {
    gpu: Device<'n>,
    /// The part of the GPU that CUDA has, if it is divided (multi-instance GPU).
    instance: Option<Device<'n>>,
}

impl Sensor {
    #[allow(unsafe_code)] // a C function
    pub(crate) fn of(api: &Api, device: CUdevice) -> Self {
        let mut uuid = CUuuid { bytes: [0; 16] };
        // SAFETY: it writes 16 bytes.
        let told = unsafe { api.device_uuid(&mut uuid, device) };
        let uuid = told.is_ok().then(|| uuid_text(uuid.bytes.map(|byte| byte as u8)));
        use Attribute as A;
        let number = |which| attribute(api, device, which).ok();
        let pci = || {
            let domain = number(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
            let bus = number(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
            let slot = number(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?;
            Some(format!("{domain:08x}:{bus:02x}:{slot:02x}.0"))
        };
        Self::new(Identity { uuid, pci: pci() })
    }

    fn new(identity: Identity) -> Self {
        Self { identity, found: OnceLock::new() }
    }

    /// The current thermal level.
    ///
    /// # Errors
    /// `Unsupported` without the library, or if NVML provides too little data for the GPU, as in many virtual machines.
    pub(crate) fn thermal(&self) -> Result<Thermal> {
        let found = self.found()?;
        let level = thermal::Reading::of(&found.gpu).level();
        level.ok_or_else(|| self.unknown("it reports neither temperature limits nor throttle reasons"))
    }

    /// Current temperature in degrees Celsius.
    pub(crate) fn celsius(&self) -> Option<u32> {
        self.found().ok()?.gpu.temperature(TemperatureSensor::Gpu).ok()
    }

    /// Free memory of the GPU in bytes.
    #[cfg(target_os = "linux")]
    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.found().ok()?.owner_of_memory().memory_info().ok().map(|memory| memory.free)
    }

    /// All readings.
    ///
    /// # Errors
    /// `Unsupported` without the library, or if NVML does not have the GPU.
    pub(crate) fn readings(&self) -> Result<Readings> {
        Ok(self.found()?.readings())
    }

    /// The counter of the GPU's energy.
    ///
    /// # Errors
    /// `Unsupported` without the library or the counter, or for a part of a GPU.
    pub(crate) fn energy(&self) -> Result<Energy> {
        self.found()?.energy()
    }

    fn found(&self) -> Result<&Found<'static>> {
        if let Some(found) = self.found.get() {
            return Ok(found);
        }
        let nvml = nvml().map_err(|reason| self.unknown(reason))?;
        let found = Found::new(nvml, &self.identity).map_err(|reason| self.unknown(&reason))?;
        Ok(self.found.get_or_init(|| found))
    }

    fn unknown(&self, reason: &str) -> Error {
        let Identity { uuid, pci } = &self.identity;
        let place = pci.as_ref().or(uuid.as_ref()).map_or("an unknown address", String::as_str);
        Error::unsupported(format!("measuring the NVIDIA GPU at {place}, by NVML: {reason}"))
    }
}

impl<'n> Found<'n> {
    /// Finds a GPU by its UUID, which is that of a GPU or of an instance, otherwise by its PCI address.
    fn new(nvml: &'n Nvml, identity: &Identity) -> std::result::Result<Self, String> {
        let mut reason = "CUDA reports neither a UUID nor a PCI address".to_owned();
        if let Some(uuid) = &identity.uuid {
            match nvml.device_by_uuid(format!("GPU-{uuid}")) {
                Ok(gpu) => return Ok(Self { gpu, instance: None }),
                Err(error) => reason = why(&error),
            }
            if let Ok(instance) = nvml.device_by_uuid(format!("MIG-{uuid}")) {
                let gpu = instance.mig_parent_device();
                let gpu = gpu.map_err(|error| format!("the GPU of a MIG instance: {}", why(&error)))?;
                return Ok(Self { gpu, instance: Some(instance) });
            }
        }
        if let Some(pci) = &identity.pci {
            match nvml.device_by_pci_bus_id(pci.as_str()) {
                Ok(gpu) => return Ok(Self { gpu, instance: None }),
                Err(error) => reason = why(&error),
            }
        }
        Err(reason)
    }

    /// The handle whose memory CUDA has.
    fn owner_of_memory(&self) -> &Device<'n> {
        self.instance.as_ref().unwrap_or(&self.gpu)
    }
}

/// Why a call failed.
fn why(error: &NvmlError) -> String {
    match error {
        NvmlError::FailedToLoadSymbol(_) => format!("the driver is too old: {error}"),
        _ => error.to_string(),
    }
}

/// A UUID's five groups.
fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        if [4, 6, 8, 10].contains(&at) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

/// The library, opened once, or the reason why it cannot be.
fn nvml() -> std::result::Result<&'static Nvml, &'static str> {
    static NVML: OnceLock<std::result::Result<Nvml, String>> = OnceLock::new();
    let open = || Nvml::builder().lib_path(LIBRARY.as_ref()).init().map_err(|error| error.to_string());
    NVML.get_or_init(open).as_ref().map_err(String::as_str)
}

#[cfg(test)]
mod identity_tests {
    use super::*;

    #[test]
    fn a_uuid_has_five_groups() {
        let bytes = std::array::from_fn(|at| at as u8 * 17);
        assert_eq!(uuid_text(bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn a_gpu_that_is_not_there_is_unsupported() {
        let sensor = Sensor::new(Identity { uuid: None, pci: Some("0000ffff:ff:1f.0".into()) });
        for error in
            [sensor.thermal().unwrap_err(), sensor.readings().unwrap_err(), sensor.energy().unwrap_err()]
        {
            let text = error.to_string();
            assert!(
                text.starts_with("unsupported: measuring the NVIDIA GPU at 0000ffff:ff:1f.0, by NVML: "),
                "{text}"
            );
        }
        assert_eq!(sensor.celsius(), None);
    }
}
