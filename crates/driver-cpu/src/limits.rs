//! Memory limits of this process: the machine's memory and the limits of its control groups.
//!
//! The limit of a group applies to its descendants, so all groups from the process's own to the root count. Both cgroup versions are read;
//! a limit that is missing or unreadable is ignored. On systems other than Linux, only the machine's memory is known.

use std::path::{Path, PathBuf};

use elinvar_driver::PerProcess;

use crate::host;

/// Control groups of this process.
static GROUPS: PerProcess<Groups> = PerProcess::new(|| {
    let listed = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    Groups::new(&listed, Path::new("/sys/fs/cgroup"))
});

/// Maximum memory of this process, in bytes.
pub(crate) fn total() -> u64 {
    GROUPS.get().total(machine())
}

/// Memory in bytes up to which the system does not throttle the process to reclaim memory; at most [`total`].
pub(crate) fn working_set() -> u64 {
    GROUPS.get().working_set(total())
}

/// Memory that this process could still allocate, in bytes.
pub(crate) fn available() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
    GROUPS.get().available(meminfo.and_then(|text| available_of(&text)).unwrap_or_else(machine))
}

fn machine() -> u64 {
    host::sysconf(libc::_SC_PHYS_PAGES).unwrap_or(0).saturating_mul(host::page_size())
}

/// `MemAvailable` of `/proc/meminfo`.
fn available_of(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Folders of control groups, each with its version's file names.
pub(crate) struct Groups {
    folders: Vec<(PathBuf, &'static Names)>,
}

struct Names {
    most: &'static str,
    high: Option<&'static str>,
    current: &'static str,
    /// Field of `memory.stat` that counts reclaimable memory.
    reclaimable: &'static str,
}

const V2: Names = Names {
    most: "memory.max",
    high: Some("memory.high"),
    current: "memory.current",
    reclaimable: "inactive_file",
};
const V1: Names = Names {
    most: "memory.limit_in_bytes",
    high: None,
    current: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

/// The first version writes the largest multiple of a page for no limit.
const NO_LIMIT: u64 = i64::MAX as u64 >> 16 << 16;

impl Groups {
    /// Parses `/proc/self/cgroup`, given the mount point of the groups.
    pub(crate) fn new(listed: &str, mounted: &Path) -> Self {
        let mut folders = Vec::new();
        for line in listed.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (root, names) = match controllers {
                "" if mounted.join("unified").is_dir() => (mounted.join("unified"), &V2),
                "" => (mounted.to_owned(), &V2),
                list if list.split(',').any(|name| name == "memory") => (mounted.join("memory"), &V1),
                _ => continue,
            };
            let own = Path::new(path.trim_start_matches('/'));
            folders.extend(own.ancestors().map(|part| (root.join(part), names)));
        }
        Self { folders }
    }

    /// The least memory limit in bytes, if there is one.
    pub(crate) fn limit(&self) -> Option<u64> {
        Some(self.total(u64::MAX)).filter(|limit| *limit < NO_LIMIT)
    }

    /// Memory in bytes that the process's own group uses.
    pub(crate) fn usage(&self) -> Option<u64> {
        self.folders.iter().find_map(|(folder, names)| number(&folder.join(names.current)))
    }

    fn total(&self, machine: u64) -> u64 {
        self.folders
            .iter()
            .filter_map(|(folder, names)| number(&folder.join(names.most)))
            .fold(machine, u64::min)
    }

    fn working_set(&self, total: u64) -> u64 {
        let high = |(folder, names): &(PathBuf, &Names)| number(&folder.join(names.high?));
        self.folders.iter().filter_map(high).fold(total, u64::min)
    }

    fn available(&self, machine: u64) -> u64 {
        let left = |(folder, names): &(PathBuf, &Names)| {
            let most = number(&folder.join(names.most))?;
            let current = number(&folder.join(names.current))?;
            let stat = std::fs::read_to_string(folder.join("memory.stat")).unwrap_or_default();
            let mut fields = stat.lines().filter_map(|line| line.split_once(' '));
            let reclaimable = fields.find(|(name, _)| *name == names.reclaimable);
            let reclaimable = reclaimable.and_then(|(_, bytes)| bytes.parse().ok()).unwrap_or(0);
            Some(most.saturating_sub(current.saturating_sub(reclaimable)))
        };
        self.folders.iter().filter_map(left).fold(machine, u64::min)
    }
}

/// The number in a file; `None` for the word `max`.
fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_least_limit_from_the_own_group_to_the_root_counts() {
        let root = mounted(&[
            ("a/memory.max", "8589934592\n"),
            ("a/b/memory.max", "max\n"),
            ("a/b/memory.high", "1073741824\n"),
            ("c/memory.max", "1\n"),
        ]);
        let groups = Groups::new("1:name=systemd:/x\n0::/a/b\n", root.path());
        assert_eq!(groups.total(16 * GIB), 8 * GIB);
        assert_eq!(groups.total(4 * GIB), 4 * GIB, "the machine has less than the limit");
        assert_eq!(groups.working_set(groups.total(16 * GIB)), GIB);
        assert_eq!(Groups::new("0::/", root.path()).total(16 * GIB), 16 * GIB);
    }

    #[test]
    fn the_first_version_has_its_own_names() {
        let root = mounted(&[
            ("memory/p/q/memory.limit_in_bytes", "2147483648"),
            ("memory/p/q/memory.usage_in_bytes", "1073741824"),
            ("memory/p/q/memory.stat", "cache 5\ntotal_inactive_file 73741824\n"),
            ("unified/x", ""),
        ]);
        let groups = Groups::new("4:cpu,memory:/p/q\n0::/\n", root.path());
        assert_eq!(groups.total(16 * GIB), 2 * GIB);
        assert_eq!(groups.working_set(2 * GIB), 2 * GIB);
        assert_eq!(groups.available(16 * GIB), GIB + 73_741_824, "file pages can be taken back");
        assert_eq!(groups.available(7), 7);
    }

    #[test]
    fn a_group_that_is_not_mounted_is_no_limit() {
        let root = mounted(&[]);
        let groups = Groups::new("0::/elsewhere\ngarbage\n", root.path());
        assert_eq!((groups.total(5), groups.working_set(5), groups.available(5)), (5, 5, 5));
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available_of("MemTotal: 9 kB\nMemAvailable:   12 kB\n"), Some(12 << 10));
        assert_eq!(available_of("MemTotal: 9 kB\n"), None);
        assert!((1..=machine()).contains(&available()));
        assert!((1..=total()).contains(&working_set()));
    }
}
