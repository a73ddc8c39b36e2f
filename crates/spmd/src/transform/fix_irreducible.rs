//! Makes the loops of regions reducible: loops with two entries become loops with one.
//!
//! Clang emits no irreducible loops. But a region begins after a barrier, in the middle of a loop, and may reach an enclosing
//! loop by two paths:
//!
//! ```text
//! for (…) {
//!     for (…) {
//!         if (…) break;
//!         threadgroup_barrier(…);         // behind it: to the header of the inner loop, or to its end;
//!     }                                   // both are on a barrier-free path around the outer loop
//! }
//! ```
//!
//! The edges into one of the entries become barriers without memory order: a region ends there, and the next begins at that
//! entry. All threads of a threadgroup take such an edge together if they reach the same barriers in the same iterations, as
//! Metal requires; exited threads do not matter.

use std::collections::HashSet;

use elinvar_ir::{BlockId, Op, Term};

use crate::analysis::cfg::{Cfg, Irreducible};
use crate::analysis::regions::{self, Region};
use crate::kernel::{Barrier, BarrierKind, Kernel};

/// Maximum number of entries that are cut; beyond it the kernel counts as irreducible.
const MOST: usize = 32;

/// Splits the regions of `kernel` until all their loops have one entry.
///
/// # Errors
/// If the whole function has a loop with two entries, which splitting cannot fix.
pub(crate) fn split_regions(kernel: &mut Kernel) -> Result<(), Irreducible> {
    Cfg::new(&kernel.function, BlockId(0), |_| false)?;
    for _ in 0..MOST {
        let regions = regions::regions(kernel);
        let Some((number, entry, from)) = regions.iter().enumerate().find_map(|(n, r)| {
            let (entry, from) = second_entry(kernel, r)?;
            Some((n, entry, from))
        }) else {
            return Ok(());
        };
        let location = number.checked_sub(1).and_then(|n| kernel.barriers[n].location.clone());
        for block in from {
            let (last, cont) = (kernel.function.new_block(None), kernel.function.new_block(None));
            redirect(kernel, block, entry, last, cont);
            let (device, kind) = (false, BarrierKind::Threadgroup);
            kernel.barriers.push(Barrier { from: last, cont, device, kind, location: location.clone() });
        }
    }
    Err(Irreducible)
}

/// An entry of an irreducible loop, other than the first one reached, and its predecessors outside the loop.
fn second_entry(kernel: &Kernel, region: &Region) -> Option<(BlockId, Vec<BlockId>)> {
    if region.blocks.is_empty() {
        return None;
    }
    let ends = |b: BlockId| kernel.barrier_after(b).is_some();
    let Err(_) = Cfg::new(&kernel.function, region.start, ends) else { return None };
    // The blocks of a cycle reach one another.
    let reached: Vec<(BlockId, Vec<bool>)> = region
        .blocks
        .iter()
        .map(|block| {
            let mut behind = vec![false; kernel.function.blocks.len()];
            let next = successors(kernel, *block);
            for to in next {
                let inside = regions::reachable(kernel, to, None);
                behind.iter_mut().zip(inside).for_each(|(a, b)| *a |= b);
            }
            (*block, behind)
        })
        .collect();
    let reaches = |a: usize, b: usize| reached[a].1[reached[b].0.0 as usize];
    for a in 0..reached.len() {
        let cycle: Vec<usize> = (0..reached.len()).filter(|b| reaches(a, *b) && reaches(*b, a)).collect();
        let inside: HashSet<BlockId> = cycle.iter().map(|b| reached[*b].0).collect();
        let from = |entry: BlockId| -> Vec<BlockId> {
            let outside = region.blocks.iter().filter(|b| !inside.contains(b));
            outside.filter(|b| successors(kernel, **b).contains(&entry)).copied().collect()
        };
        let entries: Vec<(BlockId, Vec<BlockId>)> = cycle
            .iter()
            .map(|b| (reached[*b].0, from(reached[*b].0)))
            .filter(|(_, from)| !from.is_empty())
            .collect();
        if entries.len() > 1 {
            return entries.into_iter().min_by_key(|(_, from)| from.len());
        }
    }
    None
}

fn successors(kernel: &Kernel, block: BlockId) -> Vec<BlockId> {
    match kernel.barrier_after(block) {
        Some(_) => Vec::new(),
        None => kernel.function.block(block).term.successors(),
    }
}

/// Redirects the edges from `block` to `entry` through `last` and `cont`.
fn redirect(kernel: &mut Kernel, block: BlockId, entry: BlockId, last: BlockId, cont: BlockId) {
    let function = &mut kernel.function;
    function.block_mut(block).term.map_successors(|to| if to == entry { last } else { to });
    function.block_mut(last).term = Term::Br(cont);
    function.block_mut(cont).term = Term::Br(entry);
    for inst in &mut function.block_mut(entry).insts {
        let Op::Phi { incoming, .. } = &mut inst.op else { break };
        // A switch may have several edges to it, with the same value.
        let mut seen = false;
        incoming.retain(|(_, from)| *from != block || !std::mem::replace(&mut seen, true));
        incoming.iter_mut().filter(|(_, from)| *from == block).for_each(|(_, from)| *from = cont);
    }
}

#[cfg(test)]
mod tests {
    use elinvar_ir::{Module, verify};

    use super::*;

    /// Two loops around a barrier, the inner one left before it.
    const NESTED: &str = "
        declare i32 @__elinvar_thread_position_in_threadgroup(i32)
        declare void @__elinvar_threadgroup_barrier(i32)
        define void @__elinvar_entry(ptr %a) {
        entry:
          br label %outer
        outer:
          %i = phi i32 [ 0, %entry ], [ %i2, %latch ]
          %n = load i32, ptr %a
          %none = icmp eq i32 %n, 0
          br i1 %none, label %latch, label %inner
        inner:
          %j = phi i32 [ 0, %outer ], [ %j2, %met ]
          %j2 = add i32 %j, 1
          %leave = icmp eq i32 %j2, %n
          br i1 %leave, label %latch, label %met
        met:
          call void @__elinvar_threadgroup_barrier(i32 2)
          %m = load i32, ptr %a
          %more = icmp ult i32 %j2, %m
          br i1 %more, label %inner, label %latch
        latch:
          %i2 = add i32 %i, 1
          %again = icmp ult i32 %i2, 9
          br i1 %again, label %outer, label %end
        end:
          ret void
        }";

    #[test]
    fn a_region_in_two_loops_is_cut() {
        let module = Module::parse(NESTED).unwrap();
        let mut kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        let is_reducible = |kernel: &Kernel| {
            let analyses = &mut crate::analysis::Analyses::default();
            crate::analysis::legality::reducible(&module, kernel, analyses).is_ok()
        };
        assert!(!is_reducible(&kernel));
        split_regions(&mut kernel).unwrap();
        assert!(is_reducible(&kernel));
        let regions = regions::regions(&kernel);
        // One more barrier, on the one edge, which orders nothing.
        assert_eq!((kernel.barriers.len(), regions.len()), (2, 3));
        assert!(!kernel.barriers[1].device);
        let cont = kernel.barriers[1].cont;
        let phi = kernel.function.block(kernel.function.block(cont).term.successors()[0]).insts[0].clone();
        assert!(matches!(phi.op, Op::Phi { incoming, .. } if incoming.iter().any(|(_, from)| *from == cont)));
        let whole = Module { functions: vec![kernel.function], ..module };
        assert!(verify(&whole).is_ok());
    }
}
