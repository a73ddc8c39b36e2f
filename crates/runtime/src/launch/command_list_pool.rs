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
pub struct CommandListStats {
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

impl CommandListStats {
    /// Lists in use relative to all lists, from 0 to 1; 0 if there are none.
    pub fn utilization(&self) -> f64 {
        let all = self.active + self.available;
        if all == 0 { 0.0 } else { self.active as f64 / all as f64 }
    }
}

/// The command lists of a device.
pub(crate) struct CommandListPool {
    state: Mutex<State>,
}

struct State {
    /// In ascending order of their last use.
    idle: Vec<(Vec<Command>, Instant)>,
    keep: usize,
    stats: CommandListStats,
}

impl CommandListPool {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let idle = (0..KEPT).map(|_| (Vec::with_capacity(ROOM), now)).collect();
        Self { state: Mutex::new(State { idle, keep: KEPT, stats: CommandListStats::default() }) }
    }

    pub(crate) fn stats(&self) -> CommandListStats {
        let state = self.state.lock();
        CommandListStats { available: state.idle.len(), ..state.stats }
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
pub(crate) struct CommandList {
    pub(crate) commands: Vec<Command>,
    device: Device,
}

impl CommandList {
    pub(crate) fn new(device: &Device) -> Self {
        let commands = if device.is_here() { device.command_lists().take() } else { Vec::new() };
        Self { commands, device: device.clone() }
    }
}

impl Drop for CommandList {
    fn drop(&mut self) {
        // Commands of a command buffer that was not submitted are dropped without the pool's lock.
        self.commands.clear();
        if !self.device.is_here() {
            return;
        }
        self.device.command_lists().put(std::mem::take(&mut self.commands));
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
    fn a_list_is_active_until_it_is_dropped() {
        let device = device();
        let counts = || {
            let CommandListStats { available, active, peak, hits, misses } = device.command_lists().stats();
            (available, active, peak, hits, misses)
        };
        let lists: Vec<CommandList> = (0..=KEPT).map(|_| CommandList::new(&device)).collect();
        assert_eq!(counts(), (0, KEPT + 1, KEPT + 1, KEPT as u64, 1));
        drop(lists);
        assert_eq!(counts(), (KEPT, 0, KEPT + 1, KEPT as u64, 1));
    }

    #[test]
    fn as_many_are_kept_as_is_said_within_limits() {
        let device = device();
        let pool = device.command_lists();
        for (count, kept) in [(20, 20), (100, 32), (0, 8), (12, 12)] {
            pool.keep(count);
            assert_eq!(pool.stats().available, kept, "{count}");
        }
        let list = CommandList::new(&device);
        pool.keep(15);
        assert_eq!(pool.stats().available, 14, "one of the fifteen is active");
        drop(list);
    }
}
