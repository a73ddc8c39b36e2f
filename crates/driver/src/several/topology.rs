//! [`Place`] and [`Link`]: where devices are in the machine, and what connects them.

use std::fmt;

/// Where a device is in the machine, as far as its driver knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Place {
    /// NUMA node of its memory, or of the processors next to it.
    pub numa_node: Option<u32>,
    /// Numbers of the processors that run its kernels; empty for a GPU.
    pub cpus: Vec<u32>,
    /// PCI address, as `0000:3b:00.0`.
    pub pci: Option<String>,
}

/// Connection of two devices.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Link {
    /// What the bytes pass.
    pub kind: LinkKind,
    /// Whether kernels of one device can access the other's memory ([`crate::Device::peer_access`]).
    pub access: bool,
    /// Whether atomic operations of kernels on the other's memory are atomic for both devices.
    pub atomics: bool,
    /// Bandwidth in one direction according to the interface's specification, in bytes per second.
    pub expected: Option<f64>,
}

/// What the bytes between two devices pass, from the closest to the farthest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum LinkKind {
    /// The same memory: devices on one NUMA node.
    Memory,
    /// NVLink, directly or through switches.
    NvLink {
        /// Generation of the interface.
        generation: u32,
        /// Number of links.
        count: u32,
    },
    /// A connection of Apple GPUs of one peer group.
    PeerGroup,
    /// The same board.
    Board,
    /// One or several PCIe switches.
    PcieSwitch,
    /// The PCIe host bridge of one processor.
    HostBridge,
    /// Different host bridges of one NUMA node.
    Node,
    /// The interconnect of NUMA nodes.
    Numa {
        /// Distance of the nodes according to the firmware, 10 within a node.
        distance: Option<u32>,
    },
    /// Simulated.
    Simulated,
    /// Through the host's memory, by an unknown path.
    Host,
}

impl fmt::Display for LinkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("same memory"),
            Self::NvLink { generation, count } => write!(f, "{count} × NVLink {generation}"),
            Self::PeerGroup => f.write_str("peer group"),
            Self::Board => f.write_str("same board"),
            Self::PcieSwitch => f.write_str("PCIe switch"),
            Self::HostBridge => f.write_str("host bridge"),
            Self::Node => f.write_str("same node"),
            Self::Numa { distance: Some(distance) } => write!(f, "NUMA {distance}"),
            Self::Numa { distance: None } => f.write_str("NUMA"),
            Self::Simulated => f.write_str("simulated"),
            Self::Host => f.write_str("host"),
        }
    }
}
