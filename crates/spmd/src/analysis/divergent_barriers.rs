//! Divergent barriers: regions of a thread's function in which some lanes of a simdgroup may reach a threadgroup barrier that others
//! bypass.
//!
//! A divergent branch ([`divergence`](crate::analysis::divergence)) decides on the blocks between it and its immediate post-dominator.
//! If a barrier is among them, lanes may reach it without the others. A branch all of whose other sides only return needs no
//! region: exited lanes count as arrived, and lanes that have diverged for good do not reconverge.

use std::collections::{BTreeSet, HashSet};

use elinvar_ir::{BlockId, Function, Inst, Location, Module, Op, PostDominators, Term};

use crate::ENTRY;
use crate::analysis::cfg::Cfg;
use crate::analysis::divergence::DivergenceAnalysis;
use crate::intrinsic::Intrinsic;
use crate::support::calls::is_hint;
use crate::support::ir::callee_name;
use crate::transform::bounds::RECORD;

/// Blocks with one exit, which contain a divergent barrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DivergentRegion {
    /// The blocks whose branches diverge. They are in the region only if a loop leads back to them.
    pub branches: BTreeSet<BlockId>,
    pub blocks: BTreeSet<BlockId>,
    /// Where all lanes reconverge: the common post-dominator; `None` if that is the end of the function.
    pub join: Option<BlockId>,
}

/// The outermost regions, disjoint, in the order of their first blocks.
pub(crate) fn regions(module: &Module, function: &Function, cfg: &Cfg) -> Vec<DivergentRegion> {
    let barriers: HashSet<BlockId> = function.block_ids().filter(|b| has_barrier(function, *b)).collect();
    let post = PostDominators::compute(function);
    let is_split = |branch: &BlockId| {
        let between = reachable(function, branch_targets(function, *branch), post.ipdom(*branch));
        between.iter().any(|block| barriers.contains(block))
    };
    let split: Vec<BlockId> = cfg.order.iter().copied().filter(is_split).collect();
    if split.is_empty() {
        return Vec::new();
    }
    let divergence = DivergenceAnalysis::new(function, cfg);
    let parts = |branch: &BlockId| {
        divergence.is_divergent(*branch) && !only_returns(module, function, &barriers, &post, *branch)
    };
    let mut regions: Vec<DivergentRegion> = Vec::new();
    for branch in split.into_iter().filter(parts) {
        let mut region = region(function, BTreeSet::from([branch]), post.ipdom(branch));
        while let Some(index) = regions.iter().position(|other| overlap(&region, other)) {
            let other = regions.remove(index);
            let branches = region.branches.union(&other.branches).copied().collect();
            region = self::region(function, branches, common(&post, region.join, other.join));
        }
        regions.push(region);
    }
    regions
}

/// The locations of the barriers of the entry that some threads of a simdgroup may reach and others bypass, without duplicates. None for
/// irreducible control flow.
pub fn divergent_barriers(module: &Module) -> Vec<Location> {
    let entry =
        module.function(ENTRY).filter(|entry| entry.blocks.iter().any(|b| b.insts.iter().any(is_barrier)));
    let Some(entry) = entry else { return Vec::new() };
    let Ok(cfg) = Cfg::new(entry, BlockId(0), |_| false) else { return Vec::new() };
    let mut found = Vec::new();
    for block in regions(module, entry, &cfg).iter().flat_map(|region| &region.blocks) {
        let insts = entry.block(*block).insts.iter().filter(|inst| is_barrier(inst));
        for location in insts.filter_map(|inst| module.location(&inst.metadata)) {
            if !found.contains(&location) {
                found.push(location);
            }
        }
    }
    found
}

/// Whether an instruction is a threadgroup barrier or a grid barrier.
pub(crate) fn is_barrier(inst: &Inst) -> bool {
    intrinsic(inst).is_some_and(Intrinsic::is_threadgroup_barrier)
}

fn intrinsic(inst: &Inst) -> Option<Intrinsic> {
    let Op::Call(call) = &inst.op else { return None };
    Intrinsic::parse(callee_name(call)?)
}

pub(crate) fn has_barrier(function: &Function, block: BlockId) -> bool {
    function.block(block).insts.iter().any(is_barrier)
}

/// The targets of a block's branch; none if it is unconditional.
fn branch_targets(function: &Function, block: BlockId) -> Vec<BlockId> {
    match &function.block(block).term {
        Term::CondBr { .. } | Term::Switch { .. } => function.block(block).term.successors(),
        Term::Br(_) | Term::Ret(_) | Term::Unreachable => Vec::new(),
    }
}

/// The blocks on paths from `from` that do not enter `stop`.
pub(crate) fn reachable(function: &Function, from: Vec<BlockId>, stop: Option<BlockId>) -> BTreeSet<BlockId> {
    let (mut found, mut todo) = (BTreeSet::new(), from);
    while let Some(block) = todo.pop() {
        if Some(block) != stop && found.insert(block) {
            todo.extend(function.block(block).term.successors());
        }
    }
    found
}

fn region(function: &Function, branches: BTreeSet<BlockId>, join: Option<BlockId>) -> DivergentRegion {
    let targets = branches.iter().flat_map(|branch| branch_targets(function, *branch)).collect();
    let blocks = reachable(function, targets, join);
    DivergentRegion { branches, blocks, join }
}

/// Whether two regions have a block in common, or one begins in the other.
fn overlap(a: &DivergentRegion, b: &DivergentRegion) -> bool {
    let begins_in =
        |a: &DivergentRegion, b: &DivergentRegion| a.branches.iter().any(|d| b.blocks.contains(d));
    begins_in(a, b) || begins_in(b, a) || !a.blocks.is_disjoint(&b.blocks)
}

/// The closest block that post-dominates both.
fn common(post: &PostDominators, a: Option<BlockId>, b: Option<BlockId>) -> Option<BlockId> {
    let chain = |from: Option<BlockId>| std::iter::successors(from, |block| post.ipdom(*block));
    let of_b: Vec<BlockId> = chain(b).collect();
    chain(a).find(|block| of_b.contains(block))
}

/// Whether all sides of a branch but one only return, without a barrier or a group operation. They have no effects in blocks that
/// the other side reaches too, in this iteration of a loop or when it leaves the loop.
fn only_returns(
    module: &Module,
    function: &Function,
    barriers: &HashSet<BlockId>,
    post: &PostDominators,
    branch: BlockId,
) -> bool {
    let mut targets = branch_targets(function, branch);
    targets.sort_unstable();
    targets.dedup();
    // In this iteration of a loop around the branch: in the next one, lanes that stay may take the other side.
    let sides: Vec<BTreeSet<BlockId>> =
        targets.iter().map(|to| reachable(function, vec![*to], Some(branch))).collect();
    let is_convergent = |inst: &Inst| intrinsic(inst).is_some_and(Intrinsic::is_convergent);
    let stays = |side: &BTreeSet<BlockId>| {
        side.iter().any(|block| {
            let goes_on = function.block(*block).term.successors().contains(&branch);
            let insts = &function.block(*block).insts;
            goes_on || barriers.contains(block) || insts.iter().any(is_convergent)
        })
    };
    let (staying, leaving): (Vec<_>, Vec<_>) = sides.iter().partition(|side| stays(side));
    let [staying] = staying[..] else { return staying.is_empty() };
    let works = |block: &BlockId| function.block(*block).insts.iter().any(|inst| is_work(module, inst));
    let joins = |block: &&BlockId| staying.contains(block) || post.post_dominates(**block, branch);
    !leaving.iter().any(|side| side.iter().filter(joins).any(works))
}

/// Whether an instruction has a visible effect, at its original place in the source. An optimizer may have merged the last stores of
/// both sides of an early return into one at the join; it has lost its line.
fn is_work(module: &Module, inst: &Inst) -> bool {
    let has_effect = match &inst.op {
        Op::Store { .. } | Op::AtomicRmw { .. } | Op::CmpXchg { .. } => true,
        Op::Call(call) => {
            inst.result.is_none() && callee_name(call).is_none_or(|name| name != RECORD && !is_hint(name))
        }
        _ => false,
    };
    let node =
        inst.metadata.iter().find(|(kind, _)| kind == "dbg").and_then(|(_, id)| module.metadata_node(*id));
    let merged = node.is_some_and(|text| text.contains("line: 0,"));
    has_effect && !merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(body: &str) -> Vec<(Vec<u32>, Vec<u32>, Option<u32>)> {
        let text = format!(
            "define void @__elinvar_entry(ptr %a) {{
            start:
              %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
              %g = call i32 @__elinvar_threadgroup_position_in_grid(i32 0)
              %c = icmp ult i32 %t, 3
              %u = icmp ult i32 %g, 3
              {body}
            }}
            declare i32 @__elinvar_thread_position_in_threadgroup(i32)
            declare i32 @__elinvar_threadgroup_position_in_grid(i32)
            declare void @__elinvar_threadgroup_barrier(i32)"
        );
        let module = Module::parse(&text).unwrap();
        let function = &module.functions[0];
        let cfg = Cfg::new(function, BlockId(0), |_| false).unwrap();
        let numbers = |blocks: &BTreeSet<BlockId>| blocks.iter().map(|b| b.0).collect();
        let regions = regions(&module, function, &cfg);
        regions.iter().map(|r| (numbers(&r.branches), numbers(&r.blocks), r.join.map(|b| b.0))).collect()
    }

    const WAIT: &str = "call void @__elinvar_threadgroup_barrier(i32 0)";

    #[test]
    fn a_branch_around_a_barrier() {
        let body = |condition: &str| {
            format!(
                "br i1 {condition}, label %in, label %out
                in: {WAIT}
                br label %out
                out: store i32 1, ptr %a
                ret void"
            )
        };
        assert_eq!(found(&body("%c")), [(vec![0], vec![1], Some(2))]);
        assert_eq!(found(&body("%u")), []);
        assert_eq!(found(&body("%c").replace("store i32 1, ptr %a", "")), []);
    }

    #[test]
    fn an_early_return_needs_no_region() {
        let body = format!(
            "br i1 %c, label %leave, label %on
            leave: store i32 2, ptr %a
            br label %end
            on: {WAIT}
            store i32 1, ptr %a
            br label %end
            end: ret void"
        );
        assert_eq!(found(&body), []);
        assert_eq!(found(&body.replace("end: ret", "end: store i32 3, ptr %a\nret")).len(), 1);
    }

    #[test]
    fn a_return_from_a_loop_needs_no_region() {
        let body = format!(
            "br label %head
            head: %i = phi i32 [ 0, %start ], [ %n, %more ]
            {WAIT}
            %in = icmp ult i32 %i, %t
            br i1 %in, label %more, label %leave
            more: {WAIT}
            %n = add i32 %i, 1
            %again = icmp ult i32 %n, %g
            br i1 %again, label %head, label %end
            leave: store i32 %t, ptr %a
            br label %end
            end: ret void"
        );
        assert_eq!(found(&body), []);
    }

    #[test]
    fn a_loop_that_lanes_leave_in_different_iterations() {
        let body = format!(
            "br label %head
            head: %i = phi i32 [ 0, %start ], [ %n, %more ]
            %in = icmp ult i32 %i, %t
            br i1 %in, label %more, label %end
            more: {WAIT}
            %n = add i32 %i, 1
            br label %head
            end: store i32 %i, ptr %a
            ret void"
        );
        assert_eq!(found(&body), [(vec![1], vec![1, 2], Some(3))]);
        assert_eq!(found(&body.replace("%i, %t", "%i, %g")), []);
    }

    #[test]
    fn overlapping_regions_are_one() {
        // Either condition leads to the barrier.
        let body = format!(
            "br i1 %c, label %in, label %or
            or: %d = icmp eq i32 %t, 9
            br i1 %d, label %in, label %out
            in: {WAIT}
            br label %out
            out: store i32 1, ptr %a
            ret void"
        );
        assert_eq!(found(&body), [(vec![0, 1], vec![1, 2], Some(3))]);
    }
}
