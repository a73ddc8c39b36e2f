//! Which stream runs which command, what waits for what, and what is submitted together.
//!
//! Streams are numbered; the first is the one that a run is given. Each command has a number on its stream. A command
//! goes where all that is there comes before it anyway, else to a stream of its own as long as there may be more, so
//! that what fails takes nothing with it that does not depend on it. What a command knows to have ended, by stream,
//! says which waits are needed.

use std::collections::BTreeSet;

use super::Batching;

/// A command to be scheduled.
pub(super) struct Item {
    /// The device's number.
    pub(super) device: usize,
    /// What comes before it.
    pub(super) after: Vec<usize>,
    /// What comes before it and is not waited for here, since something between the two is.
    pub(super) hop: Option<usize>,
    /// The buffers that it writes, transients left out.
    pub(super) keeps: Vec<usize>,
}

/// Where a command is.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) lane: usize,
    /// Its number there.
    pub(super) number: u32,
    /// Up to which number each stream has ended when it begins.
    pub(super) known: Vec<u32>,
    /// What it has to wait for: streams and numbers.
    pub(super) waits: Vec<(usize, u32)>,
}

pub(super) struct Schedule {
    /// The device of each stream.
    pub(super) lanes: Vec<usize>,
    /// How many numbers each stream has used.
    pub(super) lengths: Vec<u32>,
    pub(super) places: Vec<Place>,
    /// Submissions in order: commands, all of one stream.
    pub(super) segments: Vec<Vec<usize>>,
    /// What the first stream waits for at the end.
    pub(super) joins: Vec<(usize, u32)>,
    /// The commands behind which their stream says so: streams and numbers.
    pub(super) signals: BTreeSet<(usize, u32)>,
}

/// The number of the beginning, on the first stream.
pub(super) const BEGIN: u32 = 1;

/// Schedules commands that are in an order of theirs; `most` is how many streams a device may
/// have. The first stream is of device 0.
pub(super) fn schedule(items: &[Item], most: impl Fn(usize) -> usize, batching: Batching) -> Schedule {
    let mut schedule = Schedule {
        lanes: vec![0],
        lengths: vec![BEGIN],
        places: Vec::with_capacity(items.len()),
        segments: Vec::new(),
        joins: Vec::new(),
        signals: BTreeSet::new(),
    };
    // What each stream knows behind its last command, and that command.
    let mut ends: Vec<(Vec<u32>, Option<usize>)> = vec![(vec![BEGIN], None)];
    let mut open: Vec<Option<usize>> = vec![None];
    for (number, item) in items.iter().enumerate() {
        let before = schedule.known(item.after.iter().chain(&item.hop));
        let lane = schedule.choose(item, &before, most(item.device), &ends);
        if lane == schedule.lanes.len() {
            schedule.lanes.push(item.device);
            schedule.lengths.push(0);
            ends.push((Vec::new(), None));
            open.push(None);
        }
        let place = schedule.place(item, lane, &ends[lane].0);
        schedule.lengths[lane] = place.number;
        let mut known = place.known.clone();
        known.resize(schedule.lanes.len(), 0);
        known[lane] = place.number;
        schedule.places.push(place);
        let last = ends[lane].1.replace(number);
        ends[lane].0 = known;
        let segment = open[lane].filter(|segment| {
            let earlier = &schedule.segments[*segment];
            joins(batching, items, earlier, last, number)
        });
        match segment {
            Some(segment) => schedule.segments[segment].push(number),
            None => {
                open[lane] = Some(schedule.segments.len());
                schedule.segments.push(vec![number]);
            }
        }
    }
    let known = &ends[0].0;
    let behind = |lane: &usize| known.get(*lane).copied().unwrap_or(0) < schedule.lengths[*lane];
    schedule.joins =
        (1..schedule.lanes.len()).filter(behind).map(|lane| (lane, schedule.lengths[lane])).collect();
    let hops = items.iter().filter_map(|item| item.hop);
    let hops = hops.map(|send| (schedule.places[send].lane, schedule.places[send].number));
    let waits = schedule.places.iter().flat_map(|place| place.waits.iter().copied());
    schedule.signals = waits.chain(hops).chain(schedule.joins.iter().copied()).collect();
    schedule
}

/// Whether a command goes into the submission of earlier ones, the last of which is `last`.
fn joins(batching: Batching, items: &[Item], earlier: &[usize], last: Option<usize>, number: usize) -> bool {
    let item = &items[number];
    match batching {
        Batching::None => false,
        Batching::Streams => true,
        Batching::Chains => {
            let depends = last.is_some_and(|last| item.after.contains(&last));
            // If it fails, only what it writes itself is lost.
            depends && earlier.iter().flat_map(|node| &items[*node].keeps).all(|k| item.keeps.contains(k))
        }
    }
}

impl Schedule {
    /// What is known to have ended when all of these have.
    fn known<'a>(&self, before: impl Iterator<Item = &'a usize>) -> Vec<u32> {
        let mut known = vec![0; self.lanes.len()];
        for earlier in before {
            let place = &self.places[*earlier];
            join(&mut known, &place.known);
            known[place.lane] = known[place.lane].max(place.number);
        }
        known
    }

    /// The stream for a command; the number of streams for a new one.
    fn choose(&self, item: &Item, before: &[u32], most: usize, ends: &[(Vec<u32>, Option<usize>)]) -> usize {
        let lanes = || (0..self.lanes.len()).filter(|lane| self.lanes[*lane] == item.device);
        let ended = |lane: &usize| before[*lane] >= self.lengths[*lane];
        let is_unused = |lane: &usize| ends[*lane].1.is_none();
        // The one with the latest of what it depends on, so that chains stay together.
        let behind = lanes().filter(ended).max_by_key(|lane| ends[*lane].1);
        let free = behind.or_else(|| lanes().find(is_unused));
        free.unwrap_or_else(|| match lanes().count() < most.max(1) {
            true => self.lanes.len(),
            false => lanes().min_by_key(|lane| self.lengths[*lane]).unwrap_or(0),
        })
    }

    /// The place of a command on a stream that knows `own` to have ended.
    fn place(&self, item: &Item, lane: usize, own: &[u32]) -> Place {
        let mut known = vec![0; self.lanes.len()];
        join(&mut known, own);
        let number = self.lengths[lane] + 1;
        known[lane] = number - 1;
        let hop = self.known(item.hop.iter());
        join(&mut known, &hop);
        // The latest first: what they have waited for need not be waited for again.
        let mut before = item.after.clone();
        before.sort_unstable_by(|a, b| b.cmp(a));
        let mut waits = Vec::new();
        for node in before {
            let place = &self.places[node];
            if known[place.lane] < place.number {
                waits.retain(|(lane, _)| *lane != place.lane);
                waits.push((place.lane, place.number));
                join(&mut known, &place.known);
                known[place.lane] = known[place.lane].max(place.number);
            }
        }
        if known[0] < BEGIN {
            waits.push((0, BEGIN));
            known[0] = BEGIN;
        }
        Place { lane, number, known, waits }
    }
}

fn join(known: &mut [u32], other: &[u32]) {
    for (known, other) in known.iter_mut().zip(other) {
        *known = (*known).max(*other);
    }
}
