//! Products of packed panels: one job packs the right factor, another multiplies blocks of rows, each of which packs its left factor.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use elinvar_driver::primitive::{MatMul, Matrix};
use elinvar_driver::{Error, MemorySlice, Result};
use elinvar_gemm::{
    Bias, Block, Element, Level, Lines, Output, Right, multiply as multiply_block, pack, widen,
};

use super::{
    PER_NS, activation, as_floats, demand, element, keep, lines_of_block, most_panels, run, wanted_blocks,
};
use crate::encode::address;
use crate::job::{Demand, Work};
use crate::pool::Worker;
use crate::scratch::Scratch;
use crate::stop::Stop;

/// The most terms of a block: a panel of the right factor stays in the first cache.
const TERMS: usize = 384;
/// Columns of a block.
const COLUMNS: usize = 2048;
/// Lines of the right factor that are packed at a time.
const STRIP: usize = 128;

/// A factor in memory: lines are rows of the left one, columns of the right one. Strides are in elements.
#[derive(Clone, Copy)]
struct Factor {
    first: *const u8,
    element: Element,
    matrix: isize,
    line: isize,
    term: isize,
}

impl Factor {
    fn new(first: *const u8, element: Element, shape: Matrix, lines_are_rows: bool) -> Self {
        let [row, matrix] =
            [shape.row_bytes, shape.matrix_bytes].map(|bytes| (bytes / element.size() as u64) as isize);
        let (line, term) = if lines_are_rows { (row, 1) } else { (1, row) };
        Self { first, element, matrix, line, term }
    }

    /// Packs lines of one matrix. `wide` has room for the elements, as `f32`.
    ///
    /// # Safety
    /// The elements must be readable, and the packed ones writable at `to`.
    #[allow(unsafe_code)] // addresses of operands
    unsafe fn pack(
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

/// A product, or a part of it: some matrices and columns, of which the right factor is packed at a time.
#[derive(Clone)]
struct Product {
    level: Level,
    left: Factor,
    right: Factor,
    output: Output,
    /// Distance of the results' matrices.
    matrix: isize,
    rows: usize,
    terms: usize,
    /// Terms of a block.
    length: usize,
    matrices: Range<usize>,
    columns: Range<usize>,
    /// Whether all matrices have the same right factor.
    shares_right: bool,
    /// The packed right factor: for each matrix and each block of terms, panels.
    panels: *mut f32,
    /// Rows and columns of a block.
    block: [usize; 2],
    stop: Arc<Stop>,
}

#[allow(unsafe_code)] // addresses of memory that the submission keeps, and of panels that the worker keeps
// SAFETY: groups write disjoint panels or blocks of the result; the rest is only read.
unsafe impl Send for Product {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Product {}

/// Packs the right factor: a group is a strip of lines, for the terms of one block.
struct Packing(Product);

/// Multiplies: a group is a block of rows and columns, for all terms.
struct Multiplying(Product);

/// Whose elements the bias has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BiasOf {
    Rows,
    Columns,
}

/// Computes a product, with room for `room` elements of the packed right factor at a time: at least a panel.
pub(super) fn multiply(
    p: &MatMul,
    operands: &[MemorySlice],
    bias_of: BiasOf,
    room: usize,
    stop: &Arc<Stop>,
    worker: &mut Worker,
) -> Result<()> {
    let [left, right, .., result] = operands else {
        return Err(Error::invalid("matrix multiplication: operands are missing"));
    };
    let (element, level) = (element(p.data_type)?, Level::of_processor());
    let [rows, columns, terms] = [p.result.rows, p.result.columns, p.interior()].map(|size| size as usize);
    let wide = level.columns();
    let matrices = p.matrices as usize;
    let shares_right = p.right.matrix_bytes == 0;
    // As many columns as there is room for, or all columns of several matrices.
    let most_columns = (room / terms / wide).max(1) * wide;
    let columns_at_a_time = most_columns.min(columns);
    let of_matrix = columns.next_multiple_of(wide) * terms;
    let matrices_at_a_time = match (shares_right, columns_at_a_time == columns) {
        (true, _) => matrices,
        (false, true) => (room / of_matrix).clamp(1, matrices),
        (false, false) => 1,
    };
    let packed = if shares_right { 1 } else { matrices_at_a_time };
    let elements = packed * columns_at_a_time.next_multiple_of(wide) * terms;
    let bias_elements = if p.bias && element != Element::F32 { rows.max(columns) } else { 0 };
    let mut kept = std::mem::take(&mut worker.panels);
    let panels = kept.reserve((elements + bias_elements) as u64 * 4)?.cast::<f32>();
    let output = Output {
        first: address(result)?,
        element,
        row: (p.result.row_bytes / element.size() as u64) as isize,
        line: 0,
        column: 1,
        pitch: columns,
        width: columns,
        alpha: p.alpha,
        beta: p.beta,
        bias: bias(p, operands, bias_of, panels.wrapping_add(elements))?,
        activation: activation(p.activation),
    };
    let mut product = Product {
        level,
        left: Factor::new(address(left)?, element, p.left, !p.transpose_left),
        right: Factor::new(address(right)?, element, p.right, p.transpose_right),
        output,
        matrix: (p.result.matrix_bytes / element.size() as u64) as isize,
        rows,
        terms,
        length: terms.div_ceil(terms.div_ceil(TERMS)),
        matrices: 0..0,
        columns: 0..0,
        shares_right,
        panels,
        block: [0, 0],
        stop: stop.clone(),
    };
    for first in (0..matrices).step_by(matrices_at_a_time) {
        product.matrices = first..matrices.min(first + matrices_at_a_time);
        for column in (0..columns).step_by(columns_at_a_time) {
            product.columns = column..columns.min(column + columns_at_a_time);
            product.divide(worker.workers());
            worker.run(&Arc::new(Packing(product.clone())), product.packing())?;
            stop.check()?;
            worker.run(&Arc::new(Multiplying(product.clone())), product.multiplying())?;
            stop.check()?;
        }
    }
    keep(kept, room, worker);
    Ok(())
}

/// The bias, as `f32`; other types are converted to `room`.
#[allow(unsafe_code)] // addresses of operands
fn bias(p: &MatMul, operands: &[MemorySlice], of: BiasOf, room: *mut f32) -> Result<Bias> {
    if !p.bias {
        return Ok(Bias::None);
    }
    let count = if of == BiasOf::Rows { p.result.rows } else { p.result.columns } as usize;
    let (first, element) = (address(&operands[2])?, element(p.data_type)?);
    // SAFETY: the primitive was validated: there are so many elements; the room has as many.
    let first = unsafe { as_floats(first, element, count, room) };
    Ok(if of == BiasOf::Rows { Bias::Rows(first) } else { Bias::Columns(first) })
}

impl Product {
    /// Chooses the size of blocks.
    fn divide(&mut self, workers: usize) {
        let (tall, wide) = (self.level.rows(), self.level.columns());
        let columns = self.columns.len();
        let mut tiles = self.matrices.len() * columns.div_ceil(COLUMNS);
        let wanted = wanted_blocks(workers);
        let rows = lines_of_block(self.rows, tall, wanted.div_ceil(tiles), most_panels(tall));
        tiles = self.matrices.len() * self.rows.div_ceil(rows);
        self.block = [rows, lines_of_block(columns, wide, wanted.div_ceil(tiles), COLUMNS / wide)];
    }

    /// Numbers of blocks of rows and columns.
    fn blocks(&self) -> [usize; 2] {
        [self.rows.div_ceil(self.block[0]), self.columns.len().div_ceil(self.block[1])]
    }

    /// Lines of a strip: whole panels.
    fn strip(&self) -> usize {
        STRIP.next_multiple_of(self.level.columns())
    }

    fn packing(&self) -> Demand {
        let matrices = if self.shares_right { 1 } else { self.matrices.len() };
        let strips = self.columns.len().div_ceil(self.strip());
        // An element takes about 0.2 ns.
        let groups = matrices * strips * self.terms.div_ceil(self.length);
        demand(groups as u64, (self.strip() * self.length / 5) as u64)
    }

    fn multiplying(&self) -> Demand {
        let ([down, across], [rows, columns]) = (self.blocks(), self.block);
        let groups = self.matrices.len() * down * across;
        demand(groups as u64, (rows * columns) as u64 * self.terms as u64 / PER_NS)
    }

    /// Terms of a block.
    fn terms_from(&self, term: usize) -> Range<usize> {
        term..self.terms.min(term + self.length)
    }

    /// The panels of a matrix from a term on.
    fn panels(&self, matrix: usize, term: usize) -> *mut f32 {
        let padded = self.columns.len().next_multiple_of(self.level.columns());
        let matrix = if self.shares_right { 0 } else { matrix - self.matrices.start };
        self.panels.wrapping_add((matrix * self.terms + term) * padded)
    }

    #[allow(unsafe_code)] // addresses of operands and panels
    fn pack_strip(&self, group: usize, scratch: &mut Scratch) -> Result<()> {
        let (strip, wide) = (self.strip(), self.level.columns());
        let strips = self.columns.len().div_ceil(strip);
        let (at, rest) = (group % strips * strip, group / strips);
        let blocks = self.terms.div_ceil(self.length);
        let (term, matrix) = (rest % blocks * self.length, self.matrices.start + rest / blocks);
        let terms = self.terms_from(term);
        let lines = self.columns.start + at..self.columns.end.min(self.columns.start + at + strip);
        let to = self.panels(matrix, term).wrapping_add(at * terms.len());
        let room = if self.right.element == Element::F32 { 0 } else { strip * terms.len() };
        let room = scratch.reserve(room as u64 * 4)?.cast();
        // SAFETY: the primitive was validated against its operands; strips are disjoint.
        unsafe { self.right.pack(matrix, &lines, &terms, wide, room, to) };
        Ok(())
    }

    #[allow(unsafe_code)] // addresses of operands and panels
    fn multiply_block(&self, group: usize, scratch: &mut Scratch) -> Result<()> {
        let ([down, across], [tall, wide]) = (self.blocks(), [self.level.rows(), self.level.columns()]);
        let (row, column) = (group / across % down * self.block[0], group % across * self.block[1]);
        let matrix = self.matrices.start + group / (down * across);
        let rows = row..self.rows.min(row + self.block[0]);
        let columns = self.block[1].min(self.columns.len() - column);
        let packed = rows.len().next_multiple_of(tall) * self.length;
        let converted = if self.left.element == Element::F32 { 0 } else { rows.len() * self.length };
        let summed = rows.len().next_multiple_of(tall) * columns.next_multiple_of(wide);
        let summed = if self.length < self.terms { summed } else { 0 };
        let left: *mut f32 = scratch.reserve((packed + summed + converted) as u64 * 4)?.cast();
        let sums = left.wrapping_add(packed);
        let first = self.output.first.cast_const();
        let first = self.output.element.at(first, matrix as isize * self.matrix).cast_mut();
        let output = Output { first, ..self.output };
        for term in (0..self.terms).step_by(self.length) {
            if self.stop.check().is_err() {
                break;
            }
            let terms = self.terms_from(term);
            // SAFETY: the primitive was validated against its operands, and the panels have been packed; no other group has the block.
            // Concurrent accesses would be a race of the program.
            unsafe {
                self.left.pack(matrix, &rows, &terms, tall, sums.wrapping_add(summed), left);
                let panels = self.panels(matrix, term).wrapping_add(column * terms.len());
                let block = Block {
                    left,
                    right: Right::Panels(panels),
                    at: [row, self.columns.start + column],
                    size: [rows.len(), columns],
                    terms: terms.len(),
                    sums: if summed == 0 { std::ptr::null_mut() } else { sums },
                    is_first: term == 0,
                    is_last: terms.end == self.terms,
                };
                multiply_block(self.level, &block, &output);
            }
        }
        Ok(())
    }
}

impl Work for Packing {
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()> {
        run(&self.0.stop, groups, |group| self.0.pack_strip(group, scratch))
    }
}

impl Work for Multiplying {
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()> {
        run(&self.0.stop, groups, |group| self.0.multiply_block(group, scratch))
    }
}
