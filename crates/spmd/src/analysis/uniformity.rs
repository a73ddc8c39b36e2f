//! Uniformity analysis: the shape of each value over lanes, and the divergent branches.
//!
//! An optimiztic fixed point over the function. Shapes are propagated from operands; a phi at a join of divergent paths is a
//! select; a branch on a non-uniform value is divergent. A value that leaves a loop with a divergent exit is non-uniform outside
//! the loop, regardless of its shape inside.

use std::collections::HashSet;
use std::rc::Rc;

use elinvar_ir::{
    BinaryOp, BlockId, CastOp, Const, Function, Inst, Module, Op, Operand, Term, Type, Typed, ValueId,
};

use crate::analysis::cfg::Cfg;
use crate::analysis::index_narrowing::NarrowIndices;
use crate::analysis::lane_layout::Layout;
use crate::analysis::mask_classes::MaskClasses;
use crate::analysis::temporal_divergence::TemporalDivergence;
use crate::analysis::vector_shape::{Known, Pattern, Rules, Shape, largest};
use crate::intrinsic::{Intrinsic, Position, Uniform};
use crate::kernel::Kernel;
use crate::support::gep::{Step, steps};
use crate::support::ir::callee_name;
use crate::support::vector_intrinsics::Elementwise;

/// Number of increases after which a value's maximum is widened to unknown.
const GROWTH: u8 = 3;
/// Maximum number of instructions to rematerialize a value after a barrier: for a scalar,
/// and for a vector.
const CHEAP_SCALAR: u32 = 16;
const CHEAP_VECTOR: u32 = 4;

/// The result of the analysis.
pub(crate) struct Uniformity {
    known: Vec<Known>,
    /// For each block, whether its branch may diverge.
    pub divergent: Vec<bool>,
    /// The block and the index of each value's definition.
    places: Vec<Option<(BlockId, usize)>>,
    /// The CFG of the whole function; `None` with one lane.
    cfg: Option<(Rc<Cfg>, MaskClasses)>,
    narrow: NarrowIndices,
    /// Temporally divergent values: each lane has its own.
    temporal: HashSet<ValueId>,
}

impl Uniformity {
    /// The result for code with one lane, where every value is uniform.
    pub fn of_one_lane(kernel: &Kernel) -> Self {
        let function = &kernel.function;
        Self {
            known: function.values.iter().map(|v| Known::uniform(true, width(&v.ty))).collect(),
            divergent: vec![false; function.blocks.len()],
            places: places(function),
            cfg: None,
            narrow: NarrowIndices::default(),
            temporal: HashSet::new(),
        }
    }

    pub fn new(
        module: &Module,
        kernel: &Kernel,
        layout: &Layout,
        cfg: Rc<Cfg>,
        temporal: &TemporalDivergence,
    ) -> Self {
        let function = &kernel.function;
        let places = places(function);
        let divergent = vec![false; function.blocks.len()];
        let masks = MaskClasses::new(&cfg, &divergent);
        let order = cfg.order.clone();
        let known = vec![Known::UNKNOWN; function.values.len()];
        let cfg = Some((cfg, masks));
        let result = Self {
            known,
            divergent,
            places,
            cfg,
            narrow: NarrowIndices::default(),
            temporal: HashSet::new(),
        };
        let growth = vec![0; function.values.len()];
        let mut analysis = Analysis { module, kernel, layout, order, result, growth };
        analysis.begin();
        analysis.run(temporal);
        let mut result = analysis.result;
        result.narrow = NarrowIndices::new(module, kernel, &result);
        result
    }

    /// The indices that can be interpreted as signed 32-bit numbers at accesses.
    pub fn narrow(&self) -> &NarrowIndices {
        &self.narrow
    }

    /// The CFG of the whole function and its mask classes; `None` with one lane.
    pub fn cfg(&self) -> Option<&(Rc<Cfg>, MaskClasses)> {
        self.cfg.as_ref()
    }

    /// Shape of a value at its definition.
    pub fn of(&self, value: ValueId) -> &Known {
        &self.known[value.0 as usize]
    }

    /// Whether inactive lanes keep their previous value when it is computed.
    pub fn is_temporally_divergent(&self, value: ValueId) -> bool {
        self.temporal.contains(&value)
    }

    /// The block that defines a value; `None` for parameters, positions and private arrays.
    pub fn home(&self, value: ValueId) -> Option<BlockId> {
        self.places[value.0 as usize].map(|(block, _)| block)
    }

    /// The instruction that defines a value.
    pub fn definition<'k>(&self, kernel: &'k Kernel, value: ValueId) -> Option<&'k Inst> {
        let (block, index) = self.places[value.0 as usize]?;
        kernel.function.block(block).insts.get(index)
    }

    /// Shape of an operand at a use in a block.
    pub fn at(&self, operand: &Operand, ty: &Type, block: BlockId) -> Known {
        match operand {
            Operand::Const(c) => constant(c, ty),
            Operand::Value(v) if self.has_left(*v, block) => {
                Known { max: self.of(*v).max, ..Known::varying(64) }
            }
            Operand::Value(v) => self.of(*v).clone(),
        }
    }

    /// Whether the value is defined in a loop with a divergent exit, and `block` is outside that loop.
    pub fn has_left(&self, value: ValueId, block: BlockId) -> bool {
        match (&self.cfg, self.home(value)) {
            (Some((cfg, masks)), Some(home)) => masks.leaves_divergent_loop(cfg, home, block),
            _ => false,
        }
    }

    /// Whether `block` is in the innermost loop in which the value is defined, so that the value's operands
    /// are unchanged.
    pub fn stays(&self, value: ValueId, block: BlockId) -> bool {
        let (Some((cfg, _)), Some(home)) = (&self.cfg, self.home(value)) else { return true };
        cfg.loop_of(home).is_none_or(|l| cfg.contains(l, block))
    }

    /// Whether a value is cheap to rematerialize from parameters, positions and constants.
    /// Recomputing it then costs no more than a store and a load.
    pub fn is_cheap(&self, kernel: &Kernel, value: ValueId) -> bool {
        let most = if self.of(value).pattern().is_some() { CHEAP_SCALAR } else { CHEAP_VECTOR };
        self.cost(kernel, value, most).is_some()
    }

    /// Number of instructions to compute a value, if that is at most `most`.
    fn cost(&self, kernel: &Kernel, value: ValueId, most: u32) -> Option<u32> {
        if self.home(value).is_none() {
            return Some(0);
        }
        let op = &self.definition(kernel, value)?.op;
        let divides = matches!(
            op,
            Op::Binary {
                op: BinaryOp::UDiv
                    | BinaryOp::SDiv
                    | BinaryOp::URem
                    | BinaryOp::SRem
                    | BinaryOp::FDiv
                    | BinaryOp::FRem,
                ..
            }
        );
        let simple = matches!(
            op,
            Op::Binary { .. } | Op::Cast { .. } | Op::Gep { .. } | Op::ICmp { .. } | Op::Select { .. }
        );
        if !simple || divides || most == 0 {
            return None;
        }
        let mut sum = 1;
        for operand in op.operands().into_iter().filter_map(Operand::value) {
            sum += self.cost(kernel, operand, most - sum)?;
            if sum > most {
                return None;
            }
        }
        Some(sum)
    }

    /// The operands of a value, if it may be rematerialized for an address: see [`crate::vector::emit`].
    pub fn address_operands(&self, kernel: &Kernel, value: ValueId) -> Vec<ValueId> {
        let Some(inst) = self.definition(kernel, value) else { return Vec::new() };
        let loose = self.of(value).pattern().is_some_and(|p| p.loose);
        if !loose && !self.narrow.is_part(value) {
            return Vec::new();
        }
        let parts = inst.op.operands().into_iter().filter_map(Operand::value);
        parts.filter(|v| self.home(*v).is_some()).collect()
    }
}

/// The block and the index of each value's definition.
fn places(function: &Function) -> Vec<Option<(BlockId, usize)>> {
    let mut places = vec![None; function.values.len()];
    for block in function.block_ids() {
        for (index, inst) in function.block(block).insts.iter().enumerate() {
            if let Some(result) = inst.result {
                places[result.0 as usize] = Some((block, index));
            }
        }
    }
    places
}

/// Bit width of an integer type; 64 for all others.
pub(crate) fn width(ty: &Type) -> u32 {
    match ty {
        Type::Int(width) => *width,
        _ => 64,
    }
}

/// Shape of a constant.
pub(crate) fn constant(c: &Const, ty: &Type) -> Known {
    match (c, ty) {
        (Const::Int(_) | Const::Zero, Type::Int(width)) if *width <= 64 => {
            c.as_unsigned(*width).map_or(Known::uniform(true, *width), |v| Known::constant(v as u64))
        }
        (Const::Null, _) => Known::constant(0),
        _ => Known::uniform(true, width(ty)),
    }
}

struct Analysis<'a> {
    module: &'a Module,
    kernel: &'a Kernel,
    layout: &'a Layout,
    order: Vec<BlockId>,
    /// Shapes so far.
    result: Uniformity,
    /// Number of increases of each value's maximum.
    growth: Vec<u8>,
}

impl Analysis<'_> {
    /// Initializes parameters, positions and private arrays.
    fn begin(&mut self) {
        let single = self.layout.factor == 1;
        for param in &self.kernel.function.params {
            self.result.known[param.value.0 as usize] = Known::uniform(true, 64);
        }
        for (value, (position, dim)) in &self.kernel.positions {
            let size = self.layout.group[*dim % 3];
            self.result.known[value.0 as usize] = match position {
                Position::Thread => self.layout.thread(*dim),
                Position::FullGroupSize if self.layout.is_dynamic => {
                    let align = if *dim == 0 { self.layout.row_align() } else { 0 };
                    let shape = Shape::Lanes(Pattern::uniform(true, align));
                    Known { shape, max: u64::from(size), constant: None }
                }
                Position::FullGroupSize => Known::constant(u64::from(size)),
                Position::GroupSize => Known { max: u64::from(size), ..Known::uniform(true, 32) },
                Position::Group | Position::Grid | Position::Groups => Known::uniform(true, 32),
                Position::ArgumentBytes
                | Position::FaultRecord
                | Position::LogRing
                | Position::GridCounter => Known::uniform(true, 64),
                Position::LogKernel => Known::uniform(true, 32),
            };
        }
        for invariant in &self.kernel.invariant_loads {
            let width = width(&invariant.ty);
            self.result.known[invariant.value.0 as usize] =
                Known { max: largest(width), ..Known::uniform(true, width) };
        }
        for private in &self.kernel.private_arrays {
            let step = self.layout.step(private.lane_stride as i64);
            let pattern = Pattern { offsets: step, loose: false, unwrapped: true, same: single, align: 0 };
            self.result.known[private.value.0 as usize] =
                Known { shape: Shape::Lanes(pattern), max: u64::MAX, constant: None };
        }
    }

    fn run(&mut self, temporal: &TemporalDivergence) {
        loop {
            while self.pass() {}
            let function = &self.kernel.function;
            let parted = |b: &BlockId| match &function.block(*b).term {
                Term::CondBr { cond, .. } => !self.result.at(cond, &Type::I1, *b).is_same(),
                Term::Switch { value, .. } => !self.result.at(&value.op, &value.ty, *b).is_same(),
                Term::Br(_) | Term::Ret(_) | Term::Unreachable => false,
            };
            let found: Vec<BlockId> = self.order.iter().filter(|b| parted(b)).copied().collect();
            let before = self.result.divergent.iter().filter(|d| **d).count();
            found.iter().for_each(|b| self.result.divergent[b.0 as usize] = true);
            if let Some((cfg, masks)) = &mut self.result.cfg {
                *masks = MaskClasses::new(cfg, &self.result.divergent);
            }
            let values = temporal.values(self.kernel, &self.result);
            if found.len() == before && values.is_subset(&self.result.temporal) {
                return;
            }
            self.result.temporal.extend(values);
        }
    }

    /// One iteration over all values; returns whether anything changed.
    fn pass(&mut self) -> bool {
        let mut changed = false;
        for block in self.order.clone() {
            let function = &self.kernel.function;
            for inst in &function.block(block).insts {
                let Some(result) = inst.result else { continue };
                let mut new = self.inst(block, inst, function.ty(result));
                if self.result.is_temporally_divergent(result) && !new.is_unknown() {
                    new = Known { max: new.max, ..Known::varying(width(function.ty(result))) };
                }
                changed |= self.update(result, &new);
            }
        }
        changed
    }

    fn update(&mut self, value: ValueId, new: &Known) -> bool {
        let old = &self.result.known[value.0 as usize];
        let mut merged = old.either(new);
        if old.is_unknown() {
            merged = new.clone();
        } else if merged.max > old.max {
            let growth = &mut self.growth[value.0 as usize];
            *growth += 1;
            if *growth > GROWTH {
                merged.max = largest(width(self.kernel.function.ty(value)));
                // The wrap test used a smaller maximum.
                if let Shape::Lanes(p) = &mut merged.shape {
                    p.unwrapped &= p.is_uniform();
                }
            }
        }
        let changed = merged != *old;
        self.result.known[value.0 as usize] = merged;
        changed
    }

    fn typed(&self, typed: &Typed, block: BlockId) -> Known {
        self.result.at(&typed.op, &typed.ty, block)
    }

    fn inst(&self, block: BlockId, inst: &Inst, ty: &Type) -> Known {
        let rules = Rules { lanes: self.layout.lanes };
        let is_number = |ty: &Type| ty.is_int() || ty.is_ptr();
        let known = match &inst.op {
            Op::Binary { op, ty: Type::Int(width), a, b, .. } if *width <= 64 => {
                let int = Type::Int(*width);
                let global = self.global_position(a, b);
                let sum = rules.binary(
                    *op,
                    *width,
                    &self.result.at(a, &int, block),
                    &self.result.at(b, &int, block),
                );
                if global { unwrapped(sum) } else { sum }
            }
            Op::Cast { op, from, to, .. } if is_number(&from.ty) && is_number(to) => {
                rules.cast(*op, width(&from.ty), width(to), &self.typed(from, block))
            }
            Op::Select { cond, a, b, .. } => {
                let (a, b) = (self.typed(a, block), self.typed(b, block));
                let cond = self.typed(cond, block);
                match cond.is_uniform() {
                    true => a.either(&b).side_by_side(cond.is_same()),
                    false if cond.is_unknown() => Known::UNKNOWN,
                    false => Known { max: a.max.max(b.max), ..Known::varying(width(ty)) },
                }
            }
            Op::Phi { incoming, .. } => self.phi(block, incoming, ty),
            Op::Freeze(value) => self.typed(value, block),
            Op::Gep { source, base, indices, .. } if base.ty.is_ptr() => {
                self.gep(rules, block, source, base, indices)
            }
            Op::Load { ptr, atomic, volatile, .. } => {
                // Other threads may change the memory between two vectors.
                let fixed = atomic.is_none() && !volatile;
                let address = self.typed(ptr, block);
                let max = largest(width(ty));
                match address.pattern() {
                    Some(p) if p.is_uniform() => Known { max, ..Known::uniform(p.same && fixed, 64) },
                    _ if address.is_unknown() => Known::UNKNOWN,
                    _ => Known::varying(width(ty)),
                }
            }
            Op::Call(call) => self.call(block, &inst.op, call, ty),
            Op::AtomicRmw { .. } | Op::CmpXchg { .. } => Known::varying(width(ty)),
            op => self.all_uniform(block, op, ty),
        };
        if self.layout.lanes == 1 && known.shape == Shape::Varying {
            return Known { max: known.max, ..Known::uniform(false, 64) };
        }
        known
    }

    /// Uniform if all operands are uniform.
    fn all_uniform(&self, block: BlockId, op: &Op, ty: &Type) -> Known {
        let function = &self.kernel.function;
        let operands = op.operands();
        let mut same = true;
        for operand in operands {
            let known = match operand {
                Operand::Const(_) => continue,
                Operand::Value(v) => self.result.at(operand, function.ty(*v), block),
            };
            match known.shape {
                Shape::Unknown => return Known::UNKNOWN,
                Shape::Lanes(p) if p.is_uniform() => same &= p.same,
                _ => return Known::varying(width(ty)),
            }
        }
        Known::uniform(same, width(ty))
    }

    fn phi(&self, block: BlockId, incoming: &[(Operand, BlockId)], ty: &Type) -> Known {
        let Some((cfg, masks)) = &self.result.cfg else { return Known::varying(width(ty)) };
        let from = incoming.iter().filter(|(_, from)| cfg.reaches(*from));
        let known = from.map(|(operand, _)| self.result.at(operand, ty, block));
        let merged = known.reduce(|a, b| a.either(&b)).unwrap_or(Known::UNKNOWN);
        if masks.mixes(cfg, &self.result.divergent, block) {
            return Known { max: merged.max, ..Known::varying(width(ty)) };
        }
        merged
    }

    fn gep(&self, rules: Rules, block: BlockId, source: &Type, base: &Typed, indices: &[Typed]) -> Known {
        let mut address = self.typed(base, block);
        let bound = self.kernel.bound_of(self.object(&base.op));
        for (level, step) in steps(self.module, source, indices).into_iter().enumerate() {
            let index = match step {
                Some(Step::Field(offset)) => {
                    address = rules.address(&address, &Known::constant(offset), 1, bound);
                    continue;
                }
                Some(Step::Elements(size)) => (self.wide(rules, &indices[level], block), size),
                None => return Known::varying(64),
            };
            address = rules.address(&address, &index.0, index.1, bound);
        }
        address
    }

    /// The address from which an address is computed.
    fn object<'k>(&'k self, mut address: &'k Operand) -> &'k Operand {
        while let Operand::Value(value) = address
            && let Some(Op::Gep { base, .. }) =
                self.result.definition(self.kernel, *value).map(|inst| &inst.op)
        {
            address = &base.op;
        }
        address
    }

    /// An index, extended to 64 bits as LLVM does.
    fn wide(&self, rules: Rules, index: &Typed, block: BlockId) -> Known {
        let known = self.typed(index, block);
        match &index.ty {
            Type::Int(width) if *width < 64 => rules.cast(CastOp::SExt, *width, 64, &known),
            _ => known,
        }
    }

    fn call(&self, block: BlockId, op: &Op, call: &elinvar_ir::Call, ty: &Type) -> Known {
        let Some(name) = callee_name(call) else { return Known::varying(width(ty)) };
        if let Some(Intrinsic::Group(function)) = Intrinsic::parse(name) {
            let uniform = match function.uniform() {
                Uniform::Always => true,
                Uniform::Never => false,
                Uniform::WithArgument(index) => {
                    let lane = call.args.get(index);
                    lane.is_some_and(|a| self.result.at(&a.op, &a.ty, block).is_uniform())
                }
            };
            // Uniform over one simdgroup.
            let same = self.layout.factor == 1;
            return if uniform { Known::uniform(same, width(ty)) } else { Known::varying(width(ty)) };
        }
        match Elementwise::of(call) {
            Some(_) => self.all_uniform(block, op, ty),
            None => Known::varying(width(ty)),
        }
    }

    /// Whether a sum is a thread's position in the grid: the threadgroup's base plus the position in the threadgroup.
    fn global_position(&self, a: &Operand, b: &Operand) -> bool {
        let position = |o: &Operand| o.value().and_then(|v| self.kernel.positions.get(&v).copied());
        let first = |o: &Operand, dim: usize| {
            let size = self.layout.group[dim];
            let Operand::Value(v) = o else { return false };
            let Some(inst) = self.result.definition(self.kernel, *v) else {
                let is_one = size == 1 && !self.layout.is_dynamic;
                return is_one && position(o) == Some((Position::Group, dim));
            };
            let Op::Binary { op: BinaryOp::Mul, a, b, .. } = &inst.op else { return false };
            [(a, b), (b, a)].into_iter().any(|(group, full)| {
                position(group) == Some((Position::Group, dim))
                    && position(full) == Some((Position::FullGroupSize, dim))
            })
        };
        [(a, b), (b, a)].into_iter().any(|(thread, start)| match position(thread) {
            Some((Position::Thread, dim)) => first(start, dim),
            _ => false,
        })
    }
}

/// A position in the grid: grid sizes have 32 bits, so it does not wrap around.
fn unwrapped(known: Known) -> Known {
    let shape = match known.shape {
        Shape::Lanes(p) => Shape::Lanes(Pattern { unwrapped: true, ..p }),
        other => other,
    };
    Known { shape, ..known }
}

impl Known {
    /// As above, but uniform over the vectors of an iteration only if it was and `same` holds.
    fn side_by_side(self, same: bool) -> Known {
        let shape = match self.shape {
            Shape::Lanes(p) => Shape::Lanes(Pattern { same: p.same && same, ..p }),
            other => other,
        };
        let constant = self.constant.filter(|_| same);
        Known { shape, constant, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::vector_shape::Offsets;

    const HEAD: &str = "
        declare i32 @__elinvar_thread_position_in_threadgroup(i32)
        declare i32 @__elinvar_threadgroup_position_in_grid(i32)
        declare i32 @__elinvar_dispatch_threads_per_threadgroup(i32)
        define void @__elinvar_entry(ptr %a, ptr %b) {
        entry:
          %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
          %g = call i32 @__elinvar_threadgroup_position_in_grid(i32 0)
          %s = call i32 @__elinvar_dispatch_threads_per_threadgroup(i32 0)
          %first = mul i32 %g, %s
          %i = add i32 %first, %t
          %w = zext i32 %i to i64
          %p = getelementptr float, ptr %a, i64 %w
          %n = load i32, ptr %b\n";

    /// The shapes of the named values: `u` uniform, a stride, `~` before loose ones, `v` varying.
    fn shapes(body: &str, names: &[&str]) -> Vec<String> {
        let module = Module::parse(&format!("{HEAD}{body}\n}}\n")).unwrap();
        let kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        let layout = Layout::new([64, 1, 1], 8, false);
        let result =
            crate::analysis::Analyses::default().get::<Uniformity>(&module, &kernel, &layout).unwrap();
        let find = |name: &&str| {
            let values: &Vec<_> = &kernel.function.values;
            let id = values.iter().position(|v| v.name.as_deref() == Some(*name)).unwrap();
            match &result.known[id].shape {
                Shape::Lanes(p) if p.is_uniform() => "u".to_owned(),
                Shape::Lanes(Pattern { offsets: Offsets::Linear(s), loose, .. }) => {
                    format!("{}{s}", if *loose { "~" } else { "" })
                }
                Shape::Lanes(_) => "table".to_owned(),
                Shape::Varying => "v".to_owned(),
                Shape::Unknown => "?".to_owned(),
            }
        };
        names.iter().map(find).collect()
    }

    #[test]
    fn positions_and_addresses() {
        let body = "
            %j = add i32 %i, %n
            %x = zext i32 %j to i64
            %q = getelementptr float, ptr %a, i64 %x
            %v = load float, ptr %q
            %c = icmp ult i32 %i, %n
            ret void";
        let found = shapes(body, &["t", "i", "w", "p", "n", "x", "q", "v", "c"]);
        assert_eq!(found, ["1", "1", "1", "4", "u", "~1", "~4", "v", "v"]);
    }

    #[test]
    fn loops_of_equal_length() {
        let body = "
              br label %loop
            loop:
              %k = phi i32 [ 0, %entry ], [ %next, %loop ]
              %at = phi i32 [ %i, %entry ], [ %step, %loop ]
              %step = add i32 %at, %n
              %next = add i32 %k, 1
              %more = icmp ult i32 %next, %n
              br i1 %more, label %loop, label %end
            end:
              %after = add i32 %next, 1
              ret void";
        assert_eq!(shapes(body, &["k", "at", "step", "more", "after"]), ["u", "1", "1", "u", "u"]);
    }

    #[test]
    fn loops_that_lanes_leave_apart() {
        let body = "
              br label %loop
            loop:
              %k = phi i32 [ 0, %entry ], [ %next, %loop ]
              %next = add i32 %k, 1
              %more = icmp ult i32 %next, %i
              br i1 %more, label %loop, label %end
            end:
              %after = add i32 %next, 1
              ret void";
        assert_eq!(shapes(body, &["k", "next", "more", "after"]), ["u", "u", "v", "v"]);
    }

    #[test]
    fn joins_choose_per_lane() {
        let body = "
              %c = icmp ult i32 %i, 10
              br i1 %c, label %then, label %join
            then:
              br label %join
            join:
              %x = phi i32 [ 1, %then ], [ 2, %entry ]
              %u = icmp ult i32 %n, 10
              br i1 %u, label %left, label %end
            left:
              br label %end
            end:
              %y = phi i32 [ 1, %left ], [ 2, %join ]
              ret void";
        assert_eq!(shapes(body, &["x", "y"]), ["v", "u"]);
    }
}
