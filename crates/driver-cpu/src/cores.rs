//! Core sets: the processors on which the workers of each CPU device run.
//!
//! One device uses all processors, and its threads are not bound. Several devices divide the processors that this process may use, in the order of NUMA
//! node and number, so that a device spans as few nodes as possible; each binds its workers to its share, and prefers memory of its node. Sources:
//! `sched_setaffinity(2)`, `mbind(2)`, and the kernel's documentation of `/sys/devices/system/node`.

use std::path::Path;

use elinvar_driver::{Error, Result};

#[cfg(target_os = "linux")]
use crate::places::Affinity;

/// Number of CPU devices.
const DEVICES: &str = "ELINVAR_CPU_DEVICES";
/// Maximum number of CPU devices.
const MOST: usize = 1024;

/// The processors of one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cores {
    /// Their numbers.
    pub(crate) cpus: Vec<u32>,
    /// The NUMA node, if all are of one.
    pub(crate) node: Option<u32>,
    /// Number of worker threads, at least 1.
    pub(crate) workers: usize,
    /// Whether the workers are bound to the processors.
    pub(crate) bound: bool,
}

/// The number of devices that the environment asks for, 1 by default.
pub(crate) fn devices() -> Result<usize> {
    let Some(text) = std::env::var_os(DEVICES).filter(|text| !text.is_empty()) else { return Ok(1) };
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    number.filter(|number| (1..=MOST).contains(number)).ok_or_else(|| {
        Error::invalid(format!("{DEVICES}={}: expected a number from 1 to {MOST}", text.display()))
    })
}

/// The processors of each of `devices` devices with `workers` worker threads together.
pub(crate) fn shares(devices: usize, workers: usize) -> Vec<Cores> {
    divide(&nodes(Path::new("/sys/devices/system/node"), &allowed()), devices, workers)
}

/// Divides processors, each with its node, among devices.
fn divide(all: &[(Option<u32>, u32)], devices: usize, workers: usize) -> Vec<Cores> {
    let share = |total: usize, at: usize| (total * at / devices, total * (at + 1) / devices);
    let cores = |at: usize| {
        let (begin, end) = share(all.len(), at);
        let own = all.get(begin..end.max(begin + 1)).unwrap_or_default();
        let (first, last) = share(workers, at);
        let node = own.first().and_then(|(node, _)| *node);
        Cores {
            cpus: own.iter().map(|(_, cpu)| *cpu).collect(),
            node: node.filter(|node| own.iter().all(|(other, _)| *other == Some(*node))),
            workers: (last - first).max(1),
            bound: devices > 1 && !own.is_empty(),
        }
    };
    (0..devices).map(cores).collect()
}

/// The processors with their NUMA nodes, in that order.
fn nodes(root: &Path, cpus: &[u32]) -> Vec<(Option<u32>, u32)> {
    let mut node_of = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(node) = name.to_str().and_then(|name| name.strip_prefix("node")?.parse::<u32>().ok()) else {
            continue;
        };
        let list = std::fs::read_to_string(entry.path().join("cpulist")).unwrap_or_default();
        node_of.extend(list_of(&list).into_iter().map(|cpu| (cpu, node)));
    }
    let mut all: Vec<_> = cpus.iter().map(|cpu| (node_of.get(cpu).copied(), *cpu)).collect();
    all.sort_unstable();
    all
}

/// Parses a list of the kernel, such as `0-3,8`.
fn list_of(text: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// A list as the kernel writes it.
pub(crate) fn list_text(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*cpu) => *last = *cpu,
            _ => ranges.push((*cpu, *cpu)),
        }
    }
    let text = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(",")
}

/// The processors that this process may use.
fn allowed() -> Vec<u32> {
    #[cfg(target_os = "linux")]
    if let Some(affinity) = Affinity::of(0) {
        return affinity.cpus();
    }
    default_cpus()
}

fn default_cpus() -> Vec<u32> {
    (0..std::thread::available_parallelism().map_or(1, |count| count.get() as u32)).collect()
}

/// Distance of two nodes according to the firmware, 10 within a node.
pub(crate) fn distance(from: u32, to: u32) -> Option<u32> {
    let path = format!("/sys/devices/system/node/node{from}/distance");
    std::fs::read_to_string(path).ok()?.split_whitespace().nth(to as usize)?.parse().ok()
}

impl Cores {
    /// Binds the calling thread, if the device's threads are bound. Without effect where the system has no such call or refuses it.
    pub(crate) fn bind(&self) {
        #[cfg(target_os = "linux")]
        if self.bound && !Affinity::new(&self.cpus).apply(0) {
            tracing::debug!("cannot bind a worker to the processors {}", list_text(&self.cpus));
        }
    }

    /// The node from which the device's memory should come.
    pub(crate) fn memory_node(&self) -> Option<u32> {
        self.node.filter(|_| self.bound && Path::new("/sys/devices/system/node/node1").exists())
    }
}

/// Asks for pages of a NUMA node. Without effect where the system refuses.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // a system call
pub(crate) fn prefer_node(address: std::ptr::NonNull<u8>, bytes: usize, node: u32) {
    const MPOL_PREFERRED: libc::c_int = 1;
    let mut mask = [0_u64; 16];
    let Some(word) = mask.get_mut(node as usize / 64) else { return };
    *word = 1 << (node % 64);
    let (bits, flags) = (64 * mask.len() as libc::c_ulong, 0 as libc::c_uint);
    // SAFETY: the range is a mapping of whole pages; the call reads the mask and does not change content.
    let _advice = unsafe {
        libc::syscall(libc::SYS_mbind, address.as_ptr(), bytes, MPOL_PREFERRED, mask.as_ptr(), bits, flags)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_kernel() {
        for (text, cpus) in
            [("0-3,8\n", vec![0, 1, 2, 3, 8]), ("5", vec![5]), ("\n", vec![]), ("x,2", vec![2])]
        {
            assert_eq!(list_of(text), cpus);
        }
        assert_eq!(list_text(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
    }

    #[test]
    fn processors_are_divided_by_node() {
        // Two nodes with interleaved numbers.
        let mut all: Vec<_> = (0..8).map(|cpu| (Some(cpu % 2), cpu)).collect();
        all.sort_unstable();
        let shares = divide(&all, 2, 8);
        assert_eq!(shares[0].cpus, [0, 2, 4, 6]);
        assert_eq!((shares[0].node, shares[1].node), (Some(0), Some(1)));
        assert!(shares.iter().all(|share| share.bound && share.workers == 4));
        let three = divide(&all, 3, 8);
        assert_eq!(three.iter().map(|share| share.cpus.len()).sum::<usize>(), 8);
        assert_eq!(three.iter().map(|share| share.workers).sum::<usize>(), 8);
        assert_eq!(three[1].node, None, "it spans both");
        let many = divide(&all[..2], 5, 2);
        assert!(many.iter().all(|share| share.cpus.len() == 1 && share.workers == 1));
        assert_eq!(many.iter().map(|share| share.cpus[0]).collect::<Vec<_>>(), [0, 0, 0, 2, 2]);
        let one = divide(&all, 1, 6);
        assert_eq!((one[0].workers, one[0].cpus.len(), one[0].bound, one[0].node), (6, 8, false, None));
    }

    #[test]
    fn nodes_are_read() {
        let folder = tempfile::tempdir().unwrap();
        for (node, cpus) in [(0, "0,2\n"), (1, "1,3\n")] {
            let node = folder.path().join(format!("node{node}"));
            std::fs::create_dir(&node).unwrap();
            std::fs::write(node.join("cpulist"), cpus).unwrap();
        }
        let expected = [(None, 7), (Some(0), 0), (Some(0), 2), (Some(1), 1)];
        assert_eq!(nodes(folder.path(), &[0, 1, 2, 7]), expected);
    }

    /// A bound thread runs on its processor only.
    #[test]
    #[cfg(target_os = "linux")]
    fn a_thread_is_bound() {
        let all = allowed();
        let last = *all.last().unwrap();
        let cores = Cores { cpus: vec![last], node: None, workers: 1, bound: true };
        let seen = std::thread::spawn(move || {
            cores.bind();
            allowed()
        });
        assert_eq!(seen.join().unwrap(), [last]);
        assert_eq!(allowed(), all, "others are not");
    }
}
