//! Loads and stores: scalar, contiguous or strided, or gather and scatter.

use elinvar_ir::{CastOp, Const, Inst, Op, Operand, Type, Typed};

use super::{Emit, Forms};
use crate::analysis::vector_shape::{Offsets, Shape};
use crate::support::builder::{call, i32_const};
use crate::support::gep::{Step, steps};
use crate::support::vector_intrinsics::mangled;
use crate::vector::gather_scatter::memory_type;

/// Addresses of a vector's lanes.
enum Address {
    /// Uniform.
    One(Operand),
    /// Strided from the first lane's, with this stride in bytes.
    Row(Operand, i64),
    Each(Operand),
}

/// A plain load or store.
pub(super) struct Access {
    pub ty: Type,
    pub align: u64,
    pub size: i64,
}

impl Emit<'_, '_> {
    fn address(&mut self, ptr: &Typed, part: usize) -> Address {
        let known = self.known(&ptr.op, &ptr.ty);
        let Shape::Lanes(pattern) = &known.shape else {
            return Address::Each(self.addresses(ptr, part));
        };
        if pattern.is_uniform() {
            return Address::One(self.scalar(&ptr.op, part));
        }
        let Offsets::Linear(step) = pattern.offsets else {
            return Address::Each(self.addresses(ptr, part));
        };
        if !pattern.loose || self.mask.is_none() {
            return Address::Row(self.scalar(&ptr.op, part), step);
        }
        // Lane 0 may have wrapped around where the active lanes have not: use an active lane as the base.
        let lane = self.first_lane(part);
        match self.at_lane(&ptr.op, &ptr.ty, part, &lane) {
            Some(at) => {
                let wide = self.b.cast(CastOp::ZExt, Type::I32, lane, Type::I64);
                let back = Const::int(64, -i128::from(step));
                let back = self.b.binary(elinvar_ir::BinaryOp::Mul, "", &Type::I64, wide, back);
                Address::Row(self.b.gep(Type::I8, at, back).into(), step)
            }
            None => Address::Each(self.addresses(ptr, part)),
        }
    }

    /// The address of lane 0, if the lanes' elements are contiguous.
    pub(super) fn row(&mut self, ptr: &Typed, size: i64, part: usize) -> Option<Operand> {
        match self.address(ptr, part) {
            Address::Row(at, step) if step == size => Some(at),
            _ => None,
        }
    }

    pub(super) fn access(&self, ty: &Type, align: Option<u64>) -> Access {
        let (size, natural) = ty.size_align(self.source.module);
        Access { ty: ty.clone(), align: align.unwrap_or(natural), size: size as i64 }
    }

    pub fn load_inst(&mut self, inst: &Inst) {
        let (Op::Load { ty, ptr, align, volatile, atomic }, Some(result)) = (&inst.op, inst.result) else {
            return;
        };
        let known = self.source.uniform.of(result).clone();
        if let Some(p) = known.pattern() {
            let scalars = (0..self.source.parts(p.same)).map(|part| {
                let mut op = self.scalar_op(&inst.op, part);
                if let Op::Load { ptr: at, .. } = &mut op {
                    at.op = self.readable(ptr, at.op.clone(), ty, part);
                }
                self.b.value(ty.clone(), None, op).into()
            });
            let forms = Forms { scalars: scalars.collect(), vectors: Vec::new() };
            return self.define(result, forms);
        }
        if *volatile || atomic.is_some() && !self.source.is_threadgroup(&ptr.op) {
            return self.serial(inst);
        }
        let access = self.access(ty, *align);
        let vectors = (0..self.factor()).map(|part| match self.address(ptr, part) {
            Address::One(at) => {
                let at = self.readable(ptr, at, ty, part);
                let one = self.b.load(ty.clone(), at, None);
                self.splat(one.into(), ty)
            }
            Address::Row(at, step) if step == access.size => self.load_contiguous(&access, ptr, at, part),
            Address::Row(at, step) if step == -access.size => self.load_backwards(&access, at, part),
            Address::Row(..) => {
                let all = self.addresses(ptr, part);
                self.gather(&access, all, part)
            }
            Address::Each(all) if self.is_likely_row(&ptr.op, access.size) => {
                self.load_likely_row(&access, ptr, all, part)
            }
            Address::Each(all) => self.gather(&access, all, part),
        });
        let vectors = vectors.collect();
        self.define(result, Forms { scalars: Vec::new(), vectors });
    }

    /// The address `at` of a scalar load for a part, or that of a stack slot if the part has no active lane: its own address may then be any number, such
    /// as that behind the last iteration of its loop, which other parts are still in. If all parts have the address, the block is skipped
    /// without active lanes.
    fn readable(&mut self, ptr: &Typed, at: Operand, ty: &Type, part: usize) -> Operand {
        let is_same = self.known(&ptr.op, &ptr.ty).is_same();
        if self.mask.is_none() || self.factor() == 1 || is_same || self.is_within(ptr, ty) {
            return at;
        }
        let spare = self.zeroed_slot(ty);
        let mask = self.part_mask(part);
        let (cond, a) = (Typed::new(Type::I1, self.any(&[mask])), Typed::new(Type::PTR, at));
        let select = Op::Select { flags: String::new(), cond, a, b: Typed::new(Type::PTR, spare) };
        self.b.value(Type::PTR, None, select).into()
    }

    /// Whether an address is in a threadgroup variable for all values that its indices can have.
    fn is_within(&self, ptr: &Typed, ty: &Type) -> bool {
        let module = self.source.module;
        let definition = ptr.op.value().and_then(|value| self.source.definition(value)).map(|inst| &inst.op);
        let Some(Op::Gep { source, base, indices, .. }) = definition else { return false };
        let Operand::Const(Const::Global(name)) = &base.op else { return false };
        let Some(global) = module.global(name).filter(|_| self.source.is_threadgroup(&ptr.op)) else {
            return false;
        };
        let steps = steps(module, source, indices).into_iter().zip(indices);
        let mut most = steps.map(|(step, index)| match step? {
            Step::Field(offset) => Some(offset),
            Step::Elements(size) => self.known(&index.op, &index.ty).max.checked_mul(size),
        });
        let end = most.try_fold(ty.size_align(module).0, |sum, bytes| sum.checked_add(bytes?));
        end.is_some_and(|end| end <= global.ty.size_align(module).0)
    }

    pub(super) fn load_row(&mut self, access: &Access, at: Operand, part: usize) -> Operand {
        let wide = self.wide(&access.ty);
        let Some(mask) = self.mask.as_ref().map(|m| m[part].clone()) else {
            let op = Op::Load {
                ty: wide.clone(),
                ptr: Typed::new(Type::PTR, at),
                align: Some(access.align),
                volatile: false,
                atomic: None,
            };
            return self.b.value(wide, None, op).into();
        };
        if !self.source.gathers.has_masked_rows(access.size) {
            let addresses = self.spread_pointer(at, &Offsets::Linear(access.size));
            return self.gather(access, addresses, part);
        }
        let ty = memory_type(&access.ty);
        let wide = self.wide(ty);
        let name = format!("llvm.masked.load.{}.p0", mangled(ty, self.lanes()));
        let args = [
            (Type::PTR, at),
            (Type::I32, i32_const(access.align as u32).into()),
            (self.mask_type(), mask),
            (wide.clone(), Const::Zero.into()),
        ];
        let loaded = self.b.call(wide, &name, &args).into();
        self.of_memory(loaded, &access.ty)
    }

    /// A vector that was loaded as [`memory_type`], as its own type.
    pub(super) fn of_memory(&mut self, vector: Operand, ty: &Type) -> Operand {
        self.reinterpreted(vector, memory_type(ty), ty)
    }

    /// A vector as its [`memory_type`].
    pub(super) fn for_memory(&mut self, vector: Operand, ty: &Type) -> Operand {
        self.reinterpreted(vector, ty, memory_type(ty))
    }

    fn reinterpreted(&mut self, vector: Operand, from: &Type, to: &Type) -> Operand {
        if from == to {
            return vector;
        }
        let (from, to) = (self.wide(from), self.wide(to));
        self.b.cast(CastOp::BitCast, from, vector, to).into()
    }

    /// A negative stride: lane 0 has the highest address.
    fn load_backwards(&mut self, access: &Access, at: Operand, part: usize) -> Operand {
        let first = Const::int(64, -i128::from(access.size) * i128::from(self.lanes() - 1));
        let first = self.b.gep(Type::I8, at, first);
        let mask = self.mask.take();
        self.mask = mask.as_ref().map(|m| m.iter().map(|m| self.reversed(m.clone(), &Type::I1)).collect());
        let row = self.load_row(access, first.into(), part);
        self.mask = mask;
        self.reversed(row, &access.ty)
    }

    fn reversed(&mut self, vector: Operand, ty: &Type) -> Operand {
        let order: Vec<u32> = (0..self.lanes()).rev().collect();
        self.shuffle(&self.wide(ty), vector, None, &order)
    }

    pub(super) fn gather(&mut self, access: &Access, addresses: Operand, part: usize) -> Operand {
        let (ty, lanes, gathers) = (memory_type(&access.ty), self.lanes(), self.source.gathers);
        let wide = self.wide(ty);
        let loaded = if gathers.is_native(access.size) {
            let name = format!("llvm.masked.gather.{}.v{lanes}p0", mangled(ty, lanes));
            let args = [
                (self.wide(&Type::PTR), addresses),
                (Type::I32, i32_const(access.align as u32).into()),
                (self.mask_type(), self.part_mask(part)),
                (wide.clone(), Const::Zero.into()),
            ];
            self.b.call(wide, &name, &args)
        } else {
            let args = [(self.wide(&Type::PTR), addresses), (Type::I32, self.mask_bits(part))];
            self.b.call(wide, &gathers.gather_name(ty, access.size, access.align), &args)
        };
        self.of_memory(loaded.into(), &access.ty)
    }

    pub fn store_inst(&mut self, inst: &Inst) {
        let Op::Store { value, ptr, align, volatile, atomic } = &inst.op else { return };
        let to = self.known(&ptr.op, &ptr.ty);
        if to.is_same() && self.known(&value.op, &value.ty).is_same() {
            let op = self.scalar_op(&inst.op, 0);
            return self.b.effect(op);
        }
        if *volatile || atomic.is_some() && !self.source.is_threadgroup(&ptr.op) {
            return self.serial(inst);
        }
        let access = self.access(&value.ty, *align);
        for part in 0..self.factor() {
            match self.address(ptr, part) {
                Address::One(at) => self.store_one(&access, value, at, part),
                Address::Row(at, step) if step == access.size => {
                    let vector = self.vector(&value.op, &value.ty, part);
                    self.store_contiguous(&access, ptr, vector, at, part);
                }
                Address::Row(..) => {
                    let all = self.addresses(ptr, part);
                    self.scatter(&access, value, all, part);
                }
                Address::Each(all) => self.scatter(&access, value, all, part),
            }
        }
    }

    /// A store to a uniform address: the last active lane's value is stored.
    fn store_one(&mut self, access: &Access, value: &Typed, at: Operand, part: usize) {
        let plain = |value: Operand| Op::Store {
            value: Typed::new(access.ty.clone(), value),
            ptr: Typed::new(Type::PTR, at),
            align: Some(access.align),
            volatile: false,
            atomic: None,
        };
        let uniform = self.known(&value.op, &value.ty).is_uniform();
        if self.factor() == 1 || self.mask.is_none() {
            let one = match uniform {
                true => self.scalar(&value.op, part),
                false => {
                    let vector = self.vector(&value.op, &value.ty, part);
                    let lane = self.last_lane(part);
                    self.extract(vector, &value.ty, lane)
                }
            };
            return self.b.effect(plain(one));
        }
        // Some vectors may have no active lane.
        let vector = self.vector(&value.op, &value.ty, part);
        let mask = self.part_mask(part);
        let any = self.any(&[mask]);
        let (store, done) = (self.b.f.new_block(None), self.b.f.new_block(None));
        self.b.cond_br(any, store, done);
        self.b.at = store;
        let lane = self.last_lane(part);
        let one = self.extract(vector, &value.ty, lane);
        self.b.effect(plain(one));
        self.b.br(done);
        self.b.at = done;
    }

    pub(super) fn store_row(&mut self, access: &Access, vector: Operand, at: Operand, part: usize) {
        let Some(mask) = self.mask.as_ref().map(|m| m[part].clone()) else {
            return self.b.effect(Op::Store {
                value: Typed::new(self.wide(&access.ty), vector),
                ptr: Typed::new(Type::PTR, at),
                align: Some(access.align),
                volatile: false,
                atomic: None,
            });
        };
        if !self.source.gathers.has_masked_rows(access.size) {
            let addresses = self.spread_pointer(at, &Offsets::Linear(access.size));
            return self.scatter_vector(access, vector, addresses, part);
        }
        let ty = memory_type(&access.ty);
        let (wide, vector) = (self.wide(ty), self.for_memory(vector, &access.ty));
        let name = format!("llvm.masked.store.{}.p0", mangled(ty, self.lanes()));
        let args = [
            (wide, vector),
            (Type::PTR, at),
            (Type::I32, i32_const(access.align as u32).into()),
            (self.mask_type(), mask),
        ];
        self.b.effect(call(Type::Void, &name, &args));
    }

    fn scatter(&mut self, access: &Access, value: &Typed, addresses: Operand, part: usize) {
        let vector = self.vector(&value.op, &value.ty, part);
        self.scatter_vector(access, vector, addresses, part);
    }

    fn scatter_vector(&mut self, access: &Access, vector: Operand, addresses: Operand, part: usize) {
        let (ty, lanes, gathers) = (memory_type(&access.ty), self.lanes(), self.source.gathers);
        let value = (self.wide(ty), self.for_memory(vector, &access.ty));
        let addresses = (self.wide(&Type::PTR), addresses);
        if !gathers.is_native(access.size) {
            let args = [value, addresses, (Type::I32, self.mask_bits(part))];
            return self.b.effect(call(Type::Void, &gathers.scatter_name(ty), &args));
        }
        let name = format!("llvm.masked.scatter.{}.v{lanes}p0", mangled(ty, lanes));
        let args = [
            value,
            addresses,
            (Type::I32, i32_const(access.align as u32).into()),
            (self.mask_type(), self.part_mask(part)),
        ];
        self.b.effect(call(Type::Void, &name, &args));
    }
}
