//! Combines products of several tiles into one instruction, with [permuted lanes](super::lane_permutation).
//!
//! Two products of which one adds to the other's result, which has no other use, become one of twice the depth. Two independent
//! products with the same right factors become one of twice the rows.

use std::collections::{BTreeSet, HashMap};

use elinvar_ir::{BlockId, Function, Inst, Op, Operand, Type, Typed, ValueId};

use super::matrix_product::Step;
use crate::support::builder::call as call_of;
use crate::support::ir::callee_name;

/// A call of [`Step::Tiles`] and the uses of its result.
struct Tiles {
    /// Index of the call in its block.
    at: usize,
    factor: Type,
    /// By depth, and within it by row.
    left: Vec<Typed>,
    right: Vec<Typed>,
    sums: Vec<Typed>,
    mask: Typed,
    /// The extracts of elements: index in the block, and element.
    taken: Vec<(usize, u32)>,
}

/// Combines the products of a block, and records the functions that they call.
pub(super) fn join(kernel: &mut Function, block: BlockId, needed: &mut BTreeSet<String>) {
    let insts = words_first(std::mem::take(&mut kernel.block_mut(block).insts));
    let mut insts: Vec<Option<Inst>> = insts.into_iter().map(Some).collect();
    let mut all = found(&insts);
    let users = users(kernel, &insts);
    deepen(&mut all, &mut insts, &users);
    let mut behind: HashMap<usize, Vec<Inst>> = HashMap::new();
    for pair in Stacking::of(all, &insts) {
        needed.insert(write(kernel, &mut insts, &mut behind, pair));
    }
    let placed = insts.into_iter().enumerate();
    let placed = placed.flat_map(|(at, inst)| inst.into_iter().chain(behind.remove(&at).unwrap_or_default()));
    kernel.block_mut(block).insts = placed.collect();
}

/// Moves words of left factors to where their elements are, so that a product can be moved to an earlier one.
fn words_first(insts: Vec<Inst>) -> Vec<Inst> {
    let places: HashMap<ValueId, usize> =
        insts.iter().enumerate().filter_map(|(at, inst)| Some((inst.result?, at + 1))).collect();
    let phis = insts.iter().take_while(|inst| matches!(inst.op, Op::Phi { .. })).count();
    let is_word = |inst: &Inst| match &inst.op {
        Op::Call(call) => matches!(callee_name(call).and_then(Step::parse), Some((Step::Word, _))),
        _ => false,
    };
    // By the number of instructions before.
    let mut words: HashMap<usize, Vec<Inst>> = HashMap::new();
    let mut others = Vec::with_capacity(insts.len());
    for (at, inst) in insts.into_iter().enumerate() {
        if is_word(&inst) {
            let operands = inst.op.operands().into_iter().filter_map(Operand::value);
            let before = operands.filter_map(|value| places.get(&value).copied()).max();
            let before = before.unwrap_or(0).max(phis);
            words.entry(before).or_default().push(inst);
        } else {
            others.push((at, inst));
        }
    }
    let mut all = words.remove(&0).unwrap_or_default();
    for (at, inst) in others {
        all.push(inst);
        all.extend(words.remove(&(at + 1)).unwrap_or_default());
    }
    all
}

fn found(insts: &[Option<Inst>]) -> Vec<Tiles> {
    let mut all: Vec<Tiles> = Vec::new();
    let mut by_result: HashMap<ValueId, usize> = HashMap::new();
    for (at, inst) in insts.iter().enumerate() {
        let Some(inst) = inst else { continue };
        match &inst.op {
            Op::Call(call) => {
                let step = callee_name(call).and_then(Step::parse);
                let Some((Step::Tiles { rows: 1, depth: 1 }, factor)) = step else { continue };
                let args = call.args.iter().map(|arg| Typed::new(arg.ty.clone(), arg.op.clone()));
                let Ok([left, right, c0, c1, mask]) = <[Typed; 5]>::try_from(args.collect::<Vec<_>>()) else {
                    continue;
                };
                let Some(result) = inst.result else { continue };
                by_result.insert(result, all.len());
                let (left, right) = (vec![left], vec![right]);
                all.push(Tiles { at, factor, left, right, sums: vec![c0, c1], mask, taken: Vec::new() });
            }
            Op::ExtractValue { agg, path } => {
                let of = agg.op.value().and_then(|agg| by_result.get(&agg));
                if let (Some(of), [element]) = (of, &path[..]) {
                    all[*of].taken.push((at, *element));
                }
            }
            _ => {}
        }
    }
    all
}

/// Number of uses of each value in the kernel.
fn users(kernel: &Function, insts: &[Option<Inst>]) -> HashMap<ValueId, usize> {
    let mut users = HashMap::new();
    let own = insts.iter().flatten();
    let all =
        kernel.blocks.iter().flat_map(|block| &block.insts).chain(own).flat_map(|inst| inst.op.operands());
    let terms = kernel.blocks.iter().flat_map(|block| block.term.operands());
    for value in all.chain(terms).filter_map(Operand::value) {
        *users.entry(value).or_insert(0) += 1;
    }
    users
}

/// Combines products along the depth. Combined products are removed from the block, except the last.
fn deepen(all: &mut Vec<Tiles>, insts: &mut [Option<Inst>], users: &HashMap<ValueId, usize>) {
    let mut last = 0;
    while last < all.len() {
        let Some(first) = all[..last].iter().position(|first| feeds(first, &all[last], insts, users)) else {
            last += 1;
            continue;
        };
        let before = all.remove(first);
        for at in before.taken.iter().map(|(at, _)| *at).chain([before.at]) {
            insts[at] = None;
        }
        // The removal shifts it by one; the next one is at `last`.
        let after = &mut all[last - 1];
        after.left.splice(0..0, before.left);
        after.right.splice(0..0, before.right);
        after.sums = before.sums;
    }
}

/// Whether the result of `first` is used by the sums of `last` only.
fn feeds(first: &Tiles, last: &Tiles, insts: &[Option<Inst>], users: &HashMap<ValueId, usize>) -> bool {
    let element = |(at, element): &(usize, u32)| {
        let value = insts[*at].as_ref()?.result?;
        Some((value, *element as usize))
    };
    let goes = |(value, element): (ValueId, usize)| {
        users.get(&value) == Some(&1) && last.sums.get(element).and_then(|sum| sum.op.value()) == Some(value)
    };
    let same = first.factor == last.factor && first.mask == last.mask;
    let single = [first, last].iter().all(|tiles| tiles.right.len() == 1);
    same && single
        && first.taken.len() == 2
        && first.taken.iter().all(|taken| element(taken).is_some_and(goes))
}

/// A product, or two, and the index in the block that the instruction has.
struct Pair {
    first: Tiles,
    second: Option<Tiles>,
    at: usize,
}

/// The search for products with the same right factors, of which the first can be moved to the second or the second to the first.
struct Stacking<'i> {
    insts: &'i [Option<Inst>],
    /// Where the instructions of the block will be.
    places: Vec<usize>,
    definitions: HashMap<ValueId, usize>,
    /// Instructions that will be elsewhere.
    moved: Vec<usize>,
}

impl<'i> Stacking<'i> {
    fn of(all: Vec<Tiles>, insts: &'i [Option<Inst>]) -> Vec<Pair> {
        let results = insts.iter().enumerate().filter_map(|(at, inst)| Some((inst.as_ref()?.result?, at)));
        let (definitions, places) = (results.collect(), (0..insts.len()).collect());
        let mut stacking = Self { insts, places, definitions, moved: Vec::new() };
        let mut pairs: Vec<Pair> = Vec::new();
        for tiles in all {
            let place = |pair: &Pair| {
                let Pair { first, second, .. } = pair;
                let same =
                    first.right == tiles.right && first.mask == tiles.mask && first.factor == tiles.factor;
                let is_free = same && second.is_none();
                let later = is_free.then(|| stacking.waits(first, tiles.at).then_some(tiles.at));
                later?.or_else(|| stacking.is_ready(&tiles, first.at).then_some(first.at))
            };
            let found = pairs.iter().enumerate().rev().find_map(|(index, pair)| Some((index, place(pair)?)));
            match found {
                Some((index, at)) => {
                    let pair = &mut pairs[index];
                    pair.at = at;
                    stacking.place(&pair.first, at);
                    stacking.place(&tiles, at);
                    pair.second = Some(tiles);
                }
                None => pairs.push(Pair { at: tiles.at, first: tiles, second: None }),
            }
        }
        pairs
    }

    /// Whether a product has no use before `at`.
    fn waits(&self, first: &Tiles, at: usize) -> bool {
        let results: Vec<ValueId> =
            first.taken.iter().filter_map(|(at, _)| self.insts[*at].as_ref()?.result).collect();
        let range = first.at..=at;
        let others = self.moved.iter().copied().filter(|moved| range.contains(&self.places[*moved]));
        let between = range.clone().chain(others).filter_map(|at| self.insts[at].as_ref());
        let mut operands = between.flat_map(|inst| inst.op.operands()).filter_map(Operand::value);
        first.taken.iter().all(|(taken, _)| *taken > first.at)
            && !operands.any(|value| results.contains(&value))
    }

    /// Whether all operands of a product are there at `at`.
    fn is_ready(&self, second: &Tiles, at: usize) -> bool {
        let operands = second.left.iter().chain(&second.right).chain(&second.sums).chain([&second.mask]);
        let definitions = operands.filter_map(|operand| self.definitions.get(&operand.op.value()?));
        second.taken.iter().all(|(taken, _)| *taken > second.at)
            && definitions.into_iter().all(|definition| self.places[*definition] < at)
    }

    /// Moves a product and the extracts of its elements.
    fn place(&mut self, tiles: &Tiles, at: usize) {
        for own in tiles.taken.iter().map(|(own, _)| *own).chain([tiles.at]) {
            self.places[own] = at;
            self.moved.push(own);
        }
    }
}

/// Emits a product, or two; returns the name of the called function.
fn write(
    kernel: &mut Function,
    insts: &mut [Option<Inst>],
    behind: &mut HashMap<usize, Vec<Inst>>,
    Pair { first, second, at }: Pair,
) -> String {
    let depth = first.right.len();
    let rows: Vec<&Tiles> = std::iter::once(&first).chain(&second).collect();
    let step = Step::Tiles { rows: rows.len(), depth };
    let left = (0..depth).flat_map(|k| rows.iter().map(move |row| row.left[k].clone()));
    let sums = rows.iter().flat_map(|row| row.sums.iter().cloned());
    let args = left.chain(first.right.iter().cloned()).chain(sums).chain([first.mask.clone()]);
    let args: Vec<_> = args.map(|arg| (arg.ty, arg.op)).collect();
    let ty = step.result(&first.factor);
    let name = step.name(&first.factor);
    let made = kernel.new_value(ty.clone(), None);
    let metadata = insts[at].as_ref().map(|inst| inst.metadata.clone()).unwrap_or_default();
    let call = Inst { result: Some(made), op: call_of(ty.clone(), &name, &args), metadata };
    let mut taken = Vec::new();
    for (row, tiles) in rows.iter().enumerate() {
        insts[tiles.at] = None;
        for (at, element) in &tiles.taken {
            let Some(inst) = insts[*at].take() else { continue };
            let path = vec![2 * row as u32 + element];
            taken.push(Inst { op: Op::ExtractValue { agg: Typed::new(ty.clone(), made), path }, ..inst });
        }
    }
    insts[at] = Some(call);
    behind.insert(at, taken);
    name
}
