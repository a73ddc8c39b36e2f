//! List scheduling: assigns commands to branches, and determines waits and submissions.
//!
//! Branches are numbered; the first uses the stream that is passed to a run. Commands are numbered on each branch. A command is
//! assigned to a branch whose commands it depends on anyway; otherwise to a new branch, within the limit, so that a failure
//! affects dependent work only. The progress of each branch on which a command can rely determines its waits.

use std::collections::BTreeSet;

use super::Batching;

/// A command to be scheduled.
pub(super) struct Item {
    /// Number of the device.
    pub(super) device: usize,
    /// Dependencies.
    pub(super) after: Vec<usize>,
    /// A dependency through a copy by the host, which has its own wait.
    pub(super) host_copy: Option<usize>,
    /// The buffers that it writes, excluding transients.
    pub(super) keeps: Vec<usize>,
}

/// Position of a command in the schedule.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) branch: usize,
    /// Number on its branch.
    pub(super) number: u32,
    /// For each branch, the number of the command that has ended when it begins.
    pub(super) known: Vec<u32>,
    /// Waits before it: branches and numbers.
    pub(super) waits: Vec<(usize, u32)>,
}

pub(super) struct Schedule {
    /// Device of each branch.
    pub(super) branches: Vec<usize>,
    /// Last number of each branch.
    pub(super) lengths: Vec<u32>,
    pub(super) places: Vec<Place>,
    /// Submissions in order: commands of one branch.
    pub(super) segments: Vec<Vec<usize>>,
    /// Waits of the first branch at the end.
    pub(super) joins: Vec<(usize, u32)>,
    /// Commands that are followed by a signal: branches and numbers.
    pub(super) signals: BTreeSet<(usize, u32)>,
}

/// Number of the begin of a run, on the first branch.
pub(super) const BEGIN: u32 = 1;

/// Schedules commands in topological order; `most` is the maximum number of branches of a device.
/// The first branch is of device 0.
pub(super) fn schedule(items: &[Item], most: impl Fn(usize) -> usize, batching: Batching) -> Schedule {
    let mut schedule = Schedule {
        branches: vec![0],
        lengths: vec![BEGIN],
        places: Vec::with_capacity(items.len()),
        segments: Vec::new(),
        joins: Vec::new(),
        signals: BTreeSet::new(),
    };
    // For each branch, the progress of all branches after its last command, and that command.
    let mut ends: Vec<(Vec<u32>, Option<usize>)> = vec![(vec![BEGIN], None)];
    let mut open: Vec<Option<usize>> = vec![None];
    for (number, item) in items.iter().enumerate() {
        let before = schedule.known(item.after.iter().chain(&item.host_copy));
        let branch = schedule.choose(item, &before, most(item.device), &ends);
        if branch == schedule.branches.len() {
            schedule.branches.push(item.device);
            schedule.lengths.push(0);
            ends.push((Vec::new(), None));
            open.push(None);
        }
        let place = schedule.place(item, branch, &ends[branch].0);
        schedule.lengths[branch] = place.number;
        let mut known = place.known.clone();
        known.resize(schedule.branches.len(), 0);
        known[branch] = place.number;
        schedule.places.push(place);
        let last = ends[branch].1.replace(number);
        ends[branch].0 = known;
        let segment = open[branch].filter(|segment| {
            let earlier = &schedule.segments[*segment];
            joins(batching, items, earlier, last, number)
        });
        match segment {
            Some(segment) => schedule.segments[segment].push(number),
            None => {
                open[branch] = Some(schedule.segments.len());
                schedule.segments.push(vec![number]);
            }
        }
    }
    let known = &ends[0].0;
    let behind = |branch: &usize| known.get(*branch).copied().unwrap_or(0) < schedule.lengths[*branch];
    schedule.joins = (1..schedule.branches.len())
        .filter(behind)
        .map(|branch| (branch, schedule.lengths[branch]))
        .collect();
    let host_copies = items.iter().filter_map(|item| item.host_copy);
    let host_copies = host_copies.map(|send| (schedule.places[send].branch, schedule.places[send].number));
    let waits = schedule.places.iter().flat_map(|place| place.waits.iter().copied());
    schedule.signals = waits.chain(host_copies).chain(schedule.joins.iter().copied()).collect();
    schedule
}

/// Whether a command joins the submission of `earlier` commands, of which `last` is the last.
fn joins(batching: Batching, items: &[Item], earlier: &[usize], last: Option<usize>, number: usize) -> bool {
    let item = &items[number];
    match batching {
        Batching::None => false,
        Batching::Streams => true,
        Batching::Chains => {
            let depends = last.is_some_and(|last| item.after.contains(&last));
            // If it fails, only its own results are lost.
            depends && earlier.iter().flat_map(|node| &items[*node].keeps).all(|k| item.keeps.contains(k))
        }
    }
}

impl Schedule {
    /// Progress of all branches when these commands have ended.
    fn known<'a>(&self, before: impl Iterator<Item = &'a usize>) -> Vec<u32> {
        let mut known = vec![0; self.branches.len()];
        for earlier in before {
            let place = &self.places[*earlier];
            join(&mut known, &place.known);
            known[place.branch] = known[place.branch].max(place.number);
        }
        known
    }

    /// The branch for a command; the number of branches for a new one.
    fn choose(&self, item: &Item, before: &[u32], most: usize, ends: &[(Vec<u32>, Option<usize>)]) -> usize {
        let branches = || (0..self.branches.len()).filter(|branch| self.branches[*branch] == item.device);
        let ended = |branch: &usize| before[*branch] >= self.lengths[*branch];
        let is_unused = |branch: &usize| ends[*branch].1.is_none();
        // The branch with the latest dependency, so that chains stay together.
        let behind = branches().filter(ended).max_by_key(|branch| ends[*branch].1);
        let free = behind.or_else(|| branches().find(is_unused));
        free.unwrap_or_else(|| match branches().count() < most.max(1) {
            true => self.branches.len(),
            false => branches().min_by_key(|branch| self.lengths[*branch]).unwrap_or(0),
        })
    }

    /// The position of a command on a branch after the progress `own`.
    fn place(&self, item: &Item, branch: usize, own: &[u32]) -> Place {
        let mut known = vec![0; self.branches.len()];
        join(&mut known, own);
        let number = self.lengths[branch] + 1;
        known[branch] = number - 1;
        let host_copy = self.known(item.host_copy.iter());
        join(&mut known, &host_copy);
        // The latest first: their waits make others redundant.
        let mut before = item.after.clone();
        before.sort_unstable_by(|a, b| b.cmp(a));
        let mut waits = Vec::new();
        for node in before {
            let place = &self.places[node];
            if known[place.branch] < place.number {
                waits.retain(|(branch, _)| *branch != place.branch);
                waits.push((place.branch, place.number));
                join(&mut known, &place.known);
                known[place.branch] = known[place.branch].max(place.number);
            }
        }
        if known[0] < BEGIN {
            waits.push((0, BEGIN));
            known[0] = BEGIN;
        }
        Place { branch, number, known, waits }
    }
}

fn join(known: &mut [u32], other: &[u32]) {
    for (known, other) in known.iter_mut().zip(other) {
        *known = (*known).max(*other);
    }
}
