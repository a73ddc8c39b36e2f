//! Chooses the unroll-and-jam factor: the number of vectors that one iteration computes.
//!
//! If all threads of a threadgroup run a loop together, one iteration can process several vectors, so that uniform values (a row
//! of one matrix, a column of the other) are loaded once and stay in registers, and so that chains of loop-carried values overlap. The
//! loop-carried values of each vector must stay in registers too. A loop with neither gains nothing.

use std::collections::HashSet;

use elinvar_ir::{BlockId, Op, Operand, ValueId};

use crate::analysis::lane_layout::Layout;
use crate::analysis::uniformity::Uniformity;
use crate::analysis::vector_shape::{Known, Offsets, Pattern, Shape};
use crate::intrinsic::Position;
use crate::kernel::Kernel;

/// Maximum unroll-and-jam factor; larger factors gain nothing.
const MOST: u32 = 16;
/// Maximum number of instructions of a kernel, multiplied by the factor.
const CODE: usize = 6000;
/// Bytes of a cache line, at most.
const CACHE_LINE: u64 = 64;

/// The factor: 1 if the threadgroup's size is dynamic. From the uniformity with factor 1. `registers` is the number of vectors that fit into the registers.
pub(crate) fn factor(kernel: &Kernel, uniform: &Uniformity, layout: &Layout, registers: u32) -> u32 {
    let (Some((cfg, masks)), Some(per_row)) = (uniform.cfg(), layout.per_row) else { return 1 };
    let in_loop = |b: &BlockId| cfg.loop_of(*b).is_some();
    let parts_lanes = |b: &BlockId| uniform.divergent[b.0 as usize];
    // Simdgroup operations are within one vector, which is a simdgroup.
    if layout.is_dynamic
        || kernel.exchanges.is_some()
        || cfg.loops.is_empty()
        || masks.divergent_loops.contains(&true)
        || cfg.order.iter().any(|b| in_loop(b) && parts_lanes(b))
    {
        return 1;
    }
    let own = |header: BlockId| {
        let insts = kernel.function.block(header).insts.iter();
        let phis = insts.take_while(|i| matches!(i.op, Op::Phi { .. })).filter_map(|i| i.result);
        phis.filter(|v| uniform.of(*v).shape == Shape::Varying).count() as u32
    };
    let carried = (0..cfg.loops.len()).map(|l| {
        std::iter::successors(Some(l), |l| cfg.loops[*l].parent).map(|l| own(cfg.loops[l].header)).sum()
    });
    let carried: u32 = carried.max().unwrap_or(0);
    let shares = cfg.order.iter().filter(|b| in_loop(b)).any(|b| {
        kernel.function.block(*b).insts.iter().any(|inst| match &inst.op {
            Op::Load { ptr, .. } => uniform.at(&ptr.op, &ptr.ty, *b).is_uniform(),
            _ => false,
        })
    });
    if carried == 0 && !shares {
        return 1;
    }
    let code: usize = cfg.order.iter().map(|b| kernel.function.block(*b).insts.len()).sum();
    let mut factor = (registers * 5 / 8 / carried.max(1)).clamp(1, MOST);
    factor = 1 << factor.ilog2();
    let fits = |factor: u32| {
        layout.vectors().is_multiple_of(factor)
            && (per_row.is_multiple_of(factor) || factor.is_multiple_of(per_row))
            && code * factor as usize <= CODE
    };
    while factor > 1 && !fits(factor) {
        factor /= 2;
    }
    if replaces_lines(kernel, uniform, factor, per_row) { 1 } else { factor }
}

/// Whether each lane walks along cache lines of its own, so that those of several vectors replace each other: with a stride of a power of two, two
/// vectors are enough. Rows of the threadgroup share lines if the addresses depend on x alone.
fn replaces_lines(kernel: &Kernel, uniform: &Uniformity, factor: u32, per_row: u32) -> bool {
    let Some((cfg, _)) = uniform.cfg() else { return false };
    let rows = factor / per_row;
    let blocks = cfg.order.iter().filter(|b| cfg.loop_of(**b).is_some());
    let mut accesses =
        blocks.flat_map(|b| kernel.function.block(*b).insts.iter().map(move |inst| (*b, inst)));
    accesses.any(|(block, inst)| match &inst.op {
        Op::Load { ptr, .. } | Op::Store { ptr, .. } => {
            is_far_apart(&uniform.at(&ptr.op, &ptr.ty, block)) && {
                let [x, y, z] = thread_dimensions(kernel, uniform, &ptr.op);
                y || z || x && rows < per_row.max(2)
            }
        }
        _ => false,
    })
}

/// Whether lanes access cache lines of their own.
fn is_far_apart(address: &Known) -> bool {
    match &address.shape {
        Shape::Varying => true,
        Shape::Lanes(Pattern { offsets: Offsets::Linear(step), .. }) => step.unsigned_abs() >= CACHE_LINE,
        Shape::Lanes(_) | Shape::Unknown => false,
    }
}

/// The dimensions of the thread's position in the threadgroup of which an address is computed. Loaded indices do not count: a table's lines are shared.
fn thread_dimensions(kernel: &Kernel, uniform: &Uniformity, address: &Operand) -> [bool; 3] {
    let (mut found, mut seen) = ([false; 3], HashSet::new());
    let mut open: Vec<ValueId> = address.value().into_iter().collect();
    while let Some(value) = open.pop() {
        if !seen.insert(value) {
            continue;
        }
        if let Some((Position::Thread, dimension)) = kernel.positions.get(&value) {
            found[dimension % 3] = true;
        }
        if let Some(inst) = uniform.definition(kernel, value)
            && matches!(
                inst.op,
                Op::Binary { .. }
                    | Op::Cast { .. }
                    | Op::Gep { .. }
                    | Op::Select { .. }
                    | Op::Phi { .. }
                    | Op::Freeze(_)
            )
        {
            open.extend(inst.op.operands().into_iter().filter_map(Operand::value));
        }
    }
    found
}
