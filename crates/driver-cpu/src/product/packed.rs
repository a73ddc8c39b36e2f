//! Products of packed panels: one job packs the right factor, another multiplies blocks of rows, each of which packs its left factor, unless it
//! is read where it is. Small ones are [`direct`].

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use elinvar_driver::primitive::MatMul;
use elinvar_driver::{Error, MemorySlice, Result};
use elinvar_gemm::{Bias, Block, Element, Left, Level, Output, Right, multiply as multiply_block};

use super::factor::Factor;
use super::{
    PER_NS, activation, as_floats, demand, direct, element, keep, lines_of_block, most_panels, run,
    run_blocks, wanted_blocks,
};
use crate::encode::address;
use crate::job::{Demand, RANGE_NS, Work};
use crate::pool::Worker;
use crate::scratch::Scratch;
use crate::stop::Stop;

/// The most terms of a block: what is packed of the factors stays in a core's caches.
const TERMS: usize = 512;
/// Columns of a block.
const COLUMNS: usize = 2048;
/// The most lines of the right factor that are packed at a time.
const STRIP: usize = 128;

/// A product, or a part of it: some matrices and columns, of which the right factor is packed at a time.
#[derive(Clone)]
pub(super) struct Product {
    pub(super) level: Level,
    pub(super) left: Factor,
    pub(super) right: Factor,
    output: Output,
    /// Distance of the results' matrices.
    matrix: isize,
    pub(super) rows: usize,
    pub(super) terms: usize,
    /// Terms of a block.
    length: usize,
    pub(super) matrices: Range<usize>,
    pub(super) columns: Range<usize>,
    /// Whether all matrices have the same right factor.
    shares_right: bool,
    /// The packed right factor: for each matrix and each block of terms, panels.
    panels: *mut f32,
    /// Columns of a block.
    across: usize,
    /// Lines of a strip: whole panels.
    strip: usize,
    pub(super) stop: Arc<Stop>,
}

#[allow(unsafe_code)] // addresses of memory that the submission keeps, and of panels that the worker keeps
// SAFETY: groups write disjoint panels or blocks of the result; the rest is only read.
unsafe impl Send for Product {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Product {}

/// Packs the right factor: a group is a strip of lines, for the terms of one block.
struct Packing(Product);

/// Multiplies: a group is a panel of rows and a block's columns, for all terms. Successive panels of a range are one block.
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
    let left = Factor::new(address(left)?, element, p.left, !p.transpose_left);
    let is_direct = direct::applies(&left, [rows, columns, terms], worker.workers());
    let elements = if is_direct { 0 } else { packed * columns_at_a_time.next_multiple_of(wide) * terms };
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
        left,
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
        across: 0,
        strip: 0,
        stop: stop.clone(),
    };
    if is_direct {
        (product.matrices, product.columns) = (0..matrices, 0..columns);
        direct::multiply(product, worker)?;
        keep(kept, room, worker);
        return stop.check();
    }
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
    /// Chooses the columns of blocks and strips.
    fn divide(&mut self, workers: usize) {
        let (wide, wanted) = (self.level.columns(), wanted_blocks(workers));
        let of_columns = |wanted, most| lines_of_block(self.columns.len(), wide, wanted, most / wide);
        let across = of_columns(wanted.div_ceil(self.matrices.len() * self.panels_of_rows()), COLUMNS);
        let strip = of_columns(wanted.div_ceil(self.packed_parts()), STRIP);
        (self.across, self.strip) = (across, strip);
    }

    /// Where a matrix of the result is.
    pub(super) fn output(&self, matrix: usize) -> Output {
        let first = self.output.first.cast_const();
        let first = self.output.element.at(first, matrix as isize * self.matrix).cast_mut();
        Output { first, ..self.output }
    }

    fn panels_of_rows(&self) -> usize {
        self.rows.div_ceil(self.level.rows())
    }

    /// Number of matrices and blocks of terms whose right factor is packed.
    fn packed_parts(&self) -> usize {
        let matrices = if self.shares_right { 1 } else { self.matrices.len() };
        matrices * self.terms.div_ceil(self.length)
    }

    fn packing(&self) -> Demand {
        let strips = self.columns.len().div_ceil(self.strip);
        // An element takes about 0.2 ns.
        demand((self.packed_parts() * strips) as u64, (self.strip * self.length / 5) as u64)
    }

    fn multiplying(&self) -> Demand {
        let tall = self.level.rows();
        let groups = self.matrices.len() * self.columns.len().div_ceil(self.across) * self.panels_of_rows();
        let group_ns = (tall * self.across) as u64 * self.terms as u64 / PER_NS;
        // Ranges of whole blocks, and smaller ones at the end.
        let range_ns = group_ns.saturating_mul(2 * most_panels(tall) as u64).max(RANGE_NS);
        Demand { range_ns, ..demand(groups as u64, group_ns) }
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
        let (strip, wide) = (self.strip, self.level.columns());
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

    /// Multiplies the first block of a range of groups. Returns the first group of the next one.
    fn multiply_first(&self, groups: Range<usize>, scratch: &mut Scratch) -> Result<usize> {
        let (panels, across) = (self.panels_of_rows(), self.columns.len().div_ceil(self.across));
        let (panel, rest) = (groups.start % panels, groups.start / panels);
        let count = groups.len().min(panels - panel).min(most_panels(self.level.rows()));
        self.multiply_block(
            self.matrices.start + rest / across,
            panel..panel + count,
            rest % across,
            scratch,
        )?;
        Ok(groups.start + count)
    }

    #[allow(unsafe_code)] // addresses of operands and panels
    fn multiply_block(
        &self,
        matrix: usize,
        panels: Range<usize>,
        column: usize,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let [tall, wide] = [self.level.rows(), self.level.columns()];
        let (row, column) = (panels.start * tall, column * self.across);
        let rows = row..self.rows.min(panels.end * tall);
        let columns = self.across.min(self.columns.len() - column);
        let is_direct = rows.len().is_multiple_of(4) && self.left.is_direct(self.columns.len());
        let packed = if is_direct { 0 } else { rows.len().next_multiple_of(tall) * self.length };
        let converted = if self.left.element == Element::F32 { 0 } else { rows.len() * self.length };
        let summed = rows.len().next_multiple_of(tall) * columns.next_multiple_of(wide);
        let summed = if self.length < self.terms { summed } else { 0 };
        let left: *mut f32 = scratch.reserve((packed + summed + converted) as u64 * 4)?.cast();
        let sums = left.wrapping_add(packed);
        let output = self.output(matrix);
        for term in (0..self.terms).step_by(self.length) {
            if self.stop.check().is_err() {
                break;
            }
            let terms = self.terms_from(term);
            // SAFETY: the primitive was validated against its operands, and the panels have been packed; no other group has the block.
            // Concurrent accesses would be a race of the program.
            unsafe {
                let left = if is_direct {
                    self.left.rows(matrix, rows.start, terms.start)
                } else {
                    self.left.pack(matrix, &rows, &terms, tall, sums.wrapping_add(summed), left);
                    Left::Panels(left)
                };
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
        run_blocks(&self.0.stop, groups, |groups| self.0.multiply_first(groups, scratch))
    }
}
