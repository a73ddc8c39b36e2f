//! Work distribution: the threadgroups of a job that have not been claimed, as ranges with work stealing.
//!
//! Each participant owns a part, initially an equal range, and claims threadgroups from its front. When its part is empty, it steals the
//! back half of the longest range. Repeated dispatches therefore give a worker the threadgroups whose data are still in its caches. If
//! threadgroups must start in ascending order, there is one part, from whose front all participants claim; a threadgroup may then
//! wait for an earlier one.
//!
//! Invariant: a range is one atomic integer and is only replaced as a whole, and only the owner stores a new range to an empty part.
//! Therefore no threadgroup is claimed twice. Ranges do not publish other data: all accesses are relaxed, and the job synchronizes the
//! effects of threadgroups.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// A range of units below 2^32, packed: start in the upper half, end in the lower half.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Packed(u64);

impl Packed {
    fn new(begin: u64, end: u64) -> Self {
        Self(begin << 32 | end)
    }

    fn begin(self) -> u64 {
        self.0 >> 32
    }

    fn end(self) -> u64 {
        self.0 & u64::from(u32::MAX)
    }

    fn len(self) -> u64 {
        self.end().saturating_sub(self.begin())
    }
}

/// A range that participants modify atomically.
struct Part(AtomicU64);

impl Part {
    fn left(&self) -> Packed {
        Packed(self.0.load(Ordering::Relaxed))
    }

    fn replace(&self, old: Packed, new: Packed) -> bool {
        self.0.compare_exchange_weak(old.0, new.0, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Takes units from the front: at most one in `share` of them, but at least an eighth of `size`.
    fn take_front(&self, size: u64, share: u64) -> Option<Packed> {
        loop {
            let left = self.left();
            if left.len() == 0 {
                return None;
            }
            let most = (left.len() / share).max(size / 8).max(1);
            let middle = left.begin() + size.min(most).min(left.len());
            if self.replace(left, Packed::new(middle, left.end())) {
                return Some(Packed::new(left.begin(), middle));
            }
        }
    }
}

/// The unclaimed threadgroups, in parts.
pub(crate) struct Ranges {
    groups: Range<u64>,
    /// Threadgroups per unit: one, unless there are more than 2^32 of them.
    unit: u64,
    /// Number of participants that share a part.
    sharers: u64,
    parts: Box<[CachePadded<Part>]>,
    stopped: AtomicBool,
}

impl Ranges {
    /// Creates the parts for `participants`: one shared part if threadgroups must start in ascending order, otherwise one each.
    pub(crate) fn new(groups: Range<u64>, participants: usize, ascending: bool) -> Self {
        let participants = participants.max(1);
        let count = groups.end - groups.start;
        let unit = count.div_ceil(u64::from(u32::MAX)).max(1);
        let units = u128::from(count.div_ceil(unit));
        let (parts, sharers) = if ascending { (1, participants) } else { (participants, 1) };
        // Does not truncate: it is at most `units`, which is below 2^32.
        let bound = |part: usize| (units * part as u128 / parts as u128) as u64;
        let part = |n| CachePadded::new(Part(AtomicU64::new(Packed::new(bound(n), bound(n + 1)).0)));
        let parts = (0..parts).map(part).collect();
        Self { groups, unit, sharers: sharers as u64, parts, stopped: AtomicBool::new(false) }
    }

    /// Claims the next threadgroups for a participant: about `size`, fewer near the end, but at least an eighth of `size` while that many
    /// remain. `None` if nothing is left.
    pub(crate) fn take(&self, participant: usize, size: u64) -> Option<Range<u64>> {
        let own = &self.parts[participant % self.parts.len()];
        let size = (size / self.unit).max(1);
        loop {
            if self.stopped.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(units) = own.take_front(size, 2 * self.sharers) {
                let group = |unit: u64| (self.groups.start + unit * self.unit).min(self.groups.end);
                return Some(group(units.begin())..group(units.end()));
            }
            let stolen = self.steal((size / 8).max(1))?;
            own.0.store(stolen.0, Ordering::Relaxed);
        }
    }

    /// Discards everything unclaimed.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The back half of the longest range; all of it if half would be fewer than `least` units.
    fn steal(&self, least: u64) -> Option<Packed> {
        loop {
            let all = self.parts.iter().map(|part| (part, part.left()));
            let (victim, left) = all.max_by_key(|(_, left)| left.len()).filter(|(_, left)| left.len() > 0)?;
            let half = left.len() / 2;
            let middle = left.begin() + if half < least { 0 } else { half };
            if victim.replace(left, Packed::new(left.begin(), middle)) {
                return Some(Packed::new(middle, left.end()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Participants on separate threads claim everything; counts how often each threadgroup was claimed.
    fn drain(ranges: &Ranges, total: usize, participants: usize, sizes: &[u64]) -> Vec<u8> {
        let counts: Vec<AtomicU64> = (0..total).map(|_| AtomicU64::new(0)).collect();
        let begin = Barrier::new(participants);
        std::thread::scope(|scope| {
            for participant in 0..participants {
                let (counts, begin) = (&counts, &begin);
                scope.spawn(move || {
                    begin.wait();
                    let mut sizes = sizes.iter().cycle().skip(participant);
                    while let Some(groups) = ranges.take(participant, *sizes.next().unwrap()) {
                        assert!(!groups.is_empty());
                        for group in groups {
                            counts[group as usize].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        counts.into_iter().map(|count| count.into_inner() as u8).collect()
    }

    #[test]
    fn every_group_is_handed_out_once() {
        for ascending in [false, true] {
            for participants in 1..=8 {
                for total in [0, 1, 2, 3, 7, 8, 9, 64, 1001, 20_011] {
                    for sizes in [&[1][..], &[7, 1, 100], &[1 << 40]] {
                        let ranges = Ranges::new(0..total as u64, participants, ascending);
                        let counts = drain(&ranges, total, participants, sizes);
                        assert!(
                            counts.iter().all(|n| *n == 1),
                            "{total} groups, {participants} participants, {sizes:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn one_participant_alone_gets_all_parts() {
        let ranges = Ranges::new(5..1005, 8, false);
        let mut groups: Vec<u64> = std::iter::from_fn(|| ranges.take(3, 10)).flatten().collect();
        assert_eq!(groups[0], 5 + 3 * 125);
        groups.sort_unstable();
        assert!(groups.into_iter().eq(5..1005));
    }

    #[test]
    fn each_begins_with_its_own_part_and_steals_from_the_back() {
        let ranges = Ranges::new(0..1000, 2, false);
        assert_eq!(ranges.take(1, 1), Some(500..501));
        assert_eq!(ranges.take(0, 1), Some(0..1));
        while ranges.take(1, 1).unwrap().start != 999 {}
        // Of 1..500, the rest of participant 0's range.
        assert_eq!(ranges.take(1, 1), Some(250..251));
        while ranges.take(0, 1).unwrap().start != 249 {}
        assert_eq!(ranges.take(0, 1).map(|groups| groups.end > 251), Some(true));
    }

    #[test]
    fn shared_ranges_ascend() {
        let ranges = Ranges::new(0..1000, 3, true);
        let mut next = 0;
        for participant in (0..3).cycle() {
            let Some(groups) = ranges.take(participant, 16) else { break };
            assert_eq!(groups.start, next);
            next = groups.end;
        }
        assert_eq!(next, 1000);
    }

    #[test]
    fn nothing_is_handed_out_after_a_stop() {
        for ascending in [false, true] {
            let ranges = Ranges::new(0..100, 2, ascending);
            assert!(ranges.take(0, 1).is_some());
            ranges.stop();
            assert_eq!((ranges.take(0, 1), ranges.take(1, 1)), (None, None));
        }
    }

    #[test]
    fn more_groups_than_a_range_holds() {
        let total = (1 << 62) - 1;
        for ascending in [false, true] {
            let ranges = Ranges::new(0..total, 3, ascending);
            let mut handed_out = 0;
            for participant in (0..3).cycle() {
                let Some(groups) = ranges.take(participant, u64::MAX) else { break };
                assert!(groups.start < groups.end && groups.end <= total);
                handed_out += groups.end - groups.start;
            }
            assert_eq!(handed_out, total);
        }
    }
}
