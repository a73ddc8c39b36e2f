//! Connections of two GPUs: NVLinks, directly or through NVSwitches, and the closest common part of the PCIe hierarchy.

use elinvar_driver::{Link, LinkKind};
use nvml_wrapper::Device;
#[cfg(target_os = "linux")]
use nvml_wrapper::enum_wrappers::device::TopologyLevel;
use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex, P2pStatus};

use super::{Found, Sensor};

/// Bytes per second of one NVLink in one direction, by generation from 1. Source: NVIDIA's page on NVLink, which has the sums of both directions.
const NVLINK_RATES: [f64; 5] = [20e9, 25e9, 25e9, 25e9, 50e9];
/// Bytes per second of one PCIe lane in one direction, by generation from 1: the transfer rate less the line coding.
const PCIE_RATES: [f64; 6] = [0.25e9, 0.5e9, 0.985e9, 1.969e9, 3.938e9, 7.563e9];
/// Links of a GPU that are examined.
const MAX_LINKS: u32 = 32;

impl Sensor {
    /// The connection to another GPU. `None` without the library, or if it does not know one of the GPUs.
    pub(crate) fn link(&self, other: &Self, access: bool) -> Option<Link> {
        Some(self.found().ok()?.link(other.found().ok()?, access))
    }

    /// The GPU's PCI address, as `0000:3b:00.0`, which is how the system writes it.
    pub(crate) fn pci(&self) -> Option<String> {
        let pci = self.identity.pci.as_ref()?;
        // NVML writes eight digits of the domain.
        Some(pci.strip_prefix("0000").unwrap_or(pci).to_owned())
    }
}

impl Found<'_> {
    fn link(&self, other: &Self, access: bool) -> Link {
        let (ours, theirs) = (&self.gpu, &other.gpu);
        let able = |index| matches!(ours.p2p_status(theirs, index), Ok(P2pStatus::Ok));
        let atomics = access && able(P2pCapabilitiesIndex::Atomics);
        if let Some((generation, count)) = nvlinks(ours, theirs) {
            let rate = NVLINK_RATES.get(generation.saturating_sub(1) as usize);
            let expected = rate.map(|rate| rate * f64::from(count));
            return Link { kind: LinkKind::NvLink { generation, count }, access, atomics, expected };
        }
        let rates = [ours, theirs].map(pcie_rate);
        let expected = rates.into_iter().flatten().reduce(f64::min);
        Link { kind: ancestor(ours, theirs), access, atomics, expected }
    }
}

/// Generation and number of the active NVLinks between two GPUs. Links to switches count for each GPU behind them.
fn nvlinks(ours: &Device<'_>, theirs: &Device<'_>) -> Option<(u32, u32)> {
    let address = theirs.pci_info().ok()?.bus_id;
    let (generation, direct, switched) = active(ours, &address);
    let count = if direct > 0 {
        direct
    } else if matches!(ours.p2p_status(theirs, P2pCapabilitiesIndex::NvLink), Ok(P2pStatus::Ok)) {
        switched.min(active(theirs, &ours.pci_info().ok()?.bus_id).2)
    } else {
        0
    };
    (count > 0).then_some((generation, count))
}

/// Generation of a GPU's active NVLinks, and the numbers of those to the GPU at this address, and to switches.
fn active(gpu: &Device<'_>, address: &str) -> (u32, u32, u32) {
    let (mut generation, mut direct, mut switched) = (0, 0, 0);
    for number in 0..MAX_LINKS {
        let link = gpu.link_wrapper_for(number);
        match link.is_active() {
            Ok(true) => {}
            Ok(false) => continue,
            Err(_) => break,
        }
        generation = generation.max(super::nvlink_generation(link.version().unwrap_or(0)));
        match link.remote_pci_info() {
            Ok(remote) if remote.bus_id == address => direct += 1,
            // Another GPU.
            Ok(remote) if gpu.nvml().device_by_pci_bus_id(remote.bus_id.as_str()).is_ok() => {}
            // A switch, whose address is hidden in virtual machines.
            _ => switched += 1,
        }
    }
    (generation, direct, switched)
}

#[cfg(target_os = "linux")]
fn ancestor(ours: &Device<'_>, theirs: &Device<'_>) -> LinkKind {
    // The call takes the device by value.
    let other = theirs.pci_info().and_then(|pci| theirs.nvml().device_by_pci_bus_id(pci.bus_id));
    match other.and_then(|other| ours.topology_common_ancestor(other)) {
        Ok(TopologyLevel::Internal) => LinkKind::Board,
        Ok(TopologyLevel::Single | TopologyLevel::Multiple) => LinkKind::PcieSwitch,
        Ok(TopologyLevel::HostBridge) => LinkKind::HostBridge,
        Ok(TopologyLevel::Node) => LinkKind::Node,
        Ok(TopologyLevel::System) => LinkKind::Numa { distance: None },
        Err(_) => LinkKind::Host,
    }
}

#[cfg(not(target_os = "linux"))]
fn ancestor(_ours: &Device<'_>, _theirs: &Device<'_>) -> LinkKind {
    LinkKind::Host
}

/// Bytes per second of a GPU's PCIe connection in one direction.
fn pcie_rate(gpu: &Device<'_>) -> Option<f64> {
    let (generation, lanes) = (gpu.max_pcie_link_gen().ok()?, gpu.max_pcie_link_width().ok()?);
    Some(PCIE_RATES.get(generation.checked_sub(1)? as usize)? * f64::from(lanes))
}
