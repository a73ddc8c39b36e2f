//! Products whose left factor is read where it is and stays in a core's cache: one job, in which a group is a part of the rows, for a panel of
//! columns. A worker packs the panels of the right factor that it multiplies, so that no worker waits for, or reads, what another has packed.

use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use elinvar_driver::Result;
use elinvar_gemm::{Block, Left, Right, multiply as multiply_block};

use super::factor::Factor;
use super::packed::Product;
use super::{PER_NS, demand, run_blocks};
use crate::job::{Demand, RANGE_NS, Work};
use crate::pool::Worker;
use crate::scratch::Scratch;

/// The most elements of a left factor, and the most terms of a panel of the right one: a core's second cache has room for both.
const LEFT: usize = 1 << 18;
const TERMS: usize = 1024;
/// Groups for each worker.
const GROUPS_PER_WORKER: usize = 12;
/// Groups of a range, while there are more than twice as many.
const GROUPS_OF_RANGE: u64 = 16;

/// Whether a product of these rows, columns and terms is computed here. One worker packs the right factor once, and uses a part of the left one at a
/// time.
pub(super) fn applies(left: &Factor, [rows, columns, terms]: [usize; 3], workers: usize) -> bool {
    workers > 1 && left.is_direct(columns) && terms <= TERMS && rows * terms <= LEFT
}

/// Computes all matrices and columns of a product.
pub(super) fn multiply(product: Product, worker: &mut Worker) -> Result<()> {
    let (tall, wide) = (product.level.rows(), product.level.columns());
    let panels = product.columns.len().div_ceil(wide);
    let wanted = worker.workers() * GROUPS_PER_WORKER;
    let parts = wanted.div_ceil(product.matrices.len() * panels);
    let height = product.rows.div_ceil(tall).div_ceil(parts) * tall;
    let direct = Direct { panels, height, parts: product.rows.div_ceil(height), product };
    let demand = direct.demand();
    worker.run(&Arc::new(direct), demand).map(drop)
}

struct Direct {
    product: Product,
    /// Panels of columns.
    panels: usize,
    /// Rows of a group: whole tiles.
    height: usize,
    /// Groups of a panel.
    parts: usize,
}

impl Direct {
    fn demand(&self) -> Demand {
        let Product { level, terms, matrices, .. } = &self.product;
        let groups = matrices.len() * self.panels * self.parts;
        let group_ns = (self.height * level.columns() * terms) as u64 / PER_NS;
        Demand { range_ns: (GROUPS_OF_RANGE * group_ns).max(RANGE_NS), ..demand(groups as u64, group_ns) }
    }

    /// Multiplies the groups of a range that have the first one's panel. Returns the first of the next panel.
    #[allow(unsafe_code)] // addresses of operands and panels
    fn multiply_first(&self, groups: Range<usize>, scratch: &mut Scratch) -> Result<usize> {
        let product = &self.product;
        let (tall, wide) = (product.level.rows(), product.level.columns());
        let (part, rest) = (groups.start % self.parts, groups.start / self.parts);
        let (matrix, column) = (rest / self.panels, rest % self.panels * wide);
        let count = groups.len().min(self.parts - part);
        let rows = part * self.height..product.rows.min((part + count) * self.height);
        let columns = column..product.columns.len().min(column + wide);
        let terms = 0..product.terms;
        let right: *mut f32 = scratch.reserve(((wide + tall) * terms.len()) as u64 * 4)?.cast();
        let left = right.wrapping_add(wide * terms.len());
        let output = product.output(matrix);
        let multiply = |left, first, count| {
            let block = Block {
                left,
                right: Right::Panels(right),
                at: [first, column],
                size: [count, columns.len()],
                terms: terms.len(),
                sums: std::ptr::null_mut(),
                is_first: true,
                is_last: true,
            };
            // SAFETY: the primitive was validated against its operands; no other group has the rows of the panel. Concurrent accesses would be a
            // race of the program.
            unsafe { multiply_block(product.level, &block, &output) };
        };
        // Tiles have a multiple of four rows; others are packed.
        let packed = rows.end - rows.len() % 4..rows.end;
        // SAFETY: as above; there is room for both panels.
        unsafe {
            product.right.pack(matrix, &columns, &terms, wide, std::ptr::null_mut(), right);
            multiply(product.left.rows(matrix, rows.start, 0), rows.start, packed.start - rows.start);
            if !packed.is_empty() {
                product.left.pack(matrix, &packed, &terms, tall, std::ptr::null_mut(), left);
                multiply(Left::Panels(left), packed.start, packed.len());
            }
        }
        Ok(groups.start + count)
    }
}

impl Work for Direct {
    fn run(&self, groups: Range<u64>, scratch: &mut Scratch) -> ControlFlow<()> {
        run_blocks(&self.product.stop, groups, |groups| self.multiply_first(groups, scratch))
    }
}
