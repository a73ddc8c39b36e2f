//! Forms of values: reading them, converting between them, and storing them in slots.

use elinvar_ir::{BinaryOp, BlockId, CastOp, Const, Inst, Op, Operand, Type, Typed, ValueId};

use super::{Emit, Forms};
use crate::analysis::uniformity::width;
use crate::analysis::vector_shape::{Known, Offsets, Pattern, Shape};
use crate::support::builder::{i32_const, i64_const};

/// Maximum depth of the rematerialization of an address for another lane.
const DEPTH: u32 = 24;

impl Emit<'_, '_> {
    /// Shape of an operand in the current block.
    pub fn known(&self, operand: &Operand, ty: &Type) -> Known {
        self.source.uniform.at(operand, ty, self.block)
    }

    /// Lane 0's value in a part.
    pub fn scalar(&mut self, operand: &Operand, part: usize) -> Operand {
        match operand {
            Operand::Const(c) => self.source.threadgroup.resolve(c),
            Operand::Value(v) => pick(&self.forms(*v).scalars, part),
        }
    }

    /// All lanes of a part.
    pub fn vector(&mut self, operand: &Operand, ty: &Type, part: usize) -> Operand {
        let value = match operand {
            Operand::Const(c) => {
                return match self.source.threadgroup.resolve(c) {
                    Operand::Const(c) => self.splat_const(ty, &c),
                    value => self.splat(value, ty),
                };
            }
            Operand::Value(v) => *v,
        };
        let forms = self.forms(value);
        if !forms.vectors.is_empty() {
            return pick(&forms.vectors, part);
        }
        let known = self.known(operand, ty);
        let scalar = pick(&forms.scalars, part);
        let Shape::Lanes(pattern) = known.shape else { return self.splat(scalar, ty) };
        self.spread(scalar, ty, &pattern)
    }

    /// Expands a value with a pattern to a vector.
    pub fn spread(&mut self, scalar: Operand, ty: &Type, pattern: &Pattern) -> Operand {
        if pattern.is_uniform() {
            return self.splat(scalar, ty);
        }
        if ty.is_ptr() {
            return self.spread_pointer(scalar, &pattern.offsets);
        }
        let offsets = self.offsets(&pattern.offsets, width(ty));
        let splat = self.splat(scalar, ty);
        let wide = self.wide(ty);
        self.b.binary(BinaryOp::Add, "", &wide, splat, offsets).into()
    }

    /// Addresses at byte offsets from lane 0's.
    pub(super) fn spread_pointer(&mut self, base: Operand, offsets: &Offsets) -> Operand {
        let offsets = self.offsets(offsets, 64);
        let op = Op::Gep {
            flags: String::new(),
            source: Type::I8,
            base: Typed::new(Type::PTR, base),
            indices: vec![Typed::new(self.wide(&Type::I64), offsets)],
        };
        self.b.value(self.wide(&Type::PTR), None, op).into()
    }

    /// Offsets of the lanes from lane 0, as a constant vector.
    fn offsets(&self, offsets: &Offsets, width: u32) -> Operand {
        let lane = |l| (Type::Int(width), Const::int(width, i128::from(offsets.at(l))));
        Const::Vector((0..self.lanes()).map(lane).collect()).into()
    }

    /// Broadcasts a value.
    pub fn splat(&mut self, scalar: Operand, ty: &Type) -> Operand {
        if let Operand::Const(c) = &scalar {
            return self.splat_const(ty, c);
        }
        if let Type::Struct { fields, .. } = ty {
            return self.splat_fields(scalar, ty, fields);
        }
        let wide = self.wide(ty);
        let insert = Op::InsertElement {
            vector: Typed::new(wide.clone(), Const::Poison),
            value: Typed::new(ty.clone(), scalar),
            index: Typed::new(Type::I64, i64_const(0)),
        };
        let first = self.b.value(wide.clone(), None, insert);
        let shuffle = Op::ShuffleVector {
            a: Typed::new(wide.clone(), first),
            b: Typed::new(wide.clone(), Const::Poison),
            mask: Typed::new(self.wide(&Type::I32), Const::Zero),
        };
        self.b.value(wide, None, shuffle).into()
    }

    /// Shuffles one or two vectors of type `from`.
    pub fn shuffle(&mut self, from: &Type, a: Operand, b: Option<Operand>, order: &[u32]) -> Operand {
        let element = from.scalar().clone();
        let indices = order.iter().map(|i| (Type::I32, i32_const(*i))).collect();
        let count = order.len() as u32;
        let op = Op::ShuffleVector {
            a: Typed::new(from.clone(), a),
            b: Typed::new(from.clone(), b.unwrap_or(Const::Poison.into())),
            mask: Typed::new(Type::vector(count, Type::I32), Const::Vector(indices)),
        };
        self.b.value(Type::vector(count, element), None, op).into()
    }

    fn splat_fields(&mut self, scalar: Operand, ty: &Type, fields: &[Type]) -> Operand {
        let wide = self.wide(ty);
        let mut whole: Operand = Const::Poison.into();
        for (i, field) in fields.iter().enumerate() {
            let path = vec![i as u32];
            let agg = Typed::new(ty.clone(), scalar.clone());
            let part = self.b.value(field.clone(), None, Op::ExtractValue { agg, path: path.clone() });
            let value = Typed::new(self.wide(field), self.splat(part.into(), field));
            let agg = Typed::new(wide.clone(), whole);
            whole = self.b.value(wide.clone(), None, Op::InsertValue { agg, value, path }).into();
        }
        whole
    }

    /// The available forms of a value in the current block.
    fn forms(&mut self, value: ValueId) -> Forms {
        if let Some(forms) = self.given.get(&value).or_else(|| self.local.get(&value)) {
            return forms.clone();
        }
        let ty = self.source.kernel.function.ty(value).clone();
        let forms = if self.source.uniform.has_left(value, self.block) {
            let slots = self.left_slots(value, &ty);
            let wide = self.wide(&ty);
            let vectors = slots.iter().map(|s| self.b.load(wide.clone(), s.clone(), None).into()).collect();
            Forms { scalars: Vec::new(), vectors }
        } else {
            let slots = self.value_slots(value);
            self.load(&slots, &ty)
        };
        if !self.aside {
            self.local.insert(value, forms.clone());
        }
        forms
    }

    /// Whether a value is available in the current block.
    pub fn is_here(&self, value: ValueId) -> bool {
        self.given.contains_key(&value) || self.local.contains_key(&value)
    }

    /// Defines a value's forms.
    pub fn define(&mut self, value: ValueId, mut forms: Forms) {
        let ty = self.source.kernel.function.ty(value).clone();
        let keep = self.source.uniform.is_temporally_divergent(value);
        if keep && forms.vectors.is_empty() {
            let splat = |emit: &mut Self, part| emit.splat(pick(&forms.scalars, part), &ty);
            let vectors = (0..self.factor()).map(|part| splat(self, part)).collect();
            forms = Forms { scalars: Vec::new(), vectors };
        }
        self.local.insert(value, forms.clone());
        if self.source.crossing.contains(&value) {
            let slots = self.value_slots(value);
            self.store(&slots, &ty, &forms, keep);
        }
        if self.source.leaving.contains(&value) {
            let slots = self.left_slots(value, &ty);
            let vectors = (0..self.factor()).map(|part| self.vector(&value.into(), &ty, part)).collect();
            let forms = Forms { scalars: Vec::new(), vectors };
            self.store(&Forms { scalars: Vec::new(), vectors: slots }, &ty, &forms, true);
        }
    }

    /// Stores a value that is uniform over all lanes and parts in its slot.
    pub fn put(&mut self, value: ValueId, one: Operand) {
        let ty = self.source.kernel.function.ty(value).clone();
        let slots = self.value_slots(value);
        self.store(&slots, &ty, &Forms { scalars: vec![one], vectors: Vec::new() }, false);
    }

    /// Loads values from slots.
    pub fn load(&mut self, slots: &Forms, ty: &Type) -> Forms {
        let scalars = slots.scalars.iter().map(|s| self.b.load(ty.clone(), s.clone(), None).into()).collect();
        let wide = self.wide(ty);
        let vectors =
            slots.vectors.iter().map(|s| self.b.load(wide.clone(), s.clone(), None).into()).collect();
        Forms { scalars, vectors }
    }

    /// Stores values in slots; with `keep`, inactive lanes keep their previous values.
    pub fn store(&mut self, slots: &Forms, ty: &Type, forms: &Forms, keep: bool) {
        for (slot, value) in slots.scalars.iter().zip(&forms.scalars) {
            self.b.store(ty.clone(), value.clone(), slot.clone());
        }
        let wide = self.wide(ty);
        for (part, (slot, value)) in slots.vectors.iter().zip(&forms.vectors).enumerate() {
            let mut value = value.clone();
            if keep && let Some(mask) = self.mask.clone() {
                let old = self.b.load(wide.clone(), slot.clone(), None);
                value = self.blend(mask[part].clone(), ty, value, old.into());
            }
            self.b.store(wide.clone(), value, slot.clone());
        }
    }

    /// The forms of a value of this shape, each created by `make` from its type.
    pub fn shaped(
        &mut self,
        known: &Known,
        ty: &Type,
        mut make: impl FnMut(&mut Self, Type) -> Operand,
    ) -> Forms {
        let (scalars, vectors) = self.source.counts(known);
        let wide = self.wide(ty);
        let scalars = (0..scalars).map(|_| make(self, ty.clone())).collect();
        Forms { scalars, vectors: (0..vectors).map(|_| make(self, wide.clone())).collect() }
    }

    fn new_slots(&mut self, value: ValueId) -> Forms {
        let ty = self.source.kernel.function.ty(value).clone();
        let known = self.source.uniform.of(value).clone();
        self.shaped(&known, &ty, |emit, ty| emit.slot(ty))
    }

    pub fn value_slots(&mut self, value: ValueId) -> Forms {
        if !self.slots.values.contains_key(&value) {
            let slots = self.new_slots(value);
            self.slots.values.insert(value, slots);
        }
        self.slots.values[&value].clone()
    }

    pub fn phi_slots(&mut self, value: ValueId) -> Forms {
        if !self.slots.phis.contains_key(&value) {
            let slots = self.new_slots(value);
            self.slots.phis.insert(value, slots);
        }
        self.slots.phis[&value].clone()
    }

    pub fn left_slots(&mut self, value: ValueId, ty: &Type) -> Vec<Operand> {
        if !self.slots.left.contains_key(&value) {
            let wide = self.wide(ty);
            let slots = (0..self.factor()).map(|_| self.slot(wide.clone())).collect();
            self.slots.left.insert(value, slots);
        }
        self.slots.left[&value].clone()
    }

    /// An operand in the forms of this shape.
    pub fn formed(&mut self, known: &Known, operand: &Operand, ty: &Type) -> Forms {
        let Shape::Lanes(p) = &known.shape else {
            return Forms {
                scalars: Vec::new(),
                vectors: (0..self.factor()).map(|part| self.vector(operand, ty, part)).collect(),
            };
        };
        let scalars = (0..self.source.parts(p.same)).map(|part| self.scalar(operand, part)).collect();
        let parts = if p.loose { self.factor() } else { 0 };
        Forms { scalars, vectors: (0..parts).map(|part| self.vector(operand, ty, part)).collect() }
    }

    /// The value of lane `lane` (an i32), for a value with a pattern.
    pub fn at_lane(&mut self, operand: &Operand, ty: &Type, part: usize, lane: &Operand) -> Option<Operand> {
        self.lane_value(operand, ty, part, lane, DEPTH)
    }

    fn lane_value(
        &mut self,
        operand: &Operand,
        ty: &Type,
        part: usize,
        lane: &Operand,
        depth: u32,
    ) -> Option<Operand> {
        let Operand::Value(value) = operand else { return Some(self.scalar(operand, part)) };
        let known = self.known(operand, ty);
        let pattern = known.pattern()?.clone();
        if pattern.is_uniform() {
            return Some(self.scalar(operand, part));
        }
        if !pattern.loose {
            let Offsets::Linear(step) = pattern.offsets else { return None };
            let first = self.scalar(operand, part);
            return Some(self.ahead(first, ty, step, lane));
        }
        let inst: &Inst = self.source.definition(*value)?;
        if depth == 0 || !self.source.uniform.stays(*value, self.block) {
            return None;
        }
        let mut op = inst.op.clone();
        if !matches!(op, Op::Binary { .. } | Op::Cast { .. } | Op::Gep { .. } | Op::Freeze(_)) {
            return None;
        }
        let mut complete = true;
        let function = &self.source.kernel.function;
        op.map_operands(|o| {
            let found = match o {
                Operand::Const(c) => Some(self.source.threadgroup.resolve(c)),
                Operand::Value(v) => self.lane_value(&(*v).into(), function.ty(*v), part, lane, depth - 1),
            };
            match found {
                Some(value) => *o = value,
                None => complete = false,
            }
        });
        clear_flags(&mut op);
        complete.then(|| self.b.value(ty.clone(), None, op).into())
    }

    /// `first` plus `step` for each lane before `lane`.
    fn ahead(&mut self, first: Operand, ty: &Type, step: i64, lane: &Operand) -> Operand {
        let bits = width(ty);
        let int = Type::Int(bits);
        let lane = match bits {
            32 => lane.clone(),
            64 => self.b.cast(CastOp::ZExt, Type::I32, lane.clone(), Type::I64).into(),
            _ => self.b.cast(CastOp::Trunc, Type::I32, lane.clone(), int.clone()).into(),
        };
        let more = self.b.binary(BinaryOp::Mul, "", &int, lane, Const::int(bits, i128::from(step)));
        match ty.is_ptr() {
            true => self.b.gep(Type::I8, first, more).into(),
            false => self.b.binary(BinaryOp::Add, "", &int, first, more).into(),
        }
    }

    /// The first active lane of a part, as an i32; the number of lanes if there is none.
    pub fn first_lane(&mut self, part: usize) -> Operand {
        if self.mask.is_none() {
            return i32_const(0).into();
        }
        let bits = self.mask_bits(part);
        self.count_zeros("cttz", bits)
    }

    /// The last active lane of a part, as an i32; there must be one.
    pub fn last_lane(&mut self, part: usize) -> Operand {
        if self.mask.is_none() {
            return i32_const(self.lanes() - 1).into();
        }
        let bits = self.mask_bits(part);
        let zeros = self.count_zeros("ctlz", bits);
        self.b.binary(BinaryOp::Sub, "", &Type::I32, i32_const(31), zeros).into()
    }

    /// Extends an integer of up to 32 bits to i32.
    pub fn resize(&mut self, bits: Operand, width: u32) -> Operand {
        if width == 32 {
            return bits;
        }
        self.b.cast(CastOp::ZExt, Type::Int(width), bits, Type::I32).into()
    }

    fn count_zeros(&mut self, what: &str, bits: Operand) -> Operand {
        let args = [(Type::I32, bits), (Type::I1, Const::int(1, 0).into())];
        self.b.call(Type::I32, &format!("llvm.{what}.i32"), &args).into()
    }

    /// Begins a block of the kernel: loads its phis.
    pub fn phis(&mut self, block: BlockId) {
        let function = &self.source.kernel.function;
        for inst in &function.block(block).insts {
            let (Op::Phi { .. }, Some(result)) = (&inst.op, inst.result) else { break };
            let slots = self.phi_slots(result);
            let forms = self.load(&slots, function.ty(result));
            self.define(result, forms);
        }
    }
}

/// The form for a part: one for all, or the part's.
fn pick(forms: &[Operand], part: usize) -> Operand {
    forms.get(part).or_else(|| forms.first()).cloned().unwrap_or(Operand::Const(Const::Poison))
}

/// Drops flags that can make a result poison.
pub(crate) fn clear_flags(op: &mut Op) {
    match op {
        Op::Binary { flags, ty, .. } if !ty.scalar().is_float() => flags.clear(),
        Op::ICmp { flags, .. } | Op::Cast { flags, .. } | Op::Gep { flags, .. } => flags.clear(),
        _ => {}
    }
}
