//! Lane layout: the assignment of a threadgroup's threads to vectors.
//!
//! In the *row* layout, a vector covers consecutive threads along x with the same y and z. Otherwise it covers consecutive
//! threads in linear order (x varies fastest) and may cross rows. A vector iteration processes one or, with unroll-and-jam,
//! several vectors.
//!
//! With a dynamic threadgroup size, the layout is the row layout, and all sizes are bounds: see [`GroupSize::Dynamic`].

use serde::{Deserialize, Serialize};

use crate::analysis::vector_shape::{Known, Offsets, Pattern, Shape, ZERO_ALIGN};
use crate::intrinsic::SIMDGROUP;

/// Size of a full threadgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupSize {
    /// A constant, for which the code is specialized.
    Static([u32; 3]),
    /// A value that each launch passes. The code serves all [`RowSizes`] of up to this many threads.
    Dynamic(u32),
}

impl From<[u32; 3]> for GroupSize {
    fn from(size: [u32; 3]) -> Self {
        Self::Static(size)
    }
}

/// The threadgroup sizes with one row layout: a kernel's code with a [dynamic](GroupSize::Dynamic) size serves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowSizes {
    /// Number of threads of a vector.
    lanes: u32,
    /// Whether threads exchange values. Then rows are whole simdgroups.
    exchanges: bool,
}

impl RowSizes {
    /// The sizes for vectors of this many threads, or of whole simdgroups if threads exchange values.
    pub fn new(lanes: u32, exchanges: bool) -> Self {
        Self { lanes: if exchanges { SIMDGROUP } else { lanes }, exchanges }
    }

    /// Whether a size has this layout.
    pub fn contains(self, group: [u32; 3]) -> bool {
        let layout = Layout::new(group, self.lanes, self.exchanges);
        let is_in_rows = layout.lanes == self.lanes && layout.per_row.is_some();
        is_in_rows && (!self.exchanges || group[0].is_multiple_of(self.lanes))
    }
}

/// The vectors of a full threadgroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Size of a full threadgroup; the maximum of each dimension, if it is dynamic.
    pub group: [u32; 3],
    /// Whether the size is dynamic.
    pub is_dynamic: bool,
    /// Whether threads exchange values.
    pub exchanges: bool,
    /// Number of threads of a vector, a power of two.
    pub lanes: u32,
    /// Unroll-and-jam factor: number of vectors of an iteration.
    pub factor: u32,
    /// Number of vectors along x, in the row layout; the maximum, if the size is dynamic.
    pub per_row: Option<u32>,
}

impl Layout {
    /// The layout for a size: [`Layout::new`], or the row layout for a dynamic one.
    pub fn of(group: GroupSize, lanes: u32, exchanges: bool) -> Self {
        match group {
            GroupSize::Static(group) => Self::new(group, lanes, exchanges),
            GroupSize::Dynamic(threads) => {
                let RowSizes { lanes, exchanges } = RowSizes::new(lanes, exchanges);
                let per_row = Some(threads.div_ceil(lanes));
                Self { group: [threads; 3], is_dynamic: true, exchanges, lanes, factor: 1, per_row }
            }
        }
    }

    /// The layout for vectors of up to `lanes` threads; whole simdgroups if threads exchange values.
    pub fn new(group: [u32; 3], lanes: u32, exchanges: bool) -> Self {
        let [x, y, z] = group;
        let total = x * y * z;
        let lanes = if exchanges { SIMDGROUP } else { lanes.min(total.next_power_of_two()).max(1) };
        let padded = x.next_multiple_of(lanes);
        // A row whose last vector is half empty is cheaper than vectors across rows.
        let mostly_full = !exchanges && x > lanes && padded - x <= padded / 3;
        let rows = x.is_multiple_of(lanes) || y * z == 1 || mostly_full;
        let per_row = rows.then(|| padded / lanes);
        Self { group, is_dynamic: false, exchanges, lanes, factor: 1, per_row }
    }

    /// Number of vectors of a full threadgroup; the maximum, if its size is dynamic.
    pub fn vectors(&self) -> u32 {
        let [x, y, z] = self.group;
        match self.per_row {
            Some(per_row) if self.is_dynamic && self.exchanges => per_row,
            // In several rows that are not multiples of a vector, a third of the lanes may be unused.
            Some(per_row) if self.is_dynamic => per_row.max(x * 3 / 2 / self.lanes),
            Some(per_row) => per_row * y * z,
            None => (x * y * z).div_ceil(self.lanes),
        }
    }

    /// Number of vector iterations of a full threadgroup.
    pub fn iterations(&self) -> u32 {
        self.vectors().div_ceil(self.factor)
    }

    /// Number of rows of a full threadgroup with equal numbers of iterations, in which y and z change within iterations only.
    pub fn rows(&self) -> u32 {
        match self.per_row {
            Some(per_row) if per_row.is_multiple_of(self.factor) => self.vectors() / per_row,
            Some(per_row) if self.factor.is_multiple_of(per_row) => self.iterations(),
            _ => 1,
        }
    }

    /// Whether every lane of a full threadgroup's vectors has a thread; `None` if that depends on a dynamic size.
    pub fn is_exact(&self) -> Option<bool> {
        let [x, y, z] = self.group;
        match self.is_dynamic {
            true => (self.exchanges || self.lanes == 1).then_some(true),
            false => {
                Some(self.vectors() * self.lanes == x * y * z && self.vectors().is_multiple_of(self.factor))
            }
        }
    }

    /// Number of low bits of x's full size that are zero.
    pub fn row_align(&self) -> u32 {
        if self.exchanges { self.lanes.trailing_zeros() } else { 0 }
    }

    /// Shape of the thread position along a dimension.
    pub fn thread(&self, dim: usize) -> Known {
        let [x, y, z] = self.group;
        let Some(per_row) = self.per_row else { return self.across_rows(dim) };
        // The vectors of an iteration are adjacent along x first, then along y.
        let rows_of_iteration = (self.factor / per_row).max(1);
        let (offsets, align, same, max) = match dim {
            0 => {
                let same = self.factor == 1 || per_row == 1;
                (self.step(1), self.lanes.trailing_zeros(), same, per_row * self.lanes - 1)
            }
            1 => (Offsets::NONE, 0, rows_of_iteration == 1 && per_row.is_multiple_of(self.factor), y - 1),
            _ => (Offsets::NONE, 0, self.factor == 1 || per_row.is_multiple_of(self.factor), z - 1),
        };
        let size = [x, y, z][dim];
        if size == 1 && dim > 0 {
            return Known::constant(0);
        }
        let same = if self.is_dynamic { self.factor == 1 } else { same };
        self.known(offsets, align, same, max)
    }

    fn known(&self, offsets: Offsets, align: u32, same: bool, max: u32) -> Known {
        let pattern = Pattern { offsets, loose: false, unwrapped: true, same, align };
        Known { shape: Shape::Lanes(pattern), max: u64::from(max), constant: None }
    }

    /// Offsets that increase with the lane.
    pub fn step(&self, by: i64) -> Offsets {
        Offsets::Linear(if self.lanes == 1 { 0 } else { by })
    }

    fn across_rows(&self, dim: usize) -> Known {
        let [x, y, z] = self.group;
        let varying = |max: u32| Known { max: u64::from(max), ..Known::varying(32) };
        if !self.lanes.is_multiple_of(x) || self.factor != 1 {
            return varying([x, y, z][dim] - 1);
        }
        let rows = self.lanes / x;
        let table =
            |of: &dyn Fn(u32) -> u32| Offsets::of((0..self.lanes).map(|lane| i64::from(of(lane))).collect());
        // The rows of a vector are in one plane, or a vector has whole planes.
        match dim {
            0 => self.known(table(&|l| l % x), ZERO_ALIGN, true, x - 1),
            1 if z == 1 || y.is_multiple_of(rows) => {
                let last = (y.div_ceil(rows) * rows).max(1) - 1;
                self.known(table(&|l| l / x), rows.trailing_zeros(), true, last)
            }
            1 if rows.is_multiple_of(y) => self.known(table(&|l| l / x % y), ZERO_ALIGN, true, y - 1),
            2 if z == 1 => Known::constant(0),
            2 if y.is_multiple_of(rows) => self.known(Offsets::NONE, 0, true, z - 1),
            2 if rows.is_multiple_of(y) => {
                let planes = rows / y;
                let last = (z.div_ceil(planes) * planes).max(1) - 1;
                self.known(table(&|l| l / (x * y)), planes.trailing_zeros(), true, last)
            }
            _ => varying([x, y, z][dim] - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offsets(layout: &Layout, dim: usize) -> Option<Vec<i64>> {
        let known = layout.thread(dim);
        known.pattern().map(|p| (0..layout.lanes).map(|l| p.offsets.at(l)).collect())
    }

    #[test]
    fn rows() {
        let layout = Layout::new([256, 1, 1], 16, false);
        assert_eq!((layout.lanes, layout.per_row, layout.iterations()), (16, Some(16), 16));
        assert!(layout.is_exact() == Some(true) && layout.thread(0).max == 255);
        let layout = Layout::new([20, 3, 2], 8, false);
        assert_eq!((layout.per_row, layout.vectors()), (Some(3), 18));
        assert!(layout.is_exact() == Some(false) && layout.thread(1).is_same());
        assert_eq!(Layout::new([5, 1, 1], 16, false).lanes, 8);
        assert_eq!(Layout::new([32, 8, 1], 16, true).per_row, Some(1));
    }

    #[test]
    fn sizes_in_rows_share_a_layout() {
        let contains = |exchanges: bool, group| RowSizes::new(16, exchanges).contains(group);
        for group in [[16, 1, 1], [64, 1, 1], [100, 1, 1], [1024, 1, 1], [32, 8, 1], [16, 4, 4], [27, 3, 2]] {
            assert!(contains(false, group), "{group:?}");
        }
        // A vector of fewer lanes, across rows, and rows of which much is unused.
        for group in [[8, 1, 1], [1, 1, 1], [8, 8, 1], [4, 4, 4], [20, 3, 1]] {
            assert!(!contains(false, group), "{group:?}");
        }
        assert!(contains(true, [32, 8, 1]) && contains(true, [96, 1, 1]));
        assert!(!contains(true, [48, 2, 1]) && !contains(true, [100, 1, 1]) && !contains(true, [16, 2, 1]));
        assert!(RowSizes::new(1, false).contains([3, 5, 7]));
    }

    #[test]
    fn a_dynamic_layout_bounds_those_of_its_sizes() {
        for (lanes, exchanges) in [(1, false), (4, false), (8, false), (16, false), (32, false), (16, true)] {
            let dynamic = Layout::of(GroupSize::Dynamic(1024), lanes, exchanges);
            let sizes = (1..=1024).flat_map(|x| (1..=1024 / x).map(move |y| [x, y, 1]));
            let mut served = 0;
            for size in sizes.filter(|size| RowSizes::new(lanes, exchanges).contains(*size)) {
                let layout = Layout::new(size, lanes, exchanges);
                assert!(layout.vectors() <= dynamic.vectors(), "{size:?}");
                assert!((0..3).all(|dim| layout.thread(dim).max <= dynamic.thread(dim).max), "{size:?}");
                assert!(dynamic.is_exact().is_none_or(|exact| layout.is_exact() == Some(exact)), "{size:?}");
                assert!(size[0].trailing_zeros() >= dynamic.row_align(), "{size:?}");
                served += 1;
            }
            assert!(served > 32);
            let whole = Layout { factor: dynamic.vectors(), ..dynamic };
            assert!((0..3).all(|dim| !whole.thread(dim).is_same()), "{lanes}");
        }
    }

    #[test]
    fn across_rows() {
        let layout = Layout::new([8, 8, 1], 16, false);
        assert_eq!((layout.per_row, layout.vectors()), (None, 4));
        assert_eq!(offsets(&layout, 0).unwrap()[6..10], [6, 7, 0, 1]);
        assert_eq!(offsets(&layout, 1).unwrap()[6..10], [0, 0, 1, 1]);
        let layout = Layout::new([4, 2, 8], 16, false);
        assert_eq!(offsets(&layout, 1).unwrap()[..10], [0, 0, 0, 0, 1, 1, 1, 1, 0, 0]);
        assert_eq!(offsets(&layout, 2).unwrap()[6..10], [0, 0, 1, 1]);
        let layout = Layout::new([7, 9, 1], 16, true);
        assert_eq!((layout.lanes, layout.vectors()), (32, 2));
        assert_eq!(offsets(&layout, 0), None);
    }

    #[test]
    fn the_parts_of_a_step_may_be_rows_and_planes() {
        let same = |factor: u32| {
            let layout = Layout { factor, ..Layout::new([8, 2, 4], 8, false) };
            [1, 2].map(|dim| layout.thread(dim).is_same())
        };
        assert_eq!(same(1), [true, true]);
        assert_eq!(same(2), [false, false]);
        assert_eq!(same(4), [false, false]);
        let long = Layout { factor: 2, ..Layout::new([32, 2, 4], 8, false) };
        assert_eq!([1, 2].map(|dim| long.thread(dim).is_same()), [true, true]);
    }

    #[test]
    fn one_lane() {
        let layout = Layout::new([4, 4, 4], 1, false);
        assert_eq!((layout.iterations(), layout.per_row), (64, Some(4)));
        assert!((0..3).all(|dim| layout.thread(dim).is_uniform()));
    }
}
