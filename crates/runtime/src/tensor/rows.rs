//! [`Rows`]: the two index spaces of an operation along axes, and how threads are assigned to them.
//!
//! A row is the elements that are combined: those of the reduced axes, for one index of the kept axes. It has a simdgroup or a
//! threadgroup, or, if the input is contiguous along a kept axis, one thread.

use elinvar_driver::{Error, Result};

use crate::Grid;
use crate::tensor::axes::Axes;
use crate::tensor::map::rows_grid;

/// Kept and reduced axes of the same operands.
pub(crate) struct Rows {
    pub(crate) kept: Axes,
    pub(crate) reduced: Axes,
}

/// Threads of a threadgroup.
pub(crate) const GROUP: usize = 256;
/// Threads of a simdgroup.
pub(crate) const SIMDGROUP: usize = 32;
/// Rows of more elements have a whole threadgroup.
const LONG: usize = 1024;
/// Most rows of a simdgroup on a CPU.
const MOST_TOGETHER: usize = 64;
/// Threadgroups along x.
const MOST_GROUPS: usize = 1 << 20;

impl Rows {
    /// Both index spaces of `axes`, by whether each axis is reduced. Kept axes are sorted by the strides of operand 0; reduced axes too,
    /// unless their order counts.
    pub(crate) fn new(axes: &Axes, is_reduced: &[bool], ordered: bool) -> Self {
        let kept = axes.select(|axis| !is_reduced[axis]).sorted(0).collapsed();
        let reduced = axes.select(|axis| is_reduced[axis]);
        let reduced = if ordered { reduced.collapsed() } else { reduced.sorted(0).collapsed() };
        Self { kept, reduced }
    }

    /// Number of rows.
    pub(crate) fn count(&self) -> usize {
        self.kept.count()
    }

    /// Number of elements of a row.
    pub(crate) fn length(&self) -> usize {
        self.reduced.count()
    }

    /// Whether rows have one thread each, so that a simdgroup reads consecutive elements.
    pub(crate) fn are_columns(&self) -> bool {
        let (inner, steps, _) = self.kept.split_inner();
        let (length, reduced_steps, _) = self.reduced.split_inner();
        inner >= SIMDGROUP && steps[0] == 1 && (reduced_steps[0] != 1 || length == 1)
    }

    /// Whether each row has a whole threadgroup.
    pub(crate) fn are_long(&self) -> bool {
        self.length() > LONG
    }

    /// The number of rows, if threads can count them.
    fn counted(&self) -> Result<usize> {
        let rows = self.count();
        match u32::try_from(rows) {
            Ok(_) => Ok(rows),
            Err(_) => {
                Err(Error::unsupported(format!("{rows} rows along the other axes, at most 2³² supported")))
            }
        }
    }

    /// The grid of a kernel for rows, of `parts` parts each.
    pub(crate) fn grid(&self, parts: usize) -> Result<Grid> {
        self.grid_of(parts, GROUP)
    }

    /// As [`Rows::grid`], with threadgroups of `threads`.
    pub(crate) fn grid_of(&self, parts: usize, threads: usize) -> Result<Grid> {
        let rows = self.counted()?;
        let groups = if self.are_long() { rows } else { rows.div_ceil(threads / SIMDGROUP) };
        let x = groups.clamp(1, MOST_GROUPS);
        Ok(Grid::groups((x, parts, groups.div_ceil(x))).group(threads))
    }

    /// Consecutive rows that a simdgroup has on a CPU of `units` compute units, each of which should have several simdgroups.
    pub(crate) fn together(&self, units: usize) -> usize {
        (self.count() / (8 * units.max(1))).clamp(1, MOST_TOGETHER)
    }

    /// The grid of a kernel with threadgroups of one simdgroup, each of which has `together` rows.
    pub(crate) fn grid_of_simdgroups(&self, together: usize) -> Result<Grid> {
        let groups = self.counted()?.div_ceil(together);
        let x = groups.clamp(1, MOST_GROUPS);
        Ok(Grid::groups((x, 1, groups.div_ceil(x))).group(SIMDGROUP))
    }

    /// The grid of a kernel for columns: x is the innermost kept axis.
    pub(crate) fn column_grid(&self, parts: usize) -> Grid {
        let (inner, _, outer) = self.kept.split_inner();
        match parts {
            1 => rows_grid(inner, outer.count()),
            parts => Grid::threads((inner, outer.count(), parts)),
        }
    }

    /// The grid of a kernel whose threadgroups have 32 columns, each shared by `parts` threads along y.
    pub(crate) fn grid_of_shared_columns(&self, parts: usize) -> Grid {
        let (inner, _, outer) = self.kept.split_inner();
        Grid::threads((inner, parts, outer.count())).group((SIMDGROUP as u32, parts as u32))
    }

    /// Number of parts that a row should be divided into, so that `units` compute units are busy.
    pub(crate) fn parts(&self, units: u32) -> usize {
        let (columns, rows, length) = (self.are_columns(), self.count(), self.length());
        let groups = match columns || !self.are_long() {
            true => rows.div_ceil(if columns { GROUP } else { GROUP / SIMDGROUP }),
            false => rows,
        };
        let wanted = units as usize * 8;
        let most = length / if columns { 256 } else { 16 * LONG };
        (wanted / groups.max(1)).min(most).max(1)
    }
}

/// Stride as a function constant: 1, or 2 for any other.
pub(crate) fn step_class(stride: usize) -> u32 {
    if stride == 1 { 1 } else { 2 }
}
