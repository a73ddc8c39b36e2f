//! How many vectors of a group to compute side by side.
//!
//! Where all threads of a group go through a loop together, several vectors can go through it as one step, so that
//! what they have in common (a row of one matrix, a column of the other) is loaded once and stays in registers.
//! What each has of its own, the values carried round the loop, must stay in registers too.

use elinvar_ir::{BlockId, Op};

use crate::analysis::lane_layout::Layout;
use crate::analysis::uniformity::Uniformity;
use crate::analysis::vector_shape::Shape;
use crate::transform::lower_primitives::Kernel;

/// More than this brings nothing.
const MOST: u32 = 16;
/// Instructions that a kernel may have, taken times the vectors.
const CODE: usize = 6000;

/// The vectors side by side, by what is known with one. `registers` is how many vectors the processor holds.
pub(crate) fn parts(kernel: &Kernel, uniform: &Uniformity, layout: &Layout, registers: u32) -> u32 {
    let (Some((flow, masks)), Some(per_row)) = (uniform.flow(), layout.per_row) else { return 1 };
    let in_loop = |b: &BlockId| flow.loop_of(*b).is_some();
    let parts_lanes = |b: &BlockId| uniform.divergent[b.0 as usize];
    // An exchange is within one vector, which is a simdgroup then.
    if kernel.exchanges.is_some()
        || flow.loops.is_empty()
        || masks.divergent_loops.contains(&true)
        || flow.order.iter().any(|b| in_loop(b) && parts_lanes(b))
    {
        return 1;
    }
    let own = |header: BlockId| {
        let insts = kernel.function.block(header).insts.iter();
        let phis = insts.take_while(|i| matches!(i.op, Op::Phi { .. })).filter_map(|i| i.result);
        phis.filter(|v| uniform.of(*v).shape == Shape::Varying).count() as u32
    };
    let carried = (0..flow.loops.len()).map(|l| {
        std::iter::successors(Some(l), |l| flow.loops[*l].parent).map(|l| own(flow.loops[l].header)).sum()
    });
    let carried: u32 = carried.max().unwrap_or(0);
    let code: usize = flow.order.iter().map(|b| kernel.function.block(*b).insts.len()).sum();
    let mut parts = (registers * 5 / 8 / carried.max(1)).clamp(1, MOST);
    parts = 1 << parts.ilog2();
    let fits = |parts: u32| {
        layout.vectors().is_multiple_of(parts)
            && (per_row.is_multiple_of(parts) || parts.is_multiple_of(per_row))
            && code * parts as usize <= CODE
    };
    while parts > 1 && !fits(parts) {
        parts /= 2;
    }
    parts
}
