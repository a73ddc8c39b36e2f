//! Replication: instructions without a vector form, executed lane by lane.

use elinvar_ir::{BinaryOp, CastOp, Const, Inst, IntPredicate, Op, Operand, Type, Typed};

use super::value::clear_flags;
use super::{Emit, Forms};
use crate::support::builder::i32_const;

/// Maximum number of lanes for which replicated code is unrolled, if all are active.
pub(super) const UNROLLED: u32 = 16;

impl Emit<'_, '_> {
    /// Executes an instruction for each active lane, in order.
    pub fn serial(&mut self, inst: &Inst) {
        if self.lanes() * self.source.layout.factor == 1 {
            return self.single(inst);
        }
        let vectors: Vec<Option<Operand>> =
            (0..self.factor()).map(|part| self.serial_part(inst, part)).collect();
        if let Some(result) = inst.result {
            let ty = self.source.kernel.function.ty(result).clone();
            let vectors: Vec<Operand> = vectors.into_iter().flatten().collect();
            // For a uniform value, any active lane's is correct.
            let known = self.source.uniform.of(result).clone();
            let scalars = match known.pattern() {
                Some(p) => {
                    let parts = self.source.parts(p.same);
                    let first = |emit: &mut Self, part: usize| {
                        let lane = emit.first_lane(part);
                        emit.extract(vectors[part].clone(), &ty, lane)
                    };
                    (0..parts).map(|part| first(self, part)).collect()
                }
                None => Vec::new(),
            };
            let vectors = if scalars.is_empty() { vectors } else { Vec::new() };
            self.define(result, Forms { scalars, vectors });
        }
    }

    /// With one lane: the scalar instruction.
    fn single(&mut self, inst: &Inst) {
        let mut op = inst.op.clone();
        op.map_operands(|o| *o = self.scalar(o, 0));
        match inst.result {
            Some(result) => {
                let ty = self.source.kernel.function.ty(result).clone();
                let value = self.b.value(ty, None, op);
                self.define(result, Forms { scalars: vec![value.into()], vectors: Vec::new() });
            }
            None => self.b.effect(op),
        }
    }

    /// All lanes of one part, unrolled.
    fn unrolled_part(&mut self, inst: &Inst, part: usize) -> Option<Operand> {
        let ty = inst.result.map(|r| self.source.kernel.function.ty(r).clone());
        let columns: Vec<Vec<Operand>> = self
            .operand_types(&inst.op)
            .into_iter()
            .map(|(operand, ty)| match ty {
                None => vec![self.scalar(&operand, part); self.lanes() as usize],
                Some(ty) => self.all_lanes(&operand, &ty, part),
            })
            .collect();
        let mut gathered = ty.as_ref().map(|_| Operand::from(Const::Poison));
        for lane in 0..self.lanes() {
            let scalars = columns.iter().map(|column| column[lane as usize].clone());
            let op = with_operands(&inst.op, scalars);
            let value = self.one(inst, op, ty.as_ref());
            if let (Some(ty), Some(before), Some(value)) = (&ty, gathered.clone(), value) {
                gathered = Some(self.insert(before, ty, value, i32_const(lane).into()));
            }
        }
        gathered
    }

    /// Emits `inst` for one thread with the operands `op`.
    fn one(&mut self, inst: &Inst, op: Op, ty: Option<&Type>) -> Option<Operand> {
        let plain = matches!(&inst.op, Op::AtomicRmw { op, ptr, .. } if self.is_plain_change(*op, ptr));
        match (op, ty) {
            (Op::AtomicRmw { op, ptr, value, align, .. }, Some(_)) if plain => {
                let at = Typed::new(ptr.ty, self.in_table(ptr.op));
                Some(self.read_modify_write(op, &at, &value, align))
            }
            (op, Some(ty)) => Some(self.b.value(ty.clone(), None, op).into()),
            (op, None) => {
                self.b.effect(op);
                None
            }
        }
    }

    pub(super) fn serial_part(&mut self, inst: &Inst, part: usize) -> Option<Operand> {
        if self.mask.is_none() && self.copy_by_rows(inst, part) {
            return None;
        }
        if self.mask.is_none() && self.lanes() <= UNROLLED {
            return self.unrolled_part(inst, part);
        }
        let ty = inst.result.map(|r| self.source.kernel.function.ty(r).clone());
        let operands = self.lane_operands(&inst.op, part);
        let mask = self.part_mask(part);
        let all = self.bits(mask);
        let bits = Type::Int(self.lanes());
        let before = self.b.at;
        let (head, body, done) =
            (self.b.f.new_block(None), self.b.f.new_block(None), self.b.f.new_block(None));
        self.b.br(head);
        self.b.at = body;
        let (left, next) = (self.b.f.new_value(bits.clone(), None), self.b.f.new_value(bits.clone(), None));
        let wide = ty.as_ref().map(|ty| self.wide(ty));
        let gathered = wide.as_ref().map(|wide| self.b.f.new_value(wide.clone(), None));
        let lane = {
            let wide_bits = self.resize(left.into(), self.lanes());
            let args = [(Type::I32, wide_bits), (Type::I1, Const::int(1, -1).into())];
            Operand::from(self.b.call(Type::I32, "llvm.cttz.i32", &args))
        };
        let op = self.for_lane(&inst.op, &operands, &lane);
        let mut grown = None;
        match (&ty, gathered) {
            (Some(ty), Some(gathered)) => {
                let one = self.one(inst, op, Some(ty)).unwrap_or(Const::Poison.into());
                grown = Some(self.insert(gathered.into(), ty, one, lane));
            }
            _ => self.b.effect(op),
        }
        let minus_one = self.b.binary(BinaryOp::Sub, "", &bits, left, Const::int(self.lanes(), 1));
        let rest = Op::Binary {
            op: BinaryOp::And,
            flags: String::new(),
            ty: bits.clone(),
            a: left.into(),
            b: minus_one.into(),
        };
        self.b.push(Inst { result: Some(next), op: rest, metadata: Vec::new() });
        let end = self.b.at;
        self.b.br(head);
        self.b.at = head;
        let phi = |ty: &Type, first: Operand, again: Operand| Op::Phi {
            flags: String::new(),
            ty: ty.clone(),
            incoming: vec![(first, before), (again, end)],
        };
        let op = phi(&bits, all, next.into());
        self.b.push(Inst { result: Some(left), op, metadata: Vec::new() });
        if let (Some(wide), Some(gathered), Some(grown)) = (&wide, gathered, grown) {
            let op = phi(wide, Const::Poison.into(), grown);
            self.b.push(Inst { result: Some(gathered), op, metadata: Vec::new() });
        }
        let more = self.b.icmp(IntPredicate::Ne, &bits, left, Const::int(self.lanes(), 0));
        self.b.cond_br(more, body, done);
        self.b.at = done;
        gathered.map(Operand::from)
    }

    /// The operands, with their scalar types unless they are uniform.
    fn operand_types(&self, op: &Op) -> Vec<(Operand, Option<Type>)> {
        let ty = |operand: &Operand| {
            let ty = self.source.kernel.function.ty(operand.value()?).clone();
            (!self.known(operand, &ty).is_uniform()).then_some(ty)
        };
        op.operands().into_iter().map(|operand| (operand.clone(), ty(operand))).collect()
    }

    /// Each operand as a uniform scalar, or as a vector with its scalar type.
    fn lane_operands(&mut self, op: &Op, part: usize) -> Vec<(Operand, Option<Type>)> {
        let operands = self.operand_types(op).into_iter().map(|(operand, ty)| match ty {
            None => (self.scalar(&operand, part), None),
            Some(ty) => (self.vector(&operand, &ty, part), Some(ty)),
        });
        operands.collect()
    }

    fn for_lane(&mut self, op: &Op, operands: &[(Operand, Option<Type>)], lane: &Operand) -> Op {
        let scalars = operands.iter().map(|(operand, ty)| match ty {
            None => operand.clone(),
            Some(ty) => self.extract(operand.clone(), ty, lane.clone()),
        });
        with_operands(op, scalars)
    }

    /// Each lane of a value as a scalar. All lanes are active.
    ///
    /// Addresses and extended indices are computed again from the lanes of narrower indices, which are cheaper to extract.
    fn all_lanes(&mut self, operand: &Operand, ty: &Type, part: usize) -> Vec<Operand> {
        let lanes = self.lanes();
        let known = self.known(operand, ty);
        if known.is_uniform() {
            return vec![self.scalar(operand, part); lanes as usize];
        }
        let definition = match operand {
            Operand::Value(v)
                if self.source.uniform.home(*v) == Some(self.block) && known.pattern().is_none() =>
            {
                self.source.definition(*v)
            }
            _ => None,
        };
        match definition.map(|inst| &inst.op) {
            Some(op @ Op::Gep { base, indices, .. }) if self.known(&base.op, &base.ty).is_uniform() => {
                let mut columns = vec![vec![self.scalar(&base.op, part); lanes as usize]];
                columns.extend(indices.iter().map(|index| self.all_lanes(&index.op, &index.ty, part)));
                (0..lanes as usize)
                    .map(|lane| {
                        let op = with_operands(op, columns.iter().map(|column| column[lane].clone()));
                        self.b.value(ty.clone(), None, op).into()
                    })
                    .collect()
            }
            Some(op @ Op::Cast { op: CastOp::ZExt | CastOp::SExt, from, .. })
                if matches!(from.ty, Type::Int(8 | 16 | 32)) =>
            {
                let column = self.all_lanes(&from.op, &from.ty, part);
                let extended = column.into_iter().map(|one| {
                    let op = with_operands(op, std::iter::once(one));
                    self.b.value(ty.clone(), None, op).into()
                });
                extended.collect()
            }
            _ => {
                let vector = self.vector(operand, ty, part);
                self.extract_all(vector, ty)
            }
        }
    }

    /// Extracts all lanes of a vector; of integers below 64 bits, as many as fit into 64 bits at once.
    ///
    /// This also has each lane in a register that a scalar instruction has written. On AMD's Zen 4, a read-modify-write whose
    /// address register was last written by `vmovd` or `vpextrd` takes several times as long as others.
    fn extract_all(&mut self, vector: Operand, ty: &Type) -> Vec<Operand> {
        let lanes = self.lanes();
        let width = match ty {
            Type::Int(width @ (8 | 16 | 32)) if (lanes * width).is_multiple_of(64) => *width,
            _ => {
                let each = (0..lanes).map(|lane| self.extract(vector.clone(), ty, i32_const(lane).into()));
                return each.collect();
            }
        };
        // Through memory, which clang removes if it optimizes: without, LLVM 19 has wrong known bits for the words of a bitcast vector
        // `~x & splat` (AVX-512), and drops the truncation of a lane.
        let (word, wide) = (Type::Int(64), self.wide(ty));
        let slot = self.slot(wide.clone());
        self.b.store(wide, vector, slot.clone());
        let mut all = Vec::new();
        for index in 0..lanes * width / 64 {
            let place = self.b.gep(Type::I8, slot.clone(), Const::int(64, i128::from(8 * index)));
            let chunk: Operand = self.b.load(word.clone(), place, None).into();
            for bit in (0..64).step_by(width as usize) {
                let shifted = match bit {
                    0 => chunk.clone(),
                    _ => self.b.binary(BinaryOp::LShr, "", &word, chunk.clone(), Const::int(64, bit)).into(),
                };
                all.push(self.b.cast(CastOp::Trunc, word.clone(), shifted, ty.clone()).into());
            }
        }
        all
    }

    /// Extracts a lane of a vector.
    pub fn extract(&mut self, vector: Operand, ty: &Type, lane: Operand) -> Operand {
        let wide = self.wide(ty);
        if let Type::Struct { fields, .. } = ty {
            let mut whole: Operand = Const::Poison.into();
            for (i, field) in fields.iter().enumerate() {
                let path = vec![i as u32];
                let agg = Typed::new(wide.clone(), vector.clone());
                let column =
                    self.b.value(self.wide(field), None, Op::ExtractValue { agg, path: path.clone() });
                let one = self.extract(column.into(), field, lane.clone());
                let (agg, value) = (Typed::new(ty.clone(), whole), Typed::new(field.clone(), one));
                whole = self.b.value(ty.clone(), None, Op::InsertValue { agg, value, path }).into();
            }
            return whole;
        }
        let op = Op::ExtractElement { vector: Typed::new(wide, vector), index: Typed::new(Type::I32, lane) };
        self.b.value(ty.clone(), None, op).into()
    }

    /// Replaces a lane of a vector.
    pub fn insert(&mut self, vector: Operand, ty: &Type, value: Operand, lane: Operand) -> Operand {
        let wide = self.wide(ty);
        if let Type::Struct { fields, .. } = ty {
            let mut whole = vector;
            for (i, field) in fields.iter().enumerate() {
                let path = vec![i as u32];
                let agg = Typed::new(wide.clone(), whole.clone());
                let column =
                    self.b.value(self.wide(field), None, Op::ExtractValue { agg, path: path.clone() });
                let agg = Typed::new(ty.clone(), value.clone());
                let one = self.b.value(field.clone(), None, Op::ExtractValue { agg, path: path.clone() });
                let column = self.insert(column.into(), field, one.into(), lane.clone());
                let (agg, value) = (Typed::new(wide.clone(), whole), Typed::new(self.wide(field), column));
                whole = self.b.value(wide.clone(), None, Op::InsertValue { agg, value, path }).into();
            }
            return whole;
        }
        let op = Op::InsertElement {
            vector: Typed::new(wide.clone(), vector),
            value: Typed::new(ty.clone(), value),
            index: Typed::new(Type::I32, lane),
        };
        self.b.value(wide, None, op).into()
    }

    /// The lane indices as a constant vector of i32.
    pub fn lane_numbers(&self) -> Operand {
        Const::Vector((0..self.lanes()).map(|l| (Type::I32, i32_const(l))).collect()).into()
    }
}

/// The instruction with other operands, and without flags that make results undefined.
fn with_operands(op: &Op, mut operands: impl Iterator<Item = Operand>) -> Op {
    let mut op = op.clone();
    op.map_operands(|o| {
        if let Some(operand) = operands.next() {
            *o = operand;
        }
    });
    clear_flags(&mut op);
    op
}
