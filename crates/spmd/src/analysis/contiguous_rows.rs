//! Contiguous rows: the parts of memory that a group of accesses covers, if the lanes' addresses are known [differences](super::lane_rows)
//! apart.

use crate::analysis::lane_rows::LaneRows;

/// Minimum number of accessed elements for each row; with fewer, a gather or scatter is as fast.
const FEWEST: usize = 4;
/// Maximum number of elements of all rows, each padded to the longest.
const MOST: usize = 128;

/// The rows of a group of accesses, in ascending order.
#[derive(Debug, PartialEq)]
pub(crate) struct ContiguousRows {
    pub rows: Vec<Row>,
    /// The longest length, rounded up to a power of two.
    pub width: usize,
}

/// Contiguous elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Row {
    /// The lane from whose address the others' differences are known.
    pub lane: u32,
    /// Offset of the first element from the first member of the lane, in elements.
    pub first: i64,
    pub length: usize,
}

impl ContiguousRows {
    /// Rows of loads, of which some elements may be unused. `members` are offsets in bytes.
    pub fn of_loads(lanes: &LaneRows, members: &[i64], size: i64) -> Option<Self> {
        let elements = sorted(lanes, members, size)?;
        let rows = Self::joined(&elements, 2);
        (rows.rows.len() * FEWEST <= lanes.len() * members.len() && rows.fits()).then_some(rows)
    }

    /// Rows of stores, of which each element is stored once.
    pub fn of_stores(lanes: &LaneRows, members: &[i64], size: i64) -> Option<Self> {
        let elements = sorted(lanes, members, size)?;
        let rows = Self::joined(&elements, 1);
        let stores = lanes.len() * members.len();
        (elements.len() == stores && rows.rows.len() * FEWEST <= stores && rows.fits()).then_some(rows)
    }

    /// Joins elements whose distance is at most `distance`.
    fn joined(elements: &[(u32, i64)], distance: i64) -> Self {
        let mut rows: Vec<Row> = Vec::new();
        for (lane, element) in elements {
            match rows.last_mut() {
                Some(row) if row.lane == *lane && element - row.first < row.length as i64 + distance => {
                    row.length = (element - row.first) as usize + 1;
                }
                _ => rows.push(Row { lane: *lane, first: *element, length: 1 }),
            }
        }
        let width = rows.iter().map(|row| row.length).max().unwrap_or(1).next_power_of_two();
        Self { rows, width }
    }

    fn fits(&self) -> bool {
        self.rows.len().next_power_of_two() * self.width <= MOST
    }

    /// Index of a lane's element in the padded rows, one after the other. `member` is an offset in bytes.
    pub fn index(&self, lanes: &LaneRows, lane: usize, member: i64, size: i64) -> usize {
        let (first, element) = (lanes.first(lane), (lanes.offset(lane) + member) / size);
        let behind = self.rows.partition_point(|row| (row.lane, row.first) <= (first, element));
        let row = behind.saturating_sub(1);
        row * self.width + (element - self.rows[row].first) as usize
    }
}

/// The accessed elements, once each, with the lane whose address their offsets are from. `None` if differences are not whole elements.
fn sorted(lanes: &LaneRows, members: &[i64], size: i64) -> Option<Vec<(u32, i64)>> {
    let whole = (0..lanes.len()).all(|lane| lanes.offset(lane) % size == 0);
    let of_lane = |lane: usize| {
        members.iter().map(move |member| (lanes.first(lane), (lanes.offset(lane) + member) / size))
    };
    let mut all: Vec<(u32, i64)> = (0..lanes.len()).flat_map(of_lane).collect();
    all.sort_unstable();
    all.dedup();
    whole.then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::vector_shape::Offsets;

    fn whole(offsets: impl Fn(i64) -> i64) -> LaneRows {
        LaneRows::whole(&Offsets::of((0..32).map(offsets).collect()), 32)
    }

    /// The first elements of a simdgroup matrix of floats, in a matrix of this many columns.
    fn matrix(columns: i64) -> LaneRows {
        whole(|lane| 4 * ((lane / 16 * 4 + lane / 2 % 4) * columns + lane / 8 % 2 * 4 + lane % 2 * 2))
    }

    fn rows(rows: &ContiguousRows) -> Vec<(i64, usize)> {
        rows.rows.iter().map(|row| (row.first, row.length)).collect()
    }

    #[test]
    fn a_matrix_has_eight_rows() {
        let lanes = matrix(20);
        let found = ContiguousRows::of_loads(&lanes, &[0, 4], 4).unwrap();
        assert_eq!(rows(&found), (0..8).map(|row| (20 * row, 8)).collect::<Vec<_>>());
        assert_eq!(ContiguousRows::of_stores(&lanes, &[0, 4], 4).as_ref(), Some(&found));
        // Lane 13 has row 2 and columns 6 and 7.
        assert_eq!((found.index(&lanes, 0, 0, 4), found.index(&lanes, 13, 4, 4)), (0, 23));
        let one = ContiguousRows::of_loads(&matrix(8), &[0, 4], 4).unwrap();
        assert_eq!((rows(&one), one.width), (vec![(0, 64)], 64));
    }

    #[test]
    fn loads_may_have_gaps() {
        let lanes = matrix(20);
        let found = ContiguousRows::of_loads(&lanes, &[0], 4).unwrap();
        assert_eq!(rows(&found), (0..8).map(|row| (20 * row, 7)).collect::<Vec<_>>());
        assert_eq!((found.width, found.index(&lanes, 13, 0, 4)), (8, 22));
        assert_eq!(ContiguousRows::of_stores(&lanes, &[0], 4), None);
        assert_eq!(ContiguousRows::of_loads(&whole(|lane| lane * 6), &[0], 4), None, "not whole elements");
    }

    #[test]
    fn lanes_that_share_or_scatter_elements() {
        let shared = whole(|lane| lane / 8 * 4);
        assert_eq!(rows(&ContiguousRows::of_loads(&shared, &[0], 4).unwrap()), [(0, 4)]);
        assert_eq!(ContiguousRows::of_stores(&shared, &[0], 4), None);
        assert_eq!(ContiguousRows::of_loads(&whole(|lane| lane * lane * 12), &[0], 4), None);
        let backwards = whole(|lane| lane / 8 * 400 - lane % 8 * 4);
        let found = ContiguousRows::of_stores(&backwards, &[0], 4).unwrap();
        assert_eq!(rows(&found), [(-7, 8), (93, 8), (193, 8), (293, 8)]);
        assert_eq!(found.index(&backwards, 0, 0, 4), 7);
    }
}
