//! Trip counts of loops.

use elinvar_ir::{IntPredicate, Op, Operand, Term};
use serde::Serialize;

use crate::access::{LoopFacts, text};
use crate::forms::Kernel;
use crate::operations::{self, Operations};
use crate::poly::{Poly, Symbol};
use crate::walk::exits_after;

/// Number of iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Trips {
    /// A constant.
    Constant(u64),
    /// A formula of arguments and sizes, the same for all lanes.
    Uniform(String),
    /// A formula in which lanes differ.
    Varying(String),
    /// Unknown: it depends on loaded data, or on several conditions.
    Unknown,
}

/// The loops of a kernel.
pub(crate) fn loops(kernel: &Kernel<'_>) -> Vec<LoopFacts> {
    let facts = |index: usize| {
        let l = &kernel.loops.all[index];
        let mut inside = Operations::default();
        let mut has_barrier = false;
        for block in kernel.function.block_ids().filter(|block| l.contains(*block)) {
            let code = kernel.function.block(block);
            inside.add(&operations::of_block(code), 1.0);
            has_barrier |= kernel.barriers_of(block) > 0.0;
        }
        let header = kernel.function.block(l.header);
        // The latch's branch has the line of the loop's head.
        let latches = kernel.function.block_ids().filter(|block| {
            l.contains(*block) && kernel.function.block(*block).term.successors().contains(&l.header)
        });
        let of_latch = |block| kernel.module.location(&kernel.function.block(block).term_metadata);
        let location = latches.filter_map(of_latch).next();
        let of_header = || header.insts.iter().find_map(|inst| kernel.module.location(&inst.metadata));
        LoopFacts {
            location: location.or_else(of_header),
            trips: trips(kernel, index).unwrap_or(Trips::Unknown),
            depth: kernel.loops.around(l.header).len() - 1,
            operations: inside,
            has_barrier,
        }
    };
    (0..kernel.loops.all.len()).map(facts).collect()
}

fn trips(kernel: &Kernel<'_>, index: usize) -> Option<Trips> {
    let inside = |block| kernel.loops.all[index].contains(block);
    let leaves = |block: &elinvar_ir::BlockId| {
        inside(*block) && kernel.function.block(*block).term.successors().iter().any(|to| !inside(*to))
    };
    let mut exits = kernel.function.block_ids().filter(leaves);
    let (exit, None) = (exits.next()?, exits.next()) else { return None };
    let term = &kernel.function.block(exit).term;
    let Term::CondBr { cond: Operand::Value(cond), then, .. } = term else { return None };
    let Op::ICmp { pred, a, b, .. } = &kernel.definition(*cond)?.op else { return None };
    let on_true = !inside(*then);
    let distance = kernel.form(a).plus(&kernel.form(b), -1)?;
    let counter = Symbol::Iteration(index);
    let change = distance.coefficient(&counter)?.as_constant().filter(|change| *change != 0);
    let first = distance.without(|symbol| *symbol == counter);
    // The body of a loop that ends at its latch runs once more than the condition lets it go on.
    let is_latch = term.successors().contains(&kernel.loops.all[index].header);
    let once = i128::from(is_latch);
    if let (Some(first), Some(change)) = (first.as_constant(), change) {
        return Some(Trips::Constant(exits_after(*pred, on_true, first, change)? + once as u64));
    }
    let any = |symbol: &Symbol| kernel.taint_of(symbol).data || matches!(symbol, Symbol::Value(_));
    if distance.symbols().any(any) {
        return None;
    }
    let is_varying = distance.symbols().any(|symbol| kernel.taint_of(symbol).lane);
    // From `first + change * t` to 0.
    let (length, step) = match change {
        Some(change) if change > 0 => (Poly::default().plus(&first, -1)?, change),
        Some(change) => (first, -change),
        None => {
            // The step is an argument: `k += total`.
            let step = distance.coefficient(&counter)?;
            let length = Poly::default().plus(&first, -1)?.plus(&step, once)?;
            let formula = format!("ceil(({})/({}))", text(kernel, &length), text(kernel, &step));
            return Some(if is_varying { Trips::Varying(formula) } else { Trips::Uniform(formula) });
        }
    };
    use IntPredicate::{Sge, Sgt, Sle, Slt, Uge, Ugt, Ule, Ult};
    let beyond = match (pred, on_true) {
        (Ule | Sle | Uge | Sge, false) | (Ugt | Sgt | Ult | Slt, true) => 1,
        _ => 0,
    };
    let length = length.plus(&Poly::constant(beyond + once * step), 1)?;
    let length = text(kernel, &length);
    let formula = if step == 1 { length } else { format!("ceil(({length})/{step})") };
    Some(if is_varying { Trips::Varying(formula) } else { Trips::Uniform(formula) })
}
