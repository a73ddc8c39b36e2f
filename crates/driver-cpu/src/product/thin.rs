//! Small products, and products with few rows or columns, by the crate [`gemm`](https://docs.rs/gemm): tiles of the result, each computed
//! by one thread.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use elinvar_driver::primitive::{Activation, MatMul, Matrix};
use elinvar_driver::{Error, MemorySlice, Result};
use elinvar_gemm::Element;

use super::{PER_NS, activation, demand, element, run};
use crate::encode::address;
use crate::job::Work;
use crate::pool::Worker;
use crate::scratch::Scratch;
use crate::stop::Stop;

/// Tiles for each worker, if the product is large enough: what one worker does longer than the others is a part of a tile.
const TILES_PER_WORKER: u32 = 2;
/// Largest number of rows and columns of a tile of 16-bit numbers, and the terms whose factors are converted at a time: a tile and its
/// factors take 2 MiB as `f32`.
const WIDENED: u32 = 512;
const TERMS: usize = 256;
/// Smallest number of rows and columns of a tile that is worth packing its factors.
const LEAST: u32 = 96;

/// A product in progress. The submission keeps the operands' memory alive.
struct Product {
    p: MatMul,
    element: Element,
    left: *const u8,
    right: *const u8,
    bias: *const u8,
    result: *mut u8,
    /// Rows and columns of a tile.
    tile: [u32; 2],
    /// Number of tiles along the rows and the columns.
    tiles: [u64; 2],
    stop: Arc<Stop>,
}

#[allow(unsafe_code)] // addresses of memory that the submission keeps
// SAFETY: tiles are disjoint, and the factors are only read.
unsafe impl Send for Product {}
#[allow(unsafe_code)] // as above
// SAFETY: as above.
unsafe impl Sync for Product {}

/// Computes a product: left, right, bias if there is one, result.
pub(crate) fn multiply(
    p: &MatMul,
    operands: &[MemorySlice],
    stop: &Arc<Stop>,
    worker: &mut Worker,
) -> Result<()> {
    let [left, right, .., result] = operands else {
        return Err(Error::invalid("matrix multiplication: operands are missing"));
    };
    let bias = if p.bias { address(&operands[2])?.cast_const() } else { std::ptr::null() };
    let mut tile = tile([p.result.rows, p.result.columns], p.matrices, worker.workers());
    let element = element(p.data_type)?;
    if element != Element::F32 {
        tile = tile.map(|side| side.min(WIDENED));
    }
    let tiles = [p.result.rows.div_ceil(tile[0]), p.result.columns.div_ceil(tile[1])].map(u64::from);
    let product = Product {
        p: *p,
        element,
        left: address(left)?,
        right: address(right)?,
        bias,
        result: address(result)?,
        tile,
        tiles,
        stop: stop.clone(),
    };
    let of_tile = u64::from(tile[0]) * u64::from(tile[1]);
    // Below 2^62, as the operands are in memory.
    let groups = tiles[0].saturating_mul(tiles[1]).saturating_mul(u64::from(p.matrices));
    let demand = demand(groups, of_tile.saturating_mul(u64::from(p.interior())) / PER_NS);
    worker.run(&Arc::new(product), demand)?;
    stop.check()
}

/// Rows and columns of a tile: halves of the longer side until there are tiles enough, or they are small.
fn tile(mut size: [u32; 2], matrices: u32, workers: usize) -> [u32; 2] {
    let wanted = u64::try_from(workers).unwrap_or(u64::MAX).saturating_mul(u64::from(TILES_PER_WORKER));
    let mut tiles = u64::from(matrices);
    while workers > 1 && tiles < wanted {
        let longer = usize::from(size[1] > size[0]);
        if size[longer] < 2 * LEAST {
            break;
        }
        size[longer] = size[longer].div_ceil(2).next_multiple_of(16);
        tiles = tiles.saturating_mul(2);
    }
    size
}

impl Work for Product {
    fn run(&self, groups: Range<u64>, _scratch: &mut Scratch) -> ControlFlow<()> {
        run(&self.stop, groups, |group| {
            match self.element {
                Element::F32 => self.tile(group as u64),
                Element::F16 | Element::BF16 => self.widened(group as u64),
            }
            Ok(())
        })
    }
}

/// A part of a matrix: the address of its first element, and the strides of rows and columns in elements.
#[derive(Clone, Copy)]
struct Part {
    first: *mut u8,
    element: Element,
    down: isize,
    across: isize,
}

impl Part {
    fn at(self, row: usize, column: usize) -> Self {
        let offset = row as isize * self.down + column as isize * self.across;
        Self { first: self.element.at(self.first, offset).cast_mut(), ..self }
    }

    /// # Safety
    /// The part must have the element.
    #[allow(unsafe_code)] // addresses
    unsafe fn read(self, row: usize, column: usize) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { self.element.read(self.at(row, column).first, 0) }
    }

    /// # Safety
    /// As for `read`, without another access.
    #[allow(unsafe_code)] // addresses
    unsafe fn write(self, row: usize, column: usize, value: f32) {
        // SAFETY: the caller's promise.
        unsafe { self.element.write(self.at(row, column).first, 0, value) };
    }
}

/// A tile, with its factors.
struct Tile {
    rows: usize,
    columns: usize,
    left: Part,
    right: Part,
    result: Part,
    /// A row with elements for the columns.
    bias: Option<Part>,
}

impl Product {
    fn place(&self, group: u64) -> Tile {
        let (p, element) = (&self.p, self.element);
        let of_matrix = self.tiles[0] * self.tiles[1];
        let (tile, matrix) = (group % of_matrix, (group / of_matrix) as isize);
        let row = (tile / self.tiles[1]) as usize * self.tile[0] as usize;
        let column = (tile % self.tiles[1]) as usize * self.tile[1] as usize;
        let part = |first: *const u8, shape: Matrix, turned: bool| {
            let [line, whole] =
                [shape.row_bytes, shape.matrix_bytes].map(|bytes| (bytes / element.size() as u64) as isize);
            let (down, across) = if turned { (1, line) } else { (line, 1) };
            Part { first: element.at(first, matrix * whole).cast_mut(), element, down, across }
        };
        let bias = Part { first: self.bias.cast_mut(), element, down: 0, across: 1 };
        Tile {
            rows: (p.result.rows as usize - row).min(self.tile[0] as usize),
            columns: (p.result.columns as usize - column).min(self.tile[1] as usize),
            left: part(self.left, p.left, p.transpose_left).at(row, 0),
            right: part(self.right, p.right, p.transpose_right).at(0, column),
            result: part(self.result, p.result, false).at(row, column),
            bias: p.bias.then(|| bias.at(0, column)),
        }
    }

    #[allow(unsafe_code)] // addresses in operands
    fn tile(&self, group: u64) {
        let p = &self.p;
        let Tile { rows, columns, left, right, result, bias } = self.place(group);
        // SAFETY: the primitive was validated against its operands, and the tile is within the result; no other tile has its elements.
        // Concurrent accesses would be a race of the program.
        unsafe {
            multiply_into(result, p.beta, left, right, p.alpha, [rows, columns, p.interior() as usize])
        };
        if bias.is_none() && p.activation == Activation::None {
            return;
        }
        for row in 0..rows {
            for column in 0..columns {
                // SAFETY: as above; the bias has an element for each column.
                unsafe {
                    let added = bias.map_or(0.0, |bias| bias.read(0, column));
                    let sum = result.read(row, column) + added;
                    result.write(row, column, activation(p.activation).of(sum));
                }
            }
        }
    }

    /// A tile of 16-bit numbers: sums are kept in `f32`, and rounded once.
    #[allow(unsafe_code)] // addresses in operands
    fn widened(&self, group: u64) {
        let p = &self.p;
        let Tile { rows, columns, left, right, result, bias } = self.place(group);
        let terms = p.interior() as usize;
        let mut sums = vec![0.0f32; rows * columns];
        let (mut of_left, mut of_right) = (Vec::new(), Vec::new());
        let all = floats(&mut sums, columns as isize, 1);
        for term in (0..terms).step_by(TERMS) {
            let count = (terms - term).min(TERMS);
            let beta = if term == 0 { 0.0 } else { 1.0 };
            // SAFETY: as for `tile`; the sums are local, and the factors have been converted.
            unsafe {
                let left = widen(left.at(0, term), [rows, count], &mut of_left);
                let right = widen(right.at(term, 0), [count, columns], &mut of_right);
                multiply_into(all, beta, left, right, p.alpha, [rows, columns, count]);
            }
        }
        for row in 0..rows {
            for column in 0..columns {
                let sum = sums[row * columns + column];
                // SAFETY: as for `tile`.
                unsafe {
                    let held = if p.beta == 0.0 { 0.0 } else { p.beta * result.read(row, column) };
                    let added = bias.map_or(0.0, |bias| bias.read(0, column));
                    result.write(row, column, activation(p.activation).of(sum + held + added));
                }
            }
        }
    }
}

/// `result = beta · result + alpha · left · right` of rows, columns and terms, all `f32`. If beta is 0, the result is not read.
///
/// # Safety
/// The parts must be valid, and the result not overlap the factors.
#[allow(unsafe_code)] // addresses
unsafe fn multiply_into(
    result: Part,
    beta: f32,
    left: Part,
    right: Part,
    alpha: f32,
    [rows, columns, terms]: [usize; 3],
) {
    // SAFETY: the caller's promise.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            terms,
            result.first.cast::<f32>(),
            result.across,
            result.down,
            beta != 0.0,
            left.first.cast::<f32>(),
            left.across,
            left.down,
            right.first.cast::<f32>(),
            right.across,
            right.down,
            beta,
            alpha,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Converts a part of a matrix, which has contiguous rows or columns, to `f32`, with its elements in the same order.
///
/// # Safety
/// The part must be valid.
#[allow(unsafe_code)] // addresses
unsafe fn widen(part: Part, [rows, columns]: [usize; 2], to: &mut Vec<f32>) -> Part {
    to.resize(rows * columns, 0.0);
    let by_rows = part.across == 1;
    let length = if by_rows { columns } else { rows };
    for (number, line) in to.chunks_exact_mut(length).enumerate() {
        let first = if by_rows { part.at(number, 0) } else { part.at(0, number) }.first;
        // SAFETY: the elements of a line are contiguous.
        unsafe { elinvar_gemm::widen(part.element, first, 1, line) };
    }
    let (down, across) = if by_rows { (length as isize, 1) } else { (1, length as isize) };
    floats(to, down, across)
}

fn floats(of: &mut [f32], down: isize, across: isize) -> Part {
    Part { first: of.as_mut_ptr().cast(), element: Element::F32, down, across }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_cut_for_all_workers() {
        assert_eq!(tile([1024, 1024], 1, 1), [1024, 1024]);
        assert_eq!(tile([1024, 1024], 1, 2), [512, 512]);
        assert_eq!(tile([1024, 1024], 8, 2), [1024, 1024]);
        assert_eq!(tile([100_000, 1], 1, 2), [25_008, 1]);
        assert_eq!(tile([7, 5], 1, 64), [7, 5]);
        assert_eq!(tile([256, 256], 1, 64), [128, 128]);
    }
}
