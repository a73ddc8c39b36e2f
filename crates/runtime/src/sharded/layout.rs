//! [`Layout`], and the division of an array's rows that follows from it.

use std::ops::Range;

/// How the rows of an array are divided among the devices of a group. A row is a number of consecutive elements, one by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub(super) kind: Kind,
    /// Elements of a row.
    pub(super) row: usize,
    /// Rows of neighbors before and behind those of a shard.
    pub(super) halo: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Block,
    Cyclic,
    Replicated,
}

impl Layout {
    const fn new(kind: Kind) -> Self {
        Self { kind, row: 1, halo: 0 }
    }

    /// Consecutive rows for each device, as many as its share of the work.
    pub const fn block() -> Self {
        Self::new(Kind::Block)
    }

    /// Row `r` on device `r % n`, as its row `r / n`.
    pub const fn cyclic() -> Self {
        Self::new(Kind::Cyclic)
    }

    /// All rows on each device.
    pub const fn replicated() -> Self {
        Self::new(Kind::Replicated)
    }

    /// Sets the number of elements of a row.
    pub const fn row(self, elements: usize) -> Self {
        Self { row: elements, ..self }
    }

    /// Adds room for rows of the neighbors before and behind those of each shard. For [`Layout::block`].
    pub const fn halo(self, rows: usize) -> Self {
        Self { halo: rows, ..self }
    }
}

/// The rows of an array on each member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Division {
    pub(super) layout: Layout,
    pub(super) rows: usize,
    /// Where the blocks begin, and the number of rows; of all layouts.
    bounds: Vec<usize>,
}

/// Consecutive rows of one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) member: usize,
    /// First row in the shard's buffer.
    pub(super) local: usize,
    pub(super) rows: usize,
}

impl Division {
    pub(super) fn new(layout: Layout, rows: usize, shares: &[f64]) -> Self {
        let total: f64 = shares.iter().sum();
        let mut bounds = vec![0];
        let mut sum = 0.0;
        for share in shares {
            sum += share;
            let bound = (rows as f64 * (sum / total)).round() as usize;
            bounds.push(bound.clamp(*bounds.last().unwrap_or(&0), rows));
        }
        if let Some(last) = bounds.last_mut() {
            *last = rows;
        }
        Self { layout, rows, bounds }
    }

    pub(super) fn members(&self) -> usize {
        self.bounds.len() - 1
    }

    /// The block of a member; of other layouts, where it would be.
    pub(super) fn block(&self, member: usize) -> Range<usize> {
        self.bounds[member]..self.bounds[member + 1]
    }

    /// Number of rows that a member has, without halos.
    pub(super) fn owned(&self, member: usize) -> usize {
        match self.layout.kind {
            Kind::Block => self.block(member).len(),
            Kind::Cyclic => (self.rows + self.members() - 1 - member) / self.members(),
            Kind::Replicated => self.rows,
        }
    }

    /// Number of rows in the buffer of a member.
    pub(super) fn held(&self, member: usize) -> usize {
        self.owned(member) + 2 * self.layout.halo
    }

    /// The shard that has a row, with the rows that follow in it, at most `limit`. Of several, that of `near`.
    fn locate(&self, row: usize, limit: usize, near: usize) -> Run {
        match self.layout.kind {
            Kind::Block => {
                let member = self.bounds.partition_point(|bound| *bound <= row) - 1;
                let block = self.block(member);
                let local = row - block.start + self.layout.halo;
                Run { member, local, rows: limit.min(block.end - row) }
            }
            Kind::Cyclic => {
                let members = self.members();
                let rows = if members == 1 { limit } else { 1 };
                Run { member: row % members, local: row / members, rows }
            }
            Kind::Replicated => Run { member: near, local: row, rows: limit },
        }
    }

    /// The runs that have these rows, in order, each with the index of its first row in the range.
    pub(super) fn runs(&self, rows: Range<usize>, near: usize) -> Vec<(usize, Run)> {
        let mut all = Vec::new();
        let mut at = rows.start;
        while at < rows.end {
            let run = self.locate(at, rows.end - at, near);
            all.push((at - rows.start, run));
            at += run.rows;
        }
        all
    }

    /// The rows of a member in order, without halos: ranges of the array, each with its first row in the buffer.
    pub(super) fn ranges(&self, member: usize) -> Vec<(Range<usize>, usize)> {
        match self.layout.kind {
            Kind::Block => vec![(self.block(member), self.layout.halo)],
            Kind::Replicated => vec![(0..self.rows, 0)],
            Kind::Cyclic if self.members() == 1 => vec![(0..self.rows, 0)],
            Kind::Cyclic => {
                let each = (member..self.rows).step_by(self.members()).enumerate();
                each.map(|(local, row)| (row..row + 1, local)).collect()
            }
        }
    }

    /// The halo rows of a member that are rows of the array: ranges, each with its first row in the buffer.
    pub(super) fn halos(&self, member: usize) -> [(Range<usize>, usize); 2] {
        let (block, halo) = (self.block(member), self.layout.halo);
        let before = block.start.saturating_sub(halo)..block.start;
        let behind = block.end..(block.end + halo).min(self.rows);
        let first = halo - before.len();
        [(before, first), (behind, halo + block.len())]
    }

    /// The rows of a member whose neighbors within the halo's reach are its own, and the others: ranges of its rows, from 0.
    pub(super) fn inner(&self, member: usize) -> (Range<usize>, [Range<usize>; 2]) {
        let (block, halo) = (self.block(member), self.layout.halo);
        let before = if block.start > 0 { halo.min(block.len()) } else { 0 };
        let behind = if block.end < self.rows { halo } else { 0 };
        let end = block.len().saturating_sub(behind).max(before);
        (before..end, [0..before, end..block.len()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row is in exactly the shards of its layout, and is found there.
    #[test]
    fn every_row_is_found() {
        for kind in [Layout::block(), Layout::block().halo(3), Layout::cyclic(), Layout::replicated()] {
            for shares in [vec![1.0], vec![1.0; 3], vec![0.5, 0.0, 2.0, 0.1], vec![1.0; 9]] {
                for rows in [0, 1, 2, 7, 64, 101] {
                    let division = Division::new(kind, rows, &shares);
                    let mut seen = vec![0; rows];
                    for member in 0..shares.len() {
                        let mut count = 0;
                        for (range, local) in division.ranges(member) {
                            for (offset, row) in range.clone().enumerate() {
                                seen[row] += 1;
                                let found = division.locate(row, 1, member);
                                let expected = Run { member, local: local + offset, rows: 1 };
                                assert_eq!(found, expected, "{division:?}, row {row}");
                            }
                            count += range.len();
                        }
                        assert_eq!(count, division.owned(member), "{division:?}, member {member}");
                        let (inner, [first, last]) = division.inner(member);
                        assert_eq!((first.end, last.start), (inner.start, inner.end));
                        assert_eq!((first.start, last.end), (0, division.block(member).len()));
                    }
                    let each = if kind.kind == Kind::Replicated { shares.len() } else { 1 };
                    assert!(seen.iter().all(|count| *count == each), "{division:?}");
                    let runs = division.runs(0..rows, 0);
                    assert_eq!(runs.iter().map(|(_, run)| run.rows).sum::<usize>(), rows);
                }
            }
        }
    }

    #[test]
    fn blocks_follow_the_shares() {
        let division = Division::new(Layout::block(), 100, &[1.0, 3.0, 0.0, 6.0]);
        assert_eq!((0..4).map(|member| division.owned(member)).collect::<Vec<_>>(), [10, 30, 0, 60]);
        let halo = Division::new(Layout::block().halo(2), 9, &[1.0, 1.0, 1.0]);
        assert_eq!(halo.halos(0), [(0..0, 2), (3..5, 5)]);
        assert_eq!(halo.halos(1), [(1..3, 0), (6..8, 5)]);
        assert_eq!(halo.halos(2), [(4..6, 0), (9..9, 5)]);
        assert_eq!(halo.inner(0), (0..1, [0..0, 1..3]));
        assert_eq!(halo.inner(1), (2..2, [0..2, 2..3]));
    }
}
