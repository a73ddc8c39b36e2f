//! [`Ranges`]: a set of bytes of an allocation, as disjoint ranges.

use std::ops::Range;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    pub(super) fn overlaps(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.0.iter().any(|r| r.start < range.end && range.start < r.end)
    }

    pub(super) fn add(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let mut joined = range.clone();
        self.0.retain(|r| {
            let apart = r.end < joined.start || joined.end < r.start;
            if !apart {
                joined = joined.start.min(r.start)..joined.end.max(r.end);
            }
            apart
        });
        let at = self.0.partition_point(|r| r.start < joined.start);
        self.0.insert(at, joined);
    }

    pub(super) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let rest = |r: &Range<u64>| {
            let (before, after) = (r.start..r.end.min(range.start), r.start.max(range.end)..r.end);
            [before, after].into_iter().filter(|part| !part.is_empty())
        };
        self.0 = self.0.iter().flat_map(rest).collect();
    }

    pub(super) fn add_all(&mut self, other: &Self) {
        other.0.iter().for_each(|range| self.add(range));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against a set of single bytes.
    #[test]
    fn it_is_a_set() {
        let (mut ranges, mut bytes) = (Ranges::default(), [false; 40]);
        let mut x = 1u64;
        for round in 0..5000 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let (start, len) = ((x >> 40) % 36, (x >> 50) % 5);
            let range = start..start + len;
            let slots = &mut bytes[start as usize..(start + len) as usize];
            assert_eq!(
                ranges.overlaps(&range),
                slots.contains(&true),
                "round {round}: {ranges:?} and {range:?}"
            );
            let adds = x >> 63 == 0;
            slots.fill(adds);
            if adds {
                ranges.add(&range)
            } else {
                ranges.remove(&range)
            }
            assert_eq!(ranges.0.is_empty(), !bytes.contains(&true));
            assert!(ranges.0.windows(2).all(|pair| pair[0].end < pair[1].start), "{ranges:?}");
        }
    }
}
