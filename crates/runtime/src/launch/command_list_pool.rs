//! Pool of command lists, into which command buffers record.
//!
//! With a list goes what a submission of one command needs, so that a launch in the steady state allocates nothing.
//!
//! A command buffer takes a list and holds it until the device has finished the work, so the statistics show the pending
//! submissions.

use std::sync::Arc;
use std::time::Instant;

use elinvar_driver::sync::Mutex;
use elinvar_driver::{Binding, Command, Dispatch, TimestampSlot};

use crate::Device;
use crate::launch::submitted::Submitted;
use crate::observe::trace::Noted;
use crate::sync::completion::Spare;

/// Default number of command lists that a device allocates in advance and keeps.
const KEPT: usize = 16;

/// Maximum capacity of a list of trace events that is kept.
const KEPT_TRACED: usize = 2048;

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
    /// Of the command that is in place of one that has been executed.
    unused: Arc<TimestampSlot>,
}

/// A list, and allocations of earlier submissions.
#[derive(Default)]
struct List {
    commands: Vec<Command>,
    reuse: Reuse,
}

impl List {
    fn new() -> Self {
        Self { commands: Vec::with_capacity(ROOM), reuse: Reuse::default() }
    }
}

/// Allocations of earlier submissions, to be used again.
#[derive(Default)]
pub(crate) struct Reuse {
    /// Empty.
    bindings: Vec<Binding>,
    /// A list of one command.
    single: Option<Arc<[Command]>>,
    pub(crate) submitted: Option<Arc<Submitted>>,
    pub(crate) outcomes: Spare,
    /// Empty.
    pub(crate) traced: Vec<Noted>,
}

impl Reuse {
    /// Keeps an empty list of trace events, unless it is large.
    pub(crate) fn keep_traced(&mut self, traced: Vec<Noted>) {
        if traced.capacity() <= KEPT_TRACED {
            self.traced = traced;
        }
    }
}

struct State {
    /// In ascending order of their last use.
    idle: Vec<(List, Instant)>,
    keep: usize,
    stats: CommandListStats,
}

impl CommandListPool {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let idle = (0..KEPT).map(|_| (List::new(), now)).collect();
        let state = Mutex::new(State { idle, keep: KEPT, stats: CommandListStats::default() });
        Self { state, unused: Arc::default() }
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
            state.idle.push((List::new(), now));
        }
    }

    /// Drops the lists that became idle at or before `then`.
    pub(crate) fn drop_idle_since(&self, then: Instant) {
        self.state.lock().idle.retain(|(_, since)| *since > then);
    }

    fn take(&self) -> List {
        let mut state = self.state.lock();
        state.stats.active += 1;
        state.stats.peak = state.stats.peak.max(state.stats.active);
        match state.idle.pop() {
            Some((list, _)) => {
                state.stats.hits += 1;
                list
            }
            None => {
                state.stats.misses += 1;
                List::new()
            }
        }
    }

    fn put(&self, list: List) {
        let mut state = self.state.lock();
        state.stats.active -= 1;
        if state.idle.len() < state.keep {
            state.idle.push((list, Instant::now()));
        }
    }
}

/// A command list in use; dropping it returns it to the pool.
pub(crate) struct CommandList {
    pub(crate) commands: Vec<Command>,
    pub(crate) reuse: Reuse,
    device: Device,
}

impl CommandList {
    pub(crate) fn new(device: &Device) -> Self {
        let list = if device.is_here() { device.command_lists().take() } else { List::default() };
        Self { commands: list.commands, reuse: list.reuse, device: device.clone() }
    }

    /// An empty list for the bindings of a launch.
    pub(crate) fn bindings(&mut self) -> Vec<Binding> {
        std::mem::take(&mut self.reuse.bindings)
    }

    /// Takes the commands, for a submission.
    pub(crate) fn take_commands(&mut self) -> Arc<[Command]> {
        if self.commands.len() == 1
            && let Some(mut single) = self.reuse.single.take()
            && let Some([place]) = Arc::get_mut(&mut single)
            && let Some(command) = self.commands.pop()
        {
            *place = command;
            return single;
        }
        self.commands.drain(..).collect()
    }

    /// Takes back what the submission of this list needed. What the commands name is released.
    pub(crate) fn reclaim(&mut self, mut commands: Arc<[Command]>, submitted: Option<Arc<Submitted>>) {
        self.reuse.submitted = submitted;
        let Some([place]) = Arc::get_mut(&mut commands) else { return };
        let unused = Command::Timestamp { into: self.device.command_lists().unused.clone() };
        if let Command::Dispatch(Dispatch { mut bindings, .. }) = std::mem::replace(place, unused) {
            bindings.clear();
            self.reuse.bindings = bindings;
        }
        self.reuse.single = Some(commands);
    }
}

impl Drop for CommandList {
    fn drop(&mut self) {
        // Commands of a command buffer that was not submitted are dropped without the pool's lock.
        self.commands.clear();
        if !self.device.is_here() {
            return;
        }
        let (commands, reuse) = (std::mem::take(&mut self.commands), std::mem::take(&mut self.reuse));
        self.device.command_lists().put(List { commands, reuse });
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
