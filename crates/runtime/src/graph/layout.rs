//! [`Layout`]: the commands of a run, and their assignment to submissions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use elinvar_driver::{Command, Memory, Result};

use super::arena::{Lifetime, arrange};
use super::node::{MemoryAccess, NodeData, Work};
use super::plan::{CommandIndex, Part, Plan, PlanOptions, Segment};
use super::run::{Branch, HostCopy};
use super::schedule::{Item, Schedule, schedule};
use super::{GraphStats, Transfer, edges};
use crate::collective::{GraphCollective, PlannedCollective};
use crate::identity::identity;
use crate::launch::recording::Recording;
use crate::memory::memory_effects::slices_mut;
use crate::memory::usage::{Access, Usage, Who};
use crate::observe::trace::{GraphNode, Origin};
use crate::transfer::{Staged, in_one, staged};
use crate::{Buffer, Device, HostAccess};

/// A command of a run.
struct PlannedCommand {
    node: usize,
    command: Command,
    accesses: Vec<MemoryAccess>,
    /// Uses of staging memory and of the arena.
    staged: Vec<Usage>,
}

/// The commands of a run, before scheduling.
pub(super) struct Layout {
    devices: Vec<Device>,
    planned: Vec<PlannedCommand>,
    items: Vec<Item>,
    /// Copies between devices that the host performs: sending and receiving command, and the memory.
    host_copies: Vec<(usize, usize, Staged)>,
    /// Beginning and ending commands of collectives.
    collectives: Vec<(usize, usize, Arc<GraphCollective>)>,
    transfers: Vec<Transfer>,
}

impl Layout {
    pub(super) fn new(nodes: &[NodeData], order: &[usize]) -> Result<Self> {
        let mut layout = Self {
            devices: Vec::new(),
            planned: Vec::new(),
            items: Vec::new(),
            host_copies: Vec::new(),
            collectives: Vec::new(),
            transfers: Vec::new(),
        };
        let before = before(nodes, order);
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (node, before) in order.iter().zip(before) {
            let after: Vec<usize> = before.iter().map(|earlier| last[earlier]).collect();
            let data = &nodes[*node];
            match &data.work {
                Work::Nothing => {}
                Work::Command(command) => {
                    let (command, accesses) = (command.clone(), data.accesses.clone());
                    let command = PlannedCommand { node: *node, command, accesses, staged: Vec::new() };
                    layout.add(command, &data.device, after, None);
                }
                Work::Collective(operation) => {
                    let scratch = data.device.buffer_for::<u8>(4, HostAccess::Never)?;
                    let empty = |accesses: Vec<MemoryAccess>| {
                        let target = scratch.span.memory_slice();
                        let command = Command::Fill { target, pattern: vec![0] };
                        PlannedCommand { node: *node, command, accesses, staged: vec![held(&scratch)] }
                    };
                    let begin = layout.add(empty(Vec::new()), &data.device, after, None);
                    let accesses = data.accesses.clone();
                    let end = layout.add(empty(accesses), &data.device, vec![begin], Some(begin));
                    layout.collectives.push((begin, end, operation.clone()));
                }
                Work::Transfer { source, target } => {
                    let to = target.storage.device.clone();
                    if let Some(route) = in_one(&data.device, &to) {
                        layout.transfers.push(Transfer { name: data.name.clone(), bytes: source.len, route });
                        let command =
                            Command::Copy { source: source.memory_slice(), target: target.memory_slice() };
                        let accesses = data.accesses.clone();
                        let command = PlannedCommand { node: *node, command, accesses, staged: Vec::new() };
                        layout.add(command, &data.device, after, None);
                        // Registers the target's device, whose transients are placed with the device's own.
                        layout.number(&to);
                        last.insert(*node, layout.planned.len() - 1);
                        continue;
                    }
                    let staged = staged(&data.device, &to, source.len)?;
                    let route = staged.route;
                    layout.transfers.push(Transfer { name: data.name.clone(), bytes: source.len, route });
                    let [send, receive] = staged.commands(source, target);
                    let copy = |command, access: &MemoryAccess, stage: &Buffer<u8>| PlannedCommand {
                        node: *node,
                        command,
                        accesses: vec![access.clone()],
                        staged: vec![held(stage)],
                    };
                    let send = copy(send, &data.accesses[0], &staged.from);
                    let receive = copy(receive, &data.accesses[1], &staged.to);
                    let sent = layout.add(send, &data.device, after, None);
                    if staged.needs_host() {
                        let received = layout.add(receive, &to, Vec::new(), Some(sent));
                        layout.host_copies.push((sent, received, staged));
                    } else {
                        layout.add(receive, &to, vec![sent], None);
                    }
                }
            }
            last.insert(*node, layout.planned.len() - 1);
        }
        Ok(layout)
    }

    /// Index of a device in the list; adds it if it is missing.
    fn number(&mut self, device: &Device) -> usize {
        let known = self.devices.iter().position(|known| known == device);
        known.unwrap_or_else(|| {
            self.devices.push(device.clone());
            self.devices.len() - 1
        })
    }

    fn add(
        &mut self,
        command: PlannedCommand,
        device: &Device,
        after: Vec<usize>,
        host_copy: Option<usize>,
    ) -> usize {
        let device = self.number(device);
        let mut keeps: Vec<usize> = command
            .accesses
            .iter()
            .filter(|t| t.writes() && !t.is_transient())
            .map(MemoryAccess::key)
            .collect();
        keeps.sort_unstable();
        keeps.dedup();
        self.items.push(Item { device, after, host_copy, keeps });
        self.planned.push(command);
        self.planned.len() - 1
    }

    /// The plan of a graph with this number and these nodes.
    pub(super) fn plan(
        mut self,
        (graph, nodes): (u64, &[NodeData]),
        options: PlanOptions,
        stats: &mut GraphStats,
    ) -> Result<Plan> {
        let most = |device: usize| {
            let queues = self.devices[device].caps().limits.parallel_queues as usize;
            options.streams.unwrap_or(queues).max(1)
        };
        let schedule = schedule(&self.items, most, options.batching);
        self.place_transients(&schedule, options.optimize, stats)?;
        let has_events = schedule.branches.len() > 1 || !self.collectives.is_empty();
        let branches = schedule
            .branches
            .iter()
            .enumerate()
            .map(|(branch, device)| Branch::new(self.devices.get(*device), branch, has_events))
            .collect::<Result<Vec<Branch>>>()?;
        let (segments, command_indices) = self.segments(&schedule, (graph, nodes));
        let host_copies = std::mem::take(&mut self.host_copies);
        let host_copies = host_copies.into_iter().map(|(sent, _, staged)| {
            let place = &schedule.places[sent];
            HostCopy::new((place.branch, place.number), staged)
        });
        let collectives = std::mem::take(&mut self.collectives);
        let collectives = collectives.into_iter().map(|(begin, end, operation)| {
            let place = &schedule.places[begin];
            let storages = self.planned[end].accesses.iter().map(|access| access.storage.clone()).collect();
            PlannedCollective::new((place.branch, place.number), operation, storages)
        });
        let collectives = collectives.collect::<Result<_>>()?;
        stats.commands = self.planned.len();
        stats.streams = branches.len();
        stats.waits = schedule.places.iter().map(|place| place.waits.len()).sum::<usize>()
            + schedule.joins.len()
            + self.items.iter().filter(|item| item.host_copy.is_some()).count();
        stats.submissions =
            segments.len() + usize::from(branches.len() > 1) + usize::from(!schedule.joins.is_empty());
        stats.transfers = self.transfers;
        Ok(Plan {
            name: None,
            graph,
            main: self.devices.first().cloned(),
            branches,
            segments,
            joins: schedule.joins,
            host_copies: host_copies.collect::<Result<_>>()?,
            collectives,
            parameters: Vec::new(),
            command_indices,
            replaced: HashMap::new(),
            history: Default::default(),
            stats: GraphStats::default(),
        })
    }

    /// Allocates the arenas of transients, and replaces placeholders in the commands.
    fn place_transients(&mut self, schedule: &Schedule, share: bool, stats: &mut GraphStats) -> Result<()> {
        let mut found: HashMap<usize, (MemoryAccess, Vec<usize>)> = HashMap::new();
        let mut first: Vec<usize> = Vec::new();
        for (number, planned) in self.planned.iter().enumerate() {
            for access in planned.accesses.iter().filter(|access| access.is_transient()) {
                let entry = found.entry(access.key()).or_insert_with(|| {
                    first.push(access.key());
                    (access.clone(), Vec::new())
                });
                entry.1.push(number);
            }
        }
        let mut places: HashMap<usize, (Arc<dyn Memory>, u64)> = HashMap::new();
        for device in &self.devices {
            let own: Vec<_> =
                first.iter().map(|key| &found[key]).filter(|(t, _)| t.storage.device == *device).collect();
            let lifetimes: Vec<Lifetime> = own
                .iter()
                .map(|(access, users)| {
                    let users = users.iter().map(|number| &schedule.places[*number]);
                    Lifetime::new(access.storage.block.bytes, schedule.branches.len(), users)
                })
                .collect();
            let (offsets, bytes) = arrange(&lifetimes, share);
            stats.transient_bytes += lifetimes.iter().map(|lifetime| lifetime.bytes).sum::<u64>();
            stats.arena_bytes += bytes;
            if bytes == 0 {
                continue;
            }
            let arena = device.buffer_for::<u8>(bytes as usize, HostAccess::Transient)?;
            for ((access, users), offset) in own.iter().zip(offsets) {
                let memory = arena.span.storage.block.memory.clone();
                places.insert(identity(&access.storage.block.memory), (memory, offset));
                users.iter().for_each(|number| self.planned[*number].staged.push(held(&arena)));
            }
        }
        for planned in &mut self.planned {
            for slice in slices_mut(&mut planned.command) {
                if let Some((memory, offset)) = places.get(&identity(&slice.memory)) {
                    (slice.memory, slice.offset) = (memory.clone(), slice.offset + offset);
                }
            }
            // The arena may be much larger than the transient with which the launch was recorded.
            if let Command::Dispatch(dispatch) = &planned.command {
                dispatch.prepare()?;
            }
        }
        Ok(())
    }

    /// The submissions, and the index of each node's command.
    fn segments(
        &self,
        schedule: &Schedule,
        (graph, nodes): (u64, &[NodeData]),
    ) -> (Vec<Segment>, HashMap<usize, CommandIndex>) {
        let usages = self.usages();
        let mut command_indices = HashMap::new();
        let mut segments: Vec<Segment> = Vec::new();
        for numbers in &schedule.segments {
            let branch = schedule.places[numbers[0]].branch;
            let device = &self.devices[schedule.branches[branch]];
            let mut parts = Vec::new();
            let mut commands: Vec<usize> = Vec::new();
            let mut flush = |commands: &mut Vec<usize>, parts: &mut Vec<Part>| {
                if commands.is_empty() {
                    return;
                }
                for (at, number) in commands.iter().enumerate() {
                    let command_index = CommandIndex { segment: segments.len(), part: parts.len(), at };
                    command_indices.insert(self.planned[*number].node, command_index);
                }
                let node = |number: &usize| {
                    let index = self.planned[*number].node;
                    GraphNode { index, name: nodes[index].name.clone() }
                };
                let nodes = commands.iter().map(node).collect();
                let origin = Origin::Graph { number: graph, submission: segments.len(), nodes };
                parts.push(Part::Run(self.recording(device, commands, &usages).of(origin)));
                commands.clear();
            };
            for number in numbers {
                let place = &schedule.places[*number];
                let arrives = self.host_copies.iter().position(|(_, received, _)| received == number);
                let ends = self.collectives.iter().position(|(_, end, _)| end == number);
                if !place.waits.is_empty() || arrives.is_some() || ends.is_some() {
                    flush(&mut commands, &mut parts);
                    parts.extend(place.waits.iter().map(|(branch, number)| Part::Wait(*branch, *number)));
                    parts.extend(arrives.map(Part::WaitForHost));
                    parts.extend(ends.map(Part::WaitForCollective));
                }
                commands.push(*number);
                if schedule.signals.contains(&(branch, place.number)) {
                    flush(&mut commands, &mut parts);
                    parts.push(Part::Signal(place.number));
                }
            }
            flush(&mut commands, &mut parts);
            segments.push(Segment { branch, parts });
        }
        (segments, command_indices)
    }

    fn recording(&self, device: &Device, numbers: &[usize], usages: &[Vec<Usage>]) -> Recording {
        let commands = numbers.iter().map(|number| self.planned[*number].command.clone()).collect();
        let usages = numbers.iter().flat_map(|number| usages[*number].iter().cloned()).collect();
        Recording::new(device.clone(), commands, usages)
    }

    /// Uses of each command, for the usage records.
    fn usages(&self) -> Vec<Vec<Usage>> {
        let mut written = HashSet::new();
        let usages_of = |command: &PlannedCommand| {
            let accesses = || command.accesses.iter().filter(|access| !access.is_transient());
            let usage = |access: &MemoryAccess| {
                let mut usage = access.usage();
                if usage.access == Access::Read && written.contains(&access.key()) {
                    usage.access = Access::ReadAnew;
                }
                usage
            };
            let usages = accesses().map(usage).chain(command.staged.iter().cloned()).collect();
            let covers = |access: &&MemoryAccess| access.writes() && access.usage().covers;
            written.extend(accesses().filter(covers).map(MemoryAccess::key));
            usages
        };
        self.planned.iter().map(usages_of).collect()
    }
}

/// Dependencies of each node of `order`, as nodes of `order`.
fn before(nodes: &[NodeData], order: &[usize]) -> Vec<Vec<usize>> {
    let by_memory = edges::by_memory(order.iter().map(|node| &nodes[*node].accesses[..]));
    // For each node its representatives in `order`: itself, or its dependencies if it was removed.
    let mut stands: Vec<Option<Vec<usize>>> = vec![None; nodes.len()];
    order.iter().for_each(|node| stands[*node] = Some(vec![*node]));
    let explicit: Vec<Vec<usize>> = nodes.iter().map(|data| data.after.clone()).collect();
    for node in edges::order(&explicit) {
        if stands[node].is_none() {
            let mut list: Vec<usize> =
                explicit[node].iter().flat_map(|n| stands[*n].clone().unwrap_or_default()).collect();
            list.sort_unstable();
            list.dedup();
            stands[node] = Some(list);
        }
    }
    let of_node = |(at, node): (usize, &usize)| {
        let named = explicit[*node].iter().flat_map(|n| stands[*n].clone().unwrap_or_default());
        let mut before: Vec<usize> = by_memory[at].iter().map(|at| order[*at]).chain(named).collect();
        before.sort_unstable();
        before.dedup();
        before
    };
    order.iter().enumerate().map(of_node).collect()
}

/// The use of the graph's internal memory: keeps it alive, and a failure does not affect later reads.
fn held(buffer: &Buffer<u8>) -> Usage {
    let who = Who::Operation("graph: its own memory");
    Usage { storage: buffer.span.storage.clone(), who, access: Access::Write, covers: true }
}
