//! Lane rows: values without a [pattern](super::vector_shape) whose lanes form groups with constant differences.
//!
//! If the threads of a vector access several rows of a matrix whose stride is known at run time only, the addresses have no pattern, but
//! those in one row are a constant apart: `row * stride + column` has equal products for lanes with the same row. Accesses then need
//! the address of one lane of each row.
//!
//! The difference of extended 32-bit numbers is known up to a multiple of 2³² only, as in a loose pattern. That suffices for addresses at
//! which all lanes access one object of at most 2³¹ bytes: the difference is the one that is nearest to 0. In code for larger objects
//! ([`SizeBound`]) no value has rows.

use std::collections::HashMap;
use std::rc::Rc;

use elinvar_ir::{BinaryOp, BlockId, CastOp, Const, Inst, Module, Op, Operand, Type, Typed, ValueId};

use crate::analysis::size_bound::SizeBound;
use crate::analysis::uniformity::{Uniformity, width};
use crate::analysis::vector_shape::{Offsets, Shape};
use crate::kernel::Kernel;
use crate::support::gep::{Step, steps};

/// Partition of the lanes into rows, and each lane's difference from the first lane of its row.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LaneRows {
    /// For each lane, the first lane of its row, and the difference from it.
    lanes: Rc<[(u32, i64)]>,
}

impl LaneRows {
    /// One row.
    pub fn whole(offsets: &Offsets, lanes: u32) -> Self {
        Self { lanes: (0..lanes).map(|lane| (0, offsets.at(lane))).collect() }
    }

    /// The first lane of a lane's row.
    pub fn first(&self, lane: usize) -> u32 {
        self.lanes[lane].0
    }

    /// A lane's difference from the first lane of its row.
    pub fn offset(&self, lane: usize) -> i64 {
        self.lanes[lane].1
    }

    pub fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Largest difference within a row.
    pub fn span(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.1.unsigned_abs()).max().unwrap_or(0)
    }

    /// Rows of the lanes with equal keys, where `value` differs by the difference of the rows.
    fn grouped<K: std::hash::Hash + Eq>(
        lanes: usize,
        key: impl Fn(usize) -> K,
        value: impl Fn(usize) -> i64,
    ) -> Self {
        let mut firsts: HashMap<K, usize> = HashMap::new();
        let row = |lane: usize| {
            let first = *firsts.entry(key(lane)).or_insert(lane);
            (first as u32, value(lane).wrapping_sub(value(first)))
        };
        Self { lanes: (0..lanes).map(row).collect() }
    }

    fn sum(&self, other: &Self, factor: i64) -> Self {
        let key = |lane: usize| (self.first(lane), other.first(lane));
        let value = |lane| self.offset(lane).wrapping_add(other.offset(lane).wrapping_mul(factor));
        Self::grouped(self.len(), key, value)
    }

    fn times(&self, factor: i64) -> Self {
        Self {
            lanes: self.lanes.iter().map(|(first, offset)| (*first, offset.wrapping_mul(factor))).collect(),
        }
    }

    /// Rows of the lanes in which each of the values is equal.
    fn equal(all: &[Self]) -> Option<Self> {
        let lanes = all.first()?.len();
        let key = |lane: usize| all.iter().map(|rows| rows.lanes[lane]).collect::<Vec<_>>();
        Some(Self::grouped(lanes, key, |_| 0))
    }

    /// Rows of a value that is one of the two, the same one for all lanes.
    fn either(&self, other: &Self) -> Self {
        let key = |lane: usize| {
            (self.first(lane), other.first(lane), self.offset(lane).wrapping_sub(other.offset(lane)))
        };
        Self::grouped(self.len(), key, |lane| self.offset(lane))
    }

    /// The rows, unless each lane is one.
    fn useful(self) -> State {
        let own = |(lane, row): (usize, &(u32, i64))| row.0 as usize == lane;
        if self.lanes.iter().enumerate().all(own) { State::None } else { State::Rows(self) }
    }
}

#[derive(Clone, PartialEq)]
enum State {
    Unknown,
    Rows(LaneRows),
    None,
}

/// The rows of a kernel's values.
pub(crate) struct RowsOfValues {
    lanes: u32,
    states: Vec<State>,
}

impl RowsOfValues {
    pub fn new(module: &Module, kernel: &Kernel, uniform: &Uniformity, lanes: u32) -> Self {
        let states = vec![State::None; kernel.function.values.len()];
        let mut found = Self { lanes, states };
        let is_small = kernel.objects == SizeBound::DEFAULT;
        let Some((cfg, _)) = uniform.cfg().filter(|_| lanes > 1 && is_small) else { return found };
        // Other values, such as positions, have no rows.
        for block in &cfg.order {
            for result in kernel.function.block(*block).insts.iter().filter_map(|inst| inst.result) {
                found.states[result.0 as usize] = State::Unknown;
            }
        }
        loop {
            let mut changed = false;
            for block in &cfg.order {
                for inst in &kernel.function.block(*block).insts {
                    let Some(result) = inst.result else { continue };
                    if uniform.of(result).shape != Shape::Varying {
                        continue;
                    }
                    let new = found.inst(module, uniform, *block, inst);
                    let old = &mut found.states[result.0 as usize];
                    // Rows are only refined, so that this ends.
                    let new = match (&*old, new) {
                        (State::None, _) => State::None,
                        (State::Rows(old), State::Rows(new)) => old.either(&new).useful(),
                        (_, new) => new,
                    };
                    changed |= *old != new;
                    *old = new;
                }
            }
            if !changed {
                return found;
            }
        }
    }

    /// The rows of an operand at a use in a block, if the lanes have some.
    pub fn at(&self, uniform: &Uniformity, operand: &Operand, ty: &Type, block: BlockId) -> Option<LaneRows> {
        match self.state(uniform, operand, ty, block) {
            State::Rows(rows) => Some(rows),
            State::Unknown | State::None => None,
        }
    }

    fn state(&self, uniform: &Uniformity, operand: &Operand, ty: &Type, block: BlockId) -> State {
        let known = uniform.at(operand, ty, block);
        match (&known.shape, operand) {
            (Shape::Lanes(pattern), _) => State::Rows(LaneRows::whole(&pattern.offsets, self.lanes)),
            (Shape::Unknown, _) => State::Unknown,
            (Shape::Varying, Operand::Value(v)) if !uniform.has_left(*v, block) => self.state_of(*v),
            (Shape::Varying, _) => State::None,
        }
    }

    fn state_of(&self, value: ValueId) -> State {
        self.states[value.0 as usize].clone()
    }

    fn inst(&self, module: &Module, uniform: &Uniformity, block: BlockId, inst: &Inst) -> State {
        let at = |operand: &Operand, ty: &Type| self.state(uniform, operand, ty, block);
        if inst.result.is_some_and(|v| uniform.is_temporally_divergent(v)) {
            return State::None;
        }
        match &inst.op {
            Op::Binary { op, ty: ty @ Type::Int(_), a, b, .. } => {
                let (rows, other) = match (at(a, ty), at(b, ty)) {
                    (State::Rows(rows), State::Rows(other)) => (rows, other),
                    (State::None, _) | (_, State::None) => return State::None,
                    _ => return State::Unknown,
                };
                let constant = |operand: &Operand| match operand {
                    Operand::Const(Const::Int(number)) => i64::try_from(*number).ok(),
                    _ => None,
                };
                match (op, constant(a), constant(b)) {
                    (BinaryOp::Add, ..) => rows.sum(&other, 1),
                    (BinaryOp::Sub, ..) => rows.sum(&other, -1),
                    (BinaryOp::Mul, _, Some(factor)) => rows.times(factor),
                    (BinaryOp::Mul, Some(factor), _) => other.times(factor),
                    (BinaryOp::Shl, _, Some(bits @ 0..32)) => rows.times(1 << bits),
                    _ => return LaneRows::equal(&[rows, other]).map_or(State::None, LaneRows::useful),
                }
                .useful()
            }
            Op::Cast { op, from, to, .. } if from.ty.is_int() && to.is_int() => {
                match at(&from.op, &from.ty) {
                    State::Rows(rows) => extended(*op, &from.ty, rows).useful(),
                    other => other,
                }
            }
            Op::Freeze(value) => at(&value.op, &value.ty),
            Op::Select { cond, a, b, .. } if uniform.at(&cond.op, &cond.ty, block).is_uniform() => {
                either(at(&a.op, &a.ty), at(&b.op, &b.ty))
            }
            Op::Phi { ty, incoming, .. } => {
                let Some((cfg, masks)) = uniform.cfg() else { return State::None };
                if masks.mixes(cfg, &uniform.divergent, block) {
                    return State::None;
                }
                let from = incoming.iter().filter(|(_, from)| cfg.reaches(*from));
                from.map(|(operand, _)| at(operand, ty)).reduce(either).unwrap_or(State::None)
            }
            Op::Gep { source, base, indices, .. } if base.ty.is_ptr() => {
                self.gep(module, &at, source, base, indices)
            }
            _ => State::None,
        }
    }

    fn gep(
        &self,
        module: &Module,
        at: &dyn Fn(&Operand, &Type) -> State,
        source: &Type,
        base: &Typed,
        indices: &[Typed],
    ) -> State {
        let mut address = match at(&base.op, &base.ty) {
            State::Rows(rows) => rows,
            other => return other,
        };
        for (index, step) in indices.iter().zip(steps(module, source, indices)) {
            let size = match step {
                Some(Step::Field(_)) => continue,
                Some(Step::Elements(size)) => size as i64,
                None => return State::None,
            };
            let rows = match at(&index.op, &index.ty) {
                State::Rows(rows) if width(&index.ty) < 64 => extended(CastOp::SExt, &index.ty, rows),
                State::Rows(rows) => rows,
                other => return other,
            };
            address = address.sum(&rows, size);
        }
        address.useful()
    }
}

/// The rows of a number that is extended or truncated.
fn extended(op: CastOp, from: &Type, rows: LaneRows) -> LaneRows {
    match op {
        CastOp::Trunc => rows,
        _ if width(from) == 32 => {
            LaneRows { lanes: rows.lanes.iter().map(|(first, by)| (*first, i64::from(*by as i32))).collect() }
        }
        // Narrower numbers may have wrapped around by less than objects are long.
        _ => LaneRows::grouped(rows.len(), |lane| rows.lanes[lane], |_| 0),
    }
}

fn either(a: State, b: State) -> State {
    match (a, b) {
        (State::None, _) | (_, State::None) => State::None,
        (State::Unknown, other) | (other, State::Unknown) => other,
        (State::Rows(a), State::Rows(b)) => a.either(&b).useful(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Analyses;
    use crate::analysis::lane_layout::Layout;

    const HEAD: &str = "
        declare i32 @__elinvar_thread_position_in_threadgroup(i32)
        define void @__elinvar_entry(ptr %a, ptr %b) {
        entry:
          %t = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
          %n = load i32, ptr %b
          %row = lshr i32 %t, 2
          %column = and i32 %t, 3
          %start = mul i32 %row, %n\n";

    /// Each lane's first lane and difference, of the named values; empty if it has no rows.
    fn rows(body: &str, names: &[&str]) -> Vec<Vec<(u32, i64)>> {
        let module = Module::parse(&format!("{HEAD}{body}\n}}\n")).unwrap();
        let kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        let layout = Layout::new([64, 1, 1], 8, false);
        let uniform = Analyses::default().get::<Uniformity>(&module, &kernel, &layout).unwrap();
        let found = RowsOfValues::new(&module, &kernel, &uniform, 8);
        let of = |name: &&str| {
            let values = &kernel.function.values;
            let id = values.iter().position(|value| value.name.as_deref() == Some(*name)).unwrap();
            match &found.states[id] {
                State::Rows(rows) => rows.lanes.to_vec(),
                State::Unknown | State::None => Vec::new(),
            }
        };
        names.iter().map(of).collect()
    }

    /// Two rows of four lanes, by the differences of neighbors.
    fn two(step: i64) -> Vec<(u32, i64)> {
        (0..8).map(|lane| (lane / 4 * 4, i64::from(lane % 4) * step)).collect()
    }

    #[test]
    fn sums_of_a_row_and_a_column() {
        let body = "
          %i = add i32 %start, %column
          %w = sext i32 %i to i64
          %p = getelementptr float, ptr %a, i64 %w
          %q = getelementptr [2 x float], ptr %p, i64 0, i64 1
          %back = sub i32 %start, %column
          %scaled = shl i32 %back, 3
          %v = load float, ptr %p
          %i.v = fptosi float %v to i32
          %own = add i32 %i.v, %start
          ret void";
        let found = rows(body, &["start", "i", "w", "p", "q", "back", "scaled", "own"]);
        let same = [two(0), two(1), two(1), two(4), two(4), two(-1), two(-8), Vec::new()];
        assert_eq!(found, same);
    }

    #[test]
    fn other_operations_keep_equal_lanes() {
        let body = "
          %i = add i32 %start, %column
          %x = xor i32 %start, %n
          %y = xor i32 %i, 5
          %short = trunc i32 %i to i16
          %long = sext i16 %short to i64
          ret void";
        assert_eq!(rows(body, &["x", "y", "long"]), [two(0), Vec::new(), Vec::new()]);
    }

    #[test]
    fn products_wrap_around() {
        let body = "
          %i = add i32 %start, %column
          %m = mul i32 %i, 1073741825
          %w = zext i32 %m to i64
          ret void";
        // Four times the factor is 4 modulo 2^32.
        let body = body.replace("%start, %column", "%start, %four");
        let four = "%four = shl i32 %column, 2\n";
        assert_eq!(rows(&format!("{four}{body}"), &["w"]), [two(4)]);
    }

    #[test]
    fn values_that_are_not_computed_have_no_rows() {
        // With threadgroups of 3, the threads of a vector are in several rows: their positions are given.
        let module = Module::parse(
            "declare i32 @__elinvar_thread_position_in_threadgroup(i32)
            define void @__elinvar_entry(ptr %a, ptr %b) {
              %x = call i32 @__elinvar_thread_position_in_threadgroup(i32 0)
              %y = call i32 @__elinvar_thread_position_in_threadgroup(i32 1)
              %n = load i32, ptr %b
              %c = icmp eq i32 %n, 0
              %s = select i1 %c, i32 0, i32 %y
              %m = mul i32 %s, %n
              %w = zext i32 %m to i64
              %p = getelementptr i32, ptr %a, i64 %w
              %v = load i32, ptr %p
              ret void
            }",
        );
        let module = module.unwrap();
        let kernel = crate::transform::lower_intrinsics::lower(&module).unwrap();
        let layout = Layout::new([3, 7, 2], 8, false);
        let uniform = Analyses::default().get::<Uniformity>(&module, &kernel, &layout).unwrap();
        let found = RowsOfValues::new(&module, &kernel, &uniform, 8);
        let has_rows = |state: &State| matches!(state, State::Rows(_));
        assert!(!found.states.iter().any(has_rows));
    }

    #[test]
    fn loops_and_joins() {
        let body = "
          %p = getelementptr i32, ptr %a, i32 %start
          br label %loop
        loop:
          %at = phi ptr [ %p, %entry ], [ %next, %loop ]
          %k = phi i32 [ 0, %entry ], [ %more, %loop ]
          %next = getelementptr i32, ptr %at, i32 %n
          %more = add i32 %k, 1
          %c = icmp ult i32 %more, %n
          br i1 %c, label %loop, label %end
        end:
          %d = icmp ult i32 %t, 5
          br i1 %d, label %then, label %join
        then:
          br label %join
        join:
          %mixed = phi ptr [ %next, %end ], [ %p, %then ]
          ret void";
        assert_eq!(rows(body, &["at", "next", "mixed"]), [two(0), two(0), Vec::new()]);
    }
}
