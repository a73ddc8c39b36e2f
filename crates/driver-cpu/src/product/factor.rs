//! [`Factor`]: a factor of a product in memory, of which lines are packed or read where they are.

use std::ops::Range;

use elinvar_driver::primitive::Matrix;
use elinvar_gemm::{Element, Left, Lines, pack, widen};

/// The most columns of a product whose left factor is not packed; with more, packing pays off.
const DIRECT: usize = 512;
/// Rows at a multiple of this distance, in bytes, are on the same lines of the first cache.
const ALIAS: usize = 4096;

/// A factor in memory: lines are rows of the left one, columns of the right one. Strides are in elements.
#[derive(Clone, Copy)]
pub(super) struct Factor {
    pub(super) first: *const u8,
    pub(super) element: Element,
    pub(super) matrix: isize,
    pub(super) line: isize,
    pub(super) term: isize,
}

impl Factor {
    pub(super) fn new(first: *const u8, element: Element, shape: Matrix, lines_are_rows: bool) -> Self {
        let [row, matrix] =
            [shape.row_bytes, shape.matrix_bytes].map(|bytes| (bytes / element.size() as u64) as isize);
        let (line, term) = if lines_are_rows { (row, 1) } else { (1, row) };
        Self { first, element, matrix, line, term }
    }

    /// Whether a left factor's rows are read where they are, by a product with so many columns.
    pub(super) fn is_direct(&self, columns: usize) -> bool {
        let row_bytes = (self.line * 4).unsigned_abs();
        columns <= DIRECT
            && self.element == Element::F32
            && self.term == 1
            && !row_bytes.is_multiple_of(ALIAS)
    }

    /// Rows of one matrix where they are, from a row and a term on.
    pub(super) fn rows(&self, matrix: usize, row: usize, term: usize) -> Left {
        let index = matrix as isize * self.matrix + row as isize * self.line + term as isize;
        Left::Rows { first: self.element.at(self.first, index).cast(), row: self.line }
    }

    /// Packs lines of one matrix. `wide` has room for the elements, as `f32`.
    ///
    /// # Safety
    /// The elements must be readable, and the packed ones writable at `to`.
    #[allow(unsafe_code)] // addresses of operands
    pub(super) unsafe fn pack(
        &self,
        matrix: usize,
        lines: &Range<usize>,
        terms: &Range<usize>,
        width: usize,
        wide: *mut f32,
        to: *mut f32,
    ) {
        let Self { line, term, .. } = *self;
        let index = matrix as isize * self.matrix + lines.start as isize * line + terms.start as isize * term;
        let first = self.element.at(self.first, index);
        // SAFETY: the caller's promise.
        unsafe {
            if self.element == Element::F32 {
                pack(Lines { first: first.cast(), line, term }, lines.len(), terms.len(), width, to);
                return;
            }
            // Runs of contiguous elements are converted, in the same order.
            let by_lines = term == 1;
            let (runs, length, step) =
                if by_lines { (lines.len(), terms.len(), line) } else { (terms.len(), lines.len(), term) };
            for run in 0..runs {
                let from = self.element.at(first, run as isize * step);
                widen(self.element, from, 1, std::slice::from_raw_parts_mut(wide.add(run * length), length));
            }
            let (line, term) = if by_lines { (length as isize, 1) } else { (1, length as isize) };
            pack(Lines { first: wide, line, term }, lines.len(), terms.len(), width, to);
        }
    }
}
