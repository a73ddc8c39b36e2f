//! [`Layout`]: the commands of a run, and their way into submissions.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use elinvar_driver::{Command, Memory, Result};

use super::arena::{Lifetime, arrange};
use super::plan::{Part, Plan, PlanOptions, Segment, Site};
use super::run::{Hop, Lane};
use super::schedule::{Item, Schedule, schedule};
use super::step::{Step, Touch, Work};
use super::transfer::{Staged, in_one, staged};
use super::{GraphStats, Transfer, edges};
use crate::identity::identity;
use crate::launch::recording::Recording;
use crate::memory::touched::slices_mut;
use crate::memory::usage::{Access, Usage, Who};
use crate::{Buffer, Device, HostAccess};

/// A command that will run.
struct Piece {
    node: usize,
    command: Command,
    touches: Vec<Touch>,
    /// Memory that it uses and the graph's nodes do not know of.
    staged: Vec<Usage>,
}

/// The commands of a run, not yet in their places.
pub(super) struct Layout {
    devices: Vec<Device>,
    pieces: Vec<Piece>,
    items: Vec<Item>,
    /// Copies between devices whose bytes the host moves: sending and receiving command, and the memory.
    hops: Vec<(usize, usize, Staged)>,
    transfers: Vec<Transfer>,
}

impl Layout {
    pub(super) fn new(steps: &[Step], order: &[usize]) -> Result<Self> {
        let mut layout = Self {
            devices: Vec::new(),
            pieces: Vec::new(),
            items: Vec::new(),
            hops: Vec::new(),
            transfers: Vec::new(),
        };
        let before = before(steps, order);
        let mut last: HashMap<usize, usize> = HashMap::new();
        for (node, before) in order.iter().zip(before) {
            let after: Vec<usize> = before.iter().map(|earlier| last[earlier]).collect();
            let step = &steps[*node];
            match &step.work {
                Work::Nothing => {}
                Work::Command(command) => {
                    let (command, touches) = (command.clone(), step.touches.clone());
                    let piece = Piece { node: *node, command, touches, staged: Vec::new() };
                    layout.add(piece, &step.device, after, None);
                }
                Work::Transfer { source, target } => {
                    let to = target.storage.device.clone();
                    if let Some(route) = in_one(&step.device, &to) {
                        layout.transfers.push(Transfer { name: step.name.clone(), bytes: source.len, route });
                        let command =
                            Command::Copy { source: source.memory_slice(), target: target.memory_slice() };
                        let touches = step.touches.clone();
                        let piece = Piece { node: *node, command, touches, staged: Vec::new() };
                        layout.add(piece, &step.device, after, None);
                        // What only this graph has there gets its place with the device's own.
                        layout.number(&to);
                        last.insert(*node, layout.pieces.len() - 1);
                        continue;
                    }
                    let staged = staged(&step.device, &to, source.len)?;
                    let route = staged.route;
                    layout.transfers.push(Transfer { name: step.name.clone(), bytes: source.len, route });
                    let [send, receive] = staged.commands(source, target);
                    let piece = |command, touch: &Touch, stage: &Buffer<u8>| Piece {
                        node: *node,
                        command,
                        touches: vec![touch.clone()],
                        staged: vec![held(stage)],
                    };
                    let send = piece(send, &step.touches[0], &staged.from);
                    let receive = piece(receive, &step.touches[1], &staged.to);
                    let sent = layout.add(send, &step.device, after, None);
                    if staged.needs_host() {
                        let received = layout.add(receive, &to, Vec::new(), Some(sent));
                        layout.hops.push((sent, received, staged));
                    } else {
                        layout.add(receive, &to, vec![sent], None);
                    }
                }
            }
            last.insert(*node, layout.pieces.len() - 1);
        }
        Ok(layout)
    }

    /// A device's place in the list.
    fn number(&mut self, device: &Device) -> usize {
        let known = self.devices.iter().position(|known| known == device);
        known.unwrap_or_else(|| {
            self.devices.push(device.clone());
            self.devices.len() - 1
        })
    }

    fn add(&mut self, piece: Piece, device: &Device, after: Vec<usize>, hop: Option<usize>) -> usize {
        let device = self.number(device);
        let mut keeps: Vec<usize> =
            piece.touches.iter().filter(|t| t.writes() && !t.is_transient()).map(Touch::key).collect();
        keeps.sort_unstable();
        keeps.dedup();
        self.items.push(Item { device, after, hop, keeps });
        self.pieces.push(piece);
        self.pieces.len() - 1
    }

    pub(super) fn plan(mut self, options: PlanOptions, stats: &mut GraphStats) -> Result<Plan> {
        let most = |device: usize| {
            let queues = self.devices[device].caps().limits.parallel_queues as usize;
            options.streams.unwrap_or(queues).max(1)
        };
        let schedule = schedule(&self.items, most, options.batching);
        self.place_transients(&schedule, options.optimize, stats)?;
        let lanes = schedule
            .lanes
            .iter()
            .enumerate()
            .map(|(lane, device)| Lane::new(self.devices.get(*device), lane, schedule.lanes.len()))
            .collect::<Result<Vec<Lane>>>()?;
        let (segments, sites) = self.segments(&schedule);
        let hops = std::mem::take(&mut self.hops);
        let hops = hops.into_iter().map(|(sent, _, staged)| {
            let place = &schedule.places[sent];
            Hop::new((place.lane, place.number), staged)
        });
        stats.commands = self.pieces.len();
        stats.streams = lanes.len();
        stats.waits = schedule.places.iter().map(|place| place.waits.len()).sum::<usize>()
            + schedule.joins.len()
            + self.items.iter().filter(|item| item.hop.is_some()).count();
        stats.submissions =
            segments.len() + usize::from(lanes.len() > 1) + usize::from(!schedule.joins.is_empty());
        stats.transfers = self.transfers;
        Ok(Plan {
            graph: 0,
            main: self.devices.first().cloned(),
            lanes,
            segments,
            joins: schedule.joins,
            hops: hops.collect::<Result<_>>()?,
            parameters: Vec::new(),
            sites,
            replaced: HashMap::new(),
            history: Default::default(),
            stats: GraphStats::default(),
        })
    }

    /// Gives the transients of each device their memory and puts it into the commands.
    fn place_transients(&mut self, schedule: &Schedule, share: bool, stats: &mut GraphStats) -> Result<()> {
        let mut found: HashMap<usize, (Touch, Vec<usize>)> = HashMap::new();
        let mut first: Vec<usize> = Vec::new();
        for (number, piece) in self.pieces.iter().enumerate() {
            for touch in piece.touches.iter().filter(|touch| touch.is_transient()) {
                let entry = found.entry(touch.key()).or_insert_with(|| {
                    first.push(touch.key());
                    (touch.clone(), Vec::new())
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
                .map(|(touch, users)| {
                    let users = users.iter().map(|number| &schedule.places[*number]);
                    Lifetime::new(touch.storage.block.bytes, schedule.lanes.len(), users)
                })
                .collect();
            let (offsets, bytes) = arrange(&lifetimes, share);
            stats.transient_bytes += lifetimes.iter().map(|lifetime| lifetime.bytes).sum::<u64>();
            stats.arena_bytes += bytes;
            if bytes == 0 {
                continue;
            }
            let arena = device.buffer_for::<u8>(bytes as usize, HostAccess::Transient)?;
            for ((touch, users), offset) in own.iter().zip(offsets) {
                let memory = arena.span.storage.block.memory.clone();
                places.insert(identity(&touch.storage.block.memory), (memory, offset));
                users.iter().for_each(|number| self.pieces[*number].staged.push(held(&arena)));
            }
        }
        for piece in &mut self.pieces {
            for slice in slices_mut(&mut piece.command) {
                if let Some((memory, offset)) = places.get(&identity(&slice.memory)) {
                    (slice.memory, slice.offset) = (memory.clone(), slice.offset + offset);
                }
            }
        }
        Ok(())
    }

    /// The submissions, and where each node's command is.
    fn segments(&self, schedule: &Schedule) -> (Vec<Segment>, HashMap<usize, Site>) {
        let usages = self.usages();
        let mut sites = HashMap::new();
        let mut segments: Vec<Segment> = Vec::new();
        for numbers in &schedule.segments {
            let lane = schedule.places[numbers[0]].lane;
            let device = &self.devices[schedule.lanes[lane]];
            let mut parts = Vec::new();
            let mut commands: Vec<usize> = Vec::new();
            let mut flush = |commands: &mut Vec<usize>, parts: &mut Vec<Part>| {
                if commands.is_empty() {
                    return;
                }
                for (at, number) in commands.iter().enumerate() {
                    let site = Site { segment: segments.len(), part: parts.len(), at };
                    sites.insert(self.pieces[*number].node, site);
                }
                parts.push(Part::Run(self.recording(device, commands, &usages)));
                commands.clear();
            };
            for number in numbers {
                let place = &schedule.places[*number];
                let arrives = self.hops.iter().position(|(_, received, _)| received == number);
                if !place.waits.is_empty() || arrives.is_some() {
                    flush(&mut commands, &mut parts);
                    parts.extend(place.waits.iter().map(|(lane, number)| Part::Wait(*lane, *number)));
                    parts.extend(arrives.map(Part::Arrive));
                }
                commands.push(*number);
                if schedule.signals.contains(&(lane, place.number)) {
                    flush(&mut commands, &mut parts);
                    parts.push(Part::Signal(place.number));
                }
            }
            flush(&mut commands, &mut parts);
            segments.push(Segment { lane, parts });
        }
        (segments, sites)
    }

    fn recording(&self, device: &Device, numbers: &[usize], usages: &[Vec<Usage>]) -> Recording {
        let commands = numbers.iter().map(|number| self.pieces[*number].command.clone()).collect();
        let usages = numbers.iter().flat_map(|number| usages[*number].iter().cloned()).collect();
        Recording::new(device.clone(), commands, usages)
    }

    /// What each command uses, for the accounts.
    fn usages(&self) -> Vec<Vec<Usage>> {
        let mut written = HashSet::new();
        let of_piece = |piece: &Piece| {
            let touches = || piece.touches.iter().filter(|touch| !touch.is_transient());
            let usage = |touch: &Touch| {
                let mut usage = touch.usage();
                if usage.access == Access::Read && written.contains(&touch.key()) {
                    usage.access = Access::ReadAnew;
                }
                usage
            };
            let usages = touches().map(usage).chain(piece.staged.iter().cloned()).collect();
            let covers = |touch: &&Touch| touch.writes() && touch.usage().covers;
            written.extend(touches().filter(covers).map(Touch::key));
            usages
        };
        self.pieces.iter().map(of_piece).collect()
    }
}

/// What comes before each node of `order`, by nodes of it.
fn before(steps: &[Step], order: &[usize]) -> Vec<Vec<usize>> {
    let by_memory = edges::by_memory(order.iter().map(|node| &steps[*node].touches[..]));
    // For each node the nodes of `order` that stand for it: itself, or those that it came after.
    let mut stands: Vec<Option<Vec<usize>>> = vec![None; steps.len()];
    order.iter().for_each(|node| stands[*node] = Some(vec![*node]));
    let explicit: Vec<Vec<usize>> = steps.iter().map(|step| step.after.clone()).collect();
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

/// The use of memory that only this graph has: it lives as long as work needs it, and a failure leaves nothing to read.
fn held(buffer: &Buffer<u8>) -> Usage {
    let who = Who::Operation("graph: its own memory");
    Usage { storage: buffer.span.storage.clone(), who, access: Access::Write, covers: true }
}
