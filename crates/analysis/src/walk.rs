//! The path of one thread through a kernel: which blocks it executes how often, and where its accesses go.
//!
//! Branches follow the numbers of the [evaluator](crate::evaluate). A branch on loaded data is taken both ways with half the weight each;
//! a loop that ends by loaded data is followed for one iteration. Of a loop with many iterations whose counters advance by constants,
//! the first ones are followed, and some more with a weight.

use std::collections::HashMap;

use elinvar_ir::{
    BlockId, Callee, Const, Inst, IntPredicate, Module, Op, Operand, Term, Type, Typed, ValueId,
};

use crate::evaluate::{Launch, Number, Position3, Thread};
use crate::forms::Kernel;
use crate::poly::Root;

/// An access: its block, the instruction's index in the block, and which of the instruction's accesses.
pub(crate) type Site = (BlockId, usize, usize);

/// What a thread executes.
#[derive(Debug, Default)]
pub(crate) struct Path {
    /// Executions of each block.
    pub blocks: Vec<f64>,
    /// The addresses of each access, in order, with weights.
    pub accesses: HashMap<Site, Vec<(f64, Option<Number>)>>,
    /// Addresses in last iterations that are not counted, behind skipped ones: the ends of ranges.
    pub ends: Vec<(Site, Number)>,
    /// Whether the thread's first access of an argument is a store.
    pub stores_first: HashMap<Root, bool>,
    /// The executions of each loop's header.
    pub iterations: HashMap<usize, f64>,
    /// Whether a branch depends on loaded data, or the path was cut off.
    pub is_estimate: bool,
    /// Whether iterations of a loop were skipped.
    pub is_sampled: bool,
}

/// Steps of one thread after which a path is an estimate.
const MAX_STEPS: u64 = 400_000;
/// Depth of nested branches on data that are taken both ways.
const MAX_FORKS: u32 = 6;

/// Kinds of accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A read.
    Load,
    /// A write.
    Store,
    /// An atomic operation.
    Atomic,
}

/// An access of an instruction.
pub(crate) struct Touch<'i> {
    pub kind: Kind,
    pub ptr: &'i Operand,
    pub bytes: u64,
    pub align: u64,
}

/// The accesses of an instruction; a copy has two.
pub(crate) fn touches<'i>(module: &Module, inst: &'i Inst) -> Vec<Touch<'i>> {
    let touch = |kind: Kind, ptr: &'i Typed, ty: &Type, align: &Option<u64>| {
        let (bytes, natural) = ty.size_align(module);
        vec![Touch { kind, ptr: &ptr.op, bytes, align: align.unwrap_or(natural) }]
    };
    let of = |kind: Kind, atomic: bool| if atomic { Kind::Atomic } else { kind };
    match &inst.op {
        Op::Load { ty, ptr, align, atomic, .. } => touch(of(Kind::Load, atomic.is_some()), ptr, ty, align),
        Op::Store { value, ptr, align, atomic, .. } => {
            touch(of(Kind::Store, atomic.is_some()), ptr, &value.ty, align)
        }
        Op::AtomicRmw { value, ptr, align, .. } => touch(Kind::Atomic, ptr, &value.ty, align),
        Op::CmpXchg { new, ptr, align, .. } => touch(Kind::Atomic, ptr, &new.ty, align),
        Op::Call(call) => {
            let Callee::Function(name) = &call.callee else { return Vec::new() };
            let length = match call.args.get(2).map(|arg| &arg.op) {
                Some(Operand::Const(length)) => length.as_unsigned(64).and_then(|n| u64::try_from(n).ok()),
                _ => None,
            };
            let Some(bytes) = length else { return Vec::new() };
            let at = |kind: Kind, index: usize| {
                let arg = &call.args[index];
                Touch { kind, ptr: &arg.op, bytes, align: arg.align() }
            };
            match name {
                _ if name.starts_with("llvm.memcpy") || name.starts_with("llvm.memmove") => {
                    vec![at(Kind::Load, 1), at(Kind::Store, 0)]
                }
                _ if name.starts_with("llvm.memset") => vec![at(Kind::Store, 0)],
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

struct Walk<'k, 'm> {
    kernel: &'k Kernel<'m>,
    thread: Thread<'k, 'm>,
    path: Path,
    steps: u64,
    /// Iterations of a loop of which more are sampled.
    all: u64,
}

/// The path of a thread. Of loops with more than `all` iterations, that many are followed.
pub(crate) fn walk(kernel: &Kernel<'_>, launch: &Launch, at: Position3, all: u64) -> Path {
    let path = Path { blocks: vec![0.0; kernel.function.blocks.len()], ..Path::default() };
    let thread = Thread::new(kernel, launch, at);
    let mut walk = Walk { kernel, thread, path, steps: 0, all };
    walk.run(BlockId(0), None, 1.0, 0);
    walk.path
}

/// A loop that is being followed.
struct Entered {
    index: usize,
    iterations: u64,
    /// Weight outside the loop.
    weight: f64,
    /// Numbers of the header's phis in the last iteration, and their differences from the one before.
    numbers: Vec<Option<Number>>,
    differences: Vec<Option<i128>>,
    /// Iterations to skip before the last one.
    skips: u64,
}

/// Where a thread goes on.
enum Next {
    /// Over the edge to a block.
    Edge(BlockId),
    /// At a block whose phis have their numbers.
    At(BlockId),
    /// Nowhere.
    End,
}

impl Walk<'_, '_> {
    /// Follows the thread from a block, up to `end` or its return. Returns whether it reached `end`.
    fn run(&mut self, start: BlockId, end: Option<BlockId>, weight: f64, forks: u32) -> bool {
        let (mut at, mut weight) = (start, weight);
        let mut entered: Vec<Entered> = Vec::new();
        loop {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                self.path.is_estimate = true;
                return false;
            }
            while let Some(left) = entered.pop_if(|last| !self.kernel.loops.all[last.index].contains(at)) {
                weight = left.weight;
            }
            if Some(at) == end {
                return true;
            }
            if let Some(index) = self.kernel.loops.with_header(at) {
                self.iterate(&mut entered, index, &mut weight);
            }
            self.execute(at, weight);
            match self.next(at, weight, forks) {
                Next::Edge(next) => {
                    self.enter(at, next);
                    at = next;
                }
                Next::At(next) => at = next,
                Next::End => return false,
            }
        }
    }

    fn next(&mut self, at: BlockId, weight: f64, forks: u32) -> Next {
        let term = &self.kernel.function.block(at).term;
        let known = match term {
            Term::Br(to) => Some(*to),
            Term::CondBr { cond, then, other } => {
                self.thread.condition(cond).map(|holds| if holds { *then } else { *other })
            }
            Term::Switch { value, default, cases } => {
                let width = if let Type::Int(width) = value.ty { width } else { 64 };
                self.thread.number(&value.op, &value.ty).map(|number| {
                    let is =
                        |case: &Const| case.as_unsigned(width).map(|case| case as i128) == Some(number.value);
                    cases.iter().find(|(case, _)| is(case)).map_or(*default, |(_, to)| *to)
                })
            }
            Term::Ret(_) | Term::Unreachable => return Next::End,
        };
        match known {
            Some(next) => Next::Edge(next),
            None => self.choose(at, &term.successors(), weight, forks),
        }
    }

    /// Counts an iteration of a loop, and skips those before the last one if there are too many. Lanes follow the same iterations,
    /// also if their numbers of iterations differ.
    fn iterate(&mut self, entered: &mut Vec<Entered>, index: usize, weight: &mut f64) {
        let numbers = self.header_numbers(index);
        if entered.last().is_none_or(|last| last.index != index) {
            let differences = vec![None; numbers.len()];
            let numbers = numbers.clone();
            entered.push(Entered { index, iterations: 0, weight: *weight, numbers, differences, skips: 0 });
        }
        let Some(last) = entered.last_mut() else { return };
        if last.iterations > 0 {
            let difference = |(now, before): (&Option<Number>, &Option<Number>)| {
                let (now, before) = (now.as_ref()?, before.as_ref()?);
                (now.root == before.root).then_some(now.value - before.value)
            };
            let differences: Vec<Option<i128>> = numbers.iter().zip(&last.numbers).map(difference).collect();
            let is_linear = last.iterations > 1 && differences == last.differences;
            let (first, rest) = (self.all / 2, self.all - self.all / 2);
            if is_linear
                && last.iterations == first
                && let Some(left) = self.iterations_left(index, &numbers, &differences)
                && left > rest + 1
            {
                *weight = last.weight * left as f64 / rest as f64;
                last.skips = left - rest - 1;
                self.path.is_sampled = true;
            }
            if last.skips > 0 && last.iterations == first + rest {
                // The last iteration leads out of the loop, and is not counted.
                self.advance(index, &numbers, &differences, last.skips);
                *weight = 0.0;
            }
            last.differences = differences;
        }
        last.iterations += 1;
        last.numbers = self.header_numbers(index);
        *self.path.iterations.entry(index).or_default() += *weight;
    }

    fn header_phis(&self, index: usize) -> impl Iterator<Item = ValueId> {
        let header = self.kernel.loops.all[index].header;
        let insts = self.kernel.function.block(header).insts.iter();
        insts.take_while(|inst| matches!(inst.op, Op::Phi { .. })).filter_map(|inst| inst.result)
    }

    fn header_numbers(&mut self, index: usize) -> Vec<Option<Number>> {
        let phis: Vec<ValueId> = self.header_phis(index).collect();
        phis.into_iter().map(|phi| self.thread.number(&Operand::Value(phi), &Type::I64)).collect()
    }

    /// Sets the phis of a loop's header to their numbers some iterations later.
    fn advance(&mut self, index: usize, numbers: &[Option<Number>], differences: &[Option<i128>], by: u64) {
        let later = |(number, difference): (&Option<Number>, &Option<i128>)| {
            let number = number.as_ref()?;
            Some(Number { value: number.value + (*difference)? * i128::from(by), ..number.clone() })
        };
        let later = numbers.iter().zip(differences).map(later);
        let phis: Vec<ValueId> = self.header_phis(index).collect();
        self.thread.assign(phis.into_iter().zip(later).collect());
    }

    /// The iterations of a loop from the current one on, if its exits compare numbers that change by constants.
    fn iterations_left(
        &mut self,
        index: usize,
        numbers: &[Option<Number>],
        differences: &[Option<i128>],
    ) -> Option<u64> {
        let kernel = self.kernel;
        let inside = |block: BlockId| kernel.loops.all[index].contains(block);
        let mut left: Option<u64> = None;
        for block in kernel.function.block_ids().filter(|block| inside(*block)) {
            let term = &kernel.function.block(block).term;
            if term.successors().iter().all(|to| inside(*to)) {
                continue;
            }
            let Term::CondBr { cond: Operand::Value(cond), then, .. } = term else { return None };
            let Op::ICmp { pred, ty, a, b, .. } = &kernel.definition(*cond)?.op else { return None };
            let distance = |walk: &mut Self| {
                let (a, b) = (walk.thread.number(a, ty)?, walk.thread.number(b, ty)?);
                (a.root == b.root).then_some(a.value - b.value)
            };
            let now = distance(self);
            self.advance(index, numbers, differences, 1);
            let later = distance(self);
            self.advance(index, numbers, differences, 0);
            let (now, change) = (now?, later? - now?);
            let exits = exits_after(*pred, !inside(*then), now, change)?;
            left = Some(left.map_or(exits, |left| left.min(exits)));
        }
        Some(left? + 1)
    }

    /// A branch on loaded data: leaves a loop, or takes all ways up to where they meet.
    fn choose(&mut self, at: BlockId, ways: &[BlockId], weight: f64, forks: u32) -> Next {
        self.path.is_estimate = true;
        let around = self.kernel.loops.around(at);
        let leaves =
            |way: &&BlockId| around.last().is_some_and(|l| !self.kernel.loops.all[*l].contains(**way));
        if let Some(exit) = ways.iter().find(leaves) {
            return Next::Edge(*exit);
        }
        let mut ways = ways.to_vec();
        ways.sort();
        ways.dedup();
        if forks >= MAX_FORKS || ways.len() == 1 {
            return Next::Edge(ways[0]);
        }
        let meet = self.kernel.post.ipdom(at);
        let share = weight / ways.len() as f64;
        let before = self.thread.state();
        let mut joined: Option<HashMap<ValueId, Option<Number>>> = None;
        for way in &ways {
            self.thread.restore(before.clone());
            self.enter(at, *way);
            if !self.run(*way, meet, share, forks + 1) {
                continue;
            }
            let state = self.thread.state();
            // What differs between the ways is unknown where they meet.
            match &mut joined {
                None => joined = Some(state),
                Some(joined) => joined.iter_mut().for_each(|(value, number)| {
                    if state.get(value) != Some(number) {
                        *number = None;
                    }
                }),
            }
        }
        match (joined, meet) {
            (Some(state), Some(meet)) => {
                self.thread.restore(state);
                Next::At(meet)
            }
            _ => Next::End,
        }
    }

    /// Assigns the phis of a block that is entered.
    fn enter(&mut self, from: BlockId, to: BlockId) {
        let mut numbers = Vec::new();
        for inst in &self.kernel.function.block(to).insts {
            let Op::Phi { ty, incoming, .. } = &inst.op else { break };
            let Some(result) = inst.result else { continue };
            let operand = incoming.iter().find(|(_, block)| *block == from).map(|(operand, _)| operand);
            let has_number = ty.is_int() || ty.is_ptr();
            let number = operand.filter(|_| has_number).and_then(|operand| self.thread.number(operand, ty));
            numbers.push((result, number));
        }
        self.thread.assign(numbers);
    }

    fn execute(&mut self, block: BlockId, weight: f64) {
        self.path.blocks[block.0 as usize] += weight;
        for (at, inst) in self.kernel.function.block(block).insts.iter().enumerate() {
            for (which, touch) in touches(self.kernel.module, inst).iter().enumerate() {
                let address = self.thread.number(touch.ptr, &Type::PTR);
                if let Some(Number { root: Some(root), .. }) = &address
                    && !self.path.stores_first.contains_key(root)
                {
                    self.path.stores_first.insert(root.clone(), touch.kind == Kind::Store);
                }
                let site = (block, at, which);
                match address {
                    Some(address) if weight == 0.0 => self.path.ends.push((site, address)),
                    address if weight > 0.0 => {
                        self.path.accesses.entry(site).or_default().push((weight, address))
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The iterations before a comparison of numbers with this distance, which changes by a constant, decides for the exit. `on_true`: the exit is
/// taken if the comparison holds.
pub(crate) fn exits_after(pred: IntPredicate, on_true: bool, distance: i128, change: i128) -> Option<u64> {
    // The first iteration with `distance >= 0` after signs are turned, or `== 0`.
    let reach = |distance: i128, change: i128| match (distance >= 0, change > 0) {
        (true, _) => Some(0),
        (false, true) => u64::try_from((-distance + change - 1) / change).ok(),
        (false, false) => None,
    };
    let below = |by: i128| reach(-distance - by, -change);
    let above = |by: i128| reach(distance - by, change);
    use IntPredicate::{Eq, Ne, Sge, Sgt, Sle, Slt, Uge, Ugt, Ule, Ult};
    match (pred, on_true) {
        (Eq, true) | (Ne, false) if change != 0 && distance % change == 0 => {
            u64::try_from(-distance / change).ok()
        }
        (Eq | Ne, _) => None,
        (Ult | Slt, true) | (Uge | Sge, false) => below(1),
        (Ule | Sle, true) | (Ugt | Sgt, false) => below(0),
        (Ugt | Sgt, true) | (Ule | Sle, false) => above(1),
        (Uge | Sge, true) | (Ult | Slt, false) => above(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_where_counting_finds_them() {
        for pred in IntPredicate::ALL {
            for on_true in [true, false] {
                for distance in -40..40_i128 {
                    for change in [-7, -1, 1, 3] {
                        let (predicate, width) = (*pred, 64);
                        // Far from where unsigned numbers wrap.
                        let holds = |n: i128| {
                            crate::evaluate::compare(
                                predicate,
                                width,
                                (1 << 20) + distance + change * n,
                                1 << 20,
                            )
                        };
                        let counted = (0..200).find(|n| holds(*n) == on_true).map(|n| n as u64);
                        if let Some(found) = exits_after(*pred, on_true, distance, change) {
                            assert_eq!(Some(found), counted, "{pred} {on_true} {distance} {change}");
                        } else {
                            let is_inequality = matches!(
                                (pred, on_true),
                                (IntPredicate::Eq, false) | (IntPredicate::Ne, true)
                            );
                            assert!(
                                counted.is_none() || is_inequality,
                                "{pred} {on_true} {distance} {change}"
                            );
                        }
                    }
                }
            }
        }
    }
}
