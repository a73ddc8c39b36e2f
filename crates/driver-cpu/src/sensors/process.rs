//! Processor time of the machine and of this process, and the process's resident memory.

use elinvar_driver::{Error, Quantity, Readings, Result};

use super::files::Root;
use crate::host;

/// Columns of the first line of `/proc/stat`, by OpenTelemetry's names; `guest` and `guest_nice` are part of `user` and `nice`.
const MODES: [&str; 8] = ["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];

/// Adds the machine's processor time.
pub(super) fn read_machine(root: &Root, readings: &mut Readings) {
    let counts = machine(root);
    for (at, mode) in MODES.iter().enumerate() {
        let count = counts.clone().and_then(|counts| {
            let none = || Error::unsupported(format!("`/proc/stat` has no number of `{mode}`"));
            counts.get(at).copied().ok_or_else(none)
        });
        readings.add(Quantity::CpuTime, &[mode], count.and_then(seconds));
    }
}

/// Adds this process's processor time and memory.
pub(super) fn read_own(root: &Root, readings: &mut Readings) {
    let own = root.text("proc/self/stat");
    // `utime`, `stime` and `rss`, by their numbers in proc_pid_stat(5).
    let field = |number: usize| own.as_ref().map_err(Clone::clone).and_then(|text| field(text, number));
    readings.add(Quantity::ProcessCpuTime, &["user"], field(14).and_then(seconds));
    readings.add(Quantity::ProcessCpuTime, &["system"], field(15).and_then(seconds));
    let resident = field(24).map(|pages| pages as f64 * host::page_size() as f64);
    readings.add(Quantity::ProcessMemory, &[], resident);
}

/// Clock ticks in seconds.
fn seconds(ticks: u64) -> Result<f64> {
    let per_second = host::sysconf(libc::_SC_CLK_TCK).filter(|ticks| *ticks > 0);
    let none = || Error::unsupported("the system does not say how long a clock tick of `/proc` is");
    Ok(ticks as f64 / per_second.ok_or_else(none)? as f64)
}

/// Ticks of all processors, by mode.
fn machine(root: &Root) -> Result<Vec<u64>> {
    let text = root.text("proc/stat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "));
    let line = line.ok_or_else(|| Error::unsupported("`/proc/stat` has no line `cpu`"))?;
    Ok(line.split_whitespace().map_while(|count| count.parse().ok()).collect())
}

/// A field of `/proc/self/stat`, numbered from 1 as in its manual. The second, the name, may have spaces and parentheses.
fn field(text: &str, number: usize) -> Result<u64> {
    let behind = text.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let found = behind.split_whitespace().nth(number - 3).and_then(|field| field.parse().ok());
    found.ok_or_else(|| Error::unsupported(format!("`/proc/self/stat` has no number as field {number}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_shift_the_fields() {
        let text = "7 (a) b (c) S 4 5 6";
        assert_eq!(field(text, 4).ok(), Some(4));
        assert_eq!(field(text, 6).ok(), Some(6));
        for (text, number) in [(text, 3), (text, 7), ("", 14), ("7 (a", 4)] {
            assert!(field(text, number).is_err(), "{text} {number}");
        }
    }
}
