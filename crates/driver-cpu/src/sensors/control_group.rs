//! Limits and memory of the process's control group, of both versions.

use elinvar_driver::{Error, Quantity, Readings, Result};

use super::files::Root;
use crate::limits::Groups;

const MOUNTED: &str = "sys/fs/cgroup";

/// Adds the readings.
pub(super) fn read(root: &Root, readings: &mut Readings) {
    let listed = root.text("proc/self/cgroup");
    let listed = listed.as_ref().map_err(Clone::clone);
    let memory = listed.clone().map(|listed| Groups::new(listed, &root.path(MOUNTED)));
    let (usage, limit) = match &memory {
        Ok(groups) => (
            groups
                .usage()
                .ok_or_else(|| Error::unsupported("no memory controller counts for the control group")),
            groups.limit().ok_or_else(|| Error::unsupported("no control group limits the memory")),
        ),
        Err(error) => (Err(error.clone()), Err(error.clone())),
    };
    readings.add(Quantity::ContainerMemory, &[], usage.map(|bytes| bytes as f64));
    readings.add(Quantity::ContainerMemoryLimit, &[], limit.map(|bytes| bytes as f64));
    readings.add(Quantity::ContainerCpuLimit, &[], listed.and_then(|listed| cpus(root, listed)));
}

/// The least number of processors that a group may use: quota / period.
fn cpus(root: &Root, listed: &str) -> Result<f64> {
    let mut least: Option<f64> = None;
    for line in listed.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let quota: fn(&Root, &str) -> Option<(u64, u64)> = match controllers {
            "" => |root, folder| {
                let text = root.text(&format!("{folder}/cpu.max")).ok()?;
                let (quota, period) = text.trim().split_once(' ')?;
                Some((quota.parse().ok()?, period.parse().ok()?))
            },
            // A quota of -1 is none, and no `u64`.
            list if list.split(',').any(|name| name == "cpu") => |root, folder| {
                let number = |file| root.number(&format!("{folder}/{file}")).ok();
                Some((number("cpu.cfs_quota_us")?, number("cpu.cfs_period_us")?))
            },
            _ => continue,
        };
        let mounts: &[&str] =
            if controllers.is_empty() { &["", "unified/"] } else { &["cpu/", "cpu,cpuacct/"] };
        let own = std::path::Path::new(path.trim_start_matches('/'));
        for part in own.ancestors() {
            for mount in mounts {
                let found = quota(root, &format!("{MOUNTED}/{mount}{}", part.display()));
                if let Some((quota, period)) = found.filter(|(_, period)| *period > 0) {
                    let cpus = quota as f64 / period as f64;
                    least = Some(least.map_or(cpus, |least| least.min(cpus)));
                }
            }
        }
    }
    least.ok_or_else(|| Error::unsupported("no control group limits the processors"))
}
