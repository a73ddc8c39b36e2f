//! Temporal divergence: values that some lanes redefine while others still need the previous definition.
//!
//! The back edge of a loop with barriers lies between two of them, so a region may run the loop's header, whose values it began
//! with. If lanes diverge on the way, those on other paths still need the previous values: up to the barrier or the return at
//! which they end, or behind a loop of the region that other lanes are still in. The masked version runs all paths on the same
//! slots, one after the other, including blocks that turn out to have no active lane. Such a value therefore has an element per
//! lane regardless of its shape, and inactive lanes keep theirs.
//!
//! The same holds for the phis of a loop's header where lanes of different iterations meet: lanes that took the back edge, and
//! lanes that left the loop and entered it anew, in the next iteration of a loop around it. In the function's CFG the header is
//! no join of divergent paths; in the region's, which ends at the loop's barrier, it is.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use elinvar_ir::{BlockId, Op, Operand, ValueId};

use crate::analysis::cfg::Cfg;
use crate::analysis::liveness::Liveness;
use crate::analysis::mask_classes::MaskClasses;
use crate::analysis::regions::Region;
use crate::analysis::uniformity::Uniformity;
use crate::kernel::Kernel;

/// The definitions and uses of a kernel's values in each of its regions.
#[derive(Default)]
pub(crate) struct TemporalDivergence {
    regions: Vec<(Rc<Cfg>, HashSet<Use>)>,
}

/// A use of a value that a block of the region defines, other than in that block.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Use {
    value: ValueId,
    home: BlockId,
    at: BlockId,
    /// Whether the value is live after the barrier at the block's end.
    across: bool,
}

impl TemporalDivergence {
    pub fn new(kernel: &Kernel, regions: &[Region], cfgs: &[Option<Rc<Cfg>>], live: &Liveness) -> Self {
        let function = &kernel.function;
        let mut homes: HashMap<ValueId, (BlockId, &Op)> = HashMap::new();
        for block in function.block_ids() {
            let insts = function.block(block).insts.iter();
            homes.extend(insts.filter_map(|inst| Some((inst.result?, (block, &inst.op)))));
        }
        let regions = regions.iter().zip(cfgs).filter_map(|(region, cfg)| {
            let cfg = cfg.clone()?;
            let mut uses = uses(kernel, region, live, &cfg, &homes);
            uses.retain(|u| cfg.reaches(u.home) && may_be_late(&cfg, u));
            Some((cfg, uses))
        });
        Self { regions: regions.collect() }
    }

    /// The values, given the divergent branches.
    pub fn values(&self, kernel: &Kernel, uniform: &Uniformity) -> HashSet<ValueId> {
        let mut values = HashSet::new();
        for (cfg, uses) in &self.regions {
            let branches: Vec<BlockId> = cfg
                .order
                .iter()
                .copied()
                .filter(|b| uniform.divergent[b.0 as usize] && cfg.successors[b.0 as usize].len() > 1)
                .collect();
            if branches.is_empty() {
                continue;
            }
            let masks = MaskClasses::new(cfg, &uniform.divergent);
            for block in cfg.order.iter().filter(|b| masks.mixes(cfg, &uniform.divergent, **b)) {
                let insts = &kernel.function.block(*block).insts;
                let phis = insts.iter().take_while(|inst| matches!(inst.op, Op::Phi { .. }));
                values.extend(phis.filter_map(|phi| phi.result));
            }
            let mut known = HashMap::new();
            for u in uses {
                let place = (u.home, u.at, u.across);
                let is_late = *known.entry(place).or_insert_with(|| is_late(cfg, &masks, &branches, place));
                if is_late && !uniform.has_left(u.value, u.at) && !is_the_same_again(kernel, uniform, u.value)
                {
                    values.insert(u.value);
                }
            }
        }
        values
    }
}

/// The uses of values in a region's blocks, including operands of rematerialized addresses.
fn uses(
    kernel: &Kernel,
    region: &Region,
    live: &Liveness,
    cfg: &Cfg,
    homes: &HashMap<ValueId, (BlockId, &Op)>,
) -> HashSet<Use> {
    let mut uses = HashSet::new();
    let mut add = |value: ValueId, at: BlockId, across: bool| {
        let mut todo = vec![value];
        while let Some(value) = todo.pop() {
            let Some((home, op)) = homes.get(&value) else { continue };
            let has_parts =
                matches!(op, Op::Binary { .. } | Op::Cast { .. } | Op::Gep { .. } | Op::Freeze(_));
            let is_elsewhere = *home != at || across;
            if is_elsewhere && uses.insert(Use { value, home: *home, at, across }) && has_parts {
                todo.extend(op.operands().into_iter().filter_map(Operand::value));
            }
        }
    };
    for block in &region.blocks {
        let code = kernel.function.block(*block);
        for inst in &code.insts {
            match &inst.op {
                Op::Phi { incoming, .. } => {
                    let comes = |from: &BlockId| cfg.successors[from.0 as usize].contains(block);
                    let here = incoming.iter().filter(|(_, from)| comes(from));
                    here.for_each(|(o, from)| o.value().into_iter().for_each(|v| add(v, *from, false)));
                }
                op => {
                    op.operands().into_iter().filter_map(Operand::value).for_each(|v| add(v, *block, false))
                }
            }
        }
        code.term.operands().into_iter().filter_map(Operand::value).for_each(|v| add(v, *block, false));
        if let Some(barrier) = kernel.barrier_after(*block) {
            live.across[barrier].iter().for_each(|v| add(*v, *block, true));
        }
    }
    uses
}

/// As [`is_late`], with every branch assumed to be divergent.
fn may_be_late(cfg: &Cfg, u: &Use) -> bool {
    let mut around = cfg.loops_around(u.home);
    if cfg.dominates(u.home, u.at) {
        return around.any(|l| !cfg.contains(l, u.at));
    }
    u.across || cfg.position(u.at) > cfg.position(u.home) || around.any(|l| cfg.contains(l, u.at))
}

/// Whether lanes may be at `at`, or at the barrier after it, with the values of one execution of `home` after other lanes have executed it again.
fn is_late(
    cfg: &Cfg,
    masks: &MaskClasses,
    branches: &[BlockId],
    (home, at, across): (BlockId, BlockId, bool),
) -> bool {
    if cfg.dominates(home, at) {
        return masks.leaves_divergent_loop(cfg, home, at);
    }
    let common = cfg.loops_around(home).find(|l| cfg.contains(*l, at));
    if common.is_none() && !across && cfg.position(at) < cfg.position(home) {
        return false;
    }
    let to_home = reaching(cfg, home, None);
    let past_home = reaching(cfg, at, Some(home));
    branches.iter().any(|b| {
        let inside = common.is_none_or(|l| cfg.contains(l, *b));
        inside && to_home.contains(b) && past_home.contains(b)
    })
}

/// The blocks with an edge on a path to `to` that avoids `without`, which may itself begin one.
fn reaching(cfg: &Cfg, to: BlockId, without: Option<BlockId>) -> HashSet<BlockId> {
    let (mut found, mut todo) = (HashSet::new(), vec![to]);
    while let Some(block) = todo.pop() {
        for from in &cfg.predecessors[block.0 as usize] {
            if found.insert(*from) && Some(*from) != without {
                todo.push(*from);
            }
        }
    }
    found
}

/// Whether a value is the same whenever it is computed: it depends on parameters, positions and constants only.
fn is_the_same_again(kernel: &Kernel, uniform: &Uniformity, value: ValueId) -> bool {
    let (mut seen, mut todo) = (HashSet::new(), vec![value]);
    while let Some(value) = todo.pop() {
        if uniform.home(value).is_none() || !seen.insert(value) {
            continue;
        }
        match uniform.definition(kernel, value).map(|inst| &inst.op) {
            Some(
                op @ (Op::Binary { .. }
                | Op::Cast { .. }
                | Op::Gep { .. }
                | Op::ICmp { .. }
                | Op::Select { .. }),
            ) => todo.extend(op.operands().into_iter().filter_map(Operand::value)),
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use elinvar_ir::Module;

    use super::*;
    use crate::analysis::lane_layout::Layout;
    use crate::transform::lower_intrinsics;

    /// The names of the values that are overwritten in a loop of two barriers, the second of which is skipped by `%skip`.
    fn temporal(skip: &str, lanes: u32) -> Vec<String> {
        let text = format!(
            "declare i32 @__elinvar_thread_position_in_threadgroup(i32)
            declare void @__elinvar_threadgroup_barrier(i32)
            define void @__elinvar_entry(ptr %a, ptr %b) {{
            entry:
              %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
              %n = load i32, ptr %b
              %p = getelementptr i32, ptr %a, i32 %t
              br label %loop
            loop:
              %i = phi i32 [ 0, %entry ], [ %i2, %latch ]
              %sum = phi i32 [ 0, %entry ], [ %last, %latch ]
              %w = add i32 %t, 5
              call void @__elinvar_threadgroup_barrier(i32 2)
              %own = load i32, ptr %p
              %next = add i32 %sum, %own
              %skip = icmp eq i32 {skip}, 0
              br i1 %skip, label %latch, label %meet
            meet:
              call void @__elinvar_threadgroup_barrier(i32 2)
              %more = add i32 %next, %i
              br label %latch
            latch:
              %last = phi i32 [ %next, %loop ], [ %more, %meet ]
              %i2 = add i32 %i, 1
              store i32 %w, ptr %p
              %again = icmp ult i32 %i2, %n
              br i1 %again, label %loop, label %end
            end:
              store i32 %last, ptr %p
              ret void
            }}"
        );
        divergent_values(&text, lanes)
    }

    /// The names of the temporally divergent values.
    fn divergent_values(text: &str, lanes: u32) -> Vec<String> {
        let module = Module::parse(text).unwrap();
        let kernel = lower_intrinsics::lower(&module).unwrap();
        let layout = Layout::new([64, 1, 1], lanes, false);
        let uniform =
            crate::analysis::Analyses::default().get::<Uniformity>(&module, &kernel, &layout).unwrap();
        let values = (0..kernel.function.values.len()).map(|v| ValueId(v as u32));
        let mut names: Vec<String> = values
            .filter(|v| uniform.is_temporally_divergent(*v))
            .inspect(|v| assert_eq!(uniform.of(*v).shape, crate::analysis::vector_shape::Shape::Varying))
            .filter_map(|v| kernel.function.values[v.0 as usize].name.clone())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn threads_that_skip_a_barrier_have_gone_on() {
        // Those that wait at it still need the counter of their round; `%next` is not computed again before the barriers. It
        // might be part of an address, which is computed anew from `%sum`.
        assert_eq!(temporal("%own", 8), ["i", "sum"]);
        assert_eq!(temporal("%own", 1), [""; 0]);
    }

    /// As `temporal`, of a loop with a barrier that lanes leave on `%limit`, in a loop.
    fn nested(limit: &str, lanes: u32) -> Vec<String> {
        let text = format!(
            "declare i32 @__elinvar_thread_position_in_threadgroup(i32)
            declare void @__elinvar_threadgroup_barrier(i32)
            define void @__elinvar_entry(ptr %a, ptr %b) {{
            entry:
              %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
              %n = load i32, ptr %b
              %p = getelementptr i32, ptr %a, i32 %t
              br label %outer
            outer:
              %i = phi i32 [ 0, %entry ], [ %i2, %latch ]
              br label %inner
            inner:
              %j = phi i32 [ 0, %outer ], [ %j2, %inner ]
              call void @__elinvar_threadgroup_barrier(i32 2)
              %own = load i32, ptr %p
              %j2 = add i32 %j, 1
              %again = icmp ult i32 %j2, {limit}
              br i1 %again, label %inner, label %latch
            latch:
              %i2 = add i32 %i, 1
              %more = icmp ult i32 %i2, 3
              br i1 %more, label %outer, label %end
            end:
              ret void
            }}"
        );
        divergent_values(&text, lanes)
    }

    #[test]
    fn lanes_of_different_iterations_meet_at_the_header() {
        assert!(nested("%own", 8).contains(&"j".to_owned()));
        assert_eq!(nested("%n", 8), [""; 0]);
        assert_eq!(nested("%own", 1), [""; 0]);
    }

    #[test]
    fn what_all_threads_skip_leaves_none_behind() {
        assert_eq!(temporal("%n", 8), [""; 0]);
    }
}
