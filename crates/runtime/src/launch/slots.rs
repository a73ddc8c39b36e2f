//! Pool of command lists, into which command buffers record.
//!
//! A command buffer takes a list and holds it until the device has finished the work, so the statistics show the pending
//! submissions.

use std::time::Instant;

use elinvar_driver::Command;
use elinvar_driver::sync::Mutex;

use crate::Device;

/// Default number of command lists that a device allocates in advance and keeps.
const KEPT: usize = 16;

/// Initial capacity of a list, in commands.
const ROOM: usize = 8;

/// Statistics of a device's command lists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlotStats {
    /// Number of idle lists.
    pub available: usize,
    /// Number of lists in use by command buffers that are being recorded or are pending.
    pub active: usize,
    /// Maximum number of lists in use at a time.
    pub peak: usize,
    /// Number of command buffers that reused an idle list.
    pub hits: u64,
    /// Number of command buffers for which a list was allocated.
    pub misses: u64,
}

impl SlotStats {
    /// Lists in use relative to all lists, from 0 to 1; 0 if there are none.
    pub fn utilization(&self) -> f64 {
        let all = self.active + self.available;
        if all == 0 { 0.0 } else { self.active as f64 / all as f64 }
    }
}

/// The command lists of a device.
pub(crate) struct Slots {
    state: Mutex<State>,
}

struct State {
    /// In ascending order of their last use.
    idle: Vec<(Vec<Command>, Instant)>,
    keep: usize,
    stats: SlotStats,
}

impl Slots {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let idle = (0..KEPT).map(|_| (Vec::with_capacity(ROOM), now)).collect();
        Self { state: Mutex::new(State { idle, keep: KEPT, stats: SlotStats::default() }) }
    }

    pub(crate) fn stats(&self) -> SlotStats {
        let state = self.state.lock();
        SlotStats { available: state.idle.len(), ..state.stats }
    }

    pub(crate) fn keep(&self, count: usize) {
        let mut state = self.state.lock();
        state.keep = count.clamp(8, 32);
        let keep = state.keep;
        state.idle.truncate(keep);
        let now = Instant::now();
        while state.idle.len() + state.stats.active < keep {
            state.idle.push((Vec::with_capacity(ROOM), now));
        }
    }

    /// Drops the lists that became idle at or before `then`.
    pub(crate) fn drop_idle_since(&self, then: Instant) {
        self.state.lock().idle.retain(|(_, since)| *since > then);
    }

    fn take(&self) -> Vec<Command> {
        let mut state = self.state.lock();
        state.stats.active += 1;
        state.stats.peak = state.stats.peak.max(state.stats.active);
        match state.idle.pop() {
            Some((commands, _)) => {
                state.stats.hits += 1;
                commands
            }
            None => {
                state.stats.misses += 1;
                Vec::with_capacity(ROOM)
            }
        }
    }

    fn put(&self, commands: Vec<Command>) {
        let mut state = self.state.lock();
        state.stats.active -= 1;
        if state.idle.len() < state.keep {
            state.idle.push((commands, Instant::now()));
        }
    }
}

/// A command list in use; dropping it returns it to the pool.
pub(crate) struct Lease {
    pub(crate) commands: Vec<Command>,
    device: Device,
}

impl Lease {
    pub(crate) fn new(device: &Device) -> Self {
        let commands = if device.is_here() { device.slots().take() } else { Vec::new() };
        Self { commands, device: device.clone() }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // Commands of a command buffer that was not submitted are dropped without the pool's lock.
        self.commands.clear();
        if !self.device.is_here() {
            return;
        }
        self.device.slots().put(std::mem::take(&mut self.commands));
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;

    use super::*;

    fn device() -> Device {
        Device::new(elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0))
    }

    #[test]
    fn a_slot_is_active_until_its_lease_ends() {
        let device = device();
        let counts = || {
            let SlotStats { available, active, peak, hits, misses } = device.slots().stats();
            (available, active, peak, hits, misses)
        };
        let leases: Vec<Lease> = (0..=KEPT).map(|_| Lease::new(&device)).collect();
        assert_eq!(counts(), (0, KEPT + 1, KEPT + 1, KEPT as u64, 1));
        drop(leases);
        assert_eq!(counts(), (KEPT, 0, KEPT + 1, KEPT as u64, 1));
    }

    #[test]
    fn as_many_are_kept_as_is_said_within_limits() {
        let device = device();
        let slots = device.slots();
        for (count, kept) in [(20, 20), (100, 32), (0, 8), (12, 12)] {
            slots.keep(count);
            assert_eq!(slots.stats().available, kept, "{count}");
        }
        let lease = Lease::new(&device);
        slots.keep(15);
        assert_eq!(slots.stats().available, 14, "one of the fifteen is active");
        drop(lease);
    }
}
