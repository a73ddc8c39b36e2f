//! [`Topology`]: devices, and what connects each two of them.
//!
//! A driver knows the connections of its own devices. Those of devices of different drivers follow from their places: the NUMA nodes, and the paths of
//! PCI devices in the system's tree of devices, where the folder of a device is below those of the bridges and switches that it is behind.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::Duration;

use elinvar_driver::{Link, LinkKind, Place, Result};

use super::Route;
use crate::Device;

/// The devices of a machine, and the connection of each two.
#[derive(Clone, Debug)]
pub struct Topology {
    devices: Vec<TopologyDevice>,
    /// By source and target; `None` on the diagonal.
    pairs: Vec<Option<Pair>>,
}

/// A device of a [`Topology`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopologyDevice {
    /// The device.
    pub device: Device,
    /// Its kind and its number among those of that kind, as `cuda:1`.
    pub name: String,
    /// Where it is.
    pub place: Place,
}

/// Connection from one device to another.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pair {
    /// What connects them.
    pub link: Link,
    /// Route of copies.
    pub route: Route,
    /// What [`Topology::measure`] has measured.
    pub measured: Option<Measured>,
}

/// Measurements of copies from one device to another.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Measured {
    /// Median duration of a copy of four bytes, from submission to the end of the wait.
    pub latency: Duration,
    /// Highest rate of a large copy, in bytes per second, from submission to the end of the wait.
    pub bandwidth: f64,
}

/// Bytes of a large copy.
const LARGE: usize = 64 << 20;
/// Number of large copies.
const LARGE_ROUNDS: usize = 5;
/// Number of small copies.
const SMALL_ROUNDS: usize = 51;

impl Topology {
    /// All devices of this machine ([`Device::all`]) and their connections. Copies nothing.
    ///
    /// # Errors
    /// As [`Device::all`].
    pub fn discover() -> Result<Self> {
        Ok(Self::of(Device::all()?))
    }

    /// These devices and their connections.
    pub fn of(devices: impl IntoIterator<Item = Device>) -> Self {
        let mut all: Vec<TopologyDevice> = Vec::new();
        for device in devices {
            let kind = device.kind().name();
            let number = all.iter().filter(|other| other.device.kind() == device.kind()).count();
            let place = device.driver().place();
            all.push(TopologyDevice { name: format!("{kind}:{number}"), device, place });
        }
        let pair = |from: &TopologyDevice, to: &TopologyDevice| {
            let route = from.device.route_to(&to.device)?;
            let known = from.device.driver().link(to.device.driver());
            let link = known.unwrap_or_else(|| link_of(Path::new("/sys"), &from.place, &to.place));
            Some(Pair { link, route, measured: None })
        };
        let pairs = all.iter().flat_map(|from| all.iter().map(move |to| pair(from, to))).collect();
        Self { devices: all, pairs }
    }

    /// The devices, in the order of [`Device::all`].
    pub fn devices(&self) -> &[TopologyDevice] {
        &self.devices
    }

    /// The connection from one device to another, by their indices. `None` from a device to itself.
    pub fn pair(&self, from: usize, to: usize) -> Option<&Pair> {
        let count = self.devices.len();
        self.pairs.get(from * count + to).filter(|_| from < count && to < count)?.as_ref()
    }

    /// Measures copies of each pair, one after the other, with about 64 MiB on each device.
    ///
    /// # Errors
    /// Those of the copies.
    pub fn measure(&mut self) -> Result<()> {
        let count = self.devices.len();
        for at in 0..self.pairs.len() {
            if let Some(pair) = &mut self.pairs[at] {
                pair.measured =
                    Some(measure(&self.devices[at / count].device, &self.devices[at % count].device)?);
            }
        }
        Ok(())
    }

    /// The graph in Graphviz' language, with an edge for each connection in both directions.
    pub fn to_dot(&self) -> String {
        let mut dot = String::from("graph topology {\n  node [shape=box];\n");
        for (at, device) in self.devices.iter().enumerate() {
            let (name, hardware) = (&device.name, device.device.name().replace(['"', '\\'], ""));
            // Writing to a string cannot fail.
            let _ =
                writeln!(dot, "  d{at} [label=\"{name}\\n{hardware}{}\"];", place_text(&device.place, "\\n"));
        }
        for from in 0..self.devices.len() {
            for to in from + 1..self.devices.len() {
                if let Some(pair) = self.pair(from, to) {
                    let back = self.pair(to, from);
                    let rates = [Some(pair), back].map(|pair| pair.and_then(|pair| pair.measured));
                    let rates: Vec<String> = rates.iter().flatten().map(|m| gigabytes(m.bandwidth)).collect();
                    let rates =
                        if rates.is_empty() { String::new() } else { format!("\\n{}", rates.join(" / ")) };
                    let _ = writeln!(dot, "  d{from} -- d{to} [label=\"{}{rates}\"];", pair.link.kind);
                }
            }
        }
        dot.push_str("}\n");
        dot
    }
}

fn place_text(place: &Place, separator: &str) -> String {
    let node = place.numa_node.map(|node| format!("{separator}NUMA node {node}"));
    let pci = place.pci.as_ref().map(|pci| format!("{separator}PCI {pci}"));
    node.into_iter().chain(pci).collect()
}

fn gigabytes(rate: f64) -> String {
    format!("{:.1} GB/s", rate / 1e9)
}

/// Tables of the devices, of what connects them with the route of copies, and of what was measured, rows being sources.
impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for device in &self.devices {
            writeln!(f, "{}  {}{}", device.name, device.device.name(), place_text(&device.place, "; "))?;
        }
        if self.devices.len() < 2 {
            return Ok(());
        }
        let of_link = |pair: &Pair| {
            let access = if pair.link.access { ", access" } else { "" };
            let atomics = if pair.link.atomics { ", atomics" } else { "" };
            format!("{}, {}{access}{atomics}", pair.link.kind, pair.route.name())
        };
        self.table(f, "link, route, access of kernels", of_link)?;
        if self.pairs.iter().flatten().any(|pair| pair.link.expected.is_some()) {
            self.table(f, "specified bandwidth", |pair| {
                pair.link.expected.map_or_else(|| "?".into(), gigabytes)
            })?;
        }
        if self.pairs.iter().flatten().any(|pair| pair.measured.is_some()) {
            self.table(f, "measured bandwidth, latency", |pair| {
                pair.measured.map_or_else(
                    || "?".into(),
                    |Measured { latency, bandwidth }| {
                        format!("{}, {:.1} µs", gigabytes(bandwidth), latency.as_secs_f64() * 1e6)
                    },
                )
            })?;
        }
        Ok(())
    }
}

impl Topology {
    /// Writes a matrix with aligned columns.
    fn table(&self, f: &mut fmt::Formatter<'_>, title: &str, cell: impl Fn(&Pair) -> String) -> fmt::Result {
        let count = self.devices.len();
        let mut rows = vec![vec![title.to_owned()]];
        rows[0].extend(self.devices.iter().map(|device| device.name.clone()));
        for (from, device) in self.devices.iter().enumerate() {
            let mut row = vec![device.name.clone()];
            row.extend((0..count).map(|to| self.pair(from, to).map_or_else(|| "–".into(), &cell)));
            rows.push(row);
        }
        writeln!(f)?;
        for row in &rows {
            let mut line = String::new();
            for (column, text) in row.iter().enumerate() {
                let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
                let pad = width - text.chars().count();
                line.push_str(text);
                line.extend(std::iter::repeat_n(' ', pad + 2));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// The connection of devices of different drivers.
fn link_of(sys: &Path, ours: &Place, theirs: &Place) -> Link {
    let node = |place: &Place| place.numa_node;
    let kind = match (&ours.pci, &theirs.pci) {
        (Some(one), Some(two)) => pci_link(sys, one, two),
        _ => match (node(ours), node(theirs)) {
            (Some(one), Some(two)) if one != two => LinkKind::Numa { distance: distance(sys, one, two) },
            (Some(_), Some(_)) if ours.pci.is_some() || theirs.pci.is_some() => LinkKind::HostBridge,
            (Some(_), Some(_)) => LinkKind::Memory,
            _ => LinkKind::Host,
        },
    };
    let rates = [ours, theirs].map(|place| pcie_rate(sys, place.pci.as_ref()?));
    let expected = rates.into_iter().flatten().reduce(f64::min);
    Link { kind, access: false, atomics: false, expected }
}

/// The connection of two PCI devices.
fn pci_link(sys: &Path, one: &str, two: &str) -> LinkKind {
    let devices = sys.join("bus/pci/devices");
    let path = |pci: &str| std::fs::canonicalize(devices.join(pci)).ok();
    let (Some(one), Some(two)) = (path(one), path(two)) else { return LinkKind::Host };
    let common = one.components().zip(two.components()).take_while(|(a, b)| a == b).count();
    // The folder of a host bridge is `pci0000:00`; below it each bridge or switch port has one.
    let bridge = one.components().position(|part| part.as_os_str().to_string_lossy().starts_with("pci"));
    let node = |path: &Path| std::fs::read_to_string(path.join("numa_node")).unwrap_or_default();
    match bridge {
        Some(bridge) if common > bridge + 1 => LinkKind::PcieSwitch,
        Some(bridge) if common == bridge + 1 => LinkKind::HostBridge,
        _ if node(&one) == node(&two) => LinkKind::Node,
        _ => LinkKind::Numa { distance: None },
    }
}

/// Bytes per second of a PCI device's connection, from its speed in transfers per second and its width.
fn pcie_rate(sys: &Path, pci: &str) -> Option<f64> {
    let folder = sys.join("bus/pci/devices").join(pci);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    let speed: f64 = read("max_link_speed")?.split_whitespace().next()?.parse().ok()?;
    let lanes: f64 = read("max_link_width")?.trim().parse().ok()?;
    // 8b/10b coding up to 5 GT/s, 128b/130b or FLITs above.
    let coding = if speed <= 5.0 { 0.8 } else { 128.0 / 130.0 };
    Some(speed * 1e9 / 8.0 * coding * lanes)
}

fn distance(sys: &Path, from: u32, to: u32) -> Option<u32> {
    let path = sys.join(format!("devices/system/node/node{from}/distance"));
    std::fs::read_to_string(path).ok()?.split_whitespace().nth(to as usize)?.parse().ok()
}

fn measure(from: &Device, to: &Device) -> Result<Measured> {
    use crate::HostAccess::Never;
    let bytes = LARGE.min(from.pool().limits().budget.min(to.pool().limits().budget) as usize / 4);
    let (source, mut target) = (from.buffer_for::<u8>(bytes, Never)?, to.buffer_for::<u8>(bytes, Never)?);
    let stream = from.stream()?;
    let mut time = |bytes: usize| -> Result<Duration> {
        let begin = std::time::Instant::now();
        stream.copy(source.slice(0..bytes)?, target.slice_mut(0..bytes)?)?.wait()?;
        Ok(begin.elapsed())
    };
    let mut rates = (0..LARGE_ROUNDS).map(|_| time(bytes)).collect::<Result<Vec<_>>>()?;
    let mut latencies = (0..SMALL_ROUNDS).map(|_| time(bytes.min(4))).collect::<Result<Vec<_>>>()?;
    rates.sort();
    latencies.sort();
    let fastest = rates[0].as_secs_f64().max(1e-9);
    Ok(Measured { latency: latencies[SMALL_ROUNDS / 2], bandwidth: bytes as f64 / fastest })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use elinvar_driver::Driver as _;

    use super::*;

    #[test]
    fn the_tree_of_pci_devices_tells_what_connects_them() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let devices = sys.join("bus/pci/devices");
        fs::create_dir_all(&devices).unwrap();
        for (pci, path, node) in [
            ("0000:03:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0", 0),
            ("0000:04:00.0", "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0", 0),
            ("0000:07:00.0", "pci0000:00/0000:00:02.0/0000:07:00.0", 0),
            ("0000:41:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0", 0),
            ("0000:81:00.0", "pci0000:80/0000:80:01.0/0000:81:00.0", 1),
        ] {
            let real = sys.join("devices").join(path);
            fs::create_dir_all(&real).unwrap();
            fs::write(real.join("numa_node"), format!("{node}\n")).unwrap();
            fs::write(real.join("max_link_speed"), "16.0 GT/s PCIe\n").unwrap();
            fs::write(real.join("max_link_width"), "8\n").unwrap();
            symlink(real, devices.join(pci)).unwrap();
        }
        let at = |pci: &str, node| Place { numa_node: Some(node), cpus: Vec::new(), pci: Some(pci.into()) };
        let first = at("0000:03:00.0", 0);
        for (other, kind) in [
            (at("0000:04:00.0", 0), LinkKind::PcieSwitch),
            (at("0000:07:00.0", 0), LinkKind::HostBridge),
            (at("0000:41:00.0", 0), LinkKind::Node),
            (at("0000:81:00.0", 1), LinkKind::Numa { distance: None }),
            (at("0000:99:00.0", 1), LinkKind::Host),
        ] {
            assert_eq!(link_of(sys, &first, &other).kind, kind, "{other:?}");
            assert_eq!(link_of(sys, &other, &first).kind, kind, "{other:?}");
        }
        let node = sys.join("devices/system/node/node0");
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("distance"), "10 21\n").unwrap();
        let cpu = |node| Place { numa_node: node, cpus: vec![0], pci: None };
        assert_eq!(link_of(sys, &first, &cpu(Some(0))).kind, LinkKind::HostBridge);
        assert_eq!(link_of(sys, &first, &cpu(Some(1))).kind, LinkKind::Numa { distance: Some(21) });
        assert_eq!(link_of(sys, &cpu(None), &first).kind, LinkKind::Host);
        assert_eq!(link_of(sys, &cpu(Some(0)), &cpu(Some(0))).kind, LinkKind::Memory);
        // 16 GT/s on 8 lanes.
        let expected = link_of(sys, &first, &cpu(Some(0))).expected.unwrap();
        assert!((expected - 15.754e9).abs() < 1e7, "{expected}");
    }

    #[test]
    fn tables_and_graphs_have_every_pair() {
        let devices = elinvar_driver_cpu::CpuDriver::with_devices(3, 3).devices().unwrap();
        let mut topology = Topology::of(devices.into_iter().map(Device::new));
        assert_eq!(topology.devices()[2].name, "cpu:2");
        assert!(topology.pair(0, 0).is_none() && topology.pair(0, 3).is_none());
        assert!(topology.pair(0, 1).unwrap().measured.is_none());
        let text = topology.to_string();
        assert!(text.contains("same memory, peer, access, atomics") && !text.contains("GB/s"), "{text}");
        topology.measure().unwrap();
        for (from, to) in [(0, 1), (1, 0), (2, 0), (1, 2)] {
            let pair = topology.pair(from, to).unwrap();
            assert_eq!(pair.route, Route::Peer);
            let measured = pair.measured.unwrap();
            assert!(measured.bandwidth > 1e6 && measured.latency > Duration::ZERO, "{measured:?}");
            let rows = topology.devices()[from].device.transfers_to(&topology.devices()[to].device);
            assert_eq!(rows[0].copies as usize, LARGE_ROUNDS + SMALL_ROUNDS);
        }
        assert_eq!(topology.to_string().matches(" GB/s, ").count(), 6);
        let dot = topology.to_dot();
        assert!(dot.starts_with("graph topology {") && dot.ends_with("}\n"), "{dot}");
        assert_eq!((dot.matches(" -- ").count(), dot.matches(" GB/s / ").count()), (3, 3));
    }
}
