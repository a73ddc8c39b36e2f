//! The rules: each looks for what its remedy mends, and computes the cycles of the code as it is and as it would be.

use std::collections::BTreeSet;

use elinvar_ir::{
    BinaryOp, BlockId, Callee, CastOp, Inst, IntPredicate, Location, Op, Operand, RmwOp, Term, Type, Typed,
    ValueId,
};

use super::model::{Code, Machine, iterations, operations_of, weight};
use super::{Advice, Remedy};
use crate::access::stride_along;
use crate::forms::{Kernel, Space};
use crate::poly::{Poly, Root, Symbol};
use crate::walk::touches;
use crate::{Access, Analysis, Class, Kind, Launch, traffic};

/// Advice is given from this gain on.
const LEAST_GAIN: f64 = 1.1;

/// A kernel and what it executes.
pub(super) struct Rules<'a, 'k, 'm> {
    pub analysis: &'a Analysis,
    pub kernel: &'k Kernel<'m>,
    pub machine: Machine,
    pub code: Code,
}

/// A remedy without its gain: the place, the object, the reason, the mended code.
struct Found<'a> {
    access: Option<&'a Access>,
    location: Option<Location>,
    reason: String,
    /// The code as it is, if the rule knows more of it than [`Rules::code`].
    as_is: Option<Code>,
    mended: Code,
}

impl Rules<'_, '_, '_> {
    pub fn all(&self, launch: Option<&Launch>) -> Vec<Advice> {
        let mut advice = Vec::new();
        let mut add = |remedy: Remedy, found: Vec<Found<'_>>| {
            if !remedy.machines().contains(&self.machine) {
                return;
            }
            for found in found {
                let as_is = found.as_is.as_ref().unwrap_or(&self.code);
                let gain = as_is.cycles(self.machine) / found.mended.cycles(self.machine);
                if gain >= LEAST_GAIN {
                    let object = found.access.and_then(|access| access.object.clone());
                    let location = found.access.and_then(|access| access.location.clone()).or(found.location);
                    advice.push(Advice { remedy, location, reason: found.reason, gain, object });
                }
            }
        };
        add(Remedy::SwapAxes, self.swap_axes().into_iter().collect());
        add(Remedy::Vectorize, self.vectorize().into_iter().collect());
        add(Remedy::PadTile, self.pad_tile());
        let (constant, hoist) = self.invariant_loads();
        add(Remedy::MoveToConstant, constant);
        add(Remedy::Hoist, hoist);
        add(Remedy::SplitBranch, self.split_branch());
        add(Remedy::SimdgroupReduction, self.simdgroup_reduction());
        add(Remedy::PrivatizeHistogram, self.privatize_histogram());
        advice.extend(launch.and_then(|launch| self.resize_group(launch)));
        advice
    }

    /// Whether threads depend on each other only by the grid's positions: no threadgroup memory, barriers or SIMD-group functions.
    fn is_alone(&self) -> bool {
        let analysis = self.analysis;
        let is_threadgroup = |access: &Access| access.space == Space::Threadgroup;
        analysis.barriers.is_empty()
            && analysis.operations.simdgroup == 0.0
            && analysis.calls.is_empty()
            && !analysis.accesses.iter().any(is_threadgroup)
    }

    fn form(&self, access: &Access) -> Option<Poly> {
        let (block, at, which) = access.site;
        let inst = self.kernel.function.block(block).insts.get(at)?;
        Some(self.kernel.form(touches(self.kernel.module, inst).get(which)?.ptr))
    }

    fn inst(&self, access: &Access) -> Option<&Inst> {
        let (block, at, _) = access.site;
        self.kernel.function.block(block).insts.get(at)
    }

    fn swap_axes(&self) -> Option<Found<'_>> {
        if self.analysis.dimensions < 2 || !self.is_alone() {
            return None;
        }
        let mut mended = self.code.clone();
        let mut first: Option<&Access> = None;
        for (access, shape) in self.analysis.accesses.iter().zip(&mut mended.shapes) {
            if !matches!(access.class, Class::Broadcast | Class::Contiguous | Class::Strided) {
                // Where lanes along y would go is unknown.
                return None;
            }
            let form = self.form(access)?;
            let is_of_group = |symbol: &Symbol| matches!(symbol, Symbol::Lane | Symbol::Simdgroup);
            if form.symbols().any(is_of_group) {
                return None;
            }
            let stride = stride_along(&form, 1)?.as_constant();
            shape.stride = stride;
            shape.class = match stride {
                Some(0) => Class::Broadcast,
                Some(step) if step.unsigned_abs() == u128::from(access.bytes) => Class::Contiguous,
                _ => Class::Strided,
            };
            if access.class == Class::Strided
                && shape.class == Class::Contiguous
                && access.space != Space::Thread
            {
                first = first.or(Some(access));
            }
        }
        let access = first?;
        let apart = access.lane_stride.as_deref().unwrap_or("an unknown number of");
        let reason = format!(
            "lanes along x are {apart} bytes apart, lanes along y {} bytes: exchange x and y, in the kernel and in the launch",
            access.bytes
        );
        Some(Found { access: Some(access), location: None, reason, as_is: None, mended })
    }

    fn vectorize(&self) -> Option<Found<'_>> {
        let analysis = self.analysis;
        let is_small = |access: &Access| {
            access.class == Class::Contiguous
                && access.bytes <= 2
                && access.kind != Kind::Atomic
                && !access.is_rare
        };
        if !self.is_alone() || !analysis.loops.is_empty() || analysis.dimensions > 1 {
            return None;
        }
        let first = analysis.accesses.first()?;
        if !analysis.accesses.iter().all(|access| is_small(access) || access.space == Space::Constant) {
            return None;
        }
        let count = 4 / first.bytes.max(1);
        let mut mended = self.code.clone();
        for shape in mended.shapes.iter_mut().filter(|shape| shape.class == Class::Contiguous) {
            shape.bytes *= count;
            shape.stride = shape.stride.map(|stride| stride * i128::from(count));
            // As many bytes for a simdgroup's elements as before.
            shape.times /= count as f64;
        }
        let reason = format!(
            "a simdgroup moves {} bytes at a time; with {count} elements for each thread, as a vector, {}",
            32 * first.bytes,
            32 * first.bytes * count
        );
        Some(Found { access: Some(first), location: None, reason, as_is: None, mended })
    }

    fn pad_tile(&self) -> Vec<Found<'_>> {
        let mut found: Vec<Found<'_>> = Vec::new();
        for (index, access) in self.analysis.accesses.iter().enumerate() {
            let is_column = access.space == Space::Threadgroup && !access.is_rare;
            let (Some(factor), Some(stride)) = (access.bank_conflicts, self.code.shapes[index].stride) else {
                continue;
            };
            if !is_column || factor < 2.0 || access.kind == Kind::Atomic {
                continue;
            }
            let Some((row, element, rows)) = self.form(access).and_then(|form| self.rows(form.root()?))
            else {
                continue;
            };
            let bytes = self.analysis.threadgroup_bytes + rows * element;
            if stride != i128::from(row) || bytes > 32768 || found.iter().any(|f| same_object(f, access)) {
                continue;
            }
            let mut mended = self.code.clone();
            let shapes = mended.shapes.iter_mut().zip(&self.analysis.accesses);
            for (shape, _) in
                shapes.filter(|(shape, other)| other.object == access.object && shape.stride == Some(stride))
            {
                shape.stride = Some(stride + i128::from(element));
            }
            let offsets: Vec<i128> = (0..32).map(|lane| lane * (stride + i128::from(element))).collect();
            let after = traffic::bank_conflicts(&offsets, access.bytes);
            if after >= factor {
                continue;
            }
            let name = access.object.as_deref().unwrap_or("the tile");
            let reason = format!(
                "rows of `{name}` are {row} bytes, so a column is in few banks and takes {factor} times as long; with rows of {} bytes, {after} times",
                row + element
            );
            found.push(Found { access: Some(access), location: None, reason, as_is: None, mended });
        }
        found
    }

    /// Bytes of a row of a two-dimensional variable, of its element, and the number of rows.
    fn rows(&self, root: &Root) -> Option<(u64, u64, u64)> {
        let Root::Global(name) = root else { return None };
        let global = self.kernel.module.global(name)?;
        let Type::Array(rows, row) = global.ty.resolve(self.kernel.module)? else { return None };
        let Type::Array(_, element) = row.resolve(self.kernel.module)? else { return None };
        let size = |ty: &Type| {
            let (size, align) = ty.size_align(self.kernel.module);
            size.next_multiple_of(align.max(1))
        };
        Some((size(row), size(element), *rows))
    }

    /// Loads that a loop repeats, because it stores to memory that may be the same: of arguments that could be `constant`, and others.
    fn invariant_loads(&self) -> (Vec<Found<'_>>, Vec<Found<'_>>) {
        let (mut constant, mut hoist) = (Vec::new(), Vec::new());
        for index in 0..self.analysis.loops.len() {
            let Some(stores) = self.stores(index) else { continue };
            let (mut of_constant, mut others) = (Vec::new(), Vec::new());
            for (at, access) in self.analysis.accesses.iter().enumerate() {
                if access.loops.last() != Some(&index)
                    || access.kind != Kind::Load
                    || access.space != Space::Device
                {
                    continue;
                }
                let Some(form) = self.form(access).filter(|form| self.is_invariant(form, index)) else {
                    continue;
                };
                let Some(root) = form.root().cloned() else { continue };
                let same: Vec<&(Root, Poly, usize)> =
                    stores.iter().filter(|(other, ..)| *other == root).collect();
                // Another place of the same memory is written: it may be this one.
                if !self.is_always(access.site.0, index) || same.iter().any(|(_, other, _)| *other != form) {
                    continue;
                }
                let offset = form.without(|symbol| matches!(symbol, Symbol::Base(_))).as_constant();
                let is_small = offset.is_some_and(|offset| (0..4096).contains(&offset));
                match is_small && !self.is_written(&root) {
                    true => of_constant.push((at, Vec::new())),
                    false => others.push((at, same.iter().map(|(.., store)| *store).collect())),
                }
            }
            constant.extend(self.hoisted(index, &of_constant, true));
            hoist.extend(self.hoisted(index, &others, false));
        }
        (constant, hoist)
    }

    fn hoisted(&self, index: usize, loads: &[(usize, Vec<usize>)], to_constant: bool) -> Option<Found<'_>> {
        let trips = iterations(self.analysis, index);
        let mut mended = self.code.clone();
        let all: BTreeSet<usize> = loads
            .iter()
            .flat_map(|(load, stores)| std::iter::once(*load).chain(stores.iter().copied()))
            .collect();
        all.iter().for_each(|at| mended.shapes[*at].times /= trips);
        let access = self.analysis.accesses.get(loads.first()?.0)?;
        let names: BTreeSet<&str> =
            loads.iter().filter_map(|(at, _)| self.analysis.accesses[*at].object.as_deref()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join("`, `");
        let (count, stores) = (loads.len(), all.len() - loads.len());
        let each = match stores {
            0 => format!("{count} loads"),
            _ => format!("{count} loads and {stores} stores"),
        };
        let what = "the loop stores to memory, and the compiler cannot know that it is other memory";
        let reason = match to_constant {
            true => format!(
                "each iteration repeats {each} of `{names}`, which no thread writes, since {what}: declare it as `constant`"
            ),
            false => format!(
                "each iteration repeats {each} of the same places of `{names}`, since {what}: load in front of the loop, unless the buffers overlap"
            ),
        };
        Some(Found { access: Some(access), location: None, reason, as_is: None, mended })
    }

    /// The stores to device memory in a loop: where, and the index of the access; `None` if there is none, or one that is unknown, or threads communicate.
    fn stores(&self, index: usize) -> Option<Vec<(Root, Poly, usize)>> {
        if self.analysis.loops[index].has_barrier {
            return None;
        }
        let mut stores = Vec::new();
        for (at, access) in
            self.analysis.accesses.iter().enumerate().filter(|(_, a)| a.loops.contains(&index))
        {
            match (access.kind, access.space) {
                (Kind::Atomic, _) | (_, Space::Unknown) => return None,
                (Kind::Store, Space::Device) => {
                    let form = self.form(access)?;
                    stores.push((form.root()?.clone(), form, at));
                }
                _ => {}
            }
        }
        (!stores.is_empty() && self.analysis.calls.is_empty()).then_some(stores)
    }

    /// Whether an address is the same in all iterations of a loop.
    fn is_invariant(&self, form: &Poly, index: usize) -> bool {
        let l = &self.kernel.loops.all[index];
        !form.symbols().any(|symbol| match symbol {
            Symbol::Iteration(other) => l.contains(self.kernel.loops.all[*other].header),
            Symbol::Value(value) => self.kernel.block_of(*value).is_some_and(|block| l.contains(block)),
            _ => false,
        })
    }

    /// Whether each iteration executes a block.
    fn is_always(&self, block: BlockId, index: usize) -> bool {
        let l = &self.kernel.loops.all[index];
        let mut latches = self.kernel.function.block_ids().filter(|latch| {
            l.contains(*latch) && self.kernel.function.block(*latch).term.successors().contains(&l.header)
        });
        latches.all(|latch| self.kernel.dominators.dominates(block, latch))
    }

    /// Whether the kernel writes to an object, or to memory that is unknown.
    fn is_written(&self, root: &Root) -> bool {
        self.analysis.accesses.iter().filter(|access| access.kind != Kind::Load).any(|access| {
            match self.form(access).as_ref().and_then(|form| form.root().cloned()) {
                Some(other) => other == *root,
                None => true,
            }
        })
    }

    fn split_branch(&self) -> Vec<Found<'_>> {
        let kernel = self.kernel;
        let mut found = Vec::new();
        for block in kernel.function.block_ids().filter(|block| kernel.divergent[block.0 as usize]) {
            let code = kernel.function.block(block);
            let Term::CondBr { cond: Operand::Value(cond), then, other } = &code.term else { continue };
            let (Some(period), Some(meet)) = (self.period(*cond), kernel.post.ipdom(block)) else { continue };
            let ways = [*then, *other].map(|way| self.way(way, meet));
            let operations = ways.each_ref().map(|blocks| {
                blocks
                    .iter()
                    .map(|b| weight(self.analysis, kernel, *b) * operations_of(kernel, *b))
                    .sum::<f64>()
            });
            // Both ways have work of their own.
            if operations.iter().any(|count| *count < 8.0) || !self.is_alone() {
                continue;
            }
            // One way for a simdgroup of each `period`, the other for the rest.
            let rest = (period - 1) as f64 / period as f64;
            let after = operations[0].max(operations[1]) * rest.max(1.0 - rest)
                + operations[0].min(operations[1]) * rest.min(1.0 - rest);
            let mut mended = self.code.clone();
            mended.operations += after - operations[0] - operations[1];
            for (access, shape) in self.analysis.accesses.iter().zip(&mut mended.shapes) {
                if ways.iter().any(|blocks| blocks.contains(&access.site.0))
                    && shape.class == Class::Contiguous
                {
                    shape.stride = shape.stride.map(|stride| stride * i128::from(period));
                    shape.class = Class::Strided;
                    shape.times /= period as f64;
                }
            }
            let reason = format!(
                "neighboring lanes take different ways, with {} and {} operations, and a simdgroup executes both: number the elements so that all lanes of a simdgroup take one",
                operations[0], operations[1]
            );
            let location = kernel.module.location(&code.term_metadata);
            found.push(Found { access: None, location, reason, as_is: None, mended });
        }
        found
    }

    /// The number of neighboring lanes after which a comparison of `position % number` with a constant repeats.
    fn period(&self, cond: ValueId) -> Option<u64> {
        let inst = self.kernel.definition(cond)?;
        let remainder = match &inst.op {
            Op::ICmp {
                pred: IntPredicate::Eq | IntPredicate::Ne,
                a: Operand::Value(a),
                b: Operand::Const(_),
                ..
            } => *a,
            // `trunc (i & 1)`, as clang writes the comparison of a bit.
            Op::Cast { from, to: Type::Int(1), .. } => {
                let taint = self.kernel.taint(&from.op);
                return (taint.lane && !taint.data && self.moves_by_one(&from.op)).then_some(2);
            }
            _ => return None,
        };
        let (op, a, b) = match &self.kernel.definition(remainder)?.op {
            Op::Binary { op, a, b: Operand::Const(b), .. } => (op, a, b.as_unsigned(32)?),
            _ => return None,
        };
        let count = match op {
            BinaryOp::And => u64::try_from(b).ok()? + 1,
            BinaryOp::URem => u64::try_from(b).ok()?,
            _ => return None,
        };
        (self.moves_by_one(a)
            && (2..32).contains(&count)
            && (*op != BinaryOp::And || count.is_power_of_two()))
        .then_some(count)
    }

    /// Whether a number is one more for each lane along x.
    fn moves_by_one(&self, operand: &Operand) -> bool {
        stride_along(&self.kernel.form(operand), 0).and_then(|stride| stride.as_constant()) == Some(1)
    }

    /// The blocks from one up to where ways meet.
    fn way(&self, from: BlockId, meet: BlockId) -> BTreeSet<BlockId> {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(block) = next.pop() {
            if block != meet && seen.insert(block) {
                next.extend(self.kernel.function.block(block).term.successors());
            }
        }
        seen
    }

    /// Loops with a barrier whose step halves, and that combine two elements of threadgroup memory.
    fn simdgroup_reduction(&self) -> Vec<Found<'_>> {
        /// Halvings of 256 to 1.
        const STEPS: f64 = 8.0;
        let mut found = Vec::new();
        for (index, facts) in self.analysis.loops.iter().enumerate().filter(|(_, facts)| facts.has_barrier) {
            let Some(operation) = self.halves(index).then(|| self.combines(index)).flatten() else {
                continue;
            };
            let l = &self.kernel.loops.all[index];
            let assumed = iterations(self.analysis, index);
            // The tree as it is: eight steps.
            let mut as_is = self.code.clone();
            let mut mended = self.code.clone();
            let in_loop = |block: BlockId| l.contains(block);
            let blocks = || self.kernel.function.block_ids().filter(|block| in_loop(*block));
            let operations: f64 = blocks()
                .map(|b| operations_of(self.kernel, b) * weight(self.analysis, self.kernel, b) / assumed)
                .sum();
            let barriers: f64 = blocks()
                .map(|b| self.kernel.barriers_of(b) * weight(self.analysis, self.kernel, b) / assumed)
                .sum();
            as_is.operations += operations * (STEPS - assumed);
            as_is.barriers += barriers * (STEPS - assumed);
            // Two reductions of a simdgroup, with a barrier between them.
            mended.operations += 20.0 - operations * assumed;
            mended.barriers += 1.0 - barriers * assumed;
            for (access, at) in self.analysis.accesses.iter().zip(0..) {
                if in_loop(access.site.0) {
                    as_is.shapes[at].times *= STEPS / assumed;
                    mended.shapes[at].times = 0.0;
                }
            }
            let reason = format!(
                "a tree of {STEPS} steps for 256 threads, with a barrier each: `{operation}` of each simdgroup and of their results needs one barrier"
            );
            found.push(Found {
                access: None,
                location: facts.location.clone(),
                reason,
                as_is: Some(as_is),
                mended,
            });
        }
        found
    }

    /// Whether a variable of the loop's header is halved by each iteration, down to 1 or 0.
    fn halves(&self, index: usize) -> bool {
        let l = &self.kernel.loops.all[index];
        // The loop ends if its variable is below this number.
        let limit = |block: BlockId| {
            let term = &self.kernel.function.block(block).term;
            let Term::CondBr { cond: Operand::Value(cond), .. } = term else { return None };
            let Op::ICmp { b: Operand::Const(limit), .. } = &self.kernel.definition(*cond)?.op else {
                return None;
            };
            let leaves = term.successors().iter().any(|to| !l.contains(*to));
            leaves.then(|| limit.as_unsigned(32)).flatten()
        };
        let mut limits =
            self.kernel.function.block_ids().filter(|block| l.contains(*block)).filter_map(limit);
        let Some(limit) = limits.next().filter(|limit| *limit <= 4) else { return false };
        // A step that ends at 1 is below 2 afterwards; if the variable is twice the step, it is below 4.
        let is_step = |half: ValueId| {
            let mut insts = self.kernel.function.blocks.iter().flat_map(|block| &block.insts);
            let uses = |inst: &Inst| inst.op.operands().contains(&&Operand::Value(half));
            limit <= 2 || insts.any(|inst| !matches!(inst.op, Op::Phi { .. }) && uses(inst))
        };
        let header = self.kernel.function.block(l.header);
        header.insts.iter().any(|inst| {
            let (Op::Phi { incoming, .. }, Some(result)) = (&inst.op, inst.result) else { return false };
            incoming.iter().filter(|(_, from)| l.contains(*from)).any(|(operand, _)| {
                let Operand::Value(value) = operand else { return false };
                let Some(Op::Binary { op, a, b: Operand::Const(by), .. }) =
                    self.kernel.definition(*value).map(|i| &i.op)
                else {
                    return false;
                };
                let by = by.as_unsigned(32);
                let is_half = match op {
                    BinaryOp::LShr | BinaryOp::AShr => by == Some(1),
                    BinaryOp::UDiv | BinaryOp::SDiv => by == Some(2),
                    _ => false,
                };
                is_half && *a == Operand::Value(result) && is_step(*value)
            })
        })
    }

    /// The SIMD-group function of a loop that stores a combination of two elements of threadgroup memory.
    fn combines(&self, index: usize) -> Option<&'static str> {
        let stores = self.analysis.accesses.iter().filter(|access| {
            access.kind == Kind::Store
                && access.space == Space::Threadgroup
                && access.loops.last() == Some(&index)
        });
        let mut names = stores.map(|access| {
            let Some(Op::Store { value, .. }) = self.inst(access).map(|inst| &inst.op) else { return None };
            let Operand::Value(value) = &value.op else { return None };
            let (name, operands) = match &self.kernel.definition(*value)?.op {
                Op::Binary { op: BinaryOp::FAdd | BinaryOp::Add, a, b, .. } => ("simd_sum", [a, b]),
                Op::Call(call) => {
                    let Callee::Function(name) = &call.callee else { return None };
                    let name = match name.strip_prefix("llvm.")?.split('.').next()? {
                        "maxnum" | "umax" | "smax" | "maximum" => "simd_max",
                        "minnum" | "umin" | "smin" | "minimum" => "simd_min",
                        _ => return None,
                    };
                    (name, [&call.args.first()?.op, &call.args.get(1)?.op])
                }
                _ => return None,
            };
            let is_loaded = |operand: &&Operand| {
                let Operand::Value(value) = operand else { return false };
                match self.kernel.definition(*value).map(|inst| &inst.op) {
                    Some(Op::Load { ptr, .. }) => {
                        self.kernel.space(self.kernel.form(&ptr.op).root()) == Space::Threadgroup
                    }
                    _ => false,
                }
            };
            operands.iter().all(is_loaded).then_some(name)
        });
        let first = names.next()??;
        names.all(|name| name == Some(first)).then_some(first)
    }

    fn privatize_histogram(&self) -> Vec<Found<'_>> {
        /// Largest table of a threadgroup in bytes.
        const MOST: u128 = 8192;
        let mut found = Vec::new();
        for (at, access) in self.analysis.accesses.iter().enumerate() {
            let is_candidate = access.kind == Kind::Atomic
                && access.space == Space::Device
                && access.class == Class::Gather
                && !access.is_rare
                && self.analysis.barriers.is_empty();
            let Some(Inst { op: Op::AtomicRmw { op, ptr, .. }, result, .. }) = self.inst(access) else {
                continue;
            };
            let is_sum = matches!(
                op,
                RmwOp::Add | RmwOp::FAdd | RmwOp::UMax | RmwOp::UMin | RmwOp::Max | RmwOp::Min | RmwOp::Or
            );
            let is_used = result.is_some_and(|result| self.is_used(result));
            if !is_candidate || !is_sum || is_used {
                continue;
            }
            let Some(bins) = self.bound(&ptr.op).filter(|bins| *bins * u128::from(access.bytes) <= MOST)
            else {
                continue;
            };
            let mut mended = self.code.clone();
            mended.shapes[at].space = Space::Threadgroup;
            // At the end each thread adds its share of the table: 256 threads with 16 elements each, a bin of 256 threads.
            let share = bins as f64 / (256.0 * 16.0);
            mended.shapes.push(super::model::Shape {
                times: share,
                class: Class::Contiguous,
                ..self.code.shapes[at]
            });
            mended.barriers += 2.0 / 16.0;
            let name = access.object.as_deref().unwrap_or("memory");
            let reason = format!(
                "atomic operations on {bins} elements of `{name}` in device memory, whose order no thread sees: count in {} bytes of threadgroup memory, 16 elements for each thread, and add the table once for each threadgroup",
                bins * u128::from(access.bytes)
            );
            found.push(Found { access: Some(access), location: None, reason, as_is: None, mended });
        }
        found
    }

    fn is_used(&self, value: ValueId) -> bool {
        let uses = |operand: &&Operand| **operand == Operand::Value(value);
        self.kernel.function.blocks.iter().any(|block| {
            block.insts.iter().any(|inst| inst.op.operands().iter().any(uses))
                || block.term.operands().iter().any(uses)
        })
    }

    /// The number of elements of an argument that an address can be of, by the range of its index.
    fn bound(&self, ptr: &Operand) -> Option<u128> {
        let Operand::Value(ptr) = ptr else { return None };
        let Op::Gep { base, indices, .. } = &self.kernel.definition(*ptr)?.op else { return None };
        let form = self.kernel.form(&base.op);
        let is_base = form.symbols().all(|symbol| matches!(symbol, Symbol::Base(_))) && form.root().is_some();
        // A last index of a structure's field, as of the value in an atomic type, is 0.
        let (first, rest) = indices.split_first()?;
        let is_zero = |index: &Typed| matches!(&index.op, Operand::Const(c) if c.as_unsigned(32) == Some(0));
        (is_base && rest.iter().all(is_zero)).then(|| self.range(&first.op, 8)).flatten()
    }

    /// The number of values that an index can have, from 0 on.
    fn range(&self, operand: &Operand, depth: u32) -> Option<u128> {
        let Operand::Value(value) = operand else { return None };
        match &self.kernel.definition(*value)?.op {
            _ if depth == 0 => None,
            Op::Cast { op: CastOp::ZExt, from, .. } => match from.ty {
                Type::Int(width @ 1..=12) => Some(1 << width),
                _ => self.range(&from.op, depth - 1),
            },
            Op::Cast { op: CastOp::Trunc, from, .. } => self.range(&from.op, depth - 1),
            Op::Binary { op: BinaryOp::And, b: Operand::Const(mask), .. } => {
                mask.as_unsigned(64).map(|mask| mask + 1)
            }
            Op::Binary { op: BinaryOp::URem, b: Operand::Const(count), .. } => count.as_unsigned(64),
            Op::Binary { op: BinaryOp::LShr, ty: Type::Int(width), b: Operand::Const(by), .. } => {
                let by = u32::try_from(by.as_unsigned(32)?).ok()?;
                width.checked_sub(by).filter(|bits| *bits < 64).map(|bits| 1 << bits)
            }
            Op::Call(call) => {
                let Callee::Function(name) = &call.callee else { return None };
                let limit = |index: usize| match &call.args.get(index)?.op {
                    Operand::Const(limit) => limit.as_unsigned(64).map(|limit| limit + 1),
                    Operand::Value(_) => None,
                };
                name.starts_with("llvm.umin").then(|| limit(0).or_else(|| limit(1))).flatten()
            }
            _ => None,
        }
    }

    /// Threadgroups that are no whole simdgroups, or so small that their start costs more than their work.
    fn resize_group(&self, launch: &Launch) -> Option<Advice> {
        let most = self.analysis.source.signature.max_threads_per_threadgroup.unwrap_or(1024);
        let usual = u64::from(most.min(256));
        let volume: u64 = launch.group.iter().map(|size| u64::from(*size)).product();
        let threads: u64 = launch.grid.iter().map(|size| u64::from(*size)).product();
        let is_given = Remedy::ResizeGroup.machines().contains(&self.machine);
        if !is_given || !self.is_alone() || threads < usual || volume > 32 && volume.is_multiple_of(32) {
            return None;
        }
        let gain = self.code.of_thread(self.machine, volume) / self.code.of_thread(self.machine, usual);
        let used = volume as f64 / (volume.div_ceil(32) * 32) as f64;
        let reason = format!(
            "a threadgroup of {volume} threads uses {:.0} % of the lanes of its simdgroups, and starts for {volume} threads only: {usual} threads",
            100.0 * used
        );
        (gain >= LEAST_GAIN).then_some(Advice {
            remedy: Remedy::ResizeGroup,
            location: None,
            reason,
            gain,
            object: None,
        })
    }
}

fn same_object(found: &Found<'_>, access: &Access) -> bool {
    found.access.is_some_and(|known| known.object == access.object)
}
