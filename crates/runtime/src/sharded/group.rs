//! [`DeviceGroup`]: devices that work on the same arrays.

use std::fmt;
use std::sync::Arc;

use crate::locks::Mutex;
use elinvar_driver::{Error, Result};

use crate::{CommandBuffer, Completion, Device, Event, Kernel, Source, Stream};

/// Devices that work on the same arrays ([`crate::Sharded`]), each on its share of the rows. A clone is another handle on the same group.
///
/// Operations do not block, and take effect in the order in which they are called. One thread at a time calls them.
#[derive(Clone)]
pub struct DeviceGroup {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    members: Vec<Member>,
    state: Mutex<State>,
}

struct Member {
    device: Device,
    /// Launches.
    compute: Stream,
    /// Copies to its shards.
    exchange: Stream,
}

/// Counts of a stream's submissions, on an event.
struct Timeline {
    event: Event,
    value: u64,
}

struct State {
    /// Of the work, for each member; positive numbers or 0.
    shares: Vec<f64>,
    /// Time of launches since the shares were set.
    busy_ns: Vec<u64>,
    launches: Vec<Timeline>,
    copies: Vec<Timeline>,
    /// For each member: copies, by member and count, that its next launch must wait for.
    after: Vec<Vec<(usize, u64)>>,
    pending: Vec<Pending>,
    /// Number of submissions.
    submitted: u64,
    /// The failure of the first submission that has failed, with its number and member. Waits are for earlier submissions only, so that it is no
    /// consequence of another.
    failure: Option<(u64, usize, Error)>,
}

struct Pending {
    number: u64,
    member: usize,
    is_launch: bool,
    done: Completion,
}

/// Copies of one member from others.
pub(super) struct Copies {
    pub(super) member: usize,
    /// Members whose shards are read.
    pub(super) sources: Vec<usize>,
    pub(super) commands: CommandBuffer,
}

impl State {
    fn add(&mut self, member: usize, is_launch: bool, done: Completion) {
        self.pending.push(Pending { number: self.submitted, member, is_launch, done });
        self.submitted += 1;
    }

    /// Notes the results of work that has ended; of all work with `wait`.
    fn collect(&mut self, wait: bool) {
        let mut at = 0;
        while at < self.pending.len() {
            if !wait && !self.pending[at].done.is_done() {
                at += 1;
                continue;
            }
            let Pending { number, member, is_launch, done } = self.pending.swap_remove(at);
            match done.wait() {
                Ok(timing) if is_launch => {
                    self.busy_ns[member] += timing.end_ns.saturating_sub(timing.start_ns);
                }
                Ok(_) => {}
                Err(error) if self.failure.as_ref().is_none_or(|(known, ..)| number < *known) => {
                    self.failure = Some((number, member, error));
                }
                Err(_) => {}
            }
        }
    }
}

impl DeviceGroup {
    /// A group of devices, with equal shares. A device may be in it several times.
    ///
    /// # Errors
    /// `InvalidArgument` without a device; the driver's.
    pub fn new(devices: &[Device]) -> Result<Self> {
        if devices.is_empty() {
            return Err(Error::invalid("DeviceGroup: no device"));
        }
        let member = |device: &Device| {
            Ok(Member { device: device.clone(), compute: device.stream()?, exchange: device.stream()? })
        };
        let members = devices.iter().map(member).collect::<Result<Vec<_>>>()?;
        let count = members.len();
        let state = State {
            shares: vec![1.0 / count as f64; count],
            busy_ns: vec![0; count],
            launches: timelines(&members)?,
            copies: timelines(&members)?,
            after: vec![Vec::new(); count],
            pending: Vec::new(),
            submitted: 0,
            failure: None,
        };
        Ok(Self { inner: Arc::new(Inner { members, state: Mutex::new(state) }) })
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.inner.members.len()
    }

    /// Never: a group has a member.
    pub fn is_empty(&self) -> bool {
        self.inner.members.is_empty()
    }

    /// The device of a member. Panics if there is no such member.
    pub fn device(&self, member: usize) -> &Device {
        &self.inner.members[member].device
    }

    /// A kernel for each member. Members on the same device share one.
    ///
    /// # Errors
    /// As [`Device::compile`] and [`crate::Library::kernel`].
    pub fn kernels(&self, source: &Source, name: &str) -> Result<Vec<Kernel>> {
        let mut all: Vec<Kernel> = Vec::new();
        for member in &self.inner.members {
            let known = all.iter().find(|kernel| *kernel.device() == member.device).cloned();
            all.push(match known {
                Some(kernel) => kernel,
                None => member.device.compile(source)?.kernel(name)?,
            });
        }
        Ok(all)
    }

    /// The share of each member in the work. Their sum is 1.
    pub fn shares(&self) -> Vec<f64> {
        self.inner.state.lock().shares.clone()
    }

    /// Sets the shares, in any unit. Arrays that are created from now on, and [`crate::Sharded::redistribute`], follow them.
    ///
    /// # Errors
    /// `InvalidArgument` for another number of shares than members, a negative or infinite one, or none above 0.
    pub fn set_shares(&self, shares: &[f64]) -> Result<()> {
        let (count, sum) = (self.len(), shares.iter().sum::<f64>());
        let is_valid = shares.iter().all(|share| share.is_finite() && *share >= 0.0);
        if shares.len() != count || !is_valid || !sum.is_normal() {
            return Err(Error::invalid(format!(
                "set_shares: {shares:?}; expected {count} numbers of 0 or more, one above 0"
            )));
        }
        let mut state = self.inner.state.lock();
        state.shares = shares.iter().map(|share| share / sum).collect();
        state.busy_ns.fill(0);
        Ok(())
    }

    /// Sets the shares to the measured speeds: each one's previous share over the time of its launches since the shares were set, on the device's clock.
    /// A member without launches keeps its share. Waits for pending work.
    ///
    /// # Errors
    /// As [`DeviceGroup::synchronize`].
    pub fn rebalance(&self) -> Result<Vec<f64>> {
        self.synchronize()?;
        let mut state = self.inner.state.lock();
        let is_measured = |member: &usize| state.busy_ns[*member] > 0 && state.shares[*member] > 0.0;
        let measured: Vec<usize> = (0..self.len()).filter(is_measured).collect();
        let speed = |member: usize| state.shares[member] / state.busy_ns[member] as f64;
        let (total, speeds): (f64, f64) = (
            measured.iter().map(|member| state.shares[*member]).sum(),
            measured.iter().map(|member| speed(*member)).sum(),
        );
        let new: Vec<(usize, f64)> =
            measured.iter().map(|member| (*member, speed(*member) / speeds * total)).collect();
        for (member, share) in new {
            state.shares[member] = share;
        }
        state.busy_ns.fill(0);
        Ok(state.shares.clone())
    }

    /// Submits work on each member: `record` is called with each one's number, and adds commands to its command buffer. It runs behind all earlier work
    /// on the member's shards.
    ///
    /// # Errors
    /// `ShardFailed` with the error of `record` or of the submission. If `record` has failed, nothing is submitted.
    pub fn run(&self, mut record: impl FnMut(usize, &mut CommandBuffer) -> Result<()>) -> Result<()> {
        let mut all = Vec::new();
        for (member, each) in self.inner.members.iter().enumerate() {
            let mut commands = each.compute.command_buffer();
            record(member, &mut commands).map_err(|error| self.failed(member, error))?;
            all.push(commands);
        }
        for (member, commands) in all.into_iter().enumerate() {
            self.wait_for_copies(member)?;
            self.launch(member, commands, true)?;
        }
        Ok(())
    }

    /// Blocks until all work has ended.
    ///
    /// # Errors
    /// `ShardFailed` with the member whose work has failed, until [`DeviceGroup::acknowledge`].
    pub fn synchronize(&self) -> Result<()> {
        let mut state = self.inner.state.lock();
        state.collect(true);
        state.failure.clone().map_or(Ok(()), |(_, member, error)| Err(self.failed(member, error)))
    }

    /// Clears and returns the failure, so that later work runs. Waits for pending work. Arrays that failed work should have written remain unreadable
    /// until [`crate::Sharded::write`].
    ///
    /// # Errors
    /// Those of creating events.
    pub fn acknowledge(&self) -> Result<Option<Error>> {
        let mut state = self.inner.state.lock();
        state.collect(true);
        let Some((_, member, error)) = state.failure.take() else { return Ok(None) };
        for each in &self.inner.members {
            each.compute.acknowledge();
            each.exchange.acknowledge();
        }
        // Those that have failed stay so.
        state.launches = timelines(&self.inner.members)?;
        state.copies = timelines(&self.inner.members)?;
        state.after.iter_mut().for_each(Vec::clear);
        Ok(Some(self.failed(member, error)))
    }

    pub(super) fn failed(&self, shard: usize, error: Error) -> Error {
        match error {
            Error::ShardFailed { .. } => error,
            cause => Error::ShardFailed {
                shard,
                device: self.device(shard).name().to_owned(),
                cause: Arc::new(cause),
            },
        }
    }

    /// A command buffer for launches of a member.
    pub(super) fn launches(&self, member: usize) -> CommandBuffer {
        self.inner.members[member].compute.command_buffer()
    }

    /// A command buffer for copies to shards of a member.
    pub(super) fn copies(&self, member: usize) -> CommandBuffer {
        self.inner.members[member].exchange.command_buffer()
    }

    /// Makes the next launch of a member wait for the copies that read or write its shards.
    pub(super) fn wait_for_copies(&self, member: usize) -> Result<()> {
        let mut state = self.inner.state.lock();
        let after = std::mem::take(&mut state.after[member]);
        if after.is_empty() {
            return Ok(());
        }
        // A submission of its own: the time of the launch does not include the wait.
        let mut commands = self.launches(member);
        for (copier, value) in after {
            commands.wait_for(&state.copies[copier].event, value);
        }
        let done = commands.submit().map_err(|error| self.failed(member, error))?;
        state.add(member, false, done);
        Ok(())
    }

    /// Submits launches of a member. Copies that follow wait for them if they are the `last` of their operation.
    pub(super) fn launch(&self, member: usize, mut commands: CommandBuffer, last: bool) -> Result<()> {
        let mut state = self.inner.state.lock();
        state.collect(false);
        if last {
            let timeline = &mut state.launches[member];
            timeline.value += 1;
            commands.signal(&timeline.event, timeline.value);
        }
        let done = commands.submit().map_err(|error| self.failed(member, error))?;
        state.add(member, true, done);
        Ok(())
    }

    /// Submits copies behind all launches on the shards that they read and write, and behind copies that do.
    pub(super) fn exchange(&self, all: Vec<Copies>) -> Result<()> {
        let mut state = self.inner.state.lock();
        state.collect(false);
        // The waits are for earlier operations, not for each other's copies.
        let before: Vec<u64> = state.copies.iter().map(|timeline| timeline.value).collect();
        let after = state.after.clone();
        let mut added = Vec::new();
        for Copies { member, sources, mut commands } in all {
            let mut waits = self.copies(member);
            for other in sources.iter().copied().chain([member]) {
                let timeline = &state.launches[other];
                if timeline.value > 0 {
                    waits.wait_for(&timeline.event, timeline.value);
                }
                if other != member && before[other] > 0 {
                    waits.wait_for(&state.copies[other].event, before[other]);
                }
            }
            for (copier, value) in after[member].iter().filter(|(copier, _)| *copier != member) {
                waits.wait_for(&state.copies[*copier].event, *value);
            }
            let waits = waits.submit().map_err(|error| self.failed(member, error))?;
            let timeline = &mut state.copies[member];
            timeline.value += 1;
            let value = timeline.value;
            commands.signal(&timeline.event, value);
            let done = commands.submit().map_err(|error| self.failed(member, error))?;
            state.add(member, false, waits);
            state.add(member, false, done);
            added.extend(sources.into_iter().chain([member]).map(|other| (other, (member, value))));
        }
        for (other, entry) in added {
            state.after[other].push(entry);
        }
        Ok(())
    }
}

fn timelines(members: &[Member]) -> Result<Vec<Timeline>> {
    members.iter().map(|member| Ok(Timeline { event: member.device.event()?, value: 0 })).collect()
}

impl fmt::Debug for DeviceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.inner.members.iter().map(|member| member.device.name())).finish()
    }
}
